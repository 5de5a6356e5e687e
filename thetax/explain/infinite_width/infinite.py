r"""Networks of infinite width (§9.3, §9.4, §10.2): at the start a Gaussian process, in training a
fixed kernel.

As the widths grow, the outputs of a network whose weights are drawn independently become Gaussian
with the covariance $k$ (the NNGP kernel), and its tangent kernel $\Theta$ is no longer chance and
stays as it is. Both follow from the architecture and the law of the weights, layer by layer: for a
ReLU network in the tangent parametrisation,

$$\Sigma^0 = \Theta^0 = \sigma_W^2 \frac{x^\top y}{d}, \qquad
\Sigma^{l+1} = \sigma_W^2\, \mathbb{E}\,\varphi(u)\varphi(v), \qquad
\Theta^{l+1} = \Sigma^{l+1} + \Theta^l \odot \sigma_W^2\, \mathbb{E}\,\varphi'(u)\varphi'(v),$$

with $(u, v) \sim N(0, \Sigma^l)$. Outputs are independent and alike, so that one number tells a
pair of inputs: the whole kernel is $k \otimes I$. (Neal 1996, Lee et al. 2018, Jacot et al. 2018)
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
from ...core import Model, floats
from ...layers import Pointwise
from ...memory import expect_room
from ..modules import modules
from . import norms as infinite_norms  # noqa: F401  which make their rules known
from .covariance_features import Features, Given, NeedsPairs
from .rules import FUNCTIONS, At, Initialisers, NoLimit, known, limit_of, name_of, unknown

ENTRIES = 2**18  # moments held at a time

Gram = Float[Array, "n m"]
Rows = Float[Array, "n *s"] | Float[np.ndarray, "n *s"]
Columns = Float[Array, "m *s"] | Float[np.ndarray, "m *s"]


@dataclass(frozen=True)
class Infinite:
    """A network of infinite width: its two kernels, apart or together."""

    model: Any  # shapes alone
    initialiser: Initialisers

    @property
    def nngp(self) -> "Kernel":
        """The covariance of an output at the start."""
        return Kernel(self, 0)

    @property
    def ntk(self) -> "Kernel":
        """The tangent kernel of an output."""
        return Kernel(self, 1)

    def both(self, xs: Rows, ys: Columns | None = None) -> tuple[Gram, Gram]:
        """The two kernels between all examples of `xs` and `ys`, or of `xs` and themselves."""
        nngp, ntk = self._grams((0, 1), xs, ys)
        return nngp, ntk

    def _grams(self, which: tuple[int, ...], xs: Any, ys: Any) -> tuple[Gram, ...]:
        xs, pairs = self._expected("xs", xs)
        size = len(which) * len(xs) * len(xs if ys is None else ys) * xs.dtype.itemsize
        expect_room("infinite", size, "give fewer examples at a time")
        if ys is None:
            return _square(self, which, pairs, xs)
        ys, _ = self._expected("ys", ys)
        if xs.shape[1:] != ys.shape[1:] or xs.dtype != ys.dtype:
            raise ValueError(
                "infinite: xs and ys must be examples of one shape and dtype; got "
                f"{xs.dtype} {xs.shape} and {ys.dtype} {ys.shape}."
            )
        return _oblong(self, which, pairs, xs, ys)

    def _expected(self, name: str, xs: Any) -> tuple[Rows, bool]:
        """The examples, if they are such as the model reads, and whether pairs of places are
        needed.
        """
        check_examples(xs, name=f"infinite: {name}")
        xs = floats(name, xs)
        if xs.ndim < 2:
            raise ValueError(
                f"infinite: {name} must be some examples along the first axis; got {xs.shape}; "
                "one alone is x[None]."
            )
        return xs, _needs_pairs(self, xs.shape[1:], xs.dtype)

    def moments(self, given: Given) -> Features:
        """All that is known of the outputs."""
        found = known(limit_of(self.model, given, At(self.initialiser)))
        if found.space:
            raise NoLimit(
                type(self.model).__name__,
                "",
                "ends in places, which depend on one another; end in a Linear.",
            )
        return found


class Kernel(NamedTuple):
    """`kernel(xs, ys)` has a row for each of `xs` and a column for each of `ys`, or of `xs`
    again.
    """

    of: Infinite
    which: int

    def __call__(self, xs: Rows, ys: Columns | None = None) -> Gram:
        return self.of._grams((self.which,), xs, ys)[0]

    def diagonal(self, xs: Rows) -> Float[Array, " n"]:
        """$k(x, x)$ of every example."""
        xs, pairs = self.of._expected("xs", xs)
        return _diagonals(self.of, (self.which,), pairs, xs)[0]


def infinite(model: Model, *, initialiser: Initialisers = None) -> Infinite:
    r"""The kernels of the model with its widths sent to infinity (§9.3, §10.2).

       The architecture is read from the model, and nothing of its weights: layers, activations,
       windows, ways around. The `initialiser` is the one that drew all weights, or a function from
       the path of a layer to it; layers of the `tangent` parametrisation tell it themselves. In the
       standard parametrisation `ntk` is the leading order at the model's own widths, with which it
       grows.
    Norms begin as plain ones, and their parameters are trained too; dropout does nothing, as
       in a call without a key. What has no known limit is refused by name with `NoLimit`, a
       `ValueError`.

       In float32 the angle between examples that are almost equal is lost to rounding, and `ntk` at
       kinks with it to some $10^{-4}$; the diagonal of `kernel(xs)` and `diagonal` are free of
       that.

       Departs: the notes let the tangent kernel converge with LeCun's scaling of the weights; it
       does in the tangent parametrisation only, and is $O(m)$ in the standard one.

       >>> import jax.random as jr
       >>> from thetax.layers import tangent
       >>> from thetax.models import MLP
       >>> limit = infinite(MLP.init(2, 8, 1, initialiser=tangent(weight=2**0.5), key=jr.key(0)))
       >>> xs = jnp.array([[1.0, 1.0], [1.0, -1.0]])
       >>> limit.nngp(xs).round(4).tolist(), limit.ntk(xs).round(4).tolist()
       ([[2.0, 0.636...], [0.636..., 2.0]], [[4.0, 0.636...], [0.636..., 4.0]])
    """
    if not callable(model):
        raise ValueError(f"infinite: expected a model, got {type(model).__name__}.")
    for path, module in modules(model):
        if limit_of.dispatch(type(module)) is limit_of.dispatch(object):
            raise unknown(module, path)
        if isinstance(module, Pointwise) and not (
            module.activation in FUNCTIONS or _is_pointwise(module.activation)
        ):
            why = "is not a function of each number by itself, and has no limit that is known here."
            raise NoLimit(name_of(module.activation), path, why)
    shape = lambda leaf: (
        jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if eqx.is_array(leaf) else leaf
    )
    return Infinite(jax.tree.map(shape, model), initialiser)


def _is_pointwise(f: Any) -> bool:
    z = jnp.array([[0.3, -1.2, 2.0], [0.9, -0.1, -2.5]])
    try:
        one_by_one = jnp.stack([f(number.reshape(1, 1)).reshape(()) for number in z.ravel()])
        return bool(jnp.allclose(f(z), one_by_one.reshape(z.shape), atol=1e-6))
    except (TypeError, ValueError):
        return False


@lru_cache
def _needs_pairs(limit: Infinite, shape: tuple[int, ...], dtype: Any) -> bool:
    """Whether moments of all pairs of places are needed; refuses examples of another shape than the
    model's.
    """
    alike = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, dtype)
    jax.eval_shape(
        lambda model, x: model(x),
        jax.tree.map(alike, limit.model),
        jax.ShapeDtypeStruct(shape, dtype),
    )
    xs = jax.ShapeDtypeStruct((1, *shape), dtype)
    try:
        jax.eval_shape(lambda xs: limit.moments(Given(xs, xs)).k, xs)
    except NeedsPairs:
        return True
    return False


def _block(limit: Infinite, which: tuple[int, ...], given: Given) -> tuple[Gram, ...]:
    found = limit.moments(given)
    return tuple((found.k, found.ntk)[i] for i in which)


def _side(pairs: bool, shape: tuple[int, ...]) -> int:
    """How many examples make a square block of bounded size; four at least, for each side has
    moments of its own.
    """
    places = math.prod(shape[1:]) if len(shape) > 1 else 1
    return max(4, math.isqrt(ENTRIES // (places**2 if pairs else places)))


def _tiles(xs: Rows, side: int) -> Float[Array, "b r *s"]:
    """Equal blocks of rows, the last filled up with its last."""
    count = -(-len(xs) // min(side, len(xs)))
    rows = -(-len(xs) // count)
    edge = [(0, count * rows - len(xs)), *[(0, 0)] * (xs.ndim - 1)]
    return jnp.pad(xs, edge, mode="edge").reshape(count, rows, *xs.shape[1:])


@partial(jax.jit, static_argnums=(0, 1, 2))
def _oblong(
    limit: Infinite, which: tuple[int, ...], pairs: bool, xs: Rows, ys: Columns
) -> tuple[Gram, ...]:
    side = _side(pairs, xs.shape[1:])
    left = _tiles(xs, side)
    right = _tiles(ys, side)
    row = lambda x: jax.lax.map(lambda y: _block(limit, which, Given(x, y, pairs)), right)
    laid = lambda tiles: tiles.transpose(0, 2, 1, 3).reshape(left.shape[0] * left.shape[1], -1)[
        : len(xs), : len(ys)
    ]
    return tuple(map(laid, jax.lax.map(row, left)))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _square(limit: Infinite, which: tuple[int, ...], pairs: bool, xs: Rows) -> tuple[Gram, ...]:
    """Blocks on and below the diagonal, laid down with their transposes; the diagonal by itself,
    where it is exact.
    """
    tiles = _tiles(xs, _side(pairs, xs.shape[1:]))
    count, rows = tiles.shape[:2]
    at = jnp.tril_indices(count)
    blocks = jax.lax.map(
        lambda at: _block(limit, which, Given(tiles[at[0]], tiles[at[1]], pairs)), at
    )
    own = jnp.arange(len(xs))
    above = ~jnp.tri(rows, dtype=bool)

    def lay(gram: Gram, item: tuple[Array, Array, Array]) -> tuple[Gram, None]:
        block, i, j = item
        block = jnp.where((i == j) & above, block.T, block)
        gram = jax.lax.dynamic_update_slice(gram, block.T, (j * rows, i * rows))
        return jax.lax.dynamic_update_slice(gram, block, (i * rows, j * rows)), None

    empty = jnp.zeros((count * rows, count * rows), xs.dtype)
    grams = [jax.lax.scan(lay, empty, (found, *at))[0][: len(xs), : len(xs)] for found in blocks]
    return tuple(
        gram.at[own, own].set(k) for gram, k in zip(grams, _diagonals(limit, which, pairs, xs))
    )


@partial(jax.jit, static_argnums=(0, 1, 2))
def _diagonals(
    limit: Infinite, which: tuple[int, ...], pairs: bool, xs: Rows
) -> tuple[Float[Array, " n"], ...]:
    one = lambda x: tuple(
        k[0, 0] for k in _block(limit, which, Given(x[None], x[None], pairs, alone=True))
    )
    return jax.lax.map(one, xs, batch_size=min(len(xs), _side(pairs, xs.shape[1:]) ** 2))
