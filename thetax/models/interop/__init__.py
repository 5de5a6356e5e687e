"""Weights and settings of other libraries: transformers, torchvision, timm, Keras, GGUF."""

from .from_config import AbstractModel as AbstractModel
from .from_config import model_from_config as model_from_config
from .gguf import gguf_llama as gguf_llama
from .huggingface import huggingface_bert as huggingface_bert
from .huggingface import huggingface_bert_masked_lm as huggingface_bert_masked_lm
from .huggingface import huggingface_bert_question_answering as huggingface_bert_question_answering
from .huggingface import huggingface_bert_tasks as huggingface_bert_tasks
from .huggingface import huggingface_gpt2 as huggingface_gpt2
from .huggingface import huggingface_llama as huggingface_llama
from .huggingface import huggingface_pooler as huggingface_pooler
from .huggingface import huggingface_vit as huggingface_vit
from .imagenet import ImageClassifier as ImageClassifier
from .imagenet import resnet_imagenet as resnet_imagenet
from .to_config import config_from_model as config_from_model
from .torchvision_timm_keras import keras_resnet as keras_resnet
from .torchvision_timm_keras import timm_mixer as timm_mixer
from .torchvision_timm_keras import torchvision_densenet as torchvision_densenet
from .torchvision_timm_keras import torchvision_resnet as torchvision_resnet
from .weight_names import WeightNames as WeightNames
from .weight_names import WeightRule as WeightRule
