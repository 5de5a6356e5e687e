r"""Networks of infinite width (§9.3, §9.4, §10.2): a Gaussian process at initialisation, a constant
tangent kernel during training.

As the widths grow, the outputs of a network with independent random weights become a Gaussian
process with the covariance $k$ (the NNGP kernel), and its tangent kernel $\Theta$ becomes
deterministic and constant during training. Both follow from the architecture and the initialiser,
layer by layer. For a fully connected network in the NTK parametrisation,

$$\Sigma^0 = \Theta^0 = \sigma_W^2 \frac{x^\top y}{d}, \qquad
\Sigma^{l+1} = \sigma_W^2\, \mathbb{E}\,\varphi(u)\varphi(v), \qquad
\Theta^{l+1} = \Sigma^{l+1} + \Theta^l \odot \sigma_W^2\, \mathbb{E}\,\varphi'(u)\varphi'(v),$$

with $(u, v) \sim N(0, \Sigma^l)$. Outputs are independent and identically distributed, so the
kernel of a pair of inputs is a scalar; the kernel of all outputs is $k \otimes I$. (Neal 1996, Lee
et al. 2018, Jacot et al. 2018)
"""

import math
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...check import check_examples
from ...core import Model, as_floats
from ...layers import Pointwise
from ...memory import expect_memory
from ..modules import named_modules
from . import norms, pixels  # noqa: F401  (they register rules)
from .covariance_features import Features, Inputs, NeedsPositionPairs
from .rules import (
    FUNCTION_RULES,
    Initialisers,
    Location,
    NoInfiniteWidthLimit,
    as_features,
    function_name,
    no_rule,
    propagate_moments,
)

MAX_MOMENTS = 2**18  # moments that are computed at once

Gram = Float[Array, "n m"]
Rows = Float[Array, "n *s"] | Float[np.ndarray, "n *s"]
Columns = Float[Array, "m *s"] | Float[np.ndarray, "m *s"]


@dataclass(frozen=True)
class InfiniteWidthLimit:
    """The NNGP kernel and the neural tangent kernel of a network of infinite width."""

    model: Any  # shapes only
    initialiser: Initialisers

    @property
    def nngp(self) -> "InfiniteWidthKernel":
        """The covariance of an output at initialisation."""
        return InfiniteWidthKernel(self, 0)

    @property
    def ntk(self) -> "InfiniteWidthKernel":
        """The neural tangent kernel of an output."""
        return InfiniteWidthKernel(self, 1)

    def both(self, xs: Rows, ys: Columns | None = None) -> tuple[Gram, Gram]:
        """Both kernels between all examples of `xs` and `ys`, or of `xs` and itself."""
        nngp, ntk = self.kernel_matrices((0, 1), xs, ys)
        return nngp, ntk

    def kernel_matrices(self, which: tuple[int, ...], xs: Any, ys: Any) -> tuple[Gram, ...]:
        """The matrices of some of the kernels: 0 is the NNGP kernel, 1 the tangent kernel."""
        xs, pairs = self.check_inputs("xs", xs)
        size = len(which) * len(xs) * len(xs if ys is None else ys) * xs.dtype.itemsize
        expect_memory("infinite_width_limit", size, "give fewer examples at once")
        if ys is None:
            return _symmetric_blocks(self, which, pairs, xs)
        ys, _ = self.check_inputs("ys", ys)
        if xs.shape[1:] != ys.shape[1:] or xs.dtype != ys.dtype:
            raise ValueError(
                "infinite_width_limit: the examples of xs and ys must have the same shape and "
                f"dtype; got {xs.dtype} {xs.shape} and {ys.dtype} {ys.shape}."
            )
        return _rectangular_blocks(self, which, pairs, xs, ys)

    def check_inputs(self, name: str, xs: Any) -> tuple[Rows, bool]:
        """The examples as an array that the model can read, and whether moments of pairs of
        positions are needed.
        """
        check_examples(xs, name=f"infinite_width_limit: {name}")
        xs = as_floats(name, xs)
        if xs.ndim < 2:
            raise ValueError(
                f"infinite_width_limit: {name} must be a stack of examples; got shape {xs.shape}. "
                "Pass a single example as x[None]."
            )
        return xs, _needs_pairs(self, xs.shape[1:], xs.dtype)

    def moments(self, inputs: Inputs) -> Features:
        """The moments of the outputs."""
        features = as_features(propagate_moments(self.model, inputs, Location(self.initialiser)))
        if features.spatial_axes:
            raise NoInfiniteWidthLimit(
                type(self.model).__name__,
                "",
                "returns a feature map, whose positions are dependent; end it in a Linear.",
            )
        return features


