"""Networks of infinite width: the NNGP and the NTK in closed form."""

from .dual_activations import Expectations as Expectations
from .dual_activations import closed_form as closed_form
from .dual_activations import expectations as expectations
from .infinite import Infinite as Infinite
from .infinite import Kernel as Kernel
from .infinite import infinite as infinite
from .rules import NoLimit as NoLimit
from .rules import limit_of as limit_of
