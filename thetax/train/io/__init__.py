"""Weights on disk: safetensors, folders of pretrained models."""

from .pretrained import PretrainedModel as PretrainedModel
from .pretrained import load_pretrained as load_pretrained
from .pretrained import save_pretrained as save_pretrained
from .weights import load_weights as load_weights
from .weights import read_config as read_config
from .weights import save_weights as save_weights
