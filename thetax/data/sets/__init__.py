"""Sets and point clouds: padded sets, geometric primitives, meshes, and augmentation."""

from .augment import jitter_points as jitter_points
from .augment import normalise_points as normalise_points
from .augment import random_rotation as random_rotation
from .augment import rotate_points as rotate_points
from .mesh import mesh_areas as mesh_areas
from .mesh import sample_mesh as sample_mesh
from .point_set import PointSet as PointSet
from .point_set import stack_sets as stack_sets
from .primitives import PRIMITIVE_PARTS as PRIMITIVE_PARTS
from .primitives import PRIMITIVES as PRIMITIVES
from .primitives import primitive_clouds as primitive_clouds
from .primitives import sample_primitive as sample_primitive
