"""The program that JAX traces of a function, run one operation at a time.

Who reads it can do something else at some of its operations, whatever module wrote them: keep parameters apart, or
carry bounds in place of numbers.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun


class Closed(NamedTuple):
    """A program and the constants that it holds."""

    jaxpr: Any
    consts: Sequence[Any]


def called(equation: Any) -> Any:
    """The program of a function that is called, with as many arguments; nothing for a loop or a choice."""
    if equation.primitive.name in ("while", "cond"):
        return None
    for held in equation.params.values():
        if hasattr(held, "jaxpr") and hasattr(held, "consts") and len(held.jaxpr.invars) == len(equation.invars):
            return held
        if hasattr(held, "eqns") and len(held.invars) == len(equation.invars):
            return Closed(held, ())
    return None


def done(program: Any, equation: Any, ins: list[Any]) -> list[Any]:
    """One operation of a program, as a program of its own."""
    given = {v: value for v, value in zip(equation.invars, ins) if not isinstance(v, Literal)}
    alone = program.replace(constvars=[], invars=list(given), outvars=list(equation.outvars), eqns=[equation])
    return jaxpr_as_fun(ClosedJaxpr(alone, []))(*given.values())
