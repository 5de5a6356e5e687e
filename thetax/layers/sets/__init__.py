"""Layers for sets and point clouds: aggregations, shared MLPs, the blocks of the Set Transformer,
the T-net, and the set abstraction of PointNet++.

An element is a row of an array (n, d). Sets of different sizes are padded: `thetax.data.PointSet`.
"""

from .aggregation import SET_AGGREGATIONS as SET_AGGREGATIONS
from .aggregation import aggregate_set as aggregate_set
from .inputs import Elements as Elements
from .inputs import join_set as join_set
from .inputs import split_set as split_set
from .set_abstraction import SetAbstraction as SetAbstraction
from .set_abstraction import ball_query as ball_query
from .set_abstraction import farthest_points as farthest_points
from .set_attention import InducedSetAttentionBlock as InducedSetAttentionBlock
from .set_attention import MultiheadAttentionBlock as MultiheadAttentionBlock
from .set_attention import PoolingMultiheadAttention as PoolingMultiheadAttention
from .set_attention import SetAttentionBlock as SetAttentionBlock
from .shared_mlp import SharedMLP as SharedMLP
from .transform_net import TNet as TNet
from .transform_net import orthogonality_penalty as orthogonality_penalty
