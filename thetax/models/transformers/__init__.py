"""Transformers: GPT and Llama, BERT, ViT, the translator."""

from .bert import BERT as BERT
from .bert import BERTPretraining as BERTPretraining
from .bert import MaskedLM as MaskedLM
from .bert import PretrainingLogits as PretrainingLogits
from .bert import SentenceClassifier as SentenceClassifier
from .bert import SpanPredictor as SpanPredictor
from .bert import TokenClassifier as TokenClassifier
from .bert import best_span as best_span
from .gpt import GPT as GPT
from .gpt import Decoder as Decoder
from .sentence_encoder import SentenceEncoder as SentenceEncoder
from .transformer import KVCache as KVCache
from .transformer import TransformerBlock as TransformerBlock
from .transformer import Trunk as Trunk
from .translator import Translator as Translator
from .vit import ViT as ViT
