"""The recipes for images on small images; tests with the real ones are marked `network`."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import data, recipes
from thetax.core import predict
from thetax.layers import BatchNorm, Chain, Linear, fold_batch_norm, has_batch_norm
from thetax.recipes import Job
from thetax.recipes.shared.images import fold_norms, image_augmentation, load_images
from thetax.train import Run, Silent

TINY = {
    "cnn": {
        "widths": (4, 8),
        "epochs": 8,
        "batch_size": 20,
        "learning_rate": 1e-2,
        "dropout": 0.1,
        "max_shift": 1,
    },
    "resnet": {
        "blocks": (1, 1),
        "width": 4,
        "epochs": 6,
        "batch_size": 20,
        "learning_rate": 0.1,
        "cutout": 2,
        "max_shift": 1,
    },
}


def job(run: Run | None = None) -> Job:
    return Job(run, jr.key(0), Silent())


@pytest.fixture
def small_images(monkeypatch):
    """Grey or coloured noise of 12 by 12 with a symmetric block at a position that depends on the
    label.
    """
    rng = np.random.default_rng(0)

    def images(n, *channels):
        ys = np.arange(n, dtype=np.int32) % 10
        xs = rng.random((n, *channels, 12, 12), np.float32) * 0.1
        for x, y in zip(xs, ys):
            x[..., 1 + 5 * (y % 2) : 5 + 5 * (y % 2), 5 - y // 2 : 7 + y // 2] += 0.6
        return xs, ys

    classes = tuple("0123456789")
    grey = data.Data(images(480), images(100), classes, ())
    sets = {
        "mnist": grey,
        "fashion-mnist": grey,
        "cifar-10": data.Data(images(240, 3), images(50, 3), classes, ()),
    }
    monkeypatch.setattr(data, "load", lambda name, **where: sets[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "row"), [("cnn", "convolutional network"), ("resnet", "residual network")]
)
def test_a_network_learns_and_a_second_call_reads_the_run(
    small_images, recipe, row, tmp_path, check_reread
):
    run = Run.begin(tmp_path / "r", recipe=recipe, arguments={}, seed=0)
    call = getattr(recipes, recipe)
    outcome = call(job(run), **TINY[recipe])
    assert outcome.table[row]["test error %"] < 20
    assert len(outcome.history["valid error"]) == TINY[recipe]["epochs"]
    assert (len(outcome.train[1]), outcome.train[0].shape[1:]) == (440, (1, 12, 12))
    assert not has_batch_norm(outcome.model)
    assert outcome.model(jnp.asarray(outcome.test[0][0])).shape == (10,)  # without a batch
    check_reread(lambda: call(job(run), **TINY[recipe]), outcome)


@pytest.mark.slow
def test_resnet_in_half_precision_on_colour_images(small_images):
    outcome = recipes.resnet(job(), data="cifar-10", precision="bfloat16", **TINY["resnet"])
    assert {leaf.dtype.name for leaf in jax.tree.leaves(outcome.model)} == {"float32"}
    assert outcome.model.stem.layers[0].W.shape == (4, 3, 3, 3)
    assert outcome.decay == 5e-4
    assert outcome.history["train loss"][-1] < outcome.history["train loss"][0]


def test_images_have_channels_and_the_same_pixels(small_images):
    for name, channels in {"mnist": 1, "cifar-10": 3}.items():
        raw = data.load(name)
        images = load_images(job(), name)
        assert raw.test is not None
        assert images.test is not None
        assert images.train[0].shape[1:] == (channels, 12, 12)
        np.testing.assert_array_equal(images.test[0].reshape(raw.test[0].shape), raw.test[0])


@pytest.mark.slow
def test_augmentation():
    x = jnp.ones((1, 6, 6)).at[..., 3:].set(2.0)
    keys = jr.split(jr.key(0), 40)
    augment = lambda name, cutout_size: jax.vmap(
        lambda key: image_augmentation(name, max_shift=0, cutout_size=cutout_size)(x, key=key)
    )(keys)
    assert (np.asarray(augment("mnist", 0)) == np.asarray(x)).all()
    rows = {tuple(row) for row in np.asarray(augment("fashion-mnist", 0))[:, 0, 0].tolist()}
    assert rows == {(1, 1, 1, 2, 2, 2), (2, 2, 2, 1, 1, 1)}
    assert ((augment("mnist", 2) == 0).sum(axis=(1, 2, 3)) > 0).all()
    assert (
        image_augmentation("cifar-10", max_shift=2, cutout_size=2)(x) == x
    ).all()  # deterministic without a key


def test_folded_norms():
    xs = jr.normal(jr.key(0), (50, 3))
    net = Chain(Linear.init(3, 4, key=jr.key(1)), BatchNorm.init(4))
    np.testing.assert_allclose(
        predict(fold_norms(net, (xs, None)), xs), predict(fold_batch_norm(net, xs), xs), atol=1e-6
    )
    np.testing.assert_allclose(
        predict(fold_norms(net, (xs, None)), xs).mean(axis=0), np.zeros(4), atol=1e-5
    )


@pytest.mark.parametrize(
    ("recipe", "options", "message"),
    [
        ("cnn", {"widths": ()}, "at least one width is needed"),
        ("cnn", {"max_shift": -1}, "pixels must be >= 0; got -1"),
        ("cnn", {"epochs": 0}, "epochs must be more than 0"),
        ("resnet", {"cutout": -2}, "size must be .* >= 1; got -2"),
        ("resnet", {"label_smoothing": 2.0}, r"strength must be in \[0, 1\]"),
        ("resnet", {"learning_rate": 0.0}, "learning_rate must be more than 0"),
    ],
)
def test_bad_options_are_refused(small_images, recipe, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(recipes, recipe)(job(), **TINY[recipe] | options)


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "name", "max_error"),
    [("cnn", "mnist", 0.7), ("cnn", "fashion-mnist", 7.5), ("resnet", "fashion-mnist", 6.0)],
)
def test_errors_on_real_images(recipe, name, max_error):
    """An accuracy of 99.3 % on MNIST and 92.5 % on Fashion-MNIST, 94 % with residual blocks (hours
    without a GPU).
    """
    (row,) = getattr(recipes, recipe)(job(), data=name).table.values()
    assert row["test error %"] <= max_error
