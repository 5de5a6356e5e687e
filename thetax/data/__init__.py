"""Data to learn from: real sets by name, toys from a key, and arrays made ready.

`load("mnist")` gives a set that is proven to be the right one wherever it came from: the cache, a folder
of yours, the web or a package archive. `moons(500, key=key)` and the other toys are drawn, not
fetched, and so are the sequences of `adding`, `recall`, `listops` and `dates`. `check`, `split` and `Standardise` make
arrays fit to learn from, `words`, `Vocabulary`, `Characters`, `WordPiece` and `BytePairs` make numbers of texts;
`cloze` and `sentence_pairs` make problems of them, `by_length` batches; `augment` varies examples.
`load_verses` and `load_brown` give corpora, `fetch_model` the files of a network that others trained, and `read_gguf`
opens those of llama.cpp.
"""

from . import augment as augment
from .arrays import Standardise as Standardise
from .arrays import split as split
from .brown import UNIVERSAL as UNIVERSAL
from .brown import simple_tag as simple_tag
from .brown import universal_tag as universal_tag
from .buckets import bucket_lengths as bucket_lengths
from .buckets import by_length as by_length
from .buckets import fill_rows as fill_rows
from .bytepairs import BytePairs as BytePairs
from .check import check as check
from .cloze import cloze as cloze
from .corpora import Brown as Brown
from .corpora import Verses as Verses
from .corpora import load_brown as load_brown
from .corpora import load_verses as load_verses
from .dataset import Data as Data
from .dataset import Dataset as Dataset
from .gguf_file import Gguf as Gguf
from .gguf_file import TokenTable as TokenTable
from .gguf_file import read_gguf as read_gguf
from .gguf_file import rotary_halves as rotary_halves
from .gguf_file import rotary_pairs as rotary_pairs
from .gguf_tokeniser import gguf_tokeniser as gguf_tokeniser
from .merges import association as association
from .merges import frequency as frequency
from .merges import learn_merges as learn_merges
from .pictures import read_picture as read_picture
from .rda import read_rda as read_rda
from .readers import read_csv as read_csv
from .readers import read_idx as read_idx
from .readers import read_npz as read_npz
from .sentences import join_sentences as join_sentences
from .sentences import part_sentences as part_sentences
from .sentences import sentence_pairs as sentence_pairs
from .sentences import sentences as sentences
from .sequences import LISTOPS as LISTOPS
from .sequences import adding as adding
from .sequences import dates as dates
from .sequences import listops as listops
from .sequences import recall as recall
from .store import Unavailable as Unavailable
from .store import cached as cached
from .store import datasets as datasets
from .store import fetch as fetch
from .store import fetch_model as fetch_model
from .store import load as load
from .store import load_arrays as load_arrays
from .text import STRANGE as STRANGE
from .text import Characters as Characters
from .text import Vocabulary as Vocabulary
from .text import words as words
from .tokeniser import Tokeniser as Tokeniser
from .tokeniser_files import load_tokeniser as load_tokeniser
from .tokeniser_files import save_tokeniser as save_tokeniser
from .toys import blobs as blobs
from .toys import circles as circles
from .toys import moons as moons
from .toys import sinusoid as sinusoid
from .toys import spirals as spirals
from .toys import teacher_student as teacher_student
from .toys import xor as xor
from .wordpiece import WordPiece as WordPiece
