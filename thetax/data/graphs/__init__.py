"""Graphs: the type, batches, conversion and algorithms."""

from .graph import Graph as Graph
from .graph import batch_graphs as batch_graphs
from .graph import pad_graph as pad_graph
from .graph import permute_nodes as permute_nodes
from .graph import stack_graphs as stack_graphs

__all__ = ["Graph", "batch_graphs", "pad_graph", "permute_nodes", "stack_graphs"]
