r"""The abstract model of a Hugging Face `config.json`: shapes only, nothing is allocated."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr

from ...layers import (
    Activation,
    Convolution,
    Dropout,
    Embedding,
    FeedForward,
    GatedFeedForward,
    Initialiser,
    LayerNorm,
    LearnedPositions,
    Linear,
    RMSNorm,
    Rotary,
)
from ..transformers.bert import (
    BERT,
    BERTPretraining,
    MaskedLM,
    SentenceClassifier,
    SpanPredictor,
    TokenClassifier,
)
from ..transformers.gpt import GPT
from ..transformers.transformer import Trunk
from ..transformers.vit import ViT
from .hf_config import MAX_DEPTH, HFConfig
from .huggingface import (
    huggingface_bert,
    huggingface_bert_masked_lm,
    huggingface_bert_question_answering,
    huggingface_bert_tasks,
    huggingface_gpt2,
    huggingface_llama,
    huggingface_vit,
)
from .weight_names import WeightNames

_EMPTY = Initialiser(lambda key, shape: jnp.zeros(shape))  # only shapes are needed
_KEY = partial(jr.key, 0)


class AbstractModel(NamedTuple):
    """A model of shapes (`jax.eval_shape`), and the map to the weight names of transformers."""

    model: Any
    names: WeightNames


def model_from_config(config: Mapping[str, Any]) -> AbstractModel:
    """The abstract model of a `config.json`, for its `model_type` and first architecture.

    >>> sizes = {
    ...     "hidden_size": 8,
    ...     "num_hidden_layers": 2,
    ...     "num_attention_heads": 2,
    ...     "intermediate_size": 16,
    ... }
    >>> config = {"model_type": "bert", "vocab_size": 11, "max_position_embeddings": 12, **sizes}
    >>> model_from_config(config).model.embed.E
    ShapeDtypeStruct(shape=(11, 8), dtype=float32)
    >>> model_from_config({"model_type": "t5"})
    Traceback (most recent call last):
    ValueError: config.json: model_type is 't5'; bert, vit, gpt2 and llama are supported.
    """
    known = {"bert": _bert, "vit": _vit, "gpt2": _gpt2, "llama": _llama}
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in known:
        *most, last = known
        raise ValueError(
            f"config.json: model_type is {kind!r}; {', '.join(most)} and {last} are supported."
        )
    model, names = known[kind](HFConfig(config))
    return AbstractModel(jax.eval_shape(model), names)


class _Definition(NamedTuple):
    model: Callable[[], Any]  # initialises the model
    names: WeightNames


class _Sizes(NamedTuple):
    """The settings that BERT and ViT have in common."""

    d: int
    depth: int
    heads: int
    hidden: int
    activation: Activation
    eps: float
    dropout: float
    attention_dropout: float

    @staticmethod
    def of(settings: HFConfig) -> "_Sizes":
        return _Sizes(
            settings.integer("hidden_size"),
            settings.integer("num_hidden_layers", maximum=MAX_DEPTH),
            settings.integer("num_attention_heads"),
            settings.integer("intermediate_size"),
            settings.activation("hidden_act", "gelu"),
            settings.number("layer_norm_eps", 1e-12),
            settings.probability("hidden_dropout_prob", 0.0),
            settings.probability("attention_probs_dropout_prob", 0.0),
        )

    def norm(self) -> LayerNorm:
        return LayerNorm.init(self.d, eps=self.eps)

    def trunk(self, **options: Any) -> Trunk:
        norm = partial(LayerNorm.init, eps=self.eps)
        feed = partial(FeedForward.init, activation=self.activation)
        draw = partial(
            Trunk.init,
            self.depth,
            self.d,
            self.heads,
            self.hidden,
            norm=norm,
            feed=feed,
            initialiser=_EMPTY,
        )
        dropout = {"dropout": self.dropout, "attention_dropout": self.attention_dropout}
        return draw(**dropout, key=_KEY(), **options)

    def linear(self, m: int) -> Linear:
        return Linear.init(self.d, m, initialiser=_EMPTY, key=_KEY())


def _bert(settings: HFConfig) -> _Definition:
    settings.require(
        position_embedding_type="absolute", is_decoder=False, add_cross_attention=False
    )
    settings.require(tie_word_embeddings=True, pruned_heads={})
    sizes = _Sizes.of(settings)
    vocabulary = settings.integer("vocab_size")
    length = settings.integer("max_position_embeddings")
    segments = settings.integer("type_vocab_size", 2)
    table = lambda rows: Embedding.init(rows, sizes.d, initialiser=_EMPTY, key=_KEY())
    encoder = lambda: BERT(
        table(vocabulary),
        LearnedPositions.init(length, sizes.d, initialiser=_EMPTY, key=_KEY()),
        table(segments),
        sizes.norm(),
        sizes.trunk(norms="after"),
        Dropout(sizes.dropout),
    )
    square = lambda: sizes.linear(sizes.d)
    last = Dropout(settings.probability("classifier_dropout", sizes.dropout))
    pretraining = lambda: BERTPretraining(
        encoder(),
        square(),
        sizes.norm(),
        jnp.zeros(vocabulary),
        square(),
        sizes.linear(2),
        sizes.activation,
    )
    filling = lambda: MaskedLM(
        encoder(), square(), sizes.norm(), jnp.zeros(vocabulary), sizes.activation
    )
    head = lambda: sizes.linear(settings.classes())
    known = {
        "BertModel": _Definition(encoder, huggingface_bert),
        "BertForPreTraining": _Definition(pretraining, huggingface_bert_tasks),
        "BertForMaskedLM": _Definition(filling, huggingface_bert_masked_lm),
        "BertForSequenceClassification": _Definition(
            lambda: SentenceClassifier(encoder(), square(), head(), last), huggingface_bert_tasks
        ),
        "BertForTokenClassification": _Definition(
            lambda: TokenClassifier(encoder(), head(), last), huggingface_bert_tasks
        ),
        "BertForQuestionAnswering": _Definition(
            lambda: SpanPredictor(encoder(), sizes.linear(2)), huggingface_bert_question_answering
        ),
    }
    return settings.by_architecture(known)


def _vit(settings: HFConfig) -> _Definition:
    settings.require(
        qkv_bias=True,
        pooler_act="tanh",
        pooler_output_size=settings.get("hidden_size"),
        pruned_heads={},
    )
    sizes = _Sizes.of(settings)
    channels = settings.integer("num_channels", 3)
    patch = settings.integer("patch_size", 16)
    size = settings.height_width("image_size", 224)
    if size[0] % patch or size[1] % patch:
        raise settings.error(
            "image_size", f"a height and width divisible by the patch size {patch}"
        )
    count = (size[0] // patch) * (size[1] // patch)
    classes = settings.by_architecture(
        {"ViTModel": 0, "ViTForImageClassification": settings.classes()}
    )

    def model() -> ViT:
        stem = partial(
            Convolution.init, boundary="valid", stride=patch, initialiser=_EMPTY, key=_KEY()
        )
        return ViT(
            stem(channels, sizes.d, (patch, patch)),
            jnp.zeros(sizes.d),
            sizes.trunk(),
            sizes.linear(classes),
            LearnedPositions.init(count + 1, sizes.d, initialiser=_EMPTY, key=_KEY()),
            Dropout(sizes.dropout),
            size,
        )

    return _Definition(model, huggingface_vit)


def _gpt2(settings: HFConfig) -> _Definition:
    settings.require(
        scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False
    )
    settings.require(pruned_heads={})
    d = settings.integer("n_embd")
    vocabulary = settings.integer("vocab_size")
    length = settings.integer("n_positions")
    sizes = _Sizes(
        d,
        settings.integer("n_layer", maximum=MAX_DEPTH),
        settings.integer("n_head"),
        settings.integer("n_inner", 4 * d),
        settings.activation("activation_function", "gelu_new"),
        settings.number("layer_norm_epsilon", 1e-5),
        settings.probability("resid_pdrop", 0.0),
        settings.probability("attn_pdrop", 0.0),
    )
    tied = settings.boolean("tie_word_embeddings", True)
    settings.by_architecture({"GPT2LMHeadModel": None, "GPT2Model": None})

    def model() -> GPT:
        return GPT(
            Embedding.init(vocabulary, d, initialiser=_EMPTY, key=_KEY()),
            sizes.trunk(),
            LearnedPositions.init(length, d, initialiser=_EMPTY, key=_KEY()),
            None
            if tied
            else Linear.init(d, vocabulary, initialiser=_EMPTY, bias=False, key=_KEY()),
            Dropout(settings.probability("embd_pdrop", 0.0)),
        )

    return _Definition(model, huggingface_gpt2)


# settings of models derived from Llama; Llama itself has these values or no such setting
_LLAMA = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attention_multiplier": None,
    "attn_logit_softcapping": None,
    "clip_qkv": None,
    "embedding_multiplier": 1.0,
    "final_logit_softcapping": None,
    "hidden_activation": None,
    "logit_scale": None,
    "logits_scaling": 1.0,
    "mlp_bias": False,
    "no_rope_layers": None,
    "num_experts": None,
    "num_local_experts": None,
    "partial_rotary_factor": 1.0,
    "qk_layernorm": False,
    "query_pre_attn_scalar": None,
    "residual_multiplier": 1.0,
    "rope_interleaved": False,
    "sliding_window": None,
    "use_qk_norm": False,
}


def _llama(settings: HFConfig) -> _Definition:
    settings.require(**_LLAMA)
    if set(settings.get("layer_types", [])) - {"full_attention"}:
        raise settings.error("layer_types", "full_attention in every layer")
    d = settings.integer("hidden_size")
    vocabulary = settings.integer("vocab_size")
    hidden = settings.integer("intermediate_size")
    depth = settings.integer("num_hidden_layers", maximum=MAX_DEPTH)
    heads = settings.integer("num_attention_heads")
    groups = settings.integer("num_key_value_heads", heads)
    size = settings.integer("head_dim", max(d // heads, 1))
    base = _rotary(settings)
    eps = settings.number("rms_norm_eps", 1e-6)
    activation = settings.activation("hidden_act", "silu")
    tied = settings.boolean("tie_word_embeddings", False)
    settings.by_architecture({"LlamaForCausalLM": None, "LlamaModel": None})
    if size % 2:
        raise settings.error("head_dim", "an even number, as rotary encoding rotates pairs")

    def model() -> GPT:
        trunk = Trunk.init(
            depth,
            d,
            heads,
            hidden,
            kv_heads=groups,
            head_dim=size,
            bias=False,
            position_encoding=Rotary(base),
            norm=partial(RMSNorm.init, eps=eps),
            feed=partial(GatedFeedForward.init, activation=activation),
            initialiser=_EMPTY,
            key=_KEY(),
        )
        readout = (
            None if tied else Linear.init(d, vocabulary, initialiser=_EMPTY, bias=False, key=_KEY())
        )
        return GPT(
            Embedding.init(vocabulary, d, initialiser=_EMPTY, key=_KEY()), trunk, None, readout
        )

    return _Definition(model, huggingface_llama)


def _rotary(settings: HFConfig) -> float:
    """The base of the rotary frequencies, which newer files store in `rope_parameters`."""
    for name in ("rope_scaling", "rope_parameters"):
        found = settings.get(name, {})
        kind = (
            found.get("rope_type", found.get("type", "default"))
            if isinstance(found, dict)
            else found
        )
        if kind != "default" or set(found) - {"rope_theta", "rope_type", "type"}:
            raise settings.error(name, "unscaled rotary position encoding")
    parameters = HFConfig(settings.get("rope_parameters", {}))
    return parameters.number("rope_theta", settings.number("rope_theta", 1e4))
