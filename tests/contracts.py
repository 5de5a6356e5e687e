"""Tables of models, objectives, iterations and attacks; `test_contracts.py` runs the same checks on
every row.

To test a new one, add a row.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from thetax import layers, tree
from thetax.attack import (
    APGD,
    PGD,
    AffineAttack,
    Attack,
    AttackEnsemble,
    CarliniWagner,
    DeepFool,
    HopSkipJump,
    MinimumNormAttack,
    MultiTargeted,
    Square,
    adversarial_objective,
    fgsm,
    logit_pairing,
    margin_loss,
    trades,
    untargeted,
    via_target,
)
from thetax.core import BATCH_AXIS, Iteration, Objective, apply
from thetax.data.graphs import Graph
from thetax.explain import Linearised, linearise
from thetax.layers import (
    GAT,
    GCN,
    GIN,
    GRU,
    LRU,
    LSTM,
    AdaptivePool,
    Affine,
    ALiBi,
    AntisymmetricRNN,
    Attention,
    AttentionReadout,
    AveragePool,
    BatchNorm,
    Bidirectional,
    Chain,
    ChebyshevFilter,
    Concat,
    Convolution,
    DeepTransition,
    DiagonalSSM,
    DropConnect,
    DropEdge,
    Dropout,
    EdgeConditioned,
    Elman,
    Embedding,
    Ensemble,
    FeedForward,
    GatedFeedForward,
    GATv2,
    GraphNorm,
    GraphResidual,
    GraphSAGE,
    GraphTransformer,
    InducedSetAttentionBlock,
    InteractionNetwork,
    JumpingKnowledge,
    LayerNorm,
    LearnedPositions,
    Linear,
    LipschitzRNN,
    MaxPool,
    MessagePassing,
    MinGRU,
    ModernHopfield,
    Nodewise,
    PairNorm,
    Pointwise,
    PolynomialFilter,
    PoolingMultiheadAttention,
    Readout,
    Recurrent,
    Residual,
    ResidualCell,
    RMSNorm,
    Rotary,
    SelectiveSSM,
    SetAbstraction,
    SetAttentionBlock,
    SharedMLP,
    SinusoidalPositions,
    SparseLinear,
    SpectralFilter,
    Stacked,
    StackedCells,
    TNet,
    TruncatedBPTT,
    VirtualNode,
    WeightNorm,
    block_pairs,
    centred,
    hierarchical_attention,
    linear_attention,
    ntk_parametrisation,
    sparse_attention,
)
from thetax.models import (
    BERT,
    CNN,
    GNN,
    GPT,
    MLP,
    AbstractionLevel,
    BERTPretraining,
    DeepSets,
    DenseNet,
    EncoderDecoder,
    EquivariantDeepSets,
    LanguageModelCell,
    MaskedLM,
    McCullochPitts,
    Mixer,
    Perceptron,
    PointNet,
    PointNet2,
    PointNetSegmentation,
    PointNetWidths,
    ResNet,
    ResNetLayout,
    SentenceClassifier,
    SentenceEncoder,
    SequenceClassifier,
    SetTransformer,
    SpanPredictor,
    TokenClassifier,
    TransformerBlock,
    Translator,
    ViT,
    barron_network,
    deep_linear,
    gaussian_bell,
    interpolating_network,
    linear_regression,
    logistic_regression,
    max_affine_network,
    multinomial_regression,
    of_features,
    principal_components,
    product_network,
    square_network,
    step_network,
)
from thetax.threat import L2, Linf
from thetax.train import (
    adagrad,
    adam,
    batch_mean,
    binary_cross_entropy,
    binary_error_rate,
    cross_entropy,
    descend,
    distil,
    distillation_loss,
    ema,
    error_rate,
    heavy_ball,
    ista,
    lasso,
    log_loss,
    mixed_precision,
    nesterov,
    per_member,
    rmsprop,
    smooth_labels,
    soften_labels,
    squared_error,
    swa,
    uncorrected_adam,
    weight_decay,
    with_augmentation,
)


class ModelRow(NamedTuple):
    """A layer or a model: how to initialise it, the shape of an example, and a wrong shape, which
    must raise an error.
    """

    name: str
    make: Callable[..., Any]  # make(key=key)
    shape: tuple[int, ...]
    wrong: tuple[int, ...] | None = None
    draws: bool = False  # the output depends on the key
    batch: bool = False  # the output for one example depends on the rest of the batch


def residual(n: int, m: int, *, key) -> Residual:
    key_inner, key_skip = jr.split(key)
    inner = Chain(Linear.init(n, m, key=key_inner), centred(layers.sigmoid))
    return Residual.init(inner, n, m, key=key_skip)


def chain(*, key, p: float = 0.0) -> Chain:
    first, last = jr.split(key)
    drop = [Dropout(p)] if p else []
    return Chain(Linear.init(3, 4, key=first), layers.tanh, *drop, Linear.init(4, 2, key=last))


@cache
def taylor(dtype: Any) -> Linearised:
    # The point of linearisation is not a parameter and must not be traced.
    with jax.ensure_compile_time_eval():
        return linearise(chain(key=jr.key(0)))


def linearised(*, key) -> Linearised:
    h = taylor(jnp.zeros(()).dtype)
    return Linearised(tree.normal_like(key, h.beta), h.origin)


def autoencoder(xs) -> Chain:
    return principal_components(xs, n_components=2, centred=True).model


class Ranked(eqx.Module):
    """A layer that takes tokens, called with the ranks of the entries of an example; with `pair`,
    with two such sequences.
    """

    inner: Any
    pair: bool = eqx.field(static=True, default=False)

    def __call__(self, x):
        order = jnp.argsort(x).astype(jnp.int32)
        return self.inner((order, order[::-1]) if self.pair else order)


GRAPH_EDGES = [(0, 1), (1, 2), (2, 0), (3, 3), (0, 1)]  # and node 4 is isolated


@cache
def graph_of_five() -> Graph:
    with jax.ensure_compile_time_eval():
        return Graph.from_edges(GRAPH_EDGES, n_nodes=5)


class OnGraph(eqx.Module):
    """A layer or a model of graphs, called with the features of the nodes of one graph. The
    features of an edge are the first two of the difference of its ends.
    """

    inner: Any

    def __call__(self, x, *, key=None):
        graph = graph_of_five()
        edges = (x[graph.senders] - x[graph.receivers])[:, :2]
        graph = Graph(x, graph.senders, graph.receivers, edges, None, graph.graph_ids)
        result = apply(self.inner, graph, key=key)
        return result.nodes if isinstance(result, Graph) else result


def on_graph(
    name: str, make: Callable[..., Any], *, wrong: bool = True, draws: bool = False
) -> ModelRow:
    return ModelRow(
        f"{name} of a graph",
        lambda key: OnGraph(make(key=key)),
        (5, 4),
        (5, 3) if wrong else None,
        draws,
    )


def gcn_residual(*, key) -> GraphResidual:
    key_inner, key_skip = jr.split(key)
    return GraphResidual.init(GCN.init(4, 3, key=key_inner), 4, 3, key=key_skip)


def jumping(*, key) -> JumpingKnowledge:
    first, last = jr.split(key)
    net = Chain(Nodewise(layers.tanh), GCN.init(3, 3, key=last))
    return JumpingKnowledge(GCN.init(4, 3, key=first), net, combine="max")


def features_of_gnn(*, key) -> Any:
    return of_features(GNN.init(4, 3, 2, activation=layers.tanh, key=key), graph_of_five())


GRAPH_ROWS = [
    on_graph("GCN", partial(GCN.init, 4, 3)),
    on_graph("PolynomialFilter", partial(PolynomialFilter.init, 4, 3, order=2)),
    on_graph(
        "PolynomialFilter combinatorial",
        partial(PolynomialFilter.init, 4, 4, order=2, kind="combinatorial"),
    ),
    on_graph("ChebyshevFilter", partial(ChebyshevFilter.init, 4, 3, order=3)),
    on_graph(
        "ChebyshevFilter random walk",
        partial(ChebyshevFilter.init, 4, 4, order=2, kind="random walk", bias=False),
    ),
    on_graph("SpectralFilter", partial(SpectralFilter.init, 4, 3, knots=3)),
    on_graph("GraphSAGE", partial(GraphSAGE.init, 4, 3, normalise=True)),
    on_graph("GraphSAGE max", partial(GraphSAGE.init, 4, 3, aggregation="max", pool=True)),
    on_graph("GIN", partial(GIN.init, 4, 3, activation=layers.tanh)),
    on_graph("GIN edges", partial(GIN.init, 4, 3, edge_features=2, activation=layers.tanh)),
    on_graph("GAT", partial(GAT.init, 4, 4, n_heads=2)),
    on_graph("GAT dropout", partial(GAT.init, 4, 4, dropout=0.5), draws=True),
    on_graph("GAT edges", partial(GAT.init, 4, 3, n_heads=2, heads="mean", edge_features=2)),
    on_graph("GATv2", partial(GATv2.init, 4, 4, n_heads=2, edge_features=2, self_loops=False)),
    on_graph(
        "MessagePassing",
        partial(
            MessagePassing.init,
            4,
            3,
            edge_features=2,
            aggregation=("mean", "softmax"),
            activation=layers.tanh,
        ),
    ),
    on_graph(
        "EdgeConditioned",
        partial(EdgeConditioned.init, 4, 3, edge_features=2, hidden=3, activation=layers.tanh),
    ),
    on_graph(
        "InteractionNetwork",
        partial(InteractionNetwork.init, 4, 3, edge_features=2, activation=layers.tanh),
    ),
    on_graph("GraphTransformer", partial(GraphTransformer.init, 4, n_heads=2, hidden=3)),
    on_graph("VirtualNode", partial(VirtualNode.init, 4, activation=layers.tanh)),
    on_graph("GraphResidual", gcn_residual),
    on_graph("JumpingKnowledge", jumping),
    on_graph(
        "DropEdge",
        lambda key: Chain(DropEdge(0.4), GCN.init(4, 3, key=key)),
        draws=True,
    ),
    on_graph("PairNorm", lambda key: PairNorm(), wrong=False),
    on_graph("GraphNorm", lambda key: GraphNorm.init(4)),
    on_graph("Nodewise", lambda key: Nodewise(Linear.init(4, 3, key=key))),
    on_graph("Readout", lambda key: Readout(("mean", "max")), wrong=False),
    on_graph("AttentionReadout", partial(AttentionReadout.init, 4, 3)),
    on_graph("GNN", partial(GNN.init, 4, 3, 2, layer="gat", activation=layers.tanh)),
    on_graph(
        "GNN readout",
        partial(
            GNN.init,
            4,
            3,
            2,
            depth=2,
            layer="sage",
            activation=layers.tanh,
            dropout=0.5,
            norm="graph",
            residual=True,
            jumping="concat",
            readout="sum",
        ),
        draws=True,
    ),
    ModelRow("of_features", features_of_gnn, (5, 4), (5, 3)),
]


class Read(eqx.Module):
    """A model whose output is not an array of finite numbers, and the function `read` of it."""

    inner: Any
    read: Callable[[Any], Any] = eqx.field(static=True)

    def __call__(self, x):
        return self.read(self.inner(x))


STEPS = ("heaviside", "sign", "spin")  # activations whose gradient is zero


def pointwise(name: str) -> ModelRow:
    return ModelRow(name, lambda key: Pointwise(layers.ACTIVATIONS[name]), (4,))


WIDENED = ResNetLayout((1, 1), 2)


def resnet(*, key, layout=WIDENED, normalise=Affine.init, small: bool = True) -> ResNet:
    return ResNet.init(
        layout, classes=2, channels=1, width=2, small=small, normalise=normalise, key=key
    )


def attending(*, key) -> Ranked:
    return Ranked(EncoderDecoder.init(4, 4, 2, 2, attention_width=2, key=key), pair=True)


def densenet(*, key) -> DenseNet:
    return DenseNet.init(
        (1, 1), classes=2, channels=1, growth_rate=1, small=True, normalise=Affine.init, key=key
    )


def mixer(*, key) -> Mixer:
    return Mixer.init(
        2, classes=2, image_size=(4, 6), channels=1, patch_size=2, width=3, hidden=(4, 5), key=key
    )


def bidirectional(*, key) -> Bidirectional:
    onward, back = jr.split(key)
    return Bidirectional(LSTM.init(3, 2, key=onward), GRU.init(3, 2, key=back))


def stack(*, key) -> StackedCells:
    first, last = jr.split(key)
    return StackedCells(Elman.init(3, 4, key=first), MinGRU.init(4, 2, key=last))


def block(*, key) -> ResidualCell:
    first, last = jr.split(key)
    return ResidualCell(LayerNorm.init(3), GRU.init(3, 2, key=first), Linear.init(2, 3, key=last))


ATTENTION = {  # of tokens of four numbers
    "plain": {},
    "grouped": {"kv_heads": 1, "bias": False},
    "rotary": {"position_encoding": Rotary()},
    "ALiBi": {"position_encoding": ALiBi()},
    "linear": {"kernel": linear_attention},
    "sparse": {"kernel": sparse_attention(block_pairs(3, global_blocks=1), block_size=2)},
    "hierarchical": {"kernel": hierarchical_attention(2)},
}


def attention(name: str, options: dict[str, Any]) -> ModelRow:
    return ModelRow(f"Attention {name}", partial(Attention.init, 4, 2, **options), (5, 4), (5, 3))


def gpt(*, key) -> Ranked:
    return Ranked(GPT.init(4, 4, depth=2, heads=2, hidden=2, max_length=4, key=key))


def llama(*, key) -> Ranked:
    return Ranked(GPT.llama(4, 4, depth=1, heads=2, kv_heads=1, hidden=2, tied=False, key=key))


def on_bert(head: Callable[..., Any], *, pair: bool = False) -> Callable[..., Ranked]:
    """A head on an encoder of four tokens; with `pair`, with two sequences and four segments."""

    def make(*, key):
        key_bert, key_head = jr.split(key)
        bert = BERT.init(
            4, 4, depth=1, heads=2, hidden=3, max_length=4, n_segments=4, eps=1e-5, key=key_bert
        )
        return Ranked(head(bert, key=key_head), pair=pair)

    return make


def joined(found) -> Any:
    return jnp.concatenate([found.tokens.ravel(), found.next_sentence])


def finite(scores) -> Any:
    return jnp.where(jnp.isfinite(scores), scores, 0)


def guesses(bert: BERT, *, key) -> Read:
    return Read(BERTPretraining.init(bert, key=key), joined)


def span(bert: BERT, *, key) -> Read:
    return Read(SpanPredictor.init(bert, key=key), finite)


def vit(*, key) -> ViT:
    return ViT.init(
        2,
        image_size=(4, 2),
        channels=1,
        patch_size=2,
        d=4,
        depth=1,
        heads=2,
        hidden=3,
        eps=1e-5,
        key=key,
    )


def translator(*, key) -> Ranked:
    return Ranked(Translator.init(4, 4, 4, depth=1, heads=2, hidden=3, key=key), pair=True)


CELLS = {  # each reads three numbers
    "Elman": partial(Elman.init, 3, 4),
    "LSTM": partial(LSTM.init, 3, 4),
    "LSTM output matrix": partial(LSTM.init, 3, 4, output_matrix=True),
    "GRU": partial(GRU.init, 3, 4),
    "GRU reset after": partial(GRU.init, 3, 4, reset_after=True),
    "AntisymmetricRNN": partial(AntisymmetricRNN.init, 3, 4),
    "LipschitzRNN": partial(LipschitzRNN.init, 3, 4),
    "MinGRU": partial(MinGRU.init, 3, 4),
    "LRU": partial(LRU.init, 3, 4, 2),
    "DiagonalSSM": partial(DiagonalSSM.init, 3, 4, 2),
    "DiagonalSSM bilinear": partial(DiagonalSSM.init, 3, 4, 2, discretisation="bilinear"),
    "SelectiveSSM": partial(SelectiveSSM.init, 3, 2),
    "StackedCells": stack,
    "TruncatedBPTT": lambda key: TruncatedBPTT(Elman.init(3, 4, key=key), 8),
    "ResidualCell": block,
    "DeepTransition": lambda key: DeepTransition(Chain(Linear.init(5, 2, key=key), layers.tanh), 2),
}


def recurrent(name: str, make: Callable[..., Any]) -> ModelRow:
    return ModelRow(f"Recurrent {name}", lambda key: Recurrent(make(key=key)), (5, 3), (5, 2))


MODELS = [
    ModelRow("Linear", partial(Linear.init, 3, 4), (3,), (5,)),
    ModelRow(
        "Linear NTK parametrisation",
        partial(Linear.init, 3, 4, initialiser=ntk_parametrisation(bias=0.3)),
        (3,),
        (5,),
    ),
    ModelRow("Affine", lambda key: Affine(jr.normal(key, (2,)), jnp.ones(2)), (2, 3), (3, 3)),
    ModelRow("LayerNorm", lambda key: LayerNorm.init(5), (5,), (4,)),
    ModelRow("BatchNorm", lambda key: BatchNorm.init(3), (3,), (4,), batch=True),
    ModelRow("BatchNorm image", lambda key: BatchNorm.init(2), (2, 2, 3), (3, 2, 3), batch=True),
    ModelRow("WeightNorm", partial(WeightNorm.init, 3, 4), (3,), (5,)),
    ModelRow("Dropout", lambda key: Dropout(0.4), (16,), draws=True),
    ModelRow(
        "DropConnect",
        lambda key: DropConnect(Linear.init(3, 4, key=key), 0.4),
        (3,),
        (5,),
        draws=True,
    ),
    ModelRow("SparseLinear", lambda key: Ranked(SparseLinear.init(5, 3, key=key)), (4,)),
    ModelRow("Embedding", lambda key: Ranked(Embedding.init(5, 3, key=key)), (4,)),
    ModelRow(
        "Convolution", partial(Convolution.init, 2, 3, (3, 3), stride=2), (2, 5, 4), (3, 5, 4)
    ),
    ModelRow(
        "Convolution 1-D full",
        partial(Convolution.init, 2, 3, (2,), boundary="full", flip=True),
        (2, 4),
        (3, 4),
    ),
    ModelRow(
        "Convolution groups",
        partial(Convolution.init, 4, 2, (3,), boundary="circular", groups=2),
        (4, 5),
        (3, 5),
    ),
    ModelRow(
        "Convolution dilated",
        partial(Convolution.init, 1, 2, (2, 1), boundary="valid", dilation=2),
        (1, 5, 2),
    ),
    ModelRow("MaxPool", lambda key: MaxPool((2, 2)), (2, 4, 5), (2, 1, 5)),
    ModelRow("MaxPool same", lambda key: MaxPool((3,), (2,), "same"), (2, 5), (2, 5, 5)),
    ModelRow("AveragePool", lambda key: AveragePool((2,), (1,)), (2, 4), (2, 1)),
    ModelRow("AdaptivePool", lambda key: AdaptivePool((2, 3)), (2, 3, 5), (2, 1, 5)),
    *[recurrent(name, make) for name, make in CELLS.items()],
    ModelRow(
        "Recurrent reversed",
        lambda key: Recurrent(Elman.init(3, 4, key=key), reverse=True),
        (5, 3),
        (5, 2),
    ),
    ModelRow("Bidirectional", bidirectional, (5, 3), (5, 2)),
    *[pointwise(name) for name in layers.ACTIVATIONS if name not in STEPS],
    ModelRow("Chain", chain, (3,), (4,)),
    ModelRow("Chain with dropout", partial(chain, p=0.5), (3,), (4,), draws=True),
    ModelRow("Residual", partial(residual, 3, 3), (3,), (4,)),
    ModelRow("Residual projected", partial(residual, 3, 4), (3,), (5,)),
    ModelRow("Concat", lambda key: Concat(Linear.init(3, 2, key=key)), (3,), (4,)),
    ModelRow(
        "Ensemble mean_output", partial(Ensemble.init, partial(Linear.init, 3, 2), 3), (3,), (4,)
    ),
    ModelRow(
        "Ensemble mean_probabilities",
        partial(Ensemble.init, chain, 3, pool=layers.mean_probabilities),
        (3,),
        (4,),
    ),
    ModelRow("ModernHopfield", partial(ModernHopfield.init, 4, 3, beta=0.7), (3,), (5,)),
    ModelRow(
        "ModernHopfield twice", partial(ModernHopfield.init, 4, 3, beta=0.7, steps=2), (3,), (5,)
    ),
    ModelRow(
        "Ensemble with dropout",
        partial(Ensemble.init, partial(chain, p=0.5), 3),
        (3,),
        (4,),
        draws=True,
    ),
    ModelRow("RMSNorm", lambda key: RMSNorm.init(5), (5,), (4,)),
    *[attention(name, options) for name, options in ATTENTION.items()],
    ModelRow("Attention dropout", partial(Attention.init, 4, 2, dropout=0.5), (3, 4), draws=True),
    ModelRow(
        "FeedForward", partial(FeedForward.init, 3, 4, activation=layers.gelu), (2, 3), (2, 4)
    ),
    ModelRow("GatedFeedForward", partial(GatedFeedForward.init, 3, 4), (2, 3), (2, 4)),
    ModelRow(
        "Stacked",
        partial(Stacked.init, partial(FeedForward.init, 3, 2, activation=layers.tanh), 3),
        (2, 3),
    ),
    ModelRow("SinusoidalPositions", lambda key: SinusoidalPositions(), (3, 4)),
    ModelRow("LearnedPositions", partial(LearnedPositions.init, 4, 3), (3, 3), (3, 2)),
    *GRAPH_ROWS,
    ModelRow("Linearised", linearised, (3,), (4,)),
    ModelRow("MLP", partial(MLP.init, 4, 6, 5, 2), (2, 2), (3,)),
    ModelRow(
        "MLP dropout",
        partial(MLP.init, 3, 8, 2, activation=layers.tanh, dropout=0.5),
        (3,),
        (4,),
        draws=True,
    ),
    ModelRow(
        "MLP residual",
        partial(MLP.init, 3, 4, 4, 2, normalise=LayerNorm.init, connect=Residual),
        (3,),
        (4,),
    ),
    ModelRow(
        "MLP dense",
        partial(MLP.init, 3, 4, 2, 2, activation=layers.gelu, connect=Concat),
        (3,),
        (4,),
    ),
    ModelRow(
        "MLP weight norm",
        partial(MLP.init, 3, 4, 2, activation=layers.tanh, affine=WeightNorm.init),
        (3,),
        (4,),
    ),
    ModelRow(
        "MLP NTK parametrisation",
        partial(MLP.init, 3, 5, 2, activation=layers.sigmoid, initialiser=ntk_parametrisation()),
        (3,),
        (4,),
    ),
    ModelRow(
        "MLP batch norm",
        partial(
            MLP.init, 3, 4, 2, activation=layers.tanh, normalise=BatchNorm.init, connect=Residual
        ),
        (3,),
        (4,),
        batch=True,
    ),
    ModelRow("ResNet", resnet, (1, 4, 3), (2, 4, 3)),
    ModelRow(
        "ResNet large stem",
        partial(resnet, layout=ResNetLayout((1,)), small=False),
        (1, 8, 7),
        (2, 8, 7),
    ),
    ModelRow(
        "ResNet batch norm",
        partial(resnet, normalise=BatchNorm.init),
        (1, 4, 4),
        (2, 4, 4),
        batch=True,
    ),
    ModelRow(
        "LanguageModelCell",
        lambda key: Ranked(Recurrent(LanguageModelCell.init(4, 2, 3, key=key))),
        (4,),
    ),
    ModelRow(
        "EncoderDecoder",
        lambda key: Ranked(EncoderDecoder.init(4, 4, 2, 2, key=key), pair=True),
        (4,),
    ),
    ModelRow("EncoderDecoder attends", attending, (4,)),
    ModelRow("SequenceClassifier", partial(SequenceClassifier.init, 3, 2, width=2), (4, 2), (4, 3)),
    ModelRow(
        "TransformerBlock",
        partial(TransformerBlock.init, 4, 2, 3, feed=GatedFeedForward.init),
        (3, 4),
        (3, 5),
    ),
    ModelRow(
        "TransformerBlock after",
        partial(TransformerBlock.init, 4, 2, 3, norms="after"),
        (3, 4),
        (3, 5),
    ),
    ModelRow(
        "TransformerBlock drops",
        partial(TransformerBlock.init, 4, 2, 3, dropout=0.5),
        (3, 4),
        draws=True,
    ),
    ModelRow(
        "TransformerBlock attention dropout",
        partial(TransformerBlock.init, 4, 2, 3, attention_dropout=0.5),
        (3, 4),
        draws=True,
    ),
    ModelRow("GPT", gpt, (4,)),
    ModelRow("GPT llama", llama, (4,)),
    ModelRow("BERT", on_bert(lambda bert, key: bert, pair=True), (4,)),
    ModelRow("BERTPretraining", on_bert(guesses), (4,)),
    ModelRow("MaskedLM", on_bert(MaskedLM.init), (4,)),
    ModelRow("SentenceEncoder", on_bert(lambda bert, key: SentenceEncoder(bert)), (4,)),
    ModelRow("SentenceClassifier", on_bert(partial(SentenceClassifier.init, classes=3)), (4,)),
    ModelRow("TokenClassifier", on_bert(partial(TokenClassifier.init, classes=3)), (4,)),
    ModelRow("SpanPredictor", on_bert(span, pair=True), (4,)),
    ModelRow("ViT", vit, (1, 4, 2), (1, 2, 4)),
    ModelRow("Translator", translator, (4,)),
    ModelRow("DenseNet", densenet, (1, 4, 3), (2, 4, 3)),
    ModelRow("CNN", partial(CNN.init, (2, 3), classes=2, pool_size=1), (1, 5, 4), (2, 5, 4)),
    ModelRow(
        "CNN dropout",
        partial(CNN.init, (4,), classes=2, pool_size=2, dropout=0.5),
        (1, 5, 4),
        draws=True,
    ),
    ModelRow("Mixer", mixer, (1, 4, 6), (1, 6, 4)),
    ModelRow("linear regression", lambda key: linear_regression(3, 2), (3,), (4,)),
    ModelRow("logistic regression", lambda key: logistic_regression(3), (3,), (4,)),
    ModelRow("multinomial regression", lambda key: multinomial_regression(3, 4), (3,), (4,)),
    ModelRow("deep linear", partial(deep_linear, 3, 2, 4), (3,), (4,)),
    ModelRow(
        "linear autoencoder",
        lambda key: principal_components(jr.normal(key, (9, 3)), n_components=2).model,
        (3,),
        (4,),
    ),
    ModelRow("centred autoencoder", lambda key: autoencoder(jr.normal(key, (9, 3))), (3,), (4,)),
    ModelRow(
        "interpolating_network",
        lambda key: interpolating_network(np.arange(4.0), np.array([0.3, -1.0, 0.5, 0.2])),
        (1,),
        (2,),
    ),
    ModelRow(
        "step network",
        lambda key: step_network(jnp.sin, low=-2.0, high=2.0, width=3, steepness=2.0),
        (1,),
        (2,),
    ),
    ModelRow("square network", lambda key: square_network(2), (1,), (2,)),
    ModelRow("product network", lambda key: product_network(3, depth=1, bound=2.0), (3,), (4,)),
    ModelRow(
        "maximum of affine forms",
        lambda key: max_affine_network(np.eye(3), np.arange(3.0)),
        (3,),
        (4,),
    ),
    ModelRow(
        "Barron network",
        partial(barron_network, gaussian_bell(3), radius=1.0, width=4, steepness=2.0),
        (3,),
        (4,),
    ),
]

NARROW = PointNetWidths((2, 3), (3, 4), (3,), (4,), (2, 3), (3,))
LEVELS = (AbstractionLevel(3, 2.0, 2, (3,)),)


def pointnet(*, key, dropout: float = 0.0, **options) -> PointNet:
    return PointNet.init(2, widths=NARROW, dropout=dropout, key=key, **options)


def pointnet2(*, key) -> PointNet2:
    return PointNet2.init(
        2, levels=LEVELS, whole_widths=(4,), head_widths=(3,), dropout=0.0, key=key
    )


def deep_sets(*, key, **options) -> DeepSets:
    return DeepSets.init(3, 2, latent=4, hidden=(4,), activation=layers.tanh, key=key, **options)


SETS = [  # of five elements
    ModelRow("SharedMLP", partial(SharedMLP.init, 3, 4, 2), (5, 3), (5, 2)),
    ModelRow(
        "SharedMLP LayerNorm",
        partial(SharedMLP.init, 3, 4, 4, normalise=LayerNorm.init, activate_last=False),
        (5, 3),
        (5, 2),
    ),
    ModelRow(
        "SharedMLP BatchNorm",
        partial(SharedMLP.init, 3, 4, 2, normalise=BatchNorm.init, activation=layers.tanh),
        (5, 3),
        (5, 2),
        batch=True,
    ),
    ModelRow("SetAttentionBlock", partial(SetAttentionBlock.init, 4, 2), (5, 4), (5, 3)),
    ModelRow(
        "InducedSetAttentionBlock",
        partial(InducedSetAttentionBlock.init, 4, 2, n_inducing=3),
        (5, 4),
        (5, 3),
    ),
    ModelRow(
        "PoolingMultiheadAttention",
        partial(PoolingMultiheadAttention.init, 4, 2, n_seeds=2, normalise=None),
        (5, 4),
        (5, 3),
    ),
    ModelRow("TNet", partial(TNet.init, 3, widths=(3, 4), head_widths=(3,)), (5, 3), (5, 2)),
    ModelRow(
        "SetAbstraction",
        partial(SetAbstraction.init, 4, 3, n_centres=3, radius=2.0, k=2),
        (5, 4),
        (5, 3),
    ),
    ModelRow("DeepSets", deep_sets, (5, 3), (5, 2)),
    ModelRow("DeepSets max, mean", partial(deep_sets, aggregation=("max", "mean")), (5, 3)),
    ModelRow("DeepSets logsumexp", partial(deep_sets, aggregation="logsumexp"), (5, 3)),
    ModelRow("DeepSets dropout", partial(deep_sets, dropout=0.5), (5, 3), draws=True),
    ModelRow(
        "EquivariantDeepSets",
        partial(EquivariantDeepSets.init, 3, 2, latent=4, hidden=(4,), activation=layers.tanh),
        (5, 3),
        (5, 2),
    ),
    ModelRow(
        "SetTransformer",
        partial(SetTransformer.init, 3, 2, width=4, heads=2, n_inducing=3, depth=1),
        (5, 3),
        (5, 2),
    ),
    ModelRow(
        "SetTransformer seeds",
        partial(SetTransformer.init, 3, 2, width=4, heads=2, n_inducing=None, depth=1, n_seeds=2),
        (5, 3),
        (5, 2),
    ),
    ModelRow("PointNet", pointnet, (5, 3), (5, 2)),
    ModelRow("PointNet dropout", partial(pointnet, dropout=0.5), (5, 3), draws=True),
    ModelRow("PointNet BatchNorm", partial(pointnet, normalise=BatchNorm.init), (5, 3), batch=True),
    ModelRow(
        "PointNetSegmentation",
        partial(PointNetSegmentation.init, 2, widths=NARROW),
        (5, 3),
        (5, 2),
    ),
    ModelRow("PointNet2", pointnet2, (5, 3), (5, 2)),
]
MODELS += SETS

STEPS = [  # what they put out is a step, so that their derivatives are 0
    ModelRow("McCullochPitts", partial(McCullochPitts.init, 3, 4), (3,), (5,)),
    ModelRow("Perceptron", partial(Perceptron.init, 3), (3,), (4,)),
    ModelRow("Perceptron without bias", partial(Perceptron.init, 3, bias=False), (3,), (4,)),
    ModelRow("heaviside", lambda key: Pointwise(layers.heaviside), (4,)),
    ModelRow("sign", lambda key: Pointwise(layers.sign), (4,)),
    ModelRow("spin", lambda key: Pointwise(layers.spin), (4,)),
]


def generic(row: Any, seed: int = 0) -> Any:
    """A model with the structure of the row at a generic point: no weight is near 0 and no two are
    equal.
    """
    make = row.make if isinstance(row, ModelRow) else row.model
    leaves, structure = jax.tree.flatten(jax.eval_shape(lambda: make(key=jr.key(0))))
    draws = [
        np.random.default_rng([seed, i]).normal(0.2, 0.6, leaf.shape)
        for i, leaf in enumerate(leaves)
    ]
    untargeted = [
        jnp.asarray(draw + 0.05 * np.sign(draw), leaf.dtype) for draw, leaf in zip(draws, leaves)
    ]
    return jax.tree.unflatten(structure, untargeted)


def normal(seed: int, *shape: int) -> Any:
    """Standard normal values from NumPy, so nothing is compiled."""
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.zeros(()).dtype)


def filled(init: Any, seed: int) -> Any:
    """The model that `init(key=key)` would return, with standard normal weights from NumPy, so
    nothing is compiled.
    """
    leaves, structure = jax.tree.flatten(jax.eval_shape(lambda key: init(key=key), jr.key(0)))
    rng = np.random.default_rng(seed)
    return jax.tree.unflatten(
        structure, [jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype) for leaf in leaves]
    )


class ObjectiveRow(NamedTuple):
    """An objective, a model for it, and a batch."""

    name: str
    make: Callable[[], Objective]
    model: Callable[..., Any]
    batch: Callable[[], Any]
    smooth: bool = True  # has useful derivatives
    draws: bool = False
    penalty: bool = False  # adds a term that is not a mean over examples


net = partial(MLP.init, 3, 4, 3, activation=layers.tanh)
thin = partial(MLP.init, 3, 8, 3, activation=layers.tanh, dropout=0.5)
single = partial(MLP.init, 3, 4, 1, activation=layers.tanh)


def inputs() -> Any:
    return normal(10, 6, 3)


def classes() -> tuple[Any, Any]:
    return inputs(), jnp.array([0, 2, 1, 1, 0, 2])


def soft_classes() -> tuple[Any, Any]:
    return inputs(), jax.nn.softmax(normal(11, 6, 3))


def targets() -> tuple[Any, Any]:
    return inputs(), normal(12, 6, 3)


def coins() -> tuple[Any, Any]:
    return inputs(), jnp.array([0, 1, 1, 0, 1, 0])


def confusion() -> Any:
    return jax.nn.softmax(normal(13, 3, 3), axis=0)


def teacher() -> MLP:
    return MLP.init(3, 5, 3, activation=layers.gelu, key=jr.key(7))


def shift(x, *, key):
    return x + 0.1 * jr.normal(key, x.shape, x.dtype)


STEPS_OF_SIGNS = PGD(log_loss, Linf(0.2), step_size=0.1, steps=2, output="last")

OBJECTIVES = [
    ObjectiveRow("squared_error", lambda: squared_error, net, targets),
    ObjectiveRow("cross_entropy", lambda: cross_entropy, net, classes),
    ObjectiveRow("cross_entropy soft", lambda: cross_entropy, net, soft_classes),
    ObjectiveRow("cross_entropy dropout", lambda: cross_entropy, thin, classes, draws=True),
    ObjectiveRow("binary_cross_entropy", lambda: binary_cross_entropy, single, coins),
    ObjectiveRow(
        "batch_mean",
        lambda: batch_mean(lambda f, y: jnp.sqrt(1 + jnp.square(f - y)).sum()),
        net,
        targets,
    ),
    ObjectiveRow(
        "weight_decay",
        lambda: weight_decay(cross_entropy, strength=0.3),
        net,
        classes,
        penalty=True,
    ),
    ObjectiveRow("lasso", lambda: lasso(squared_error, strength=0.3), net, targets, penalty=True),
    ObjectiveRow("soften_labels", lambda: soften_labels(cross_entropy, confusion()), net, classes),
    ObjectiveRow(
        "soften_labels soft", lambda: soften_labels(cross_entropy, confusion()), net, soft_classes
    ),
    ObjectiveRow(
        "smooth_labels", lambda: smooth_labels(cross_entropy, 3, strength=0.2), net, classes
    ),
    ObjectiveRow(
        "with_augmentation",
        lambda: with_augmentation(squared_error, shift),
        net,
        targets,
        draws=True,
    ),
    ObjectiveRow("distil", lambda: distil(teacher(), temperature=2.0), net, classes),
    ObjectiveRow(
        "distil with labels",
        lambda: distil(teacher(), temperature=2.0, label_weight=0.3),
        net,
        classes,
    ),
    ObjectiveRow(
        "distillation_loss",
        lambda: batch_mean(partial(distillation_loss, temperature=2.0)),
        net,
        targets,
    ),
    ObjectiveRow(
        "mixed_precision", lambda: mixed_precision(cross_entropy), net, classes, smooth=False
    ),
    ObjectiveRow(
        "robust",
        lambda: adversarial_objective(cross_entropy, STEPS_OF_SIGNS),
        net,
        classes,
        smooth=False,
        draws=True,
    ),
    ObjectiveRow(
        "trades",
        lambda: trades(STEPS_OF_SIGNS, strength=2.0),
        net,
        classes,
        smooth=False,
        draws=True,
    ),
    ObjectiveRow(
        "pair_logits",
        lambda: logit_pairing(STEPS_OF_SIGNS, strength=2.0),
        net,
        classes,
        smooth=False,
        draws=True,
    ),
    ObjectiveRow("error_rate", lambda: error_rate, net, classes, smooth=False),
    ObjectiveRow("error_rate soft", lambda: error_rate, net, soft_classes, smooth=False),
    ObjectiveRow("binary_error_rate", lambda: binary_error_rate, single, coins, smooth=False),
]


def dropped(*, key) -> Chain:
    return Chain(Dropout(0.4), Linear.init(3, 3, key=key))


class IterationRow(NamedTuple):
    """An iteration on the classes above; its model has dropout, so the key matters."""

    name: str
    iteration: Iteration
    model: Callable[..., Any] = dropped


def of(optimiser, **settings) -> Iteration:
    return descend(cross_entropy, optimiser, **settings)


clipped = optax.chain(
    optax.clip_by_global_norm(0.5),
    optax.scale_by_adam(),
    optax.scale_by_learning_rate(optax.warmup_cosine_decay_schedule(0.0, 0.1, 2, 10)),
)

ITERATIONS = [
    IterationRow("sgd", of(optax.sgd(0.3))),
    IterationRow("momentum", of(optax.sgd(0.1, momentum=0.9, nesterov=True))),
    IterationRow("adam", of(optax.adam(0.05))),
    IterationRow(
        "adamw", of(optax.adamw(optax.cosine_decay_schedule(0.05, 10), weight_decay=0.01))
    ),
    IterationRow("lbfgs", of(optax.lbfgs(memory_size=3))),
    IterationRow("heavy_ball", of(heavy_ball(0.1, momentum=0.9))),
    IterationRow("nesterov", of(nesterov(0.1, momentum=lambda t: (t - 1) / (t + 2)))),
    IterationRow("adagrad", of(adagrad(0.1))),
    IterationRow("ista", of(ista(0.1, strength=0.01))),
    IterationRow("rmsprop", of(rmsprop(0.02))),
    IterationRow("corrected adam", of(adam(0.05, beta1=0.8, beta2=0.99))),
    IterationRow("uncorrected_adam", of(uncorrected_adam(0.02))),
    IterationRow("clipped, scheduled", of(clipped)),
    IterationRow("accumulate", of(optax.adam(0.05), accumulate=3)),
    IterationRow("ema", ema(of(optax.sgd(0.3)), decay=0.9)),
    IterationRow("swa", swa(of(optax.sgd(0.3)), start=2)),
    IterationRow(
        "per_member", per_member(of(optax.adam(0.05))), partial(Ensemble.init, dropped, 2)
    ),
    IterationRow(
        "ema of per_member",
        ema(per_member(of(optax.sgd(0.3))), decay=0.9),
        partial(Ensemble.init, dropped, 2),
    ),
]


class AttackRow(NamedTuple):
    """An attack on inputs from 0 to 1, and whether it needs a key."""

    name: str
    attack: Attack
    draws: bool = False
    bounded: bool = True  # keeps to a radius of 0.2 in the maximum norm


UNIT = (0.0, 1.0)
NEAR = Linf(0.2)
ASCENT = PGD(untargeted(margin_loss), NEAR, step_size=0.1, steps=3, box=UNIT)

ATTACKS = [
    AttackRow("PGD", ASCENT),
    AttackRow(
        "PGD restarts",
        PGD(untargeted(), NEAR, step_size=0.1, steps=2, restarts=2, momentum=0.5, box=UNIT),
        draws=True,
    ),
    AttackRow("fgsm", fgsm(log_loss, NEAR, box=UNIT)),
    AttackRow("APGD", APGD(untargeted(), NEAR, steps=5, box=UNIT)),
    AttackRow("Targeted", MultiTargeted(APGD(via_target(), NEAR, steps=3, box=UNIT), targets=2)),
    AttackRow("Square", Square(untargeted(margin_loss), NEAR, n_queries=6, box=UNIT), draws=True),
    AttackRow("WorstOf", AttackEnsemble(NEAR, ASCENT, DeepFool(steps=2, box=UNIT), box=UNIT)),
    AttackRow("Nearest", MinimumNormAttack(ASCENT, binary_search_steps=3)),
    AttackRow("DeepFool", DeepFool(L2, steps=5, box=UNIT), bounded=False),
    AttackRow("DeepFool Linf", DeepFool(Linf, steps=5, box=UNIT), bounded=False),
    AttackRow(
        "CarliniWagner",
        CarliniWagner(
            steps=6, binary_search_steps=2, learning_rate=0.1, initial_const=1.0, box=UNIT
        ),
        bounded=False,
    ),
    AttackRow(
        "HopSkipJump",
        HopSkipJump(L2, steps=2, n_queries=6, n_starts=6, box=UNIT),
        draws=True,
        bounded=False,
    ),
    AttackRow("AffineAttack", AffineAttack(L2, overshoot=0.02), bounded=False),
]


def differences(
    value: Callable[[Any], Any], point: Any, direction: Any, *, step: float = 1e-4
) -> Any:
    """The derivative along a direction by the five-point rule, of error step⁴."""
    places = point[None] + step * jnp.array([-2.0, -1.0, 1.0, 2.0])[:, None] * direction[None]
    return jnp.tensordot(
        jnp.array([1.0, -8.0, 8.0, -1.0]) / (12 * step), jax.vmap(value)(places), axes=1
    )


def derivative_errors(value: Callable[[Any], Any], point: Any, *, seed: int = 5) -> dict[str, Any]:
    """Relative errors of gradient and Hessian-vector product against differences, and the
    gradient's length.

    Along random signs s the mean of (s·e)² is ‖e‖², so a few of them measure the error e in all
    directions.
    """

    @jax.jit
    def errors(point, direction, signs):
        slope = jax.grad(value)
        gradient, curvature = jax.jvp(slope, (point,), (direction,))
        units = signs / jnp.sqrt(len(point))
        expected = jax.vmap(lambda unit: differences(value, point, unit))(units)
        bent = differences(slope, point, direction)
        length = jnp.linalg.norm(gradient)
        norm = jnp.linalg.norm
        return {
            "gradient": jnp.sqrt(len(point) * jnp.mean(jnp.square(units @ gradient - expected)))
            / length,
            "curvature": norm(curvature - bent) / jnp.maximum(norm(curvature), 1e-3 * length),
            "length": length,
        }

    direction = normal(seed, *point.shape)
    signs = jnp.sign(normal(seed + 1, 16, *point.shape))
    return errors(point, direction / jnp.linalg.norm(direction), signs)


def counted(f: Callable[..., Any]) -> tuple[Callable[..., Any], list[None]]:
    """The function, and a list that grows by one with every trace of it."""
    traces: list[None] = []

    def watched(*args, **kwargs):
        traces.append(None)
        return f(*args, **kwargs)

    return watched, traces


def same_bits(a: Any, b: Any) -> bool:
    """Whether two trees have the same structure, dtypes and bits."""
    same = jax.tree.map(
        lambda x, y: x.dtype == y.dtype and x.tobytes() == y.tobytes(), *map(on_host, (a, b))
    )
    return jax.tree.structure(a) == jax.tree.structure(b) and all(jax.tree.leaves(same))


def on_host(a: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.device_get(leaf), a)


def close(a: Any, b: Any, *, rtol: float = 1e-5, atol: float = 1e-6) -> bool:
    """Whether two trees of the same structure are close."""
    return all(
        jax.tree.leaves(
            jax.tree.map(lambda x, y: bool(jnp.allclose(x, y, rtol=rtol, atol=atol)), a, b)
        )
    )


def batched(model: Any, xs: Any) -> Any:
    """The model mapped over examples with the named batch axis, without `core.predict`."""
    return jax.vmap(lambda x: model(x), axis_name=BATCH_AXIS)(xs)
