"""The decision boundary: exact segments against the model, and the picture of any classifier."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.explain import decision_boundary, input_plane, input_plane_through
from thetax.explain.predictions.decision_boundary import _classes_on
from thetax.layers import Linear
from thetax.models import MLP, Perceptron


def biased(*sizes, seed=0, **options):
    leaves, structure = jax.tree.flatten(MLP.init(*sizes, key=jr.key(seed), **options))
    draw = lambda i, a: a if a.ndim > 1 else jr.normal(jr.fold_in(jr.key(seed + 1), i), a.shape)
    return jax.tree.unflatten(structure, [draw(i, a) for i, a in enumerate(leaves)])


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(2, 10, 8, 1), (2, 10, 8, 2), (2, 10, 8, 5)])
def test_decision_boundary_is_where_the_class_changes(sizes, x64):
    net = biased(*sizes)
    found = decision_boundary(net, input_plane(-3.0, 3.0), grid=60)
    assert len(found.segments)
    t = np.linspace(0.05, 0.95, 7)[:, None, None]
    on = (1 - t) * found.segments[:, 0] + t * found.segments[:, 1]  # (7, s, 2)
    z = np.asarray(jax.vmap(jax.vmap(net))(jnp.asarray(on)))
    z = np.concatenate([0 * z, z], axis=2) if sizes[-1] == 1 else z
    first, second = (
        np.take_along_axis(z, found.pairs[None, :, [i]], axis=2)[..., 0] for i in (0, 1)
    )
    assert np.allclose(first, second, atol=1e-8)
    assert (first >= z.max(axis=2) - 1e-8).all()


@pytest.mark.parametrize("sizes", [(2, 10, 8, 1), (2, 10, 8, 5)])
def test_decision_boundary_is_complete(sizes, x64):
    """Walking along lines, the class changes exactly where a segment is crossed."""
    net = biased(*sizes)
    found = decision_boundary(net, input_plane(-3.0, 3.0), grid=2)
    a = found.segments[:, 0]
    b = found.segments[:, 1]
    x = np.linspace(-3, 3, 4001)
    for y in (-2.1, -0.7, 0.013, 0.9, 2.4):
        z = np.asarray(jax.vmap(net)(jnp.stack([jnp.asarray(x), jnp.full(len(x), y)], axis=1)))
        best = (z[:, 0] > 0) if sizes[-1] == 1 else z.argmax(axis=1)
        changes = x[1:][best[1:] != best[:-1]]
        crossed = (a[:, 1] > y) != (b[:, 1] > y)
        meets = np.sort((a + ((y - a[:, 1]) / (b[:, 1] - a[:, 1]))[:, None] * (b - a))[crossed, 0])
        assert len(meets) == len(changes)
        assert np.allclose(meets, changes, atol=2 * (x[1] - x[0]))


def test_image_is_the_class_at_each_point():
    net = biased(2, 6, 4)
    plane = input_plane(np.array([-1.0, 0.0]), np.array([2.0, 1.0]))
    found = decision_boundary(net, plane, grid=11)
    across, up = np.meshgrid((np.arange(11) + 0.5) / 11 * 3 - 1, (np.arange(11) + 0.5) / 11)
    xs = jnp.asarray(np.stack([across, up], axis=-1), jnp.float32)
    assert (found.image == np.asarray(jax.vmap(jax.vmap(net))(xs)).argmax(axis=2)).all()


def test_image_of_an_affine_classifier_in_numpy():
    """Squares of equal sides between unequal bounds; classes that have no names are numbered."""
    W = np.array([[1.0, 0.5], [-1.0, 2.0], [0.3, -1.0]])
    b = np.array([0.1, -0.4, 0.2])
    model = Linear(jnp.asarray(W, jnp.float32), jnp.asarray(b, jnp.float32))
    plane = input_plane(np.array([-1.0, 0.0]), np.array([2.0, 1.0]))
    image, k = _classes_on(model, plane, 5)
    across, up = np.meshgrid(-1 + 3 * (np.arange(5) + 0.5) / 5, (np.arange(5) + 0.5) / 5)
    expected = (np.stack([across, up], axis=-1) @ W.T + b).argmax(axis=2)
    assert k == 3
    assert len(np.unique(expected)) == 3
    np.testing.assert_array_equal(image, expected)
    found = decision_boundary(Linear(jnp.array([[2.0, 0.0]])), input_plane(-1.0, 1.0), grid=2)
    assert found.classes == ("0", "1")


def test_smooth_network_has_an_image_and_a_reason():
    found = decision_boundary(biased(2, 6, 3, activation=jnp.tanh), input_plane(-1.0, 1.0), grid=5)
    assert found.regions is None
    assert found.reason.startswith("tanh is not piecewise linear")
    assert found.segments.shape == (0, 2, 2)
    assert found.image.shape == (5, 5)


def test_too_many_cells_narrow_the_window():
    net = biased(2, 30, 30, 1)
    found = decision_boundary(net, input_plane(-4.0, 4.0), grid=4, max_regions=200)
    assert found.regions is not None
    assert found.regions.n_regions <= 200
    side = found.plane.high[0] - found.plane.low[0]
    assert np.log2(8 / side) == pytest.approx(round(np.log2(8 / side)))
    assert side < 8


def test_examples_on_a_plane():
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(10, 2, 3)).astype(np.float32)
    net = biased(6, 5, 3)
    plane = input_plane_through(xs[[0, 3, 7]])
    found = decision_boundary(
        net, plane, examples=(xs, np.arange(10) % 3), classes=("a", "b", "c"), grid=8
    )
    assert np.allclose(found.distances[[0, 3, 7]], 0, atol=1e-5)
    others = np.delete(np.arange(10), [0, 3, 7])
    flat = (xs - plane.origin).reshape(10, -1)
    axes = plane.axes.reshape(2, -1)
    assert np.allclose(
        found.distances[others],
        np.linalg.norm(flat - flat @ axes.T @ axes, axis=1)[others],
        atol=1e-5,
    )
    assert found.labels.tolist() == [i % 3 for i in range(10)]
    assert found.classes == ("a", "b", "c")


def test_bad_input():
    with pytest.raises(ValueError, match="grid must be at least 2; got 1"):
        decision_boundary(Linear(jnp.eye(2)), input_plane(-1.0, 1.0), grid=1)


def test_string_labels_are_rejected():
    xs = np.zeros((2, 2))
    with pytest.raises(
        ValueError, match="labels: expected integers from 0 to 1, but the dtype is <U3"
    ):
        decision_boundary(
            Linear(jnp.eye(2)),
            input_plane(-1.0, 1.0),
            examples=(xs, np.array(["cat", "dog"])),
            grid=4,
        )


@pytest.mark.parametrize("b", [jnp.array(-1.0), None])
def test_decision_boundary_of_a_perceptron_is_exact(b):
    """It is piecewise constant, so that it has no cells, but its border is a line: 2x + y = 1, or
    through 0.
    """
    found = decision_boundary(Perceptron(jnp.array([2.0, 1.0]), b), input_plane(-2.0, 2.0), grid=20)
    assert found.regions is None
    assert "constant on either side" in found.reason
    (ends,) = found.segments
    assert np.allclose(ends @ [2.0, 1.0], 0.0 if b is None else 1.0)
    assert np.allclose(sorted(ends[:, 1]), [-2, 2])
