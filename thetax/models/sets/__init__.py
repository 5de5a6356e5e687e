"""Models for sets and point clouds: Deep Sets, the Set Transformer, PointNet and PointNet++."""

from .deep_sets import DeepSets as DeepSets
from .deep_sets import EquivariantDeepSets as EquivariantDeepSets
from .pointnet import CriticalPoints as CriticalPoints
from .pointnet import PointFeatures as PointFeatures
from .pointnet import PointNet as PointNet
from .pointnet import PointNetFeatures as PointNetFeatures
from .pointnet import PointNetSegmentation as PointNetSegmentation
from .pointnet import PointNetWidths as PointNetWidths
from .pointnet import critical_points as critical_points
from .pointnet2 import AbstractionLevel as AbstractionLevel
from .pointnet2 import PointNet2 as PointNet2
from .set_transformer import SetTransformer as SetTransformer
