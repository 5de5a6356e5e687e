"""§1.4, cross-talk: how other patterns disturb a stored one, and how often they flip its sites."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy import integrate, special, stats

from ... import explain, models
from ...plot import Panel
from ..engine.check import at_least, at_most, close, equal, not_rejected, refuted, within
from ..engine.claim import Verdict, claim, erratum
from .hopfield import each, random_patterns


def looped_crosstalk(X, keep):
    """The sums over j and r, term by term, for every t and i; includes j = i if `keep`."""
    n, d = X.shape
    C = np.zeros((n, d))
    for t in range(n):
        for i in range(d):
            for j in range(d):
                for r in range(n):
                    C[t, i] += (r != t) * (keep or j != i) * X[r, i] * X[r, j] * X[t, j] / d
    return C


def standard_error(values):
    """Standard error of the mean of the values."""
    return np.std(values) / np.sqrt(len(values))


def one_step(X):
    """The state after one synchronous update of Hebb's network from each stored pattern."""
    memory = models.Hebbian(X)
    return each(lambda x: models.synchronous_recall(memory, x, max_steps=1).x, X)


@claim(
    "1.4-crosstalk",
    title="The field at a stored pattern is signal plus cross-talk",
    kind="identity",
    of=("explain.crosstalk", "models.hebb"),
    cites="Hertz, Krogh & Palmer 1991",
)
def crosstalk(key):
    r"""The field at pattern $t$ is $\sum_j w_{ij} x_{t,j} = \frac{d-1}{d} x_{t,i} + C_{t,i}$ with
    the cross-talk $C_{t,i} = \frac1d \sum_{j \ne i} \sum_{r \ne t} x_{r,i} x_{r,j} x_{t,j}$. If
    $j = i$ is kept in both, the signal is $x_{t,i}$ and the cross-talk gains
    $\frac{n-1}{d} x_{t,i}$.
    """
    n, d = 5, 12
    X = np.asarray(random_patterns(key, n, d))
    C = np.asarray(explain.crosstalk(X))
    C_diagonal = looped_crosstalk(X, keep=True)
    fields = each(models.hebb(X).field, X)
    return Verdict(
        close("cross-talk, against the four loops", C, looped_crosstalk(X, keep=False)),
        close("field, zero diagonal", fields, (d - 1) / d * X + C),
        close("field, diagonal kept", X @ (X.T @ X / d), X + C_diagonal),
        close("difference made by the diagonal", C_diagonal - C, (n - 1) / d * X),
    )


@claim(
    "1.4-crosstalk-stable",
    title="A site is stable unless cross-talk outweighs it",
    kind="identity",
    of=("explain.crosstalk", "models.synchronous_recall"),
    cites="Hertz, Krogh & Palmer 1991",
)
def stable(key):
    r"""With the diagonal kept, a site is stable exactly if $-x_{t,i} C_{t,i} < 1$ (or $= 1$ and
    $x_{t,i} = +1$), so $|C_{t,i}| < 1$ suffices; it is not necessary, for cross-talk of the site's
    own sign may be arbitrarily large. Without the diagonal the threshold is $\frac{d-1}{d}$.
    """
    n, d = 40, 60  # both even, hence ties occur
    X = np.asarray(random_patterns(key, n, d))
    C = np.rint(d * np.asarray(explain.crosstalk(X)))  # d times the cross-talk: integers
    C_diagonal = C + (n - 1) * X
    stable_diagonal = np.where(X @ (X.T @ X) >= 0, 1.0, -1.0) == X
    stable_zero = one_step(X) == X
    opposition = lambda C: -X * C
    rule = lambda C, signal: (opposition(C) < signal) | ((opposition(C) == signal) & (X > 0))
    large = (np.abs(C_diagonal) > d) & (C_diagonal * X > 0)
    return Verdict(
        equal("sites stable, zero diagonal", stable_zero, rule(C, d - 1), method="brute force"),
        equal(
            "sites stable, diagonal kept",
            stable_diagonal,
            rule(C_diagonal, d),
            method="brute force",
        ),
        equal(
            "of the sites with |C| < 1, all are stable",
            stable_diagonal[np.abs(C_diagonal) < d].all(),
            True,
            method="brute force",
        ),
        at_least("number of stable sites with |C| > 1", int((large & stable_diagonal).sum()), 1),
        refuted(equal("|C| < 1 is necessary", stable_diagonal, np.abs(C_diagonal) < d)),
        assumptions=[
            at_least("number of unstable sites, zero diagonal", int((~stable_zero).sum()), 1)
        ],
    )


