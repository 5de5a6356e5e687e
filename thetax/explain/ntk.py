r"""The tangent kernel of any model (§9.1): how far a step that changes $f(x')$ changes $f(x)$.

$$k(x, x') = \nabla_\theta f(x)\, \nabla_\theta f(x')^\top = \sum_{\text{leaves}} \nabla_W f(x)\, \nabla_W f(x')^\top$$

The gradients, $n \times o \times p$ numbers, are not written down where a leaf enters through products: with the
factors $\delta$ and $h$ of each example, its part of the kernel is
$\sum_{\tau, \tau'} \langle \delta_\tau, \delta'_{\tau'} \rangle \langle h_\tau, h'_{\tau'} \rangle$. A leaf at very
many places, as the kernel of a convolution, is cheaper whole. Which way is cheaper is told by a plan, which can be
read beforehand. (Jacot et al. 2018; Novak et al. 2022)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ..core import Model
from .features import OWN, PAIRS, Features, Form, Kind, Shapes, Way, contract, features, shapes_of, sketched, ways
from .room import free_memory, in_bytes

SHARE = 0.5  # of the free memory may be used


@dataclass(frozen=True)
class Plan:
    """What a kernel costs: products, bytes held at once, how many rows are done at once, and the way of each leaf."""

    products: int
    bytes: int
    tile: int
    ways: tuple[Way, ...]


class TangentKernel(eqx.Module):
    """`kernel(xs, ys)` for stacked examples, `kernel.diagonal(xs)` and `kernel.plan(xs, ys)`; see `ntk`."""

    model: Any
    form: Form = eqx.field(static=True, default="full")
    tile: int | None = eqx.field(static=True, default=None)

    def __call__(self, xs: Any, ys: Any = None) -> Float[Array, "n m ..."]:
        plan, see, kinds = self._begun(xs, ys)
        left = _blocks(xs, plan.tile)
        right = left if ys is None else _blocks(ys, plan.tile)
        seen = [see(block) for block in right] if _fits(plan, right) else None
        rows = []
        for at, block in enumerate(left):
            mine = seen[at] if seen and ys is None else see(block)
            others = seen or map(see, right)
            rows.append(jnp.concatenate([contract(mine, b, PAIRS[self.form], kinds) for b in others], axis=1))
        return self._shaped(jnp.concatenate(rows), xs)

    def diagonal(self, xs: Any) -> Float[Array, "n ..."]:
        """$k(x_i, x_i)$ alone."""
        plan, see, kinds = self._begun(xs, None)
        seen = map(see, _blocks(xs, plan.tile))
        return self._shaped(jnp.concatenate([contract(a, a, OWN[self.form], kinds) for a in seen]), xs)

    def plan(self, xs: Any, ys: Any = None) -> Plan:
        """What it costs for that many examples; nothing is computed."""
        n, m, shapes = len(jax.tree.leaves(xs)[0]), len(jax.tree.leaves(xs if ys is None else ys)[0]), _shapes(self, xs)
        chosen = ways(shapes, n, m, self.form == "full")
        seen = n if ys is None else n + m
        products = sum(seen * way.products + n * m * way.pair_products for way in chosen)
        out = sketched(shapes).program.out_avals[0]
        outputs = {"full": out.size**2, "outputs": out.size, "trace": 1}[self.form]
        held = lambda tile: (
            out.dtype.itemsize
            * (
                n * m * outputs
                + 2 * tile * sum(way.numbers for way in chosen)
                + tile**2 * (outputs + max((way.pair_numbers for way in chosen), default=0))
            )
        )
        tile = self._tile(max(n, m), held)
        return Plan(products, held(tile), tile, chosen)

    def _tile(self, n: int, held: Callable[[int], int]) -> int:
        """The rows done at once: those asked for, or as many as the memory that is free has room for."""
        room, tile = SHARE * free_memory(), self.tile or n
        fits = next((t for t in (n >> k for k in range(n.bit_length())) if held(t) <= room), 0)
        if not fits:
            raise ValueError(
                f"ntk: the kernel of {n:,} examples takes {in_bytes(held(1))}, and {in_bytes(room)} may be used; give "
                "fewer examples, another form, or use its products with vectors: ntk_operator."
            )
        if self.tile and held(tile) > room:
            raise ValueError(
                f"ntk: {tile:,} rows at once take {in_bytes(held(tile))}, and {in_bytes(room)} may be used; a tile of "
                f"{fits:,} would fit."
            )
        return min(n, tile) if self.tile else fits

    def _begun(self, xs: Any, ys: Any) -> tuple[Plan, Callable[[Any], Features], tuple[Kind, ...]]:
        _check(xs if ys is None else (xs, ys))
        plan = self.plan(xs, ys)
        whole = frozenset(at for at, way in enumerate(plan.ways) if not way.factored)
        return plan, lambda block: features(self.model, block, whole), sketched(_shapes(self, xs), whole).kinds()

    def _shaped(self, kernel: Array, xs: Any) -> Array:
        """Without axes for outputs, if the output is a number."""
        if self.form == "trace" or sketched(_shapes(self, xs)).outputs:
            return kernel
        return kernel.reshape(kernel.shape[: kernel.ndim - (2 if self.form == "full" else 1)])


def ntk(model: Model, *, form: Form = "full", tile: int | None = None) -> TangentKernel:
    r"""The tangent kernel of a model, $k(x, x')_{oq} = \langle \nabla_\theta f_o(x), \nabla_\theta f_q(x') \rangle$
    (§9.1).

    `ntk(model)(xs, ys)` is `n m o o` (`n m` for a model whose output is a number). As `outputs` it has $o = q$ alone,
    `n m o`, and as `trace` their sum over the outputs, `n m`, which is a kernel for a Gaussian process. It is computed
    in tiles of so many rows, as many as the free memory has room for unless given. Any model will do that can be
    differentiated; batch norms must be folded first, and chance is off.

    >>> import jax.random as jr
    >>> from thetax.models import MLP
    >>> model, xs = MLP.init(3, 8, 2, key=jr.key(0)), jr.normal(jr.key(1), (5, 3))
    >>> ntk(model)(xs, xs[:4]).shape, ntk(model, form="trace")(xs).shape, ntk(model).diagonal(xs).shape
    ((5, 4, 2, 2), (5, 5), (5, 2, 2))
    >>> [way.factored for way in ntk(model).plan(xs).ways]
    [True, True, True, True]
    """
    if form not in PAIRS:
        raise ValueError(f"ntk: form is one of {', '.join(PAIRS)}; got {form!r}.")
    if tile is not None and tile < 1:
        raise ValueError(f"ntk: tile counts rows and must be at least 1; got {tile}.")
    strange = [leaf.dtype for leaf in jax.tree.leaves(model) if not jnp.issubdtype(leaf.dtype, jnp.floating)]
    if strange or not jax.tree.leaves(model):
        came = f"one of {strange[0]}" if strange else "none"
        raise ValueError(f"ntk: a model's parameters are floats by which it can be differentiated; got {came}.")
    return TangentKernel(model, form, tile)


def _shapes(kernel: TangentKernel, xs: Any) -> Shapes:
    return shapes_of(kernel.model, jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), xs))


def _fits(plan: Plan, blocks: list[Any]) -> bool:
    """Whether what is needed of all blocks has room beside the kernel."""
    each = sum(way.numbers for way in plan.ways) * 8
    return len(blocks) == 1 or plan.bytes + each * plan.tile * len(blocks) < SHARE * free_memory()


def _blocks(xs: Any, tile: int) -> list[Any]:
    n = len(jax.tree.leaves(xs)[0])
    return [jax.tree.map(lambda a, i=i: a[i : i + tile], xs) for i in range(0, n, tile)]


def _check(sets: Any) -> None:
    """Refuses sets of different lengths or none, and numbers that are none, where they are known."""
    for leaf in jax.tree.leaves(sets):
        if leaf.ndim < 1 or not len(leaf):
            raise ValueError(f"ntk: expected stacked examples along the first axis; got an array of {leaf.shape}.")
        known = not isinstance(leaf, Tracer) and jnp.issubdtype(leaf.dtype, jnp.inexact)
        if known and not np.isfinite(np.asarray(leaf, np.float32)).all():
            raise ValueError("ntk: the examples have a number that is not finite; clean them first.")
