"""What the tool changes in a module, and what it leaves."""

import ast
import random

from mutants import ROOT, choose, mutants

SOURCE = b'''
def far(x, y, *, scale: float = 2.0):
    """The 1/2 of a docstring."""
    if x < 0:
        raise ValueError(f"far: x must not be below {1 + 1}.")
    total = (x[0] - y).sum(axis=0)
    return jnp.where(total > 3, -total, jnp.sqrt(scale)) @ y

class Cell:
    size: int = 3
    def step(self, z, key):
        return jr.normal(key, 4) + (lambda a: a / z)(self.b)
'''


def test_every_change_of_a_formula_and_none_elsewhere():
    lines = SOURCE.decode().splitlines()
    found = mutants(SOURCE)
    assert {lines[mutant.line - 1].strip() for mutant in found} == {
        lines[i].strip() for i in (5, 6, 11)
    }
    assert {mutant.function for mutant in found} == {"far", "Cell.step"}
    changed = [mutant.diff(SOURCE)[1] for mutant in found]
    for expected in (
        "total = (x[0] + y).sum(axis=0)",
        "total = (x[0]).sum(axis=0)",
        "total = (x[1] - y).sum(axis=0)",
        "total = (x[0] - y).mean(axis=0)",
        "total = (x[0] - y).sum(axis=1)",
        "return jnp.where(total >= 3, -total, jnp.sqrt(scale)) @ y",
        "return jnp.where(total > 4, -total, jnp.sqrt(scale)) @ y",
        "return jnp.where(total > 3, total, jnp.sqrt(scale)) @ y",
        "return jnp.where(total > 3, -total, scale) @ y",
        "return jnp.where(total > 3, jnp.sqrt(scale), -total) @ y",
        "return y @ jnp.where(total > 3, -total, jnp.sqrt(scale))",
        "return jr.normal(key, 4) + (lambda a: a * z)(self.b)",
    ):
        assert expected in changed
    assert not any("normal(4, key)" in line for line in changed)
    assert len(set(changed)) == len(changed)


def test_they_are_modules_of_python():
    """Some of a real module: each differs from it and can be parsed."""
    source = (ROOT / "thetax/layers/recurrent/lstm_gru.py").read_bytes()
    before = ast.dump(ast.parse(source))
    for mutant in mutants(source)[::5]:
        assert ast.dump(ast.parse(mutant.applied(source))) != before


def test_the_same_seed_takes_the_same_of_several_kinds():
    found = mutants((ROOT / "thetax/layers/recurrent/lstm_gru.py").read_bytes())
    first, again = (choose(found, 12, random.Random(3)) for _ in range(2))
    assert first == again
    assert first != choose(found, 12, random.Random(4))
    assert len(set(first)) == 12
    assert len({mutant.kind for mutant in first}) >= 5
    assert len(choose(found, 10**6, random.Random(0))) == len(found)
