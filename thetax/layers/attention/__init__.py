"""Attention layers: multi-head, additive, long-range, masks and positional encodings."""

from .additive import Additive as Additive
from .dot_product import attend as attend
from .dot_product import attention_weights as attention_weights
from .long_attention import block_pairs as block_pairs
from .long_attention import hierarchical_attention as hierarchical_attention
from .long_attention import linear_attention as linear_attention
from .long_attention import sparse_attention as sparse_attention
from .mask import ALL as ALL
from .mask import CAUSAL as CAUSAL
from .mask import Mask as Mask
from .mask import written as written
from .modern_hopfield import ModernHopfield as ModernHopfield
from .multi_head import Attention as Attention
from .multi_head import Shown as Shown
from .positions import ALiBi as ALiBi
from .positions import Learned as Learned
from .positions import Rotary as Rotary
from .positions import Sinusoidal as Sinusoidal
from .positions import frequencies as frequencies
