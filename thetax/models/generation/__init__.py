"""Text generation: greedy, sampling with temperature, top-k and top-p, beam search, streaming with
a KV cache.
"""

from .decoding import Said as Said
from .decoding import beam as beam
from .decoding import greedy as greedy
from .decoding import sample as sample
from .streaming import stream as stream
