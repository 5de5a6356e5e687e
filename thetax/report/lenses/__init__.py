"""All lenses of a report, by topic; importing them registers them, and a report shows them in this
order.
"""

from . import basic as basic

# isort: split
from . import adversarial as adversarial
from . import attacks as attacks
from . import attention as attention
from . import gaussian_processes as gaussian_processes
from . import geometry as geometry
from . import graphs as graphs
from . import images as images
from . import loss_surface as loss_surface
from . import regularisers as regularisers
from . import tangent_kernel as tangent_kernel
from . import text as text
from . import time as time
