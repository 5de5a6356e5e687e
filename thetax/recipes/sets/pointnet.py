"""Classification and part segmentation of point clouds: `thetax train pointnet`."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ... import data as stored
from ...core import Batch, Model, Objective, predict
from ...data import (
    PRIMITIVE_PARTS,
    PRIMITIVES,
    jitter_points,
    normalise_points,
    primitive_clouds,
    rotate_points,
)
from ...layers import SharedMLP
from ...models import (
    MLP,
    AbstractionLevel,
    DeepSets,
    EquivariantDeepSets,
    PointNet,
    PointNet2,
    PointNetSegmentation,
    PointNetWidths,
)
from ...train import (
    cross_entropy,
    error_rate,
    token_cross_entropy,
    token_error_rate,
    with_augmentation,
    with_orthogonal_transform,
)
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome
from .networks import first_network, fit_networks, member_values

YCB_SCALE = 0.15  # metres; a common scale, since the size of an object tells what it is
STRETCH = 1.25  # of the axes of primitives
N_DISTANCES = 2000  # pairs of points for the distance histogram of a cloud
N_BINS = 32


class Clouds(NamedTuple):
    """Training and test clouds with labels, one for each cloud or for each point."""

    train: Batch
    test: Batch
    classes: tuple[str, ...]


def load_clouds(
    data: str,
    task: str,
    *,
    rotation: str,
    n_points: int,
    n_train: int,
    n_test: int,
    key: PRNGKeyArray,
) -> Clouds:
    """The point clouds of a dataset, rotated at random about the z axis, or in all directions.

    The clouds of YCB are samples of the same 78 meshes; for CAD every fifth mesh of a class is for
    testing only.
    """
    key_train, key_test, key_rotate = jr.split(key, 3)
    segmentation = task == "segmentation"
    if data == "primitives":
        draw = lambda n, key: primitive_clouds(
            n, n_points=n_points, stretch=STRETCH, rotate=False, key=key
        )
        drawn = [draw(n_train, key_train), draw(n_test, key_test)]
        pairs = [(points, parts if segmentation else ys) for points, ys, parts in drawn]
        names = PRIMITIVE_PARTS if segmentation else tuple(PRIMITIVES)
        train, test = _rotated(pairs, rotation, key=key_rotate)
        return Clouds(train, test, names)
    meshes = stored.load_meshes(data)
    if segmentation and not meshes.part_names:
        raise ValueError(
            "task: the YCB objects have no part labels; use data=primitives or data=cad."
        )
    fit_set, test_set = meshes, meshes
    if data == "cad":
        rows = np.arange(len(meshes.labels))
        fit_set, test_set = (meshes.select(rows[rows % 5 != 4]), meshes.select(rows[rows % 5 == 4]))
    pairs = []
    for subset, n, sample_key in ((fit_set, n_train, key_train), (test_set, n_test, key_test)):
        per_mesh = max(1, n // len(subset.labels))
        clouds = stored.mesh_clouds(subset, n_points=n_points, per_mesh=per_mesh, key=sample_key)
        if data == "ycb":
            points = clouds.points - clouds.points.mean(axis=1, keepdims=True)
            points = jnp.asarray(points / YCB_SCALE)
        else:
            points = jax.vmap(normalise_points)(jnp.asarray(clouds.points))
        pairs.append((points, jnp.asarray(clouds.parts if segmentation else clouds.labels)))
    names = meshes.part_names if segmentation else meshes.classes
    train, test = _rotated(pairs, rotation, key=key_rotate)
    return Clouds(train, test, names)


def _rotated(pairs: list[Batch], rotation: str, *, key: PRNGKeyArray) -> list[Batch]:
    rotate = rotate_points(None if rotation == "any" else rotation)
    turn = jax.jit(jax.vmap(lambda x, key: rotate(x, key=key)))
    keys = [jr.split(jr.fold_in(key, i), len(xs)) for i, (xs, _) in enumerate(pairs)]
    return [(turn(xs, of_pair), ys) for (xs, ys), of_pair in zip(pairs, keys)]


def distance_histogram_error(clouds: Clouds, *, key: PRNGKeyArray) -> float:
    """Test error in percent of a logistic regression on the histogram of the distances between
    random pairs of points (the D2 shape distribution of Osada et al. 2002), which no rotation
    changes.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    largest = 2.0 * float(np.sqrt(np.square(np.asarray(clouds.train[0])).sum(axis=2).max()))
    pairs = np.asarray(jr.randint(key, (2, N_DISTANCES), 0, clouds.train[0].shape[1]))

    def histograms(xs: Any) -> Float[np.ndarray, "n b"]:
        xs = np.asarray(xs)
        distances = np.linalg.norm(xs[:, pairs[0]] - xs[:, pairs[1]], axis=2)
        edges = np.linspace(0, largest, N_BINS + 1)
        return np.stack([np.histogram(row, edges)[0] for row in distances]) / N_DISTANCES

    model = make_pipeline(StandardScaler(), LogisticRegression(C=10.0, max_iter=3000))
    model.fit(histograms(clouds.train[0]), np.asarray(clouds.train[1]))
    return 100 * float(np.mean(model.predict(histograms(clouds.test[0])) != clouds.test[1]))


