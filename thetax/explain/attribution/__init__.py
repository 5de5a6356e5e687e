"""Attribution: saliency, attention maps, convolution filters, receptive fields, equivariance."""

from .attention_alignment import AttentionAlignment as AttentionAlignment
from .attention_alignment import attention_alignment as attention_alignment
from .attention_maps import AttentionMaps as AttentionMaps
from .attention_maps import attention_maps as attention_maps
from .attention_maps import has_self_attention as has_self_attention
from .equivariance import Equivariance as Equivariance
from .equivariance import equivariance as equivariance
from .filters import FeatureMaps as FeatureMaps
from .filters import Filters as Filters
from .filters import feature_maps as feature_maps
from .filters import filters as filters
from .filters import has_convolution as has_convolution
from .receptive_field import ReceptiveField as ReceptiveField
from .receptive_field import receptive_fields as receptive_fields
from .saliency import Saliency as Saliency
from .saliency import saliency as saliency
from .token_saliency import EmbeddingMap as EmbeddingMap
from .token_saliency import TokenSaliency as TokenSaliency
from .token_saliency import embedding_map as embedding_map
from .token_saliency import has_embedding as has_embedding
from .token_saliency import token_saliency as token_saliency
