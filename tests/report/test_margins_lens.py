"""Tests of the lens on margins, for linear binary classifiers."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.models import MLP, least_squares
from thetax.recipes.engine.outcome import Outcome
from thetax.report import look
from thetax.train import binary_cross_entropy


def outcome(make):
    xs = np.asarray(jr.normal(jr.key(0), (60, 2)), np.float32)
    ys = (xs[:, 0] > xs[:, 1]).astype(np.int32)
    data = xs[:40], ys[:40]
    return Outcome(
        make(*data), data, (xs[40:], ys[40:]), binary_cross_entropy, {}, ("no", "yes"), {}, "", 0.0
    )


@pytest.mark.slow
def test_a_linear_classifier_has_margins(tmp_path):
    linear = outcome(lambda xs, ys: least_squares(jnp.asarray(xs), jnp.asarray(2.0 * ys - 1.0)))
    page = look(linear, tmp_path).read_text("utf-8")
    w = np.asarray(linear.model.W[0], float)
    b = float(linear.model.b[0])
    xs, ys = linear.train
    worst = ((2 * ys - 1) * (xs @ w + b) / np.linalg.norm(w)).min()
    assert ">Margins<" in page
    assert f"{worst:.4g}" in page


@pytest.mark.slow
def test_a_network_has_no_margins(tmp_path):
    page = look(outcome(lambda xs, ys: MLP.init(2, 4, 1, key=jr.key(1))), tmp_path).read_text(
        "utf-8"
    )
    assert ">Margins<" not in page
    assert ">Linear regions and decision boundary<" in page
