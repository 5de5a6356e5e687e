"""Networks of growing width on handwritten digits (§9.3): convergence of the tangent kernel."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ... import data, tree
from ...core import Batch, Scalar, predict
from ...explain import WidthScaling, infinite_width_limit, kernel_gradient_descent
from ...explain import ntk as tangent_kernel
from ...layers import Ensemble, ntk_parametrisation
from ...models import MLP
from ...train import FitResult, batch_mean, descend, fit, per_member, squared_loss
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome

CLASSES = 10
N_TEST = 500
# Scale of the targets: larger than the random outputs at initialisation, and enough for a softmax.
TARGET_SCALE = 4.0
INITIALISER = ntk_parametrisation(weight=2**0.5, bias=0.1)


def centred_targets(ys: Any) -> Float[np.ndarray, "n k"]:
    """Labels as regression targets: 4 for the class, 0 for the others, minus their mean.

    >>> centred_targets(np.array([0, 9]))[:, 0].round(2).tolist()
    [3.6, -0.4]
    """
    return TARGET_SCALE * (np.eye(CLASSES)[np.asarray(ys)] - 1 / CLASSES)


def label_loss(prediction: Float[Array, " k"], y: Int[Array, ""]) -> Scalar:
    """Squared loss of the outputs against the `centred_targets` of the label."""
    return squared_loss(prediction, TARGET_SCALE * (jax.nn.one_hot(y, CLASSES) - 1 / CLASSES))


label_error = batch_mean(label_loss)


class ImageScaler(NamedTuple):
    """Flattens images, subtracts the mean image and scales to a mean square of 1."""

    mean: Float[np.ndarray, " d"]
    scale: float

    @classmethod
    def fit(cls, xs: Float[np.ndarray, "n h w"]) -> "ImageScaler":
        """Mean and scale of the training images."""
        flat = xs.reshape(len(xs), -1)
        mean = flat.mean(axis=0)
        return cls(mean, float(np.sqrt(np.square(flat - mean).mean())))

    def __call__(self, batch: Batch) -> Batch:
        """Scaled images, and their labels unchanged."""
        return (batch[0].reshape(len(batch[0]), -1) - self.mean) / self.scale, batch[1]


def relative_distance(K: Any, L: Any) -> float:
    r"""Relative distance $\frac{\|K - L\|}{\|L\|}$."""
    return float(jnp.linalg.norm(jnp.ravel(K - L)) / jnp.linalg.norm(jnp.ravel(L)))


@recipe
def ntk(
    job: Job,
    *,
    widths: tuple[int, ...] = (32, 100, 320, 1000),
    depth: int = 2,
    n_seeds: int = 3,
    n_train: int = 64,
    steps: int = 100,
) -> Outcome:
    """The tangent kernel of networks of growing width, its limit, and its change in training.

    Networks in the NTK parametrisation are trained on the squared error of a few examples by
    full-batch gradient descent, with a learning rate of one over the largest eigenvalue of the
    limit kernel. The row of infinite width is the limit after as many steps.

    Parameters
    ----------
    widths
        Widths of the hidden layers to compare.
    depth
        Number of hidden layers.
    n_seeds
        Networks of each width, trained from different random seeds.
    steps
        Steps of full-batch gradient descent.
    """
    check_positive(
        depth=depth, n_seeds=n_seeds, n_train=n_train, steps=steps, width=min(widths, default=0)
    )
    if len(set(widths)) < 2:
        raise ValueError(f"widths: expected at least two different widths; got {widths}.")
    key_split, key = jr.split(job.key)
    train, test, classes = _digits(n_train, key=key_split)
    init = lambda width, key: MLP.init(
        64, *[width] * depth, CLASSES, initialiser=INITIALISER, key=key
    )
    limit = infinite_width_limit(init(8, key))
    Theta = limit.ntk(train[0])
    learning_rate = float(n_train / np.linalg.eigvalsh(np.asarray(Theta, np.float64))[-1])
    limit_training = kernel_gradient_descent(
        limit.ntk, train[0], centred_targets(train[1]), learning_rate=learning_rate
    )
    error = lambda outputs: (
        100 * float(np.mean(np.asarray(outputs).argmax(axis=-1) != np.asarray(test[1])))
    )
    table = {}
    measurements = []
    for width in sorted(set(widths)):
        job.note(f"width {width:,}")
        nets = Ensemble.init(partial(init, width), n_seeds, key=jr.fold_in(key, width))
        trained = _fit(
            job, f"width-{width}", nets, train, learning_rate=learning_rate, steps=steps, key=key
        )
        measurements.append([_measure(*pair, train[0], Theta) for pair in _members(trained)])
        outputs = jax.vmap(lambda net: predict(net, test[0]))(trained.model.members)
        table[f"width {width:,}"] = _row(*np.mean(measurements[-1], axis=0)) | {
            "test error %": error(outputs)
        }
    distances = np.moveaxis(np.array(measurements), 2, 0)
    scaling = WidthScaling(
        limit_distance=distances[0],
        kernel_change=distances[1],
        parameter_change=distances[2],
        widths=np.array(sorted(set(widths))),
    )
    first = {
        "infinite width (ensemble mean)": {"test error %": error(limit_training(steps, test[0]))},
        "exponent in the width": _row(*scaling.exponents),
    }
    model, start = (
        jax.tree.map(lambda a: a[0], nets.members) for nets in (trained.model, trained.start)
    )
    return Outcome.of_fit(
        trained,
        model=model,
        train=train,
        test=test,
        objective=label_error,
        classes=classes,
        table=first | table,
        start=start,
        measured=scaling,
    )


def _digits(n_train: int, *, key: PRNGKeyArray) -> tuple[Batch, Batch, tuple[str, ...]]:
    """Scaled training and test digits."""
    full = data.load("digits")
    if not CLASSES <= n_train <= len(full.train[1]) - N_TEST:
        raise ValueError(
            f"n_train must lie between {CLASSES} and {len(full.train[1]) - N_TEST}; got {n_train}."
        )
    train, rest = data.split(
        full.train, n_train / len(full.train[1]), key=key, stratify=full.train[1]
    )
    scaler = ImageScaler.fit(train[0])
    test = jax.tree.map(lambda a: a[:N_TEST], rest)
    return *(jax.tree.map(jnp.asarray, scaler(split)) for split in (train, test)), full.classes


def _fit(
    job: Job,
    name: str,
    nets: Ensemble,
    train: Batch,
    *,
    learning_rate: float,
    steps: int,
    key: PRNGKeyArray,
) -> FitResult:
    iteration = per_member(descend(label_error, optax.sgd(learning_rate)))
    return fit(
        iteration,
        nets,
        train,
        epochs=steps,
        batch_size=len(train[1]),
        key=key,
        run=job.part(name),
        progress=job.progress,
    )


def _members(result: FitResult) -> list[tuple[Any, Any]]:
    """Each network at initialisation and after training."""
    one = lambda nets, i: jax.tree.map(lambda a: a[i], nets.members)
    return [
        (one(result.start, i), one(result.model, i))
        for i in range(len(jax.tree.leaves(result.model)[0]))
    ]


def _measure(
    start: Any, end: Any, xs: Any, Theta: Float[Array, "n n"]
) -> tuple[float, float, float]:
    """Relative distances: kernel to its limit, and kernel and parameters to the initial ones."""
    K = tangent_kernel(start)(xs)
    K_T = tangent_kernel(end)(xs)
    parameter_change = float(tree.norm(tree.axpy(-1.0, start, end)) / tree.norm(start))
    return (
        relative_distance(K, Theta[:, :, None, None] * jnp.eye(CLASSES)[None, None]),
        relative_distance(K_T, K),
        parameter_change,
    )


def _row(limit_distance: float, kernel_change: float, parameter_change: float) -> dict[str, float]:
    return {
        "distance to the limit kernel": limit_distance,
        "kernel change": kernel_change,
        "parameter change": parameter_change,
    }