class PointwiseClassifier(eqx.Module):
    """The same MLP for every point, which sees no other point."""

    mlp: SharedMLP

    @classmethod
    def init(cls, *sizes: int, key: PRNGKeyArray) -> "PointwiseClassifier":
        """Initialises the MLP with the given widths."""
        return cls(SharedMLP.init(*sizes, activate_last=False, key=key))

    def __call__(self, x: Float[Array, "n d"]) -> Float[Array, "n m"]:
        return self.mlp(x)


def classifiers(classes: int, *, n_points: int, divisor: int) -> dict[str, Callable[..., Model]]:
    """The networks for classification; the last is the model of the outcome."""
    widths = PointNetWidths().divided_by(divisor)
    points, head = widths.points, widths.head
    plain = {"input_transform": False, "feature_transform": False}
    levels = (
        AbstractionLevel(max(1, n_points // 4), 0.5, min(12, n_points), points[:2]),
        AbstractionLevel(max(1, n_points // 16), 1.0, min(12, n_points // 4), points[1:]),
    )
    return {
        "multi-layer perceptron": partial(MLP.init, 3 * n_points, *head, classes),
        "Deep Sets": partial(
            DeepSets.init,
            3,
            classes,
            latent=points[-1],
            hidden=points[:2],
            rho_hidden=head,
            aggregation="mean",
        ),
        "PointNet without transforms": partial(PointNet.init, classes, widths=widths, **plain),
        "PointNet++": partial(
            PointNet2.init,
            classes,
            levels=levels,
            whole_widths=points[-1:],
            head_widths=head,
            dropout=0.3,
        ),
        "PointNet": partial(PointNet.init, classes, widths=widths),
    }


def segmenters(parts: int, *, divisor: int) -> dict[str, Callable[..., Model]]:
    """The networks for part segmentation; the last is the model of the outcome."""
    widths = PointNetWidths().divided_by(divisor)
    plain = {"input_transform": False, "feature_transform": False}
    return {
        "each point by itself": partial(
            PointwiseClassifier.init, 3, *widths.points[:2], *widths.head, parts
        ),
        "equivariant Deep Sets": partial(
            EquivariantDeepSets.init,
            3,
            parts,
            latent=widths.points[-1],
            hidden=widths.head[-1:],
            aggregation="max",
        ),
        "PointNet without transforms": partial(
            PointNetSegmentation.init, parts, widths=widths, **plain
        ),
        "PointNet": partial(PointNetSegmentation.init, parts, widths=widths),
    }


def mean_iou(model: Any, test: Batch, parts: int) -> float:
    """The mean over the parts of the intersection over union of predicted and true points."""
    predicted = np.asarray(jax.jit(predict)(model, test[0])).argmax(axis=2)
    true = np.asarray(test[1])
    overlaps = []
    for part in range(parts):
        either = ((predicted == part) | (true == part)).sum()
        if either:
            overlaps.append(((predicted == part) & (true == part)).sum() / either)
    return float(np.mean(overlaps))


@recipe
def pointnet(
    job: Job,
    *,
    data: Literal["primitives", "ycb", "cad"] = "primitives",
    task: Literal["classification", "segmentation"] = "classification",
    rotation: Literal["z", "any"] = "z",
    n_points: int = 64,
    n_train: int = 1600,
    n_test: int = 400,
    width_divisor: int = 8,
    orthogonality: float = 1e-3,
    n_seeds: int = 2,
    learning_rate: float = 3e-3,
    epochs: int = 20,
    batch_size: int = 32,
) -> Outcome:
    """PointNet on rotated point clouds: which shape, or which part for every point.

    `primitives` are spheres, cubes, tori, planes, cylinders and cones in random proportions; `ycb`
    are 78 household objects, each a class (30 MB); `cad` are electronic parts of 10 classes, with
    body and metal as parts (379 MB). All networks train on the same clouds with random rotations
    and jitter. Beside them stands a logistic regression on histograms of distances; for
    segmentation, the most frequent part.

    Parameters
    ----------
    data
        Dataset.
    task
        One label for each cloud, or one for each point.
    rotation
        Random rotations of the clouds: about the vertical axis z, or any.
    n_points
        Points of a cloud.
    width_divisor
        Divisor of the widths of the paper.
    orthogonality
        Strength of the penalty on the feature transform.
    """
    check_positive(n_points=n_points, n_train=n_train, n_test=n_test, width_divisor=width_divisor)
    key_data, key_pairs, key = jr.split(job.key, 3)
    clouds = load_clouds(
        data,
        task,
        rotation=rotation,
        n_points=n_points,
        n_train=n_train,
        n_test=n_test,
        key=key_data,
    )
    segmentation = task == "segmentation"
    k = len(clouds.classes)
    if segmentation:
        networks = segmenters(k, divisor=width_divisor)
        loss, metric = token_cross_entropy, token_error_rate
        frequent = np.bincount(np.asarray(clouds.train[1]).ravel()).argmax()
        wrong = 100 * float(np.mean(np.asarray(clouds.test[1]) != frequent))
        table = {"most frequent part": {"test error %": wrong}}
    else:
        networks = classifiers(k, n_points=n_points, divisor=width_divisor)
        loss, metric = cross_entropy, error_rate
        wrong = distance_histogram_error(clouds, key=key_pairs)
        table = {"histogram of distances": {"test error %": wrong}}
    augment = stored.augment.chain(
        rotate_points(None if rotation == "any" else rotation), jitter_points(0.01)
    )
    augmented: Objective = with_augmentation(loss, augment)
    penalised = with_orthogonal_transform(augmented, strength=orthogonality)
    objectives = {name: penalised if name == "PointNet" else augmented for name in networks}
    fits = fit_networks(
        job,
        networks,
        clouds.train,
        objectives=objectives,
        n_seeds=n_seeds,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
        key=key,
    )
    for name, result in fits.items():
        errors = 100 * member_values(result.model, clouds.test, metric)
        table[name] = {"test error %": float(errors.mean()), "maximum": float(errors.max())}
        if segmentation:
            table[name]["mean IoU"] = mean_iou(first_network(result.model), clouds.test, k)
    last = fits["PointNet"]
    return Outcome.of_fit(
        last,
        model=first_network(last.model),
        train=clouds.train,
        test=clouds.test,
        objective=objectives["PointNet"],
        classes=clouds.classes,
        table=table,
        start=first_network(last.start),
    )
