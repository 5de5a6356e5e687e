r"""Networks of infinite width beside trained ones on a few images of MNIST (§9.4, §10.2): what each
believes of others.

Every method says of an output that it is normal. A class is believed as far as its output is likely
to be the largest,
$$P(c) = \int \varphi(u) \prod_{b \ne c} \Phi\Big(\frac{m_c + s_c u - m_b}{s_b}\Big)\, du, \qquad
s^2 = v + \gamma^2,$$
with $v$ the variance that the method has for the output, and $\gamma$ the noise for which the
held-out images are likeliest.
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

from .. import data
from ..bayes import GaussianProcess
from ..core import Batch, predict
from ..explain import Infinite, WideBeliefs, calibration, infinite, lazy_ensemble
from ..layers import Chain, Ensemble
from ..models import MLP
from ..train import Fit, descend, fit, restarts
from .engine.job import Job, positive, recipe
from .engine.outcome import Outcome
from .ntk import CLASSES, LAW, Centred, label_error, targets

MOMENTUM = 0.9
STABLE = 0.5  # the rate in units of one over the largest eigenvalue of the limit
RIDGE = 1e-3  # noise of the Gaussian process, in units of the mean of its variances
NOISES = np.geomspace(0.01, 4.0, 36)  # among which the noise is chosen
Outputs = tuple[
    Float[np.ndarray, "_ k"], Float[np.ndarray, "_ k"]
]  # mean and variance, of some examples


def likeliest_largest(
    mean: Float[np.ndarray, "n k"], deviation: Float[np.ndarray, "n k"]
) -> Float[np.ndarray, "n k"]:
    """The probability that each of some independent normal numbers is the largest, by quadrature.

    >>> likeliest_largest(np.array([[0.0, 0.0], [1.0, 0.0]]), np.full((2, 2), 0.5**0.5)).round(
    ...     4
    ... ).tolist()
    [[0.5, 0.5], [0.8413, 0.1587]]
    """
    nodes, weights = roots_hermitenorm(40)
    at = mean[..., None] + deviation[..., None] * nodes  # n k u
    below = ndtr((at[:, :, None] - mean[:, None, :, None]) / deviation[:, None, :, None])  # n k b u
    own = np.eye(mean.shape[1], dtype=bool)[None, :, :, None]
    p = np.where(own, 1.0, below).prod(axis=2) @ weights
    return p / p.sum(axis=1, keepdims=True)


def believed(outputs: Outputs, noise: float) -> Float[np.ndarray, "n k"]:
    """The logarithm of what is believed of each class."""
    mean, variance = outputs
    return np.log(np.maximum(likeliest_largest(mean, np.sqrt(variance + noise**2)), 1e-12))


def judged(held_out: Outputs, valid_ys: Any, test: Outputs, test_ys: Any) -> dict[str, float]:
    """A row of the table, with the noise that the held-out images choose."""
    truth = np.asarray(valid_ys), np.asarray(test_ys)
    nll = lambda noise: -believed(held_out, noise)[np.arange(len(truth[0])), truth[0]].mean()
    noise = float(min(NOISES, key=nll))
    log_p = believed(test, noise)
    found = calibration(Chain(), (jnp.asarray(log_p), jnp.asarray(truth[1])))
    return {
        "test error %": 100 * float(np.mean(log_p.argmax(axis=1) != truth[1])),
        "minus log-likelihood": found.nll,
        "calibration error %": 100 * found.error,
        "noise": noise,
    }


@recipe
def nngp(
    job: Job,
    *,
    images: int = 1000,
    held_out: int = 300,
    tested: int = 2000,
    hidden: tuple[int, ...] = (256, 256),
    members: int = 5,
    epochs: int = 60,
    batch: int = 100,
) -> Outcome:
    """Networks of infinite width, as a Gaussian process and as an ensemble, beside a trained
    ensemble on MNIST.

    The labels are numbers to be hit, and networks descend the squared error. `NNGP` is the Gaussian
    process that the networks are before training, given the images: a posterior. `NTK` is the law
    of all networks of infinite width after as many steps as the finite ones had. A class is
    believed as far as its output is likely to be the largest, with a noise that held-out images
    choose.

    Parameters
    ----------
    images
        Training images.
    held_out
        Images to choose the noise by.
    tested
        Test images.
    hidden
        Widths of the hidden layers of the finite networks.
    members
        Finite networks, trained at once.
    epochs
        Passes over the training images.
    batch
        Images in a batch.
    """
    positive(images=images, held_out=held_out, tested=tested, epochs=epochs, batch=batch)
    if members < 2:
        raise ValueError(f"members must be at least 2, for a spread; got {members}.")
    key_images, key_init, key_fit = jr.split(job.key, 3)
    train, valid, test, classes = _images(job, images, held_out, tested, key=key_images)
    make = partial(MLP.init, 784, *hidden, CLASSES, initialiser=LAW)
    limit = infinite(make(key=key_init))
    job.say("the kernels of infinite width")
    xs = jnp.concatenate([valid[0], test[0]])
    rate = _rate(limit, train[0])
    beliefs = {"NNGP, a posterior": _posterior(limit, train, xs)}
    beliefs["NTK, an ensemble"] = _ensemble(
        limit, train, xs, rate=rate, steps=epochs * (images // batch)
    )
    job.say(f"{members} networks")
    nets = Ensemble.init(make, members, key=key_init)
    found = _fit(job, nets, train, rate=rate, epochs=epochs, batch=batch, key=key_fit)
    outputs = np.asarray(jax.vmap(lambda net: predict(net, xs))(found.model.members), np.float64)
    beliefs[f"{members} networks"] = outputs.mean(axis=0), outputs.var(axis=0, ddof=1)
    cut = lambda of, part: (of[0][part], of[1][part])
    row = lambda of: judged(
        cut(of, slice(held_out)), valid[1], cut(of, slice(held_out, None)), test[1]
    )
    table = {name: row(of) for name, of in beliefs.items()}
    alone = [row((f, np.zeros_like(f))) for f in outputs]
    table["one of them, on average"] = {
        name: float(np.mean([one[name] for one in alone])) for name in alone[0]
    }
    measured = _compared(list(beliefs.values())[1:], held_out)
    model, start = (
        jax.tree.map(lambda a: a[0], nets.members) for nets in (found.model, found.start)
    )
    return Outcome(
        model,
        train,
        test,
        label_error,
        found.history,
        classes,
        table,
        found.reason,
        found.seconds,
        start=start,
        measured=measured,
    )


def _images(
    job: Job, images: int, held_out: int, tested: int, *, key: PRNGKeyArray
) -> tuple[Any, Any, Any, Any]:
    """Images to train on, to choose the noise by and to test on, centred, and the names of the
    classes.
    """
    job.say("loading mnist")
    full = data.load("mnist")
    assert full.test is not None
    share = (images + held_out) / len(full.train[1])
    if share > 1:
        raise ValueError(
            f"images and held_out are more than the {len(full.train[1]):,} there are: "
            f"{images + held_out:,}."
        )
    chosen, _ = data.split(full.train, share, key=key, by=full.train[1])
    train, valid = (
        jax.tree.map(lambda a, cut=cut: a[cut], chosen)
        for cut in (slice(images), slice(images, None))
    )
    centred = Centred.fit(train[0])
    parts = train, valid, jax.tree.map(lambda a: a[:tested], full.test)
    return *(jax.tree.map(jnp.asarray, centred(part)) for part in parts), full.classes


def _rate(limit: Infinite, xs: Any) -> float:
    top = jnp.linalg.eigvalsh(limit.ntk(xs[:500]))[-1] / min(
        500, len(xs)
    )  # of K/n, which some tell as well as all
    return float(STABLE / top)


def _posterior(limit: Infinite, train: Batch, xs: Any) -> Outputs:
    noise = RIDGE * float(limit.nngp.diagonal(train[0]).mean())
    posterior = GaussianProcess.init(limit.nngp, noise=noise).condition(
        train[0], jnp.asarray(targets(train[1]))
    )
    mean = np.asarray(posterior.mean(xs))
    variance = np.asarray(posterior.variance(xs))
    return mean, np.broadcast_to(np.maximum(variance, 0.0)[:, None], mean.shape)


def _ensemble(limit: Infinite, train: Batch, xs: Any, *, rate: float, steps: int) -> Outputs:
    spread = lazy_ensemble(
        limit.nngp, limit.ntk, train[0], targets(train[1]), rate=rate, momentum=MOMENTUM
    )(steps, xs)
    return spread.mean, np.broadcast_to(np.square(spread.deviation)[:, None], spread.mean.shape)


def _fit(
    job: Job,
    nets: Ensemble,
    train: Batch,
    *,
    rate: float,
    epochs: int,
    batch: int,
    key: PRNGKeyArray,
) -> Fit:
    iteration = restarts(descend(label_error, optax.sgd(rate, MOMENTUM)))
    return fit(
        iteration,
        nets,
        train,
        epochs=epochs,
        batch_size=batch,
        key=key,
        run=job.part("networks"),
        progress=job.progress,
    )


def _compared(beliefs: list[Outputs], held_out: int) -> WideBeliefs:
    """What the infinite ensemble says of test images, and what the finite one does."""
    (limit, wide), (mean, variance) = (tuple(part[held_out:] for part in of) for of in beliefs)
    return WideBeliefs(
        np.stack([limit, mean]), np.sqrt(np.stack([wide[:, 0], variance.mean(axis=1)]))
    )
