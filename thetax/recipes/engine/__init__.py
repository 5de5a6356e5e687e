"""The engine of recipes: the registry, runs and their outcomes, what can be tuned."""

from .job import RECIPES as RECIPES
from .job import Job as Job
from .job import Recipe as Recipe
from .job import find_recipe as find_recipe
from .job import recipe as recipe
from .outcome import Outcome as Outcome
from .tunable import TUNABLE as TUNABLE
from .tunable import Tunable as Tunable
from .tunable import find_tunable as find_tunable
from .tunable import mlp_initialiser as mlp_initialiser
from .tunable import tunable as tunable
