"""Bounds of random programs, and the fuzzer itself on rules that are known to be wrong."""

from collections import Counter

import jax.numpy as jnp
import numpy as np
import pytest
from bounds_fuzz import BINARY, UNARY, Program, Step, Violation, binary, check, examine, unary

from thetax.certify.bounds import interval, interval_rules
from thetax.certify.bounds.interval_rules import (
    ANY,
    BOOLS,
    FLOATS,
    Rule,
    monotone_decreasing,
    monotone_increasing,
)

pytestmark = pytest.mark.usefixtures("x64")
INTEGERS = ("int32", "uint8")


@pytest.mark.parametrize("seed", range(8))
def test_no_point_leaves_the_bounds_of_a_random_program(seed):
    """For more: python -m tests.bounds_fuzz --minutes 60."""
    check(seed, Counter(), linear=seed == 1)


def clipped(domain):
    return lambda op, params, ins: monotone_increasing(
        op, params, [ins[0]._replace(low=jnp.maximum(ins[0].low, domain))]
    )


BROKEN = {  # a step that shows it, and rules without their domains
    "a cast to bool rises": (
        "to bool",
        {"convert_element_type": Rule(monotone_increasing, FLOATS + BOOLS, ANY)},
    ),
    "a cast to an integer rises": (
        "wrap",
        {"convert_element_type": Rule(monotone_increasing, FLOATS + INTEGERS, ANY)},
    ),
    "bits of integers rise": (
        "last bit",
        {
            "convert_element_type": Rule(monotone_increasing, FLOATS + INTEGERS, ANY),
            "and": Rule(monotone_increasing, BOOLS + INTEGERS, ANY),
            **{
                name: Rule(monotone_increasing, FLOATS + BOOLS + INTEGERS, ANY)
                for name in ("broadcast_in_dim", "reshape")
            },
        },
    ),
    "a root has no NaN": ("sqrt", {"sqrt": Rule(clipped(0.0), FLOATS, ANY)}),
    "a sine rises": ("sin", {"sin": Rule(monotone_increasing, FLOATS, ANY)}),
    "a negative rises": ("negative", {"neg": Rule(monotone_increasing, FLOATS, ANY)}),
    "any quotient has its corners": (
        "reciprocal",
        {"integer_pow": Rule(monotone_decreasing, FLOATS, ANY)},
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_wrong_rule_is_detected(name, monkeypatch):
    shown, rules = BROKEN[name]
    program = Program((), (Step(shown, lambda z: unary(UNARY[shown], z), (0,)),))
    examine(program, np.random.default_rng(0), Counter(), linear=False)  # refused, or sound
    monkeypatch.setattr(interval_rules, "FLOATS", FLOATS + INTEGERS)
    for operation, rule in rules.items():
        monkeypatch.setitem(interval_rules.RULES, operation, rule)
    with pytest.raises(Violation, match="not in"):
        examine(program, np.random.default_rng(0), Counter(), linear=False)


def test_a_wrongly_recognised_product_is_detected(monkeypatch):
    """A function of two arguments that contains a product need not be bilinear."""
    f = BINARY["custom matmul of one"]
    constant = jnp.array([0.5, -1.0, 2.0, 1.0])
    program = Program((constant,), (Step("a @ a", lambda z, b: binary(f, z, b), (0, 1)),))
    examine(program, np.random.default_rng(0), Counter(), linear=False)
    monkeypatch.setattr(interval, "_is_product", lambda program: True)
    with pytest.raises(Violation, match="not in"):
        examine(program, np.random.default_rng(0), Counter(), linear=False)
