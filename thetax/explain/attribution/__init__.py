"""Which part of the input counts: saliency, attention maps, filters, receptive fields."""

from .attention_alignment import Alignment as Alignment
from .attention_alignment import alignment as alignment
from .attention_maps import AttentionMaps as AttentionMaps
from .attention_maps import attends_to_itself as attends_to_itself
from .attention_maps import attention_maps as attention_maps
from .equivariance import Equivariance as Equivariance
from .equivariance import equivariance as equivariance
from .filters import FeatureMaps as FeatureMaps
from .filters import Filters as Filters
from .filters import feature_maps as feature_maps
from .filters import filters as filters
from .filters import has_convolution as has_convolution
from .saliency import Saliency as Saliency
from .saliency import saliency as saliency
from .token_saliency import EmbeddingMap as EmbeddingMap
from .token_saliency import TokenSaliency as TokenSaliency
from .token_saliency import embedding_map as embedding_map
from .token_saliency import has_table as has_table
from .token_saliency import token_saliency as token_saliency
