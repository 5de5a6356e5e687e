r"""Per-example features of the tangent kernel, and their contraction for pairs of examples.

For a leaf that is represented by its weight uses the features are the factors $\delta$ and $h$; for
any other leaf they are its gradient, one for each output.
"""

import math
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .weight_uses import WeightUse, WeightUses, find_weight_uses, run_with_taps

Form = Literal["full", "outputs", "trace"]


class EinsumAxes(NamedTuple):
    """Einsum axes: n, m are examples and o, q outputs."""

    left: str
    right: str
    total: str  # of the sum over leaves
    result: str


PAIR_AXES: dict[str, EinsumAxes] = {
    "full": EinsumAxes("no", "mq", "nomq", "nmoq"),
    "outputs": EinsumAxes("no", "mo", "onm", "nmo"),
    "trace": EinsumAxes("no", "mo", "nm", "nm"),
}
DIAGONAL_AXES: dict[str, EinsumAxes] = {
    "full": EinsumAxes("no", "nq", "noq", "noq"),
    "outputs": EinsumAxes("no", "no", "no", "no"),
    "trace": EinsumAxes("no", "no", "n", "n"),
}


class UseKind(NamedTuple):
    r"""How a weight use enters the kernel: $s^2 \langle h, h' \rangle + b^2$ times the product of
    the $\delta$; for a table lookup $\langle h, h' \rangle$ is whether the row indices are equal.
    """

    is_lookup: bool
    scale: float
    bias_scale: float


class TracedModel(NamedTuple):
    """A model as a jaxpr for one example, with its weight uses and the shape of its output."""

    program: Any
    leaves: list[Any]
    inputs: list[Any]
    uses: WeightUses
    output_shape: tuple[int, ...]

    @classmethod
    def of(cls, model: Any, x: Any, *, unfactored: frozenset[int] = frozenset()) -> "TracedModel":
        """Traces the model on an example or its shape.

        Leaves with these indices are `unfactored`: they get no weight uses.
        """
        leaves, structure = jax.tree.flatten(model)
        inputs, x_structure = jax.tree.flatten(x)
        call = lambda leaves, inputs: jax.tree.unflatten(structure, leaves)(
            jax.tree.unflatten(x_structure, inputs)
        )
        out = jax.eval_shape(call, leaves, inputs)
        if not hasattr(out, "shape") or not jnp.issubdtype(out.dtype, jnp.floating):
            raise ValueError(
                f"ntk: the output of the model must be one floating-point array; got {out}."
            )
        program = jax.make_jaxpr(lambda leaves, inputs: call(leaves, inputs).ravel())(
            leaves, inputs
        )
        uses = find_weight_uses(program, leaves, inputs, unfactored=unfactored)
        return cls(program, leaves, inputs, uses, out.shape)

    def kinds(self) -> tuple[UseKind, ...]:
        """The kind of each weight use."""
        bias_scale = lambda use: 0.0 if use.bias is None else use.bias.scale
        return tuple(UseKind(use.is_lookup, use.scale, bias_scale(use)) for use in self.uses.uses)


class ModelSignature(NamedTuple):
    """Everything that a traced model depends on: tree structures, shapes and dtypes."""

    model: Any
    leaves: tuple[tuple[tuple[int, ...], Any], ...]
    x: Any
    inputs: tuple[tuple[tuple[int, ...], Any], ...]


def signature_of(model: Any, x: Any) -> ModelSignature:
    """The signature of a model and an example."""
    shapes = lambda tree: tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree))
    return ModelSignature(
        jax.tree.structure(model), shapes(model), jax.tree.structure(x), shapes(x)
    )


@lru_cache(maxsize=128)
def traced_model(
    signature: ModelSignature, unfactored: frozenset[int] = frozenset()
) -> TracedModel:
    """The traced model of this signature."""
    build = lambda structure, leaves: jax.tree.unflatten(
        structure, [jax.ShapeDtypeStruct(*leaf) for leaf in leaves]
    )
    model = build(signature.model, signature.leaves)
    x = build(signature.x, signature.inputs)
    return TracedModel.of(model, x, unfactored=unfactored)


class Features(NamedTuple):
    r"""Gradients of the unfactored leaves, and the factors $(\delta, h)$ of each weight use."""

    gradients: Float[Array, "n o p"]
    factors: list[tuple[Float[Array, "n o g t a"], Array]]


@partial(jax.jit, static_argnums=2)
def features(model: Any, xs: Any, unfactored: frozenset[int]) -> Features:
    """Features of stacked examples."""

    def one(x: Any) -> Features:
        traced = TracedModel.of(model, x, unfactored=unfactored)
        uses = traced.uses.uses
        factored = traced.uses.leaves()
        free = {i: leaf for i, leaf in enumerate(traced.leaves) if i not in factored}

        def call(free, taps):
            leaves = [free.get(i, leaf) for i, leaf in enumerate(traced.leaves)]
            (out,), operands = run_with_taps(
                traced.program, traced.uses, leaves, traced.inputs, taps
            )
            return out, operands

        # one reverse pass per output: gradients of the free leaves, and delta as the gradient with
        # respect to the zeros that are added to each product
        taps = [jnp.zeros(use.tap.shape, use.tap.dtype) for use in uses]
        out, vjp, operands = jax.vjp(call, free, taps, has_aux=True)
        gradients, deltas = jax.vmap(vjp)(jnp.eye(len(out), dtype=out.dtype))
        rows = [gradient.reshape(len(out), -1).astype(out.dtype) for gradient in gradients.values()]
        factors_of = lambda use: jax.vmap(use.factors, in_axes=(0, None), out_axes=(0, None))
        factors = [
            factors_of(use)(delta, h) for use, delta, h in zip(uses, deltas, operands, strict=True)
        ]
        no_gradients = jnp.zeros((len(out), 0), out.dtype)
        return Features(jnp.concatenate([no_gradients, *rows], axis=1), factors)

    return jax.vmap(one)(xs)


