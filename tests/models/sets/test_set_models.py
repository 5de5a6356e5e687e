"""Models for sets: order, padding, critical points, training on padded sets, bad input."""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from thetax import tree
from thetax.attack import PGD, margin_loss, perturb
from thetax.core import predict
from thetax.data import PointSet, stack_sets
from thetax.layers import BatchNorm, LayerNorm, fold_batch_norm
from thetax.models import (
    MLP,
    AbstractionLevel,
    DeepSets,
    EquivariantDeepSets,
    PointNet,
    PointNet2,
    PointNetSegmentation,
    PointNetWidths,
    SetTransformer,
    critical_points,
)
from thetax.threat import Linf
from thetax.train import (
    Silent,
    cross_entropy,
    descend,
    fit,
    token_cross_entropy,
    with_orthogonal_transform,
)

NARROW = PointNetWidths((8, 4), (8, 12), (8,), (8, 8), (4, 6), (5,))
LEVELS = (AbstractionLevel(4, 1.5, 3, (6,)), AbstractionLevel(2, 3.0, 2, (6,)))
MODELS = {  # whether the output has a row for each element
    "DeepSets": (partial(DeepSets.init, 3, 2, latent=6, hidden=(8,)), False),
    "DeepSets several": (
        partial(DeepSets.init, 3, 2, latent=4, hidden=(6,), aggregation=["max", "logsumexp"]),
        False,
    ),
    "EquivariantDeepSets": (
        partial(EquivariantDeepSets.init, 3, 2, latent=6, hidden=(8,), aggregation="mean"),
        True,
    ),
    "SetTransformer": (
        partial(SetTransformer.init, 3, 2, width=8, heads=2, n_inducing=3, depth=1),
        False,
    ),
    "PointNet": (partial(PointNet.init, 2, widths=NARROW, normalise=LayerNorm.init), False),
    "PointNetSegmentation": (partial(PointNetSegmentation.init, 2, widths=NARROW), True),
    "PointNet2": (
        partial(PointNet2.init, 2, levels=LEVELS, whole_widths=(8,), head_widths=(6,)),
        False,
    ),
}


def generic(init, seed=0):
    model = init(key=jr.key(seed))
    return tree.axpy(0.2, tree.normal_like(jr.key(seed + 1), model), model)


def normal(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def rows(x):
    return x.points if isinstance(x, PointSet) else x


@pytest.mark.parametrize("name", MODELS)
def test_order_and_padding(name):
    """One program: random orders of 50 points, and padding by rows of large numbers."""
    init, is_equivariant = MODELS[name]
    model = generic(init)
    x = normal(50, 3)
    rng = np.random.default_rng(0)
    orders = np.array([rng.permutation(50) for _ in range(8)])
    padded = PointSet(jnp.concatenate([x, jnp.full((7, 3), 1e4)]), jnp.arange(57) < 50)
    y, outputs, found = jax.jit(
        lambda model: (model(x), jax.vmap(lambda x: model(x))(x[orders]), rows(model(padded)))
    )(model)
    scale = float(jnp.abs(y).max())
    close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4 * scale)
    close(outputs, y[orders] if is_equivariant else jnp.broadcast_to(y, outputs.shape))
    close(found[: len(y)], y)
    if is_equivariant:
        assert (np.asarray(found)[50:] == 0).all()


