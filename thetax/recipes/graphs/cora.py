"""Node classification in citation networks: graph networks beside methods that use only the words
or only the citations (§7.4).
"""

from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from ... import tree
from ...core import Batch, Iteration, Objective
from ...data import LabelledNodes, load_graph
from ...layers import GAT, GIN, Chain, Ensemble, Linear, Nodewise, glorot
from ...models import GNN, at_nodes, label_propagation
from ...serialise import recorded
from ...train import (
    FitResult,
    cross_entropy,
    descend,
    error_rate,
    fit,
    per_member,
    weight_decay,
)
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome

N_GIN = 64  # features inside GIN
TIE = 1e-3  # weight of the loss beside the error rate, to choose among equal errors


class Method(NamedTuple):
    """The network of a row of the table, and how it is trained."""

    network: dict[str, Any]  # arguments of `GNN.init`
    learning_rate: float = 0.01
    decay: float = 5e-4
    decay_all: bool = False  # weight decay of all layers, not only of the first
    epochs: int = 200


def pointwise(d: int, m: int, *, key: PRNGKeyArray) -> Nodewise:
    """A linear layer at every node: networks of it are MLPs of the features of a node."""
    return Nodewise(Linear.init(d, m, initialiser=glorot, key=key))


def embedded_gin(d: int, m: int, *, key: PRNGKeyArray) -> Chain:
    """A linear map of the words, and GIN on its result, so that sums over neighbours have few
    features.
    """
    key_embed, key_layer = jr.split(key)
    embed = pointwise(d, N_GIN, key=key_embed)
    return Chain(embed, GIN.init(N_GIN, m, hidden=N_GIN, initialiser=glorot, key=key_layer))


def methods(data: str) -> dict[str, Method]:
    """The networks with the settings of their papers, where these have some for the data.

    GCN: Kipf & Welling 2017. GAT: Veličković et al. 2018, for Pubmed with eight heads in the last
    layer too and a stronger decay. The other networks have the settings of the GCN.
    """
    pubmed = data == "pubmed"
    small = {"hidden": 16, "dropout": 0.5}
    gat = {
        "hidden": 64,
        "dropout": 0.6,
        "activation": jax.nn.elu,
        "layer": partial(GAT.init, n_heads=8, dropout=0.6),
        "last_layer": partial(GAT.init, n_heads=8 if pubmed else 1, heads="mean", dropout=0.6),
    }
    return {
        "mlp": Method({**small, "layer": pointwise}),
        "chebyshev": Method({**small, "layer": "chebyshev"}),
        "sage": Method({**small, "layer": "sage"}),
        "gin": Method({**small, "hidden": N_GIN, "layer": embedded_gin}),
        "gat": Method(
            gat,
            learning_rate=0.01 if pubmed else 0.005,
            decay=1e-3 if pubmed else 5e-4,
            decay_all=True,
            epochs=1000,
        ),
        "gcn": Method({**small, "layer": "gcn"}),
    }


@recorded
def with_first_layer_decay(objective: Objective, *, strength: float, n_leaves: int) -> Objective:
    r"""The objective plus $\frac{\mu}{2} \|\theta_1\|^2$, the parameters of the first layer, which
    are the first leaves of the model.
    """

    def decayed(model, batch, *, key=None):
        first = jax.tree.leaves(model)[:n_leaves]
        return objective(model, batch, key=key) + strength / 2 * tree.dot(first, first)

    return decayed


class BestState(NamedTuple):
    """The best model so far, the state of the iteration, and the score of the best model."""

    model: Any
    inner: Any
    score: Float[Array, ""]


def keep_best(iteration: Iteration, score: Objective, batch: Batch) -> Iteration:
    """The iteration whose model is the one with the lowest score so far: early stopping for each
    member of an ensemble.
    """

    def init(model):
        return BestState(model, iteration.init(model), jnp.full((), jnp.inf))

    def step(state, training_batch, *, key):
        inner, info = iteration.step(state.inner, training_batch, key=key)
        new = score(inner.model, batch)
        better = new < state.score
        choose = lambda a, b: jnp.where(better, a, b)
        best = jax.tree.map(choose, inner.model, state.model)
        return BestState(best, inner, choose(new, state.score)), info

    return Iteration(init, step)


def validation_score(model: Any, batch: Batch, *, key: PRNGKeyArray | None = None):
    """The error rate; the loss decides among equal ones."""
    return error_rate(model, batch) + TIE * cross_entropy(model, batch)