@partial(jax.jit, static_argnums=(2, 3))
def contract(
    left: Features, right: Features, axes: EinsumAxes, kinds: tuple[UseKind, ...]
) -> Array:
    r"""The kernel between the examples of `left` and `right`.

    The sum over pairs of positions $t, s$ is taken as one matrix product where both have a single
    one, and otherwise over $t$ first.
    """
    L, R, total, result = axes
    n = L[0]
    m = R[0]
    # for the diagonal of the kernel, n and m are the same axis
    both, other = (n, "") if n == m else (n + m, m)
    K = jnp.einsum(f"{L}p,{R}p->{total}", left.gradients, right.gradients)
    for (d, h), (e, k), kind in zip(left.factors, right.factors, kinds, strict=True):
        H = (
            _equal_rows(h, k, other)
            if kind.is_lookup
            else jnp.einsum(f"{n}gtc,{m}gsc->{both}gts", h, k)
        )
        H = kind.scale**2 * H.astype(K.dtype) + kind.bias_scale**2
        if d.shape[2:4] == (1, 1) == e.shape[2:4]:
            shape = [H.shape[both.index(axis)] if axis in both else 1 for axis in total]
            K += H.reshape(shape) * jnp.einsum(f"{L}a,{R}a->{total}", d[:, :, 0, 0], e[:, :, 0, 0])
        else:
            dH = jnp.einsum(f"{L}gta,{both}gts->{L}{other}gsa", d, H)
            K += jnp.einsum(f"{L}{other}gsa,{R}gsa->{total}", dH, e)
    return jnp.einsum(f"{total}->{result}", K)


def _equal_rows(h: Array, k: Array, other: str) -> Array:
    """Whether the same row of a table was looked up."""
    h, k = (h[:, None], k[None]) if other else (h, k)
    return h[..., :, None, 0] == k[..., None, :, 0]


class LeafPlan(NamedTuple):
    """How a leaf is treated, and its cost: multiplications and stored floats, for each example and
    for each pair of examples.
    """

    leaf: str
    factored: bool
    multiplications: int
    pair_multiplications: int
    example_floats: int
    pair_floats: int


@lru_cache(maxsize=128)
def plan_leaves(signature: ModelSignature, n: int, m: int, full: bool) -> tuple[LeafPlan, ...]:
    """For each leaf the cheaper of gradients and factors, for a kernel of n by m examples."""
    traced = traced_model(signature)
    named = jax.tree.unflatten(signature.model, traced.leaves)
    names = [
        jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(named)[0]
    ]
    (out,) = traced.program.out_avals
    cost = lambda plan: (n + m) * plan.multiplications + n * m * plan.pair_multiplications
    plans = []
    for i, (name, leaf) in enumerate(zip(names, traced.leaves)):
        uses = [use for use in traced.uses.uses if use.leaf == i]
        options = [_by_gradient(name, leaf, uses, out.size, full)]
        if i in traced.uses.leaves():
            options.append(_by_factors(name, uses, out.size, full))
        plans.append(min(options, key=cost))
    return tuple(plans)


def _by_gradient(name: str, leaf: Any, uses: list[WeightUse], o: int, full: bool) -> LeafPlan:
    """Cost of a leaf by its gradients for o outputs."""
    gradient = sum(math.prod(sizes) for sizes in map(_factor_sizes, uses)) if uses else leaf.size
    return LeafPlan(
        leaf=name,
        factored=False,
        multiplications=o * gradient,
        pair_multiplications=(o * o if full else o) * leaf.size,
        example_floats=o * leaf.size,
        pair_floats=0,
    )


def _by_factors(name: str, uses: list[WeightUse], o: int, full: bool) -> LeafPlan:
    """Cost of a leaf by its factors for o outputs."""
    multiplications = example_floats = pair_floats = 0
    for g, t, a, c in map(_factor_sizes, uses):
        single = g * t == 1
        multiplications += g * t * t * (c + (0 if single else o * a))
        multiplications += (o * o if full else o) * g * t * a
        example_floats += g * t * (o * a + c)
        pair_floats = max(pair_floats, g * t * t + (0 if single else o * g * t * a))
    return LeafPlan(
        leaf=name,
        factored=True,
        multiplications=0,
        pair_multiplications=multiplications,
        example_floats=example_floats,
        pair_floats=pair_floats,
    )


def _factor_sizes(use: WeightUse) -> tuple[int, int, int, int]:
    """The sizes g, t, a and c of its factors."""
    d, h = jax.eval_shape(use.factors, use.tap, use.operand)
    return (*d.shape, h.shape[-1])
