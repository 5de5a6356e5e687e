"""The perceptron algorithm against a plain loop, scikit-learn and Novikoff's bound (§1.2)."""

import re
import sys

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Perceptron as SklearnPerceptron

from thetax.models import (
    NotSeparable,
    Perceptron,
    fit_perceptron,
    geometric_margin,
    max_margin,
    perceptron_path,
)

STEP = 2.0**-6  # multiples of it add up exactly
algorithm = sys.modules["thetax.models.linear.perceptron"]
XOR = np.array([[0, 0], [1, 1], [0, 1], [1, 0]]), np.array([1, 1, -1, -1])


def planted(seed, *shape, gap=0.1):
    rng = np.random.default_rng(seed)
    xs = rng.normal(size=shape)
    u = rng.normal(size=(*shape[:-2], shape[-1]))
    u /= np.linalg.norm(u, axis=-1, keepdims=True)
    ys = np.sign(np.einsum("...nd,...d->...n", xs, u))
    return np.round((xs + gap * ys[..., None] * u[..., None, :]) / STEP) * STEP, ys


def loop(xs, ys, *, bias=True, epochs=1000):
    """Algorithm 1, as written: (w, b), updates, sweeps, the examples updated on."""
    w = np.zeros(xs.shape[1])
    b = 0.0
    index = []
    sweeps = 0
    before = -1
    while len(index) > before and sweeps < epochs:
        before = len(index)
        sweeps = sweeps + 1
        for i, (x, y) in enumerate(zip(xs, ys)):
            if np.sign(w @ x + b) != y:
                w = w + y * x
                b = b + y * bias
                index.append(i)
    return np.append(w, b) if bias else w, len(index), sweeps, index


def test_a_tie_is_a_mistake():
    """At v = 0, and later where an example is orthogonal to v."""
    rows = jnp.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0], [2.0, -1.0]])
    v, mistakes = jax.jit(algorithm._sweep)(jnp.zeros(2), rows)
    assert v.tolist() == [3.0, 1.0]
    assert mistakes == 3


@pytest.mark.parametrize("d", [2, 5, 60], ids=["plane", "row by row", "in blocks"])
@pytest.mark.parametrize("bias", [True, False])
def test_fit_is_the_loop(d, bias):
    """The same weights to the last bit, updates and sweeps; short rows and long ones take different
    ways.
    """
    xs, ys = planted(d, 100, d, gap=0.2)
    fit = fit_perceptron(xs.astype(np.float32), ys, bias=bias)
    v, mistakes, sweeps, _ = loop(xs, ys, bias=bias)
    assert fit.model.v.tolist() == v.tolist()
    assert (int(fit.mistakes), int(fit.epochs), bool(fit.separated)) == (mistakes, sweeps, True)


@pytest.mark.parametrize("d", [4, 60])
def test_fit_is_scikit_learns(d):
    """Perceptron without shuffling or early stopping makes the same updates, stopped where we
    stop.
    """
    xs, ys = planted(7, 200, d)
    fit = fit_perceptron(xs.astype(np.float32), ys)
    peer = SklearnPerceptron(shuffle=False, tol=None, max_iter=int(fit.epochs)).fit(xs, ys)
    assert np.array_equal(fit.model.w, peer.coef_[0])
    assert np.array_equal(fit.model.b, peer.intercept_[0])


@given(st.integers(0, 10**6))
def test_novikoff(seed):
    """At most R²/γ² updates without a bias, γ of the best separator."""
    xs, ys = planted(seed, 20, 3)
    fit = fit_perceptron(xs.astype(np.float32), ys, bias=False)
    bound = np.square(xs).sum(axis=1).max() / max_margin(xs, ys, bias=False).margin ** 2
    assert bool(fit.separated)
    assert int(fit.mistakes) <= bound * (1 + 1e-6)
    assert (
        geometric_margin(fit.model, jnp.asarray(xs, jnp.float32), jnp.asarray(ys, jnp.float32)) > 0
    )


