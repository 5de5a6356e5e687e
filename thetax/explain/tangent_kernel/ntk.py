r"""The tangent kernel of any model (§9.1): how far a step that changes $f(x')$ changes $f(x)$.

$$k(x, x') = \nabla_\theta f(x)\, \nabla_\theta f(x')^\top = \sum_{\text{leaves}} \nabla_W f(x)\,
\nabla_W f(x')^\top$$

The gradients, $n \times o \times p$ numbers, are not written down where a leaf enters through
products: with the factors $\delta$ and $h$ of each example, its part of the kernel is
$\sum_{\tau, \tau'} \langle \delta_\tau, \delta'_{\tau'} \rangle \langle h_\tau, h'_{\tau'}
\rangle$.
A leaf at very many places, as the kernel of a convolution, is cheaper whole. Which way is cheaper
is told by a plan, which can be read beforehand. (Jacot et al. 2018; Novak et al. 2022)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...check import check_examples
from ...core import Model
from ...memory import free_memory, in_bytes
from ...progress import counted
from .ntk_features import (
    OWN,
    PAIRS,
    Features,
    Form,
    Kind,
    Shapes,
    Way,
    contract,
    features,
    shapes_of,
    sketched,
    ways,
)
from .sharding import Deal, blocks

SHARE = 0.5  # of the free memory may be used
LEAST = 256  # rows of a tile that is made small only to save work


@dataclass(frozen=True)
class Plan:
    """What a kernel costs: products, bytes held at once, how many rows are done at once, and the
    way of each leaf.
    """

    products: int
    bytes: int
    tile: int
    ways: tuple[Way, ...]


class TangentKernel(eqx.Module):
    """`kernel(xs, ys)` for stacked examples, `kernel.diagonal(xs)` and `kernel.plan(xs, ys)`; see
    `ntk`.
    """

    model: Any
    form: Form = eqx.field(static=True, default="full")
    tile: int | None = eqx.field(static=True, default=None)
    devices: tuple[Any, ...] = eqx.field(static=True, default=())

    def __call__(self, xs: Any, ys: Any = None) -> Float[Array, "n m ..."]:
        plan, see, kinds = self._begun(xs, ys)
        deal = Deal(self.devices)
        n = _count(xs)
        m = _count(xs if ys is None else ys)
        left = deal.out(xs, plan.tile)
        right = blocks(xs if ys is None else ys, plan.tile)
        look = lambda block: deal.everywhere(see(block))
        seen = [look(block) for block in right] if _fits(plan, right) else None
        own = seen if self._symmetric(ys) else None
        K: Any = None
        with counted("rows of the tangent kernel", n) as tell:
            for at, block in enumerate(left):
                mine = own[at] if own else see(block)
                for across, other in enumerate(own[: at + 1] if own else seen or map(look, right)):
                    part = contract(mine, other, PAIRS[self.form], kinds)
                    K = deal.lay(K, part, (at * plan.tile, across * plan.tile), (n, m))
                    if own and across < at:
                        K = deal.lay(K, _turned(part), (across * plan.tile, at * plan.tile), (n, m))
                if len(left) > 1:
                    jax.block_until_ready(K)
                    tell(min(n, (at + 1) * plan.tile * deal.count))
        return self._shaped(deal.together(K, n), xs)

    def diagonal(self, xs: Any) -> Float[Array, "n ..."]:
        """$k(x_i, x_i)$ alone."""
        plan, see, kinds = self._begun(xs, None, own=True)
        seen = map(see, blocks(xs, plan.tile))
        return self._shaped(
            jnp.concatenate([contract(a, a, OWN[self.form], kinds) for a in seen]), xs
        )

    def plan(self, xs: Any, ys: Any = None) -> Plan:
        """What it costs for that many examples, whether or not there is room; nothing is
        computed.
        """
        return self._planned(xs, ys)

    def _planned(self, xs: Any, ys: Any, *, own: bool = False, room: float | None = None) -> Plan:
        """Of all pairs, or of each example with its own."""
        n = _count(xs)
        m = _count(xs if ys is None else ys)
        shapes = _shapes(self, xs)
        chosen = ways(shapes, n, m, self.form == "full")
        seen = n if ys is None else n + m
        out = sketched(shapes).program.out_avals[0]
        outputs = {"full": out.size**2, "outputs": out.size, "trace": 1}[self.form]
        mine = -(-n // max(1, len(self.devices)))  # rows of one device
        held = lambda tile: (
            out.dtype.itemsize
            * (
                (n if own else mine * m) * outputs
                + 2 * tile * sum(way.numbers for way in chosen)
                + tile ** (1 if own else 2)
                * (outputs + max((way.pair_numbers for way in chosen), default=0))
            )
        )
        tile = self._tile(
            max(n, m), held, halved=self._symmetric(ys), room=room or SHARE * free_memory()
        )
        pairs = n * (n + tile) // 2 if self._symmetric(ys) else n * m
        products = sum(seen * way.products + pairs * way.pair_products for way in chosen)
        return Plan(products, held(tile), tile, chosen)

    def _symmetric(self, ys: Any) -> bool:
        """Whether one half tells the other."""
        return ys is None and len(self.devices) < 2

    def _tile(self, n: int, held: Callable[[int], int], *, halved: bool, room: float) -> int:
        """The rows done at once: those asked for, or as many as there is room for, or a single one.

        Tiles above the diagonal of a symmetric kernel need not be computed, so that smaller ones
        are cheaper.
        """
        if self.tile:
            return min(n, self.tile)
        fits = next((t for t in (n >> k for k in range(n.bit_length())) if held(t) <= room), 1)
        return min(fits, max(LEAST, -(-n // 8))) if halved else fits

    def _begun(
        self, xs: Any, ys: Any, *, own: bool = False
    ) -> tuple[Plan, Callable[[Any], Features], tuple[Kind, ...]]:
        for name, examples in (("xs", xs), ("ys", xs if ys is None else ys)):
            check_examples(examples, name=f"ntk: {name}")
        if ys is not None and jax.tree.structure(xs) != jax.tree.structure(ys):
            raise ValueError(
                "ntk: xs and ys must be examples of one kind; got "
                f"{jax.tree.structure(xs)} and {jax.tree.structure(ys)}."
            )
        room = SHARE * free_memory()
        plan = self._planned(xs, ys, own=own, room=room)
        if plan.bytes > room:
            self._refuse(
                plan, replace(self, tile=None)._planned(xs, ys, own=own, room=room), xs, room
            )
        whole = frozenset(at for at, way in enumerate(plan.ways) if not way.factored)
        return (
            plan,
            lambda block: features(self.model, block, whole),
            sketched(_shapes(self, xs), whole).kinds(),
        )

    def _refuse(self, plan: Plan, best: Plan, xs: Any, room: float) -> None:
        if best.bytes <= room:
            raise ValueError(
                f"ntk: {plan.tile:,} rows at once take {in_bytes(plan.bytes)}, and "
                f"{in_bytes(room)} may be used; a tile of {best.tile:,} would fit."
            )
        raise ValueError(
            f"ntk: the kernel of {_count(xs):,} examples takes {in_bytes(best.bytes)}, and "
            f"{in_bytes(room)} may be used; give fewer examples, another form, or use its products "
            "with vectors: ntk_operator."
        )

    def _shaped(self, kernel: Array, xs: Any) -> Array:
        """Without axes for outputs, if the output is a number."""
        if self.form == "trace" or sketched(_shapes(self, xs)).outputs:
            return kernel
        return kernel.reshape(kernel.shape[: kernel.ndim - (2 if self.form == "full" else 1)])


def ntk(
    model: Model, *, form: Form = "full", tile: int | None = None, devices: Sequence[Any] = ()
) -> TangentKernel:
    r"""The tangent kernel of a model,
    $k(x, x')_{oq} = \langle \nabla_\theta f_o(x), \nabla_\theta f_q(x') \rangle$ (§9.1).

    `ntk(model)(xs, ys)` is `n m o o`, with outputs of several axes flattened, and `n m` for a model
    whose output is a number. As `outputs` it has $o = q$ alone, `n m o`, and as `trace` their sum
    over the outputs, `n m`, which is a kernel for a Gaussian process. It is computed in tiles of so
    many rows, as many as the free memory has room for unless given. With `devices`, `jax.devices()`
    for instance, each of them has its share of the rows, and keeps it. Any model will do that can
    be differentiated; batch norms must be folded first, and chance is off.

    >>> import jax.random as jr
    >>> from thetax.models import MLP
    >>> model, xs = MLP.init(3, 8, 2, key=jr.key(0)), jr.normal(jr.key(1), (5, 3))
    >>> (
    ...     ntk(model)(xs, xs[:4]).shape,
    ...     ntk(model, form="trace")(xs).shape,
    ...     ntk(model).diagonal(xs).shape,
    ... )
    ((5, 4, 2, 2), (5, 5), (5, 2, 2))
    >>> [way.factored for way in ntk(model).plan(xs).ways]
    [True, True, True, True]
    """
    if form not in PAIRS:
        raise ValueError(f"ntk: form is one of {', '.join(PAIRS)}; got {form!r}.")
    if tile is not None and (not isinstance(tile, int) or tile < 1):
        raise ValueError(f"ntk: tile counts rows and must be at least 1; got {tile}.")
    expect_parameters("ntk", model)
    return TangentKernel(model, form, tile, tuple(devices))


def expect_parameters(name: str, model: Any) -> None:
    """Refuses a model by whose leaves it cannot be differentiated, or that has none."""
    leaves = jax.tree.leaves(model)
    strange = [
        leaf for leaf in leaves if not jnp.issubdtype(getattr(leaf, "dtype", object), jnp.floating)
    ]
    if strange or not leaves:
        came = (
            f"a leaf of {getattr(strange[0], 'dtype', type(strange[0]).__name__)}"
            if strange
            else "none"
        )
        raise ValueError(
            f"{name}: a model's parameters are floats by which it can be differentiated; got "
            f"{came}."
        )


def _shapes(kernel: TangentKernel, xs: Any) -> Shapes:
    return shapes_of(
        kernel.model, jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), xs)
    )


def _count(xs: Any) -> int:
    return len(jax.tree.leaves(xs)[0])


def _turned(part: Array) -> Array:
    """The tile across the diagonal: of the pairs (y, x), and of the outputs (q, o)."""
    return jnp.swapaxes(part, 0, 1) if part.ndim < 4 else part.transpose(1, 0, 3, 2)


def _fits(plan: Plan, blocks: list[Any]) -> bool:
    """Whether what is needed of all blocks has room beside the kernel."""
    each = sum(way.numbers for way in plan.ways) * 8
    return len(blocks) == 1 or plan.bytes + each * plan.tile * len(blocks) < SHARE * free_memory()
