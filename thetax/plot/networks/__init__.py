"""Figures of networks: graphs, activations through depth and time, attention, training curves."""

from . import attention as attention
from . import depth as depth
from . import effective_parameters as effective_parameters
from . import graphs as graphs
from . import network_graph as network_graph
from . import time as time
from . import training as training
