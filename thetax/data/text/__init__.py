"""Text to tokens: words, WordPiece, byte-pair encoding, masking, batches of similar length."""

from .buckets import batches_by_length as batches_by_length
from .buckets import bucket_lengths as bucket_lengths
from .buckets import pad_rows as pad_rows
from .byte_pair_encoding import BytePairEncoding as BytePairEncoding
from .masking import mask_tokens as mask_tokens
from .merges import learn_merges as learn_merges
from .merges import pair_association as pair_association
from .merges import pair_frequency as pair_frequency
from .sentences import pack_sentences as pack_sentences
from .sentences import sentence_pairs as sentence_pairs
from .sentences import split_sentences as split_sentences
from .sentences import unpack_sentences as unpack_sentences
from .tokeniser import Tokeniser as Tokeniser
from .tokeniser_files import load_tokeniser as load_tokeniser
from .tokeniser_files import save_tokeniser as save_tokeniser
from .wordpiece import WordPiece as WordPiece
from .words import REPLACEMENT_CHARACTER as REPLACEMENT_CHARACTER
from .words import Characters as Characters
from .words import Vocabulary as Vocabulary
from .words import split_words as split_words
