"""Primitives lie on their surfaces and are uniform by area; meshes and rotations."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.stats import kstest

from thetax.data import (
    PRIMITIVE_PARTS,
    PRIMITIVES,
    PointSet,
    jitter_points,
    mesh_areas,
    normalise_points,
    primitive_clouds,
    random_rotation,
    rotate_points,
    sample_mesh,
    sample_primitive,
)
from thetax.data.sets.primitives import CONE_HEIGHT, TORUS_RADIUS

N = 4000
FALSE_ALARM = 1e-4


def drawn(name):
    points, parts = sample_primitive(name, N, key=jr.key(0))
    return np.asarray(points, np.float64), np.array(PRIMITIVE_PARTS)[np.asarray(parts)]


def uniform(values, low, high):
    return kstest(values, "uniform", (low, high - low)).pvalue > FALSE_ALARM


def test_sphere():
    points, _ = drawn("sphere")
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, rtol=1e-5)
    assert uniform(points[:, 2], -1, 1)  # Archimedes
    assert uniform(np.arctan2(points[:, 1], points[:, 0]), -np.pi, np.pi)


def test_cube():
    points, _ = drawn("cube")
    faces = np.abs(np.abs(points) - 1) < 1e-6
    assert (faces.sum(axis=1) >= 1).all()
    for axis in range(3):
        on_face = faces[:, axis]
        assert abs(on_face.mean() - 1 / 3) < 4 * np.sqrt(2 / 9 / N)
        assert uniform(points[on_face, (axis + 1) % 3], -1, 1)


def test_torus():
    points, _ = drawn("torus")
    ring = np.hypot(points[:, 0], points[:, 1])
    np.testing.assert_allclose((ring - 1) ** 2 + points[:, 2] ** 2, TORUS_RADIUS**2, rtol=1e-4)
    v = np.arctan2(points[:, 2], ring - 1)
    of_angle = lambda v: (v + np.pi + TORUS_RADIUS * np.sin(v)) / (2 * np.pi)
    assert kstest(v, of_angle).pvalue > FALSE_ALARM
    wrong = lambda v: (v + np.pi) / (2 * np.pi)
    assert kstest(v, wrong).pvalue < FALSE_ALARM


def test_plane():
    points, _ = drawn("plane")
    assert (points[:, 2] == 0).all()
    assert uniform(points[:, 0], -1, 1)


def test_cylinder():
    points, parts = drawn("cylinder")
    is_end = parts == "cylinder end"
    assert abs(is_end.mean() - 1 / 3) < 4 * np.sqrt(2 / 9 / N)
    radius = np.hypot(points[:, 0], points[:, 1])
    np.testing.assert_allclose(radius[~is_end], 1, rtol=1e-5)
    np.testing.assert_allclose(np.abs(points[is_end, 2]), 1)
    assert uniform(radius[is_end] ** 2, 0, 1)
    assert uniform(points[~is_end, 2], -1, 1)


def test_cone():
    points, parts = drawn("cone")
    is_base = parts == "cone base"
    share = 1 / (1 + np.sqrt(1 + CONE_HEIGHT**2))
    assert abs(is_base.mean() - share) < 4 * np.sqrt(share * (1 - share) / N)
    radius = np.hypot(points[:, 0], points[:, 1])
    np.testing.assert_allclose(points[~is_base, 2], CONE_HEIGHT * (1 - radius[~is_base]), atol=1e-5)
    assert uniform(radius**2, 0, 1)


def test_clouds_are_balanced_seeded_and_normalised():
    xs, ys, parts = primitive_clouds(13, n_points=20, noise=0.0, key=jr.key(0))
    counts = np.bincount(np.asarray(ys))
    assert counts.sum() == 13
    assert set(counts.tolist()) == {2, 3}
    np.testing.assert_allclose(np.linalg.norm(xs, axis=2).max(axis=1), 1, rtol=1e-4)
    np.testing.assert_allclose(np.asarray(xs).mean(axis=1), 0, atol=1e-5)
    names = np.array(PRIMITIVE_PARTS)[np.asarray(parts)]
    for shape, row in zip(np.array(list(PRIMITIVES))[np.asarray(ys)], names):
        assert all(name.startswith(shape) for name in row)
    again = primitive_clouds(13, n_points=20, noise=0.0, key=jr.key(0))[0]
    other = primitive_clouds(13, n_points=20, noise=0.0, key=jr.key(1))[0]
    np.testing.assert_array_equal(xs, again)
    assert np.abs(np.asarray(xs) - other).max() > 0.1


def test_rotations_are_uniform():
    """The entries of a uniform rotation have the mean 0, and the first column is uniform on the
    sphere; the determinant is 1.
    """
    R = jax.vmap(lambda key: random_rotation(key=key))(jr.split(jr.key(0), N))
    gram = jnp.einsum("nij,nkj->nik", R, R)
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(3), (N, 3, 3)), atol=1e-5)
    np.testing.assert_allclose(np.linalg.det(R), 1, atol=1e-5)
    for i, j in ((0, 0), (1, 0), (2, 1), (2, 2)):
        assert uniform(np.asarray(R)[:, i, j], -1, 1)


@pytest.mark.parametrize(("axis", "fixed"), [("x", 0), ("y", 1), ("z", 2)])
def test_rotation_about_an_axis(axis, fixed):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(6, 3)), jnp.float32)
    y = rotate_points(axis)(x, key=jr.key(0))
    np.testing.assert_array_equal(y[:, fixed], x[:, fixed])
    np.testing.assert_allclose(y @ y.T, x @ x.T, atol=1e-5)
    assert float(jnp.abs(y - x).max()) > 0.1
    padded = rotate_points(axis)(PointSet.pad(x, size=8), key=jr.key(0))
    np.testing.assert_allclose(padded.points[:6], y, atol=1e-6)
    assert rotate_points(axis)(x) is x


def test_mesh_areas_and_samples():
    rng = np.random.default_rng(0)
    triangles = rng.normal(size=(5, 3, 3)).astype(np.float32)
    a, b, c = (triangles[:, i].astype(float) for i in range(3))
    sides = [np.linalg.norm(p - q, axis=1) for p, q in ((a, b), (b, c), (c, a))]
    s = sum(sides) / 2
    heron = np.sqrt(s * np.prod([s - side for side in sides], axis=0))
    np.testing.assert_allclose(mesh_areas(triangles), heron, rtol=1e-6)
    points, chosen = sample_mesh(triangles, N, key=jr.key(0))
    share = heron / heron.sum()
    found = np.bincount(chosen, minlength=5) / N
    assert (np.abs(found - share) < 4 * np.sqrt(share / N)).all()
    # barycentric coordinates are those of a point inside, and uniform in the triangle
    basis = np.stack([b - a, c - a], axis=2)[chosen]
    weights = np.einsum("nij,nj->ni", np.linalg.pinv(basis), points - a[chosen])
    assert weights.min() > -1e-4
    assert weights.sum(axis=1).max() < 1 + 1e-4
    assert uniform(1 - (1 - weights[:, 0]) ** 2, 0, 1)
    inside = np.einsum("nij,nj->ni", basis, weights) + a[chosen]
    np.testing.assert_allclose(inside, points, atol=1e-4)


def test_jitter_is_clipped_and_needs_a_key():
    x = jnp.zeros((200, 3))
    y = jitter_points(1.0, limit=0.25)(x, key=jr.key(0))
    assert float(jnp.abs(y).max()) == 0.25
    assert jitter_points()(x) is x
    assert normalise_points(x).tolist() == x.tolist()


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="did you mean torus"):
        sample_primitive("tors", 3, key=jr.key(0))
    with pytest.raises(ValueError, match="stretch >= 1"):
        primitive_clouds(3, stretch=0.5, key=jr.key(0))
    with pytest.raises(ValueError, match="axis must be"):
        rotate_points("w")
    with pytest.raises(ValueError, match="limit > 0"):
        jitter_points(0.1, limit=0.0)
    with pytest.raises(ValueError, match=r"shape \(t, 3, 3\)"):
        sample_mesh(np.ones((3, 3)), 2, key=jr.key(0))
    with pytest.raises(ValueError, match="area 0"):
        sample_mesh(np.ones((2, 3, 3)), 2, key=jr.key(0))
    with pytest.raises(ValueError, match="finite numbers"):
        sample_mesh(np.full((2, 3, 3), np.inf), 2, key=jr.key(0))
