r"""Drift of the tangent kernel during training (§9.3): lazy training or feature learning?

$$S_t = 1 - \frac{\langle K_0, K_t \rangle}{\|K_0\| \|K_t\|} = \frac12 \varepsilon_t^2, \qquad
\varepsilon_t = \Big\| \frac{K_0}{\|K_0\|} - \frac{K_t}{\|K_t\|} \Big\|, \qquad
m_t = \frac{\|\theta_t - \theta_0\|}{\|\theta_0\|}$$

A kernel that changes only in scale has $S = 0$: training is then that of the linearised network
with rescaled time. Kernels are centred, $HKH$ with $H = I - \frac1n 11^\top$, because a component
that all pairs of examples share would hide the changes between them. (Chizat, Oyallon & Bach 2019;
Fort et al. 2020; Kornblith et al. 2019 for the centring)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Shaped

from ... import tree
from ...core import Batch
from ..modules import module_names, parameter_owners
from .tangent_spectrum import Matrix, centre_kernel, kernel_alignment, mean_kernel

MAX_LAZY_CHANGE = 0.2  # relative change of the kernel below which training is called lazy
MIN_FEATURE_CHANGE = 0.5  # and above which features are said to be learnt


def kernel_distance(K: Matrix, L: Matrix) -> float:
    r"""$1 - \frac{\langle K, L \rangle}{\|K\| \|L\|}$: cosine distance of two kernels, 0 for
    kernels that differ only by a factor (Fort et al. 2020).

    >>> (
    ...     round(kernel_distance(np.eye(2), 3 * np.eye(2)), 6),
    ...     round(kernel_distance(np.eye(2), np.ones((2, 2))), 4),
    ... )
    (0.0, 0.2929)
    """
    K = np.asarray(K, np.float64)
    L = np.asarray(L, np.float64)
    norms = np.linalg.norm(K) * np.linalg.norm(L)
    if K.shape != L.shape or not norms > 0:
        raise ValueError(
            "kernel_distance: expected two nonzero matrices of the same shape; got shapes "
            f"{K.shape} and {L.shape}."
        )
    # half the squared distance of the normalised kernels: accurate also for small distances
    return float(np.square(K / np.linalg.norm(K) - L / np.linalg.norm(L)).sum() / 2)


@dataclass(frozen=True)
class KernelDrift:
    r"""Distances from the initial kernel and parameters, and alignment with the targets, at every
    time; the first time is the start of training.
    """

    distance: Float[np.ndarray, " t"]  # S_t, of centred kernels
    uncentred_distance: Float[np.ndarray, " t"]
    parameter_change: Float[np.ndarray, " t"]  # m_t
    alignment: Float[np.ndarray, " t"]
    times: Float[np.ndarray, " t"]
    initial_kernel: Float[np.ndarray, "n n"]  # scaled to mean diagonal 1
    final_kernel: Float[np.ndarray, "n n"]
    targets: Shaped[np.ndarray, "n ..."]
    layers: tuple[str, ...]
    layer_change: Float[np.ndarray, " l"]  # at the end; infinite for layers that started at 0

    @property
    def kernel_change(self) -> float:
        r"""$\varepsilon = \sqrt{2S}$ at the end: relative change of the normalised kernel."""
        return float(np.sqrt(2 * self.distance[-1]))

    @property
    def verdict(self) -> str:
        """`lazy` if the kernel changed by less than 20 %, `learnt features` if by more than 50 %,
        otherwise `in between`.
        """
        if self.kernel_change < MAX_LAZY_CHANGE:
            return "lazy"
        if self.kernel_change > MIN_FEATURE_CHANGE:
            return "learnt features"
        return "in between"


def kernel_drift(models: Sequence[Any], data: Batch, *, times: Any = None) -> KernelDrift:
    r"""Distance of the tangent kernel on examples `(xs, ys)` from its initial value, for models at
    successive times of one training (§9.3).

    Two models, at the start and at the end, are enough. The thresholds of the verdict, 20 % and
    50 %, are a convention: there is no sharp transition between lazy training and feature learning,
    and at any finite width the kernel changes a little.

    >>> import jax.random as jr
    >>> from thetax.models import MLP
    >>> model, xs = MLP.init(3, 16, 2, key=jr.key(0)), jr.normal(jr.key(1), (20, 3))
    >>> scaled = jax.tree.map(lambda a: 1.1 * a, model)
    >>> drift = kernel_drift([model, scaled], (xs, np.arange(20) % 2))
    >>> drift.parameter_change.round(4).tolist(), round(float(drift.distance[1]), 3), drift.verdict
    ([0.0, 0.1], 0.0, 'lazy')
    """
    if len(models) < 2:
        raise ValueError(
            "kernel_drift: expected at least two models, from the start and the end of training; "
            f"got {len(models)}."
        )
    if times is None:
        times = np.arange(len(models), dtype=np.float64)
    times = np.asarray(times, np.float64)
    if times.shape != (len(models),):
        raise ValueError(
            f"kernel_drift: times must have one entry for each of the {len(models)} models; got "
            f"shape {times.shape}."
        )
    xs, ys = data
    kernels = [mean_kernel(model, xs) for model in models]
    first, last = kernels[0], kernels[-1]
    parameter_change = [
        float(tree.norm(tree.axpy(-1.0, models[0], model)) / tree.norm(models[0]))
        for model in models
    ]
    layers = _layer_changes(models[0], models[-1])
    return KernelDrift(
        distance=np.array(
            [kernel_distance(centre_kernel(first), centre_kernel(K)) for K in kernels]
        ),
        uncentred_distance=np.array([kernel_distance(first, K) for K in kernels]),
        parameter_change=np.array(parameter_change),
        alignment=np.array([kernel_alignment(K, ys) for K in kernels]),
        times=times,
        initial_kernel=first / np.trace(first) * len(first),
        final_kernel=last / np.trace(last) * len(first),
        targets=np.asarray(ys),
        layers=tuple(layers),
        layer_change=np.array(list(layers.values())),
    )


def _layer_changes(start: Any, end: Any) -> dict[str, float]:
    """Relative change of the parameters of each layer, by the name of the layer."""
    names: dict[str, str] = module_names(start)
    sums: dict[str, tuple[float, float]] = {}  # squared norms of the change and of the start
    for owner, a, b in zip(parameter_owners(start), jax.tree.leaves(start), jax.tree.leaves(end)):
        a = np.asarray(a, np.float64)
        b = np.asarray(b, np.float64)
        change, initial = sums.get(owner, (0.0, 0.0))
        sums[owner] = change + np.square(b - a).sum(), initial + np.square(a).sum()

    def ratio(change: float, initial: float) -> float:
        if initial:
            return float(np.sqrt(change / initial))
        return np.inf if change else 0.0

    return {names.get(owner) or owner: ratio(*pair) for owner, pair in sums.items()}
