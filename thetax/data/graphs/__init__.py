"""Graphs: the type, batches, conversion and algorithms."""

from .colour_refinement import ColourRefinement as ColourRefinement
from .colour_refinement import colour_refinement as colour_refinement
from .colour_refinement import distinguishable as distinguishable
from .colour_refinement import pair_refinement as pair_refinement
from .convert import EdgeList as EdgeList
from .convert import from_networkx as from_networkx
from .convert import from_pyg as from_pyg
from .convert import from_scipy as from_scipy
from .convert import to_edges as to_edges
from .convert import to_networkx as to_networkx
from .convert import to_pyg as to_pyg
from .convert import to_scipy as to_scipy
from .generate import complete_graph as complete_graph
from .generate import cycle_graph as cycle_graph
from .generate import erdos_renyi as erdos_renyi
from .generate import grid_graph as grid_graph
from .generate import path_graph as path_graph
from .generate import random_regular_graph as random_regular_graph
from .generate import random_tree as random_tree
from .generate import star_graph as star_graph
from .generate import stochastic_block_model as stochastic_block_model
from .graph import Graph as Graph
from .graph import batch_graphs as batch_graphs
from .graph import pad_graph as pad_graph
from .graph import permute_nodes as permute_nodes
from .graph import stack_graphs as stack_graphs
from .graph_fourier import GraphFourier as GraphFourier
from .graph_fourier import graph_fourier as graph_fourier
from .laplacian import dirichlet_energy as dirichlet_energy
from .laplacian import laplacian as laplacian
from .positional_encoding import append_features as append_features
from .positional_encoding import flip_eigenvector_signs as flip_eigenvector_signs
from .positional_encoding import laplacian_encoding as laplacian_encoding
from .positional_encoding import random_walk_encoding as random_walk_encoding
from .sampling import Subgraph as Subgraph
from .sampling import cluster_batches as cluster_batches
from .sampling import cluster_nodes as cluster_nodes
from .sampling import neighbour_table as neighbour_table
from .sampling import sample_neighbours as sample_neighbours

__all__ = ["Graph", "batch_graphs", "pad_graph", "permute_nodes", "stack_graphs"]
