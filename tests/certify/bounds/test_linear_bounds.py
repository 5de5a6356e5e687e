"""Linear bounds: exact for affine models; of small networks between the interval's and the
truth.
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
    "Gated",
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


@pytest.mark.parametrize("name", BALLS)
def test_of_an_affine_model_they_are_the_dual_norm(name):
    """Two layers without a bend are one: intervals do not know that."""
    ball = BALLS[name]
    x = normal(0, 4)
    first = Linear.init(4, 5, key=jr.key(0))
    last = Linear.init(5, 3, key=jr.key(1))
    low, high = jax.jit(lambda x: linear_bounds(Chain(first, last), x, ball))(x)
    W = last.W @ first.W
    z = last(first(x))
    reach = ball.radius * jax.vmap(ball.dual)(W)
    np.testing.assert_allclose(low, z - reach, rtol=1e-10)
    np.testing.assert_allclose(high, z + reach, rtol=1e-10)


def test_the_box_cuts_the_ball():
    """In the maximum norm exactly; of numbers that change only few, the few that matter most."""
    x = jnp.array([0.1, 0.9, 0.5])
    w = jnp.array([[2.0, 1.0, -3.0]])
    low, high = linear_bounds(lambda x: w @ x, x, Linf(0.2), box=(0.0, 1.0))
    assert (low.item(), high.item()) == pytest.approx((0 + 0.7 - 2.1, 0.6 + 1.0 - 0.9))
    low, high = linear_bounds(lambda x: w @ x, x, L0(1), box=(0.0, 1.0))
    assert (low.item(), high.item()) == pytest.approx((-0.4 - 1.5, -0.4 + 1.8))
    with pytest.raises(ValueError, match="give the box"):
        linear_bounds(lambda x: w @ x, x, L0(1))


def exact(net, x, radius, c):
    """The least c·f over a cube: with each pattern of active units the network is affine, a linear
    program.
    """
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
def test_they_lie_between_the_interval_and_the_truth(seed):
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
def test_the_lines_of_a_bend_hold_and_are_better_than_levels(name):
    """f(z) − kz over an interval: with two levels in place of lines it would be as wide as f and kz
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


def test_where_an_end_is_infinite_the_planes_are_levels():
    wide = Interval(np.float64(1.0), np.float64(np.inf))
    y = Interval(np.float64(1.0), np.float64(2.0))
    strip = relax_product(wide, y, Interval(np.float64(1.0), np.float64(np.inf)))
    assert [float(slope) for line in strip for slope in line.slopes] == [0.0] * 4
    assert (float(strip.low.offset), float(strip.high.offset)) == (1.0, np.inf)


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
def test_models_stay_inside_and_are_never_wider_than_intervals(row):
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


def test_maxima_of_what_moves_together_are_told_apart():
    """max(x, x + 1) is x + 1: an interval does not see that the two move together."""
    f = lambda x: MaxPool((2,))(jnp.stack([x, x + 1], axis=-1).reshape(1, -1))[0] - x
    low, high = jax.jit(lambda x: linear_bounds(f, x, Linf(3.0)))(jnp.zeros(2))
    np.testing.assert_allclose([low, high], 1.0, atol=1e-12)


@jax.custom_jvp
def straight_through(a, b):
    return a @ b


straight_through.defjvp(
    lambda primals, tangents: (straight_through(*primals), 10 * primals[0] @ tangents[1])
)


def test_a_derivative_of_its_own_changes_no_bound():
    """A trail goes back through what a product is, not through the derivative that it has for
    training.
    """
    W = np.array([[1.0, -2.0]])
    x = jnp.zeros(2)
    low, high = linear_bounds(lambda x: straight_through(W, x), x, Linf(1.0))
    np.testing.assert_allclose([low[0], high[0]], [-3.0, 3.0])
    margins = certified_margins(
        lambda x: jnp.concatenate([straight_through(W, x), 1 - x[:1]]), x, jnp.array(1), Linf(0.1)
    )
    np.testing.assert_allclose(margins, [1 - 0.1 * 4, 0.0])


def test_what_may_be_nan_stays_so_between_lines():
    """Lines are of real numbers: that they know an argument better must not hide an infinity or a
    NaN.
    """
    for f in (lambda x: jnp.exp(1000 * x) * 0, lambda x: jnp.sqrt(x), lambda x: 0 * jnp.log(x - 1)):
        low, high = linear_bounds(f, jnp.zeros(1), Linf(1.0))
        assert (low[0], high[0]) == (-np.inf, np.inf)
    low, high = linear_bounds(
        lambda x: jnp.sqrt(x - x + 1), jnp.zeros(1), Linf(1.0)
    )  # which lines can tell
    np.testing.assert_allclose([low[0], high[0]], 1.0)


def test_what_stops_gradients_changes_no_bound():
    """Its derivative is 0 and it is none; JAX's softmax has one inside."""
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