def test_deep_sets_of_few_elements():
    model = generic(MODELS["DeepSets"][0])
    np.testing.assert_array_equal(model(jnp.zeros((0, 3))), model.rho(jnp.zeros(6)))
    x = normal(1, 3)
    np.testing.assert_allclose(model(x), model.rho(model.phi(x[0])), rtol=1e-6)
    ragged = stack_sets([normal(n, 3, seed=n) for n in (1, 4, 2)])
    expected = [model(normal(n, 3, seed=n)) for n in (1, 4, 2)]
    np.testing.assert_allclose(predict(model, ragged), np.stack(expected), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("init", [PointNet.init, PointNetSegmentation.init])
def test_critical_points_decide(init):
    """The critical points alone give the same features; another cloud of them does not."""
    model = generic(partial(init, 2, widths=NARROW))
    x = normal(60, 3)
    found = critical_points(model, x)
    keep = np.asarray(found.is_critical)
    assert 0 < keep.sum() < 60
    whole = model.features(x).whole
    np.testing.assert_allclose(model.features(x[keep]).whole, whole, rtol=1e-5)
    assert float(jnp.abs(model.features(x[~keep]).whole - whole).max()) > 1e-3
    at = model.features(x).points
    np.testing.assert_array_equal(at[found.indices, jnp.arange(at.shape[1])], whole)
    padded = critical_points(model, PointSet.pad(x, size=64)).is_critical
    assert padded.tolist() == [*keep.tolist(), *[False] * 4]


def test_batch_norm_in_pointnet_folds():
    model = PointNet.init(2, widths=NARROW, normalise=BatchNorm.init, key=jr.key(0))
    xs = normal(6, 9, 3)
    folded = fold_batch_norm(model, xs)
    np.testing.assert_allclose(predict(folded, xs), predict(model, xs), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(folded(xs[0]), folded(xs[0][::-1]), rtol=1e-4, atol=1e-5)


def test_orthogonal_transform_penalty():
    model = generic(partial(PointNet.init, 2, widths=NARROW))
    batch = normal(3, 5, 3), jnp.array([0, 1, 1])
    extra = with_orthogonal_transform(cross_entropy, strength=2.0)(model, batch)
    transforms = [np.asarray(model.feature_transform(x), np.float64) for x in batch[0]]
    penalties = [np.square(np.eye(4) - T @ T.T).sum() for T in transforms]
    expected = float(cross_entropy(model, batch)) + 2.0 * np.mean(penalties)
    assert float(extra) == pytest.approx(expected, rel=1e-4)
    with pytest.raises(ValueError, match="feature_transform, such as PointNet; got a MLP"):
        with_orthogonal_transform(cross_entropy)(MLP.init(15, 2, key=jr.key(0)), batch)
    plain = PointNet.init(2, widths=NARROW, feature_transform=False, key=jr.key(0))
    with pytest.raises(ValueError, match="no feature transform"):
        plain.feature_transform(batch[0][0])


def test_fit_and_attack():
    """Sets of different sizes train as any batch; arrays are attacked at their points."""
    sizes = np.random.default_rng(0).integers(2, 6, 40)
    sets = [normal(n, 3, seed=i) + 2.0 * (i % 2) for i, n in enumerate(sizes)]
    xs, ys = stack_sets(sets), jnp.arange(40) % 2
    model = DeepSets.init(3, 2, latent=8, hidden=(8,), aggregation="mean", key=jr.key(0))
    result = fit(
        descend(cross_entropy, optax.adam(3e-2)),
        model,
        (xs, ys),
        epochs=10,
        batch_size=20,
        key=jr.key(1),
        progress=Silent(),
    )
    accuracy = (predict(result.model, xs).argmax(axis=1) == ys).mean()
    assert float(accuracy) > 0.9
    arrays = jnp.stack([x[:2] for x in sets])
    attack = PGD(margin_loss, Linf(2.5), step_size=1.0, steps=4)
    found = perturb(result.model, (arrays, ys), attack, batch_size=40)
    assert found.xs.shape == arrays.shape
    assert found.success.mean() > 0.8
    single = xs.points[0], xs.mask[0]
    moved = attack(lambda points: result.model(PointSet(points, single[1])), single[0], ys[0])
    assert float(jnp.abs(moved - single[0]).max()) <= 2.5 + 1e-5


def test_segmentation_of_padded_clouds_has_an_objective():
    model = generic(partial(PointNetSegmentation.init, 2, widths=NARROW))
    xs = stack_sets([normal(5, 3), normal(3, 3, seed=1)])
    ys = jnp.array([[0, 1, 0, 1, 1], [1, 0, 1, -1, -1]])
    logits = [model(normal(5, 3)), model(normal(3, 3, seed=1))]
    losses = jnp.concatenate(
        [optax.softmax_cross_entropy_with_integer_labels(a, y[y >= 0]) for a, y in zip(logits, ys)]
    )
    assert float(token_cross_entropy(model, (xs, ys))) == pytest.approx(
        float(losses.mean()), rel=1e-4
    )


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="aggregations are"):
        DeepSets.init(3, 2, aggregation="avg", key=jr.key(0))
    with pytest.raises(ValueError, match="batch normalisation inside"):
        DeepSets.init(3, 2, normalise=BatchNorm.init, key=jr.key(0))
    model = PointNet.init(2, widths=NARROW, key=jr.key(0))
    with pytest.raises(ValueError, match=r"expected a set of shape \(n, 3\).*got \(5, 2\)"):
        model(jnp.ones((5, 2)))
    with pytest.raises(ValueError, match="predict"):
        model(jnp.ones((4, 5, 3)))
