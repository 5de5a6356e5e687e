"""Gaussian process regression of fuel consumption with intervals (§10.2), compared with ridge
regression and a network.

Every method predicts a normal distribution. It is evaluated by its error, by the negative log
predictive density (NLPD), and by the coverage of its intervals.
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

from ... import data
from ...bayes import (
    RBF,
    ConstantKernel,
    GaussianProcess,
    HyperparameterFit,
    fit_hyperparameters,
    linear_kernel,
)
from ...core import Batch, Iteration, Scalar, predict
from ...explain import infinite_width_limit, interval_coverage
from ...explain.predictions import IntervalCoverage
from ...layers import Ensemble, Linear, ntk_parametrisation
from ...models import MLP
from ...train import descend, fit, per_member, squared_error
from ...train import weight_decay as with_weight_decay
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome
from ..shared.metrics import mean_squared_error

LEVELS = (0.5, 0.8, 0.95)  # levels of the intervals in the table
VALID_FRACTION = 0.2  # of a network's training set: for early stopping and its noise variance
PATIENCE = 30
MAX_STEPS, TOLERANCE = 60, 5e-2  # of the search of the hyper-parameters
INITIAL_NOISE = 0.1  # in units of the variance of the targets
Forecast = tuple[np.ndarray, np.ndarray]  # mean and standard deviation


def initial_kernels(train: Batch, *, depth: int) -> dict[str, Callable[..., Any]]:
    """The kernel of each method, with initial hyper-parameters."""
    d = train[0].shape[1]
    variance = float(train[1].var())
    net = MLP.init(
        d, *[4] * depth, 1, initialiser=ntk_parametrisation(weight=2**0.5, bias=0.3), key=jr.key(0)
    )
    return {
        "ridge regression": linear_kernel(variance=variance / d, offset=1.0),
        "infinite-width network": ConstantKernel.init(variance) * infinite_width_limit(net).nngp,
        "Gaussian process": RBF.init(variance=variance, length_scale=np.full(d, 3.0)),
    }


def fit_gp(kernel: Callable[..., Any], train: Batch) -> HyperparameterFit:
    """The process of maximum log marginal likelihood, with the mean of the targets as its mean."""
    xs, ys = train
    mean = Linear(jnp.zeros((1, xs.shape[1])), jnp.asarray([ys.mean()]))
    process = GaussianProcess.init(kernel, noise=INITIAL_NOISE * float(ys.var()), mean=mean)
    return fit_hyperparameters(
        process, xs, ys, fixed=lambda p: p.mean, max_steps=MAX_STEPS, tolerance=TOLERANCE
    )


def predict_observations(process: GaussianProcess, train: Batch, xs: Any) -> Forecast:
    """Predictive mean and standard deviation of an observation at each of `xs`, noise included."""
    posterior = process.condition(*train)
    std = np.sqrt(np.asarray(posterior.variance(xs)) + float(process.noise))
    return np.asarray(posterior.mean(xs)), std


def negative_log_marginal_likelihood(
    process: GaussianProcess, batch: Batch, *, key: Any = None
) -> Scalar:
    r"""$-\frac1n \log p(y \mid X)$, the objective of the hyper-parameters."""
    return -jnp.asarray(process.log_marginal_likelihood(*batch)) / len(batch[1])


@recipe
def gp(
    job: Job,
    *,
    n_splits: int = 6,
    test_fraction: float = 0.3,
    depth: int = 2,
    hidden: tuple[int, ...] = (32, 32),
    members: int = 5,
    weight_decay: float = 1e-3,
    learning_rate: float = 5e-3,
    epochs: int = 300,
    batch_size: int = 32,
) -> Outcome:
    """Gaussian process regression of the fuel consumption of 392 cars, with intervals.

    Ridge regression and networks are the baselines. The hyper-parameters of each Gaussian process
    maximise its log marginal likelihood, without a validation set; ridge regression is the process
    with the linear kernel. Results are means over random splits, and the model of the outcome is
    the process of the last split.

    Parameters
    ----------
    n_splits
        Random splits into training and test set.
    test_fraction
        Share of the cars in the test set.
    depth
        Hidden layers of the infinite-width network.
    hidden
        Widths of the hidden layers of the trained network.
    members
        Networks in the ensemble, whose disagreement widens the intervals.
    learning_rate
        Learning rate of Adam.
    epochs
        Maximum passes over the training set; early stopping may end sooner.
    """
    check_positive(
        depth=depth,
        members=members,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
    )
    if n_splits < 2:
        raise ValueError(f"n_splits must be at least 2, for a standard error; got {n_splits}.")
    if not 0 < test_fraction < 1:
        raise ValueError(f"test_fraction must lie between 0 and 1; got {test_fraction}.")
    job.note("loading auto")
    full = data.load("auto")
    iteration = per_member(
        descend(with_weight_decay(squared_error, strength=weight_decay), optax.adam(learning_rate))
    )
    init = partial(MLP.init, full.train[0].shape[1], *hidden, 1)
    results: dict[str, list[IntervalCoverage]] = {}
    for number in range(n_splits):
        job.note(f"split {number + 1} of {n_splits}")
        key_split, key_net = jr.split(jr.fold_in(job.key, number))
        train, test = _standardise(*data.split(full.train, 1 - test_fraction, key=key_split))
        fits = {
            name: fit_gp(kernel, train)
            for name, kernel in initial_kernels(train, depth=depth).items()
        }
        nets = Ensemble.init(init, members, key=key_net)
        run = job.part(f"network-{number}")
        settings = {
            "epochs": epochs,
            "batch_size": batch_size,
            "key": key_net,
            "run": run,
            "progress": job.progress,
        }
        forecasts = {
            "constant mean": _constant_forecast(train, test[0]),
            "network": _network_forecast(iteration, nets, train, test[0], **settings),
            **{
                name: predict_observations(result.model, train, test[0])
                for name, result in fits.items()
            },
        }
        for name, forecast in forecasts.items():
            results.setdefault(name, []).append(
                interval_coverage(*forecast, test[1], levels=LEVELS)
            )
    table = {name: _row(result) for name, result in results.items()}
    last = fits["Gaussian process"]
    reason = (
        f"log marginal likelihood {last.log_marginal_likelihood:.1f} on {len(train[1])} cars after "
        f"{len(last.history) - 1} steps"
    )
    return Outcome(
        model=last.model,
        train=train,
        test=test,
        objective=negative_log_marginal_likelihood,
        table=table,
        reason=reason,
        features=full.features,
    )


def _standardise(train: Batch, test: Batch) -> tuple[Batch, Batch]:
    """Standardises every feature by its mean and variance over the training set."""
    scale = data.Standardise.fit(train[0])
    return (scale(train[0]), np.asarray(train[1])), (scale(test[0]), np.asarray(test[1]))


def _constant_forecast(train: Batch, xs: Any) -> Forecast:
    return np.full(len(xs), train[1].mean()), np.full(len(xs), train[1].std())


def _network_forecast(
    iteration: Iteration,
    nets: Ensemble,
    train: Batch,
    xs: Any,
    *,
    key: PRNGKeyArray,
    **settings: Any,
) -> Forecast:
    """Mean of the ensemble; the variance is that of its members plus the validation error."""
    mean = train[1].mean()
    scale = train[1].std()
    train, valid = data.split((train[0], (train[1] - mean) / scale), 1 - VALID_FRACTION, key=key)
    result = fit(
        iteration,
        nets,
        train,
        validation=valid,
        metrics={"error": mean_squared_error},
        patience=PATIENCE,
        key=key,
        **settings,
    )
    outputs = np.asarray(_member_outputs(result.model.members, jnp.asarray(xs)), np.float64)
    noise = float(mean_squared_error(result.model, jax.tree.map(jnp.asarray, valid)))
    return mean + scale * outputs.mean(axis=0), scale * np.sqrt(outputs.var(axis=0) + noise)


@jax.jit
def _member_outputs(members: Any, xs: Any) -> Any:
    return jax.vmap(lambda member: predict(member, xs)[:, 0])(members)


def _row(results: list[IntervalCoverage]) -> Mapping[str, float]:
    errors = np.array([result.rmse for result in results])
    coverage = 100 * np.mean([result.coverage for result in results], axis=0)
    return {
        "test RMSE": float(errors.mean()),
        "standard error": float(errors.std(ddof=1) / np.sqrt(len(errors))),
        "NLPD": float(np.mean([result.nlpd for result in results])),
        **{f"coverage {100 * level:g} %": float(share) for level, share in zip(LEVELS, coverage)},
    }
