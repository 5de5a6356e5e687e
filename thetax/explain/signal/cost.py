r"""FLOPs of a function, counted in its jaxpr, and the cost of its derivatives in FLOPs and seconds
(§3.1).

For $f: \mathbb{R}^n \to \mathbb{R}^m$ a reverse-mode pass gives one vector-Jacobian product
$J^\top u$, a forward-mode pass one Jacobian-vector product $Jv$; each costs a small constant times
$f$, whatever $n$ and $m$. So the gradient of a loss, $m = 1$, takes one reverse-mode pass, or $n$
forward-mode passes, or $n + 1$ evaluations by finite differences.
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

MATRIX_PRODUCTS = ("dot_general", "conv_general_dilated")
REDUCTION_PREFIXES = ("reduce_", "arg", "cum")  # one operation per element of the input
DATA_MOVEMENT = (
    "broadcast_in_dim concatenate convert_element_type copy copy_p device_put dynamic_slice "
    "dynamic_update_slice expand_dims gather iota name pad reduce_precision reshape rev select_n "
    "slice split squeeze stop_gradient transpose"
)  # primitives without arithmetic
UNCOUNTABLE = "while sort svd eigh eig qr householder_product lu cholesky triangular_solve fft"


def count_flops(f: Callable[..., Any], *args: Any) -> dict[str, int]:
    r"""Counts the floating-point operations (FLOPs) of `f(*args)`, by JAX primitive; `f` is not
    run.

    The product of an $m \times k$ and a $k \times n$ matrix counts $2mkn$, a pointwise function one
    per output element, a reduction one per input element; integer arithmetic and data movement
    count 0. A scan counts its body once per step, a `cond` its most expensive branch. The jaxpr is
    counted before compilation, which may remove some operations.

    >>> count_flops(lambda W, x: jnp.tanh(W @ x), jnp.ones((3, 4)), jnp.ones(4))
    {'dot_general': 24, 'tanh': 3}
    """
    return dict(_count_program(jax.make_jaxpr(f)(*args).jaxpr))


def _count_program(program: Any) -> Counter[str]:
    total: Counter[str] = Counter()
    for equation in program.eqns:
        name = equation.primitive.name
        inner = [program.jaxpr for program in inner_programs(equation)]
        if name in UNCOUNTABLE.split():
            raise ValueError(
                f"count_flops: the cost of {name!r} depends on the data or the implementation and "
                "cannot be read from the jaxpr; count the function without it."
            )
        if name == "cond":
            total += max(
                (_count_program(branch) for branch in inner), key=lambda count: count.total()
            )
        elif inner:
            times = equation.params["length"] if name == "scan" else 1
            total += Counter(
                {
                    primitive: times * count
                    for part in inner
                    for primitive, count in _count_program(part).items()
                }
            )
        elif count := _count_equation(name, equation):
            total[name] += count
    return total


def _count_equation(name: str, equation: Any) -> int:
    avals = [v.aval for v in (*equation.invars, *equation.outvars)]
    if name in DATA_MOVEMENT.split() or not any(
        jnp.issubdtype(aval.dtype, jnp.inexact) for aval in avals
    ):
        return 0
    n_outputs = sum(out.aval.size for out in equation.outvars)
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        return 2 * n_outputs * math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval
        axes = equation.params["dimension_numbers"].rhs_spec
        return 2 * n_outputs * (kernel.size // kernel.shape[axes[0]])
    return equation.invars[0].aval.size if name.startswith(REDUCTION_PREFIXES) else n_outputs


@dataclass(frozen=True)
class PassCost:
    """Cost of one evaluation, vector-Jacobian or Jacobian-vector product."""

    flops: int
    matmul_flops: int  # of them, in matrix products and convolutions
    seconds: float  # NaN if it was not timed


@dataclass(frozen=True)
class DerivativeCost:
    r"""Cost of $f$, of $f$ with $J^\top u$ (reverse mode) and of $f$ with $Jv$ (forward mode)."""

    value: PassCost
    reverse: PassCost
    forward: PassCost
    n_inputs: int
    n_outputs: int

    @property
    def ratio(self) -> float:
        """FLOPs of the backward pass alone, relative to the forward pass."""
        return (self.reverse.flops - self.value.flops) / self.value.flops

    @property
    def jacobian_flops(self) -> dict[str, int]:
        r"""FLOPs of the whole Jacobian $J$: $m$ reverse-mode passes, $n$ forward-mode passes, or
        $n + 1$ evaluations.

        Each pass includes an evaluation of $f$, as if the passes were run one after another.
        """
        return {
            "reverse mode": self.n_outputs * self.reverse.flops,
            "forward mode": self.n_inputs * self.forward.flops,
            "differences": (self.n_inputs + 1) * self.value.flops,
        }


def derivative_cost(
    f: Callable[..., Any], theta: Any, *args: Any, n_runs: int = 0
) -> DerivativeCost:
    r"""FLOPs and run time of `f(theta, *args)` and of its derivatives in `theta`, for instance
    `derivative_cost(cross_entropy, model, batch)`.

    With `n_runs` > 0 each pass is compiled and run `n_runs` times, and the shortest time is
    reported; otherwise nothing is run.

    >>> W, x = jnp.ones((20, 30)), jnp.ones(30)
    >>> result = derivative_cost(lambda W: jnp.sum(W @ x), W)
    >>> result.n_inputs, result.value.matmul_flops, result.reverse.matmul_flops
    (600, 1200, 2400)
    """
    shape = jax.eval_shape(f, theta, *args)
    inexact = lambda leaf: jnp.issubdtype(leaf.dtype, jnp.inexact)
    if not all(
        inexact(leaf) for leaf in [*jax.tree.leaves(theta), *jax.tree.leaves(shape)]
    ) or not tree.size(theta):
        raise ValueError(
            "derivative_cost: f must map float arrays to float arrays to be differentiated."
        )
    if n_runs < 0:
        raise ValueError(f"derivative_cost: n_runs must be an integer >= 0; got {n_runs}.")

    def reverse(theta, u):
        value, vjp = jax.vjp(lambda theta: f(theta, *args), theta)
        return value, vjp(u)

    ones = lambda like: jax.tree.map(lambda leaf: jnp.ones(leaf.shape, leaf.dtype), like)
    forward = lambda theta, v: jax.jvp(lambda theta: f(theta, *args), (theta,), (v,))
    return DerivativeCost(
        value=_pass_cost(lambda theta: f(theta, *args), (theta,), n_runs),
        reverse=_pass_cost(reverse, (theta, ones(shape)), n_runs),
        forward=_pass_cost(forward, (theta, ones(theta)), n_runs),
        n_inputs=tree.size(theta),
        n_outputs=sum(leaf.size for leaf in jax.tree.leaves(shape)),
    )


def _pass_cost(f: Callable[..., Any], args: tuple[Any, ...], n_runs: int) -> PassCost:
    counts = count_flops(f, *args)
    matmul = sum(counts.get(name, 0) for name in MATRIX_PRODUCTS)
    return PassCost(sum(counts.values()), matmul, _seconds(f, args, n_runs) if n_runs else np.nan)


def _seconds(f: Callable[..., Any], args: tuple[Any, ...], n_runs: int) -> float:
    """The shortest of several run times, without compilation."""
    compiled = jax.jit(f).lower(*args).compile()
    times = []
    for _ in range(n_runs):
        began = perf_counter()
        jax.block_until_ready(compiled(*args))
        times.append(perf_counter() - began)
    return min(times)
