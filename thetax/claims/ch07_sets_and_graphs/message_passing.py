"""§7.4: a step of message passing."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ...data import Graph, permute_nodes
from ...layers import MessagePassing
from ..engine.check import close, equal, refuted
from ..engine.claim import Verdict, claim
from .graphs_by_loop import HOUSE, equivariance_error, house, mlp
from .sets_by_loop import generic, slope_and_differences

AGGREGATE: dict[Any, Any] = {"sum": np.sum, "mean": np.mean, "max": np.max}


def by_loop(layer: MessagePassing, graph: Graph, how: str) -> np.ndarray:
    """The step, node by node; for a node without neighbours the aggregation is 0."""
    A, X = np.asarray(graph.adjacency()), np.asarray(graph.nodes)
    rows = []
    for m in range(len(X)):
        messages = [mlp(layer.message, np.concatenate([X[m], X[n]])) for n in np.flatnonzero(A[m])]
        total = AGGREGATE[how](messages, axis=0) if messages else np.zeros(4)
        rows.append(mlp(layer.update, np.concatenate([X[m], total])))
    return np.array(rows)


@claim(
    "7.4-message-passing",
    title="Message passing",
    kind="layer",
    of=("layers.MessagePassing",),
    cites="Gilmer et al. 2017",
)
def message_passing(key, rng):
    r"""$\xi_m = \varphi\big(x_m, \bigoplus_{x \in X_m} \psi(x)\big)$ with the multiset $X_m$ of the
    features of the neighbours, an invariant aggregation $\bigoplus$, a message net $\psi$ and an
    update net $\varphi$. The message may depend on $x_m$ too. The order of the neighbours does not
    matter, and an isolated node gets the empty sum, 0.
    """
    lonely = Graph.from_edges(HOUSE, rng.normal(size=(6, 3)))
    nets = {
        how: generic(MessagePassing.init(3, 2, hidden=4, aggregation=how, key=key), key)
        for how in AGGREGATE
    }
    net = nets["sum"]
    smooth = generic(MessagePassing.init(3, 2, hidden=3, activation=jnp.tanh, key=key), key)
    X = np.asarray(lonely.nodes)
    graph = house(rng)
    weights = jnp.asarray(rng.normal(size=(5, 2)))
    value = lambda both: jnp.vdot(weights, both[0](graph.with_nodes(both[1])).nodes)
    slope, differences = slope_and_differences(value, (smooth, graph.nodes))
    shuffled = Graph.from_edges(rng.permutation(HOUSE)[:, ::-1], X)
    order = np.array([0, 4, 2, 3, 1, 5])
    swapped = permute_nodes(lonely, order)
    sender_only = MessagePassing(jnp.tanh, lambda z: z[:3] - z[3:])
    A = np.asarray(lonely.adjacency())
    return Verdict(
        *[
            close(f"{how}, by a loop over nodes", f(lonely).nodes, by_loop(f, lonely, how))
            for how, f in nets.items()
        ],
        close("x - Σ tanh(x_n)", sender_only(lonely).nodes, X - A @ np.tanh(X)),
        close(
            "isolated node: φ(x, 0)",
            net(lonely).nodes[5],
            mlp(net.update, np.concatenate([X[5], np.zeros(4)])),
        ),
        close("edges listed in another order", net(shuffled).nodes, net(lonely).nodes),
        close("nodes renumbered", net(swapped).nodes, net(lonely).nodes[order]),
        close("equivariant", equivariance_error(net, graph), 0.0),
        close(
            f"all {len(slope)} derivatives, by ψ, φ and X",
            slope,
            differences,
            tolerance=1e-7,
            method="finite differences",
        ),
        equal("shape", net(lonely).nodes.shape, (6, 2)),
        refuted(
            close("mean for sum", by_loop(net, lonely, "mean"), net(lonely).nodes, tolerance=1e-3)
        ),
    )
