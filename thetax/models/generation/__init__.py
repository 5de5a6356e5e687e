"""Text generation: greedy, sampling with temperature, top-k and top-p, beam search, streaming with
a KV cache.
"""

from .decoding import GeneratedTokens as GeneratedTokens
from .decoding import beam_search as beam_search
from .decoding import greedy as greedy
from .decoding import sample as sample
from .streaming import stream as stream
