r"""Was a network lazy, or did it learn features (§9.3)? How far its tangent kernel turned while it
was trained.

$$S_t = 1 - \frac{\langle K_0, K_t \rangle}{\|K_0\| \|K_t\|} = \frac12 \varepsilon_t^2, \qquad
\varepsilon_t = \Big\| \frac{K_0}{\|K_0\|} - \frac{K_t}{\|K_t\|} \Big\|, \qquad
m_t = \frac{\|\theta_t - \theta_0\|}{\|\theta_0\|}$$

A kernel that only grows has $S = 0$: training then is that of the linearised network, with another
clock. Kernels are centred, $HKH$ with $H = I - \frac1n 11^\top$: what all pairs of examples have in
common would hide what changes among them. (Chizat, Oyallon & Bach 2019; Fort et al. 2020; Kornblith
et al. 2019 for the centring)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Shaped

from ... import tree
from ...core import Batch
from ..modules import labels, owners
from .tangent_spectrum import Matrix, centred, kernel_alignment, mean_kernel

LAZY, LEARNT = 0.2, 0.5  # how far the kernel may change, and how far it must, for a verdict


def kernel_distance(K: Matrix, L: Matrix) -> float:
    r"""$1 - \frac{\langle K, L \rangle}{\|K\| \|L\|}$: 0 for kernels that differ by a factor alone
    (Fort et al. 2020).

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
            f"kernel_distance: expected two matrices of one shape, not 0; got {K.shape} and "
            f"{L.shape}."
        )
    return float(
        np.square(K / np.linalg.norm(K) - L / np.linalg.norm(L)).sum() / 2
    )  # keeps the digits of a small one


@dataclass(frozen=True)
class Drift:
    r"""$S_t$, $m_t$ and the alignment with the targets at every time, the first being the start,
    and what moved.
    """

    drift: Float[np.ndarray, " t"]
    plain: Float[np.ndarray, " t"]  # the same of kernels that are not centred
    moved: Float[np.ndarray, " t"]
    alignment: Float[np.ndarray, " t"]
    times: Float[np.ndarray, " t"]
    start: Float[np.ndarray, "n n"]  # the kernel, of mean diagonal 1
    end: Float[np.ndarray, "n n"]
    targets: Shaped[np.ndarray, "n ..."]
    layers: tuple[str, ...]
    layer_moved: Float[np.ndarray, " l"]  # at the end; infinite for what began as 0

    @property
    def change(self) -> float:
        r"""$\varepsilon = \sqrt{2S}$ at the end: by what part the normalised kernel has changed."""
        return float(np.sqrt(2 * self.drift[-1]))

    @property
    def verdict(self) -> str:
        """In words: `lazy` if the kernel changed by less than a fifth, `learnt features` if by more
        than a half.
        """
        return (
            "lazy"
            if self.change < LAZY
            else "learnt features"
            if self.change > LEARNT
            else "in between"
        )


def drift(models: Sequence[Any], data: Batch, *, times: Any = None) -> Drift:
    r"""How far the tangent kernel on some examples `(xs, ys)` drifts along the models of a
    training, first to last (§9.3).

    Two models are enough, that at the start and that at the end. The borders of the verdict, a
    fifth and a half, are a convention: between a kernel that stays and one that is another there is
    no border in nature, and at any finite width it changes a little.

    >>> import jax.random as jr
    >>> from thetax.models import MLP
    >>> model, xs = MLP.init(3, 16, 2, key=jr.key(0)), jr.normal(jr.key(1), (20, 3))
    >>> found = drift([model, jax.tree.map(lambda a: 1.1 * a, model)], (xs, np.arange(20) % 2))
    >>> found.moved.round(4).tolist(), round(float(found.drift[1]), 3), found.verdict
    ([0.0, 0.1], 0.0, 'lazy')
    """
    if len(models) < 2:
        raise ValueError(
            f"drift: expected two models at least, of the start and of the end; got {len(models)}."
        )
    when = (
        np.arange(len(models), dtype=np.float64) if times is None else np.asarray(times, np.float64)
    )
    if when.shape != (len(models),):
        raise ValueError(
            f"drift: times must be one for each of the {len(models)} models; got {when.shape}."
        )
    xs, ys = data
    kernels = [mean_kernel(model, xs) for model in models]
    change = [
        float(tree.norm(tree.axpy(-1.0, models[0], model)) / tree.norm(models[0]))
        for model in models
    ]
    layers = _layers(models[0], models[-1])
    return Drift(
        drift=np.array([kernel_distance(centred(kernels[0]), centred(K)) for K in kernels]),
        plain=np.array([kernel_distance(kernels[0], K) for K in kernels]),
        moved=np.array(change),
        alignment=np.array([kernel_alignment(K, ys) for K in kernels]),
        times=when,
        start=kernels[0] / np.trace(kernels[0]) * len(kernels[0]),
        end=kernels[-1] / np.trace(kernels[-1]) * len(kernels[0]),
        targets=np.asarray(ys),
        layers=tuple(layers),
        layer_moved=np.array(list(layers.values())),
    )


def _layers(start: Any, end: Any) -> dict[str, float]:
    """The relative change of the parameters that each layer holds."""
    name: dict[str, str] = labels(start)
    found: dict[str, tuple[float, float]] = {}
    for owner, a, b in zip(owners(start), jax.tree.leaves(start), jax.tree.leaves(end)):
        a = np.asarray(a, np.float64)
        b = np.asarray(b, np.float64)
        far, long = found.get(owner, (0.0, 0.0))
        found[owner] = far + np.square(b - a).sum(), long + np.square(a).sum()
    ratio = lambda far, long: float(np.sqrt(far / long)) if long else np.inf if far else 0.0
    return {name.get(owner) or owner: ratio(*sums) for owner, sums in found.items()}