@pytest.mark.parametrize("shared", [False, True], ids=["mapped", "labels shared"])
def test_vmap_is_a_loop_over_data_sets(shared):
    """Each set ends where it ends alone, however long the others take; two levels of vmap as
    well.
    """
    xs, ys = planted(3, 6, 30, 2, gap=0.02)
    xs = jnp.asarray(xs * (ys * ys[:1])[..., None] if shared else xs, jnp.float32)
    ys = jnp.asarray(ys[0] if shared else ys, jnp.float32)
    many = jax.vmap(fit_perceptron, in_axes=(0, None if shared else 0))(xs, ys)
    assert len(set(many.epochs.tolist())) > 1
    for k in range(6):
        one = fit_perceptron(xs[k], ys if shared else ys[k])
        assert jax.tree.all(jax.tree.map(lambda a, b, k=k: bool((a[k] == b).all()), many, one))
    if not shared:
        twice = jax.jit(jax.vmap(jax.vmap(fit_perceptron)))(
            xs.reshape(2, 3, 30, 2), ys.reshape(2, 3, 30)
        )
        assert twice.mistakes.ravel().tolist() == many.mistakes.tolist()


def test_side_by_side_is_one_after_another():
    """What runs on an accelerator, on the CPU: the same numbers."""
    xs, ys = planted(3, 6, 40, 50, gap=0.02)
    zs = jnp.asarray(ys[..., None] * xs, jnp.float32)
    one = lambda z: algorithm._sweep_until_clean.fun(z, jnp.array(1000, jnp.int32), None)
    for a, b in zip(jax.vmap(one)(zs), jax.lax.map(one, zs)):
        assert np.array_equal(a, b)


def test_integers_are_exact():
    """Weights far beyond the 24 bits of float32, summed without rounding; dtype int32."""
    rng = np.random.default_rng(0)
    xs = rng.integers(-3000, 3000, (60, 3))
    ys = np.where(xs @ [3, -2, 1] >= 0, 1, -1)
    fit = fit_perceptron(xs, ys)
    v, mistakes, *_ = loop(xs.astype(object), ys)
    assert fit.model.w.dtype == jnp.int32
    assert fit.model.v.tolist() == [int(a) for a in v]
    assert int(fit.mistakes) == mistakes


def test_integers_that_may_overflow_are_refused():
    with pytest.raises(ValueError, match="overflowed"):
        fit_perceptron(np.array([[40_000, 40_000], [-40_000, 39_000]]), np.array([1, -1]))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int8, np.uint16, np.int16])
@pytest.mark.usefixtures("unchecked")
def test_narrow_integers_have_room_and_signs(dtype):
    """The same as int32, eagerly, traced and on the path; a label of -1 stays -1."""
    rng = np.random.default_rng(1)
    xs = rng.integers(0, 2 if dtype is np.bool_ else 100, (40, 4))
    ys = np.where(xs @ [3, -2, 1, -1] >= 0.5, 1, -1)
    narrow = jnp.asarray(xs.astype(dtype))
    labels = jnp.asarray(ys.astype(np.int8))
    expected = fit_perceptron(xs, ys)
    for fit in (fit_perceptron(narrow, labels), jax.jit(fit_perceptron)(narrow, labels)):
        assert fit.model.w.dtype == jnp.int32
        assert fit.model.v.tolist() == expected.model.v.tolist()
    path = perceptron_path(narrow, labels, max_updates=int(expected.mistakes))
    assert path.model.v[-1].tolist() == expected.model.v.tolist()
    assert bool(path.separated)


def test_wide_integers_are_kept_or_refused():
    ys = np.array([1, -1])
    for xs in (np.array([[2], [1]], np.uint64), np.array([[2**32 + 2], [1]])):
        for ask in (fit_perceptron, lambda xs, ys: perceptron_path(xs, ys, max_updates=3)):
            with pytest.raises(ValueError, match="may not fit into int32"):
                ask(xs, ys)
    assert fit_perceptron(np.array([[2], [1]], np.uint32), ys).model.w.dtype == jnp.int32
    with jax.enable_x64(True):
        large = perceptron_path(
            np.array([[2**31 + 2], [2**31]], np.uint32), ys, max_updates=1, bias=False
        )
        assert large.model.w[:, 0].tolist() == [0, 2**31 + 2]


def test_a_key_shuffles_each_sweep():
    """Other weights, still a separator; the same key, the same weights."""
    xs, ys = planted(5, 50, 3, gap=0.02)
    xs = jnp.asarray(xs, jnp.float32)
    ys = jnp.asarray(ys, jnp.float32)
    plain, once, again, other = (
        fit_perceptron(xs, ys, key=key) for key in (None, jr.key(0), jr.key(0), jr.key(1))
    )
    assert (
        once.model.v.tolist()
        == again.model.v.tolist()
        != other.model.v.tolist()
        != plain.model.v.tolist()
    )
    assert all(
        bool(fit.separated) and geometric_margin(fit.model, xs, ys) > 0 for fit in (once, other)
    )


