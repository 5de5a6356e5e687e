"""The program that JAX traces of a function, run one operation at a time.

Who reads it can do something else at some of its operations, whatever module wrote them: keep
parameters apart, or carry bounds in place of numbers.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

# operations that do what the program among their parameters does, to the same arguments, once
CALLS = (
    *("jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint", "composite"),
    *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_vmap_call"),
)


class Closed(NamedTuple):
    """A program and the constants that it holds."""

    jaxpr: Any
    consts: Sequence[Any]


class Scan(NamedTuple):
    """A `lax.scan`: its body takes constants, carry and one slice of each sequence; it gives the
    carry and slices.
    """

    body: Closed
    consts: int  # how many of the operands are constants, which come first
    carry: int  # how many are the initial carry, which comes next; the rest are sequences
    length: int
    reverse: bool
    unroll: int


def scan_of(equation: Any) -> Scan:
    """The parts of a scan, read from its shapes: JAX 0.10 and 0.11 write the counts in different
    parameters.

    A sequence has one axis more outside of the body than inside, and nothing else has.

    >>> import jax, jax.numpy as jnp
    >>> f = lambda w, xs: jax.lax.scan(lambda h, x: (h + w * x, h), 0.0, xs)
    >>> scan_of(jax.make_jaxpr(f)(2.0, jnp.ones(3)).eqns[-1])[1:]
    (1, 1, 3, False, 1)
    """
    body = closed(equation.params["jaxpr"])
    how = equation.params
    carry = len(equation.outvars) - _longer(equation.outvars, body.jaxpr.outvars)
    consts = len(equation.invars) - _longer(equation.invars, body.jaxpr.invars) - carry
    return Scan(body, consts, carry, how["length"], how["reverse"], how["unroll"])


def _longer(outside: Sequence[Any], inside: Sequence[Any]) -> int:
    return sum(a.aval.ndim > b.aval.ndim for a, b in zip(outside, inside, strict=True))


def closed(held: Any) -> Closed:
    """A program and its constants, whether the version of JAX keeps them in one object or two."""
    program = getattr(held, "jaxpr", held)
    return Closed(program, tuple(getattr(held, "consts", ())))


def inner_programs(equation: Any) -> list[Closed]:
    """The programs inside an equation: of a loop the condition and the body, of a choice each
    branch, of a call one.

    >>> import jax
    >>> program = jax.make_jaxpr(lambda x: jax.lax.cond(x > 0, jax.numpy.sin, jax.numpy.cos, x))(
    ...     1.0
    ... )
    >>> [branch.jaxpr.eqns[0].primitive.name for branch in inner_programs(program.eqns[-1])]
    ['cos', 'sin']
    """
    held = jax.tree.leaves(list(equation.params.values()), is_leaf=_is_program)
    return [closed(value) for value in held if _is_program(value)]


def _is_program(held: Any) -> bool:
    return hasattr(held, "eqns") or hasattr(held, "jaxpr")


def called(equation: Any) -> Closed | None:
    """The program of a function that is called, with as many arguments; None for every other
    operation.

    A loop, a choice, a reduction and a scatter hold programs too, but do not do them once to their
    arguments.
    """
    if equation.primitive.name not in CALLS:
        return None
    for held in equation.params.values():
        if hasattr(held, "eqns") or hasattr(held, "jaxpr"):
            inner = closed(held)
            if len(inner.jaxpr.invars) == len(equation.invars):
                return inner
    return None


def done(program: Any, equation: Any, ins: list[Any]) -> list[Any]:
    """One operation of a program, as a program of its own."""
    given = {v: value for v, value in zip(equation.invars, ins) if not isinstance(v, Literal)}
    alone = program.replace(
        constvars=[], invars=list(given), outvars=list(equation.outvars), eqns=[equation]
    )
    return jaxpr_as_fun(ClosedJaxpr(alone, []))(*given.values())
