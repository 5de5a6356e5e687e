"""Datasets, tokenisers, data augmentation and other preparation of data.

`load("mnist")` gives a verified dataset from the cache, a local folder, the web or a package
archive. `moons(500, key=key)` and other toy datasets are synthetic, as are the sequence tasks
`adding_problem`, `recall_task`, `listops` and `date_pairs`. `check`, `split` and `Standardise`
prepare arrays. `split_words`, `Vocabulary`, `Characters`, `WordPiece` and `BytePairEncoding` turn
texts into tokens, `mask_tokens` and `sentence_pairs` give pretraining tasks, and
`batches_by_length` gives batches. `augment` has data augmentation. `load_verses` and `load_brown`
give corpora, `fetch_model` the files of pretrained networks, and `read_gguf` reads llama.cpp files.
"""

from ..check import check as check
from . import augment as augment
from .arrays import Standardise as Standardise
from .arrays import split as split
from .datasets import LISTOPS as LISTOPS
from .datasets import UNIVERSAL_TAGS as UNIVERSAL_TAGS
from .datasets import Brown as Brown
from .datasets import Data as Data
from .datasets import Dataset as Dataset
from .datasets import DatasetUnavailable as DatasetUnavailable
from .datasets import LabelledGraphs as LabelledGraphs
from .datasets import LabelledNodes as LabelledNodes
from .datasets import Meshes as Meshes
from .datasets import Verses as Verses
from .datasets import adding_problem as adding_problem
from .datasets import base_tag as base_tag
from .datasets import blobs as blobs
from .datasets import cached_path as cached_path
from .datasets import circles as circles
from .datasets import datasets as datasets
from .datasets import date_pairs as date_pairs
from .datasets import fetch as fetch
from .datasets import fetch_model as fetch_model
from .datasets import listops as listops
from .datasets import load as load
from .datasets import load_arrays as load_arrays
from .datasets import load_brown as load_brown
from .datasets import load_graph as load_graph
from .datasets import load_graphs as load_graphs
from .datasets import load_meshes as load_meshes
from .datasets import load_verses as load_verses
from .datasets import mesh_clouds as mesh_clouds
from .datasets import moons as moons
from .datasets import read_image as read_image
from .datasets import recall_task as recall_task
from .datasets import sinusoid as sinusoid
from .datasets import spirals as spirals
from .datasets import teacher_student as teacher_student
from .datasets import universal_tag as universal_tag
from .datasets import xor as xor
from .gguf import Gguf as Gguf
from .gguf import TokenTable as TokenTable
from .gguf import deinterleave_rotary as deinterleave_rotary
from .gguf import gguf_tokeniser as gguf_tokeniser
from .gguf import interleave_rotary as interleave_rotary
from .gguf import read_gguf as read_gguf
from .graphs import ColourRefinement as ColourRefinement
from .graphs import EdgeList as EdgeList
from .graphs import Graph as Graph
from .graphs import GraphFourier as GraphFourier
from .graphs import Subgraph as Subgraph
from .graphs import append_features as append_features
from .graphs import batch_graphs as batch_graphs
from .graphs import cluster_batches as cluster_batches
from .graphs import cluster_nodes as cluster_nodes
from .graphs import colour_refinement as colour_refinement
from .graphs import complete_graph as complete_graph
from .graphs import cycle_graph as cycle_graph
from .graphs import dirichlet_energy as dirichlet_energy
from .graphs import distinguishable as distinguishable
from .graphs import erdos_renyi as erdos_renyi
from .graphs import flip_eigenvector_signs as flip_eigenvector_signs
from .graphs import from_networkx as from_networkx
from .graphs import from_pyg as from_pyg
from .graphs import from_scipy as from_scipy
from .graphs import graph_fourier as graph_fourier
from .graphs import grid_graph as grid_graph
from .graphs import laplacian as laplacian
from .graphs import laplacian_encoding as laplacian_encoding
from .graphs import neighbour_table as neighbour_table
from .graphs import pad_graph as pad_graph
from .graphs import pair_refinement as pair_refinement
from .graphs import path_graph as path_graph
from .graphs import permute_nodes as permute_nodes
from .graphs import random_regular_graph as random_regular_graph
from .graphs import random_tree as random_tree
from .graphs import random_walk_encoding as random_walk_encoding
from .graphs import sample_neighbours as sample_neighbours
from .graphs import stack_graphs as stack_graphs
from .graphs import star_graph as star_graph
from .graphs import stochastic_block_model as stochastic_block_model
from .graphs import to_edges as to_edges
from .graphs import to_networkx as to_networkx
from .graphs import to_pyg as to_pyg
from .graphs import to_scipy as to_scipy
from .io import read_csv as read_csv
from .io import read_idx as read_idx
from .io import read_npz as read_npz
from .io import read_rda as read_rda
from .io import read_stl as read_stl
from .io import read_vrml as read_vrml
from .sets import PRIMITIVE_PARTS as PRIMITIVE_PARTS
from .sets import PRIMITIVES as PRIMITIVES
from .sets import PointSet as PointSet
from .sets import jitter_points as jitter_points
from .sets import mesh_areas as mesh_areas
from .sets import normalise_points as normalise_points
from .sets import primitive_clouds as primitive_clouds
from .sets import random_rotation as random_rotation
from .sets import rotate_points as rotate_points
from .sets import sample_mesh as sample_mesh
from .sets import sample_primitive as sample_primitive
from .sets import stack_sets as stack_sets
from .text import REPLACEMENT_CHARACTER as REPLACEMENT_CHARACTER
from .text import BytePairEncoding as BytePairEncoding
from .text import Characters as Characters
from .text import Tokeniser as Tokeniser
from .text import Vocabulary as Vocabulary
from .text import WordPiece as WordPiece
from .text import batches_by_length as batches_by_length
from .text import bucket_lengths as bucket_lengths
from .text import learn_merges as learn_merges
from .text import load_tokeniser as load_tokeniser
from .text import mask_tokens as mask_tokens
from .text import pack_sentences as pack_sentences
from .text import pad_rows as pad_rows
from .text import pair_association as pair_association
from .text import pair_frequency as pair_frequency
from .text import save_tokeniser as save_tokeniser
from .text import sentence_pairs as sentence_pairs
from .text import split_sentences as split_sentences
from .text import split_words as split_words
from .text import unpack_sentences as unpack_sentences

