"""§6.4, lecture 10 A.25: path lengths between tokens, and the cost of a transformer."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse.csgraph import shortest_path

from ... import layers, models, tree
from ...explain import count_flops
from ...jaxpr import inner_programs
from ...layers import Attention, Elman, unroll
from ...plot import Chart, Panel
from ..engine.check import at_least, between, equal, refuted
from ..engine.claim import Verdict, claim
from ..engine.differences import jacobian
from .by_loop import dependence


def depends(slope: np.ndarray) -> bool:
    """Whether one vector depends on another."""
    return bool(np.abs(slope).max() > 1e-9)


def hops_recurrent(cell: Any, xs: np.ndarray) -> np.ndarray:
    r"""The smallest number of edges from $x_j$ to $z_i$ along the steps of a recurrent network,
    from their derivatives.
    """
    T = len(xs)
    z = jnp.asarray(cell.start)
    met = np.zeros((2 * T, 2 * T))  # inputs first, then states
    for t, x in enumerate(xs):
        met[t, T + t] = depends(jacobian(lambda x, z=z: cell(z, x)[0], x))
        if t:
            met[T + t - 1, T + t] = depends(jacobian(lambda z, x=x: cell(z, jnp.asarray(x))[0], z))
        z = cell(z, jnp.asarray(x))[0]
    return shortest_path(met, unweighted=True)[:T, T:].T


def hops_attention(layer: Any, xs: np.ndarray) -> np.ndarray:
    r"""The smallest number of edges from $x_j$ to $\xi_i$, from the derivatives of an attention
    layer.
    """
    T = len(xs)
    met = np.zeros((2 * T, 2 * T))
    met[:T, T:] = (np.abs(jacobian(layer, xs)).max(axis=(1, 3)) > 1e-9).T
    return shortest_path(met, unweighted=True)[:T, T:].T


@claim(
    "6.4-memoryless",
    "L10-A25-path-length",
    title="Path length of attention and recurrence",
    kind="identity",
    of=("layers.Attention", "layers.Elman"),
    cites="Vaswani et al. 2017",
)
def path_length(key, rng):
    r"""In one layer of attention every output depends on every token directly: one step from $x_j$
    to $\xi_i$, however far apart they are. In a recurrent network $x_j$ reaches $z_i$ through
    $|i - j|$ states in succession.
    """
    T = 8
    d = 4
    xs = rng.normal(size=(T, d))
    layer = Attention.init(d, 2, key=key)
    cell = Elman.init(d, d, key=key)
    here = hops_attention(layer, xs)
    there = hops_recurrent(cell, xs)
    i, j = np.indices((T, T))
    past = j <= i
    reached = dependence(layer, xs)
    return Verdict(
        at_least("attention: ∂ξ_i/∂x_j, all i and j", reached, 1e-9),
        equal("attention: steps from x_j to ξ_i", here, np.ones((T, T))),
        equal("recurrent: steps from x_j to z_i, for j ≤ i", there[past], (i - j + 1)[past]),
        equal(
            "recurrent: no path from later inputs",
            np.isinf(there[~past]),
            np.ones((~past).sum(), bool),
        ),
        equal(
            "from x_1 to the output at T = 8: attention, recurrent",
            [here[-1, 0], there[-1, 0]],
            [1, T],
        ),
        at_least(
            "recurrent: the dependence ∂z_T/∂x_1 is not 0",
            dependence(lambda xs: unroll(cell, xs)[1], xs)[-1, 0],
            1e-9,
        ),
        refuted(equal("recurrent: one step", there[-1, 0], 1)),
        figure=Panel(
            "distance i − j",
            "steps",
            lines={
                "recurrent": (np.arange(T), there[:, 0]),
                "attention": (np.arange(T), here[:, 0]),
            },
        ),
    )


KNOBS = [
    (1, 8, 1, 16, 5),
    (1, 8, 4, 16, 5),
    (2, 8, 2, 32, 5),
    (6, 16, 2, 64, 7),
    (3, 32, 8, 64, 20),
    (12, 64, 4, 256, 9),
]


def trunk_of(N: int, d: int, h: int, m: int, key: Any) -> Any:
    """The shapes of a trunk, without its arrays."""
    return jax.eval_shape(lambda key: models.Trunk.init(N, d, h, m, key=key), key)


def matmul_flops(f: Any, *args: Any) -> int:
    """FLOPs in matrix products."""
    return count_flops(f, *args)["dot_general"]


@claim(
    "6.4-scaling-knobs",
    title="The number of heads, width and layers",
    kind="experiment",
    of=("models.Trunk", "explain.count_flops", "tree.size"),
    cites="Vaswani et al. 2017",
)
def knobs(key):
    r"""$N$ layers of width $d$ with hidden layers of width $m$ have $N(4d^2 + 2dm + 9d + m) + 2d$
    parameters, and on $T$ tokens take $N(8Td^2 + 4T^2d + 4Tdm)$ FLOPs in matrix products; the
    number of heads changes neither.
    """
    call = lambda trunk, X: trunk(X)
    tokens = lambda T, d: jax.ShapeDtypeStruct((T, d), float)
    numbers = [tree.size(trunk_of(N, d, h, m, key)) for N, d, h, m, _ in KNOBS]
    work = [matmul_flops(call, trunk_of(N, d, h, m, key), tokens(T, d)) for N, d, h, m, T in KNOBS]
    (d, m, T), one = (
        (32, 64, 64),
        jax.eval_shape(lambda: models.TransformerBlock.init(32, 4, 64, key=key)),
    )
    compiled: Any = jax.jit(call).lower(one, tokens(T, d)).compile().cost_analysis()
    depths = np.arange(1, 13)
    widths = 2 ** np.arange(3, 10)
    size = lambda N, d: tree.size(trunk_of(int(N), int(d), 1, 4 * int(d), key))
    return Verdict(
        equal(
            "parameters, six networks",
            numbers,
            [N * (4 * d * d + 2 * d * m + 9 * d + m) + 2 * d for N, d, _, m, _ in KNOBS],
        ),
        equal(
            "FLOPs, six networks",
            work,
            [N * (8 * T * d * d + 4 * T * T * d + 4 * T * d * m) for N, d, _, m, T in KNOBS],
        ),
        equal(
            "one head or four: parameters and FLOPs", [numbers[0], work[0]], [numbers[1], work[1]]
        ),
        between(
            "the compiler's count for a block, over the formula",
            compiled["flops"] / (8 * T * d * d + 4 * T * T * d + 4 * T * d * m),
            1.0,
            1.15,
        ),
        refuted(
            equal(
                "FLOPs, without the attention scores",
                work,
                [N * (8 * T * d * d + 4 * T * d * m) for N, d, _, m, T in KNOBS],
            )
        ),
        figure=Chart(
            Panel(
                "layers N",
                "parameters, d = 64",
                lines={"m = 4d": (depths, [size(N, 64) for N in depths])},
            ),
            Panel(
                "width d",
                "parameters, N = 1",
                log="xy",
                lines={"m = 4d": (widths, [size(1, d) for d in widths])},
            ),
        ),
    )


def largest_array(program: Any) -> int:
    """The size of the largest array in a program."""
    below = [
        largest_array(inner.jaxpr)
        for equation in program.eqns
        for inner in inner_programs(equation)
    ]
    return max([v.aval.size for equation in program.eqns for v in equation.outvars] + below)


@claim(
    "L10-A25-complexity",
    title="Complexity: T²d against Td²",
    kind="identity",
    of=("layers.Attention", "layers.Elman", "explain.count_flops"),
    cites="Vaswani et al. 2017",
)
def complexity(key):
    r"""On $T$ tokens of width $d$ attention takes $4T^2 d$ FLOPs, and $8Td^2$ for its four
    projections; a recurrent network takes $4Td^2$. Of $4T^2d$ and $4Td^2$ the first is smaller
    exactly for $T < d$. The matrix of attention weights has $T^2$ entries.
    """
    d = 32
    times = 2 ** np.arange(3, 10)
    layer = jax.eval_shape(lambda key: Attention.init(d, 1, bias=False, key=key), key)
    cell = jax.eval_shape(lambda key: Elman.init(d, d, key=key), key)
    tokens = lambda T, d=d: jax.ShapeDtypeStruct((int(T), d), float)
    total = np.array([matmul_flops(lambda layer, X: layer(X), layer, tokens(T)) for T in times])
    heads = lambda T: jax.ShapeDtypeStruct((int(T), 1, d), float)
    pairs = lambda T: matmul_flops(layers.dot_product_attention, heads(T), heads(T), heads(T))
    table = np.array([pairs(T) for T in times])
    recurrent = np.array([matmul_flops(unroll, cell, tokens(T)) for T in times])
    near = np.arange(d - 3, d + 4)
    cheaper = [pairs(T) < matmul_flops(unroll, cell, tokens(T)) for T in near]
    lengths = (256, 512, 1024)
    call = lambda layer, X: layer(X)
    room = [
        _temporary_memory(jax.jit(call).lower(layer, tokens(T)).compile().memory_analysis())
        for T in lengths
    ]
    largest_arrays = [largest_array(jax.make_jaxpr(call)(layer, tokens(T)).jaxpr) for T in lengths]
    slope = np.polyfit(np.log(lengths), np.log(room), 1)[0]
    return Verdict(
        equal(
            "attention with its projections: 4T²d + 8Td²",
            total,
            4 * times**2 * d + 8 * times * d**2,
        ),
        equal("attention without projections: 4T²d", table, 4 * times**2 * d),
        equal("recurrent: 4Td²", recurrent, 4 * times * d**2),
        equal(
            "attention without projections is cheaper, T = 29 to 35 and d = 32", cheaper, near < d
        ),
        equal(
            "the largest array of the program, T = 256, 512 and 1024",
            largest_arrays,
            [T * T for T in lengths],
        ),
        between("compiled memory: power of T", slope, 1.95, 2.05),
        refuted(between("compiled memory: proportional to T", slope, 0.9, 1.1)),
        figure=Panel(
            "T",
            "FLOPs, d = 32",
            log="xy",
            vertical_lines={"T = d": float(d)},
            lines={
                "attention": (times, table),
                "recurrent": (times, recurrent),
                "attention and its projections": (times, total),
            },
        ),
    )


def _temporary_memory(analysis: Any) -> float:
    """Temporary memory in doubles."""
    return analysis.temp_size_in_bytes / 8
