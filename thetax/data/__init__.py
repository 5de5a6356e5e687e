"""Data to learn from: real sets by name, toys from a key, and arrays made ready.

`load("mnist")` gives a set that is proven to be the right one wherever it came from: the cache, a
folder of yours, the web or a package archive. `moons(500, key=key)` and the other toys are drawn,
not fetched, and so are the sequences of `adding`, `recall`, `listops` and `dates`. `check`, `split`
and `Standardise` make arrays fit to learn from, `words`, `Vocabulary`, `Characters`, `WordPiece`
and `BytePairs` make numbers of texts; `cloze` and `sentence_pairs` make problems of them,
`by_length` batches; `augment` varies examples. `load_verses` and `load_brown` give corpora,
`fetch_model` the files of a network that others trained, and `read_gguf` opens those of llama.cpp.
"""

from ..check import check as check
from . import augment as augment
from .arrays import Standardise as Standardise
from .arrays import split as split
from .datasets import LISTOPS as LISTOPS
from .datasets import UNIVERSAL as UNIVERSAL
from .datasets import Brown as Brown
from .datasets import Data as Data
from .datasets import Dataset as Dataset
from .datasets import Unavailable as Unavailable
from .datasets import Verses as Verses
from .datasets import adding as adding
from .datasets import blobs as blobs
from .datasets import cached as cached
from .datasets import circles as circles
from .datasets import datasets as datasets
from .datasets import dates as dates
from .datasets import fetch as fetch
from .datasets import fetch_model as fetch_model
from .datasets import listops as listops
from .datasets import load as load
from .datasets import load_arrays as load_arrays
from .datasets import load_brown as load_brown
from .datasets import load_verses as load_verses
from .datasets import moons as moons
from .datasets import read_picture as read_picture
from .datasets import recall as recall
from .datasets import simple_tag as simple_tag
from .datasets import sinusoid as sinusoid
from .datasets import spirals as spirals
from .datasets import teacher_student as teacher_student
from .datasets import universal_tag as universal_tag
from .datasets import xor as xor
from .gguf import Gguf as Gguf
from .gguf import TokenTable as TokenTable
from .gguf import gguf_tokeniser as gguf_tokeniser
from .gguf import read_gguf as read_gguf
from .gguf import rotary_halves as rotary_halves
from .gguf import rotary_pairs as rotary_pairs
from .io import read_csv as read_csv
from .io import read_idx as read_idx
from .io import read_npz as read_npz
from .io import read_rda as read_rda
from .text import STRANGE as STRANGE
from .text import BytePairs as BytePairs
from .text import Characters as Characters
from .text import Tokeniser as Tokeniser
from .text import Vocabulary as Vocabulary
from .text import WordPiece as WordPiece
from .text import association as association
from .text import bucket_lengths as bucket_lengths
from .text import by_length as by_length
from .text import cloze as cloze
from .text import fill_rows as fill_rows
from .text import frequency as frequency
from .text import join_sentences as join_sentences
from .text import learn_merges as learn_merges
from .text import load_tokeniser as load_tokeniser
from .text import part_sentences as part_sentences
from .text import save_tokeniser as save_tokeniser
from .text import sentence_pairs as sentence_pairs
from .text import sentences as sentences
from .text import words as words
