r"""Infinite-width networks and trained ones on a few images of MNIST (§9.4, §10.2).

Every method predicts a normal distribution of each output. The probability of a class is that its
output is the largest,
$$P(c) = \int \varphi(u) \prod_{b \ne c} \Phi\Big(\frac{m_c + s_c u - m_b}{s_b}\Big)\, du, \qquad
s^2 = v + \gamma^2,$$
where $v$ is the predictive variance of the output, and the noise $\gamma$ maximises the likelihood
of held-out images.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Float, PRNGKeyArray
from scipy.special import ndtr, roots_hermitenorm

from ... import data
from ...bayes import GaussianProcess
from ...core import Batch, predict
from ...explain import (
    InfiniteWidthComparison,
    InfiniteWidthLimit,
    calibration,
    infinite_width_limit,
    kernel_ensemble,
)
from ...layers import Chain, Ensemble
from ...models import MLP
from ...train import FitResult, descend, fit, per_member
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome
from .ntk import CLASSES, INITIALISER, ImageScaler, centred_targets, label_error

MOMENTUM = 0.9
LEARNING_RATE_FACTOR = 0.5  # in units of one over the largest eigenvalue of the limit kernel
NOISE_RATIO = 1e-3  # noise of the Gaussian process, in units of its mean prior variance
NOISE_GRID = np.geomspace(0.01, 4.0, 36)  # candidates of the noise
Outputs = tuple[
    Float[np.ndarray, "_ k"], Float[np.ndarray, "_ k"]
]  # mean and variance, of some examples


def probability_of_largest(
    mean: Float[np.ndarray, "n k"], std: Float[np.ndarray, "n k"]
) -> Float[np.ndarray, "n k"]:
    """Probability that each of k independent normal variables is the largest, by quadrature.

    >>> probability_of_largest(np.array([[0.0, 0.0], [1.0, 0.0]]), np.full((2, 2), 0.5**0.5)).round(
    ...     4
    ... ).tolist()
    [[0.5, 0.5], [0.8413, 0.1587]]
    """
    nodes, weights = roots_hermitenorm(40)
    z = mean[..., None] + std[..., None] * nodes  # n k u
    cdf = ndtr((z[:, :, None] - mean[:, None, :, None]) / std[:, None, :, None])  # n k b u
    is_same = np.eye(mean.shape[1], dtype=bool)[None, :, :, None]
    p = np.where(is_same, 1.0, cdf).prod(axis=2) @ weights
    return p / p.sum(axis=1, keepdims=True)


def log_class_probabilities(outputs: Outputs, noise: float) -> Float[np.ndarray, "n k"]:
    """Log-probability of each class."""
    mean, variance = outputs
    return np.log(np.maximum(probability_of_largest(mean, np.sqrt(variance + noise**2)), 1e-12))


def score(held_out: Outputs, valid_ys: Any, test: Outputs, test_ys: Any) -> dict[str, float]:
    """A row of the table, with the noise level selected on the held-out images."""
    valid_ys, test_ys = np.asarray(valid_ys), np.asarray(test_ys)
    nll = lambda noise: (
        -log_class_probabilities(held_out, noise)[np.arange(len(valid_ys)), valid_ys].mean()
    )
    noise = float(min(NOISE_GRID, key=nll))
    log_p = log_class_probabilities(test, noise)
    result = calibration(Chain(), (jnp.asarray(log_p), jnp.asarray(test_ys)))
    return {
        "test error %": 100 * float(np.mean(log_p.argmax(axis=1) != test_ys)),
        "negative log-likelihood": result.nll,
        "calibration error %": 100 * result.error,
        "noise": noise,
    }


@recipe
def nngp(
    job: Job,
    *,
    n_train: int = 1000,
    n_valid: int = 300,
    n_test: int = 2000,
    hidden: tuple[int, ...] = (256, 256),
    members: int = 5,
    epochs: int = 60,
    batch_size: int = 100,
) -> Outcome:
    """Infinite-width networks on MNIST, compared with a trained ensemble.

    Labels are regression targets, and the networks are trained on squared error. `NNGP` is the
    posterior of the Gaussian process that infinite-width networks are at initialisation. `NTK` is
    the distribution of infinite-width networks after as many steps of gradient descent as the
    finite ones had. The probability of a class is that its output is the largest, with a noise
    level selected on held-out images.

    Parameters
    ----------
    n_valid
        Held-out images that select the noise level.
    hidden
        Widths of the hidden layers of the finite networks.
    members
        Finite networks, trained at once.
    """
    check_positive(
        n_train=n_train, n_valid=n_valid, n_test=n_test, epochs=epochs, batch_size=batch_size
    )
    if members < 2:
        raise ValueError(f"members must be at least 2, for a variance; got {members}.")
    key_images, key_init, key_fit = jr.split(job.key, 3)
    train, valid, test, classes = _images(job, n_train, n_valid, n_test, key=key_images)
    init = partial(MLP.init, 784, *hidden, CLASSES, initialiser=INITIALISER)
    limit = infinite_width_limit(init(key=key_init))
    job.note("infinite-width kernels")
    xs = jnp.concatenate([valid[0], test[0]])
    rate = _stable_learning_rate(limit, train[0])
    predictions = {"NNGP posterior": _nngp_posterior(limit, train, xs)}
    predictions["NTK ensemble"] = _ntk_ensemble(
        limit, train, xs, learning_rate=rate, steps=epochs * (n_train // batch_size)
    )
    job.note(f"{members} networks")
    nets = Ensemble.init(init, members, key=key_init)
    result = _fit(
        job, nets, train, learning_rate=rate, epochs=epochs, batch_size=batch_size, key=key_fit
    )
    member_outputs = jax.vmap(lambda net: predict(net, xs))(result.model.members)
    member_outputs = np.asarray(member_outputs, np.float64)
    predictions[f"ensemble of {members} networks"] = (
        member_outputs.mean(axis=0),
        member_outputs.var(axis=0, ddof=1),
    )

    def row(outputs: Outputs) -> dict[str, float]:
        valid_outputs, test_outputs = zip(*((a[:n_valid], a[n_valid:]) for a in outputs))
        return score(valid_outputs, valid[1], test_outputs, test[1])

    table = {name: row(outputs) for name, outputs in predictions.items()}
    single = [row((f, np.zeros_like(f))) for f in member_outputs]
    table["single network (mean)"] = {
        name: float(np.mean([one[name] for one in single])) for name in single[0]
    }
    measured = _comparison(list(predictions.values())[1:], n_valid)
    model, start = (
        jax.tree.map(lambda a: a[0], nets.members) for nets in (result.model, result.start)
    )
    return Outcome.of_fit(
        result,
        model=model,
        train=train,
        test=test,
        objective=label_error,
        classes=classes,
        table=table,
        start=start,
        measured=measured,
    )


def _images(
    job: Job, n_train: int, n_valid: int, n_test: int, *, key: PRNGKeyArray
) -> tuple[Any, Any, Any, Any]:
    """Centred training, held-out and test images with labels, and the names of the classes."""
    job.note("loading mnist")
    full = data.load("mnist")
    assert full.test is not None
    fraction = (n_train + n_valid) / len(full.train[1])
    if fraction > 1:
        raise ValueError(
            f"n_train + n_valid may be at most {len(full.train[1]):,}, the images of MNIST; got "
            f"{n_train + n_valid:,}."
        )
    (xs, ys), _ = data.split(full.train, fraction, key=key, stratify=full.train[1])
    scaler = ImageScaler.fit(xs[:n_train])
    splits = (
        (xs[:n_train], ys[:n_train]),
        (xs[n_train:], ys[n_train:]),
        tuple(a[:n_test] for a in full.test),
    )
    return *(jax.tree.map(jnp.asarray, scaler(split)) for split in splits), full.classes


def _stable_learning_rate(limit: InfiniteWidthLimit, xs: Any) -> float:
    xs = xs[:500]  # enough to estimate the largest eigenvalue of K/n
    top = jnp.linalg.eigvalsh(limit.ntk(xs))[-1] / len(xs)
    return float(LEARNING_RATE_FACTOR / top)


def _nngp_posterior(limit: InfiniteWidthLimit, train: Batch, xs: Any) -> Outputs:
    noise = NOISE_RATIO * float(limit.nngp.diagonal(train[0]).mean())
    posterior = GaussianProcess.init(limit.nngp, noise=noise).condition(
        train[0], jnp.asarray(centred_targets(train[1]))
    )
    mean = np.asarray(posterior.mean(xs))
    variance = np.asarray(posterior.variance(xs))
    return mean, np.broadcast_to(np.maximum(variance, 0.0)[:, None], mean.shape)


def _ntk_ensemble(
    limit: InfiniteWidthLimit, train: Batch, xs: Any, *, learning_rate: float, steps: int
) -> Outputs:
    ensemble = kernel_ensemble(
        limit.nngp,
        limit.ntk,
        train[0],
        centred_targets(train[1]),
        learning_rate=learning_rate,
        momentum=MOMENTUM,
    )(steps, xs)
    variance = np.square(ensemble.std)[:, None]
    return ensemble.mean, np.broadcast_to(variance, ensemble.mean.shape)


def _fit(
    job: Job,
    nets: Ensemble,
    train: Batch,
    *,
    learning_rate: float,
    epochs: int,
    batch_size: int,
    key: PRNGKeyArray,
) -> FitResult:
    iteration = per_member(descend(label_error, optax.sgd(learning_rate, MOMENTUM)))
    return fit(
        iteration,
        nets,
        train,
        epochs=epochs,
        batch_size=batch_size,
        key=key,
        run=job.part("networks"),
        progress=job.progress,
    )


def _comparison(predictions: list[Outputs], n_valid: int) -> InfiniteWidthComparison:
    """Predictions of the infinite-width and of the finite ensemble on the test images."""
    (limit, limit_variance), (mean, variance) = (
        tuple(a[n_valid:] for a in outputs) for outputs in predictions
    )
    std = np.sqrt(np.stack([limit_variance[:, 0], variance.mean(axis=1)]))
    return InfiniteWidthComparison(np.stack([limit, mean]), std)
