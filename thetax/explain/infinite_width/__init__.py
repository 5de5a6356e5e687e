"""Networks of infinite width: the NNGP and the NTK in closed form."""

from .dual_activations import DualActivation as DualActivation
from .dual_activations import dual_activation as dual_activation
from .dual_activations import register_dual_activation as register_dual_activation
from .infinite_width_limit import InfiniteWidthKernel as InfiniteWidthKernel
from .infinite_width_limit import InfiniteWidthLimit as InfiniteWidthLimit
from .infinite_width_limit import infinite_width_limit as infinite_width_limit
from .rules import NoInfiniteWidthLimit as NoInfiniteWidthLimit
from .rules import propagate_moments as propagate_moments
