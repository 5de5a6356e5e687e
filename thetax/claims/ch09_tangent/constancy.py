r"""§9.3, §9.4: in wide networks the parameters hardly change during training, the kernel stays
constant, and the trained network has a closed form.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ...core import predict, run
from ...explain import infinite_width_limit, kernel_gradient_descent, linearise, ntk
from ...plot import Chart, Panel
from ...train import descend, squared_error
from ..engine.check import at_least, at_most, between, close, decreasing, equal
from ..engine.claim import Verdict, claim, erratum
from .trained import (
    RATE,
    D,
    Data,
    N,
    Trained,
    against_width,
    data,
    slope,
    train_ten,
    trained,
    zero_loss,
)
from .width import shallow


@claim(
    "9.3-lazy",
    title="Wide networks hardly change",
    kind="experiment",
    of=("layers.ntk_parametrisation", "train.descend"),
    cites="Lee et al. 2019; Chizat et al. 2019",
)
def lazy(key):
    r"""The wider a network, the nearer its parameters stay to their initial values while it is
    trained to zero loss: $\|\theta_T - \theta_0\| / \|\theta_0\| \propto m^{-1/2}$. The distance
    itself does not depend on $m$.
    """
    _, results = trained(key)
    changes = [np.linalg.norm(part.theta[:, 1] - part.theta[:, 0], axis=1) for part in results]
    share = [
        np.mean(length / np.linalg.norm(part.theta[:, 0], axis=1))
        for length, part in zip(changes, results)
    ]
    return Verdict(
        between("power of m in the relative change, widths 64 … 4,096", slope(share), -0.65, -0.35),
        decreasing("relative change", share),
        between(
            "power of m in the absolute change",
            slope([length.mean() for length in changes]),
            -0.15,
            0.15,
        ),
        assumptions=[zero_loss(results)],
        figure=Chart(against_width("relative change of the parameters", {"10 networks": share})),
    )


@claim(
    "9.3-kernel-regression",
    title="A wide network does kernel regression",
    kind="theorem",
    of=(
        "train.descend",
        "explain.linearise",
        "explain.kernel_gradient_descent",
        "explain.infinite_width_limit",
    ),
    cites="Jacot et al. 2018; Lee et al. 2019",
)
def regression(key):
    r"""Trained with the squared error, an infinitely wide network converges to kernel regression
    with $k_\infty$, and a wide one approximately: at new inputs it agrees with its linearised form,
    and throughout training with the prediction of a constant kernel.
    """
    case, results = trained(key)
    gaps = [np.abs(part.outputs[:, -1, N:] - part.linearised) for part in results]
    mean = [gap.mean() for gap in gaps]
    net = shallow(D, 4096, key=key)
    h = linearise(net).solve(case.xs, case.ys[:, None])
    kernel = infinite_width_limit(net).ntk
    predicted = kernel_gradient_descent(kernel, case.xs, case.ys[:, None], initial_model=net)(
        np.inf, case.new
    )[:, 0]
    times = np.arange(0, 41)
    paths = {m: _paths(case, m, times, key) for m in (16, 4096)}
    off = [np.abs(true - predicted_path).max() for true, predicted_path in paths.values()]
    return Verdict(
        at_most("gap to the linearised network, width 4,096, mean of 10 networks", mean[-1], 0.02),
        decreasing("gap, widths 64 … 4,096", mean),
        at_most(
            "linearised, against the kernel of infinite width: mean distance at 4 inputs",
            np.abs(np.asarray(predict(h, case.new))[:, 0] - predicted).mean(),
            0.1,
        ),
        at_most(
            "along 40 steps, against the prediction of a constant kernel: width 4,096 against 16",
            off[1],
            off[0] / 2,
        ),
        assumptions=[zero_loss(results)],
        figure=Chart(
            *[
                Panel(
                    "step",
                    "output at new inputs",
                    title=f"width {m:,}",
                    lines={f"input {i + 1}": (times, true[:, i]) for i in range(3)},
                    bounds={
                        "kernel constant": (
                            np.tile(np.append(times, 40), 3),
                            _with_gaps(predicted_path),
                        )
                    },
                )
                for m, (true, predicted_path) in paths.items()
            ]
        ),
    )


def _with_gaps(curves: np.ndarray) -> np.ndarray:
    """Three curves as one, with gaps."""
    return np.concatenate([np.append(curves[:, i], np.nan) for i in range(3)])


def _paths(case: Data, width: int, times: np.ndarray, key: Any) -> tuple[np.ndarray, np.ndarray]:
    """Outputs at new inputs step by step: those of a network, and those of a constant kernel from
    the same start.
    """
    net = shallow(D, width, key=key)
    step = descend(lambda model, _, key: squared_error(model, case[:2]), optax.sgd(RATE))
    keep = lambda state: predict(state.model, case.new)[:, 0]
    after = jax.jit(
        lambda net: run(step, net, jnp.zeros(len(times) - 1), key=key, record=keep)[1][0]
    )(net)
    predicted = kernel_gradient_descent(
        ntk(net), case.xs, case.ys[:, None], initial_model=net, learning_rate=RATE
    )(times, case.new)[:, :, 0]
    return np.concatenate([np.asarray(predict(net, case.new)).T, after]), predicted


def drift(part: Trained) -> float:
    r"""The mean over the networks of the largest
    $\|K[\theta_t] - K[\theta_0]\|_F / \|K[\theta_0]\|_F$ in training.
    """
    K = part.kernels[:, :, :N]
    size = lambda K: np.linalg.norm(K, axis=(-2, -1))
    return float(np.mean(size(K - K[:, :1]).max(axis=1) / size(K[:, 0])))


@claim(
    "9.4-constancy",
    title="The kernel stays constant",
    kind="theorem",
    of=("explain.ntk", "train.descend"),
    cites="Jacot et al. 2018; Lee et al. 2019",
)
def constant(key):
    r"""As $m \to \infty$, $\partial_t k[\theta_t] = 0$ along training: $k[\theta_t] \to k_\infty$
    uniformly in $t$. The kernel of a network of width $m$ has a relative change of about $m^{-1/2}$
    when it is trained to convergence.
    """
    case, results = trained(key)
    changed = [drift(part) for part in results]
    limit = np.asarray(infinite_width_limit(shallow(D, 4, key=key)).ntk(case.xs))
    size = np.linalg.norm(limit)
    distances = [
        np.mean(np.linalg.norm(part.kernels[:, :, :N] - limit, axis=(-2, -1)).max(axis=1)) / size
        for part in results
    ]
    return Verdict(
        decreasing("largest relative change of K during training, widths 64 … 4,096", changed),
        between("power of m in it", slope(changed), -1.0, -0.35),
        decreasing("largest distance to the limit", distances),
        between("power of m in it", slope(distances), -1.0, -0.35),
        at_least(
            "change of the outputs meanwhile, width 4,096",
            np.abs(results[-1].outputs[:, -1, :N] - results[-1].outputs[:, 0, :N]).max(axis=1),
            0.1,
        ),
        assumptions=[zero_loss(results)],
        figure=Chart(
            against_width(
                "relative distance",
                {"K from its initial value": changed, "from its limit": distances},
            )
        ),
    )


@erratum(
    "9.4-constancy",
    title="The kernel converges, not the parameters",
    printed=r"\theta_t \to k_\infty",
    corrected=r"k[\theta_t] \to k_\infty",
    of=("explain.ntk", "explain.infinite_width_limit", "train.descend"),
    slip=True,
)
def constant_printed(key):
    r"""The notes print that $\theta_t$ converges to $k_\infty$; the next display has $k[\theta_t]$.
    $\theta_t$ is a vector of $p$ numbers, more of them the wider the network, and $k_\infty$ a
    function of two inputs; and the parameters of two networks stay as far apart as at
    initialisation, while their kernels converge to one another.
    """
    case = data(key)
    part = train_ten(case, 4096, key)
    limit = np.asarray(infinite_width_limit(shallow(D, 4, key=key)).ntk(case.xs))

    def checks(name, values):
        a = values[:-1].reshape(len(values) - 1, -1)
        b = values[1:].reshape(len(values) - 1, -1)
        distance = np.linalg.norm(a - b, axis=1) / np.linalg.norm(a, axis=1)
        return [
            equal(
                f"{name}: number of entries, against that of k∞ on six inputs",
                values[0].size,
                limit.size,
            ),
            at_most(f"{name}: relative distance of two trained networks", distance, 0.15),
        ]

    return Verdict(
        *checks("k[θ_t]", part.kernels[:, -1, :N]), printed=checks("θ_t", part.theta[:, 1])
    )


def gap(case: Data, part: Trained, limit: Any, *, start: float) -> float:
    r"""The mean distance of trained networks from
    $f_0(x) + k_\infty(x)^\top K_\infty^{-1} (y - f_0)$, or from that without the first term.
    """
    K, k = (np.asarray(limit(*sets)) for sets in ((case.xs,), (case.new, case.xs)))
    f = part.outputs[:, 0]
    predicted = start * f[:, N:] + np.linalg.solve(K, (np.asarray(case.ys) - f[:, :N]).T).T @ k.T
    return float(np.abs(part.outputs[:, -1, N:] - predicted).mean())


@claim(
    "9.4-solution",
    title="The limit of training a wide network",
    kind="theorem",
    of=("explain.infinite_width_limit", "explain.kernel_gradient_descent", "train.descend"),
    cites="Jacot et al. 2018; Lee et al. 2019",
)
def solution(key):
    r"""If the kernel is constant, the trained network is
    $f_\infty(x) = f_0(x) + k_\infty(x)^\top K_\infty^{-1} (y - f_0)$, and interpolates the data.
    """
    case, results = trained(key)
    limit = infinite_width_limit(shallow(D, 4, key=key)).ntk
    gaps = [gap(case, part, limit, start=1.0) for part in results]
    gaps_without = [gap(case, part, limit, start=0.0) for part in results]
    ends = np.stack([part.outputs[:, -1, :N] for part in results])
    net = shallow(D, 64, key=key)
    predicted = kernel_gradient_descent(limit, case.xs, case.ys[:, None], initial_model=net)(
        np.inf, case.new
    )[:, 0]
    f, there = (np.asarray(predict(net, xs))[:, 0] for xs in (case.xs, case.new))
    formula = there + np.asarray(limit(case.new, case.xs)) @ np.linalg.solve(
        limit(case.xs), case.ys - f
    )
    return Verdict(
        decreasing("gap of trained networks, widths 64 … 4,096", gaps),
        between("power of m in it", slope(gaps), -0.8, -0.3),
        at_most("gap at width 4,096", gaps[-1], 0.05),
        close("at the examples: y", ends, np.broadcast_to(case.ys, ends.shape), tolerance=1e-4),
        close(
            "the library's prediction for t = ∞, against the formula",
            predicted,
            formula,
            tolerance=1e-10,
        ),
        assumptions=[zero_loss(results)],
        figure=Chart(
            against_width(
                "distance of trained networks",
                {"from the formula": gaps, "without f₀(x)": gaps_without},
            )
        ),
    )
