"""Infinite-width kernels against another library, the recursion by hand, and wide networks."""

import json
import math
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.scipy.special import erf

from thetax.explain import NoInfiniteWidthLimit, dual_activation, infinite_width_limit
from thetax.layers import (
    GRU,
    AdaptivePool,
    Attention,
    AveragePool,
    BatchNorm,
    Chain,
    Concat,
    Convolution,
    DropConnect,
    Ensemble,
    Initialiser,
    LayerNorm,
    Linear,
    MaxPool,
    Pointwise,
    Residual,
    RMSNorm,
    Stacked,
    WeightNorm,
    fan_in,
    gelu,
    global_max,
    global_mean,
    glorot,
    he,
    identity,
    leaky_relu,
    lecun,
    mean_probabilities,
    ntk_parametrisation,
    orthogonal,
    relu,
    softmax,
    uniform,
)
from thetax.models import CNN, MLP, LeNet, ResNet

pytestmark = pytest.mark.versions

key = jr.key(0)
FILE = Path(__file__).with_name("infinite_reference.json")
REFERENCE = json.loads(FILE.read_text())
W = REFERENCE["W_std"]
B = REFERENCE["b_std"]
free = ntk_parametrisation(weight=W, bias=B)
spread = lambda shape: W / math.sqrt(fan_in(shape))
standard = Initialiser(
    lambda key, shape: spread(shape) * jr.normal(key, shape), std_b=B, std_W=spread
)


def dense(n, m=32, initialiser=free):
    return Linear.init(n, m, initialiser=initialiser, key=key)


def conv(c, boundary="same", stride=1, initialiser=free):
    return Convolution.init(
        c, 16, (3, 3), boundary=boundary, stride=stride, initialiser=initialiser, key=key
    )


def deep(phi, initialiser=free):
    return Chain(
        dense(6, initialiser=initialiser),
        phi,
        dense(32, initialiser=initialiser),
        phi,
        dense(32, initialiser=initialiser),
        phi,
        dense(32, 2, initialiser),
    )


def norm():
    return LayerNorm.init(32, eps=1e-12)


def image(last, boundary, stride):
    inner = "same" if boundary == "valid" else boundary
    body = Chain(conv(2, boundary, stride), relu, conv(16, inner), erf, last)
    return Chain(*body.layers, dense(jax.eval_shape(body, jnp.zeros((2, 5, 4))).size, 2))


PHIS = {
    "relu": relu,
    "leaky_relu": leaky_relu,
    "erf": erf,
    "sin": jnp.sin,
    "gelu": gelu,
    "identity": identity,
    "abs": jnp.abs,
}
around = Residual(Chain(relu, conv(16)))
MADE = {f"dense {name}": partial(deep, phi) for name, phi in PHIS.items()} | {
    "standard relu": lambda: deep(relu, standard),
    "standard erf": lambda: deep(erf, standard),
    "residual": lambda: Chain(
        dense(6),
        Residual(Chain(relu, dense(32), relu, dense(32))),
        Residual(Chain(relu, dense(32))),
        relu,
        dense(32, 2),
    ),
    "norm": lambda: Chain(dense(6), norm(), relu, dense(32), norm(), relu, dense(32, 2)),
    "pool": lambda: Chain(
        conv(2), relu, AveragePool((2, 2)), conv(16), relu, jnp.ravel, dense(64, 2)
    ),
    "residual flatten": lambda: Chain(conv(2), around, relu, jnp.ravel, dense(320, 2)),
    "residual mean": lambda: Chain(conv(2), around, relu, global_mean, dense(16, 2)),
    "standard flatten": lambda: Chain(
        conv(2, initialiser=standard), relu, jnp.ravel, dense(320, 2, standard)
    ),
    "standard mean": lambda: Chain(
        conv(2, initialiser=standard), relu, global_mean, dense(16, 2, standard)
    ),
}
for boundary, stride in (("same", 1), ("valid", 1), ("valid", 2), ("circular", 1)):
    MADE[f"flatten {boundary} stride {stride}"] = partial(image, jnp.ravel, boundary, stride)
    MADE[f"mean {boundary} stride {stride}"] = partial(image, global_mean, boundary, stride)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", REFERENCE["kernels"])
