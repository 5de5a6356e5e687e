"""Linear bounds: exact for affine models; for small networks between interval bounds and the exact
minimum.
"""

from itertools import product

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import MODELS, generic, normal
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from thetax.certify import certified_margins, interval_bounds, linear_bounds
from thetax.certify.bounds.interval_rules import Interval
from thetax.certify.bounds.linear_relaxations import relax_product
from thetax.layers import Chain, Linear, MaxPool, leaky_relu, relu, sigmoid, softplus, tanh
from thetax.models import MLP
from thetax.threat import L0, L1, L2, Linf

pytestmark = [pytest.mark.versions, pytest.mark.usefixtures("x64")]

BALLS = {"Linf": Linf(0.3), "L2": L2(0.5), "L1": L1(0.6)}
LINES = {
    "tanh": tanh,
    "sigmoid": sigmoid,
    "leaky_relu": leaky_relu,
    "exp": jnp.exp,
    "abs": jnp.abs,
    "sqrt": jnp.sqrt,
}
QUICK = ("MLP", "leaky_relu", "MaxPool same", "maximum of affine forms")
LISTED = (
    "CNN",
    "ResNet",
    "DenseNet",
    "square network",
    "product network",
    "gelu",
    "GatedFeedForward",
    "Convolution",
    "LayerNorm",
)
ROWS = [
    row for row in MODELS if row.name in QUICK + LISTED or (row.name[:3] == "MLP" and not row.batch)
]
MARKED = [
    pytest.param(row, marks=() if row.name in QUICK else pytest.mark.slow, id=row.name)
    for row in ROWS
]


def test_the_tables_name_rows():
    assert {*QUICK, *LISTED} <= {row.name for row in ROWS}


@pytest.mark.parametrize("name", BALLS)
def test_exact_for_an_affine_model(name):
    """Two affine layers are one affine map, which intervals do not use."""
    ball = BALLS[name]
    x = normal(0, 4)
    first = Linear.init(4, 5, key=jr.key(0))
    last = Linear.init(5, 3, key=jr.key(1))
    low, high = jax.jit(lambda x: linear_bounds(Chain(first, last), x, ball))(x)
    W = last.W @ first.W
    z = last(first(x))
    reach = ball.radius * jax.vmap(ball.dual_norm)(W)
    np.testing.assert_allclose(low, z - reach, rtol=1e-10)
    np.testing.assert_allclose(high, z + reach, rtol=1e-10)


def test_the_box_cuts_the_ball():
    """Exactly in Linf; in L0 the components that matter most change."""
    x = jnp.array([0.1, 0.9, 0.5])
    w = jnp.array([[2.0, 1.0, -3.0]])
    low, high = linear_bounds(lambda x: w @ x, x, Linf(0.2), box=(0.0, 1.0))
    assert (low.item(), high.item()) == pytest.approx((0 + 0.7 - 2.1, 0.6 + 1.0 - 0.9))
    low, high = linear_bounds(lambda x: w @ x, x, L0(1), box=(0.0, 1.0))
    assert (low.item(), high.item()) == pytest.approx((-0.4 - 1.5, -0.4 + 1.8))
    with pytest.raises(ValueError, match=r"does not limit the size of a change\. Pass box="):
        linear_bounds(lambda x: w @ x, x, L0(1))


def exact(net, x, radius, c):
    """The minimum of c·f over a cube: for each activation pattern a linear programme."""
    (W, b), (V, a) = ((np.asarray(layer.W), np.asarray(layer.b)) for layer in net.body.layers[::2])
    least = np.inf
    for on in product([0, 1], repeat=len(b)):
        D = np.diag(on)
        sign = 1 - 2 * np.asarray(on)  # active: W x + b ≥ 0
        room = list(zip(np.asarray(x) - radius, np.asarray(x) + radius))
        found = linprog(c @ V @ D @ W, A_ub=sign[:, None] * W, b_ub=-sign * b, bounds=room)
        if found.status == 0:
            least = min(least, found.fun + c @ (V @ D @ b + a))
    return least


