"""Interval bounds against sampled outputs, the closed form of one layer, and every model of the contracts."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import MODELS, STEPS, generic, normal
from hypothesis import given
from hypothesis import strategies as st

from thetax.attack import interval_bounds
from thetax.layers import Chain, Convolution, Linear, MaxPool, leaky_relu, relu, sigmoid, softplus, tanh
from thetax.models import MLP

pytestmark = [pytest.mark.versions, pytest.mark.usefixtures("x64")]

REFUSED = {  # by the operation that is named
    **dict.fromkeys(("Bag", "Embedding", "NextToken", "EncoderDecoder", "EncoderDecoder attends", "GPT"), "sort"),
    **dict.fromkeys(("GPT llama", "BERT", "Pretraining", "SentenceEncoder", "SentenceClassifier"), "sort"),
    **dict.fromkeys(("Tagger", "SpanFinder", "Translator"), "sort"),
    **dict.fromkeys(("Recurrent MinGRU", "Recurrent SelectiveSSM", "Recurrent Stack"), "cond"),
    **dict.fromkeys(("Recurrent LRU", "Recurrent DiagonalSSM", "Recurrent DiagonalSSM bilinear"), "complex"),
    "Attention sparse": "scatter-max",
}
ROWS = [row for row in (*MODELS, *STEPS) if not row.batch]
QUICK = ("Convolution", "MaxPool same", "leaky_relu", "softplus", "Recurrent Elman", "Bag", "CNN", "heaviside", "MLP")
MARKED = [pytest.param(row, marks=() if row.name in QUICK else pytest.mark.slow, id=row.name) for row in ROWS]


@pytest.mark.parametrize("row", MARKED)
def test_every_model_is_bounded_or_refused_by_name(row):
    model, x = generic(row), normal(1, *row.shape)
    if row.name in REFUSED:
        with pytest.raises(ValueError, match=f"cannot bound '{REFUSED[row.name]}'"):
            jax.eval_shape(lambda x: interval_bounds(model, x, x), x)
        return

    @jax.jit
    def slack(radius, shifts):
        low, high = interval_bounds(model, x - radius, x + radius)
        outs = jax.vmap(lambda shift: model(x + radius * shift))(shifts)
        return low, high, outs

    shifts = np.random.default_rng(0).uniform(-1, 1, (2000, *row.shape))
    shifts = jnp.asarray(np.concatenate([shifts, np.sign(shifts)]))
    for low, high, outs in zip(*map(jax.tree.leaves, slack(0.05, shifts))):
        assert (outs >= low[None] - 1e-9).all()
        assert (outs <= high[None] + 1e-9).all()
    for low, high, outs in zip(*map(jax.tree.leaves, slack(0.0, shifts[:1]))):
        np.testing.assert_allclose(low, outs[0], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(high, outs[0], rtol=1e-9, atol=1e-9)


def test_of_one_affine_layer_they_are_exact():
    layer, c, r = Linear.init(4, 3, key=jr.key(0)), normal(0, 4), jnp.abs(normal(1, 4))
    low, high = interval_bounds(layer, c - r, c + r)
    W, b = np.asarray(layer.W), np.asarray(layer.b)
    np.testing.assert_allclose(low, W @ c + b - np.abs(W) @ r, rtol=1e-12)
    corners = np.array(np.meshgrid(*[[-1, 1]] * 4)).reshape(4, -1).T * np.asarray(r)[None] + np.asarray(c)[None]
    np.testing.assert_allclose(high, (corners @ W.T + b[None]).max(0), rtol=1e-12)


@pytest.mark.parametrize("f", [relu, leaky_relu, tanh, sigmoid, jnp.abs, jnp.square, lambda z: jnp.maximum(z, 0.3)])
def test_of_one_bend_they_are_exact(f):
    low, high = jnp.array([-1.0, 0.2, -3.0]), jnp.array([0.5, 0.9, -0.1])
    grid = jnp.linspace(low, high, 2001)
    found = interval_bounds(f, low, high)
    np.testing.assert_allclose(found[0], f(grid).min(0), atol=1e-3)
    np.testing.assert_allclose(found[1], f(grid).max(0), atol=1e-3)
    assert (found[0] <= f(grid).min(0) + 1e-15).all()
    assert (found[1] >= f(grid).max(0) - 1e-15).all()


@given(seed=st.integers(0, 10**6), radius=st.floats(0, 1), kind=st.sampled_from([relu, tanh, softplus]))
def test_random_networks_stay_inside(seed, radius, kind):
    rng = np.random.default_rng(seed)
    W, V, b = (rng.normal(size=shape) for shape in ((5, 3), (2, 5), (5,)))
    x = rng.normal(size=3)
    low, high = bounds_of[kind](W, V, b, x, radius)
    points = x[None] + radius * rng.uniform(-1, 1, (400, 3))
    outs = np.asarray(kind(jnp.asarray(points @ W.T + b[None]))) @ V.T
    assert (outs >= np.asarray(low)[None] - 1e-9).all()
    assert (outs <= np.asarray(high)[None] + 1e-9).all()


bounds_of = {
    kind: jax.jit(lambda W, V, b, x, r, kind=kind: interval_bounds(lambda x: V @ kind(W @ x + b), x - r, x + r))
    for kind in (relu, tanh, softplus)
}


def test_a_wider_ball_has_wider_bounds():
    net, x = MLP.init(3, 8, 8, 2, key=jr.key(0)), normal(0, 3)
    low, high = jax.jit(jax.vmap(lambda r: interval_bounds(net, x - r, x + r)))(jnp.linspace(0, 1, 7))
    assert (jnp.diff(low, axis=0) < 0).all()
    assert (jnp.diff(high, axis=0) > 0).all()
    assert low[0].tolist() == high[0].tolist()


def test_they_map_and_have_derivatives():
    """Of a convolutional network; one convolution for the centres of the batch and one for the radii."""
    first, last = jr.split(jr.key(0))
    net = Chain(
        Convolution.init(1, 2, (3, 3), key=first), relu, MaxPool((2, 2)), jnp.ravel, Linear.init(8, 2, key=last)
    )
    xs = normal(0, 3, 1, 4, 4)

    @jax.jit
    def width(net, r):
        low, high = jax.vmap(lambda x: interval_bounds(net, x - r, x + r))(xs)
        return (high - low).sum()

    slopes, slope = jax.jit(jax.grad(width, argnums=(0, 1)))(net, 0.1)
    assert slope == pytest.approx(float(width(net, 0.1 + 1e-5) - width(net, 0.1 - 1e-5)) / 2e-5, rel=1e-4)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(slopes))
    program = str(jax.make_jaxpr(lambda r: width(net, r))(0.1))
    assert program.count("= conv_general_dilated[") == 2


def test_a_loop_is_followed():
    """The carry becomes uncertain only in the second round."""

    def f(x):
        def one(state, item):
            a, b = state
            return (b, 0.5 * a + item), a * 2

        (a, b), out = jax.lax.scan(one, (jnp.zeros(()), jnp.ones(())), x)
        return jnp.concatenate([out, a[None], b[None]])

    x, r = normal(3, 4), 0.1
    low, high = jax.jit(lambda x: interval_bounds(f, x - r, x + r))(x)
    corners = x[None] + r * np.array(np.meshgrid(*[[-1, 1]] * 4)).reshape(4, -1).T
    outs = jax.vmap(f)(corners)
    np.testing.assert_allclose(low, outs.min(0), atol=1e-12)
    np.testing.assert_allclose(high, outs.max(0), atol=1e-12)


def test_bad_ends_are_refused(unchecked):
    with pytest.raises(ValueError, match="nowhere be above"):
        interval_bounds(relu, jnp.ones(2), jnp.zeros(2))
    with pytest.raises(ValueError, match="one shape"):
        interval_bounds(relu, jnp.ones(2), jnp.ones(3))
    with pytest.raises(ValueError, match="cannot bound 'argmax'"):
        interval_bounds(jnp.argmax, jnp.zeros(2), jnp.ones(2))
