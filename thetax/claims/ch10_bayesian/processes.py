"""§10.2: Gaussian processes, their posterior, and the kernel that makes near inputs alike."""

from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor, kernels
from sklearn.metrics.pairwise import rbf_kernel

from ...bayes import RBF, GaussianProcess
from ...layers import Linear
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_least, at_most, close, likely, refuted, rises, within
from ..engine.claim import Verdict, claim

BOOK = "Rasmussen & Williams 2006"


def by_loop(xs: np.ndarray, ys: np.ndarray, *, scale: float, length: float) -> np.ndarray:
    r"""$s\,e^{-\|x - y\|^2 / 2\ell^2}$, a pair at a time."""
    one = lambda x, y: scale * np.exp(-np.sum((x - y) ** 2) / (2 * length**2))
    return np.array([[one(x, y) for y in ys] for x in xs])


def spread(covariance: np.ndarray, draws: int) -> np.ndarray:
    """The standard errors of the covariances of so many normal draws about a mean that is known."""
    own = np.diag(covariance)
    return np.sqrt((np.outer(own, own) + covariance**2) / draws)


def distances(draws: np.ndarray, mean: Any, covariance: np.ndarray) -> np.ndarray:
    """Mahalanobis' squared distances from the mean; where nothing varies no distance is counted."""
    off = draws - mean
    return np.einsum("ni,ij,nj->n", off, np.linalg.pinv(covariance, hermitian=True), off)


def drawn(name: str, draws: np.ndarray, band: tuple[Any, ...], points: dict[str, Any]) -> Panel:
    """A few functions over a band of twice their standard deviation."""
    t, mean, deviation = band
    return Panel(
        "x",
        "f(x)",
        title=name,
        bands={"": (t, mean - 2 * deviation, mean + 2 * deviation)},
        lines={"": (t, draws.T)},
        points=points,
    )


@claim(
    "10.2-gp",
    title="Any few values are jointly normal",
    kind="definition",
    of=("bayes.GaussianProcess",),
    cites=BOOK,
)
def process(key):
    r"""$f$ is a Gaussian process if for every finite $X = (x_1, \dots, x_n)$ the values
    $f(X) \sim N(\mu, \Sigma)$ are jointly normal, with $\mu_i = \mu(x_i)$ and
    $\Sigma_{ij} = k(x_i, x_j)$. Of fewer inputs the same process says what the sub-blocks of $\mu$
    and $\Sigma$ say.
    """
    rng = chance(key)
    n = 5
    draws = 20_000
    xs = rng.uniform(-2, 2, size=(n, 2))
    slope = rng.normal(size=2)
    offset = rng.normal()
    mean = Linear(jnp.asarray(slope[None]), jnp.asarray([offset]))
    f = GaussianProcess.init(RBF.init(scale=1.7, length=1.3), mean=mean)
    key_all, key_few = jr.split(key)
    values = np.asarray(f.sample(jnp.asarray(xs), draws, key=key_all))
    mu = xs @ slope + offset
    sigma = by_loop(xs, xs, scale=1.7, length=1.3)
    few = [0, 3]
    pairs = np.asarray(f.sample(jnp.asarray(xs[few]), draws, key=key_few))
    block = sigma[np.ix_(few, few)]
    seen = (values - mu).T @ (values - mu) / draws
    scaled = mu + (values - mu) * np.sqrt(
        rng.choice([0.5, 1.5], size=(draws, 1))
    )  # same moments, not normal
    square = lambda name, draws, mean, cov: likely(
        f"{name}: distances², Kolmogorov-Smirnov to χ²",
        stats.kstest(distances(draws, mean, cov), stats.chi2(len(cov)).cdf).pvalue,
    )
    t = np.linspace(-3, 3, 100)
    prior = GaussianProcess.init(RBF.init())
    return Verdict(
        within(
            "mean of 20,000 draws of 5 values",
            values.mean(axis=0),
            mu,
            error=np.sqrt(np.diag(sigma) / draws),
        ),
        within("their covariances", seen, sigma, error=spread(sigma, draws)),
        square("5 values", values, mu, sigma),
        square("two of them, from the 5", values[:, few], mu[few], block),
        square("two of them, drawn alone", pairs, mu[few], block),
        refuted(square("a mixture of two scales", scaled, mu, sigma)),
        figure=Chart(
            drawn(
                "five draws, and twice their deviation",
                np.asarray(prior.sample(jnp.asarray(t), 5, key=key)),
                (t, np.zeros(100), np.ones(100)),
                {},
            )
        ),
    )


