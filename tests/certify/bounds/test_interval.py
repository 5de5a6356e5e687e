"""Interval bounds against sampled outputs, the closed form of one layer, and every model of the
contracts.
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import MODELS, STEPS, generic, normal
from hypothesis import given
from hypothesis import strategies as st

from thetax.certify import interval_bounds
from thetax.certify.bounds import interval_rules
from thetax.layers import (
    Chain,
    Convolution,
    Linear,
    MaxPool,
    leaky_relu,
    relu,
    sigmoid,
    softplus,
    tanh,
)
from thetax.models import MLP

pytestmark = [pytest.mark.versions, pytest.mark.usefixtures("x64")]

REFUSED = {  # by the operation that is named
    **dict.fromkeys(
        (
            "SparseLinear",
            "Embedding",
            "LanguageModelCell",
            "EncoderDecoder",
            "EncoderDecoder attends",
            "GPT",
        ),
        "sort",
    ),
    **dict.fromkeys(
        ("GPT llama", "BERT", "BERTPretraining", "SentenceEncoder", "SentenceClassifier"), "sort"
    ),
    **dict.fromkeys(("MaskedLM", "TokenClassifier", "SpanPredictor", "Translator"), "sort"),
    **dict.fromkeys(
        ("Recurrent MinGRU", "Recurrent SelectiveSSM", "Recurrent StackedCells"), "cond"
    ),
    **dict.fromkeys(
        ("Recurrent LRU", "Recurrent DiagonalSSM", "Recurrent DiagonalSSM bilinear"), "complex"
    ),
    "Attention sparse": "scatter-max",
    **dict.fromkeys(
        (
            "GraphSAGE max of a graph",
            "GAT of a graph",
            "GAT dropout of a graph",
            "GAT edges of a graph",
            "GATv2 of a graph",
            "MessagePassing of a graph",
            "Readout of a graph",
            "AttentionReadout of a graph",
            "GNN of a graph",
        ),
        "scatter-max",
    ),
    **dict.fromkeys(("SetAbstraction", "PointNet2"), "argmax"),
}
ROWS = [row for row in (*MODELS, *STEPS) if not row.batch]
QUICK = (
    "Convolution",
    "MaxPool same",
    "leaky_relu",
    "softplus",
    "Recurrent Elman",
    "SparseLinear",
    "CNN",
    "heaviside",
    "MLP",
)
MARKED = [
    pytest.param(row, marks=() if row.name in QUICK else pytest.mark.slow, id=row.name)
    for row in ROWS
]


def test_the_tables_name_rows():
    assert {*REFUSED, *QUICK} <= {row.name for row in ROWS}


@pytest.mark.parametrize("row", MARKED)
def test_every_model_is_bounded_or_refused_by_name(row):
    model = generic(row)
    x = normal(1, *row.shape)
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


def test_exact_for_one_affine_layer():
    layer = Linear.init(4, 3, key=jr.key(0))
    c = normal(0, 4)
    r = jnp.abs(normal(1, 4))
    low, high = interval_bounds(layer, c - r, c + r)
    W = np.asarray(layer.W)
    b = np.asarray(layer.b)
    np.testing.assert_allclose(low, W @ c + b - np.abs(W) @ r, rtol=1e-12)
    corners = (
        np.array(np.meshgrid(*[[-1, 1]] * 4)).reshape(4, -1).T * np.asarray(r)[None]
        + np.asarray(c)[None]
    )
    np.testing.assert_allclose(high, (corners @ W.T + b[None]).max(0), rtol=1e-12)


@pytest.mark.parametrize(
    "f", [relu, leaky_relu, tanh, sigmoid, jnp.abs, jnp.square, lambda z: jnp.maximum(z, 0.3)]
)
def test_exact_for_one_nonlinearity(f):
    low = jnp.array([-1.0, 0.2, -3.0])
    high = jnp.array([0.5, 0.9, -0.1])
    grid = jnp.linspace(low, high, 2001)
    found = interval_bounds(f, low, high)
    np.testing.assert_allclose(found[0], f(grid).min(0), atol=1e-3)
    np.testing.assert_allclose(found[1], f(grid).max(0), atol=1e-3)
    assert (found[0] <= f(grid).min(0) + 1e-15).all()
    assert (found[1] >= f(grid).max(0) - 1e-15).all()


@given(
    seed=st.integers(0, 10**6), radius=st.floats(0, 1), kind=st.sampled_from([relu, tanh, softplus])
)
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
    kind: jax.jit(
        lambda W, V, b, x, r, kind=kind: interval_bounds(
            lambda x: V @ kind(W @ x + b), x - r, x + r
        )
    )
    for kind in (relu, tanh, softplus)
}


def test_a_wider_ball_has_wider_bounds():
    net = MLP.init(3, 8, 8, 2, key=jr.key(0))
    x = normal(0, 3)
    low, high = jax.jit(jax.vmap(lambda r: interval_bounds(net, x - r, x + r)))(
        jnp.linspace(0, 1, 7)
    )
    assert (jnp.diff(low, axis=0) < 0).all()
    assert (jnp.diff(high, axis=0) > 0).all()
    assert low[0].tolist() == high[0].tolist()


def test_vmap_and_gradients():
    """Of a convolutional network; one convolution for the centres of the batch and one for the
    radii.
    """
    first, last = jr.split(jr.key(0))
    net = Chain(
        Convolution.init(1, 2, (3, 3), key=first),
        relu,
        MaxPool((2, 2)),
        jnp.ravel,
        Linear.init(8, 2, key=last),
    )
    xs = normal(0, 3, 1, 4, 4)

    @jax.jit
    def width(net, r):
        low, high = jax.vmap(lambda x: interval_bounds(net, x - r, x + r))(xs)
        return (high - low).sum()

    slopes, slope = jax.jit(jax.grad(width, argnums=(0, 1)))(net, 0.1)
    assert slope == pytest.approx(
        float(width(net, 0.1 + 1e-5) - width(net, 0.1 - 1e-5)) / 2e-5, rel=1e-4
    )
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(slopes))
    program = str(jax.make_jaxpr(lambda r: width(net, r))(0.1))
    assert program.count("= conv_general_dilated[") == 2


def test_scan():
    """The carry becomes an interval only in the second iteration."""

    def f(x):
        def one(state, item):
            a, b = state
            return (b, 0.5 * a + item), a * 2

        (a, b), out = jax.lax.scan(one, (jnp.zeros(()), jnp.ones(())), x)
        return jnp.concatenate([out, a[None], b[None]])

    x = normal(3, 4)
    r = 0.1
    low, high = jax.jit(lambda x: interval_bounds(f, x - r, x + r))(x)
    corners = x[None] + r * np.array(np.meshgrid(*[[-1, 1]] * 4)).reshape(4, -1).T
    outs = jax.vmap(f)(corners)
    np.testing.assert_allclose(low, outs.min(0), atol=1e-12)
    np.testing.assert_allclose(high, outs.max(0), atol=1e-12)


def inside(f, low, high, points=2000):
    """Asserts that no sampled output leaves the bounds, and is NaN only where they are infinite."""
    bounds = interval_bounds(f, low, high)
    xs = np.random.default_rng(0).uniform(low, high, (points, *low.shape))
    outs = jax.vmap(f)(jnp.asarray(np.concatenate([xs, np.stack([low, high])])))
    for least, most, ys in zip(*map(jax.tree.leaves, (*bounds, outs))):
        known = jnp.isfinite(least) | jnp.isfinite(most)
        assert not (jnp.isnan(ys) & known[None]).any()
        assert not ((ys < least[None] - 1e-9) | (ys > most[None] + 1e-9)).any()
    return bounds


def test_functions_of_two_arguments_that_contain_a_product():
    """The second argument is unused, or both are concatenated; bilinear ones keep tight bounds."""
    A = normal(0, 2, 2)
    x = normal(1, 2, 2)
    squared = lambda a, b: jnp.vdot(jnp.concatenate([a, b]), jnp.concatenate([a, b]))
    calls = [jax.jit(lambda a, b: a @ a), jax.jit(squared), straight_through, twice]
    for f in calls:
        inside(lambda x, f=f: f(x, A), x - 0.5, x + 0.5)
        inside(lambda x, f=f: f(A, x), x - 0.5, x + 0.5)
    c = A @ x
    r = 0.5 * jnp.abs(A).sum(1, keepdims=True)
    low, high = interval_bounds(lambda x: straight_through(A, x), x - 0.5, x + 0.5)
    np.testing.assert_allclose([low, high], [c - r, c + r])


@jax.custom_jvp
def straight_through(a, b):
    return a @ b


straight_through.defjvp(
    lambda primals, tangents: (straight_through(*primals), primals[0] @ tangents[1])
)


@jax.custom_jvp
def twice(a, b):
    return a @ a


twice.defjvp(lambda primals, tangents: (twice(*primals), tangents[0] @ primals[1]))


NOT_BOUNDED = {  # a function, and the operation that is refused
    "bits": (lambda x: (8 * x).astype(int) & 1, "convert_element_type' of float64 to int64"),
    "cast to bool": (lambda x: x.astype(bool), "convert_element_type' of float64 to bool"),
    "wrapped": (lambda x: (300 * x).astype("uint8"), "convert_element_type' of float64 to uint8"),
    "integer times 3": (lambda x: x.astype(int) * 3, "convert_element_type"),
    "integer // 3": (lambda x: x.astype(int) // 3, "convert_element_type"),
    "count": (lambda x: (x > 0).sum(), "convert_element_type' of bool to int"),
    "bitcast": (lambda x: jax.lax.bitcast_convert_type(x, "uint64"), "bitcast_convert_type"),
    "reduce": (
        lambda x: jax.lax.reduce(x, 0.0, lambda a, b: a + jnp.abs(b), (0,)),
        "reduce' of float64",
    ),
    "window": (
        lambda x: jax.lax.reduce_window(x, 0.0, lambda a, b: a + b * b, (2,), (1,), "VALID"),
        "reduce_window' of float64",
    ),
    "scatter": (lambda x: x.at[0].apply(jnp.sin), "scatter"),
    "exclusive or": (lambda x: (x > 0) ^ (x > 1), "xor' of bool, bool"),
    "negative power": (lambda x: jax.lax.integer_pow(x, -2), "integer_pow"),
    "top_k": (lambda x: jax.lax.top_k(x, 1), "top_k"),
    "loop": (lambda x: jax.lax.while_loop(lambda s: s.sum() < 3, lambda s: s + 1, x), "while"),
    "index": (lambda x: jnp.arange(3.0)[x.astype(int)], "convert_element_type"),
    "complex": (lambda x: jax.lax.complex(x, x), "complex"),
    "eighth precision": (lambda x: x.astype("float8_e4m3fn"), "convert_element_type"),
}


@pytest.mark.parametrize("name", NOT_BOUNDED)
def test_operations_without_a_rule_are_refused_by_name(name):
    f, operation = NOT_BOUNDED[name]
    with pytest.raises(ValueError, match=f"cannot bound '{operation}"):
        jax.eval_shape(lambda x: interval_bounds(f, x, x), jnp.zeros(2))


MAY_BE_NAN = {
    "root": jnp.sqrt,
    "logarithm": jnp.log,
    "log1p": lambda x: jnp.log1p(3 * x),
    "inverse root": jax.lax.rsqrt,
    "quotient": lambda x: x / x,
    "zero by zero": lambda x: jax.nn.relu(x) / jax.nn.relu(x),
    "difference of infinities": lambda x: jnp.exp(2000 * x) - jnp.exp(1000 * x),
    "zero times infinity": lambda x: jnp.exp(2000 * x) * jax.nn.relu(x),
    "root before a maximum": lambda x: jnp.maximum(jnp.sqrt(x), 3.0),
    "root in a branch": lambda x: jnp.where(x > 0.1, jnp.sqrt(x), 1.0),
    "root in order": lambda x: jnp.sort(jnp.stack([x[0], jnp.sqrt(x)[0], 5 + x[0]])),
}


@pytest.mark.parametrize("name", MAY_BE_NAN)
def test_possible_nans_have_infinite_bounds(name):
    low, high = interval_bounds(MAY_BE_NAN[name], jnp.array([-0.5]), jnp.array([1.0]))
    assert jnp.isneginf(low).all()
    assert jnp.isposinf(high).all()
    sure = jnp.array([0.6]), jnp.array([0.7])
    assert (
        all(jnp.isfinite(end).all() for end in interval_bounds(MAY_BE_NAN[name], *sure))
        or "infin" in name
    )


def test_isnan_is_decided_only_where_nan_is_impossible():
    low, high = interval_bounds(
        lambda x: jnp.isnan(jnp.log(x)), jnp.array([-1.0, 1.0]), jnp.array([1.0, 2.0])
    )
    assert (low.tolist(), high.tolist()) == ([False, False], [True, False])
    low, high = interval_bounds(lambda x: x == x, jnp.array([-1.0]), jnp.array([1.0]))
    assert (low.tolist(), high.tolist()) == ([True], [True])


OF_VECTORS = {  # operations on whole arrays
    **{f"reduce_{name}": getattr(jnp, name) for name in ("max", "min")},
    **{
        f"cum{name}": partial(getattr(jax.lax, f"cum{name}"), reverse=True)
        for name in ("max", "min", "logsumexp")
    },
    **{
        f"reduce_window_{name}": partial(
            jax.lax.reduce_window,
            init_value=init,
            computation=getattr(jax.lax, name),
            window_dimensions=(2,),
            window_strides=(1,),
            padding="SAME",
        )
        for name, init in (("max", -np.inf), ("min", np.inf))
    },
    "clamp": lambda z: jax.lax.clamp(0.0, z, 1.0),
    "max": lambda z: jax.lax.max(z, jnp.ones_like(z)),
    "min": lambda z: jax.lax.min(z, jnp.ones_like(z)),
    "reduce_precision": lambda z: jax.lax.reduce_precision(z, 5, 5),
    "leaky": leaky_relu,
}


@pytest.mark.parametrize("name", interval_rules.INCREASING)
def test_unknown_stays_unknown(name):
    """Both ends are NaN where nothing is known, so increasing operations must keep NaN."""
    f = OF_VECTORS[name] if name in OF_VECTORS else getattr(jax.lax, name)
    assert jnp.isnan(f(jnp.array([np.nan, np.nan]))).all()
    assert jnp.isnan(f(jnp.array([np.nan, 0.5]))).any()


def test_bad_input(unchecked):
    with pytest.raises(ValueError, match="low must be <= high everywhere"):
        interval_bounds(relu, jnp.ones(2), jnp.zeros(2))
    with pytest.raises(ValueError, match="the same shape and dtype"):
        interval_bounds(relu, jnp.ones(2), jnp.ones(3))
    with pytest.raises(ValueError, match="cannot bound 'argmax'"):
        interval_bounds(jnp.argmax, jnp.zeros(2), jnp.ones(2))
