r"""§9.3: the tangent kernel of networks of one hidden layer as the width grows."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ...explain import infinite_width_limit, ntk
from ...layers import Chain, Linear, ntk_parametrisation, relu
from ...plot import Chart, Panel
from ..engine.check import at_most, close, refuted, within
from ..engine.claim import Verdict, claim

WIDTHS = (100, 1000, 10_000)
SEEDS = 200


def shallow(d: int, m: int, *, key: Any, last: float = 2.0) -> Chain:
    r"""$f(x) = \sqrt{2/m} \sum_j a_j\, \mathrm{ReLU}(w_j^\top x)$ with $a_j$ and $w_j$ standard
    normal, both trained; or with another factor in place of 2.
    """
    key_w, key_a = jr.split(key)
    inner = Linear.init(d, m, initialiser=ntk_parametrisation(weight=d**0.5), bias=False, key=key_w)
    return Chain(
        inner,
        relu,
        Linear.init(m, 1, initialiser=ntk_parametrisation(weight=last**0.5), bias=False, key=key_a),
    )


def kernels(draw: Callable[[Any], Any], xs: np.ndarray, count: int, key: Any) -> np.ndarray:
    """The tangent kernels of `count` networks on the examples."""
    one = lambda key, xs: ntk(draw(key), form="trace")(xs)
    many = jax.jit(lambda keys, xs: jax.lax.map(lambda key: one(key, xs), keys, batch_size=10))
    return np.asarray(many(jr.split(key, count), jnp.asarray(xs)))


def kappa(u: Any) -> np.ndarray:
    r"""$\kappa(u) = \frac{2u}{\pi} (\pi - \arccos u) + \frac{1}{\pi} \sqrt{1 - u^2}$, as the notes
    print it.
    """
    u = np.clip(np.asarray(u, float), -1, 1)
    return 2 * u / np.pi * (np.pi - np.arccos(u)) + np.sqrt(1 - u**2) / np.pi


def by_kappa(xs: np.ndarray, ys: np.ndarray) -> np.ndarray:
    r"""$\|x\| \|x'\|\, \kappa(\cos)$ for all pairs."""
    lengths = np.outer(np.linalg.norm(xs, axis=1), np.linalg.norm(ys, axis=1))
    return lengths * kappa(xs @ ys.T / lengths)


@claim(
    "9.3-infinite-width",
    title="The infinite-width limit of the kernel",
    kind="theorem",
    of=("explain.ntk", "explain.infinite_width_limit", "layers.ntk_parametrisation"),
    cites="Jacot et al. 2018",
)
def one_kernel(key, rng):
    r"""As the width $m$ grows, in the NTK parametrisation, $k[\theta_0] \to k_\infty$ in
    probability, with fluctuations of order $m^{-1/2}$. $k_\infty$ depends on the distribution of
    the weights, not on their values.
    """
    xs = rng.normal(size=(4, 3))
    low = np.tril_indices(4)
    keys = jr.split(key, len(WIDTHS))
    results = {
        m: kernels(lambda key, m=m: shallow(3, m, key=key), xs, SEEDS, k)[:, *low]
        for m, k in zip(WIDTHS, keys)
    }
    limit = lambda last: np.asarray(
        infinite_width_limit(shallow(3, 4, key=key, last=last)).ntk(jnp.asarray(xs))
    )[low]
    spread = {m: values.std(axis=0, ddof=1) for m, values in results.items()}
    error = {m: deviation / np.sqrt(SEEDS) for m, deviation in spread.items()}
    scaled = np.array([np.sqrt(m * np.mean(spread[m] ** 2)) for m in WIDTHS])
    halves = [part.mean(axis=0) for part in np.split(results[10_000], 2)]
    return Verdict(
        *[
            within(
                f"width {m:,}: mean of {SEEDS} networks",
                results[m].mean(axis=0),
                by_kappa(xs, xs)[low],
                error=error[m],
            )
            for m in WIDTHS
        ],
        close("the library's limit", limit(2.0), by_kappa(xs, xs)[low], tolerance=1e-7),
        at_most(
            "standard deviation times √m: largest over smallest",
            scaled.max() / scaled.min(),
            1.3,
            method="trend",
        ),
        within(
            "two halves of the networks agree",
            halves[0] - halves[1],
            np.zeros(10),
            error=2 * error[10_000],
        ),
        refuted(
            within(
                "the limit for half the variance",
                results[10_000].mean(axis=0),
                limit(1.0),
                error=error[10_000],
            )
        ),
        figure=_on_circle(key),
    )


def _on_circle(key: Any) -> Chart:
    """The kernel between inputs on a circle, of three networks of each width, and its limit."""
    angle = np.linspace(0, np.pi, 60)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    panels = []
    for m in (30, 300, 3000):
        result = kernels(lambda key, m=m: shallow(2, m, key=key), circle, 3, key)[:, 0]
        panels.append(
            Panel(
                "angle",
                "k(x, x'); limit dashed",
                title=f"width {m:,}",
                lines={"": (angle, result.T)},
                bounds={"limit": (angle, kappa(np.cos(angle)))},
            )
        )
    return Chart(*panels)
