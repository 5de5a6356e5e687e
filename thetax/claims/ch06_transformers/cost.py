"""§6.4, lecture 10 A.25: how far it is from one token to another, and what a transformer costs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse.csgraph import shortest_path

from ... import layers, models, tree
from ...explain import operations
from ...jaxpr import inner_programs
from ...layers import Attention, Elman, unroll
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_least, between, equal, refuted
from ..engine.claim import Verdict, claim
from ..engine.differences import jacobian
from .by_loop import blocks

VASWANI = "Vaswani et al. 2017"


def felt(slope: np.ndarray) -> bool:
    """Whether anything of one vector is felt in another."""
    return bool(np.abs(slope).max() > 1e-9)


def hops_recurrent(cell: Any, xs: np.ndarray) -> np.ndarray:
    r"""The least number of arrows from $x_j$ to $z_i$, along the steps of a recurrent network, by
    their derivatives.
    """
    T = len(xs)
    z = jnp.asarray(cell.start)
    met = np.zeros((2 * T, 2 * T))  # first the inputs, then the states
    for t, x in enumerate(xs):
        met[t, T + t] = felt(jacobian(lambda x, z=z: cell(z, x)[0], x))
        if t:
            met[T + t - 1, T + t] = felt(jacobian(lambda z, x=x: cell(z, jnp.asarray(x))[0], z))
        z = cell(z, jnp.asarray(x))[0]
    return shortest_path(met, unweighted=True)[:T, T:].T


def hops_attention(layer: Any, xs: np.ndarray) -> np.ndarray:
    r"""The least number of arrows from $x_j$ to $\xi_i$, by the derivatives of a layer of
    attention.
    """
    T = len(xs)
    met = np.zeros((2 * T, 2 * T))
    met[:T, T:] = (np.abs(jacobian(layer, xs)).max(axis=(1, 3)) > 1e-9).T
    return shortest_path(met, unweighted=True)[:T, T:].T


@claim(
    "6.4-memoryless",
    "L10-A25-path-length",
    title="One step from anywhere",
    kind="identity",
    of=("layers.Attention", "layers.Elman"),
    cites=VASWANI,
)
def path_length(key):
    r"""In one layer of attention every output looks at every token: one step from $x_j$ to $\xi_i$,
    however far apart they are. In a recurrent network $x_j$ comes to $z_i$ by way of $|i - j|$
    states, one after another.
    """
    rng = chance(key)
    T = 8
    d = 4
    xs = rng.normal(size=(T, d))
    layer = Attention.init(d, 2, key=key)
    cell = Elman.init(d, d, key=key)
    here = hops_attention(layer, xs)
    there = hops_recurrent(cell, xs)
    i, j = np.indices((T, T))
    past = j <= i
    reached = blocks(layer, xs)
    return Verdict(
        at_least("attention: ∂ξ_i/∂x_j, all i and j", reached, 1e-9),
        equal("attention: steps from x_j to ξ_i", here, np.ones((T, T))),
        equal("recurrent: steps from x_j to z_i, for j ≤ i", there[past], (i - j + 1)[past]),
        equal(
            "recurrent: no way from what is later",
            np.isinf(there[~past]),
            np.ones((~past).sum(), bool),
        ),
        equal(
            "from x_1 to the output at T = 8: attention, recurrent",
            [here[-1, 0], there[-1, 0]],
            [1, T],
        ),
        at_least(
            "recurrent: yet it is felt, ∂z_T/∂x_1",
            blocks(lambda xs: unroll(cell, xs)[1], xs)[-1, 0],
            1e-9,
        ),
        refuted(equal("recurrent: one step", there[-1, 0], 1)),
        figure=Chart(
            Panel(
                "distance i − j",
                "steps",
                lines={
                    "recurrent": (np.arange(T), there[:, 0]),
                    "attention": (np.arange(T), here[:, 0]),
                },
            )
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
    """Only its shapes."""
    return jax.eval_shape(lambda key: models.Trunk.init(N, d, h, m, key=key), key)


def products(f: Any, *args: Any) -> int:
    """Operations in matrix products."""
    return operations(f, *args)["dot_general"]


@claim(
    "6.4-scaling-knobs",
    title="Heads, width and layers",
    kind="experiment",
    of=("models.Trunk", "explain.operations", "tree.size"),
    cites=VASWANI,
)
def knobs(key):
    r"""$N$ layers of width $d$ with hidden layers of width $m$ have $N(4d^2 + 2dm + 9d + m) + 2d$
    numbers, and on $T$ tokens take $N(8Td^2 + 4T^2d + 4Tdm)$ operations in their products; the
    number of heads changes neither.
    """
    call = lambda trunk, X: trunk(X)
    tokens = lambda T, d: jax.ShapeDtypeStruct((T, d), float)
    numbers = [tree.size(trunk_of(N, d, h, m, key)) for N, d, h, m, _ in KNOBS]
    work = [products(call, trunk_of(N, d, h, m, key), tokens(T, d)) for N, d, h, m, T in KNOBS]
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
            "numbers, six networks",
            numbers,
            [N * (4 * d * d + 2 * d * m + 9 * d + m) + 2 * d for N, d, _, m, _ in KNOBS],
        ),
        equal(
            "operations, six networks",
            work,
            [N * (8 * T * d * d + 4 * T * T * d + 4 * T * d * m) for N, d, _, m, T in KNOBS],
        ),
        equal(
            "one head or four: numbers and operations", [numbers[0], work[0]], [numbers[1], work[1]]
        ),
        between(
            "what the compiler counts for a block, over the formula",
            compiled["flops"] / (8 * T * d * d + 4 * T * T * d + 4 * T * d * m),
            1.0,
            1.15,
        ),
        refuted(
            equal(
                "operations, without the table of pairs",
                work,
                [N * (8 * T * d * d + 4 * T * d * m) for N, d, _, m, T in KNOBS],
            )
        ),
        figure=Chart(
            Panel(
                "layers N",
                "numbers, d = 64",
                lines={"m = 4d": (depths, [size(N, 64) for N in depths])},
            ),
            Panel(
                "width d",
                "numbers, N = 1",
                log="xy",
                lines={"m = 4d": (widths, [size(1, d) for d in widths])},
            ),
        ),
    )


def largest(program: Any) -> int:
    """The most numbers that any value of a program holds."""
    below = [
        largest(inner.jaxpr) for equation in program.eqns for inner in inner_programs(equation)
    ]
    return max([v.aval.size for equation in program.eqns for v in equation.outvars] + below)


@claim(
    "L10-A25-complexity",
    title="T²d against Td²",
    kind="identity",
    of=("layers.Attention", "layers.Elman", "explain.operations"),
    cites=VASWANI,
)
def complexity(key):
    r"""On $T$ tokens of width $d$ attention takes $4T^2 d$ operations, and $8Td^2$ for its four
    maps; a recurrent network takes $4Td^2$. The first is the less of $4T^2d$ and $4Td^2$ just where
    $T < d$. The table of weights has $T^2$ numbers.
    """
    d = 32
    times = 2 ** np.arange(3, 10)
    layer = jax.eval_shape(lambda key: Attention.init(d, 1, bias=False, key=key), key)
    cell = jax.eval_shape(lambda key: Elman.init(d, d, key=key), key)
    tokens = lambda T, d=d: jax.ShapeDtypeStruct((int(T), d), float)
    whole = np.array([products(lambda layer, X: layer(X), layer, tokens(T)) for T in times])
    heads = lambda T: jax.ShapeDtypeStruct((int(T), 1, d), float)
    pairs = lambda T: products(layers.attend, heads(T), heads(T), heads(T))
    table = np.array([pairs(T) for T in times])
    recurrent = np.array([products(unroll, cell, tokens(T)) for T in times])
    near = np.arange(d - 3, d + 4)
    cheaper = [pairs(T) < products(unroll, cell, tokens(T)) for T in near]
    lengths = (256, 512, 1024)
    call = lambda layer, X: layer(X)
    room = [
        _room(jax.jit(call).lower(layer, tokens(T)).compile().memory_analysis()) for T in lengths
    ]
    held = [largest(jax.make_jaxpr(call)(layer, tokens(T)).jaxpr) for T in lengths]
    slope = np.polyfit(np.log(lengths), np.log(room), 1)[0]
    return Verdict(
        equal("attention with its maps: 4T²d + 8Td²", whole, 4 * times**2 * d + 8 * times * d**2),
        equal("attention alone: 4T²d", table, 4 * times**2 * d),
        equal("recurrent: 4Td²", recurrent, 4 * times * d**2),
        equal("attention alone takes less, T = 29 to 35 and d = 32", cheaper, near < d),
        equal(
            "the largest table of the program, T = 256, 512 and 1024",
            held,
            [T * T for T in lengths],
        ),
        between("room it is given when compiled: power of T", slope, 1.95, 2.05),
        refuted(between("room it is given: in proportion to T", slope, 0.9, 1.1)),
        figure=Chart(
            Panel(
                "T",
                "operations, d = 32",
                log="xy",
                vertical_lines={"T = d": float(d)},
                lines={
                    "attention": (times, table),
                    "recurrent": (times, recurrent),
                    "attention and its maps": (times, whole),
                },
            )
        ),
    )


def _room(analysis: Any) -> float:
    """Numbers held in between, in double precision."""
    return analysis.temp_size_in_bytes / 8
