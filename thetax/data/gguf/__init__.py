"""GGUF, the file format of llama.cpp: header, tensors, tokeniser."""

from .file import Gguf as Gguf
from .file import TokenTable as TokenTable
from .file import deinterleave_rotary as deinterleave_rotary
from .file import interleave_rotary as interleave_rotary
from .file import read_gguf as read_gguf
from .tokeniser import gguf_tokeniser as gguf_tokeniser