def test_the_numbers_of_neural_tangents(name, x64):
    """The generating script is in the reference file; its norms have no parameters, so only their
    NNGP kernel is compared.
    """
    expected = REFERENCE["kernels"][name]
    xs = jnp.array(REFERENCE["xs" if len(expected["nngp"]) == 4 else "images"])
    limit = infinite_width_limit(
        MADE[name](), initialiser=standard if name.startswith("standard") else None
    )
    nngp, ntk = limit.both(xs)
    assert np.allclose(nngp, expected["nngp"], rtol=1e-8, atol=0)
    assert name == "norm" or np.allclose(ntk, expected["ntk"], rtol=1e-7, atol=0)


@pytest.mark.slow
def test_the_recursion_by_hand(x64):
    """Θ' = Σ' + Θ ⊙ 2 E φ'φ' with the arc-cosine formulas; one hidden layer is |x||y| κ(u)."""
    xs = np.asarray(jr.normal(jr.key(1), (6, 5)))
    S = T = xs @ xs.T / 5
    for depth in (1, 2, 3):
        r = np.sqrt(np.outer(np.diag(S), np.diag(S)))
        u = np.clip(S / r, -1, 1)
        angle = np.arccos(u)
        S = r * (np.sin(angle) + (np.pi - angle) * u) / np.pi
        slope = (np.pi - angle) / np.pi
        T = S + T * slope
        initialiser = lambda path: (
            ntk_parametrisation(weight=1.0) if path == "body.layers.0" else ntk_parametrisation()
        )
        limit = infinite_width_limit(MLP.init(5, *[8] * depth, 1, key=key), initialiser=initialiser)
        assert np.allclose(limit.nngp(xs), S, atol=1e-12)
        assert np.allclose(limit.ntk(xs), T, atol=1e-7)
        if depth == 1:
            kappa = 2 * u / np.pi * (np.pi - np.arccos(u)) + np.sqrt(1 - u**2) / np.pi
            assert np.allclose(T, r * kappa, atol=1e-7)


@pytest.mark.slow
def test_a_norm_with_its_parameters_by_hand(x64):
    """LN then φ: Θ becomes (Θ/v + 1) E φ'φ' + E uφ'(u) vφ'(v), all on covariances with diagonal
    1.
    """
    xs = jr.normal(jr.key(1), (4, 6))
    for phi, lean in ((relu, relu), (jnp.sin, lambda z: z * jnp.cos(z))):
        nngp, ntk = infinite_width_limit(Chain(dense(6), norm(), phi, dense(32, 1))).both(xs)
        K = W**2 * xs @ xs.T / 6 + B**2
        v = jnp.sqrt(jnp.outer(jnp.diagonal(K), jnp.diagonal(K)))
        one = jnp.ones_like(K)
        product, slope = dual_activation(phi).pair(one, K / v, one)
        bent = dual_activation(lean).pair(one, K / v, one)[0]
        assert np.allclose(nngp, W**2 * product + B**2, atol=1e-10)
        expected = W**2 * (product + (K / v + 1) * slope + bent) + B**2
        assert np.allclose(ntk, expected, atol=1e-6)


def drawn(make, xs, seeds):
    """Mean and standard error of the empirical kernels over draws."""

    def one(key):
        model = make(key)
        ys = jax.vmap(lambda x: model(x))(xs)
        slopes = jax.tree.leaves(
            jax.jacrev(lambda model: jax.vmap(lambda x: model(x)[0])(xs))(model)
        )
        J = jnp.concatenate([slope.reshape(len(xs), -1) for slope in slopes], axis=1)
        return ys @ ys.T / ys.shape[1], J @ J.T

    kernels = jax.jit(lambda keys: jax.lax.map(one, keys))(jr.split(jr.key(7), seeds))
    return [(k.mean(axis=0), k.std(axis=0, ddof=1) / math.sqrt(seeds)) for k in kernels]


def mlp(key, sizes=(3, 256, 256, 8), initialiser=free, **how):
    return MLP.init(*sizes, initialiser=initialiser, key=key, **how)


def cnn(key, *tail, boundary="same", stride=1, initialiser=free):
    a, b, c = jr.split(key, 3)
    first = Convolution.init(
        2, 96, (3, 3), boundary=boundary, stride=stride, initialiser=initialiser, key=a
    )
    body = Chain(
        first,
        relu,
        Convolution.init(96, 96, (3, 3), boundary="circular", initialiser=initialiser, key=b),
        jnp.tanh,
        *tail,
    )
    size = jax.eval_shape(body, jnp.zeros((2, 5, 4))).size
    return Chain(*body.layers, Linear.init(size, 8, initialiser=initialiser, key=c))


