"""The pages of docs/ that are lists: public names and the glossary."""

import importlib
import inspect
import re

import api_reference
import pytest

GLOSSARY = api_reference.ROOT / "docs" / "glossary.md"

# What a practitioner would type who looks for something that the library has.
TERMS = """
accuracy; activation function; Adam; adjacency matrix; adversarial example; adversarial training;
aggregation; ALiBi; attention; attention dropout; attention map; attention rollout; augmentation;
backpropagation; batch normalisation; batch size; beam search; BERT; bits per character; BLEU;
byte-pair encoding (BPE); calibration; Carlini-Wagner attack; causal mask; certified accuracy;
Chebyshev filter; checkpoint; colour refinement; confusion matrix; convolution; cosine schedule;
Cover's theorem; cross-attention; cross-entropy; cross-validation; CROWN; dataset; dead ReLU;
decision boundary; Deep Sets; DeepFool; DenseNet; Dirichlet energy; distillation; DropEdge; dropout;
early stopping; edge features; edge index; effective number of parameters; embedding; ensemble;
epoch; expected calibration error (ECE); exploding gradient; exponential moving average (EMA);
feature map; FGSM; fine-tuning; FLOPs; Gaussian process; GELU; GGUF; GPT-2; gradient accumulation;
gradient checkpointing; gradient flow; gradient masking; graph; graph attention network (GAT); graph
classification; graph convolution (GCN); graph isomorphism network (GIN); graph Laplacian; graph
neural network (GNN); GraphSAGE; greedy decoding; grouped-query attention (GQA); GRU; Hessian;
Hessian-vector product; Hopfield network; Hugging Face; hyperparameter search; inducing points;
initialisation; input gradient; interval bound propagation (IBP); Jacobian; kernel regression; KV
cache; label propagation; label smoothing; Lanczos; Laplacian positional encoding; LASSO; layer
normalisation; learning rate; learning-rate schedule; lens; linear region; linear regression; Llama;
log marginal likelihood; logistic regression; loss landscape; LSTM; margin; masked language model;
maximum margin; MC dropout; message passing; mixed precision; momentum; multi-head attention;
n-gram; NaN; neighbour sampling; neural tangent kernel (NTK); NNGP; node classification; node
features; objective; optimiser; over-smoothing; over-squashing; padding mask; PairNorm; patch
embedding; PCA; perceptron; permutation importance; permutation invariance; perplexity; PGD; point
cloud; PointNet; pooling; positional encoding; pretrained weights; pruning of hyperparameter trials;
random seed; randomised smoothing; readout; receptive field; residual connection; ResNet; resume;
ridge regression; RMSNorm; robust accuracy; rotary embedding (RoPE); safetensors; saliency map;
sampling; segment sum; Set Transformer; sharpness; sliding-window attention; softmax; sparse
attention; spectral clustering; Square attack; state-space model; stochastic block model; stochastic
weight averaging (SWA); SwiGLU; teacher forcing; temperature; tokeniser; top-k sampling; top-p
(nucleus) sampling; train/test split; transformer; translation; uncertainty; validation set;
vanishing gradient; vision transformer (ViT); vmap; warm-up; weight decay; weight normalisation;
Weisfeiler-Leman test; WordPiece
"""


def entries() -> dict[str, list[str]]:
    """The glossary: each term with the names it leads to."""
    rows = [line.split("|")[1:-1] for line in GLOSSARY.read_text("utf-8").splitlines()]
    rows = [row for row in rows if len(row) == 3 and not set(row[0]) <= set("- ")]
    return {row[0].strip(): re.findall(r"`([^`]+)`", row[1]) for row in rows[1:]}


def resolve(name: str) -> object:
    """What a name of the glossary means: `models.sample`, or `models.sample(top_p=)`, whose
    parameter must exist.
    """
    path, _, parameter = name.removesuffix("=)").partition("(")
    found = importlib.import_module("thetax")
    for part in path.removeprefix("thetax.").split("."):
        found = getattr(found, part)
    if parameter:
        call = found.init if inspect.isclass(found) and hasattr(found, "init") else found
        known = [*inspect.signature(call).parameters, *getattr(found, "__dataclass_fields__", ())]
        assert parameter in known, f"{path} has no parameter {parameter}: {known}"
    return found


def test_the_api_reference_is_up_to_date():
    """`make docs` writes it."""
    assert api_reference.PAGE.read_text("utf-8") == api_reference.page()


@pytest.mark.parametrize("part", api_reference.PARTS)
def test_all_lists_the_public_names(part):
    """`make docs` writes `__all__`."""
    file = api_reference.source(part)
    assert api_reference.with_exports(file) == file.read_text("utf-8")
    module = importlib.import_module(f"thetax.{part}")
    assert sorted(module.__all__) == sorted(api_reference.public_names(file))
    assert not [name for name in module.__all__ if not hasattr(module, name)]


@pytest.mark.parametrize("part", api_reference.PARTS)
def test_every_public_name_is_documented(part):
    assert not [entry.name for entry in api_reference.entries(part) if not entry.summary]


def test_the_terms_of_the_field_are_in_the_glossary():
    known = {term.lower() for term in entries()}
    wanted = [" ".join(term.split()) for term in TERMS.split(";")]
    assert not [term for term in wanted if term.lower() not in known]


def test_the_glossary_is_sorted():
    terms = [term.lower() for term in entries()]
    assert terms == sorted(terms)


@pytest.mark.parametrize("term", list(entries()) if GLOSSARY.is_file() else [])
def test_the_names_of_the_glossary_exist(term):
    names = [name for name in entries()[term] if not name.startswith(("thetax ", "make "))]
    assert entries()[term]
    for name in names:
        assert resolve(name) is not None