@jax.jit
def plane(net, x, radius):
    return interval_bounds(net, x - radius, x + radius), linear_bounds(net, x, Linf(radius))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_between_interval_bounds_and_the_exact_minimum(seed):
    net = MLP.init(2, 5, 2, key=jr.key(seed))
    x = normal(seed, 2)
    radius = 0.6
    (wide, _), (low, _) = plane(net, x, radius)
    truth = np.array([exact(net, x, radius, c) for c in np.eye(2)])
    grid = (
        np.stack(np.meshgrid(*[np.linspace(-radius, radius, 101)] * 2), -1).reshape(-1, 2)
        + np.asarray(x)[None]
    )
    seen = jax.vmap(net)(jnp.asarray(grid)).min(0)
    assert (wide <= low + 1e-9).all()
    assert (low <= truth + 1e-9).all()
    assert (truth <= seen + 1e-9).all()
    assert (seen - truth < 0.05).all()
    assert (low > wide + 1e-3).any()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", LINES)
def test_lines_are_valid_and_tighter_than_constants(name):
    """f(z) − kz over an interval: with constant bounds of f it would be as wide as f and kz
    together.
    """
    f = LINES[name]

    @jax.jit
    def both(k, z):
        whole = lambda z: f(z) - k * z
        grid = whole(z + jnp.linspace(-0.4, 0.4, 501))
        return linear_bounds(whole, z, Linf(0.4)), interval_bounds(whole, z - 0.4, z + 0.4), grid

    for centre in (0.5, 0.9, 2.0) if name == "sqrt" else (-1.0, 0.1, 2.0):
        k = jax.grad(f)(jnp.asarray(centre))
        z = jnp.array([centre])
        (low, high), wide, grid = both(k, z)
        assert low[0] <= grid.min() + 1e-12
        assert high[0] >= grid.max() - 1e-12
        assert high[0] - low[0] < (wide[1] - wide[0])[0]


@pytest.mark.parametrize(("l_x", "h_x"), [(-1.0, 2.0), (0.5, 0.7), (-3.0, -1.0)])
@pytest.mark.parametrize(("l_y", "h_y"), [(-2.0, 1.5), (1.0, 4.0)])
def test_the_planes_of_a_product_touch_it_at_the_edges(l_x, h_x, l_y, h_y):
    """McCormick's: xy at the edges x = l_x and y = l_y from below, x = l_x and y = h_y from
    above.
    """
    x, y, out = (
        Interval(np.float64(l), np.float64(h)) for l, h in ((l_x, h_x), (l_y, h_y), (-100, 100))
    )
    low, high = relax_product(x, y, out)
    plane = lambda line, x, y: (
        np.asarray(line.slopes[0]) * x + np.asarray(line.slopes[1]) * y + np.asarray(line.offset)
    )
    xs, ys = np.meshgrid(np.linspace(l_x, h_x, 7), np.linspace(l_y, h_y, 7), indexing="ij")
    below = xs * ys - plane(low, xs, ys)
    above = plane(high, xs, ys) - xs * ys
    assert below.min() > -1e-12
    assert above.min() > -1e-12
    np.testing.assert_allclose([below[0], below[:, 0], above[0], above[:, -1]], 0.0, atol=1e-12)


def test_infinite_ends_give_constant_bounds():
    wide = Interval(np.float64(1.0), np.float64(np.inf))
    y = Interval(np.float64(1.0), np.float64(2.0))
    relaxation = relax_product(wide, y, Interval(np.float64(1.0), np.float64(np.inf)))
    assert [float(slope) for line in relaxation for slope in line.slopes] == [0.0] * 4
    assert (float(relaxation.low.offset), float(relaxation.high.offset)) == (1.0, np.inf)


@jax.jit
def small(W, V, U, x, radius):
    net = lambda x: U @ tanh(V @ relu(W @ x)) * softplus(x.sum())[None]
    return linear_bounds(net, x, L2(radius)), interval_bounds(net, x - radius, x + radius)


@given(seed=st.integers(0, 10**6), radius=st.floats(0, 1))
def test_random_networks_stay_inside(seed, radius):
    rng = np.random.default_rng(seed)
    W, V, U, x = (rng.normal(size=shape) for shape in ((4, 3), (3, 4), (2, 3), (3,)))
    (low, high), (least, most) = small(W, V, U, x, radius)
    assert (low >= least - 1e-9).all()
    assert (high <= most + 1e-9).all()
    shifts = rng.normal(size=(400, 3))
    points = x[None] + radius * shifts / np.maximum(
        1, np.linalg.norm(shifts, axis=1, keepdims=True)
    )
    outs = (
        np.tanh(np.maximum(points @ W.T, 0) @ V.T) @ U.T * np.log1p(np.exp(points.sum(1)))[:, None]
    )
    assert (outs >= np.asarray(low)[None] - 1e-9).all()
    assert (outs <= np.asarray(high)[None] + 1e-9).all()


