"""Chapter 4, convolutional networks, and lecture 10, appendix A.1 to A.13: operators, layers,
pooling, networks.
"""

from . import backward as backward
from . import boundaries as boundaries
from . import channels as channels
from . import discrete as discrete
from . import equivariance as equivariance
from . import experiments as experiments
from . import fourier as fourier
from . import networks as networks
from . import operators as operators
from . import pooling as pooling
from . import smoothing as smoothing
