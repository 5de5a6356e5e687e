"""§7.4: the Weisfeiler-Leman tests, and which graphs a message-passing network tells apart."""

from itertools import permutations
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import networkx as nx
import numpy as np

from ...data import (
    batch_graphs,
    colour_refinement,
    distinguishable,
    pair_refinement,
)
from ...data.graphs.colour_refinement import WLTest
from ...layers import GIN
from ...models import GNN
from ..engine.check import at_least, at_most, close, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from .known_graphs import (
    HEXAGON,
    ROOK,
    SHRIKHANDE,
    TWO_TRIANGLES,
    atlas,
    graph_of,
    random_graph,
)

LEMAN = "Weisfeiler & Leman 1968"
XU = "Xu et al. 2019"
LAYERS = ("gcn", "gat", "gin", "message_passing")


def told_apart(graphs, test: WLTest = "1-WL"):
    """Which pairs of graphs of networkx the test tells apart."""
    return distinguishable([graph_of(graph) for graph in graphs], test)


def isomorphic(graphs):
    """Which pairs are isomorphic, by networkx."""
    return np.array([[nx.is_isomorphic(a, b) for b in graphs] for a in graphs])


def renumbered(graphs, rng):
    """The same graphs with their nodes in random order."""
    orders = (rng.permutation(len(graph)).tolist() for graph in graphs)
    return [nx.relabel_nodes(graph, dict(enumerate(order))) for graph, order in zip(graphs, orders)]


def wl_hash(graph):
    """The hash of networkx after as many rounds as nodes."""
    nx.set_node_attributes(graph, dict.fromkeys(graph, "same"), "colour")
    return nx.weisfeiler_lehman_graph_hash(graph, iterations=len(graph), node_attr="colour")


@claim(
    "7.4-wl",
    title="The Weisfeiler-Leman test",
    kind="algorithm",
    of=("data.colour_refinement", "data.distinguishable"),
    cites=LEMAN,
)
def wl(rng):
    r"""$c_0(v)$ is constant and $c_{t+1}(v)$ names $c_t(v)$ together with the multiset of the
    colours of the neighbours; on $M$ nodes the partition is stable after less than $M$ rounds.
    Graphs with different histograms of colours are not isomorphic.
    """
    n = 200
    pairs = [
        (nx.gnm_random_graph(7, 8, seed=int(s)), nx.gnm_random_graph(7, 8, seed=int(s) + 1))
        for s in rng.integers(2**31 - 1, size=n)
    ]
    graphs = [graph_of(graph) for pair in pairs for graph in pair]
    classes = colour_refinement(graphs).classes().reshape(n, 2)
    hashes = np.array([[wl_hash(graph) for graph in pair] for pair in pairs])
    some = [random_graph(rng) for _ in range(n)]
    refinement = colour_refinement([graph_of(graph) for graph in (*some, *renumbered(some, rng))])
    same = refinement.classes().reshape(2, n)
    trees: Any = [tree for m in range(2, 9) for tree in nx.nonisomorphic_trees(m)]
    degrees = np.array(
        [sorted(dict(tree.degree).values()) + [0] * (8 - len(tree)) for tree in trees]
    )
    by_degrees = (degrees[:, None] != degrees).any(axis=2)
    path = colour_refinement(graph_of(nx.path_graph(9)))
    return Verdict(
        equal(
            f"{n} random pairs with 7 nodes and 8 edges: told apart, as by networkx",
            classes[:, 0] != classes[:, 1],
            hashes[:, 0] != hashes[:, 1],
        ),
        equal(f"{n} graphs and the same with other node numbers: classes", same[0], same[1]),
        equal(
            "the path of 4 nodes and the star of 3 leaves: told apart",
            told_apart([nx.path_graph(4), nx.star_graph(3)])[0, 1],
            True,
        ),
        equal(
            f"all {len(trees)} trees of 2 to 8 nodes: told apart if not isomorphic",
            told_apart(trees),
            ~isomorphic(trees),
        ),
        refuted(equal("trees told apart by their degrees alone", by_degrees, ~isomorphic(trees))),
        at_most("rounds on a path of 9 nodes", path.rounds, 8),
        equal("its colours: the distances to the ends", path.n_colours[-1], 5),
    )


