r"""Where the parameters of any model meet its data, read from its program.

A weight enters almost every network through a product $z = W h$, a convolution, or a row looked up
in a table. Its gradient is then $\nabla_W f = \sum_\tau \delta_\tau h_\tau^\top$ with
$\delta_\tau = \partial f / \partial z_\tau$, over all places $\tau$ at which it is used: pixels,
tokens, rounds of a loop. Who knows the factors $h$ and $\delta$ need not write the gradient down.
They are found in the program that JAX traces, whatever module wrote it: it is run with a zero added
to each $z$, a tap, and the derivative by that zero is $\delta$.

A bias that is added to a product has the same $\delta$, and $h = 1$. A parameter that enters
otherwise (a gain), or at two places that share numbers, keeps its gradient whole.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Literal
from jaxtyping import Array

from ...jaxpr import Scan, called, done, scan_of
from .weight_use_rules import RULES, Do, number

Box = tuple[tuple[int, int], ...]  # a part of an array: from where to where along each axis


class Piece(NamedTuple):
    """A parameter, or a part of one, that no data have met yet."""

    leaf: int
    value: Any
    box: Box  # which part of the leaf it is
    scale: float = 1.0  # times the leaf
    moved: bool = False  # whether its axes are no longer those of the leaf
    handed: tuple[
        bool, ...
    ] = ()  # for each loop around it, whether every round gets a part of its own


class Junction(NamedTuple):
    r"""Where a leaf meets data. Its factors are $\delta$, $(g, \tau, a)$, and $h$, $(g, \tau, c)$,
    and the gradient is $\sum_\tau \delta_{g \tau a} h_{g \tau c}$, for each $g$ of another part of
    the leaf.

    A row that is looked up is a product with the indicator of its number; then $h$ is that number,
    and $c$ is 1.
    """

    leaf: int
    box: Box
    looked_up: bool
    tap: jax.ShapeDtypeStruct  # z, with the rounds of the loops around it
    met: jax.ShapeDtypeStruct  # what the leaf met, with these too
    factors: Callable[
        [Array, Array], tuple[Array, Array]
    ]  # of the derivative by the tap, and what was met
    scale: float = 1.0  # times the leaf
    bias: Piece | None = None  # what is added to the product


class Found(NamedTuple):
    """The junctions of a program in the order in which it comes to them, and of each loop how many
    are in it.
    """

    junctions: list[Junction]
    loops: list[Any]

    def leaves(self) -> set[int]:
        """Those that are told by their factors."""
        parts = [part for junction in self.junctions for part in (junction, junction.bias)]
        return {part.leaf for part in parts if part is not None}


def junctions(
    program: Any, leaves: Sequence[Any], rest: Sequence[Any], *, whole: frozenset[int] = frozenset()
) -> Found:
    """The junctions of a closed program whose first arguments are the parameters, but for leaves
    that shall be `whole`.

    A leaf has junctions, and then all that it does is told by them, or none. Arguments may be
    shapes alone.
    """
    while True:
        walk = Walk()

        def once(leaves, rest, walk=walk, whole=whole):
            outs = walk.run(program.jaxpr, program.consts, [*_pieces(leaves, whole), *rest])
            return [walk.settle(out) for out in outs]

        jax.eval_shape(once, list(leaves), list(rest))
        more = walk.whole | _shared(walk.found.junctions)
        if not more:
            return walk.found
        whole = whole | more


def tapped(
    program: Any, found: Found, leaves: Sequence[Any], rest: Sequence[Any], taps: Sequence[Array]
) -> tuple[list[Array], list[Array]]:
    """What the program gives with taps at its junctions, and what was met at each of them."""
    walk = Walk(taps, found.loops)
    whole = frozenset(range(len(leaves))) - found.leaves()
    return walk.run(program.jaxpr, program.consts, [*_pieces(leaves, whole), *rest]), walk.met


def _pieces(leaves: Sequence[Any], whole: frozenset[int]) -> list[Any]:
    box = lambda leaf: tuple((0, size) for size in leaf.shape)
    return [leaf if at in whole else Piece(at, leaf, box(leaf)) for at, leaf in enumerate(leaves)]


def _shared(found: list[Junction]) -> set[int]:
    """The leaves with numbers that enter at two places."""
    used = [part for junction in found for part in (junction, junction.bias) if part is not None]
    meet = lambda a, b: (
        a.leaf == b.leaf and all(i < y and x < j for (i, j), (x, y) in zip(a.box, b.box))
    )
    return {a.leaf for a, b in combinations(used, 2) if meet(a, b)}


class Last(NamedTuple):
    """What came out of the last junction, times a number; which of its axes are rows of the leaf,
    and its loops.
    """

    z: Any
    rows: tuple[int, ...]
    handed: tuple[bool, ...]
    factor: float = 1.0


class Walk:
    """One run through a program, in which parameters stay apart until they meet data."""

    def __init__(self, taps: Sequence[Array] | None = None, loops: Sequence[Any] = ()):
        self.taps, self.ahead = taps, iter(loops)
        self.found, self.met, self.whole = Found([], []), [], set()
        self.last = Last(None, (), ())

    def run(self, program: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        known: dict[Any, Any] = dict(
            zip((*program.constvars, *program.invars), (*consts, *args), strict=True)
        )
        read = lambda v: v.val if isinstance(v, Literal) else known[v]
        for equation in program.eqns:
            outs = self.step(program, equation, [read(v) for v in equation.invars])
            known.update(zip(equation.outvars, outs, strict=True))
        return [read(v) for v in program.outvars]

    def step(self, program: Any, equation: Any, ins: list[Any]) -> list[Any]:
        """What an operation gives; one without a parameter is done as it stands."""
        do = partial(done, program, equation)
        how = equation.params
        name = equation.primitive.name
        pieces = [at for at, value in enumerate(ins) if isinstance(value, Piece)]
        if pieces and name == "scan":
            return self.loop(scan_of(equation), ins)
        if pieces and (inner := called(equation)) is not None:
            return self.run(inner.jaxpr, inner.consts, ins)
        if name == "mul" and not pieces and any(value is self.last.z for value in ins):
            return self.times(do, ins)
        if (
            len(pieces) == 1
            and name in RULES
            and (out := RULES[name](self, do, how, ins, *pieces)) is not None
        ):
            return [out]
        return do([self.settle(value) for value in ins])

    def times(self, do: Do, ins: list[Any]) -> list[Any]:
        """What the last junction gave, times a number."""
        out = do(ins)
        numbers = [number(value) for value in ins if value is not self.last.z]
        if len(numbers) == 1 and numbers[0]:
            self.last = self.last._replace(z=out[0], factor=self.last.factor * numbers[0])
        return out

    def settle(self, value: Any) -> Any:
        """The numbers; a parameter of which they are asked keeps its gradient whole."""
        if not isinstance(value, Piece):
            return value
        self.whole.add(value.leaf)
        return value.value

    def meet(
        self,
        piece: Piece,
        z: Array,
        h: Array,
        factors: Callable[..., Any],
        *,
        looked_up: bool = False,
        rows: Any = (),
    ) -> Array:
        """Takes down a junction, and adds its tap; `rows` are the axes of z along which a bias may
        be added.
        """
        along = _along(factors, piece.handed)
        junction = Junction(
            piece.leaf, piece.box, looked_up, _shape(z), _shape(h), along, piece.scale
        )
        self.found.junctions.append(junction)
        self.met.append(h)
        z = z if self.taps is None else z + self.taps[len(self.met) - 1]
        self.last = Last(z, tuple(rows), piece.handed)
        return z

    def loop(self, how: Scan, ins: list[Any]) -> list[Any]:
        """A scan: what it holds fixed is one piece in every round, what it runs along a part for
        each round.
        """
        kept, carried = how.consts, how.carry
        fixed = ins[:kept]
        along = ins[kept + carried :]
        start = [self.settle(value) for value in ins[kept : kept + carried]]
        count, ahead = next(self.ahead) if self.taps is not None else (0, ())
        taps = None if self.taps is None else list(self.taps[len(self.met) : len(self.met) + count])
        walks: list[Walk] = []

        def one(state, item):
            parts, taps = item
            walk = Walk(taps, ahead)
            walks.append(walk)
            held = [_inside(value, value, False) for value in fixed]
            parts = [_inside(value, part, True) for value, part in zip(along, parts)]
            outs = walk.run(how.body.jaxpr, how.body.consts, [*held, *state, *parts])
            outs = [walk.settle(out) for out in outs]
            return outs[:carried], (outs[carried:], walk.met)

        values = [value.value if isinstance(value, Piece) else value for value in along]
        state, (outs, met) = jax.lax.scan(
            one, start, (values, taps), how.length, how.reverse, how.unroll
        )
        walk = walks[-1]
        self.whole |= walk.whole
        self.found.loops.append((len(met), walk.found.loops))
        again = lambda shape: jax.ShapeDtypeStruct((how.length, *shape.shape), shape.dtype)
        self.found.junctions.extend(
            j._replace(tap=again(j.tap), met=again(j.met)) for j in walk.found.junctions
        )
        self.met.extend(met)
        return [*state, *outs]


def _inside(value: Any, now: Any, handed: bool) -> Any:
    """A value as the body of a loop has it."""
    if not isinstance(value, Piece):
        return now
    now = now if handed else value.value
    return value._replace(value=now, moved=value.moved or handed, handed=(*value.handed, handed))


def _shape(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _along(
    factors: Callable[..., Any], handed: tuple[bool, ...]
) -> Callable[[Array, Array], tuple[Array, Array]]:
    """The factors of a junction inside loops: a round that has a part of its own is a group, any
    other a place.
    """
    if not handed:
        return factors
    inner = _along(factors, handed[1:])

    def outer(delta: Array, h: Array) -> tuple[Array, Array]:
        join = lambda x: _join(x, handed[0])
        d, h = jax.vmap(inner)(delta, h)
        return join(d), join(h)

    return outer


def _join(x: Array, group: bool) -> Array:
    """`r g t a`: the rounds joined to the groups, or to the places."""
    r, g, t, a = x.shape
    return x.reshape(r * g, t, a) if group else jnp.moveaxis(x, 0, 1).reshape(g, r * t, a)