@claim(
    "1.4-crosstalk-dist",
    title="Cross-talk of random patterns is normal",
    kind="theorem",
    of=("explain.crosstalk",),
    cites="Hertz, Krogh & Palmer 1991",
)
def distribution(key):
    r"""For independent fair signs $\mathbb{E}\, C_{t,i} = 0$ and $\mathrm{Var}\, C_{t,i} =
    \frac{(n-1)(d-1)}{d^2}$, which tends to $\frac nd$; the distribution tends to $N(0, \frac nd)$.
    With the diagonal kept the mean of $x_{t,i} C_{t,i}$ is $\frac{n-1}{d}$.
    """
    n, d, draws = 40, 400, 4000

    def summary(key, n=n, d=d):
        X = random_patterns(key, n, d)
        C = explain.crosstalk(X)
        C_diagonal = (X @ X.T) @ X / d - X
        jitter = jr.uniform(
            jr.fold_in(key, 1), (), float, -1 / d, 1 / d
        )  # entries lie on a grid of step 2/d
        return C[0, 0] + jitter, jnp.mean(X * C), jnp.mean(C * C), jnp.mean(X * C_diagonal)

    samples = jax.lax.map(summary, jr.split(key, draws), batch_size=50)
    single, means, squares, C_diagonal = (np.asarray(part) for part in samples)
    keys_small = jr.split(jr.fold_in(key, 1), draws)
    small_squares = np.asarray(
        jax.lax.map(lambda key: summary(key, 30, 30)[2], keys_small, batch_size=50)
    )
    X = random_patterns(jr.fold_in(key, 0), n, d)
    values = np.asarray(X * explain.crosstalk(X))
    variance = (n - 1) * (d - 1) / d**2
    error = np.sqrt(
        4 * (n - 1) * (d - 1) / (n * d**3) / draws
    )  # the overlaps of pairs are uncorrelated
    normal = stats.kstest(single / np.sqrt(variance), "norm").pvalue
    heights, edges = np.histogram(values, bins=np.linspace(-1.4, 1.4, 57), density=True)
    grid = np.linspace(-1.4, 1.4, 200)
    return Verdict(
        within("mean of x C, d = 400, n = 40", means.mean(), 0.0, error=error, false_alarm=6e-5),
        within(
            "variance", squares.mean(), variance, error=standard_error(squares), false_alarm=6e-5
        ),
        within(
            "variance, d = n = 30",
            small_squares.mean(),
            (29 / 30) ** 2,
            error=standard_error(small_squares),
            false_alarm=6e-5,
        ),
        refuted(
            within(
                "variance, d = n = 30: (n − 1) / d",
                small_squares.mean(),
                29 / 30,
                error=standard_error(small_squares),
                false_alarm=6e-5,
            )
        ),
        not_rejected(
            "4,000 draws of one entry are normal, after smoothing its steps of 2/d",
            normal,
            false_alarm=1e-5,
        ),
        within(
            "mean of x C, diagonal kept",
            C_diagonal.mean(),
            (n - 1) / d,
            error=error,
            false_alarm=6e-5,
        ),
        refuted(
            within(
                "mean of x C, diagonal kept, is 0",
                C_diagonal.mean(),
                0.0,
                error=error,
                false_alarm=6e-5,
            )
        ),
        assumed=("signs independent and fair",),
        figure=Panel(
            "cross-talk against the sign of the site",
            "density",
            lines={"measured": ((edges[1:] + edges[:-1]) / 2, heights)},
            bounds={"normal density": (grid, stats.norm.pdf(grid, scale=np.sqrt(variance)))},
            vertical_lines={"the site flips below": -(d - 1) / d},
            title="40 patterns on 400 sites",
        ),
    )


