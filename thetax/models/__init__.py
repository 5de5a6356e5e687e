"""Models: networks built from layers.

A model maps one example to its output, optionally with a random key. It can be trained with any
objective, and its leaves are saved as weights.
"""

from .associative_memory import AsynchronousRecall as AsynchronousRecall
from .associative_memory import DenseMemory as DenseMemory
from .associative_memory import ExponentialMemory as ExponentialMemory
from .associative_memory import Hebbian as Hebbian
from .associative_memory import Hopfield as Hopfield
from .associative_memory import Memory as Memory
from .associative_memory import SynchronousRecall as SynchronousRecall
from .associative_memory import UpdateTrace as UpdateTrace
from .associative_memory import asynchronous_recall as asynchronous_recall
from .associative_memory import hebb as hebb
from .associative_memory import pseudo_inverse as pseudo_inverse
from .associative_memory import synchronous_recall as synchronous_recall
from .associative_memory import update_sites as update_sites
from .constructive import CosineMixture as CosineMixture
from .constructive import GreedyNetwork as GreedyNetwork
from .constructive import PDPSystem as PDPSystem
from .constructive import add_networks as add_networks
from .constructive import as_sigmoid as as_sigmoid
from .constructive import as_tanh as as_tanh
from .constructive import barron_network as barron_network
from .constructive import gaussian_bell as gaussian_bell
from .constructive import greedy_network as greedy_network
from .constructive import hopfield_system as hopfield_system
from .constructive import interpolating_network as interpolating_network
from .constructive import max_affine_network as max_affine_network
from .constructive import merge_linear_layers as merge_linear_layers
from .constructive import mlp_system as mlp_system
from .constructive import perceptron_system as perceptron_system
from .constructive import permute_units as permute_units
from .constructive import product_network as product_network
from .constructive import random_units as random_units
from .constructive import rescale_units as rescale_units
from .constructive import ridge_network as ridge_network
from .constructive import sample_units as sample_units
from .constructive import scale_network as scale_network
from .constructive import square_network as square_network
from .constructive import step_network as step_network
from .constructive import widen as widen
from .generation import GeneratedTokens as GeneratedTokens
from .generation import beam_search as beam_search
from .generation import greedy as greedy
from .generation import sample as sample
from .generation import stream as stream
from .graphs import GNN as GNN
from .graphs import GRAPH_LAYERS as GRAPH_LAYERS
from .graphs import GRAPH_NORMS as GRAPH_NORMS
from .graphs import at_nodes as at_nodes
from .graphs import label_propagation as label_propagation
from .graphs import of_edge_weights as of_edge_weights
from .graphs import of_features as of_features
from .graphs import spectral_clustering as spectral_clustering
from .graphs import spectral_embedding as spectral_embedding
from .graphs import wl_features as wl_features
from .graphs import wl_kernel as wl_kernel
from .interop import AbstractModel as AbstractModel
from .interop import ImageClassifier as ImageClassifier
from .interop import WeightNames as WeightNames
from .interop import WeightRule as WeightRule
from .interop import config_from_model as config_from_model
from .interop import gguf_llama as gguf_llama
from .interop import huggingface_bert as huggingface_bert
from .interop import huggingface_bert_masked_lm as huggingface_bert_masked_lm
from .interop import huggingface_bert_question_answering as huggingface_bert_question_answering
from .interop import huggingface_bert_tasks as huggingface_bert_tasks
from .interop import huggingface_gpt2 as huggingface_gpt2
from .interop import huggingface_llama as huggingface_llama
from .interop import huggingface_pooler as huggingface_pooler
from .interop import huggingface_vit as huggingface_vit
from .interop import keras_resnet as keras_resnet
from .interop import model_from_config as model_from_config
from .interop import resnet_imagenet as resnet_imagenet
from .interop import timm_mixer as timm_mixer
from .interop import torchvision_densenet as torchvision_densenet
from .interop import torchvision_resnet as torchvision_resnet
from .linear import PCA as PCA
from .linear import LowRank as LowRank
from .linear import MaxMargin as MaxMargin
from .linear import McCullochPitts as McCullochPitts
from .linear import NotSeparable as NotSeparable
from .linear import Perceptron as Perceptron
from .linear import PerceptronFit as PerceptronFit
from .linear import PerceptronPath as PerceptronPath
from .linear import ReducedRank as ReducedRank
from .linear import SecondMoments as SecondMoments
from .linear import Separation as Separation
from .linear import balanced_factorisation as balanced_factorisation
from .linear import deep_linear as deep_linear
from .linear import deep_linear_gradient as deep_linear_gradient
from .linear import find_separator as find_separator
from .linear import fit_perceptron as fit_perceptron
from .linear import geometric_margin as geometric_margin
from .linear import layer_imbalance as layer_imbalance
from .linear import least_squares as least_squares
from .linear import leave_one_out as leave_one_out
from .linear import linear_regression as linear_regression
from .linear import logistic_regression as logistic_regression
from .linear import low_rank as low_rank
from .linear import max_margin as max_margin
from .linear import minimum_norm as minimum_norm
from .linear import mode_growth as mode_growth
from .linear import multinomial_regression as multinomial_regression
from .linear import perceptron_path as perceptron_path
from .linear import principal_components as principal_components
from .linear import reduced_rank_regression as reduced_rank_regression
from .linear import ridge as ridge
from .linear import second_moments as second_moments
from .linear import signed_distance as signed_distance
from .mlp import MLP as MLP
from .sequence import AttentionCell as AttentionCell
from .sequence import EncoderDecoder as EncoderDecoder
from .sequence import LanguageModelCell as LanguageModelCell
from .sequence import NGram as NGram
from .sequence import SequenceClassifier as SequenceClassifier
from .sets import AbstractionLevel as AbstractionLevel
from .sets import DeepSets as DeepSets
from .sets import EquivariantDeepSets as EquivariantDeepSets
from .sets import PointNet as PointNet
from .sets import PointNet2 as PointNet2
from .sets import PointNetFeatures as PointNetFeatures
from .sets import PointNetSegmentation as PointNetSegmentation
from .sets import PointNetWidths as PointNetWidths
from .sets import SetTransformer as SetTransformer
from .sets import critical_points as critical_points
from .transformers import BERT as BERT
from .transformers import GPT as GPT
from .transformers import BERTPretraining as BERTPretraining
from .transformers import Decoder as Decoder
from .transformers import KVCache as KVCache
from .transformers import MaskedLM as MaskedLM
from .transformers import PretrainingLogits as PretrainingLogits
from .transformers import SentenceClassifier as SentenceClassifier
from .transformers import SentenceEncoder as SentenceEncoder
from .transformers import SpanPredictor as SpanPredictor
from .transformers import TokenClassifier as TokenClassifier
from .transformers import TransformerBlock as TransformerBlock
from .transformers import Translator as Translator
from .transformers import Trunk as Trunk
from .transformers import ViT as ViT
from .transformers import best_span as best_span
from .vision import CNN as CNN
from .vision import DenseNet as DenseNet
from .vision import LeNet as LeNet
from .vision import Mixer as Mixer
from .vision import MixerBlock as MixerBlock
from .vision import ResNet as ResNet
from .vision import ResNetLayout as ResNetLayout

