"""Layers on graphs: a layer maps a graph to the same graph with other node features."""

from .aggregation import AGGREGATIONS as AGGREGATIONS
from .aggregation import Aggregation as Aggregation
from .aggregation import aggregate as aggregate
from .aggregation import edge_softmax as edge_softmax
from .aggregation import gather_receivers as gather_receivers
from .aggregation import gather_senders as gather_senders
from .aggregation import in_degrees as in_degrees
from .aggregation import propagate as propagate
from .gcn import GCN as GCN
from .gcn import gcn_propagate as gcn_propagate
