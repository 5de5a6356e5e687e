"""Graph networks: predictions on the graph, over-smoothing, influence by distance, graphs that a
model cannot tell apart, attention on edges, attribution to nodes and edges.
"""

from .edge_attention import EdgeAttentionMaps as EdgeAttentionMaps
from .edge_attention import edge_attention as edge_attention
from .graph_attribution import GraphAttribution as GraphAttribution
from .graph_attribution import graph_attribution as graph_attribution
from .graph_separation import GraphSeparation as GraphSeparation
from .graph_separation import graph_separation as graph_separation
from .node_influence import NodeInfluence as NodeInfluence
from .node_influence import node_influence as node_influence
from .node_predictions import NodePredictions as NodePredictions
from .node_predictions import node_predictions as node_predictions
from .over_smoothing import FeatureSmoothness as FeatureSmoothness
from .over_smoothing import feature_smoothness as feature_smoothness
