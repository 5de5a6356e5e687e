"""Twenty formulas of the library, each broken by one sign or index: the claim that covers it must notice.

A formula is broken in the source of its function, which is compiled anew and put in its place everywhere.
"""

import inspect
import sys
import textwrap
from importlib import import_module
from typing import NamedTuple

import jax
import pytest

from thetax.claims import find_claims, settle


class Break(NamedTuple):
    """What is replaced in which function, and the row that must fail."""

    function: str
    right: str
    wrong: str
    row: str


BREAKS = [
    Break("models.separate.signed_distance", "y * model.score(x)", "-y * model.score(x)", "1.2-signed-distance"),
    Break("models.perceptron._rosenblatt", "jnp.sum(v * z) > 0", "jnp.sum(v * z) >= 0", "1.2-perceptron-alg"),
    Break("certify.capacity.cover_count", "comb(n - 1, i)", "comb(n, i)", "1.2-cover"),
    Break("explain.recall.crosstalk", "- (n - 1) * X", "- n * X", "1.4-crosstalk"),
    Break("models.hopfield.hebb", "dtype=X.dtype)) / d", "dtype=X.dtype)) / n", "1.4-hebb"),
    Break("models.regression.ridge", "centre_y - W @ centre_x", "centre_y + W @ centre_x", "2.1-ols"),
    Break("train.loss.log_loss", "jax.nn.logsumexp(z) - jnp", "jax.nn.logsumexp(z) + jnp", "2.2-cross-entropy"),
    Break("models.approximate.interpolate", "-knots[:-1]", "-knots[1:]", "2.6-lebesgue"),
    Break("certify.regions.zaslavsky", "range(min(m, n) + 1)", "range(min(m, n))", "2.6-zaslavsky"),
    Break("train.optimise.nesterov", "* (new - old)", "* (old - new)", "3.3-nesterov"),
    Break("train.optimise.uncorrected_adam", "(1 - decay) * jnp.square(g)", "(1 + decay) * jnp.square(g)", "3.3-adam"),
    Break("explain.shrinkage.decay_factor", "lam + strength, out", "lam + 2 * strength, out", "8.2-wd-shrinkage"),
    Break("layers.dropout.thin", "jnp.asarray(1 - p, x.dtype)", "jnp.asarray(1 + p, x.dtype)", "8.4-dropout-scaling"),
    Break("train.distil.tempered_loss", "return -jnp.vdot", "return jnp.vdot", "8.9-distill-loss"),
    Break("explain.modes.modes", "V.T @ (ys - f)", "V.T @ (ys + f)", "9.1-prediction"),
    Break("attack.affine.distances", "gaps / jnp.where", "-gaps / jnp.where", "13.1-affine-optimal"),
    Break("attack.norm.p_steepest", "** (q - 1)", "** q", "13.1-dual-norm"),
    Break("attack.gradient.unit", "return g / jnp", "return -g / jnp", "13.2-fgsm"),
    Break("models.deep_linear.imbalance", "- before @ before.T", "+ before @ before.T", "L1-deep-linear-dynamics"),
    Break("models.autoencoder.principal_components", "C = Ut[:width]", "C = Ut[-width:]", "L1-optimal-ae"),
]  # fmt: skip


@pytest.fixture
def fresh():
    """Programs compiled from a broken formula must not be found by another test, nor the other way round."""
    jax.clear_caches()
    yield
    jax.clear_caches()


def broken(breaking: Break):
    """The function before, and the same with the formula broken."""
    folder, _, name = f"thetax.{breaking.function}".rpartition(".")
    module = import_module(folder)
    function = getattr(module, name)
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    assert source.count(breaking.right) == 1, "the formula has moved: name it anew"
    names = dict(vars(module))
    exec(compile(source.replace(breaking.right, breaking.wrong), folder, "exec"), names)
    return function, names[name]


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("breaking", BREAKS, ids=lambda breaking: breaking.function)
def test_a_broken_formula_is_noticed(breaking, monkeypatch):
    before, after = broken(breaking)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "thetax":
            for place in [place for place, thing in vars(module).items() if thing is before]:
                monkeypatch.setattr(module, place, after)
    (claim,) = (claim for claim in find_claims(breaking.row) if claim.kind != "erratum")
    finding = settle(claim)
    assert not finding.holds
    assert finding.verdict is not None, f"it must fail by its checks, not by an error: {finding.trouble}"
