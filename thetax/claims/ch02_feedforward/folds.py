"""§2.6: the effect of depth on the number of linear regions."""

from itertools import product
from math import comb, prod

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import certify, explain, layers
from ...layers import Chain, Linear
from ...models import MLP
from ...plot import Panel
from ..engine.check import at_least, at_most, equal, increasing, refuted
from ..engine.claim import Verdict, claim, erratum

BOUND_SIZES = [(1, (1, 1)), (2, (3, 2, 4)), (2, (4, 4)), (3, (2, 5, 3)), (4, (5, 3, 2, 6))]
FOLD_PIECES = {2: (3, 7, 14, 26), 3: (4, 13, 37, 109), 4: (5, 21, 82, 322)}


def _fold_pieces(m, L):
    return explain.breakpoints_1d(certify.fold_network(width=m, depth=L), exact=True).n_pieces


def _folded_square(rng):
    """Two inputs, each folded once by two units, then four lines across the middle of the folded
    square.

    All four units are active in a bounded cell between the first three lines. Hence they are
    nowhere all inactive; otherwise the network would be 0 on several adjacent cells.
    """
    fold = np.kron(np.eye(2), [[2.0], [4.0]]), np.tile([0.0, -2.0], 2)
    angle = np.pi * (np.arange(4) + rng.uniform(0.2, 0.8, 4)) / 4
    normal = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    shift = -normal @ [0.5, 0.5] + rng.uniform(-0.2, 0.2, 4)
    corners = [np.linalg.solve(normal[[i, j]], -shift[[i, j]]) for i, j in ((0, 1), (1, 2), (0, 2))]
    facing = np.sign(normal @ np.mean(corners, axis=0) + shift)
    normal = facing[:, None] * normal
    shift = facing * shift
    lines = normal @ np.kron(np.eye(2), [[1.0, -1.0]]), shift
    linear = lambda W, b: Linear(jnp.asarray(W, float), jnp.asarray(b, float))
    return Chain(linear(*fold), layers.relu, linear(*lines), layers.relu)


def _ramp():
    r"""$(1 - (x)_+)_+$, two layers of one unit."""
    one = jnp.ones((1, 1))
    return Chain(Linear(one, jnp.zeros(1)), layers.relu, Linear(-one, jnp.ones(1)), layers.relu)


def _on_grid(net, side):
    """The numbers of activation patterns and of affine maps on a grid of the unit square, from
    products of the weights.
    """
    t = (np.arange(side) + 0.5) / side
    xs = np.stack(np.meshgrid(t, t), axis=-1).reshape(-1, 2)
    first, _, second, _ = net.layers
    z = xs @ np.asarray(first.W).T + np.asarray(first.b)
    y = np.maximum(z, 0) @ np.asarray(second.W).T + np.asarray(second.b)
    _, at = np.unique(np.concatenate([z > 0, y > 0], axis=1) @ 2 ** np.arange(8), return_index=True)
    on = (z[at] > 0)[:, :, None]
    out = (y[at] > 0)[:, :, None]
    W = np.asarray(first.W)
    b = np.asarray(first.b)[:, None]
    V = np.asarray(second.W)
    A = out * (V @ (on * W))
    c = out * (V @ (on * b) + np.asarray(second.b)[:, None])
    maps = np.concatenate([A, c], axis=2).reshape(len(at), -1)
    return [len(at), len(np.unique(maps.round(9), axis=0))]


def _upper_bound_by_counting(n, widths):
    """The upper bound from its definition: a sum over how many units of each layer are inactive."""
    total = 0
    for off in product(*[range(m + 1) for m in widths]):
        room = np.minimum.accumulate([n, *(m - j for m, j in zip(widths, off))])
        total += (np.array(off) <= room[:-1]).all() * prod(map(comb, widths, off))
    return total


