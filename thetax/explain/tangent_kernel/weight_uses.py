r"""Finds where the parameters of a model are used in its jaxpr, to represent their gradients by
factors.

A weight enters almost every network through a product $z = W h$, a convolution or a table lookup.
Its gradient is then $\nabla_W f = \sum_\tau \delta_\tau h_\tau^\top$ with
$\delta_\tau = \partial f / \partial z_\tau$, summed over the positions $\tau$ where it is used:
pixels, tokens, iterations of a loop. With the factors $h$ and $\delta$ the gradient itself need not
be stored. An interpreter finds the products in the jaxpr of the model, whichever module they come
from. It runs the program with a zero added to each $z$, a tap; the derivative with respect to the
tap is $\delta$.

A bias that is added to a product has the same $\delta$, and $h = 1$. A parameter that is used in
another way (a gain), or whose entries are used twice in the program, is left unfactored:
its gradient is computed as usual.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Literal
from jaxtyping import Array

from ...jaxpr import Scan, called_program, evaluate_equation, scan_parts
from .weight_use_rules import RULES, Evaluate, constant

Box = tuple[tuple[int, int], ...]  # a slice of an array: (start, stop) along each axis


class ParameterSlice(NamedTuple):
    """A parameter, or a slice of one, that has not been combined with data yet.

    The interpreter passes these through the program in place of arrays.
    """

    leaf: int
    value: Any
    box: Box  # which part of the leaf it is
    scale: float = 1.0  # times the leaf
    reshaped: bool = False  # whether its axes are no longer those of the leaf
    scanned: tuple[bool, ...] = ()  # for each enclosing scan, whether it is scanned over


class WeightUse(NamedTuple):
    r"""A product of a leaf with data. Its factors are $\delta$, $(g, \tau, a)$, and $h$,
    $(g, \tau, c)$, and the gradient is $\sum_\tau \delta_{g \tau a} h_{g \tau c}$, where each
    group $g$ belongs to another part of the leaf.

    A table lookup is a product with the one-hot vector of the row index; $h$ is then the row index
    itself, and $c$ is 1.
    """

    leaf: int
    box: Box
    is_lookup: bool
    tap: jax.ShapeDtypeStruct  # of z, with leading axes for enclosing scans
    operand: jax.ShapeDtypeStruct  # the other operand, with these axes too
    # (derivative with respect to the tap, operand) -> (delta, h)
    factors: Callable[[Array, Array], tuple[Array, Array]]
    scale: float = 1.0  # times the leaf
    bias: ParameterSlice | None = None  # a bias that is added to the product


class WeightUses(NamedTuple):
    """The weight uses of a program in execution order, and for each scan the number of uses
    inside it (with those of inner scans).
    """

    uses: list[WeightUse]
    scans: list[Any]

    def leaves(self) -> set[int]:
        """The factored leaves, those whose gradients are given by factors."""
        parts = [part for use in self.uses for part in (use, use.bias)]
        return {part.leaf for part in parts if part is not None}


def find_weight_uses(
    program: Any,
    leaves: Sequence[Any],
    inputs: Sequence[Any],
    *,
    unfactored: frozenset[int] = frozenset(),
) -> WeightUses:
    """The weight uses of a closed jaxpr whose first arguments are the parameters, except for those
    leaves that are to be `unfactored`.

    Either all uses of a leaf are in the result or none. Arguments may be shapes only.
    """
    # whether a leaf can be factored is known only after a run: repeat without those that cannot
    while True:
        interpreter = Interpreter()

        def once(leaves, inputs, interpreter=interpreter, unfactored=unfactored):
            args = [*_slices(leaves, unfactored), *inputs]
            outs = interpreter.run(program.jaxpr, program.consts, args)
            return [interpreter.materialise(out) for out in outs]

        jax.eval_shape(once, list(leaves), list(inputs))
        more = interpreter.unfactored | _used_twice(interpreter.weight_uses.uses)
        if not more:
            return interpreter.weight_uses
        unfactored = unfactored | more


def run_with_taps(
    program: Any,
    weight_uses: WeightUses,
    leaves: Sequence[Any],
    inputs: Sequence[Any],
    taps: Sequence[Array],
) -> tuple[list[Array], list[Array]]:
    """Runs the program with taps added at its weight uses; returns its outputs, and the operand of
    each weight use.
    """
    interpreter = Interpreter(taps, weight_uses.scans)
    unfactored = frozenset(range(len(leaves))) - weight_uses.leaves()
    args = [*_slices(leaves, unfactored), *inputs]
    return interpreter.run(program.jaxpr, program.consts, args), interpreter.operands


def _slices(leaves: Sequence[Any], unfactored: frozenset[int]) -> list[Any]:
    box = lambda leaf: tuple((0, size) for size in leaf.shape)
    return [
        leaf if i in unfactored else ParameterSlice(i, leaf, box(leaf))
        for i, leaf in enumerate(leaves)
    ]


def _used_twice(uses: list[WeightUse]) -> set[int]:
    """The leaves that have entries which are used twice."""
    parts = [part for use in uses for part in (use, use.bias) if part is not None]
    overlap = lambda a, b: (
        a.leaf == b.leaf and all(i < y and x < j for (i, j), (x, y) in zip(a.box, b.box))
    )
    return {a.leaf for a, b in combinations(parts, 2) if overlap(a, b)}


class LastProduct(NamedTuple):
    """The output of the last weight use, times `factor`; a bias may be added to it.

    `rows` are its axes that correspond to rows of the leaf.
    """

    z: Any
    rows: tuple[int, ...]
    scanned: tuple[bool, ...]
    factor: float = 1.0


class Interpreter:
    """Interprets a jaxpr, keeping parameters symbolic (`ParameterSlice`) until they are combined
    with data.

    With `taps`, these are added to the products, and `scans` are the counts of an earlier run.
    """

    def __init__(self, taps: Sequence[Array] | None = None, scans: Sequence[Any] = ()):
        self.taps = taps
        self.scans_ahead = iter(scans)
        self.weight_uses = WeightUses([], [])
        self.operands: list[Array] = []
        self.unfactored: set[int] = set()
        self.last = LastProduct(None, (), ())

    def run(self, program: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        env: dict[Any, Any] = dict(
            zip((*program.constvars, *program.invars), (*consts, *args), strict=True)
        )
        read = lambda v: v.val if isinstance(v, Literal) else env[v]
        for equation in program.eqns:
            outs = self.step(program, equation, [read(v) for v in equation.invars])
            env.update(zip(equation.outvars, outs, strict=True))
        return [read(v) for v in program.outvars]

    def step(self, program: Any, equation: Any, ins: list[Any]) -> list[Any]:
        """The outputs of an equation; without a symbolic parameter it is evaluated as it is."""
        evaluate = partial(evaluate_equation, program, equation)
        name = equation.primitive.name
        symbolic = [i for i, value in enumerate(ins) if isinstance(value, ParameterSlice)]
        if symbolic and name == "scan":
            return self.scan(scan_parts(equation), ins)
        if symbolic and (inner := called_program(equation)) is not None:
            return self.run(inner.jaxpr, inner.consts, ins)
        if name == "mul" and not symbolic and any(value is self.last.z for value in ins):
            return self.multiply_last(evaluate, ins)
        if len(symbolic) == 1 and name in RULES:
            out = RULES[name](self, evaluate, equation.params, ins, *symbolic)
            if out is not None:
                return [out]
        return evaluate([self.materialise(value) for value in ins])

    def multiply_last(self, evaluate: Evaluate, ins: list[Any]) -> list[Any]:
        """The output of the last weight use, multiplied by a constant."""
        out = evaluate(ins)
        factors = [constant(value) for value in ins if value is not self.last.z]
        if len(factors) == 1 and factors[0]:
            self.last = self.last._replace(z=out[0], factor=self.last.factor * factors[0])
        return out

    def materialise(self, value: Any) -> Any:
        """The value as an array; a parameter that is needed as one cannot be factored."""
        if not isinstance(value, ParameterSlice):
            return value
        self.unfactored.add(value.leaf)
        return value.value

    def record_use(
        self,
        parameter: ParameterSlice,
        z: Array,
        h: Array,
        factors: Callable[..., Any],
        *,
        is_lookup: bool = False,
        rows: Any = (),
    ) -> Array:
        """Records a weight use and adds its tap; a bias may be added along the axes `rows` of z."""
        factors = _factors_in_scans(factors, parameter.scanned)
        self.weight_uses.uses.append(
            WeightUse(
                parameter.leaf,
                parameter.box,
                is_lookup,
                _shape(z),
                _shape(h),
                factors,
                parameter.scale,
            )
        )
        self.operands.append(h)
        z = z if self.taps is None else z + self.taps[len(self.operands) - 1]
        self.last = LastProduct(z, tuple(rows), parameter.scanned)
        return z

    def scan(self, parts: Scan, ins: list[Any]) -> list[Any]:
        """A scan: a parameter among its constants is the same slice in every iteration; of one
        that it scans over, each iteration uses another part.
        """
        consts = ins[: parts.consts]
        start = [
            self.materialise(value) for value in ins[parts.consts : parts.consts + parts.carry]
        ]
        sequences = ins[parts.consts + parts.carry :]
        count, scans_ahead = next(self.scans_ahead) if self.taps is not None else (0, ())
        first = len(self.operands)
        taps = None if self.taps is None else list(self.taps[first : first + count])
        interpreters: list[Interpreter] = []

        def body(state, item):
            slices, taps = item
            interpreter = Interpreter(taps, scans_ahead)
            interpreters.append(interpreter)
            inner_consts = [_inside_scan(value, value, False) for value in consts]
            slices = [_inside_scan(value, part, True) for value, part in zip(sequences, slices)]
            outs = interpreter.run(
                parts.body.jaxpr, parts.body.consts, [*inner_consts, *state, *slices]
            )
            outs = [interpreter.materialise(out) for out in outs]
            return outs[: parts.carry], (outs[parts.carry :], interpreter.operands)

        arrays = [
            value.value if isinstance(value, ParameterSlice) else value for value in sequences
        ]
        state, (outs, operands) = jax.lax.scan(
            body, start, (arrays, taps), parts.length, parts.reverse, parts.unroll
        )
        interpreter = interpreters[-1]
        self.unfactored |= interpreter.unfactored
        self.weight_uses.scans.append((len(operands), interpreter.weight_uses.scans))
        stacked = lambda shape: jax.ShapeDtypeStruct((parts.length, *shape.shape), shape.dtype)
        self.weight_uses.uses.extend(
            use._replace(tap=stacked(use.tap), operand=stacked(use.operand))
            for use in interpreter.weight_uses.uses
        )
        self.operands.extend(operands)
        return [*state, *outs]


def _inside_scan(value: Any, part: Any, scanned: bool) -> Any:
    """A value as the body of a scan receives it; `part` is its slice in this iteration."""
    if not isinstance(value, ParameterSlice):
        return part
    part = part if scanned else value.value
    return value._replace(
        value=part, reshaped=value.reshaped or scanned, scanned=(*value.scanned, scanned)
    )


def _shape(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _factors_in_scans(
    factors: Callable[..., Any], scanned: tuple[bool, ...]
) -> Callable[[Array, Array], tuple[Array, Array]]:
    """The factors of a weight use inside scans: iterations become groups where the parameter is
    scanned over, and positions elsewhere.
    """
    if not scanned:
        return factors
    inner = _factors_in_scans(factors, scanned[1:])

    def outer(delta: Array, h: Array) -> tuple[Array, Array]:
        delta, h = jax.vmap(inner)(delta, h)
        return _merge_iterations(delta, scanned[0]), _merge_iterations(h, scanned[0])

    return outer


def _merge_iterations(x: Array, into_groups: bool) -> Array:
    """`(iterations, g, t, a)` with the iterations merged into the groups g, or the positions t."""
    r, g, t, a = x.shape
    return x.reshape(r * g, t, a) if into_groups else jnp.moveaxis(x, 0, 1).reshape(g, r * t, a)