def schur(
    K: np.ndarray, k: np.ndarray, own: np.ndarray, ys: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    r"""Conditioning by the precision $\Lambda$ of all values at once: mean
    $-\Lambda_{**}^{-1} \Lambda_{*X} y$ and covariance $\Lambda_{**}^{-1}$.
    """
    n = len(K)
    joint = np.linalg.inv(np.block([[K, k.T], [k, own]]))
    covariance = np.linalg.inv(joint[n:, n:])
    return -covariance @ joint[n:, :n] @ ys, covariance


@claim(
    "10.2-gp-posterior",
    title="The posterior by conditioning",
    kind="algorithm",
    of=("bayes.GaussianProcess", "bayes.RBF"),
    cites=BOOK,
)
def posterior(key):
    r"""Of $y = f(X) + \varepsilon$, $\varepsilon \sim N(0, \gamma^2 I)$, follows again a Gaussian
    process, with mean $k(x)^\top (K + \gamma^2 I)^{-1} y$ and variance
    $k(x, x) - k(x)^\top (K + \gamma^2 I)^{-1} k(x)$. Without noise it goes through the data, and is
    sure of them.
    """
    rng = chance(key)
    n = 8
    noise = 0.1
    size = {"scale": 1.5, "length": 0.9}
    xs = (
        np.sort(rng.uniform(-3, 3, size=(n, 1)), axis=0) + 0.4 * np.arange(n)[:, None]
    )  # apart from one another
    ys = np.sin(xs[:, 0]) + np.sqrt(noise) * rng.normal(size=n)
    new = rng.uniform(-3, 6, size=(5, 1))
    f = GaussianProcess.init(RBF.init(**size), noise=noise)
    found = f.condition(jnp.asarray(xs), jnp.asarray(ys))
    mean, covariance = (
        np.asarray(part(jnp.asarray(new))) for part in (found.mean, found.covariance)
    )
    K = by_loop(xs, xs, **size)
    k = by_loop(new, xs, **size)
    own = by_loop(new, new, **size)
    noisy: Any = K + noise * np.eye(n)
    by_hand = schur(noisy, k, own, ys)
    peer = GaussianProcessRegressor(
        kernels.ConstantKernel(size["scale"]) * kernels.RBF(size["length"]),
        alpha=noise,
        optimizer=None,  # type: ignore[arg-type]
    ).fit(xs, ys)
    theirs, doubt = peer.predict(new, return_std=True)
    evidence = stats.multivariate_normal.logpdf(ys, np.zeros(n), noisy)
    first = stats.multivariate_normal.logpdf(ys[:4], np.zeros(4), noisy[:4, :4])
    steps = sum(_next(f, xs, ys, i) for i in range(1, 4)) + stats.norm.logpdf(
        ys[0], scale=np.sqrt(noisy[0, 0])
    )
    exact = GaussianProcess.init(RBF.init(**size)).condition(jnp.asarray(xs), jnp.asarray(ys))
    return Verdict(
        close("mean, against the precision of the joint normal", mean, by_hand[0], tolerance=1e-10),
        close("covariance", covariance, by_hand[1], tolerance=1e-10),
        close("mean, against scikit-learn", mean, theirs, tolerance=1e-8),
        close(
            "standard deviation", np.sqrt(found.variance(jnp.asarray(new))), doubt, tolerance=1e-8
        ),
        close(
            "log evidence, against scipy's normal", found.log_evidence, evidence, tolerance=1e-10
        ),
        close(
            "of the first 4, as what was foretold of each from those before",
            steps,
            first,
            tolerance=1e-10,
        ),
        at_most("no input is less sure than before", np.diag(covariance), size["scale"]),
        close("no noise: mean at the data", exact.mean(jnp.asarray(xs)), ys, tolerance=1e-8),
        close(
            "no noise: variance at the data", exact.variance(jnp.asarray(xs)), 0.0, tolerance=1e-10
        ),
        refuted(
            close("with noise: mean at the data", found.mean(jnp.asarray(xs)), ys, tolerance=1e-8)
        ),
        assumptions=[close("jitter without noise", exact.jitter, 0.0, tolerance=0.0)],
        figure=_before_and_after(f, exact, (xs[:, 0], ys), key),
    )


def _next(f: GaussianProcess, xs: np.ndarray, ys: np.ndarray, i: int) -> float:
    """The log density of the next observation, as the process foretells it from those before."""
    seen = f.condition(jnp.asarray(xs[:i]), jnp.asarray(ys[:i]))
    x = jnp.asarray(xs[i : i + 1])
    deviation = np.sqrt(float(seen.variance(x)[0]) + float(f.noise))
    return float(stats.norm.logpdf(ys[i], float(seen.mean(x)[0]), deviation))


def _before_and_after(f: GaussianProcess, exact: Any, data: Any, key: Any) -> Chart:
    t = np.linspace(-4, 7, 150)
    seen = f.condition(*map(jnp.asarray, data))
    scale = np.sqrt(float(f.kernel.diagonal(jnp.asarray(t[:1]))[0]))
    band = lambda p: (
        t,
        np.asarray(p.mean(jnp.asarray(t))),
        np.sqrt(np.asarray(p.variance(jnp.asarray(t)))),
    )
    draws = lambda p: np.asarray(p.sample(jnp.asarray(t), 4, key=key))
    return Chart(
        drawn("prior", draws(f), (t, np.zeros(len(t)), np.full(len(t), scale)), {}),
        drawn("posterior", draws(seen), band(seen), {"data": data}),
        drawn("without noise", draws(exact), band(exact), {"data": data}),
    )


@claim(
    "10.2-rbf",
    title="Near inputs, like outputs",
    kind="definition",
    of=("bayes.RBF", "bayes.GaussianProcess"),
    cites=BOOK,
)
def rbf(key):
    r"""$k(x, x') = e^{-\gamma \|x - x'\|^2}$ is positive semi-definite. A process of this kernel
    has increments of variance $\mathrm{Var}[f(x) - f(x')] = 2(1 - k(x, x'))$: 0 for one input, 2
    for inputs far apart.
    """
    rng = chance(key)
    gamma = 0.7
    draws = 20_000
    xs = rng.normal(size=(60, 3))
    ys = rng.normal(size=(20, 3))
    k = RBF.init(length=1 / np.sqrt(2 * gamma))
    K = np.asarray(k(jnp.asarray(xs)))
    line = np.array([0.0, 0.1, 0.3, 0.6, 1.0, 3.0])[:, None]
    values = np.asarray(GaussianProcess.init(k).sample(jnp.asarray(line), draws, key=key))
    apart = np.mean((values[:, 1:] - values[:, :1]) ** 2, axis=0)
    expected = 2 * (1 - np.exp(-gamma * line[1:, 0] ** 2))
    t = np.linspace(0, 3, 80)
    return Verdict(
        close("k, against scikit-learn", K, rbf_kernel(xs, gamma=gamma), tolerance=1e-12),
        close(
            "between two sets",
            np.asarray(k(jnp.asarray(xs), jnp.asarray(ys))),
            rbf_kernel(xs, ys, gamma=gamma),
            tolerance=1e-12,
        ),
        at_least("least eigenvalue, 60 inputs", np.linalg.eigvalsh(K).min(), -1e-10),
        at_least(
            "also of 60 on a line, close together",
            np.linalg.eigvalsh(np.asarray(k(jnp.asarray(np.linspace(0, 1, 60))))).min(),
            -1e-10,
        ),
        within(
            "variance of f(x) − f(0), x = 0.1 … 3",
            apart,
            expected,
            error=expected * np.sqrt(2 / draws),
        ),
        rises("it grows with the distance", apart),
        refuted(
            close(
                "a length of 1/√γ",
                np.asarray(RBF.init(length=gamma**-0.5)(jnp.asarray(xs))),
                rbf_kernel(xs, gamma=gamma),
                tolerance=1e-12,
            )
        ),
        figure=Chart(
            Panel(
                "distance",
                "variance of the difference",
                points={"20,000 draws": (line[1:, 0], apart)},
                lines={"2(1 − k)": (t, 2 - 2 * np.exp(-gamma * t**2))},
            )
        ),
    )