def pooled(key):
    a, b, c = jr.split(key, 3)
    first = Convolution.init(2, 96, (3, 3), initialiser=free, key=a)
    second = Convolution.init(96, 96, (1, 1), initialiser=free, key=b)
    parts = [first, relu, AveragePool((2, 2)), second, relu, AdaptivePool((2, 1)), jnp.ravel]
    return Chain(*parts, Linear.init(192, 8, initialiser=free, key=c))


DRAWN = {
    "dense": (mlp, None),
    "dense, standard": (partial(mlp, initialiser=he), he),
    "dense, glorot": (partial(mlp, initialiser=glorot), glorot),
    "dense, uniform": (partial(mlp, initialiser=uniform(0.1)), uniform(0.1)),
    "dense, orthogonal": (partial(mlp, initialiser=orthogonal), orthogonal),
    "tanh": (partial(mlp, activation=jnp.tanh), None),
    "residual": (partial(mlp, sizes=(3, 256, 256, 256, 8), connect=Residual), None),
    "residual from the data": (partial(mlp, sizes=(3, 3, 256, 256, 8), connect=Residual), None),
    "concat": (partial(mlp, connect=Concat), None),
    "layer norm": (partial(mlp, normalise=LayerNorm.init), None),
    "layer norm, tanh": (partial(mlp, normalise=LayerNorm.init, activation=jnp.tanh), None),
    "root mean square, residual": (partial(mlp, normalise=RMSNorm.init, connect=Residual), None),
    "convolution, flat": (lambda key: cnn(key, jnp.ravel), None),
    "convolution, mean": (lambda key: cnn(key, global_mean), None),
    "convolution, stride": (lambda key: cnn(key, jnp.ravel, boundary="full", stride=2), None),
    "pooling": (pooled, None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_kernels_of_wide_random_networks(name):
    """Within four standard errors, on outputs and on the tangent kernel of the first of them."""
    make, initialiser = DRAWN[name]
    flat = isinstance(make(key), MLP)
    xs = jr.normal(jr.key(3), (3, 3) if flat else (2, 2, 5, 4))
    limits = infinite_width_limit(make(key), initialiser=initialiser).both(xs)
    if name == "residual from the data":
        limits = limits[
            :1
        ]  # three units of a hidden layer are no limit, but its second moment is exact
    for limit, (mean, error) in zip(limits, drawn(make, xs, 60 if flat else 30)):
        assert np.abs((limit - mean) / error).max() < 4
        assert (error < 0.25 * np.abs(limit).max()).all()


three = infinite_width_limit(MLP.init(4, 8, 8, 1, initialiser=ntk_parametrisation(), key=key))


@pytest.mark.slow
@settings(max_examples=6)
@given(seed=st.integers(0, 10**6), c=st.floats(0.1, 10.0))
def test_kernels_are_positive_and_homogeneous(seed, c):
    xs = jr.normal(jr.key(seed), (8, 4))
    for kernel in (three.nngp, three.ntk):
        K = np.asarray(kernel(xs), np.float64)
        assert (K == K.T).all()
        assert np.linalg.eigvalsh(K).min() > -1e-5 * K.max()
        assert np.allclose(kernel(c * xs, xs[::-1]), c * K[:, ::-1], rtol=2e-3)


@pytest.mark.slow
@pytest.mark.usefixtures("strict")
def test_blocks_and_diagonal_agree_with_the_whole_kernel(monkeypatch):
    """In blocks, for other examples, on the diagonal, and both kernels together."""
    module = sys.modules["thetax.explain.infinite_width.infinite_width_limit"]
    xs = jr.normal(key, (11, 4))
    net = MLP.init(4, 8, 8, 1, initialiser=free, key=key)
    nngp, ntk = infinite_width_limit(net).both(xs)
    jax.clear_caches()
    monkeypatch.setattr(module, "MAX_MOMENTS", 16)  # blocks of four
    limit = infinite_width_limit(net)
    for kernel, whole in ((limit.nngp, nngp), (limit.ntk, ntk)):
        assert whole.dtype == jnp.float32
        assert np.allclose(kernel(xs), whole, rtol=1e-5)
        assert np.allclose(kernel(xs[:9], xs[5:]), whole[:9, 5:], rtol=2e-3)
        assert np.allclose(kernel.diagonal(xs), jnp.diagonal(whole), rtol=1e-6)
    jax.clear_caches()


@pytest.mark.slow
def test_limit_depends_on_the_architecture_only():
    one, two = (
        infinite_width_limit(MLP.init(3, 5, 1, initialiser=free, key=jr.key(seed)))
        for seed in (1, 2)
    )
    assert one == two
    assert hash(one) == hash(two)
    assert one != infinite_width_limit(MLP.init(3, 6, 1, initialiser=free, key=key))


@pytest.mark.slow
def test_derivatives_are_finite_and_those_of_nngp_exact(x64):
    net = MLP.init(3, 8, 8, 1, initialiser=free, key=key)
    xs = jr.normal(jr.key(1), (4, 3))
    v = jr.normal(jr.key(2), (4, 3))
    limit = infinite_width_limit(net)
    total = lambda xs: limit.nngp(xs).sum()
    along = (total(xs + 1e-6 * v) - total(xs - 1e-6 * v)) / 2e-6
    assert abs(jnp.vdot(jax.grad(total)(xs), v) - along) < 1e-7
    assert np.isfinite(jax.grad(lambda xs: limit.ntk(xs).sum())(xs.at[0].set(0))).all()


@pytest.mark.slow
def test_zero_inputs_agree_with_automatic_differentiation(x64):
    """With x = 0 and no spread of the offsets every ReLU is at its kink, of slope 0: the last
    offset is left.
    """
    xs = jnp.zeros((2, 3)).at[1].set(1.0)
    assert infinite_width_limit(MLP.init(3, 8, 8, 1, key=key), initialiser=he).ntk(xs)[
        0
    ].tolist() == [1.0, 1.0]


@pytest.mark.slow
def test_equivalent_models_have_equal_kernels(x64):
    """A stack is a chain, a DropConnect its inside, an MLP flattens, an ensemble halves; LeNet is
    its body.
    """
    xs = jr.normal(jr.key(1), (3, 6))
    block = lambda key: Chain(Linear.init(6, 6, initialiser=free, key=key), jnp.sin)
    stack = Stacked.init(lambda key: block(key), 3, key=key)
    chain = Chain(*[DropConnect(block(key), 0.3)] * 3)
    plain = infinite_width_limit(chain).both(xs)
    assert np.allclose(infinite_width_limit(stack).both(xs), plain)
    net = MLP.init(6, 8, 1, initialiser=free, dropout=0.5, key=key)
    assert np.allclose(
        infinite_width_limit(net).ntk(xs.reshape(3, 2, 3)), infinite_width_limit(net).ntk(xs)
    )
    many = Ensemble.init(partial(MLP.init, 6, 8, 1, initialiser=free), 2, key=key)
    assert np.allclose(
        2 * jnp.stack(infinite_width_limit(many).both(xs)),
        jnp.stack(infinite_width_limit(net).both(xs)),
    )


REFUSED = {
    "MaxPool at layers.2": lambda: Chain(conv(1), relu, MaxPool((2, 2)), jnp.ravel, dense(4)),
    "MaxPool at stages.0.layers.2": lambda: CNN.init((4,), classes=2, key=key),
    "BatchNorm at stem.layers.1": lambda: ResNet.init((1,), classes=2, width=4, key=key),
    "Attention ": lambda: Attention.init(4, 2, key=key),
    "GRU shares its weights": lambda: GRU.init(3, 3, key=key),
    "BatchNorm at body.layers.1": lambda: mlp(key, normalise=BatchNorm.init),
    "WeightNorm at body.layers.0": lambda: mlp(key, affine=WeightNorm.init),
    "softmax at layers.1": lambda: Chain(dense(3), softmax),
    "<lambda> at layers.1 is not an elementwise function": lambda: Chain(
        dense(3), lambda z: z.sum(keepdims=True)
    ),
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("message", REFUSED)
def test_modules_without_a_limit_are_named(message):
    with pytest.raises(NoInfiniteWidthLimit, match=message):
        infinite_width_limit(REFUSED[message]())


LATER = {
    "relu at layers.2 is applied to features that are not Gaussian": (
        lambda: Chain(dense(3), relu, relu),
        (2, 3),
    ),
    "Residual at layers.1 adds dependent features": (
        lambda: Chain(dense(3), Residual(Pointwise(relu))),
        (2, 3),
    ),
    "global_max at layers.1": (lambda: Chain(conv(2), global_max, dense(16)), (2, 2, 5, 4)),
    "AdaptivePool at layers.1": (
        lambda: Chain(conv(2), AdaptivePool((1, 1), jnp.max), jnp.ravel, dense(16)),
        (2, 2, 5, 4),
    ),
    "groups=2": (
        lambda: Chain(Convolution.init(2, 4, (3, 3), groups=2, initialiser=free, key=key)),
        (2, 2, 5, 4),
    ),
    "returns a feature map": (lambda: Chain(conv(2)), (2, 2, 5, 4)),
    "LayerNorm at layers.2 follows a flattened feature map": (
        lambda: Chain(conv(2), jnp.ravel, LayerNorm.init(320), dense(320)),
        (2, 2, 5, 4),
    ),
    "standard parametrisation": (lambda: Chain(dense(3, initialiser=he)), (2, 3)),
    "pools by mean_probabilities": (
        lambda: Ensemble.init(lambda key: dense(3), 2, pool=mean_probabilities, key=key),
        (2, 3),
    ),
}


@pytest.mark.parametrize("message", LATER)
def test_modules_without_a_limit_at_their_location_are_named(message):
    make, shape = LATER[message]
    with pytest.raises(NoInfiniteWidthLimit, match=message):
        infinite_width_limit(make()).ntk(jnp.ones(shape))


def test_bad_input(unchecked):
    with pytest.raises(ValueError, match="expected a model, got str"):
        infinite_width_limit("relu")
    with pytest.raises(
        NoInfiniteWidthLimit, match=r"unknown standard deviation; give it: Initialiser\(..., std_W"
    ):
        infinite_width_limit(
            dense(3), initialiser=Initialiser(lambda key, shape: jnp.zeros(shape))
        ).nngp(jnp.ones((2, 3)))
    kernel = infinite_width_limit(dense(3)).ntk
    for xs, message in (
        (jnp.ones(3), r"xs must be a stack of examples; got shape \(3,\)"),
        (jnp.ones((0, 3)), "at least one example"),
    ):
        with pytest.raises(ValueError, match=message):
            kernel(xs)
    with pytest.raises(
        ValueError, match=r"Linear: expected one example of shape \(3,\), got \(4,\)"
    ):
        kernel(jnp.ones((2, 3)), jnp.ones((2, 4)))
    with pytest.raises(ValueError, match="xs: expected finite numbers, but row 1, column 0 is nan"):
        kernel(jnp.array([[0.0, 1.0, 2.0], [jnp.nan, 1.0, 2.0]]))
    with pytest.raises(ValueError, match="expected numbers"):
        kernel(np.array([["a", "b", "c"]]))
    with pytest.raises(
        ValueError, match=r"same shape and dtype; got float32 \(2, 3\) and bfloat16"
    ):
        kernel(jnp.ones((2, 3)), jnp.ones((2, 3), jnp.bfloat16))


def test_rules_of_convolutions_are_registered_on_import():
    """In a new process that imports this package only."""
    code = """
import jax, jax.numpy as jnp
from thetax.explain.infinite_width import infinite_width_limit
from thetax.layers import Chain, Convolution, Linear, ntk_parametrisation
a, b = jax.random.split(jax.random.key(0))
initialiser = ntk_parametrisation()
model = Chain(
    Convolution.init(1, 4, (3, 3), initialiser=initialiser, key=a),
    jnp.ravel,
    Linear.init(36, 1, initialiser=initialiser, key=b),
)
print(infinite_width_limit(model).ntk(jnp.ones((2, 1, 3, 3))).shape)
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.stdout == "(2, 2)\n", process.stderr


@pytest.mark.slow
def test_lenet_is_its_body():
    net = LeNet.init(classes=2, initialiser=free, key=key)
    assert limit_is_finite(
        infinite_width_limit(net), jr.normal(key, (1, 1, 28, 28)), jax.eval_shape
    )
    assert lecun.std_W((4, 9)) == pytest.approx(1 / 3)


def limit_is_finite(limit, xs, run):
    return run(limit.ntk.diagonal, xs).shape == (1,)
