"""Chapter 7, sets and graphs."""

from . import laplacian as laplacian
from . import self_attention as self_attention
from . import spectral as spectral
from . import weisfeiler_leman as weisfeiler_leman