def part(data: LabelledNodes, nodes: np.ndarray) -> Batch:
    """Nodes and their labels, as examples of a model at nodes."""
    return jnp.asarray(nodes), jnp.asarray(data.labels[nodes])


def accuracies(nets: Ensemble, test: Batch) -> Float[np.ndarray, " n"]:
    """Test accuracy of each member in percent."""
    errors = jax.lax.map(lambda member: error_rate(member, test), nets.members)
    return 100 * (1 - np.asarray(errors))


@recipe
def cora(
    job: Job,
    *,
    data: Literal["cora", "citeseer", "pubmed"] = "cora",
    n_seeds: int = 10,
    networks: tuple[str, ...] = ("mlp", "chebyshev", "sage", "gin", "gat", "gcn"),
    epochs: int | None = None,
) -> Outcome:
    """Classification of papers from their words and citations, with 20 labels of each class.

    The public split of Cora, Citeseer or Pubmed. A row is the mean over seeds, which are trained at
    once and tested with the weights of the epoch of the lowest validation error. Label propagation,
    which has no parameters and no words, and the MLP, which has no citations, are the baselines.
    The model of the outcome is one of the last row.

    Parameters
    ----------
    data
        The citation network.
    n_seeds
        Random seeds of each row.
    networks
        Which networks to train.
    epochs
        Epochs of all networks; by default 200, and 1,000 for GAT.
    """
    if n_seeds < 2:
        raise ValueError(f"n_seeds must be at least 2, for a standard deviation; got {n_seeds}.")
    if epochs is not None:
        check_positive(epochs=epochs)
    known = methods(data)
    if not networks or set(networks) - set(known):
        raise ValueError(f"networks may be {', '.join(known)}; got {networks}.")
    job.note(f"loading {data}")
    papers = load_graph(data, normalise=True)
    train, valid, test = (
        part(papers, nodes) for nodes in (papers.train, papers.valid, papers.test)
    )
    table = {"label propagation": _label_propagation_row(papers)}
    seconds = 0.0
    for name in networks:
        job.note(name)
        method = known[name] if epochs is None else known[name]._replace(epochs=epochs)
        result, objective = _train(job, name, method, papers, n_seeds, train, valid)
        scores = accuracies(result.model, test)
        table[name] = {"test accuracy %": float(scores.mean()), "± %": float(scores.std(ddof=1))}
        seconds += result.seconds
    return Outcome.of_fit(
        result,
        model=jax.tree.map(lambda a: a[0], result.model.members),
        train=train,
        test=test,
        objective=objective,
        classes=papers.classes,
        table=table,
        seconds=seconds,
    )


def _train(
    job: Job,
    name: str,
    method: Method,
    papers: LabelledNodes,
    n_seeds: int,
    train: Batch,
    valid: Batch,
) -> tuple[FitResult, Objective]:
    key_init, key_fit = jr.split(job.key)
    d = papers.graph.nodes.shape[1]

    def init(*, key):
        net = GNN.init(d, d_out=len(papers.classes), key=key, **method.network)
        return at_nodes(net, papers.graph)

    nets = Ensemble.init(init, n_seeds, key=key_init)
    first = jax.eval_shape(init, key=key_init).model.body.layers[0]
    add_decay = (
        weight_decay
        if method.decay_all
        else partial(with_first_layer_decay, n_leaves=len(jax.tree.leaves(first)))
    )
    objective = add_decay(cross_entropy, strength=method.decay)
    optimiser = optax.adam(method.learning_rate)
    result = fit(
        per_member(keep_best(descend(objective, optimiser), validation_score, valid)),
        nets,
        train,
        epochs=method.epochs,
        batch_size=len(train[1]),
        key=key_fit,
        run=job.part(name),
        progress=job.progress,
    )
    return result, objective


def _label_propagation_row(papers: LabelledNodes) -> dict[str, float]:
    """The strength of propagation is chosen on the validation nodes."""
    known = np.zeros(papers.graph.n_nodes, bool)
    known[papers.train] = True
    right = lambda predicted, nodes: 100 * np.mean(predicted[nodes] == papers.labels[nodes])
    best = (-1.0, 0.0)
    for alpha in (0.5, 0.8, 0.9, 0.95, 0.99):
        scores = label_propagation(
            papers.graph, papers.labels, known=known, n_classes=len(papers.classes), alpha=alpha
        )
        predicted = np.asarray(scores).argmax(axis=1)
        best = max(best, (right(predicted, papers.valid), right(predicted, papers.test)))
    return {"test accuracy %": float(best[1])}
