"""Whole jobs on real data, one function each: what `thetax train NAME` runs.

>>> sorted(RECIPES)
['default', 'digits', 'isl-table', 'mnist']
"""

from .classify import digits as digits
from .classify import mnist as mnist
from .isl import default as default
from .isl import isl_table as isl_table
from .job import RECIPES as RECIPES
from .job import Job as Job
from .job import Recipe as Recipe
from .job import find_recipe as find_recipe
from .job import recipe as recipe
from .outcome import Outcome as Outcome
