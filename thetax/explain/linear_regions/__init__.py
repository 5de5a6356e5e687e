"""The linear regions of ReLU networks."""

from .arrangement import arrangement_cells as arrangement_cells
from .arrangement import arrangement_patterns as arrangement_patterns
from .breakpoints_1d import Pieces as Pieces
from .breakpoints_1d import pieces as pieces
from .piecewise import NotPiecewiseLinear as NotPiecewiseLinear
from .piecewise import activation_patterns as activation_patterns
from .piecewise import is_piecewise_linear as is_piecewise_linear
from .polygons import TooMany as TooMany
from .regions import Regions as Regions
from .regions import Window as Window
from .regions import count_regions as count_regions
from .regions import regions as regions
from .regions import window as window
from .regions import window_around as window_around
from .regions import window_through as window_through