class InfiniteWidthKernel(NamedTuple):
    """`kernel(xs, ys)` has a row for each example of `xs` and a column for each of `ys`; without
    `ys`, also for each of `xs`.
    """

    limit: InfiniteWidthLimit
    which: int  # 0 for the NNGP kernel, 1 for the tangent kernel

    def __call__(self, xs: Rows, ys: Columns | None = None) -> Gram:
        return self.limit.kernel_matrices((self.which,), xs, ys)[0]

    def diagonal(self, xs: Rows) -> Float[Array, " n"]:
        """$k(x, x)$ for every example."""
        xs, pairs = self.limit.check_inputs("xs", xs)
        return _diagonals(self.limit, (self.which,), pairs, xs)[0]


def infinite_width_limit(model: Model, *, initialiser: Initialisers = None) -> InfiniteWidthLimit:
    r"""The kernels of the model in the limit of infinite widths (§9.3, §10.2).

    Only the architecture of the model is used, not its weights: layers, activations, windows, skip
    connections. `initialiser` is the one of all weights, or a function from the path of a layer to
    its initialiser; layers in the NTK parametrisation (`ntk_parametrisation`) do not need it. In
    the standard parametrisation `ntk` is the leading order at the widths of the model, with which
    it grows. Norms have their initial parameters, which are trained as well; dropout is the
    identity, as in a call without a key. For modules without a known limit `NoInfiniteWidthLimit`,
    a `ValueError`, is raised.

    In float32, rounding limits the angle between nearly equal examples, and with it `ntk` at kinks
    to about $10^{-4}$; the diagonal of `kernel(xs)` and `diagonal` are not affected.

    Departs: in the notes the tangent kernel converges with LeCun's scaling of the weights; it
    converges in the NTK parametrisation only, and is $O(m)$ in the standard one.

    >>> import jax.random as jr
    >>> from thetax.layers import ntk_parametrisation
    >>> from thetax.models import MLP
    >>> model = MLP.init(2, 8, 1, initialiser=ntk_parametrisation(weight=2**0.5), key=jr.key(0))
    >>> limit = infinite_width_limit(model)
    >>> xs = jnp.array([[1.0, 1.0], [1.0, -1.0]])
    >>> limit.nngp(xs).round(4).tolist(), limit.ntk(xs).round(4).tolist()
    ([[2.0, 0.636...], [0.636..., 2.0]], [[4.0, 0.636...], [0.636..., 4.0]])
    """
    if not callable(model):
        raise ValueError(f"infinite_width_limit: expected a model, got {type(model).__name__}.")
    for path, module in named_modules(model):
        if propagate_moments.dispatch(type(module)) is propagate_moments.dispatch(object):
            raise no_rule(module, path)
        if isinstance(module, Pointwise) and not (
            module.activation in FUNCTION_RULES or _is_pointwise(module.activation)
        ):
            reason = "is not an elementwise function, and has no known limit."
            raise NoInfiniteWidthLimit(function_name(module.activation), path, reason)
    shape = lambda leaf: (
        jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if eqx.is_array(leaf) else leaf
    )
    return InfiniteWidthLimit(jax.tree.map(shape, model), initialiser)


def _is_pointwise(f: Any) -> bool:
    z = jnp.array([[0.3, -1.2, 2.0], [0.9, -0.1, -2.5]])
    try:
        elementwise = jnp.stack([f(value.reshape(1, 1)).reshape(()) for value in z.ravel()])
        return bool(jnp.allclose(f(z), elementwise.reshape(z.shape), atol=1e-6))
    except (TypeError, ValueError):
        return False


@lru_cache
def _needs_pairs(limit: InfiniteWidthLimit, shape: tuple[int, ...], dtype: Any) -> bool:
    """Whether moments of all pairs of positions are needed. Raises if the model does not accept
    examples of this shape.
    """
    with_dtype = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, dtype)
    jax.eval_shape(
        lambda model, x: model(x),
        jax.tree.map(with_dtype, limit.model),
        jax.ShapeDtypeStruct(shape, dtype),
    )
    xs = jax.ShapeDtypeStruct((1, *shape), dtype)
    try:
        jax.eval_shape(lambda xs: limit.moments(Inputs(xs, xs)).k, xs)
    except NeedsPositionPairs:
        return True
    return False


