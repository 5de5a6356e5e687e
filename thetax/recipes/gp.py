"""How far a car goes on a gallon, and how sure that is (§10.2): Gaussian processes beside a line
and a network.

Every method foretells a normal distribution, and is judged by its error, by the density that it
gave to the truth, and by how often the truth lay in its intervals.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import PRNGKeyArray

from .. import data
from ..bayes import RBF, Constant, EvidenceFit, GaussianProcess, fit_evidence, linear_kernel
from ..core import Batch, Iteration, Scalar, predict
from ..explain import Intervals, infinite, intervals
from ..layers import Ensemble, Linear, tangent
from ..models import MLP
from ..train import descend, fit, restarts, squared_error, weight_decay
from .engine.job import Job, positive, recipe
from .engine.outcome import Outcome

SHOWN = (0.5, 0.8, 0.95)  # levels of intervals in the table
HELD_OUT = 0.2  # of a network's training cars, to stop by and to tell its noise from
PATIENCE = 30
STEPS, TOLERANCE = 60, 5e-2  # of the climb to the most evidence
NOISE = 0.1  # of the variance of the targets, to begin with
Forecast = tuple[np.ndarray, np.ndarray]  # mean and standard deviation


def kernels(train: Batch, *, depth: int) -> dict[str, Callable[..., Any]]:
    """The kernels, by the name of what a process with each of them is, at a scale to begin with."""
    d = train[0].shape[1]
    variance = float(train[1].var())
    net = MLP.init(d, *[4] * depth, 1, initialiser=tangent(weight=2**0.5, bias=0.3), key=jr.key(0))
    return {
        "ridge regression": linear_kernel(scale=variance / d, offset=1.0),
        "network of infinite width": Constant.init(variance) * infinite(net).nngp,
        "Gaussian process": RBF.init(scale=variance, length=np.full(d, 3.0)),
    }


def fit_process(kernel: Callable[..., Any], train: Batch) -> EvidenceFit:
    """The process of most evidence about the mean of the targets, which stays as it is."""
    xs, ys = train
    mean = Linear(jnp.zeros((1, xs.shape[1])), jnp.asarray([ys.mean()]))
    process = GaussianProcess.init(kernel, noise=NOISE * float(ys.var()), mean=mean)
    return fit_evidence(process, xs, ys, fixed=lambda p: p.mean, steps=STEPS, tolerance=TOLERANCE)


def foretell(process: GaussianProcess, train: Batch, xs: Any) -> Forecast:
    """Of an observation at each of `xs`: what the process expects, with the noise of observing."""
    believed = process.condition(*train)
    deviation = np.sqrt(np.asarray(believed.variance(xs)) + float(process.noise))
    return np.asarray(believed.mean(xs)), deviation


def minus_log_evidence(process: GaussianProcess, batch: Batch, *, key: Any = None) -> Scalar:
    r"""$-\frac1n \log p(y \mid X)$, which the hyper-parameters descend."""
    return -jnp.asarray(process.log_evidence(*batch)) / len(batch[1])


@recipe
def gp(
    job: Job,
    *,
    splits: int = 6,
    held_out: float = 0.3,
    depth: int = 2,
    hidden: tuple[int, ...] = (32, 32),
    members: int = 5,
    decay: float = 1e-3,
    rate: float = 5e-3,
    epochs: int = 300,
    batch: int = 32,
) -> Outcome:
    """Miles to the gallon of 392 cars, foretold with intervals: a line, networks, and Gaussian
    processes.

    All hyper-parameters of the processes are those of most evidence, without a validation set;
    ridge regression is the process of the linear kernel. Numbers are means over random splits, and
    the process of the last one is handed on to be looked at.

    Parameters
    ----------
    splits
        Times that some of the cars are held out, anew each time.
    held_out
        Share of the cars to test on.
    depth
        Hidden layers of the network of infinite width.
    hidden
        Widths of the hidden layers of the network that is trained.
    members
        Networks whose forecasts are averaged; where they differ, the interval is wider.
    decay
        Strength of their weight decay.
    rate
        Learning rate of Adam.
    epochs
        Passes over the training cars, at most.
    batch
        Cars in a batch.
    """
    positive(depth=depth, members=members, rate=rate, epochs=epochs, batch=batch)
    if splits < 2:
        raise ValueError(f"splits must be at least 2, for a spread; got {splits}.")
    if not 0 < held_out < 1:
        raise ValueError(f"held_out is a share of the cars, between 0 and 1; got {held_out}.")
    job.say("loading auto")
    full = data.load("auto")
    learn = restarts(descend(weight_decay(squared_error, strength=decay), optax.adam(rate)))
    draw = partial(MLP.init, full.train[0].shape[1], *hidden, 1)
    judged: dict[str, list[Intervals]] = {}
    for number in range(splits):
        job.say(f"split {number + 1} of {splits}")
        key_split, key_net = jr.split(jr.fold_in(job.key, number))
        train, test = _scaled(*data.split(full.train, 1 - held_out, key=key_split))
        fits = {
            name: fit_process(kernel, train) for name, kernel in kernels(train, depth=depth).items()
        }
        nets = Ensemble.init(draw, members, key=key_net)
        run = job.part(f"network-{number}")
        settings = {
            "epochs": epochs,
            "batch_size": batch,
            "key": key_net,
            "run": run,
            "progress": job.progress,
        }
        forecasts = {
            "always the mean": _always(train, test[0]),
            "network": _by_network(learn, nets, train, test[0], **settings),
            **{name: foretell(found.model, train, test[0]) for name, found in fits.items()},
        }
        for name, forecast in forecasts.items():
            judged.setdefault(name, []).append(intervals(*forecast, test[1], levels=SHOWN))
    table = {name: _row(found) for name, found in judged.items()}
    last = fits["Gaussian process"]
    reason = (
        f"log evidence {last.evidence:.1f} on {len(train[1])} cars after {len(last.path) - 1} steps"
    )
    return Outcome(
        last.model,
        train,
        test,
        minus_log_evidence,
        table=table,
        reason=reason,
        features=full.features,
    )


def _scaled(train: Batch, test: Batch) -> tuple[Batch, Batch]:
    """Every feature with mean 0 and variance 1 over the training cars."""
    scale = data.Standardise.fit(train[0])
    return (scale(train[0]), np.asarray(train[1])), (scale(test[0]), np.asarray(test[1]))


def _always(train: Batch, xs: Any) -> Forecast:
    return np.full(len(xs), train[1].mean()), np.full(len(xs), train[1].std())


def _by_network(
    learn: Iteration, nets: Ensemble, train: Batch, xs: Any, *, key: PRNGKeyArray, **settings: Any
) -> Forecast:
    """The mean of the members; the variance is what they differ by and the error on cars that none
    of them saw.
    """
    level = train[1].mean()
    spread = train[1].std()
    inner, outer = data.split((train[0], (train[1] - level) / spread), 1 - HELD_OUT, key=key)
    watched = {"validation": outer, "metrics": {"error": _mean_square}, "patience": PATIENCE}
    found = fit(learn, nets, inner, key=key, **watched, **settings)
    each = np.asarray(_each(found.model.members, jnp.asarray(xs)), np.float64)
    noise = float(_mean_square(found.model, jax.tree.map(jnp.asarray, outer)))
    return level + spread * each.mean(axis=0), spread * np.sqrt(each.var(axis=0) + noise)


@jax.jit
def _each(members: Any, xs: Any) -> Any:
    return jax.vmap(lambda member: predict(member, xs)[:, 0])(members)


def _mean_square(model: Any, batch: Batch, *, key: Any = None) -> Any:
    return 2 * squared_error(model, batch)


def _row(found: list[Intervals]) -> Mapping[str, float]:
    errors = np.array([each.rmse for each in found])
    inside = 100 * np.mean([each.coverage for each in found], axis=0)
    return {
        "test RMSE": float(errors.mean()),
        "standard error": float(errors.std(ddof=1) / np.sqrt(len(errors))),
        "− log density": float(np.mean([each.nlpd for each in found])),
        **{f"in {100 * level:g} %": float(share) for level, share in zip(SHOWN, inside)},
    }
