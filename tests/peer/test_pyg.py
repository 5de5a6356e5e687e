"""The same numbers as PyTorch Geometric: values and gradients of graph layers on copied weights, on
random graphs with isolated nodes, self-loops and doubled edges.

Where a layer adds self-loops, PyTorch Geometric first removes those of the graph; thetax keeps
them. So these layers are compared once without added loops, and once on graphs without loops.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from graphs_by_loop import jittered, random_graph

from thetax.data.graphs import Graph, batch_graphs
from thetax.layers import GAT, GCN, GIN, ChebyshevFilter, GATv2, GraphSAGE, Readout

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")
pytestmark = pytest.mark.peer

TOLERANCE = 1e-5


class Case(NamedTuple):
    """Our layer and theirs, with the same weights, and for each of their parameters what our
    gradient says it should be.
    """

    ours: Any
    theirs: Any
    gradients: dict[str, Callable[[Any], Any]]
    edges: bool = False  # takes edge features
    loops: bool = True  # the graph has self-loops
    with_loops: bool = False  # theirs is given one more self-loop at each node


def copied(ours, theirs, weights: dict[str, Callable[[Any], Any]], **options) -> Case:
    """Theirs with the weights of ours; the gradient has the same layout as the weights."""
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            value = np.asarray(weights[name](ours), np.float32)
            parameter.copy_(torch.tensor(value).reshape(parameter.shape))
    return Case(ours, theirs, weights, **options)


def gcn(*, loops: bool) -> Case:
    return copied(
        jittered(GCN.init(3, 4, key=jr.key(0))),
        pyg.GCNConv(3, 4, add_self_loops=not loops),
        {"lin.weight": lambda g: g.linear.W, "bias": lambda g: g.linear.b},
        loops=loops,
        with_loops=loops,
    )


def sage(how: str, *, normalise: bool = False, pool: bool = False) -> Case:
    ours = jittered(
        GraphSAGE.init(3, 2, aggregation=how, normalise=normalise, pool=pool, key=jr.key(0))
    )
    weights = {
        "lin_l.weight": lambda g: g.neighbours.W,
        "lin_l.bias": lambda g: g.own.b,
        "lin_r.weight": lambda g: g.own.W,
    }
    if pool:
        weights |= {"lin.weight": lambda g: g.pool.W, "lin.bias": lambda g: g.pool.b}
    return copied(ours, pyg.SAGEConv(3, 2, how, normalize=normalise, project=pool), weights)


def gin(edge_features: int) -> Case:
    ours = jittered(GIN.init(3, 2, hidden=4, edge_features=edge_features, key=jr.key(0)))
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    weights = {
        "eps": lambda g: g.eps,
        "nn.0.weight": lambda g: g.net.layers[0].W,
        "nn.0.bias": lambda g: g.net.layers[0].b,
        "nn.2.weight": lambda g: g.net.layers[2].W,
        "nn.2.bias": lambda g: g.net.layers[2].b,
    }
    if not edge_features:
        return copied(ours, pyg.GINConv(net, train_eps=True), weights)
    weights |= {"lin.weight": lambda g: g.edge.W, "lin.bias": lambda g: g.edge.b}
    return copied(ours, pyg.GINEConv(net, train_eps=True, edge_dim=2), weights, edges=True)


def gat(n_heads: int, heads: str, edge_features: int, *, self_loops: bool) -> Case:
    """Their score of an edge is `att_edge` times `lin_edge`; ours is one vector, their product."""
    options = {"n_heads": n_heads, "heads": heads, "edge_features": edge_features}
    ours = jittered(GAT.init(3, 4, self_loops=self_loops, key=jr.key(0), **options))
    c = ours.V.shape[1]
    concat = heads == "concat"
    theirs = pyg.GATConv(
        3, c, n_heads, concat, edge_dim=edge_features or None, add_self_loops=self_loops
    )
    rng = np.random.default_rng(0)
    att = rng.normal(size=(n_heads, c)).astype(np.float32)
    lin = rng.normal(size=(n_heads, c, 2)).astype(np.float32)
    weights = {
        "lin.weight": lambda g: g.V,
        "att_src": lambda g: g.u_sender,
        "att_dst": lambda g: g.u_receiver,
        "bias": lambda g: g.b,
        "att_edge": lambda g: att,
        "lin_edge.weight": lambda g: lin,
    }
    if edge_features:
        product = jnp.asarray(np.einsum("hm,hmc->hc", att, lin))
        ours = GAT(ours.V, ours.u_receiver, ours.u_sender, product, ours.b, heads, 0.2, self_loops)
    case = copied(ours, theirs, weights, edges=bool(edge_features), loops=not self_loops)
    by_product = {
        "att_edge": lambda g: np.einsum("hc,hmc->hm", g.u_edge, lin),
        "lin_edge.weight": lambda g: np.einsum("hc,hm->hmc", g.u_edge, att),
    }
    return case._replace(gradients=weights | by_product)


def gatv2(n_heads: int, heads: str, edge_features: int, *, self_loops: bool) -> Case:
    """Their values have a bias too, which ours leaves to the bias at the end: it is 0 here."""
    options = {"n_heads": n_heads, "heads": heads, "edge_features": edge_features}
    ours = jittered(GATv2.init(3, 4, self_loops=self_loops, key=jr.key(0), **options))
    c = ours.V.shape[1]
    theirs = pyg.GATv2Conv(
        3,
        c,
        n_heads,
        heads == "concat",
        edge_dim=edge_features or None,
        add_self_loops=self_loops,
    )
    theirs.lin_l.bias = None
    weights = {
        "lin_l.weight": lambda g: g.V,
        "lin_r.weight": lambda g: g.W,
        "lin_r.bias": lambda g: g.c,
        "lin_edge.weight": lambda g: g.E,
        "att": lambda g: g.u,
        "bias": lambda g: g.b,
    }
    return copied(ours, theirs, weights, edges=bool(edge_features), loops=not self_loops)


def chebyshev() -> Case:
    ours = jittered(ChebyshevFilter.init(3, 4, order=2, lambda_max=2.0, key=jr.key(0)))
    weights = {f"lins.{k}.weight": lambda g, k=k: g.alpha[:, :, k] for k in range(3)}
    weights["bias"] = lambda g: g.b
    return copied(ours, pyg.ChebConv(3, 4, 3), weights, loops=False)


CASES: dict[str, Callable[[], Case]] = {
    "GCN": lambda: gcn(loops=True),
    "GCN without loops": lambda: gcn(loops=False),
    "SAGE mean": lambda: sage("mean", normalise=True),
    "SAGE sum": lambda: sage("sum"),
    "SAGE max": lambda: sage("max", pool=True),
    "GIN": lambda: gin(0),
    "GINE": lambda: gin(2),
    "GAT": lambda: gat(1, "concat", 0, self_loops=True),
    "GAT 2 heads, edges": lambda: gat(2, "concat", 2, self_loops=True),
    "GAT mean of 3 heads, edges, no loops added": lambda: gat(3, "mean", 2, self_loops=False),
    "GATv2": lambda: gatv2(1, "concat", 0, self_loops=True),
    "GATv2 2 heads, edges": lambda: gatv2(2, "concat", 2, self_loops=True),
    "GATv2 mean of 3 heads, edges, no loops added": lambda: gatv2(3, "mean", 2, self_loops=False),
    "Chebyshev": chebyshev,
}


@cache
def case(name: str) -> Case:
    return CASES[name]()


@jax.jit
def value_and_gradients(layer, graph, x, edges, R):
    def f(layer, x, edges):
        given = Graph(x, graph.senders, graph.receivers, edges, None, graph.graph_ids)
        y = layer(given).nodes
        return (y * R).sum(), y

    return jax.grad(f, argnums=(0, 1, 2), has_aux=True)(layer, x, edges)


def graph_of(seed: int, *, loops: bool, undirected: bool) -> Graph:
    graph = random_graph(seed, n_nodes=8, n_pairs=9, undirected=undirected)
    keep = np.ones(graph.n_edges, bool) if loops else np.asarray(graph.senders != graph.receivers)
    pairs = np.stack([graph.senders, graph.receivers], axis=1)[keep]
    return Graph.from_edges(
        pairs,
        np.asarray(graph.nodes, np.float32),
        undirected=False,
        edges=np.asarray(graph.edges, np.float32)[keep],
    )


@pytest.mark.parametrize("seed", range(20))
def test_layers(seed):
    """A Chebyshev filter needs symmetric edges; the other layers get directed ones."""
    for name in CASES:
        given = case(name)
        graph = graph_of(seed, loops=given.loops, undirected=name == "Chebyshev")
        x, edges = (np.asarray(a) for a in (graph.nodes, graph.edges))
        x_torch = torch.tensor(x, requires_grad=True)
        edges_torch = torch.tensor(edges, requires_grad=True)
        ends = np.stack([graph.senders, graph.receivers])
        if given.with_loops:
            ends = np.concatenate([ends, np.tile(np.arange(8), (2, 1))], axis=1)
        options = {"edge_attr": edges_torch} if given.edges else {}
        given.theirs.zero_grad()
        y_torch = given.theirs(x_torch, torch.tensor(ends, dtype=torch.long), **options)
        R = np.random.default_rng(seed).normal(size=y_torch.shape).astype(np.float32)
        (y_torch * torch.tensor(R)).sum().backward()
        (by_layer, by_x, by_edges), y = value_and_gradients(given.ours, graph, x, edges, R)
        same = lambda a, b, what, name=name: np.testing.assert_allclose(
            np.asarray(a).reshape(b.shape),
            b.detach().numpy(),
            rtol=TOLERANCE,
            atol=TOLERANCE,
            err_msg=f"{name}: {what}",
        )
        same(y, y_torch, "values")
        same(by_x, x_torch.grad, "gradient of the node features")
        if given.edges:
            same(by_edges, edges_torch.grad, "gradient of the edge features")
        parameters = dict(given.theirs.named_parameters())
        assert parameters
        for parameter, tensor in parameters.items():
            same(given.gradients[parameter](by_layer), tensor.grad, parameter)


@pytest.mark.parametrize("pooling", ["sum", "mean", "max"])
def test_pools(pooling):
    graphs = [random_graph(seed, n_nodes=3 + seed) for seed in range(4)]
    batch = batch_graphs(graphs, n_nodes=20, n_edges=60)
    x = np.array(batch.nodes, np.float32)
    x[0] = x[1]  # a tie of the maximum
    pool = getattr(pyg, f"global_{'add' if pooling == 'sum' else pooling}_pool")
    real = int(batch.node_mask.sum())
    x_torch = torch.tensor(x[:real], requires_grad=True)
    R = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    y_torch = pool(x_torch, torch.tensor(np.asarray(batch.graph_ids[:real]), dtype=torch.long))
    (y_torch * torch.tensor(R)).sum().backward()
    f = lambda x: Readout(pooling)(batch.with_nodes(x))
    np.testing.assert_allclose(f(jnp.asarray(x)), y_torch.detach().numpy(), atol=TOLERANCE)
    slope = jax.grad(lambda x: (f(x) * R).sum())(jnp.asarray(x))
    np.testing.assert_allclose(slope[:real], x_torch.grad.numpy(), atol=TOLERANCE)
    assert np.all(np.asarray(slope[real:]) == 0)
