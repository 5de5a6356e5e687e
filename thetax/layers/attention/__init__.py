"""Attention layers (multi-head, grouped-query, additive, sparse, linear), attention masks and
positional encodings (sinusoidal, learned, rotary, ALiBi).
"""

from .additive import AdditiveAttention as AdditiveAttention
from .dot_product import attention_weights as attention_weights
from .dot_product import dot_product_attention as dot_product_attention
from .long_attention import block_pairs as block_pairs
from .long_attention import hierarchical_attention as hierarchical_attention
from .long_attention import linear_attention as linear_attention
from .long_attention import sparse_attention as sparse_attention
from .mask import CAUSAL as CAUSAL
from .mask import FULL as FULL
from .mask import Mask as Mask
from .mask import sequence_length as sequence_length
from .modern_hopfield import ModernHopfield as ModernHopfield
from .multi_head import Attention as Attention
from .multi_head import KeysValues as KeysValues
from .positions import ALiBi as ALiBi
from .positions import LearnedPositions as LearnedPositions
from .positions import Rotary as Rotary
from .positions import SinusoidalPositions as SinusoidalPositions
from .positions import position_frequencies as position_frequencies
