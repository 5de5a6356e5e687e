"""Text to tokens: words, WordPiece, byte pairs, masking, buckets of similar length."""

from .buckets import bucket_lengths as bucket_lengths
from .buckets import by_length as by_length
from .buckets import fill_rows as fill_rows
from .bytepairs import BytePairs as BytePairs
from .masking import cloze as cloze
from .merges import association as association
from .merges import frequency as frequency
from .merges import learn_merges as learn_merges
from .sentences import join_sentences as join_sentences
from .sentences import part_sentences as part_sentences
from .sentences import sentence_pairs as sentence_pairs
from .sentences import sentences as sentences
from .tokeniser import Tokeniser as Tokeniser
from .tokeniser_files import load_tokeniser as load_tokeniser
from .tokeniser_files import save_tokeniser as save_tokeniser
from .wordpiece import WordPiece as WordPiece
from .words import STRANGE as STRANGE
from .words import Characters as Characters
from .words import Vocabulary as Vocabulary
from .words import words as words
