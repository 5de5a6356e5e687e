"""Residual and jumping-knowledge stacks against their definitions."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from graphs_by_loop import random_graph

from thetax.layers import GCN, Chain, Dropout, GraphResidual, JumpingKnowledge, Nodewise


def layers(*sizes):
    keys = jr.split(jr.key(0), len(sizes))
    return [GCN.init(d, m, key=key) for d, m, key in zip(sizes, sizes[1:], keys)]


def test_residual():
    graph = random_graph(0)
    (same,), (wider,) = layers(3, 3), layers(3, 5)
    plain = GraphResidual.init(same, 3, 3, key=jr.key(1))
    assert plain.skip is None
    assert np.allclose(plain(graph).nodes, graph.nodes + same(graph).nodes, atol=1e-6)
    projected = GraphResidual.init(wider, 3, 5, key=jr.key(1))
    expected = np.asarray(graph.nodes) @ np.asarray(projected.skip.W).T + wider(graph).nodes
    assert np.allclose(projected(graph).nodes, expected, atol=1e-6)
    with pytest.raises(ValueError, match=r"\(6, 5\), but the skip connection gives \(6, 3\)"):
        GraphResidual(wider)(graph)


@pytest.mark.parametrize("combine", ["concat", "max", "last"])
def test_jumping_knowledge(combine):
    graph = random_graph(0)
    first, second = layers(3, 4, 4)
    one = first(graph)
    two = second(one)
    expected = {
        "concat": jnp.concatenate([one.nodes, two.nodes], axis=1),
        "max": jnp.maximum(one.nodes, two.nodes),
        "last": two.nodes,
    }[combine]
    assert (
        JumpingKnowledge(first, second, combine=combine)(graph).nodes.tolist() == expected.tolist()
    )


def test_keys_reach_the_layers():
    graph = random_graph(0)
    drop = Nodewise(Dropout(0.5))
    for stack in (JumpingKnowledge(drop, drop), GraphResidual(Chain(drop))):
        draws = [stack(graph, key=jr.key(seed)).nodes.tolist() for seed in (1, 1, 2)]
        assert draws[0] == draws[1] != draws[2]
    both = np.asarray(JumpingKnowledge(drop, drop)(graph, key=jr.key(3)).nodes)
    first, second = both[:, :3], both[:, 3:]
    assert set(np.round(second[first != 0] / first[first != 0], 6)) == {0, 2}


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"one of concat, max, last; got 1 layers and .*'sum'"):
        JumpingKnowledge(Nodewise(jnp.tanh), combine="sum")
    with pytest.raises(ValueError, match=r"the same number of features; got \[4, 5\]"):
        JumpingKnowledge(*layers(3, 4, 5), combine="max")(random_graph(0))