@pytest.mark.slow
@pytest.mark.parametrize("row", MARKED)
def test_models_are_bounded_and_never_looser_than_intervals(row):
    model = generic(row)
    x = normal(1, *row.shape)

    @jax.jit
    def found(radius, shifts):
        outs = jax.vmap(lambda shift: model(x + radius * shift))(shifts)
        return (
            linear_bounds(model, x, Linf(radius)),
            interval_bounds(model, x - radius, x + radius),
            outs,
        )

    shifts = np.random.default_rng(0).uniform(-1, 1, (1000, *row.shape))
    (low, high), (least, most), outs = found(
        0.05, jnp.asarray(np.concatenate([shifts, np.sign(shifts)]))
    )
    assert (outs >= low[None] - 1e-9).all()
    assert (outs <= high[None] + 1e-9).all()
    assert (low >= least - 1e-12).all()
    assert (high <= most + 1e-12).all()


def test_maximum_of_dependent_values():
    """max(x, x + 1) is x + 1: intervals ignore that the two depend on the same x."""
    f = lambda x: MaxPool((2,))(jnp.stack([x, x + 1], axis=-1).reshape(1, -1))[0] - x
    low, high = jax.jit(lambda x: linear_bounds(f, x, Linf(3.0)))(jnp.zeros(2))
    np.testing.assert_allclose([low, high], 1.0, atol=1e-12)


@jax.custom_jvp
def straight_through(a, b):
    return a @ b


straight_through.defjvp(
    lambda primals, tangents: (straight_through(*primals), 10 * primals[0] @ tangents[1])
)


def test_custom_derivatives_change_no_bound():
    """The backward pass uses the product itself, not its custom derivative."""
    W = np.array([[1.0, -2.0]])
    x = jnp.zeros(2)
    low, high = linear_bounds(lambda x: straight_through(W, x), x, Linf(1.0))
    np.testing.assert_allclose([low[0], high[0]], [-3.0, 3.0])
    margins = certified_margins(
        lambda x: jnp.concatenate([straight_through(W, x), 1 - x[:1]]), x, jnp.array(1), Linf(0.1)
    )
    np.testing.assert_allclose(margins, [1 - 0.1 * 4, 0.0])


def test_possible_nans_are_kept():
    """Tighter arguments from linear bounds must not hide an infinity or a NaN."""
    for f in (lambda x: jnp.exp(1000 * x) * 0, lambda x: jnp.sqrt(x), lambda x: 0 * jnp.log(x - 1)):
        low, high = linear_bounds(f, jnp.zeros(1), Linf(1.0))
        assert (low[0], high[0]) == (-np.inf, np.inf)
    low, high = linear_bounds(
        lambda x: jnp.sqrt(x - x + 1), jnp.zeros(1), Linf(1.0)
    )  # linear bounds know that x - x is 0
    np.testing.assert_allclose([low[0], high[0]], 1.0)


def test_stop_gradient_changes_no_bound():
    """It is the identity; JAX's softmax contains one."""
    low, high = linear_bounds(lambda x: jax.lax.stop_gradient(2 * x), jnp.zeros(1), Linf(1.0))
    np.testing.assert_allclose([low[0], high[0]], [-2.0, 2.0], atol=1e-12)
    W = normal(0, 4, 3)
    V = normal(1, 2, 4)
    x = normal(2, 3)
    f = lambda x: V @ jax.nn.softmax(3 * W @ x)
    low, high = jax.jit(lambda x: linear_bounds(f, x, Linf(0.3)))(x)
    shifts = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (2000, 3)))
    outs = jax.vmap(lambda shift: f(x + 0.3 * shift))(jnp.concatenate([shifts, jnp.sign(shifts)]))
    assert (outs >= low[None] - 1e-9).all()
    assert (outs <= high[None] + 1e-9).all()
