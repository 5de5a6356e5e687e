"""The data flow between the parts of a network, read from its jaxpr.

Every parameter of a model belongs to a part: a `Linear`, a norm, a table. The output of an
operation that uses parameters of a part belongs to that part. The sum of two vectors from different
parts is a node of its own, "+1", "+2", ... A vector of one part that is used by another, whatever
happens to it in between, is an arrow.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from ...jaxpr import inner_programs
from ...tree import path_name

Arrows = list[tuple[str, str]]
SUM = ("add", "add_any")
NOWHERE = ("vector", frozenset())


def flow(
    f: Callable[..., Any], model: Any, inputs: Mapping[str, Any], *, atomic: Sequence[str] = ()
) -> Arrows:
    """The arrows of `f(model, *inputs)`, in the order of the program, from the names of the inputs
    to "output".

    A compiled function whose name is in `atomic` counts as one part.

    >>> import jax.numpy as jnp, jax.random as jr
    >>> from thetax.layers import Attention
    >>> flow(
    ...     lambda layer, x: layer(x), Attention.init(2, 1, key=jr.key(0)), {"X": jnp.ones((3, 2))}
    ... )[-2:]
    [('V', 'O'), ('O', 'output')]
    """
    leaves, _ = jax.tree.flatten_with_path(model)
    program = jax.make_jaxpr(f)(model, *inputs.values()).jaxpr
    sources = [("part", _owner(path_name(path))) for path, _ in leaves]
    sources += [("vector", frozenset([name])) for name in inputs]
    walk = _Walk(atomic)
    walk.along(program, sources, arrive="output")
    return list(walk.arrows)


class _Walk:
    """Walks through a program; each value is mapped to the part whose parameter it is, or to the
    parts it comes from.
    """

    def __init__(self, atomic: Sequence[str]):
        self.arrows: dict[tuple[str, str], None] = {}
        self.atomic, self.sums = atomic, 0

    def along(self, program: Any, sources: Sequence[Any], arrive: str = "") -> list[Any]:
        origin_of = dict(zip(program.invars, sources))
        look = lambda v: NOWHERE if hasattr(v, "val") else origin_of.get(v, NOWHERE)
        for equation in program.eqns:
            operands = [look(v) for v in equation.invars]
            inner = _inside(equation)
            name = equation.params.get("name")
            if name in self.atomic:
                outs = [
                    self._arrive(
                        frozenset().union(*(o for kind, o in operands if kind == "vector")), name
                    )
                ]
            elif inner is not None and len(inner.invars) == len(operands):
                outs = self.along(inner, operands)
            else:
                outs = [self._made(equation, operands)] * len(equation.outvars)
            origin_of |= dict(zip(equation.outvars, outs))
        ends = [look(v) for v in program.outvars]
        return [self._arrive(origin, arrive) for _, origin in ends] if arrive else ends

    def _made(self, equation: Any, operands: list[Any]) -> Any:
        name = equation.primitive.name
        parts = [owner for kind, owner in operands if kind == "part"]
        if (
            name != "gather" and equation.outvars[0].aval.dtype.kind == "f"
        ):  # a mask or a length is not a vector
            operands = [
                item for item, v in zip(operands, equation.invars) if v.aval.dtype.kind == "f"
            ]
        origins = [origin for kind, origin in operands if kind == "vector" and origin]
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
    """The part a parameter belongs to; arrays of the model itself form their own part."""
    return leaf.rpartition(".")[0] or leaf


def _inside(equation: Any) -> Any:
    """The program of a called function, or of one iteration of a scan, whose inputs are those of
    the call.
    """
    inner = inner_programs(equation)
    return inner[0].jaxpr if inner else None


def group_parts(arrows: Arrows, names: Mapping[str, str]) -> Arrows:
    """The arrows with parts grouped by prefix under one name; arrows within a group are dropped.

    >>> group_parts(
    ...     [("X", "attend.Q"), ("attend.Q", "attend.O"), ("attend.O", "output")],
    ...     {"attend": "attention"},
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

    results = dict.fromkeys((called(a), called(b)) for a, b in arrows)
    return [(a, b) for a, b in results if a != b]
