"""Neural network layers. A layer maps one example; its array leaves are the parameters $\\theta$
and nothing else.

`Linear(W, b)` is a layer with given weights, and `Linear.init(n, m, key=key)` initialises them.
`Chain`, `Residual`, `Concat`, `Stacked` and `Ensemble` combine layers into networks.
"""

from .activation import ACTIVATIONS as ACTIVATIONS
from .activation import Activation as Activation
from .activation import centred as centred
from .activation import gelu as gelu
from .activation import gelu_tanh as gelu_tanh
from .activation import heaviside as heaviside
from .activation import identity as identity
from .activation import leaky_relu as leaky_relu
from .activation import relu as relu
from .activation import sigmoid as sigmoid
from .activation import sign as sign
from .activation import silu as silu
from .activation import softmax as softmax
from .activation import softplus as softplus
from .activation import spin as spin
from .activation import tanh as tanh
from .attention import CAUSAL as CAUSAL
from .attention import FULL as FULL
from .attention import AdditiveAttention as AdditiveAttention
from .attention import ALiBi as ALiBi
from .attention import Attention as Attention
from .attention import KeysValues as KeysValues
from .attention import LearnedPositions as LearnedPositions
from .attention import Mask as Mask
from .attention import ModernHopfield as ModernHopfield
from .attention import Rotary as Rotary
from .attention import SinusoidalPositions as SinusoidalPositions
from .attention import attention_weights as attention_weights
from .attention import block_pairs as block_pairs
from .attention import dot_product_attention as dot_product_attention
from .attention import hierarchical_attention as hierarchical_attention
from .attention import linear_attention as linear_attention
from .attention import position_frequencies as position_frequencies
from .attention import sequence_length as sequence_length
from .attention import sparse_attention as sparse_attention
from .compose import Chain as Chain
from .compose import Concat as Concat
from .compose import Ensemble as Ensemble
from .compose import Pointwise as Pointwise
from .compose import Residual as Residual
from .compose import Stacked as Stacked
from .compose import mean_output as mean_output
from .compose import mean_probabilities as mean_probabilities
from .convolution import AdaptivePool as AdaptivePool
from .convolution import AveragePool as AveragePool
from .convolution import Convolution as Convolution
from .convolution import MaxPool as MaxPool
from .convolution import circulant as circulant
from .convolution import convolve as convolve
from .convolution import correlate as correlate
from .convolution import fft_convolve as fft_convolve
from .convolution import global_max as global_max
from .convolution import global_mean as global_mean
from .convolution import matrix_of as matrix_of
from .convolution import toeplitz as toeplitz
from .dropout import DropConnect as DropConnect
from .dropout import Dropout as Dropout
from .embedding import Embedding as Embedding
from .embedding import expect_tokens as expect_tokens
from .feed_forward import FeedForward as FeedForward
from .feed_forward import GatedFeedForward as GatedFeedForward
from .graphs import AGGREGATIONS as AGGREGATIONS
from .graphs import GAT as GAT
from .graphs import GCN as GCN
from .graphs import GIN as GIN
from .graphs import AttentionReadout as AttentionReadout
from .graphs import ChebyshevFilter as ChebyshevFilter
from .graphs import DropEdge as DropEdge
from .graphs import EdgeAttention as EdgeAttention
from .graphs import EdgeConditioned as EdgeConditioned
from .graphs import GATv2 as GATv2
from .graphs import GraphNorm as GraphNorm
from .graphs import GraphResidual as GraphResidual
from .graphs import GraphSAGE as GraphSAGE
from .graphs import GraphTransformer as GraphTransformer
from .graphs import InteractionNetwork as InteractionNetwork
from .graphs import Jump as Jump
from .graphs import JumpingKnowledge as JumpingKnowledge
from .graphs import MessagePassing as MessagePassing
from .graphs import Nodewise as Nodewise
from .graphs import PairNorm as PairNorm
from .graphs import PolynomialFilter as PolynomialFilter
from .graphs import Pooling as Pooling
from .graphs import Readout as Readout
from .graphs import SpectralFilter as SpectralFilter
from .graphs import VirtualNode as VirtualNode
from .graphs import aggregate as aggregate
from .graphs import apply_to_rows as apply_to_rows
from .graphs import edge_softmax as edge_softmax
from .graphs import edge_softmax_with_loops as edge_softmax_with_loops
from .graphs import gather_graphs as gather_graphs
from .graphs import gather_receivers as gather_receivers
from .graphs import gather_senders as gather_senders
from .graphs import gcn_propagate as gcn_propagate
from .graphs import in_degrees as in_degrees
from .graphs import laplacian_propagate as laplacian_propagate
from .graphs import pool_nodes as pool_nodes
from .graphs import propagate as propagate
from .graphs import scaled_laplacian_propagate as scaled_laplacian_propagate
from .graphs import spectral_filter as spectral_filter
from .graphs import take_edges as take_edges
from .graphs import zero_padding as zero_padding
from .initialise import Initialiser as Initialiser
from .initialise import fan_in as fan_in
from .initialise import fan_out as fan_out
from .initialise import gaussian as gaussian
from .initialise import glorot as glorot
from .initialise import he as he
from .initialise import lecun as lecun
from .initialise import ntk_parametrisation as ntk_parametrisation
from .initialise import orthogonal as orthogonal
from .initialise import uniform as uniform
from .linear import Affine as Affine
from .linear import Linear as Linear
from .linear import matvec as matvec
from .normalisation import BatchNorm as BatchNorm
from .normalisation import LayerNorm as LayerNorm
from .normalisation import RMSNorm as RMSNorm
from .normalisation import WeightNorm as WeightNorm
from .normalisation import fold_batch_norm as fold_batch_norm
from .normalisation import has_batch_norm as has_batch_norm
from .recurrent import GRU as GRU
from .recurrent import LRU as LRU
from .recurrent import LSTM as LSTM
from .recurrent import AntisymmetricRNN as AntisymmetricRNN
from .recurrent import Bidirectional as Bidirectional
from .recurrent import Cell as Cell
from .recurrent import DeepTransition as DeepTransition
from .recurrent import DiagonalSSM as DiagonalSSM
from .recurrent import Elman as Elman
from .recurrent import LipschitzRNN as LipschitzRNN
from .recurrent import LSTMState as LSTMState
from .recurrent import MinGRU as MinGRU
from .recurrent import Recurrent as Recurrent
from .recurrent import ResidualCell as ResidualCell
from .recurrent import SelectiveSSM as SelectiveSSM
from .recurrent import StackedCells as StackedCells
from .recurrent import TruncatedBPTT as TruncatedBPTT
from .recurrent import discretise_bilinear as discretise_bilinear
from .recurrent import hippo as hippo
from .recurrent import linear_scan as linear_scan
from .recurrent import prefix_scan as prefix_scan
from .recurrent import sequential_scan as sequential_scan
from .recurrent import unroll as unroll
from .sets import SET_AGGREGATIONS as SET_AGGREGATIONS
from .sets import InducedSetAttentionBlock as InducedSetAttentionBlock
from .sets import MultiheadAttentionBlock as MultiheadAttentionBlock
from .sets import PoolingMultiheadAttention as PoolingMultiheadAttention
from .sets import SetAbstraction as SetAbstraction
from .sets import SetAttentionBlock as SetAttentionBlock
from .sets import SharedMLP as SharedMLP
from .sets import TNet as TNet
from .sets import aggregate_set as aggregate_set
from .sets import ball_query as ball_query
from .sets import farthest_points as farthest_points
from .sets import orthogonality_penalty as orthogonality_penalty
from .sparse_linear import SparseLinear as SparseLinear
from .tap import tap as tap

