"""What depends on the versions of Python and of the dependencies: programs that are read, and a
user's first commands.

`make test-versions` runs this and all other tests marked `versions` in one environment for each
Python.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import normal
from jaxtyping import Array, Float

from thetax.certify import certified_accuracy, interval_bounds, linear_bounds
from thetax.explain import count_flops, count_regions, infinite_width_limit, ntk
from thetax.layers import LSTM, Chain, Linear, Recurrent, ntk_parametrisation
from thetax.models import MLP
from thetax.threat import Linf

pytestmark = pytest.mark.versions

SHIFT = np.array([0.5, -1.0, 2.0])  # held by the programs as a constant


@jax.custom_jvp
def bent(x):
    return jnp.where(x > 0, x, 0.1 * x)


bent.defjvp(
    lambda primals, tangents: (bent(*primals), jnp.where(primals[0] > 0, 1.0, 0.1) * tangents[0])
)


@jax.custom_vjp
def doubled(x):
    return 2 * x


doubled.defvjp(lambda x: (doubled(x), None), lambda _, g: (2 * g,))


def scanned(W, x):
    return jax.lax.scan(
        lambda h, shift: (jnp.tanh(W @ h + shift), None), x, jnp.asarray(np.stack([SHIFT, -SHIFT]))
    )[0]


def scanned_over_weights(W, x):
    return jax.lax.scan(lambda h, w: (jnp.tanh(w @ h), h.sum()), x, jnp.stack([W, 2 * W]))[0]


def chosen(W, x):
    return jax.lax.cond(jnp.asarray(SHIFT).sum() > 0, lambda: W, lambda: -W) @ x


def grown(W, x):
    return W @ (jax.lax.while_loop(lambda s: s < 3, lambda s: s + 1.5, jnp.asarray(SHIFT)[0]) * x)


def nested(W, x):
    return jax.jit(lambda x: jax.jit(lambda x: W @ x)(x) + jnp.asarray(SHIFT))(x)


def again(W, x):
    return jax.checkpoint(lambda W, x: jnp.tanh(W @ x + SHIFT))(W, x)


class Reads(eqx.Module):
    """A model of one matrix."""

    W: Float[Array, "3 3"]
    f: Callable = eqx.field(static=True)

    def __call__(self, x: Float[Array, " 3"]) -> Float[Array, " 3"]:
        return self.f(self.W, x)


PRODUCTS = {  # operations in matrix products; a product of 3 by 3 with a vector has 18
    scanned: 2 * 18,
    scanned_over_weights: 2 * 18,
    chosen: 18,
    grown: None,  # how often a while loop runs is not in the program
    lambda W, x: jax.lax.fori_loop(0, 3, lambda i, h: jnp.tanh(W @ h), x): 3 * 18,
    lambda W, x: jax.lax.map(lambda row: row @ x, W): 3 * 6,
    lambda W, x: bent(W @ x): 18,
    lambda W, x: doubled(W @ doubled(x)): 18,
    nested: 18,
    again: 18,
}
NAMES = [
    "scan",
    "scan over weights",
    "cond",
    "while",
    "fori",
    "map",
    "custom_jvp",
    "custom_vjp",
    "jit",
    "remat",
]
read = pytest.mark.parametrize(("f", "products"), PRODUCTS.items(), ids=NAMES)


def made(f):
    return Reads(0.7 * normal(0, 3, 3), f)


@read
@pytest.mark.usefixtures("x64")
def test_the_tangent_kernel_of_a_program(f, products):
    """It is the product of the gradients, which JAX takes without reading the program."""
    model = made(f)
    xs = normal(1, 4, 3)
    J = jax.vmap(jax.jacobian(lambda W, x: f(W, x)), (None, 0))(model.W, xs).reshape(4, 3, 9)
    np.testing.assert_allclose(
        ntk(model)(xs), jnp.einsum("nop,mqp->nmoq", J, J), rtol=1e-9, atol=1e-9
    )


@read
@pytest.mark.usefixtures("x64")
def test_the_bounds_of_a_program(f, products):
    """They hold at the corners of the ball and at random places in it, and lines are no worse than
    intervals.
    """
    model = made(f)
    x = normal(1, 3)
    radius = 0.2
    low, high = jax.jit(lambda x: interval_bounds(model, x - radius, x + radius))(x)
    closer = jax.jit(lambda x: linear_bounds(model, x, Linf(radius)))(x)
    corners = np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, -1).T
    moves = np.concatenate([corners, np.random.default_rng(0).uniform(-1, 1, (50, 3))])
    outs = jax.vmap(model)(x[None] + radius * moves)
    for smaller, larger in pairwise([low, closer[0], outs.min(0), outs.max(0), closer[1], high]):
        assert (smaller <= larger + 1e-9).all()


@read
@pytest.mark.usefixtures("x64")
def test_the_operations_of_a_program(f, products):
    W = jnp.ones((3, 3))
    x = jnp.ones(3)
    if products is None:
        with pytest.raises(ValueError, match="the cost of 'while' depends on the data"):
            count_flops(f, W, x)
    else:
        assert count_flops(f, W, x)["dot_general"] == products


@pytest.fixture(scope="module")
def lstm():
    """Of a sequence of 5 vectors it gives two logits."""
    first, last = jr.split(jr.key(0))
    return Chain(
        Recurrent(LSTM.init(3, 4, key=first)), lambda h: h[-1], Linear.init(4, 2, key=last)
    )


@pytest.mark.usefixtures("x64")
def test_the_kernel_of_an_lstm(lstm):
    lstm = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), lstm)
    xs = normal(1, 3, 5, 3)
    gradients = jax.vmap(jax.jacobian(lambda model, x: model(x)), (None, 0))(lstm, xs)
    J = jnp.concatenate([leaf.reshape(3, 2, -1) for leaf in jax.tree.leaves(gradients)], axis=2)
    np.testing.assert_allclose(
        ntk(lstm)(xs), jnp.einsum("nop,mqp->nmoq", J, J), rtol=1e-9, atol=1e-9
    )


def test_the_certificates_of_an_lstm(lstm):
    """No random search in the ball changes a certified class."""
    xs = normal(1, 8, 5, 3)
    radius = 0.05
    ys = jax.vmap(lstm)(xs).argmax(1)
    found = certified_accuracy(lstm, (xs, ys), Linf(radius))
    assert 0 < found.accuracy <= 1
    moved = xs[:, None] + radius * jr.uniform(jr.key(2), (8, 100, 5, 3), minval=-1.0)
    kept = (jax.vmap(jax.vmap(lstm))(moved).argmax(2) == ys[:, None]).all(1)
    assert kept[found.margins > 0].all()


def test_the_regions_of_an_lstm_are_refused(lstm):
    with pytest.raises(ValueError, match=r"Recurrent|LSTM"):
        count_regions(lstm, -np.ones(3), np.ones(3))


def test_the_regions_of_three_lines():
    """1 + 3 + 3 of them in the plane, one after the other and by the solver of linear programs."""
    lines = Chain(
        Linear(jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), jnp.array([0.0, 0.0, 1.0])),
        jax.nn.relu,
    )
    assert count_regions(lines, -np.inf, np.inf) == 7


@pytest.mark.usefixtures("x64")
def test_the_kernel_of_an_infinite_network():
    """The arc-cosine kernel of degree 1 (Cho & Saul 2009)."""
    xs = normal(3, 4, 3)
    model = MLP.init(3, 8, 1, initialiser=ntk_parametrisation(weight=2**0.5), key=jr.key(0))
    limit = infinite_width_limit(model)
    lengths = np.linalg.norm(xs, axis=1)
    cosine = np.clip(np.asarray(xs @ xs.T) / np.outer(lengths, lengths), -1, 1)
    angle = np.arccos(cosine)
    expected = (
        np.outer(lengths, lengths) * 2 / 3 / np.pi * (np.sin(angle) + (np.pi - angle) * cosine)
    )
    np.testing.assert_allclose(limit.nngp(xs), expected, atol=1e-7)


CLAIMS = [  # a cheap one of each part
    "1.2-hesse",
    "2.2-composition",
    "3.2-sufficient-decrease",
    "4.2-conv2d",
    "5.1-lstm",
    "6.5-mlm-mask",
    "8.9-distill-grad",
    "9.1-tangent-kernel",
    "10.2-linear-unit",
    "13.1-affine-multiclass",
    "13.1-affine-pnorm",
    "13.2-fgsm",
    "L1-logit",
    "L10-3.3-steepest",
]


@pytest.mark.slow
def test_the_first_commands_of_a_user(tmp_path):
    """Train, look, verify in an empty folder, in processes of their own."""
    environ = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}

    def thetax(*arguments):
        command = [
            sys.executable,
            "-W",
            "error::DeprecationWarning:thetax",
            "-m",
            "thetax.cli",
            *arguments,
        ]
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Warning" not in done.stderr
        return done.stdout

    thetax("train", "digits", "--epochs", "5", "--out", "run")
    assert thetax("look", "run")
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000
    thetax("verify", *CLAIMS, "--json", "found.json", "--jobs", "1")
    found = json.loads((tmp_path / "found.json").read_text())
    names = {
        name for claim in found for name in claim["ids"]
    }  # a name stands for all that begin so
    assert names >= set(CLAIMS)
    assert all(claim["holds"] for claim in found)
