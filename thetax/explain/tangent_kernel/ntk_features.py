r"""What a tangent kernel needs of each example, and how two sets of examples are contracted.

Of a leaf told by its junctions these are the factors $\delta$ and $h$; of any other its gradient,
one for each output.
"""

import math
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .weight_uses import Found, Junction, junctions, tapped

Form = Literal["full", "outputs", "trace"]
Ends = tuple[
    str, str, str, str
]  # axes: of the left, of the right, of what is summed up, and of what comes out
PAIRS: dict[str, Ends] = {
    "full": ("no", "mq", "nomq", "nmoq"),
    "outputs": ("no", "mo", "onm", "nmo"),
    "trace": ("no", "mo", "nm", "nm"),
}
OWN: dict[str, Ends] = {
    "full": ("no", "nq", "noq", "noq"),
    "outputs": ("no", "no", "no", "no"),
    "trace": ("no", "no", "n", "n"),
}


class Kind(NamedTuple):
    r"""How a junction enters the kernel: by $s^2 \langle h, h' \rangle + b^2$ times the product of
    the $\delta$.
    """

    looked_up: bool
    scale: float
    bias: float


class Sketch(NamedTuple):
    """A model as a program for one example, where its parameters meet data, and the shape of its
    output.
    """

    program: Any
    leaves: list[Any]
    inputs: list[Any]
    found: Found
    outputs: tuple[int, ...]

    @classmethod
    def of(cls, model: Any, x: Any, *, whole: frozenset[int] = frozenset()) -> "Sketch":
        """Of an example, or of its shape; leaves that are `whole` have no junctions."""
        leaves, structure = jax.tree.flatten(model)
        inputs, build = jax.tree.flatten(x)
        call = lambda leaves, inputs: jax.tree.unflatten(structure, leaves)(
            jax.tree.unflatten(build, inputs)
        )
        out = jax.eval_shape(call, leaves, inputs)
        if not hasattr(out, "shape") or not jnp.issubdtype(out.dtype, jnp.floating):
            raise ValueError(
                f"ntk: the model must give one array of floats for an example; got {out}."
            )
        program = jax.make_jaxpr(lambda leaves, inputs: call(leaves, inputs).ravel())(
            leaves, inputs
        )
        return cls(
            program, leaves, inputs, junctions(program, leaves, inputs, whole=whole), out.shape
        )

    def kinds(self) -> tuple[Kind, ...]:
        """Of each junction."""
        bias = lambda junction: 0.0 if junction.bias is None else junction.bias.scale
        return tuple(
            Kind(junction.looked_up, junction.scale, bias(junction))
            for junction in self.found.junctions
        )


class Shapes(NamedTuple):
    """All that a sketch depends on."""

    model: Any
    leaves: tuple[tuple[tuple[int, ...], Any], ...]
    build: Any
    inputs: tuple[tuple[tuple[int, ...], Any], ...]


def shapes_of(model: Any, x: Any) -> Shapes:
    """Of a model, and of an example of it."""
    told = lambda tree: tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree))
    return Shapes(jax.tree.structure(model), told(model), jax.tree.structure(x), told(x))


@lru_cache(maxsize=128)
def sketched(shapes: Shapes, whole: frozenset[int] = frozenset()) -> Sketch:
    """The sketch of a model of these shapes."""
    build = lambda structure, leaves: jax.tree.unflatten(
        structure, [jax.ShapeDtypeStruct(*leaf) for leaf in leaves]
    )
    return Sketch.of(
        build(shapes.model, shapes.leaves), build(shapes.build, shapes.inputs), whole=whole
    )


class Features(NamedTuple):
    """Gradients in the leaves that are whole, and the factors of the others."""

    whole: Float[Array, "n o p"]
    factors: list[tuple[Float[Array, "n o g t a"], Array]]


