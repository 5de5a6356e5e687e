"""Graphs: the type, batches, conversion and algorithms."""

from .colour_refinement import ColourRefinement as ColourRefinement
from .colour_refinement import colour_refinement as colour_refinement
from .colour_refinement import distinguishable as distinguishable
from .colour_refinement import pair_refinement as pair_refinement
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
from .positional_encoding import flip_signs as flip_signs
from .positional_encoding import laplacian_encoding as laplacian_encoding
from .positional_encoding import random_walk_encoding as random_walk_encoding

__all__ = ["Graph", "batch_graphs", "pad_graph", "permute_nodes", "stack_graphs"]
