"""Augmentations: pure, mappable, shape-keeping, the identity without a key, and each doing what it
says.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.data import augment

ALL = {
    "noise": augment.noise(scale=0.1),
    "flip": augment.flip(),
    "shift": augment.shift(pixels=2),
    "cutout": augment.cutout(size=3),
    "rotate": augment.rotate(degrees=30.0),
    "chain": augment.chain(
        augment.flip(), augment.shift(pixels=1), augment.rotate(), augment.noise()
    ),
}
SHAPES = [(9, 7), (3, 8, 8)]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ALL)
def test_contract(name, shape):
    vary = ALL[name]
    xs = jr.normal(jr.key(0), (4, *shape))
    keys = jr.split(jr.key(1), 4)
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        eager = jnp.stack([vary(x, key=key) for x, key in zip(xs, keys)])
        mapped = jax.jit(jax.vmap(lambda x, key: vary(x, key=key)))(xs, keys)
    assert eager.shape == xs.shape
    assert eager.dtype == xs.dtype
    np.testing.assert_allclose(mapped, eager, atol=1e-4)
    np.testing.assert_array_equal(vary(xs[0]), xs[0])  # no key, no chance
    assert not np.allclose(eager, xs)


def many(draw, n: int) -> np.ndarray:
    return np.asarray(jax.jit(jax.vmap(draw))(jr.split(jr.key(0), n)))


def test_noise_has_its_scale():
    x = augment.noise(scale=0.3)(jnp.zeros((100, 100)), key=jr.key(0))
    assert abs(float(x.std()) - 0.3) < 0.01


def test_flip_flips_about_half():
    x = jnp.arange(6.0).reshape(2, 3)
    seen = many(lambda key: augment.flip()(x, key=key), 200).tolist()
    mirrored = seen.count([[2.0, 1.0, 0.0], [5.0, 4.0, 3.0]])
    assert mirrored + seen.count(x.tolist()) == 200
    assert 70 < mirrored < 130


def test_shift_reaches_every_place_alike_and_loses_what_leaves():
    x = jnp.zeros((5, 5)).at[2, 2].set(1.0)
    total = many(lambda key: augment.shift(pixels=2)(x, key=key), 2500).sum(axis=0)
    assert float(total.sum()) == 2500
    assert float(total.min()) > 60  # 100 expected at each of the 25 places
    moved = many(lambda key: augment.shift(pixels=1)(jnp.ones((4, 4)), key=key), 50)
    assert set(np.unique(moved.sum(axis=(1, 2))).tolist()) <= {9.0, 12.0, 16.0}


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_cutout_hides_one_square_whose_middle_is_anywhere(size):
    x = 1 + jnp.arange(2 * 6 * 5, dtype=jnp.float32).reshape(2, 6, 5)
    before = size // 2
    after = size - size // 2 - 1
    squares = {}
    for i in range(6):
        for j in range(5):
            hidden = np.zeros((6, 5), bool)
            hidden[max(i - before, 0) : i + after + 1, max(j - before, 0) : j + after + 1] = True
            squares[hidden.tobytes()] = hidden
    met = set()
    for got in many(lambda key: augment.cutout(size=size)(x, key=key), 400):
        hidden = got[0] == 0
        np.testing.assert_array_equal(got, np.where(hidden, 0, x))
        met.add(hidden.tobytes())
    assert met == set(squares)


def test_crop_is_a_window_of_the_image():
    x = jnp.arange(2 * 6 * 5, dtype=jnp.float32).reshape(2, 6, 5)
    corners = set()
    for got in many(lambda key: augment.crop(height=4, width=3)(x, key=key), 60):
        i, j = divmod(int(got[0, 0, 0]), 5)
        np.testing.assert_array_equal(got, x[:, i : i + 4, j : j + 3])
        corners.add((i, j))
    assert corners == {(i, j) for i in range(3) for j in range(3)}


def test_rotation_by_a_right_angle_is_exact():
    x = jr.normal(jr.key(0), (2, 6, 6))
    np.testing.assert_allclose(
        augment.rotate_image(x, jnp.array(jnp.pi / 2)), jnp.rot90(x, axes=(1, 2)), atol=1e-4
    )


def test_rotation_stays_within_its_angle():
    """The bright pixel on the right edge turns by no more than it may, both ways."""
    x = jnp.zeros((41, 41)).at[20, 39].set(1.0)
    rows = np.arange(41.0)
    turned = many(lambda key: augment.rotate(degrees=20.0)(x, key=key), 40)
    heights = (turned.sum(axis=2) @ rows / turned.sum(axis=(1, 2)) - 20).tolist()
    limit = 19 * np.sin(np.deg2rad(20))
    assert max(map(abs, heights)) <= limit + 0.6
    assert min(heights) < -limit / 2
    assert max(heights) > limit / 2


def test_chain_gives_each_link_a_key_of_its_own():
    twice = augment.chain(augment.noise(scale=1.0), augment.noise(scale=-1.0))
    assert not np.allclose(twice(jnp.zeros(10), key=jr.key(0)), 0.0)


TURNS = (lambda x: x, lambda x: jnp.roll(x, 1), jnp.flip)


def test_one_of_draws_each_alike():
    """Each of three transformations about a third of the time, and nothing else; without a key, the
    example.
    """
    x = jnp.arange(4.0)
    seen = many(lambda key: augment.one_of(*TURNS)(x, key=key), 3000).tolist()
    counts = [seen.count(turn(x).tolist()) for turn in TURNS]
    assert sum(counts) == 3000
    assert max(abs(count - 1000) for count in counts) < 4 * np.sqrt(3000 * 2 / 9)
    assert augment.one_of(*TURNS)(x) is x


def test_union_has_every_example_under_every_transformation():
    xs = np.arange(12.0).reshape(3, 4)
    ys = np.array([5, 6, 7])
    changed, labels = augment.apply_all(xs, ys, *TURNS)
    expected = [(turn(x).tolist(), int(y)) for turn in TURNS for x, y in zip(xs, ys)]
    assert [(x.tolist(), int(y)) for x, y in zip(np.asarray(changed), labels)] == expected
    assert changed.shape == (9, 4)


def test_transformations_that_cannot_be_united():
    xs = jnp.zeros((3, 4))
    ys = jnp.zeros(3)
    with pytest.raises(ValueError, match="expected one or more functions"):
        augment.apply_all(xs, ys)
    with pytest.raises(ValueError, match="expected one or more functions"):
        augment.one_of()
    with pytest.raises(ValueError, match=r"same shape; got \[\(3, 2\), \(3, 4\)\]"):
        augment.apply_all(xs, ys, lambda x: x, lambda x: x[:2])


@pytest.mark.usefixtures("unchecked")
def test_union_needs_a_label_for_each():
    with pytest.raises(ValueError, match="3 xs and 2 ys"):
        augment.apply_all(jnp.zeros((3, 4)), jnp.zeros(2), jnp.flip)


def test_arguments_out_of_range():
    with pytest.raises(ValueError, match=r"probability must be in \[0, 1\]; got 1\.5"):
        augment.flip(probability=1.5)
    with pytest.raises(ValueError, match="pixels must be >= 0; got -1"):
        augment.shift(pixels=-1)
    with pytest.raises(ValueError, match="size must be an integer >= 1; got 0"):
        augment.cutout(size=0)
    with pytest.raises(
        ValueError, match=r"a window of 9 by 9 does not fit into an image of 4 by 4"
    ):
        augment.crop(height=9, width=9)(jnp.zeros((4, 4)), key=jr.key(0))
