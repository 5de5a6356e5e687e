"""Figures of theory: approximation, convergence, loss landscapes, linear regions, tangent kernels,
associative memories.
"""

from . import approximation as approximation
from . import cost as cost
from . import critical_points_1d as critical_points_1d
from . import descent as descent
from . import landscape as landscape
from . import memory as memory
from . import regions as regions
from . import tangent_kernel as tangent_kernel
