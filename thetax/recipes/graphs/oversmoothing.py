"""Over-smoothing: accuracy and Dirichlet energy of graph networks against their depth (§7.4)."""

from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float

from ...data import Graph, dirichlet_energy, load_graph
from ...layers import GCN, Ensemble, he
from ...models import GNN, at_nodes
from ...train import cross_entropy, descend, fit, per_member, weight_decay
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome
from .cora import accuracies, keep_best, part, validation_score

CURES: dict[str, dict[str, Any]] = {
    "none": {},
    "DropEdge": {"drop_edge": 0.5},
    "PairNorm": {"norm": "pair"},
    "residual": {"residual": True},
    "jumping knowledge": {"jumping": "concat"},
}


def feature_diversity(graph: Graph, x: Float[Array, "v d"]) -> Float[Array, ""]:
    r"""The Dirichlet energy of the features by their norm, $\mathrm{tr}(X^\top \tilde L X) /
    \|X\|_F^2$ with the normalised Laplacian of the graph with self-loops: 0 if all rows of a
    component are parallel and as long as the root of the degree plus one, which is what repeated
    smoothing leads to.

    >>> path = Graph.from_edges([(0, 1), (1, 2)])
    >>> float(feature_diversity(path, jnp.sqrt(jnp.array([[2.0], [3.0], [2.0]]))).__round__(6))
    0.0
    """
    energy = dirichlet_energy(graph, x, kind="normalised", self_loops=True)
    return energy / jnp.maximum(jnp.sum(x**2), jnp.finfo(x.dtype).tiny)


@recipe
def oversmoothing(
    job: Job,
    *,
    data: Literal["cora", "citeseer", "pubmed"] = "cora",
    depths: tuple[int, ...] = (2, 4, 8, 16, 32),
    cures: tuple[str, ...] = tuple(CURES),
    hidden: int = 16,
    dropout: float = 0.5,
    n_seeds: int = 3,
    learning_rate: float = 0.01,
    epochs: int = 150,
) -> Outcome:
    """Accuracy and over-smoothing of a GCN against its depth, with known cures.

    A row is a cure and a depth: the mean test accuracy over seeds, and the Dirichlet energy of the
    node features after the last layer relative to their norm, before and after training. It is 0 if
    a node cannot be told from its neighbours.

    Parameters
    ----------
    data
        The citation network.
    depths
        Numbers of graph layers.
    cures
        Any of none, DropEdge, PairNorm, residual and jumping knowledge.
    n_seeds
        Random seeds of each row.
    """
    check_positive(hidden=hidden, n_seeds=n_seeds, learning_rate=learning_rate, epochs=epochs)
    if not cures or set(cures) - set(CURES):
        raise ValueError(f"cures may be {', '.join(CURES)}; got {cures}.")
    if not depths or min(depths) < 1:
        raise ValueError(f"depths are numbers of layers, at least 1; got {depths}.")
    job.note(f"loading {data}")
    papers = load_graph(data, normalise=True)
    graph = papers.graph
    train, valid, test = (
        part(papers, nodes) for nodes in (papers.train, papers.valid, papers.test)
    )
    objective = weight_decay(cross_entropy, strength=5e-4)
    iteration = per_member(
        keep_best(descend(objective, optax.adam(learning_rate)), validation_score, valid)
    )
    diversity = jax.jit(jax.vmap(lambda net: feature_diversity(graph, net.model.embed(graph))))
    table = {}
    seconds = 0.0
    for cure in cures:
        for depth in depths:
            job.note(f"{cure}, {depth} layers")

            def init(*, key, depth=depth, cure=cure):
                net = GNN.init(
                    graph.nodes.shape[1],
                    hidden,
                    len(papers.classes),
                    depth=depth,
                    layer=partial(GCN.init, initialiser=he),
                    dropout=dropout,
                    head=(),
                    key=key,
                    **CURES[cure],
                )
                return at_nodes(net, graph)

            nets = Ensemble.init(init, n_seeds, key=jr.fold_in(job.key, depth))
            result = fit(
                iteration,
                nets,
                train,
                epochs=epochs,
                batch_size=len(train[1]),
                key=jr.fold_in(job.key, 1000 + depth),
                run=job.part(f"{cure.replace(' ', '-')}-{depth}"),
                progress=job.progress,
            )
            scores = accuracies(result.model, test)
            table[f"{cure}, {depth} layers"] = {
                "test accuracy %": float(scores.mean()),
                "± %": float(np.std(scores)),
                "energy at the start": float(diversity(nets.members).mean()),
                "energy after training": float(diversity(result.model.members).mean()),
            }
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