__all__ = [
    "ACTIVATIONS",
    "AGGREGATIONS",
    "CAUSAL",
    "FULL",
    "GAT",
    "GCN",
    "GIN",
    "GRU",
    "LRU",
    "LSTM",
    "SET_AGGREGATIONS",
    "ALiBi",
    "Activation",
    "AdaptivePool",
    "AdditiveAttention",
    "Affine",
    "AntisymmetricRNN",
    "Attention",
    "AttentionReadout",
    "AveragePool",
    "BatchNorm",
    "Bidirectional",
    "Cell",
    "Chain",
    "ChebyshevFilter",
    "Concat",
    "Convolution",
    "DeepTransition",
    "DiagonalSSM",
    "DropConnect",
    "DropEdge",
    "Dropout",
    "EdgeAttention",
    "EdgeConditioned",
    "Elman",
    "Embedding",
    "Ensemble",
    "FeedForward",
    "GATv2",
    "GatedFeedForward",
    "GraphNorm",
    "GraphResidual",
    "GraphSAGE",
    "GraphTransformer",
    "InducedSetAttentionBlock",
    "Initialiser",
    "InteractionNetwork",
    "Jump",
    "JumpingKnowledge",
    "KeysValues",
    "LSTMState",
    "LayerNorm",
    "LearnedPositions",
    "Linear",
    "LipschitzRNN",
    "Mask",
    "MaxPool",
    "MessagePassing",
    "MinGRU",
    "ModernHopfield",
    "MultiheadAttentionBlock",
    "Nodewise",
    "PairNorm",
    "Pointwise",
    "PolynomialFilter",
    "Pooling",
    "PoolingMultiheadAttention",
    "RMSNorm",
    "Readout",
    "Recurrent",
    "Residual",
    "ResidualCell",
    "Rotary",
    "SelectiveSSM",
    "SetAbstraction",
    "SetAttentionBlock",
    "SharedMLP",
    "SinusoidalPositions",
    "SparseLinear",
    "SpectralFilter",
    "Stacked",
    "StackedCells",
    "TNet",
    "TruncatedBPTT",
    "VirtualNode",
    "WeightNorm",
    "aggregate",
    "aggregate_set",
    "apply_to_rows",
    "attention_weights",
    "ball_query",
    "block_pairs",
    "centred",
    "circulant",
    "convolve",
    "correlate",
    "discretise_bilinear",
    "dot_product_attention",
    "edge_softmax",
    "edge_softmax_with_loops",
    "expect_tokens",
    "fan_in",
    "fan_out",
    "farthest_points",
    "fft_convolve",
    "fold_batch_norm",
    "gather_graphs",
    "gather_receivers",
    "gather_senders",
    "gaussian",
    "gcn_propagate",
    "gelu",
    "gelu_tanh",
    "global_max",
    "global_mean",
    "glorot",
    "has_batch_norm",
    "he",
    "heaviside",
    "hierarchical_attention",
    "hippo",
    "identity",
    "in_degrees",
    "laplacian_propagate",
    "leaky_relu",
    "lecun",
    "linear_attention",
    "linear_scan",
    "matrix_of",
    "matvec",
    "mean_output",
    "mean_probabilities",
    "ntk_parametrisation",
    "orthogonal",
    "orthogonality_penalty",
    "pool_nodes",
    "position_frequencies",
    "prefix_scan",
    "propagate",
    "relu",
    "scaled_laplacian_propagate",
    "sequence_length",
    "sequential_scan",
    "sigmoid",
    "sign",
    "silu",
    "softmax",
    "softplus",
    "sparse_attention",
    "spectral_filter",
    "spin",
    "take_edges",
    "tanh",
    "tap",
    "toeplitz",
    "uniform",
    "unroll",
    "zero_padding",
]
