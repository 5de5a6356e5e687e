"""Weight names of Hugging Face's transformers.

`load_weights(folder, like, names=huggingface_bert)` reads a folder, `save_weights` writes one, and
`huggingface_bert.read(state_dict, like)` takes tensors in memory. A prefix that files of networks
without a head omit, such as `bert.`, is optional. `load_pretrained` selects the names itself.

- `huggingface_bert`: ours `BERT`; theirs `BertModel`, without its pooler
- `huggingface_bert_tasks`: ours `BERTPretraining`, `SentenceClassifier`, `TokenClassifier`; theirs
  `BertForPreTraining`, `...SequenceClassification`, `...TokenClassification`
- `huggingface_bert_masked_lm`: ours `MaskedLM`; theirs `BertForMaskedLM`
- `huggingface_bert_question_answering`: ours `SpanPredictor`; theirs `BertForQuestionAnswering`
- `huggingface_vit`: ours `ViT`; theirs `ViTForImageClassification`
- `huggingface_gpt2`: ours `GPT`; theirs `GPT2LMHeadModel`
- `huggingface_llama`: ours `GPT`; theirs `LlamaForCausalLM`

"""

import numpy as np

from .weight_names import Arrays, WeightNames, WeightRule

_BLOCK = "trunk.blocks.layers"
_POOLER = ("pooler.dense.weight", "pooler.dense.bias")


def _affine(ours: str, theirs: str) -> tuple[WeightRule, WeightRule]:
    return WeightRule.copy(f"{ours}.W", f"{theirs}.weight"), WeightRule.copy(
        f"{ours}.b", f"{theirs}.bias"
    )


def _norm(ours: str, theirs: str) -> WeightRule:
    return WeightRule.norm(ours, (f"{theirs}.weight", f"{theirs}.bias"))


def _bert(ours: str, theirs: str) -> tuple[WeightRule, ...]:
    """The encoder (post-norm)."""
    block = f"{ours}{_BLOCK}"
    layer = f"{theirs}encoder.layer.{{*}}"
    return (
        WeightRule.copy(f"{ours}embed.E", f"{theirs}embeddings.word_embeddings.weight"),
        WeightRule.copy(f"{ours}positions.P", f"{theirs}embeddings.position_embeddings.weight"),
        WeightRule.copy(f"{ours}segments.E", f"{theirs}embeddings.token_type_embeddings.weight"),
        _norm(f"{ours}norm", f"{theirs}embeddings.LayerNorm"),
        *_affine(f"{block}.attention.Q", f"{layer}.attention.self.query"),
        *_affine(f"{block}.attention.K", f"{layer}.attention.self.key"),
        *_affine(f"{block}.attention.V", f"{layer}.attention.self.value"),
        *_affine(f"{block}.attention.O", f"{layer}.attention.output.dense"),
        _norm(f"{block}.norm", f"{layer}.attention.output.LayerNorm"),
        *_affine(f"{block}.feed.up", f"{layer}.intermediate.dense"),
        *_affine(f"{block}.feed.down", f"{layer}.output.dense"),
        _norm(f"{block}.feed_norm", f"{layer}.output.LayerNorm"),
    )


# Weight names of `BertModel` for `BERT`.
huggingface_bert = WeightNames(_bert("", ""), ignored=("position_ids", *_POOLER), root="bert.")

# Weight names of BERT's pooler.
huggingface_pooler = WeightNames(
    (WeightRule.copy("W", _POOLER[0]), WeightRule.copy("b", _POOLER[1]))
)

