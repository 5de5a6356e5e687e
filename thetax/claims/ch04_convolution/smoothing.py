"""Lecture 10 A.4: two ways to think of a convolution, as the law of a sum and as smoothing."""

import jax.random as jr
import numpy as np
from scipy import stats
from scipy.integrate import cumulative_trapezoid

from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_most, close, equal, falls, likely, refuted, within
from ..engine.claim import Verdict, claim, erratum
from .signals import T, bump, by_fft, convolved, on_grid

N = 100_000


def law_of_sum(u, v, step=1e-3):
    """The density of a sum of two laws on [0, 1] by the library's convolution, and its distribution
    function.
    """
    middles = (np.arange(round(1 / step)) + 0.5) * step
    density = step * by_fft(u(middles), v(middles))
    places = step * np.arange(2 * len(middles) + 1)
    density = np.pad(density, 1)
    heights = cumulative_trapezoid(density, places, initial=0)
    return places, density, lambda t: np.interp(t, places, heights)


@claim(
    "L10-A4-sum-density",
    title="The law of a sum",
    kind="theorem",
    of=("layers.fft_convolve", "layers.convolve"),
)
def sum_density(key):
    r"""For independent $U$ and $V$ with densities $w$ and $x$ the density of $U + V$ is $w * x$:
    two uniform laws make a triangle, normal ones a normal law with the sum of the variances, and so
    for any other.
    """
    rng = chance(key)
    places, density, below = law_of_sum(
        lambda t: stats.beta.pdf(t, 2, 3), lambda t: np.ones_like(t)
    )
    sums = rng.beta(2, 3, size=N) + rng.random(N)
    n = 50
    triangle = convolved(np.ones(n), np.ones(n)) / n
    normal = on_grid(bump(-0.5, 0.8), bump(1.0, 0.6))  # of variances 0.64 and 0.36
    height, edges = np.histogram(sums, bins=40, density=True)
    return Verdict(
        close(
            "uniform laws: a triangle",
            triangle,
            1 - np.abs(np.arange(1, 2 * n) / n - 1),
            tolerance=1e-13,
        ),
        close("normal laws", normal, bump(0.5, 1.0)(T), tolerance=1e-8),
        close(
            "the mass of the density of a beta and a uniform law", below(2.0), 1.0, tolerance=1e-5
        ),
        likely(
            "100,000 such sums follow it (Kolmogorov and Smirnov)", stats.kstest(sums, below).pvalue
        ),
        refuted(
            likely(
                "they follow the triangle", stats.kstest(sums, stats.triang(0.5, 0, 2).cdf).pvalue
            )
        ),
        assumed=("U and V are independent",),
        figure=Chart(
            Panel(
                "u + v",
                "density",
                lines={"w ∗ x": (places, density)},
                points={"100,000 sums": ((edges[1:] + edges[:-1]) / 2, height)},
                title="a beta law and a uniform one",
            )
        ),
    )


@erratum(
    "L10-A4-sum-density",
    title="Only for independent variables",
    printed=r"p_{U+V} = w * x",
    corrected=r"p_{U+V} = w * x \text{ if } U \text{ and } V \text{ are independent}",
    of=("layers.fft_convolve",),
)
def independence(key):
    r"""The lecture does not say that $U$ and $V$ must be independent. With $V = U$ uniform, both
    densities are as before, but $U + V = 2U$ is uniform on $[0, 2]$; for normal laws the variance
    is 4 times, not twice, that of one.
    """
    rng = chance(key)
    u, v = rng.random((2, N))
    _, _, below = law_of_sum(np.ones_like, np.ones_like)
    z = np.asarray(jr.normal(key, (N,)))
    follows = lambda name, sums: likely(name, stats.kstest(sums, below).pvalue)
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
                "against twice that of one", np.mean((2 * z) ** 2), 2.0, error=2 * np.sqrt(2 / N)
            )
        ),
        printed=[follows("V = U", u + u)],
    )


@claim(
    "L10-A4-smoothing",
    title="A bump smooths",
    kind="experiment",
    of=("layers.convolve", "layers.fft_convolve"),
)
def smoothing(key):
    r"""Convolution with a bump of unit mass makes a rough signal smooth: its total variation and
    its energy at high frequencies fall, the more so the wider the bump, and what is constant stays.
    """
    rng = chance(key)
    n = 128
    x = np.where(np.arange(n) < n // 2, 0.0, 1.0) + 0.3 * rng.normal(size=n)
    t = np.arange(-32, 33)
    widths = (0.7, 1.5, 3.0, 6.0)
    bumps = [bump(0, width)(t) / bump(0, width)(t).sum() for width in widths]
    smooth = [x, *(convolved(w, x, boundary="circular") for w in bumps)]
    variation = [np.abs(np.diff(y, append=y[0])).sum() for y in smooth]
    energy = [np.sum(np.abs(np.fft.rfft(y)[n // 8 :]) ** 2) for y in smooth]
    passed = np.abs(
        np.fft.rfft(smooth[2]) / np.fft.rfft(x)
    )  # of each frequency, by the bump of width 1.5
    promised = np.exp(-2 * (np.pi * 1.5 * np.arange(n // 2 + 1) / n) ** 2)
    rough = 2 * np.arange(n) % 4 - 1.0
    return Verdict(
        falls("total variation", variation),
        falls("energy above an eighth of the frequencies", energy),
        close(
            "a constant",
            convolved(bumps[2], np.ones(n), boundary="circular"),
            np.ones(n),
            tolerance=1e-12,
        ),
        close("the mean", [y.mean() for y in smooth], np.full(5, x.mean()), tolerance=1e-12),
        at_most(
            "the fastest wave, after",
            np.abs(convolved(bumps[2], rough, boundary="circular")).max(),
            1e-10,
        ),
        close("what is left of every frequency", passed[:20], promised[:20], tolerance=1e-3),
        equal(
            "by spectra: the same",
            np.round(by_fft(bumps[2], x, boundary="circular"), 10),
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
                "part that is left",
                points={"measured": (np.arange(20), passed[:20])},
                bounds={"transform of the bump": (np.arange(20), promised[:20])},
            ),
        ),
    )
