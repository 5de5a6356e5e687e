"""Chapter 7, sets and graphs."""

from . import coupling_matrix as coupling_matrix
from . import deep_sets as deep_sets
from . import depth as depth
from . import gcn as gcn
from . import graph_attention as graph_attention
from . import graph_definitions as graph_definitions
from . import laplacian as laplacian
from . import message_passing as message_passing
from . import pointnet as pointnet
from . import self_attention as self_attention
from . import sets as sets
from . import spectral as spectral
from . import weisfeiler_leman as weisfeiler_leman