# Weight names of `BertForPreTraining` for `BERTPretraining`.
huggingface_bert_tasks = WeightNames(
    rules=(
        *_bert("bert.", "bert."),
        *_affine("pool", "bert.pooler.dense"),
        *_affine("transform", "cls.predictions.transform.dense"),
        _norm("norm", "cls.predictions.transform.LayerNorm"),
        WeightRule.copy("b", "cls.predictions.bias"),
        *_affine("next_sentence", "cls.seq_relationship"),
        *_affine("head", "classifier"),
    ),
    ignored=("position_ids",),
    repeated={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    root="bert.",
)

# Weight names of `BertForMaskedLM` for `MaskedLM`.
huggingface_bert_masked_lm = huggingface_bert_tasks._replace(ignored=("position_ids", *_POOLER))

# Weight names of `BertForQuestionAnswering` for `SpanPredictor`.
huggingface_bert_question_answering = WeightNames(
    (*_bert("bert.", "bert."), *_affine("head", "qa_outputs")),
    ignored=("position_ids",),
    root="bert.",
)

_VIT = "vit.encoder.layer.{*}"

# Weight names of `ViTForImageClassification` for `ViT`.
huggingface_vit = WeightNames(
    rules=(
        WeightRule(
            ("class_token",),
            ("vit.embeddings.cls_token",),
            lambda t: (t[0, 0],),
            lambda w: (w[None, None],),
        ),
        WeightRule(
            ("positions.P",),
            ("vit.embeddings.position_embeddings",),
            lambda t: (t[0],),
            lambda w: (w[None],),
        ),
        *_affine("stem", "vit.embeddings.patch_embeddings.projection"),
        *_affine(f"{_BLOCK}.attention.Q", f"{_VIT}.attention.attention.query"),
        *_affine(f"{_BLOCK}.attention.K", f"{_VIT}.attention.attention.key"),
        *_affine(f"{_BLOCK}.attention.V", f"{_VIT}.attention.attention.value"),
        *_affine(f"{_BLOCK}.attention.O", f"{_VIT}.attention.output.dense"),
        _norm(f"{_BLOCK}.norm", f"{_VIT}.layernorm_before"),
        *_affine(f"{_BLOCK}.feed.up", f"{_VIT}.intermediate.dense"),
        *_affine(f"{_BLOCK}.feed.down", f"{_VIT}.output.dense"),
        _norm(f"{_BLOCK}.feed_norm", f"{_VIT}.layernorm_after"),
        _norm("trunk.last", "vit.layernorm"),
        *_affine("head", "classifier"),
    ),
    ignored=_POOLER,
    root="vit.",
)

_GPT2 = "transformer.h.{*}"


def _split_qkv(t: np.ndarray) -> Arrays:
    """Splits one tensor into queries, keys and values, each (out, in)."""
    return tuple(np.split(t.T, 3))


def _join_qkv(*parts: np.ndarray) -> Arrays:
    return (np.concatenate(parts).T,)


def _transposed(ours: str, theirs: str) -> tuple[WeightRule, WeightRule]:
    """Their weights are (in, out)."""
    return WeightRule.transpose(f"{ours}.W", f"{theirs}.weight", 1, 0), WeightRule.copy(
        f"{ours}.b", f"{theirs}.bias"
    )


# Weight names of `GPT2LMHeadModel` for `GPT`.
huggingface_gpt2 = WeightNames(
    rules=(
        WeightRule.copy("embed.E", "transformer.wte.weight"),
        WeightRule.copy("positions.P", "transformer.wpe.weight"),
        _norm(f"{_BLOCK}.norm", f"{_GPT2}.ln_1"),
        *[
            WeightRule(
                tuple(f"{_BLOCK}.attention.{q}.{part}" for q in "QKV"),
                (f"{_GPT2}.attn.c_attn.{name}",),
                _split_qkv,
                _join_qkv,
            )
            for part, name in (("W", "weight"), ("b", "bias"))
        ],
        *_transposed(f"{_BLOCK}.attention.O", f"{_GPT2}.attn.c_proj"),
        _norm(f"{_BLOCK}.feed_norm", f"{_GPT2}.ln_2"),
        *_transposed(f"{_BLOCK}.feed.up", f"{_GPT2}.mlp.c_fc"),
        *_transposed(f"{_BLOCK}.feed.down", f"{_GPT2}.mlp.c_proj"),
        _norm("trunk.last", "transformer.ln_f"),
        WeightRule.copy("readout.W", "lm_head.weight"),
    ),
    ignored=("attn.bias", "attn.masked_bias"),
    repeated={"lm_head.weight": "transformer.wte.weight"},
    root="transformer.",
)

_LLAMA = "model.layers.{*}"

# Weight names of `LlamaForCausalLM` for `GPT`.
huggingface_llama = WeightNames(
    rules=(
        WeightRule.copy("embed.E", "model.embed_tokens.weight"),
        WeightRule.copy(f"{_BLOCK}.norm.gamma", f"{_LLAMA}.input_layernorm.weight"),
        *[
            WeightRule.copy(
                f"{_BLOCK}.attention.{q}.W", f"{_LLAMA}.self_attn.{q.lower()}_proj.weight"
            )
            for q in "QKVO"
        ],
        WeightRule.copy(f"{_BLOCK}.feed_norm.gamma", f"{_LLAMA}.post_attention_layernorm.weight"),
        *[
            WeightRule.copy(f"{_BLOCK}.feed.{w}.W", f"{_LLAMA}.mlp.{w}_proj.weight")
            for w in ("gate", "up", "down")
        ],
        WeightRule.copy("trunk.last.gamma", "model.norm.weight"),
        WeightRule.copy("readout.W", "lm_head.weight"),
    ),
    ignored=("rotary_emb.inv_freq",),
    repeated={"lm_head.weight": "model.embed_tokens.weight"},
    root="model.",
)
