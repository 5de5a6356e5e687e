"""A model with a fixed graph goes through fit, kernels, curvature, calibration, attacks,
certificates and files as any other; the graph is no parameter, and nothing is computed twice.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from graphs_by_loop import random_graph

from thetax import tree
from thetax.attack import PGD, untargeted
from thetax.certify import certified_margins, randomised_smoothing
from thetax.core import predict
from thetax.data.graphs import Graph
from thetax.explain import calibration, ntk, saliency, sharpness
from thetax.layers import GCN, MessagePassing
from thetax.models import GNN, at_nodes, of_edge_weights, of_features
from thetax.models.graphs import FixedGraph
from thetax.serialise import load, save
from thetax.threat import L2, Linf
from thetax.train import Silent, cross_entropy, descend, fit, load_weights, save_weights

GRAPH = random_graph(0, undirected=True)
NODES = jnp.array([0, 2, 5, 2])
LABELS = jnp.array([0, 1, 1, 0])
NET = GNN.init(3, 8, 2, dropout=0.5, activation=jnp.tanh, key=jr.key(0))


def test_values():
    rows = NET(GRAPH)
    assert np.allclose(predict(at_nodes(NET, GRAPH), NODES), rows[NODES], atol=1e-6)
    assert np.allclose(at_nodes(NET, GRAPH)(3), rows[3], atol=1e-6)
    x = 2 * GRAPH.nodes
    moved = NET(GRAPH.with_nodes(x))
    assert np.allclose(of_features(NET, GRAPH)(x), moved, atol=1e-6)
    assert np.allclose(of_features(NET, GRAPH, node=4)(x), moved[4], atol=1e-6)
    ones = jnp.ones(GRAPH.n_edges)
    assert np.allclose(of_edge_weights(NET, GRAPH)(ones), rows, atol=1e-6)
    layer = at_nodes(GCN.init(3, 2, key=jr.key(0)), GRAPH)
    assert layer(0).shape == (2,)


@pytest.mark.parametrize("layer", ["gcn", "gin", "sage", "gat", "gatv2"])
def test_an_edge_of_weight_0_is_left_out(layer):
    net = GNN.init(3, 4, 2, layer=layer, key=jr.key(0))
    w = (GRAPH.senders != 1) & (GRAPH.receivers != 1)
    kept = np.flatnonzero(w)
    pairs = np.stack([GRAPH.senders, GRAPH.receivers], axis=1)[kept]
    smaller = Graph.from_edges(pairs, GRAPH.nodes, undirected=False)
    found = of_edge_weights(net, GRAPH)(w.astype(jnp.float32))
    assert 0 < len(kept) < GRAPH.n_edges
    assert np.allclose(found, net(smaller), atol=1e-5)


def test_leaves_are_parameters():
    for model in (at_nodes(NET, GRAPH), of_features(NET, GRAPH), of_edge_weights(NET, GRAPH)):
        assert tree.size(model) == tree.size(NET)
        assert all(a is b for a, b in zip(jax.tree.leaves(model), jax.tree.leaves(NET)))


def test_nothing_is_traced_again_for_the_same_graph():
    traces = []

    @jax.jit
    def f(model, nodes):
        traces.append(None)
        return predict(model, nodes)

    for seed in range(3):
        f(at_nodes(GNN.init(3, 4, 2, key=jr.key(seed)), GRAPH), NODES)
    assert len(traces) == 1
    f(at_nodes(GNN.init(3, 4, 2, key=jr.key(0)), random_graph(1, undirected=True)), NODES)
    assert len(traces) == 2


def test_a_batch_computes_the_graph_once():
    """Also with a key: no array of the program has an axis for the nodes of the batch and one for
    those of the graph; and all nodes see the same dropout mask.
    """
    n = 11
    nodes = jnp.arange(n) % GRAPH.n_nodes
    model = at_nodes(NET, GRAPH)
    for key in (None, jr.key(1)):
        f = lambda model, key=key: predict(model, nodes, key=key)
        shapes = [v.aval.shape for eqn in jax.make_jaxpr(f)(model).eqns for v in eqn.outvars]
        assert not [s for s in shapes if n in s and GRAPH.n_nodes in s]
    drawn = np.asarray(predict(model, nodes, key=jr.key(1)))
    assert np.allclose(drawn[:5], drawn[6:11], atol=1e-6)
    assert not np.allclose(drawn, predict(model, nodes), atol=1e-3)
    assert not np.allclose(drawn, predict(model, nodes, key=jr.key(2)), atol=1e-3)
    assert model(0, key=jr.key(1)).shape == (2,)


def test_fit_and_calibration():
    model = at_nodes(GNN.init(3, 16, 2, dropout=0.1, key=jr.key(0)), GRAPH)
    data = jnp.array([0, 1, 3, 5]), jnp.array([0, 1, 0, 1])
    result = fit(
        descend(cross_entropy, optax.adam(0.05)),
        model,
        data,
        epochs=60,
        key=jr.key(1),
        progress=Silent(),
    )
    assert result.history["train loss"][-1] < 0.3 * result.history["train loss"][0]
    assert result.model.fixed == model.fixed
    assert calibration(result.model, data).error < 0.4


@pytest.mark.usefixtures("x64")
def test_tangent_kernel_and_curvature():
    net = jax.tree.map(lambda a: a.astype(float), NET)
    graph = GRAPH.with_nodes(GRAPH.nodes.astype(float))
    model = at_nodes(net, graph)
    theta, back = tree.ravel(net)
    J = np.asarray(jax.jacobian(lambda t: back(t)(graph)[NODES])(theta))
    expected = np.einsum("iap,jbp->ijab", J, J)
    assert np.allclose(ntk(model)(NODES, NODES), expected, atol=1e-10)
    loss = lambda t: cross_entropy(at_nodes(back(t), graph), (NODES, LABELS))
    top = np.linalg.eigvalsh(np.asarray(jax.hessian(loss)(theta)))[-1]
    found = sharpness(cross_entropy, model, (NODES, LABELS), steps=60, key=jr.key(0))
    assert np.isclose(found.eigenvalue, top, rtol=1e-6)


def test_attacks_smoothing_and_saliency():
    model = of_features(NET, GRAPH, node=0)
    x = GRAPH.nodes
    y = jnp.argmax(model(x))
    attack = PGD(untargeted(), L2(1.0), step_size=0.3, steps=5)
    worse = attack(model, x, y)
    loss = lambda x: -jax.nn.log_softmax(model(x))[y]
    assert loss(worse) > loss(x)
    assert float(jnp.linalg.norm(worse - x)) <= 1 + 1e-5
    smooth = randomised_smoothing(model, x[None], noise=0.1, n_samples=50, key=jr.key(0))
    assert smooth.labels.shape == (1,)
    assert saliency(model, x[None]).magnitude.shape == (1, 6, 3)
    edges = of_edge_weights(NET, GRAPH, node=0)
    ones = jnp.ones(GRAPH.n_edges)
    assert np.abs(jax.grad(lambda w: edges(w)[0])(ones)).max() > 1e-3


@pytest.mark.sampled(2)
@pytest.mark.parametrize("layer", ["gcn", "sage", "gin"])
def test_certified_margins_are_sound(layer):
    """No random features within the radius have a smaller margin; those of GAT are refused."""
    net = GNN.init(3, 8, 2, layer=layer, key=jr.key(0))
    model = of_features(net, GRAPH, node=0)
    x, ball = GRAPH.nodes, Linf(0.05)
    y = jnp.argmax(model(x))
    bounds = {
        how: float(certified_margins(model, x, y, ball, bounds=how)[1 - y])
        for how in ("interval", "linear")
    }
    noise = jr.uniform(jr.key(1), (200, *x.shape), minval=-0.05, maxval=0.05)
    logits = predict(model, x[None] + noise)
    worst = float((logits[:, y] - logits[:, 1 - y]).min())
    assert bounds["interval"] <= bounds["linear"] + 1e-6 <= worst + 2e-6
    assert worst - bounds["linear"] < float(logits[:, y].std() + logits[:, 1 - y].std()) * 10
    attentive = of_features(GNN.init(3, 8, 2, layer="gat", key=jr.key(0)), GRAPH, node=0)
    with pytest.raises(ValueError, match=r"cannot bound .*randomised_smoothing"):
        certified_margins(attentive, x, y, ball)


def test_files(tmp_path):
    model = at_nodes(NET, GRAPH)
    save(tmp_path / "model", model)
    again = load(tmp_path / "model")
    assert predict(again, NODES).tolist() == predict(model, NODES).tolist()
    assert again.fixed.graph.senders.tolist() == GRAPH.senders.tolist()
    save_weights(tmp_path / "w.safetensors", model)
    like = jax.eval_shape(lambda: at_nodes(GNN.init(3, 8, 2, dropout=0.5, key=jr.key(1)), GRAPH))
    like = at_nodes(like.model, GRAPH)
    assert tree.ravel(load_weights(tmp_path / "w.safetensors", like))[0].tolist() == (
        tree.ravel(NET)[0].tolist()
    )


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="node 6 is not in the graph, whose nodes are 0 to 5"):
        at_nodes(NET, GRAPH)(6)
    with pytest.raises(ValueError, match="node -1 is not in the graph"):
        of_features(NET, GRAPH, node=-1)
    with pytest.raises(ValueError, match=r"the index of one node, an integer; got float32"):
        at_nodes(NET, GRAPH)(jnp.array(1.0))
    with pytest.raises(ValueError, match=r"of shape \(4,\). Map over several"):
        at_nodes(NET, GRAPH)(NODES)
    with pytest.raises(ValueError, match=r"a row of outputs for each of the 6 nodes, got .*\(2,\)"):
        at_nodes(GNN.init(3, 4, 2, readout="sum", key=jr.key(0)), GRAPH)(0)
    with pytest.raises(ValueError, match=r"expected a thetax.data.Graph, got list"):
        at_nodes(NET, [(0, 1)])
    stacked = jax.tree.map(lambda a: jnp.stack([a, a]), GRAPH)
    with pytest.raises(ValueError, match=r"got stacked graphs, nodes of shape \(2, 6, 3\)"):
        at_nodes(NET, stacked)
    with pytest.raises(ValueError, match="it is not fixed"):
        jax.jit(lambda graph: at_nodes(NET, graph)(0))(GRAPH)
    with pytest.raises(ValueError, match=r"a weight for each of the 16 edges, got .*\(3,\)"):
        of_edge_weights(MessagePassing(), GRAPH)(jnp.ones(3))
    with pytest.raises(ValueError, match="expected a row for each of the 6 nodes"):
        of_features(NET, GRAPH)(jnp.ones((2, 3)))


def test_fixed_graphs_with_equal_arrays_are_equal():
    one, same = (FixedGraph(Graph.from_edges([(0, 1), (1, 2)], np.eye(3))) for _ in range(2))
    assert one == same
    assert hash(one) == hash(same)
    for other in (
        Graph.from_edges([(0, 1), (0, 2)], np.eye(3)),
        Graph.from_edges([(0, 1), (1, 2)], 2 * np.eye(3)),
        Graph.from_edges([(0, 1), (1, 2)], np.eye(3), weights=[1.0, 1.0]),
        Graph.from_nodes(np.eye(3)),
    ):
        assert one != FixedGraph(other)