@claim(
    "2.6-montufar",
    title="Montufar's networks with many regions",
    kind="theorem",
    of=(
        "certify.montufar_bound",
        "certify.region_upper_bound",
        "certify.fold_network",
        "explain.breakpoints_1d",
        "explain.enumerate_regions",
    ),
    cites="Montufar, Pascanu, Cho & Bengio 2014; Serra, Tjandraatmadja & Ramalingam 2018",
)
def montufar(rng, scale):
    r"""Among the ReLU networks of $n$ inputs with $L$ hidden layers of width $m \ge n$ there is one
    with at least $R(m, n) \lfloor m/n \rfloor^{n(L-1)}$ linear regions: layers that fold space onto
    itself repeat the regions of the last layer. None has more than $\sum_j \prod_l
    \binom{m_l}{j_l}$, over $j_l \le \min(n, m_1 - j_1, \dots, m_{l-1} - j_{l-1}, m_l)$.
    """
    sizes = [(m, L) for m in FOLD_PIECES for L in range(1, 5)]
    pieces = [_fold_pieces(m, L) for m, L in sizes]
    unit = explain.input_plane(0.0, 1.0)
    nets = [_folded_square(rng) for _ in range(30)]
    partitions = [explain.enumerate_regions(net, unit) for net in nets]
    best = max(range(30), key=lambda i: (partitions[i].n_regions, partitions[i].areas.min()))
    side = 1500 if scale == "full" else 700
    upper_bounds = [certify.region_upper_bound(*[m] * L, inputs=1) for m, L in sizes]
    bound = certify.montufar_bound(inputs=2, width=4, depth=2)
    t = np.linspace(0, 1, 2000)
    outputs = jax.vmap(certify.fold_network(width=3, depth=3))(jnp.asarray(t)[:, None])[:, 0]
    return Verdict(
        equal(
            "pieces of the folding networks, by exact fractions",
            pieces,
            [k for m in FOLD_PIECES for k in FOLD_PIECES[m]],
        ),
        at_least(
            "pieces, against (m + 1) · m^(L - 1)",
            pieces,
            [(m + 1) * m ** (L - 1) for m, L in sizes],
        ),
        equal(
            "the lower bound for one input",
            [certify.montufar_bound(inputs=1, width=m, depth=L) for m, L in sizes],
            [(m + 1) * m ** (L - 1) for m, L in sizes],
        ),
        at_most("pieces, against the upper bound", pieces, upper_bounds),
        equal("the lower bound for two inputs, two layers of 4", bound, 11 * 2**2),
        at_least(
            "two inputs, two layers of 4: cells, and distinct affine maps on them",
            [partitions[best].n_regions, partitions[best].n_affine_maps],
            bound,
        ),
        at_least(
            "two inputs, two layers of 4: patterns and affine maps on a grid",
            _on_grid(nets[best], side),
            bound,
        ),
        equal(
            "the upper bound, by counting",
            [certify.region_upper_bound(*w, inputs=n) for n, w in BOUND_SIZES],
            [_upper_bound_by_counting(n, w) for n, w in BOUND_SIZES],
        ),
        equal(
            "(1 − (x)₊)₊: pieces, and the upper bound",
            [
                explain.breakpoints_1d(_ramp(), exact=True).n_pieces,
                certify.region_upper_bound(1, 1, inputs=1),
            ],
            [3, 3],
        ),
        figure=Panel(
            "input", "output", lines={"three layers of three units": (t, np.asarray(outputs))}
        ),
    )


@erratum(
    "2.6-montufar",
    title="Montufar's bound holds for the maximum over the weights",
    printed=r"\text{the number of linear regions is bounded by } R(m, L) \ge R(m) \lfloor m/n "
    r"\rfloor^{n(L-1)}",
    corrected=r"\text{the maximal number of linear regions is bounded by } R(m, L) \ge R(m) "
    r"\lfloor m/n "
    r"\rfloor^{n(L-1)}",
    of=("certify.montufar_bound", "certify.fold_network"),
    cites="Montufar, Pascanu, Cho & Bengio 2014",
    slip=True,
)
def montufar_is_a_maximum(key):
    r"""The word "maximal" is missing; in the formula $R(m, L)$ is a maximum over the weights, as
    $R(m)$ is before it. A network with zero weights has one region, and random ones have far fewer
    than the bound."""
    random_net = MLP.init(1, 4, 4, 4, 1, key=key)
    zero_net = jax.tree.map(jnp.zeros_like, random_net)
    count = lambda net: explain.breakpoints_1d(net, exact=True).n_pieces
    bound = certify.montufar_bound(inputs=1, width=4, depth=3)
    fold_net = certify.fold_network(width=4, depth=3)
    return Verdict(
        at_least(
            "the best of three networks", max(map(count, (zero_net, random_net, fold_net))), bound
        ),
        equal("regions with zero weights", count(zero_net), 1),
        printed=[
            at_least("zero weights", count(zero_net), bound),
            at_least("random weights", count(random_net), bound),
        ],
    )


@claim(
    "2.6-depth-vs-width",
    title="Linear pieces of deep and of shallow networks",
    kind="experiment",
    of=("certify.fold_network", "explain.breakpoints_1d", "certify.zaslavsky_bound"),
    cites="Telgarsky 2016",
)
def depth_against_width(key):
    r"""With the same number of units, $Lm$, a deep network of one input can have $(m + 1) m^{L-1}$
    linear pieces or more, exponentially many in $L$; a shallow one has at most
    $R(Lm, 1) = Lm + 1$.
    """
    m = 4
    depth = np.arange(1, 5)
    deep = np.array([_fold_pieces(m, int(L)) for L in depth])
    shallow = []
    for L in depth:
        width = int(L) * m
        key, key_b, key_net = jr.split(key, 3)
        net = MLP.init(1, width, 1, key=key_net)
        hidden = net.body.layers[0]
        net = MLP(
            Chain(Linear(hidden.W, jr.normal(key_b, (width,))), layers.relu, net.body.layers[2])
        )
        shallow.append(explain.breakpoints_1d(net, exact=True).n_pieces)
    return Verdict(
        at_least("deep, against (m + 1) m^(L - 1)", deep, (m + 1) * m ** (depth - 1)),
        equal(
            "shallow, exactly, against R(Lm, 1)",
            shallow,
            [certify.zaslavsky_bound(int(L) * m, inputs=1) for L in depth],
        ),
        at_least("16 units: deep over shallow", deep[-1] / shallow[-1], 10.0),
        increasing("deep over shallow", deep / shallow),
        at_least("each layer multiplies the pieces by nearly m", deep[1:] / deep[:-1], 0.9 * m),
        refuted(
            at_least(
                "m more units of one layer multiply the pieces by nearly m",
                np.divide(shallow[1:], shallow[:-1]),
                0.9 * m,
            )
        ),
        figure=Panel(
            "units",
            "linear pieces",
            log="y",
            points={"deep, layers of 4": (m * depth, deep), "one layer": (m * depth, shallow)},
            bounds={"5 · 4^(L - 1)": (m * depth, (m + 1.0) * m ** (depth - 1))},
        ),
    )