@claim(
    "1.4-flip-prob",
    title="How often a site flips",
    kind="theorem",
    of=("explain.flip_probability", "models.Hebbian"),
    cites="Hertz, Krogh & Palmer 1991",
)
def flips(key):
    r"""A site of a stored pattern is unstable with a probability that tends to
    $\sqrt{\frac{d}{2\pi n}} \int_1^\infty e^{-dz^2/2n} \, dz = \frac12 (1 -
    \mathrm{erf}\sqrt{d/2n})$;
    for finite $n$ and $d$ it is close to the same with $n - 1$ and $d - 1$.
    """
    d = 500
    draws = 10
    loads = np.array([0.1, 0.15, 0.2, 0.3, 0.4])
    sizes = np.rint(loads * d).astype(int)
    formula = explain.flip_probability(sizes, d)
    rates = []
    for n in sizes:
        pattern_sets = [
            random_patterns(jr.fold_in(jr.fold_in(key, n), k), int(n), d) for k in range(draws)
        ]
        rates.append(np.mean([(one_step(X) != np.asarray(X)).mean() for X in pattern_sets]))
    finite = stats.norm.sf((d - 1) / d / np.sqrt((sizes - 1) * (d - 1) / d**2))
    allowed = np.maximum(5 * np.sqrt(finite * (1 - finite) / (draws * sizes * d)), 0.03 * finite)
    grid = np.linspace(0.05, 0.45, 100)
    return Verdict(
        close(
            "closed form, against the integral",
            formula,
            [normalised_integral(n, d) for n in sizes],
            tolerance=1e-10,
        ),
        at_most(
            "distance of the measured rates from the finite form, over the allowed distance",
            np.abs(np.array(rates) - finite) / allowed,
            1.0,
            method="trend",
        ),
        assumed=("signs independent and fair",),
        figure=Panel(
            "patterns per site, n / d",
            "probability that a site flips",
            lines={"normal limit": (grid, explain.flip_probability(grid, 1.0))},
            points={"measured, d = 500": (loads, rates)},
            log="y",
        ),
    )


def printed_integral(n, d):
    """The integral without its normalising factor, by quadrature."""
    return integrate.quad(lambda z: np.exp(-d * z * z / (2 * n)), 1, np.inf, epsabs=1e-14)[0]


def normalised_integral(n, d):
    """The tail of the normal distribution, by quadrature."""
    return np.sqrt(d / (2 * np.pi * n)) * printed_integral(n, d)


@erratum(
    "1.4-flip-prob",
    title="The integral needs its normalising factor",
    of=("explain.flip_probability",),
    printed=r"\int_1^\infty e^{-dz^2/2n} \, dz = \frac12 (1 - \mathrm{erf}\sqrt{d/2n})",
    corrected=r"\sqrt{\frac{d}{2\pi n}} \int_1^\infty e^{-dz^2/2n} \, dz = \frac12 (1 - "
    r"\mathrm{erf}\sqrt{d/2n})",
    cites="Hertz, Krogh & Palmer 1991",
)
def flips_erratum(key):
    r"""The bare integral is $\sqrt{2\pi n/d}$ times the probability stated, about 0.8 times at $n/d
    = 0.1$ and 1.6 times at $n/d = 0.4$. The factor $\sqrt{d/2\pi n}$ makes the two sides equal.
    """
    sizes = np.array([50, 100, 200])
    d = 500
    formula = explain.flip_probability(sizes, d)
    erf = 0.5 * (1 - special.erf(np.sqrt(d / (2 * sizes))))
    integrals = np.array([printed_integral(n, d) for n in sizes])
    return Verdict(
        close(
            "with the factor", formula, [normalised_integral(n, d) for n in sizes], tolerance=1e-10
        ),
        close("the closed form", formula, erf, tolerance=1e-10),
        close(
            "printed over stated",
            integrals / formula,
            np.sqrt(2 * np.pi * sizes / d),
            tolerance=1e-8,
        ),
        printed=[
            close(f"the bare integral at n/d = {n / d:g}", b, f, tolerance=1e-10)
            for n, b, f in zip(sizes, integrals, erf)
        ],
    )
