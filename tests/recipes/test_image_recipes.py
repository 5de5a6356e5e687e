"""The recipes on images: little pictures of the right form here, the real ones for those marked
`network`.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import data, recipes
from thetax.core import predict
from thetax.layers import BatchNorm, Chain, Linear, fold, has_batch_norm
from thetax.recipes import Job
from thetax.recipes.shared.images import folded, otherwise, pictures
from thetax.train import Run, Silent

TINY = {
    "cnn": {"widths": (4, 8), "epochs": 8, "batch": 20, "rate": 1e-2, "dropout": 0.1, "pixels": 1},
    "resnet": {
        "blocks": (1, 1),
        "width": 4,
        "epochs": 6,
        "batch": 20,
        "rate": 0.1,
        "hole": 2,
        "pixels": 1,
    },
}


def job(run: Run | None = None) -> Job:
    return Job(run, jr.key(0), Silent())


@pytest.fixture
def little(monkeypatch):
    """Grey or coloured noise of 12 by 12 with the label written as a block, the same if
    mirrored.
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
def test_learns_and_answers_again_from_the_folder(little, recipe, row, tmp_path):
    run = Run.begin(tmp_path / "r", recipe=recipe, arguments={}, seed=0)
    do = getattr(recipes, recipe)
    outcome = do(job(run), **TINY[recipe])
    assert outcome.table[row]["test error %"] < 20
    assert len(outcome.history["valid error"]) == TINY[recipe]["epochs"]
    assert (len(outcome.train[1]), outcome.train[0].shape[1:]) == (440, (1, 12, 12))
    assert not has_batch_norm(outcome.model)
    assert outcome.model(jnp.asarray(outcome.test[0][0])).shape == (10,)  # one picture is enough
    assert do(job(run), **TINY[recipe]).table == outcome.table


@pytest.mark.slow
def test_resnet_in_half_precision_on_coloured_pictures(little):
    outcome = recipes.resnet(job(), data="cifar-10", precision="bfloat16", **TINY["resnet"])
    assert {leaf.dtype.name for leaf in jax.tree.leaves(outcome.model)} == {"float32"}
    assert outcome.model.stem.layers[0].W.shape == (4, 3, 3, 3)
    assert outcome.decay == 5e-4
    assert outcome.history["train loss"][-1] < outcome.history["train loss"][0]


def test_pictures_have_channels_and_keep_their_pixels(little):
    for name, channels in {"mnist": 1, "cifar-10": 3}.items():
        raw = data.load(name)
        made = pictures(job(), name)
        assert raw.test is not None
        assert made.test is not None
        assert made.train[0].shape[1:] == (channels, 12, 12)
        np.testing.assert_array_equal(made.test[0].reshape(raw.test[0].shape), raw.test[0])


@pytest.mark.slow
def test_digits_are_not_mirrored_and_holes_are_made_where_asked():
    x = jnp.ones((1, 6, 6)).at[..., 3:].set(2.0)
    keys = jr.split(jr.key(0), 40)
    see = lambda name, hole: jax.vmap(lambda key: otherwise(name, pixels=0, hole=hole)(x, key=key))(
        keys
    )
    assert (np.asarray(see("mnist", 0)) == np.asarray(x)).all()
    rows = {tuple(row) for row in np.asarray(see("fashion-mnist", 0))[:, 0, 0].tolist()}
    assert rows == {(1, 1, 1, 2, 2, 2), (2, 2, 2, 1, 1, 1)}
    assert ((see("mnist", 2) == 0).sum(axis=(1, 2, 3)) > 0).all()
    assert (otherwise("cifar-10", pixels=2, hole=2)(x) == x).all()  # no key, no chance


def test_folded_is_the_network_on_training_pictures():
    xs = jr.normal(jr.key(0), (50, 3))
    net = Chain(Linear.init(3, 4, key=jr.key(1)), BatchNorm.init(4))
    np.testing.assert_allclose(
        predict(folded(net, (xs, None)), xs), predict(fold(net, xs), xs), atol=1e-6
    )
    np.testing.assert_allclose(
        predict(folded(net, (xs, None)), xs).mean(axis=0), np.zeros(4), atol=1e-5
    )


@pytest.mark.parametrize(
    ("recipe", "options", "says"),
    [
        ("cnn", {"widths": ()}, "needs a width for each stage"),
        ("cnn", {"pixels": -1}, "pixels=-1"),
        ("cnn", {"epochs": 0}, "epochs must be more than 0"),
        ("resnet", {"hole": -2}, "size=-2"),
        ("resnet", {"smoothing": 2.0}, "strength is a probability"),
        ("resnet", {"rate": 0.0}, "rate must be more than 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(little, recipe, options, says):
    with pytest.raises(ValueError, match=says):
        getattr(recipes, recipe)(job(), **TINY[recipe] | options)


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "name", "most"),
    [("cnn", "mnist", 0.7), ("cnn", "fashion-mnist", 7.5), ("resnet", "fashion-mnist", 6.0)],
)
def test_errors_on_real_images(recipe, name, most):
    """99.3 % of MNIST and 92.5 % of Fashion-MNIST are right, 94 % with residual blocks (hours
    without a GPU).
    """
    (row,) = getattr(recipes, recipe)(job(), data=name).table.values()
    assert row["test error %"] <= most