__all__ = [
    "BERT",
    "CNN",
    "GNN",
    "GPT",
    "GRAPH_LAYERS",
    "GRAPH_NORMS",
    "MLP",
    "PCA",
    "AbstractModel",
    "AbstractionLevel",
    "AsynchronousRecall",
    "AttentionCell",
    "BERTPretraining",
    "CosineMixture",
    "Decoder",
    "DeepSets",
    "DenseMemory",
    "DenseNet",
    "EncoderDecoder",
    "EquivariantDeepSets",
    "ExponentialMemory",
    "GeneratedTokens",
    "GreedyNetwork",
    "Hebbian",
    "Hopfield",
    "ImageClassifier",
    "KVCache",
    "LanguageModelCell",
    "LeNet",
    "LowRank",
    "MaskedLM",
    "MaxMargin",
    "McCullochPitts",
    "Memory",
    "Mixer",
    "MixerBlock",
    "NGram",
    "NotSeparable",
    "PDPSystem",
    "Perceptron",
    "PerceptronFit",
    "PerceptronPath",
    "PointNet",
    "PointNet2",
    "PointNetFeatures",
    "PointNetSegmentation",
    "PointNetWidths",
    "PretrainingLogits",
    "ReducedRank",
    "ResNet",
    "ResNetLayout",
    "SecondMoments",
    "SentenceClassifier",
    "SentenceEncoder",
    "Separation",
    "SequenceClassifier",
    "SetTransformer",
    "SpanPredictor",
    "SynchronousRecall",
    "TokenClassifier",
    "TransformerBlock",
    "Translator",
    "Trunk",
    "UpdateTrace",
    "ViT",
    "WeightNames",
    "WeightRule",
    "add_networks",
    "as_sigmoid",
    "as_tanh",
    "asynchronous_recall",
    "at_nodes",
    "balanced_factorisation",
    "barron_network",
    "beam_search",
    "best_span",
    "config_from_model",
    "critical_points",
    "deep_linear",
    "deep_linear_gradient",
    "find_separator",
    "fit_perceptron",
    "gaussian_bell",
    "geometric_margin",
    "gguf_llama",
    "greedy",
    "greedy_network",
    "hebb",
    "hopfield_system",
    "huggingface_bert",
    "huggingface_bert_masked_lm",
    "huggingface_bert_question_answering",
    "huggingface_bert_tasks",
    "huggingface_gpt2",
    "huggingface_llama",
    "huggingface_pooler",
    "huggingface_vit",
    "interpolating_network",
    "keras_resnet",
    "label_propagation",
    "layer_imbalance",
    "least_squares",
    "leave_one_out",
    "linear_regression",
    "logistic_regression",
    "low_rank",
    "max_affine_network",
    "max_margin",
    "merge_linear_layers",
    "minimum_norm",
    "mlp_system",
    "mode_growth",
    "model_from_config",
    "multinomial_regression",
    "of_edge_weights",
    "of_features",
    "perceptron_path",
    "perceptron_system",
    "permute_units",
    "principal_components",
    "product_network",
    "pseudo_inverse",
    "random_units",
    "reduced_rank_regression",
    "rescale_units",
    "resnet_imagenet",
    "ridge",
    "ridge_network",
    "sample",
    "sample_units",
    "scale_network",
    "second_moments",
    "signed_distance",
    "spectral_clustering",
    "spectral_embedding",
    "square_network",
    "step_network",
    "stream",
    "synchronous_recall",
    "timm_mixer",
    "torchvision_densenet",
    "torchvision_resnet",
    "update_sites",
    "widen",
    "wl_features",
    "wl_kernel",
]