__all__ = [
    "LISTOPS",
    "PRIMITIVES",
    "PRIMITIVE_PARTS",
    "REPLACEMENT_CHARACTER",
    "UNIVERSAL_TAGS",
    "Brown",
    "BytePairEncoding",
    "Characters",
    "ColourRefinement",
    "Data",
    "Dataset",
    "DatasetUnavailable",
    "EdgeList",
    "Gguf",
    "Graph",
    "GraphFourier",
    "LabelledGraphs",
    "LabelledNodes",
    "Meshes",
    "PointSet",
    "Standardise",
    "Subgraph",
    "TokenTable",
    "Tokeniser",
    "Verses",
    "Vocabulary",
    "WordPiece",
    "adding_problem",
    "append_features",
    "base_tag",
    "batch_graphs",
    "batches_by_length",
    "blobs",
    "bucket_lengths",
    "cached_path",
    "check",
    "circles",
    "cluster_batches",
    "cluster_nodes",
    "colour_refinement",
    "complete_graph",
    "cycle_graph",
    "datasets",
    "date_pairs",
    "deinterleave_rotary",
    "dirichlet_energy",
    "distinguishable",
    "erdos_renyi",
    "fetch",
    "fetch_model",
    "flip_eigenvector_signs",
    "from_networkx",
    "from_pyg",
    "from_scipy",
    "gguf_tokeniser",
    "graph_fourier",
    "grid_graph",
    "interleave_rotary",
    "jitter_points",
    "laplacian",
    "laplacian_encoding",
    "learn_merges",
    "listops",
    "load",
    "load_arrays",
    "load_brown",
    "load_graph",
    "load_graphs",
    "load_meshes",
    "load_tokeniser",
    "load_verses",
    "mask_tokens",
    "mesh_areas",
    "mesh_clouds",
    "moons",
    "neighbour_table",
    "normalise_points",
    "pack_sentences",
    "pad_graph",
    "pad_rows",
    "pair_association",
    "pair_frequency",
    "pair_refinement",
    "path_graph",
    "permute_nodes",
    "primitive_clouds",
    "random_regular_graph",
    "random_rotation",
    "random_tree",
    "random_walk_encoding",
    "read_csv",
    "read_gguf",
    "read_idx",
    "read_image",
    "read_npz",
    "read_rda",
    "read_stl",
    "read_vrml",
    "recall_task",
    "rotate_points",
    "sample_mesh",
    "sample_neighbours",
    "sample_primitive",
    "save_tokeniser",
    "sentence_pairs",
    "sinusoid",
    "spirals",
    "split",
    "split_sentences",
    "split_words",
    "stack_graphs",
    "stack_sets",
    "star_graph",
    "stochastic_block_model",
    "teacher_student",
    "to_edges",
    "to_networkx",
    "to_pyg",
    "to_scipy",
    "universal_tag",
    "unpack_sentences",
    "xor",
]
