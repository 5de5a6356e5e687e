"""The transition at n = 2d, from almost all labellings separable to almost none."""

from fractions import Fraction

import numpy as np
from scipy import stats

from ... import certify
from ...plot import Panel
from ..engine.check import close, decreasing, equal, increasing, not_rejected
from ..engine.claim import Verdict, claim, erratum
from .cover import separable_share


@claim(
    "1.2-cover-transition",
    title="The transition at n = 2d",
    kind="theorem",
    of=("certify.cover_fraction", "models.find_separator"),
    cites="Cover 1965",
)
def transition(rng):
    r"""The share of separable labellings
    $F(n, d) = C(n, d) / 2^n = P(\mathrm{Bin}(n - 1, \tfrac12) \le d - 1)$ is exactly one half at
    $n = 2d$; as $d \to \infty$ it tends to 1 at $n = (2 - \varepsilon) d$ and to 0 at
    $n = (2 + \varepsilon) d$.
    """
    F = certify.cover_fraction
    grid = [(n, d) for d in (1, 2, 5, 17, 60) for n in range(1, 3 * d + 2)]
    sides = [(float(F(3 * d // 2, d)), float(F(5 * d // 2, d))) for d in (5, 20, 100)]
    printed = [(0.891, 0.274), (0.969, 0.076), (1.000, 0.0007)]
    tries = 100
    points = (30, 40, 50)
    hits = [separable_share(rng, n, 20, tries) for n in points]
    tests = [float(stats.binomtest(k, tries, float(F(n, 20))).pvalue) for k, n in zip(hits, points)]
    curve = lambda d: (np.arange(1, 4 * d + 1) / d, [float(F(n, d)) for n in range(1, 4 * d + 1)])
    return Verdict(
        equal(
            "F(2d, d), d ≤ 200",
            [F(2 * d, d) == Fraction(1, 2) for d in range(1, 201)],
            [True] * 200,
        ),
        close(
            "binomial distribution function",
            [float(F(*size)) for size in grid],
            [stats.binom.cdf(d - 1, n - 1, 0.5) for n, d in grid],
        ),
        close("F at 1.5 d and 2.5 d, d = 5, 20, 100", sides, printed, tolerance=6e-4),
        increasing("F at 1.5 d", [low for low, _ in sides]),
        decreasing("F at 2.5 d", [high for _, high in sides]),
        *[
            not_rejected(
                f"{k} of {tries} random labellings of {n} points in ℝ²⁰", p, false_alarm=5e-5
            )
            for k, n, p in zip(hits, points, tests)
        ],
        figure=Panel(
            "points per dimension, $n / d$",
            "share of labellings that are separable",
            lines={f"$d = {d}$": curve(d) for d in (5, 20, 100)},
            points={
                "100 random labellings, $d = 20$": (
                    [n / 20 for n in points],
                    [k / tries for k in hits],
                )
            },
            vertical_lines={"$n = 2d$": 2.0},
        ),
    )


@erratum(
    "1.2-cover-transition",
    title="The share falls, not the number",
    printed=r"\text{a steep decrease in number of linear classifications, toward } 0",
    corrected=r"\text{a steep decrease in the share of linear classifications, } C(n, d) / 2^n "
    r"\text{, toward } 0",
    of=("certify.cover_count", "certify.cover_fraction"),
    cites="Cover 1965",
    slip=True,
)
def transition_erratum(key):
    r"""Beyond $n = 2d$ the share of labellings that are linear classifications drops steeply; their
    number never falls.
    """
    d = 6
    ns = range(7, 60)
    number = [certify.cover_count(n, d) for n in ns]
    share = [float(certify.cover_fraction(n, d)) for n in ns]
    return Verdict(
        decreasing("share, n = 7 … 59, d = 6", share),
        equal("share below 10⁻⁹ at n = 59", share[-1] < 1e-9, True),
        increasing("number", number),
        printed=[
            decreasing("number, n = 7 … 59, d = 6", number),
            equal("number below 1 at n = 59", number[-1] < 1, True),
        ],
    )