def test_xor_is_refused_with_a_certificate():
    """The multipliers are in the error; traced, it says so and stops; floats and integers alike."""
    for xs in (XOR[0], XOR[0].astype(float)):
        with pytest.raises(NotSeparable, match="no hyperplane") as error:
            fit_perceptron(xs, XOR[1], epochs=50)
        assert np.allclose(error.value.certificate, 0.25)
        assert isinstance(error.value, ValueError)
    traced = jax.jit(lambda xs, ys: fit_perceptron(xs, ys, epochs=50))(*map(jnp.asarray, XOR))
    assert (bool(traced.separated), int(traced.epochs), traced.model.v.tolist()) == (
        False,
        50,
        [-1, -1, -1],
    )


def test_too_few_epochs_are_told():
    """Separable, but not yet separated: a warning with a bound that more epochs keep, and not
    separated.
    """
    xs, ys = planted(5, 50, 3, gap=0.02)
    with pytest.warns(RuntimeWarning, match="separable, but not separated") as told:
        fit = fit_perceptron(xs.astype(np.float32), ys, epochs=1)
    bound = float(re.findall(r"bound is (\S+) updates", str(told[0].message))[0])
    wide = np.column_stack([xs, np.ones(50)])
    least = np.square(wide).sum(axis=1).max() / max_margin(wide, ys, bias=False).margin ** 2
    assert int(fit_perceptron(xs.astype(np.float32), ys).mistakes) <= least <= bound * (1 + 1e-2)
    assert (int(fit.epochs), bool(fit.separated)) == (1, False)
    with pytest.raises(ValueError, match="epochs must be an integer >= 1"):
        fit_perceptron(xs, ys, epochs=0)


@pytest.mark.usefixtures("unchecked")
def test_bad_data_is_refused():
    xs = np.ones((3, 2))
    for ys in ([1, 0, -1], [1, 2, -1], [1.0, 0.5, -1.0]):
        with pytest.raises(ValueError, match="labels -1 or"):
            fit_perceptron(xs, np.array(ys))
    with pytest.raises(ValueError, match=r"row 1 is nan"):
        fit_perceptron(xs, np.array([1, np.nan, -1]))
    with pytest.raises(ValueError, match=r"got \(3, 2\) and \(4,\)"):
        fit_perceptron(xs, np.ones(4))
    with pytest.raises(ValueError, match="at least one example"):
        fit_perceptron(np.ones((0, 2)), np.ones(0))
    for ask in (fit_perceptron, lambda xs, ys: perceptron_path(xs, ys, max_updates=3)):
        with pytest.raises(ValueError, match=r"no features, as the shape is \(3, 0\)"):
            ask(np.zeros((3, 0)), np.ones(3))
    with pytest.raises(ValueError, match="column 0 is inf"):
        fit_perceptron(np.array([[np.inf, 1.0]]), np.ones(1))
    nan = jax.jit(lambda xs, ys: fit_perceptron(xs, ys, epochs=3))(
        jnp.full((2, 2), jnp.nan), jnp.ones(2)
    )
    assert not bool(nan.separated)


@pytest.mark.parametrize("bias", [True, False])
def test_path_is_the_loop(bias):
    """Each update of the loop, on the same examples, and then rest."""
    xs, ys = planted(11, 30, 3, gap=0.02)
    v, mistakes, _, index = loop(xs, ys, bias=bias)
    path = perceptron_path(
        jnp.asarray(xs, jnp.float32),
        jnp.asarray(ys, jnp.float32),
        max_updates=mistakes + 5,
        bias=bias,
    )
    assert int(path.n_updates) == mistakes
    assert path.indices.tolist() == index + [-1] * 5
    assert path.model.v[mistakes:].tolist() == [v.tolist()] * 6
    assert path.model.v[0].tolist() == [0.0] * (3 + bias)
    assert bool(path.separated)


def test_path_from_elsewhere():
    xs = jnp.eye(2)
    ys = jnp.ones(2)
    path = perceptron_path(
        xs, ys, max_updates=4, bias=False, start=Perceptron(jnp.array([-1.0, 3.0]))
    )
    assert path.model.w[:, 0].tolist() == [-1.0, 0.0, 1.0, 1.0, 1.0]
    short = perceptron_path(
        xs, ys, max_updates=1, start=Perceptron(jnp.array([-9.0, 3.0]), jnp.array(0.0))
    )
    assert not bool(short.separated)
    with pytest.raises(ValueError, match="start must have a bias"):
        perceptron_path(xs, ys, max_updates=4, start=Perceptron(jnp.zeros(2)))
