"""Graph neural networks for node and graph classification, models with the graph fixed, and
baselines without parameters: label propagation, spectral clustering, the Weisfeiler-Leman kernel.
"""

from .fixed_graph import EdgeWeightModel as EdgeWeightModel
from .fixed_graph import FeatureModel as FeatureModel
from .fixed_graph import FixedGraph as FixedGraph
from .fixed_graph import NodeModel as NodeModel
from .fixed_graph import at_nodes as at_nodes
from .fixed_graph import of_edge_weights as of_edge_weights
from .fixed_graph import of_features as of_features
from .gnn import GNN as GNN
from .gnn import GRAPH_LAYERS as GRAPH_LAYERS
from .gnn import GRAPH_NORMS as GRAPH_NORMS
from .label_propagation import label_propagation as label_propagation
from .spectral_clustering import spectral_clustering as spectral_clustering
from .spectral_clustering import spectral_embedding as spectral_embedding
from .wl_kernel import wl_features as wl_features
from .wl_kernel import wl_kernel as wl_kernel
