r"""What a derivative costs (§3.1): operations counted in the program JAX makes of a function, and
seconds measured.

For $f: \mathbb{R}^n \to \mathbb{R}^m$ a pass of reverse mode gives one $J^\top u$, a pass of
forward mode one $Jv$; each costs a small constant times $f$, whatever $n$ and $m$. So the gradient
of a loss, $m = 1$, takes one pass of reverse mode, and $n$ of forward mode; differences take
$n + 1$ evaluations.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import tree
from ...jaxpr import inner_programs

PRODUCTS = ("dot_general", "conv_general_dilated")
REDUCTIONS = ("reduce_", "arg", "cum")  # how their names begin; they read every number once
MOVES = (
    "broadcast_in_dim concatenate convert_element_type copy copy_p device_put dynamic_slice "
    "dynamic_update_slice expand_dims gather iota name pad reduce_precision reshape rev select_n "
    "slice split squeeze stop_gradient transpose"
)  # the names of what moves numbers and makes none
UNKNOWN = "while sort svd eigh eig qr householder_product lu cholesky triangular_solve fft"


def operations(f: Callable[..., Any], *args: Any) -> dict[str, int]:
    r"""The floating-point operations of `f(*args)`, by the name of the primitive, as its program is
    written.

    A product of an $m \times k$ and a $k \times n$ matrix counts $2mkn$, a pointwise function one
    for every number it makes, a sum one for every number it reads, and whole numbers and moves
    nothing. A scan counts as often as it runs, a branch as its dearest. The compiler may still save
    some of it. Nothing is computed.

    >>> operations(lambda W, x: jnp.tanh(W @ x), jnp.ones((3, 4)), jnp.ones(4))
    {'dot_general': 24, 'tanh': 3}
    """
    return dict(_counted(jax.make_jaxpr(f)(*args).jaxpr))


def _counted(program: Any) -> Counter[str]:
    total: Counter[str] = Counter()
    for equation in program.eqns:
        name = equation.primitive.name
        inner = [program.jaxpr for program in inner_programs(equation)]
        if name in UNKNOWN.split():
            raise ValueError(
                f"operations: how much work a {name!r} is depends on the numbers or on the "
                "machine, and is not in the program; count the function without it."
            )
        if name == "cond":
            total += max((_counted(branch) for branch in inner), key=lambda count: count.total())
        elif inner:
            times = equation.params["length"] if name == "scan" else 1
            total += Counter(
                {word: times * count for part in inner for word, count in _counted(part).items()}
            )
        elif count := _work(name, equation):
            total[name] += count
    return total


def _work(name: str, equation: Any) -> int:
    touched = [v.aval for v in (*equation.invars, *equation.outvars)]
    if name in MOVES.split() or not any(
        jnp.issubdtype(aval.dtype, jnp.inexact) for aval in touched
    ):
        return 0
    made = sum(out.aval.size for out in equation.outvars)
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        return 2 * made * math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval
        axes = equation.params["dimension_numbers"].rhs_spec
        return 2 * made * (kernel.size // kernel.shape[axes[0]])
    return equation.invars[0].aval.size if name.startswith(REDUCTIONS) else made


@dataclass(frozen=True)
class Pass:
    """One way through a function: its operations, those of them in matrix products, and the seconds
    it took.
    """

    operations: int
    products: int
    seconds: float  # NaN if it was not run


@dataclass(frozen=True)
class Cost:
    r"""One evaluation of $f$; one with $J^\top u$ (reverse mode); one with $Jv$ (forward mode); and
    $n$ and $m$.
    """

    value: Pass
    reverse: Pass
    forward: Pass
    inputs: int
    outputs: int

    @property
    def ratio(self) -> float:
        r"""The way back alone over the way there, in operations."""
        return (self.reverse.operations - self.value.operations) / self.value.operations

    @property
    def jacobian(self) -> dict[str, int]:
        r"""Operations for all of $J$: $m$ passes of reverse mode, $n$ of forward mode, $n + 1$
        evaluations.

        Each pass counts $f$ anew, as when the passes are made one after another.
        """
        return {
            "reverse mode": self.outputs * self.reverse.operations,
            "forward mode": self.inputs * self.forward.operations,
            "differences": (self.inputs + 1) * self.value.operations,
        }


def cost(f: Callable[..., Any], theta: Any, *args: Any, runs: int = 0) -> Cost:
    r"""What `f(theta, *args)` costs, and its derivatives in `theta`:
    `cost(cross_entropy, model, batch)`.

    With `runs` each pass is compiled and run so often, and the shortest time told; without, nothing
    is computed.

    >>> W, x = jnp.ones((20, 30)), jnp.ones(30)
    >>> found = cost(lambda W: jnp.sum(W @ x), W)
    >>> found.inputs, found.value.products, found.reverse.products
    (600, 1200, 2400)
    """
    shape = jax.eval_shape(f, theta, *args)
    inexact = lambda leaf: jnp.issubdtype(leaf.dtype, jnp.inexact)
    if not all(
        inexact(leaf) for leaf in [*jax.tree.leaves(theta), *jax.tree.leaves(shape)]
    ) or not tree.size(theta):
        raise ValueError(
            "cost: f must map arrays of floats to arrays of floats, for it is differentiated."
        )
    if runs < 0:
        raise ValueError(
            f"cost: runs counts how often each pass is run, and must not be negative; got {runs}."
        )

    def back(theta, u):
        value, pull = jax.vjp(lambda theta: f(theta, *args), theta)
        return value, pull(u)

    ones = lambda like: jax.tree.map(lambda leaf: jnp.ones(leaf.shape, leaf.dtype), like)
    along = lambda theta, v: jax.jvp(lambda theta: f(theta, *args), (theta,), (v,))
    return Cost(
        _passed(lambda theta: f(theta, *args), (theta,), runs),
        _passed(back, (theta, ones(shape)), runs),
        _passed(along, (theta, ones(theta)), runs),
        tree.size(theta),
        sum(leaf.size for leaf in jax.tree.leaves(shape)),
    )


def _passed(f: Callable[..., Any], args: tuple[Any, ...], runs: int) -> Pass:
    count = operations(f, *args)
    products = sum(count.get(name, 0) for name in PRODUCTS)
    return Pass(sum(count.values()), products, _seconds(f, args, runs) if runs else np.nan)


def _seconds(f: Callable[..., Any], args: tuple[Any, ...], runs: int) -> float:
    compiled = jax.jit(f).lower(*args).compile()
    times = []
    for _ in range(runs):
        began = perf_counter()
        jax.block_until_ready(compiled(*args))
        times.append(perf_counter() - began)
    return min(times)