@partial(jax.jit, static_argnums=2)
def features(model: Any, xs: Any, whole: frozenset[int]) -> Features:
    """Of stacked examples."""

    def one(x: Any) -> Features:
        sketch = Sketch.of(model, x, whole=whole)
        found = sketch.found.junctions
        told = sketch.found.leaves()
        free = {at: leaf for at, leaf in enumerate(sketch.leaves) if at not in told}

        def call(free, taps):
            leaves = [free.get(at, leaf) for at, leaf in enumerate(sketch.leaves)]
            (out,), met = tapped(sketch.program, sketch.found, leaves, sketch.inputs, taps)
            return out, met

        taps = [jnp.zeros(junction.tap.shape, junction.tap.dtype) for junction in found]
        out, back, met = jax.vjp(call, free, taps, has_aux=True)
        slopes, deltas = jax.vmap(back)(jnp.eye(len(out), dtype=out.dtype))
        rows = [slope.reshape(len(out), -1).astype(out.dtype) for slope in slopes.values()]
        parted = lambda junction: jax.vmap(junction.factors, in_axes=(0, None), out_axes=(0, None))
        factors = [
            parted(junction)(delta, h)
            for junction, delta, h in zip(found, deltas, met, strict=True)
        ]
        return Features(
            jnp.concatenate([jnp.zeros((len(out), 0), out.dtype), *rows], axis=1), factors
        )

    return jax.vmap(one)(xs)


@partial(jax.jit, static_argnums=(2, 3))
def contract(left: Features, right: Features, ends: Ends, kinds: tuple[Kind, ...]) -> Array:
    """The kernel between the examples of both."""
    L, R, total, out = ends
    n = L[0]
    m = R[0]
    both, across = (n, "") if n == m else (n + m, m)
    K = jnp.einsum(f"{L}p,{R}p->{total}", left.whole, right.whole)
    for (d, h), (e, k), kind in zip(left.factors, right.factors, kinds, strict=True):
        H = (
            _alike(h, k, across)
            if kind.looked_up
            else jnp.einsum(f"{n}gtc,{m}gsc->{both}gts", h, k)
        )
        H = kind.scale**2 * H.astype(K.dtype) + kind.bias**2
        if d.shape[2:4] == (1, 1) == e.shape[2:4]:
            beside = [H.shape[both.index(axis)] if axis in both else 1 for axis in total]
            K += H.reshape(beside) * jnp.einsum(f"{L}a,{R}a->{total}", d[:, :, 0, 0], e[:, :, 0, 0])
        else:
            passed = jnp.einsum(f"{L}gta,{both}gts->{L}{across}gsa", d, H)
            K += jnp.einsum(f"{L}{across}gsa,{R}gsa->{total}", passed, e)
    return jnp.einsum(f"{total}->{out}", K)


def _alike(h: Array, k: Array, across: str) -> Array:
    """Whether the same row was looked up."""
    h, k = (h[:, None], k[None]) if across else (h, k)
    return h[..., :, None, 0] == k[..., None, :, 0]


class Way(NamedTuple):
    """How a leaf is treated: products and numbers it takes for each example, and for each pair of
    them.
    """

    leaf: str
    factored: bool
    products: int
    pair_products: int
    numbers: int
    pair_numbers: int


@lru_cache(maxsize=128)
def ways(shapes: Shapes, n: int, m: int, full: bool) -> tuple[Way, ...]:
    """The cheaper of the two ways, leaf by leaf, for n by m examples."""
    sketch = sketched(shapes)
    named = jax.tree.unflatten(shapes.model, sketch.leaves)
    names = [
        jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(named)[0]
    ]
    (out,), chosen = sketch.program.out_avals, []
    for at, (name, leaf) in enumerate(zip(names, sketch.leaves)):
        met = [junction for junction in sketch.found.junctions if junction.leaf == at]
        both = [_whole(name, leaf, met, out.size, full)]
        if at in sketch.found.leaves():
            both.append(_factored(name, met, out.size, full))
        chosen.append(min(both, key=lambda way: (n + m) * way.products + n * m * way.pair_products))
    return tuple(chosen)


def _whole(name: str, leaf: Any, met: list[Junction], o: int, full: bool) -> Way:
    slope = sum(math.prod(sizes) for sizes in map(_sizes, met)) if met else leaf.size
    return Way(name, False, o * slope, (o * o if full else o) * leaf.size, o * leaf.size, 0)


def _factored(name: str, met: list[Junction], o: int, full: bool) -> Way:
    products = numbers = held = 0
    for g, t, a, c in map(_sizes, met):
        alone = g * t == 1
        products += g * t * t * (c + (0 if alone else o * a)) + (o * o if full else o) * g * t * a
        numbers += g * t * (o * a + c)
        held = max(held, g * t * t + (0 if alone else o * g * t * a))
    return Way(name, True, 0, products, numbers, held)


def _sizes(junction: Junction) -> tuple[int, int, int, int]:
    """Of its factors: g, t, a and c."""
    d, h = jax.eval_shape(junction.factors, junction.tap, junction.met)
    return (*d.shape, h.shape[-1])
