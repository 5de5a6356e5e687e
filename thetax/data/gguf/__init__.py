"""GGUF, the file format of llama.cpp: header, tensors, tokeniser."""

from .file import Gguf as Gguf
from .file import TokenTable as TokenTable
from .file import read_gguf as read_gguf
from .file import rotary_halves as rotary_halves
from .file import rotary_pairs as rotary_pairs
from .tokeniser import gguf_tokeniser as gguf_tokeniser
