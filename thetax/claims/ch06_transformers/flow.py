"""Which parts of a network hand vectors to which, read off the program that JAX makes of it.

Every number of a model belongs to a part: a `Linear`, a norm, a table. An operation that uses
numbers of a part is that part at work, and what it puts out comes from that part. Two vectors from
unlike parts that are added are a sum, "+1", "+2", ... A vector that leaves one part and is used by
another, whatever is done to it on the way, is an arrow.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from ...jaxpr import inner_programs
from ...tree import dotted

Arrows = list[tuple[str, str]]
SUM = ("add", "add_any")
NOWHERE = ("vector", frozenset())


def flow(
    f: Callable[..., Any], model: Any, inputs: Mapping[str, Any], *, whole: Sequence[str] = ()
) -> Arrows:
    """The arrows of `f(model, *inputs)`, in the order of the program, from the inputs by their
    names to "output".

    A compiled function whose name is in `whole` is a part of its own.

    >>> import jax.numpy as jnp, jax.random as jr
    >>> from thetax.layers import Attention
    >>> flow(
    ...     lambda layer, x: layer(x), Attention.init(2, 1, key=jr.key(0)), {"X": jnp.ones((3, 2))}
    ... )[-2:]
    [('V', 'O'), ('O', 'output')]
    """
    leaves, _ = jax.tree.flatten_with_path(model)
    program = jax.make_jaxpr(f)(model, *inputs.values()).jaxpr
    given = [("part", _owner(dotted(path))) for path, _ in leaves]
    given += [("vector", frozenset([name])) for name in inputs]
    walk = _Walk(whole)
    walk.along(program, given, arrive="output")
    return list(walk.arrows)


class _Walk:
    """Along a program; what is known of each value is the part it is a number of, or the parts it
    comes from.
    """

    def __init__(self, whole: Sequence[str]):
        self.arrows: dict[tuple[str, str], None] = {}
        self.whole, self.sums = whole, 0

    def along(self, program: Any, given: Sequence[Any], arrive: str = "") -> list[Any]:
        known = dict(zip(program.invars, given))
        look = lambda v: NOWHERE if hasattr(v, "val") else known.get(v, NOWHERE)
        for equation in program.eqns:
            found = [look(v) for v in equation.invars]
            inner = _inside(equation)
            name = equation.params.get("name")
            if name in self.whole:
                outs = [
                    self._arrive(
                        frozenset().union(*(o for kind, o in found if kind == "vector")), name
                    )
                ]
            elif inner is not None and len(inner.invars) == len(found):
                outs = self.along(inner, found)
            else:
                outs = [self._made(equation, found)] * len(equation.outvars)
            known |= dict(zip(equation.outvars, outs))
        ends = [look(v) for v in program.outvars]
        return [self._arrive(origin, arrive) for _, origin in ends] if arrive else ends

    def _made(self, equation: Any, found: list[Any]) -> Any:
        name = equation.primitive.name
        parts = [owner for kind, owner in found if kind == "part"]
        if (
            name != "gather" and equation.outvars[0].aval.dtype.kind == "f"
        ):  # a mask or a length is no vector
            found = [item for item, v in zip(found, equation.invars) if v.aval.dtype.kind == "f"]
        origins = [origin for kind, origin in found if kind == "vector" and origin]
        if not origins:
            return ("part", parts[0]) if parts else NOWHERE
        merged = frozenset().union(*origins)
        if parts:
            return self._arrive(merged, parts[0])
        if name in SUM and len(origins) == 2 and origins[0] != origins[1]:
            self.sums += 1
            return self._arrive(merged, f"+{self.sums}")
        return "vector", merged

    def _arrive(self, origin: frozenset[str], part: str) -> Any:
        self.arrows |= {(source, part): None for source in sorted(origin) if source != part}
        return "vector", frozenset([part])


def _owner(leaf: str) -> str:
    """The part a number belongs to; what the model itself holds is a part of its own."""
    return leaf.rpartition(".")[0] or leaf


def _inside(equation: Any) -> Any:
    """The program of a function called, or of one round of a scan, whose inputs are those of the
    call.
    """
    inner = inner_programs(equation)
    return inner[0].jaxpr if inner else None


def renamed(arrows: Arrows, names: Mapping[str, str]) -> Arrows:
    """The arrows with parts that begin alike taken together under one name; those within one are
    left out.

    >>> renamed(
    ...     [("X", "look.Q"), ("look.Q", "look.O"), ("look.O", "output")], {"look": "attention"}
    ... )
    [('X', 'attention'), ('attention', 'output')]
    """

    def called(part: str) -> str:
        return next(
            (
                name
                for start, name in names.items()
                if part == start or part.startswith(f"{start}.")
            ),
            part,
        )

    found = dict.fromkeys((called(a), called(b)) for a, b in arrows)
    return [(a, b) for a, b in found if a != b]
