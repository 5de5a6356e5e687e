"""Reading jaxprs, the programs that JAX traces from functions, and evaluating them one equation at
a time.

An interpreter built on these functions can replace some operations of any function, for instance to
propagate bounds instead of numbers.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

# Primitives that apply the program in their parameters once, to their arguments.
CALLS = (
    *("jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint", "composite"),
    *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_vmap_call"),
)


class Program(NamedTuple):
    """A jaxpr and the values of its constants."""

    jaxpr: Any
    consts: Sequence[Any]


class Scan(NamedTuple):
    """The parts of a `lax.scan`. Its body takes constants, the carry and one slice of each
    sequence, and returns the carry and output slices.
    """

    body: Program
    consts: int  # number of constants, the first operands
    carry: int  # number of carry values, the next operands; the rest are sequences
    length: int
    reverse: bool
    unroll: int


def scan_parts(equation: Any) -> Scan:
    """The parts of a scan equation, derived from its shapes, since JAX 0.10 and 0.11 store the
    counts in different parameters.

    Sequences, and nothing else, have one more axis outside the body than inside.

    >>> import jax, jax.numpy as jnp
    >>> f = lambda w, xs: jax.lax.scan(lambda h, x: (h + w * x, h), 0.0, xs)
    >>> scan_parts(jax.make_jaxpr(f)(2.0, jnp.ones(3)).eqns[-1])[1:]
    (1, 1, 3, False, 1)
    """
    body = as_program(equation.params["jaxpr"])
    params = equation.params
    carry = len(equation.outvars) - _count_sequences(equation.outvars, body.jaxpr.outvars)
    consts = len(equation.invars) - _count_sequences(equation.invars, body.jaxpr.invars) - carry
    return Scan(body, consts, carry, params["length"], params["reverse"], params["unroll"])


def _count_sequences(outside: Sequence[Any], inside: Sequence[Any]) -> int:
    return sum(a.aval.ndim > b.aval.ndim for a, b in zip(outside, inside, strict=True))


def as_program(jaxpr: Any) -> Program:
    """The program of a `Jaxpr` or a `ClosedJaxpr`."""
    return Program(getattr(jaxpr, "jaxpr", jaxpr), tuple(getattr(jaxpr, "consts", ())))


def inner_programs(equation: Any) -> list[Program]:
    """The programs inside an equation: the condition and body of a loop, the branches of a `cond`,
    the function of a call.

    >>> import jax
    >>> f = lambda x: jax.lax.cond(x > 0, jax.numpy.sin, jax.numpy.cos, x)
    >>> program = jax.make_jaxpr(f)(1.0)
    >>> [branch.jaxpr.eqns[0].primitive.name for branch in inner_programs(program.eqns[-1])]
    ['cos', 'sin']
    """
    values = jax.tree.leaves(list(equation.params.values()), is_leaf=_is_program)
    return [as_program(value) for value in values if _is_program(value)]


def _is_program(value: Any) -> bool:
    return hasattr(value, "eqns") or hasattr(value, "jaxpr")


def called_program(equation: Any) -> Program | None:
    """The program of a call such as `jit` or `checkpoint`, which is applied once to the arguments
    of the equation; None for other equations.

    A loop, a `cond`, a reduction and a scatter contain programs too, but do not apply them once.
    """
    if equation.primitive.name not in CALLS:
        return None
    for value in equation.params.values():
        if _is_program(value):
            inner = as_program(value)
            if len(inner.jaxpr.invars) == len(equation.invars):
                return inner
    return None


def evaluate_equation(program: Any, equation: Any, ins: list[Any]) -> list[Any]:
    """Evaluates one equation of a program for the given input values."""
    inputs = {v: value for v, value in zip(equation.invars, ins) if not isinstance(v, Literal)}
    single = program.replace(
        constvars=[], invars=list(inputs), outvars=list(equation.outvars), eqns=[equation]
    )
    return jaxpr_as_fun(ClosedJaxpr(single, []))(*inputs.values())
