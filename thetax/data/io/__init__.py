"""Input: downloads, package archives, bounded decompression, readers of file formats."""

from .rda import read_rda as read_rda
from .readers import read_csv as read_csv
from .readers import read_idx as read_idx
from .readers import read_npz as read_npz
