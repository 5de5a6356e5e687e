"""Recurrent language models, sequence classifiers, n-grams."""

from .classifier import SequenceClassifier as SequenceClassifier
from .ngram import NGram as NGram
from .recurrent_lm import AttentionCell as AttentionCell
from .recurrent_lm import EncoderDecoder as EncoderDecoder
from .recurrent_lm import LanguageModelCell as LanguageModelCell
