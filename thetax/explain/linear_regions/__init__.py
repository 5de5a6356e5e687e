"""The linear regions of ReLU networks."""

from .arrangement import arrangement_cells as arrangement_cells
from .arrangement import arrangement_patterns as arrangement_patterns
from .breakpoints_1d import Breakpoints1D as Breakpoints1D
from .breakpoints_1d import breakpoints_1d as breakpoints_1d
from .piecewise import NotPiecewiseLinear as NotPiecewiseLinear
from .piecewise import activation_patterns as activation_patterns
from .piecewise import is_piecewise_linear as is_piecewise_linear
from .polygons import TooManyRegions as TooManyRegions
from .regions import InputPlane as InputPlane
from .regions import LinearRegions as LinearRegions
from .regions import count_regions as count_regions
from .regions import enumerate_regions as enumerate_regions
from .regions import input_plane as input_plane
from .regions import input_plane_around as input_plane_around
from .regions import input_plane_through as input_plane_through