@erratum(
    "7.4-wl",
    title="The test is one-sided",
    printed=r"c(G) = c(G') \iff G \cong G'",
    corrected=r"c(G) \ne c(G') \implies G \not\cong G'",
    of=("data.distinguishable",),
    cites=LEMAN,
)
def one_sided():
    r"""The notes say that the test computes whether an isomorphism exists. Different histograms
    prove that there is none; equal histograms prove nothing: a cycle of six nodes and two triangles
    have equal ones.
    """
    graphs = atlas(6, connected=False)
    apart, same = told_apart(graphs), isomorphic(graphs)
    pair = [HEXAGON, TWO_TRIANGLES]
    return Verdict(
        equal(
            f"isomorphic pairs of the {len(graphs)} graphs up to 6 nodes that are told apart",
            (apart & same).sum(),
            0,
        ),
        at_least("pairs told apart", apart.sum() // 2, 20_000),
        printed=[
            equal(
                "C_6 and two triangles: equal histograms, isomorphic",
                ~told_apart(pair)[0, 1],
                nx.is_isomorphic(*pair),
            ),
            equal("all pairs: equal histograms, isomorphic", ~apart, same),
        ],
    )


def triangles(graph):
    """The number of triangles, $\\mathrm{tr}(A^3) / 6$."""
    A = nx.to_numpy_array(graph)
    return np.trace(A @ A @ A) / 6


@claim(
    "7.4-wl-limit",
    title="What the Weisfeiler-Leman test cannot see",
    kind="theorem",
    of=("data.colour_refinement",),
    cites=LEMAN,
)
def wl_limit():
    r"""1-WL tells no two $k$-regular graphs of the same size apart, such as $C_6$ and two
    triangles: all nodes keep one colour in every round.
    """
    graphs = [graph_of(HEXAGON), graph_of(TWO_TRIANGLES)]
    refinement = colour_refinement(graphs, rounds=6)
    histograms = np.array([refinement.histogram(t) for t in range(7)])
    A, B = (nx.to_numpy_array(graph) for graph in (HEXAGON, TWO_TRIANGLES))
    orders = [list(order) for order in permutations(range(6))]
    maps = sum(bool((A[np.ix_(order, order)] == B).all()) for order in orders)
    onto_itself = sum(bool((A[np.ix_(order, order)] == A).all()) for order in orders)
    cubic = [
        graph for graph in atlas(6, connected=False) if set(dict(graph.degree).values()) == {3}
    ]
    cubic += [nx.circular_ladder_graph(4), nx.circulant_graph(8, [1, 4])]
    regular = {n: [graph for graph in cubic if len(graph) == n] for n in (6, 8)}
    return Verdict(
        equal(
            "C_6 and two triangles: histograms of all rounds", histograms[:, 0], histograms[:, 1]
        ),
        equal("colours in every round", refinement.n_colours, [1] * 7),
        equal("triangles", [triangles(HEXAGON), triangles(TWO_TRIANGLES)], [0, 2]),
        at_least(
            "difference of the adjacency spectra",
            np.abs(np.linalg.eigvalsh(A) - np.linalg.eigvalsh(B)).max(),
            0.5,
        ),
        equal("isomorphisms among the 720 permutations", maps, 0),
        equal("automorphisms of C_6 among them", onto_itself, 12),
        *[
            equal(
                f"{len(some)} cubic graphs with {n} nodes: pairs told apart",
                told_apart(some).sum(),
                0,
            )
            for n, some in regular.items()
        ],
        *[
            equal(
                f"isomorphic pairs of the cubic graphs with {n} nodes",
                isomorphic(some),
                np.eye(len(some), dtype=bool),
            )
            for n, some in regular.items()
        ],
        refuted(
            equal(
                "C_6 and a path of 6 nodes: pairs told apart",
                told_apart([HEXAGON, nx.path_graph(6)]).sum(),
                0,
            )
        ),
    )


def outputs(layer, graphs, keys, *, depth=3, width=8):
    """Sum readouts of networks with random weights on graphs whose nodes all have feature 1, of
    shape (networks, graphs, outputs).
    """
    batch = batch_graphs([graph_of(graph) for graph in graphs])
    init: Any = layer
    net = lambda key: GNN.init(
        1, width, 4, depth=depth, layer=init, readout="sum", activation=jnp.tanh, key=key
    )(batch)
    return np.asarray(jax.jit(jax.vmap(net))(keys))


def tanh_gin(d, m, *, key):
    """A GIN layer whose network has smooth units."""
    return GIN.init(d, m, hidden=16, activation=jnp.tanh, key=key)


@claim(
    "7.4-gnn-wl-bound",
    title="Message passing is at most as strong as 1-WL",
    kind="theorem",
    of=("models.GNN", "layers.GIN", "data.colour_refinement"),
    cites=f"{XU}; Morris et al. 2019",
)
def gnn_bound(key):
    r"""With constant node features a message-passing network gives two graphs the same output if
    1-WL does not tell them apart. With sums as aggregation and readout and injective networks
    between them, it tells apart all that 1-WL does; with means, as in graph attention, it does
    not.
    """
    n = 50
    keys = jr.split(key, n)
    pair = [HEXAGON, TWO_TRIANGLES, nx.path_graph(6)]
    checks = []
    for layer in LAYERS:
        y = outputs(layer, pair, keys)
        y = y / np.abs(y).max()
        checks += [
            at_most(
                f"{n} random nets, {layer}: C_6 against two triangles",
                np.abs(y[:, 0] - y[:, 1]).max(),
                1e-12,
            )
        ]
        to_path = np.abs(y[:, 0] - y[:, 2]).max()
        name = f"{layer}: C_6 against a path"
        if layer == "gat":
            checks += [at_most(f"{name}, as means of equal features are equal", to_path, 1e-12)]
        else:
            checks += [at_least(name, to_path, 1e-3)]
    graphs = atlas(6)
    classes = colour_refinement([graph_of(graph) for graph in graphs]).classes()
    apart = classes[:, None] != classes
    y = outputs(tanh_gin, graphs, keys[:5], depth=6, width=16)
    distance = np.abs(y[:, :, None] - y[:, None]).max(axis=(0, 3))
    off = ~np.eye(len(graphs), dtype=bool)
    return Verdict(
        *checks,
        equal(
            f"pairs of the {len(graphs)} connected graphs up to 6 nodes that 1-WL cannot tell",
            (~apart & off).sum() // 2,
            3,
        ),
        at_least(
            "GIN with sums: smallest difference of a pair that 1-WL tells apart",
            distance[apart].min(),
            1e-6,
        ),
        at_most("largest difference of the other pairs", distance[~apart].max(), 1e-11),
    )


def pairs_by_loops(graphs):
    """2-FWL with tuples in dictionaries on several graphs together, to stability: for each graph
    the sorted list of the colours.
    """
    colours = {
        (g, i, j): (i == j, graph.has_edge(i, j))
        for g, graph in enumerate(graphs)
        for i in graph
        for j in graph
    }
    count = 0
    while True:
        number = {c: k for k, c in enumerate(sorted(set(colours.values())))}
        named = {pair: number[c] for pair, c in colours.items()}
        if len(number) == count:
            return [
                sorted(c for (g, _, _), c in named.items() if g == k) for k in range(len(graphs))
            ]
        count = len(number)
        colours = {
            (g, i, j): (c, tuple(sorted((named[g, i, k], named[g, k, j]) for k in graphs[g])))
            for (g, i, j), c in named.items()
        }


@claim(
    "7.4-higher-order",
    title="A test on pairs of nodes",
    kind="algorithm",
    of=("data.pair_refinement", "data.distinguishable"),
    cites="Cai, Fürer & Immerman 1992",
)
def higher_order():
    r"""2-FWL refines colours of pairs, $c(i, j) \leftarrow (c(i, j), \{\!\{ (c(i, k), c(k, j)) : k
    \}\!\})$. It tells $C_6$ from two triangles and so is stronger than 1-WL, but it does not tell
    the rook's graph from Shrikhande's.
    """
    J = np.ones((16, 16))
    strongly_regular = []
    for graph in (ROOK, SHRIKHANDE):
        A = nx.to_numpy_array(graph)
        strongly_regular += [
            close(
                "A² = 6 I + 2 A + 2 (J - I - A)",
                A @ A,
                6 * np.eye(16) + 2 * A + 2 * (J - np.eye(16) - A),
            )
        ]
    cliques = [sum(len(c) == 4 for c in nx.enumerate_all_cliques(g)) for g in (ROOK, SHRIKHANDE)]
    small = atlas(5, connected=False)
    by_loops = pairs_by_loops(small)
    graphs = atlas(6, connected=False)
    weak, strong = told_apart(graphs), told_apart(graphs, "2-FWL")
    stable = pair_refinement([graph_of(graph) for graph in (ROOK, SHRIKHANDE)])
    return Verdict(
        equal(
            "C_6 and two triangles: told apart",
            told_apart([HEXAGON, TWO_TRIANGLES], "2-FWL")[0, 1],
            True,
        ),
        refuted(equal("the same by 1-WL", told_apart([HEXAGON, TWO_TRIANGLES])[0, 1], True)),
        equal(
            f"the {len(small)} graphs up to 5 nodes: told apart, as by loops",
            told_apart(small, "2-FWL"),
            [[a != b for b in by_loops] for a in by_loops],
        ),
        equal(
            f"the {len(graphs)} graphs up to 6 nodes: told apart by 1-WL only",
            (weak & ~strong).sum(),
            0,
        ),
        equal(
            "all that are not isomorphic are told apart", strong, ~np.eye(len(graphs), dtype=bool)
        ),
        equal(
            "the rook's graph and Shrikhande's: told apart",
            told_apart([ROOK, SHRIKHANDE], "2-FWL")[0, 1],
            False,
        ),
        equal("their pairs: equal, adjacent, neither", stable.n_colours, [3]),
        equal("isomorphic", nx.is_isomorphic(ROOK, SHRIKHANDE), False),
        equal("cliques of four nodes", cliques, [8, 0]),
        assumptions=strongly_regular,
    )
