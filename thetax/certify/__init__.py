"""What is guaranteed: how many labellings a class of functions can make, how many regions a network can have."""

from .capacity import cover_count as cover_count
from .capacity import cover_fraction as cover_fraction
from .capacity import dichotomies as dichotomies
from .capacity import general_position as general_position
from .regions import fold_network as fold_network
from .regions import montufar as montufar
from .regions import region_bound as region_bound
from .regions import zaslavsky as zaslavsky
