"""Lecture 10 A.4: convolution as the density of a sum, and as smoothing."""

import jax.random as jr
import numpy as np
from scipy import stats
from scipy.integrate import cumulative_trapezoid

from ...plot import Chart, Panel
from ..engine.check import at_most, close, decreasing, equal, not_rejected, refuted, within
from ..engine.claim import Verdict, claim, erratum
from .signals import T, bump, convolve_channel, convolve_fft, convolve_on_grid

N = 100_000


def density_of_sum(u, v, step=1e-3):
    """A grid, the density of the sum of two variables on [0, 1] by `fft_convolve`, and its
    distribution function.
    """
    middles = (np.arange(round(1 / step)) + 0.5) * step
    density = step * convolve_fft(u(middles), v(middles))
    grid = step * np.arange(2 * len(middles) + 1)
    density = np.pad(density, 1)
    heights = cumulative_trapezoid(density, grid, initial=0)
    return grid, density, lambda t: np.interp(t, grid, heights)


@claim(
    "L10-A4-sum-density",
    title="The density of a sum of independent variables",
    kind="theorem",
    of=("layers.fft_convolve", "layers.convolve"),
)
def sum_density(rng):
    r"""For independent $U$ and $V$ with densities $w$ and $x$ the density of $U + V$ is $w * x$: a
    triangle for two uniform densities, and for two normal densities a normal density with the sum
    of the variances.
    """
    grid, density, below = density_of_sum(
        lambda t: stats.beta.pdf(t, 2, 3), lambda t: np.ones_like(t)
    )
    sums = rng.beta(2, 3, size=N) + rng.random(N)
    n = 50
    triangle = convolve_channel(np.ones(n), np.ones(n)) / n
    normal = convolve_on_grid(bump(-0.5, 0.8), bump(1.0, 0.6))  # of variances 0.64 and 0.36
    height, edges = np.histogram(sums, bins=40, density=True)
    return Verdict(
        close(
            "uniform densities: a triangle",
            triangle,
            1 - np.abs(np.arange(1, 2 * n) / n - 1),
            tolerance=1e-13,
        ),
        close("normal densities", normal, bump(0.5, 1.0)(T), tolerance=1e-8),
        close(
            "total mass of the convolution of a beta and a uniform density",
            below(2.0),
            1.0,
            tolerance=1e-5,
        ),
        not_rejected(
            "100,000 such sums have this density (Kolmogorov-Smirnov)",
            stats.kstest(sums, below).pvalue,
        ),
        refuted(
            not_rejected(
                "100,000 such sums have the triangle density",
                stats.kstest(sums, stats.triang(0.5, 0, 2).cdf).pvalue,
            )
        ),
        assumed=("U and V are independent",),
        figure=Panel(
            "u + v",
            "density",
            lines={"w ∗ x": (grid, density)},
            points={"100,000 sums": ((edges[1:] + edges[:-1]) / 2, height)},
            title="sum of a beta and a uniform variable",
        ),
    )


@erratum(
    "L10-A4-sum-density",
    title="The density of a sum needs independence",
    printed=r"p_{U+V} = w * x",
    corrected=r"p_{U+V} = w * x \text{ if } U \text{ and } V \text{ are independent}",
    of=("layers.fft_convolve",),
)
def independence(key, rng):
    r"""The lecture does not say that $U$ and $V$ must be independent. With $V = U$ uniform, both
    densities are as before, but $U + V = 2U$ is uniform on $[0, 2]$; for normal variables the
    variance is 4 times, not twice, that of one.
    """
    u, v = rng.random((2, N))
    _, _, below = density_of_sum(np.ones_like, np.ones_like)
    z = np.asarray(jr.normal(key, (N,)))
    follows = lambda name, sums: not_rejected(name, stats.kstest(sums, below).pvalue)
    return Verdict(
        follows("independent", u + v),
        within(
            "variance of U + U for a standard normal U",
            np.mean((2 * z) ** 2),
            4.0,
            error=4 * np.sqrt(2 / N),
        ),
        refuted(
            within(
                "variance of U + U is twice that of U",
                np.mean((2 * z) ** 2),
                2.0,
                error=2 * np.sqrt(2 / N),
            )
        ),
        printed=[follows("V = U", u + u)],
    )


@claim(
    "L10-A4-smoothing",
    title="Convolution with a bump smooths a signal",
    kind="experiment",
    of=("layers.convolve", "layers.fft_convolve"),
)
def smoothing(rng):
    r"""Convolution with a bump of unit mass smooths a signal: its total variation and its energy at
    high frequencies decrease, more for wider bumps, and constants do not change.
    """
    n = 128
    x = np.where(np.arange(n) < n // 2, 0.0, 1.0) + 0.3 * rng.normal(size=n)
    t = np.arange(-32, 33)
    widths = (0.7, 1.5, 3.0, 6.0)
    bumps = [bump(0, width)(t) / bump(0, width)(t).sum() for width in widths]
    smooth = [x, *(convolve_channel(w, x, boundary="circular") for w in bumps)]
    variation = [np.abs(np.diff(y, append=y[0])).sum() for y in smooth]
    energy = [np.sum(np.abs(np.fft.rfft(y)[n // 8 :]) ** 2) for y in smooth]
    gain = np.abs(np.fft.rfft(smooth[2]) / np.fft.rfft(x))  # gain of the bump of width 1.5
    expected_gain = np.exp(-2 * (np.pi * 1.5 * np.arange(n // 2 + 1) / n) ** 2)
    fastest = 2 * np.arange(n) % 4 - 1.0
    return Verdict(
        decreasing("total variation", variation),
        decreasing("energy above an eighth of the frequencies", energy),
        close(
            "a constant", convolve_channel(bumps[2], np.ones(n), boundary="circular"), np.ones(n)
        ),
        close("the mean", [y.mean() for y in smooth], np.full(5, x.mean())),
        at_most(
            "amplitude of the fastest wave after smoothing",
            np.abs(convolve_channel(bumps[2], fastest, boundary="circular")).max(),
            1e-10,
        ),
        close("gain at every frequency", gain[:20], expected_gain[:20], tolerance=1e-3),
        equal(
            "by fft_convolve",
            np.round(convolve_fft(bumps[2], x, boundary="circular"), 10),
            np.round(smooth[3], 10),
        ),
        figure=Chart(
            Panel(
                "t",
                "",
                lines={
                    "rough": (np.arange(n), x),
                    "width 1.5": (np.arange(n), smooth[2]),
                    "width 6": (np.arange(n), smooth[4]),
                },
            ),
            Panel(
                "frequency",
                "gain",
                points={"measured": (np.arange(20), gain[:20])},
                bounds={"transform of the bump": (np.arange(20), expected_gain[:20])},
            ),
        ),
    )