def _block(limit: InfiniteWidthLimit, which: tuple[int, ...], inputs: Inputs) -> tuple[Gram, ...]:
    features = limit.moments(inputs)
    return tuple((features.k, features.ntk)[i] for i in which)


def _block_rows(pairs: bool, shape: tuple[int, ...]) -> int:
    """The number of examples for which a square block has at most `MAX_MOMENTS` moments; at least
    4, as each side also has moments of its own.
    """
    positions = math.prod(shape[1:]) if len(shape) > 1 else 1
    return max(4, math.isqrt(MAX_MOMENTS // (positions**2 if pairs else positions)))


def _split_rows(xs: Rows, max_rows: int) -> Float[Array, "b r *s"]:
    """Blocks of equally many rows; the last block is padded with its last row."""
    n_blocks = -(-len(xs) // min(max_rows, len(xs)))
    rows = -(-len(xs) // n_blocks)
    padding = [(0, n_blocks * rows - len(xs)), *[(0, 0)] * (xs.ndim - 1)]
    return jnp.pad(xs, padding, mode="edge").reshape(n_blocks, rows, *xs.shape[1:])


@partial(jax.jit, static_argnums=(0, 1, 2))
def _rectangular_blocks(
    limit: InfiniteWidthLimit, which: tuple[int, ...], pairs: bool, xs: Rows, ys: Columns
) -> tuple[Gram, ...]:
    max_rows = _block_rows(pairs, xs.shape[1:])
    x_blocks = _split_rows(xs, max_rows)
    y_blocks = _split_rows(ys, max_rows)

    def block_row(x):
        return jax.lax.map(lambda y: _block(limit, which, Inputs(x, y, pairs)), y_blocks)

    def assemble(blocks):
        rows = x_blocks.shape[0] * x_blocks.shape[1]
        return blocks.transpose(0, 2, 1, 3).reshape(rows, -1)[: len(xs), : len(ys)]

    return tuple(map(assemble, jax.lax.map(block_row, x_blocks)))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _symmetric_blocks(
    limit: InfiniteWidthLimit, which: tuple[int, ...], pairs: bool, xs: Rows
) -> tuple[Gram, ...]:
    """Blocks on and below the diagonal, and their transposes above; the diagonal is computed
    separately, where it is exact.
    """
    x_blocks = _split_rows(xs, _block_rows(pairs, xs.shape[1:]))
    n_blocks, rows = x_blocks.shape[:2]
    block_indices = jnp.tril_indices(n_blocks)
    blocks = jax.lax.map(
        lambda ij: _block(limit, which, Inputs(x_blocks[ij[0]], x_blocks[ij[1]], pairs)),
        block_indices,
    )
    diagonal = jnp.arange(len(xs))
    above_diagonal = ~jnp.tri(rows, dtype=bool)

    def place(gram: Gram, item: tuple[Array, Array, Array]) -> tuple[Gram, None]:
        block, i, j = item
        block = jnp.where((i == j) & above_diagonal, block.T, block)
        gram = jax.lax.dynamic_update_slice(gram, block.T, (j * rows, i * rows))
        return jax.lax.dynamic_update_slice(gram, block, (i * rows, j * rows)), None

    zeros = jnp.zeros((n_blocks * rows, n_blocks * rows), xs.dtype)
    grams = [
        jax.lax.scan(place, zeros, (kernel_blocks, *block_indices))[0][: len(xs), : len(xs)]
        for kernel_blocks in blocks
    ]
    return tuple(
        gram.at[diagonal, diagonal].set(values)
        for gram, values in zip(grams, _diagonals(limit, which, pairs, xs))
    )


@partial(jax.jit, static_argnums=(0, 1, 2))
def _diagonals(
    limit: InfiniteWidthLimit, which: tuple[int, ...], pairs: bool, xs: Rows
) -> tuple[Float[Array, " n"], ...]:
    def evaluate(x):
        inputs = Inputs(x[None], x[None], pairs, same_example=True)
        return tuple(k[0, 0] for k in _block(limit, which, inputs))

    batch_size = min(len(xs), _block_rows(pairs, xs.shape[1:]) ** 2)
    return jax.lax.map(evaluate, xs, batch_size=batch_size)
