"""Input: downloads, package archives, bounded decompression, readers of file formats."""

from .meshes import Vrml as Vrml
from .meshes import read_stl as read_stl
from .meshes import read_vrml as read_vrml
from .rda import read_rda as read_rda
from .readers import read_csv as read_csv
from .readers import read_idx as read_idx
from .readers import read_npz as read_npz
