"""§10.2: Gaussian processes, their posterior, and the RBF kernel."""

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
from ..engine.check import at_least, at_most, close, increasing, not_rejected, refuted, within
from ..engine.claim import Verdict, claim


def by_loop(xs: np.ndarray, ys: np.ndarray, *, variance: float, length_scale: float) -> np.ndarray:
    r"""$s\,e^{-\|x - y\|^2 / 2\ell^2}$, pair by pair."""
    one = lambda x, y: variance * np.exp(-np.sum((x - y) ** 2) / (2 * length_scale**2))
    return np.array([[one(x, y) for y in ys] for x in xs])


def covariance_errors(covariance: np.ndarray, draws: int) -> np.ndarray:
    """The standard errors of the covariances of `draws` normal draws with known mean."""
    own = np.diag(covariance)
    return np.sqrt((np.outer(own, own) + covariance**2) / draws)


def distances(draws: np.ndarray, mean: Any, covariance: np.ndarray) -> np.ndarray:
    """Squared Mahalanobis distances from the mean, ignoring directions without variance."""
    off = draws - mean
    return np.einsum("ni,ij,nj->n", off, np.linalg.pinv(covariance, hermitian=True), off)


def band_panel(
    name: str, draws: np.ndarray, band: tuple[Any, ...], points: dict[str, Any]
) -> Panel:
    """A few functions, with a band of two standard deviations."""
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
    title="Gaussian processes: finitely many values are jointly normal",
    kind="definition",
    of=("bayes.GaussianProcess",),
    cites="Rasmussen & Williams 2006",
)
def process(key, rng):
    r"""$f$ is a Gaussian process if for every finite $X = (x_1, \dots, x_n)$ the values
    $f(X) \sim N(\mu, \Sigma)$ are jointly normal, with $\mu_i = \mu(x_i)$ and
    $\Sigma_{ij} = k(x_i, x_j)$. At a subset of the inputs the law is given by the sub-blocks of
    $\mu$ and $\Sigma$.
    """
    n = 5
    draws = 20_000
    xs = rng.uniform(-2, 2, size=(n, 2))
    slope = rng.normal(size=2)
    offset = rng.normal()
    mean = Linear(jnp.asarray(slope[None]), jnp.asarray([offset]))
    f = GaussianProcess.init(RBF.init(variance=1.7, length_scale=1.3), mean=mean)
    key_all, key_few = jr.split(key)
    values = np.asarray(f.sample(jnp.asarray(xs), draws, key=key_all))
    mu = xs @ slope + offset
    sigma = by_loop(xs, xs, variance=1.7, length_scale=1.3)
    few = [0, 3]
    pairs = np.asarray(f.sample(jnp.asarray(xs[few]), draws, key=key_few))
    block = sigma[np.ix_(few, few)]
    covariance = (values - mu).T @ (values - mu) / draws
    scaled = mu + (values - mu) * np.sqrt(
        rng.choice([0.5, 1.5], size=(draws, 1))
    )  # same moments, not normal
    square = lambda name, draws, mean, cov: not_rejected(
        f"{name}: squared distances, Kolmogorov-Smirnov against χ²",
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
        within("their covariances", covariance, sigma, error=covariance_errors(sigma, draws)),
        square("5 values", values, mu, sigma),
        square("two of the 5 values", values[:, few], mu[few], block),
        square("two values, drawn separately", pairs, mu[few], block),
        refuted(square("a mixture of two scales", scaled, mu, sigma)),
        figure=Chart(
            band_panel(
                "five draws, and two standard deviations",
                np.asarray(prior.sample(jnp.asarray(t), 5, key=key)),
                (t, np.zeros(100), np.ones(100)),
                {},
            )
        ),
    )


def schur(
    K: np.ndarray, k: np.ndarray, own: np.ndarray, ys: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    r"""Conditioning by the joint precision matrix $\Lambda$: mean
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
    cites="Rasmussen & Williams 2006",
)
def posterior(key, rng):
    r"""Given $y = f(X) + \varepsilon$, $\varepsilon \sim N(0, \gamma^2 I)$, the posterior is a
    Gaussian process with mean $k(x)^\top (K + \gamma^2 I)^{-1} y$ and variance
    $k(x, x) - k(x)^\top (K + \gamma^2 I)^{-1} k(x)$. Without noise it interpolates the data with
    variance 0.
    """
    n = 8
    noise = 0.1
    size = {"variance": 1.5, "length_scale": 0.9}
    xs = (
        np.sort(rng.uniform(-3, 3, size=(n, 1)), axis=0) + 0.4 * np.arange(n)[:, None]
    )  # away from one another
    ys = np.sin(xs[:, 0]) + np.sqrt(noise) * rng.normal(size=n)
    new = rng.uniform(-3, 6, size=(5, 1))
    f = GaussianProcess.init(RBF.init(**size), noise=noise)
    results = f.condition(jnp.asarray(xs), jnp.asarray(ys))
    mean, covariance = (
        np.asarray(part(jnp.asarray(new))) for part in (results.mean, results.covariance)
    )
    K = by_loop(xs, xs, **size)
    k = by_loop(new, xs, **size)
    own = by_loop(new, new, **size)
    noisy: Any = K + noise * np.eye(n)
    by_hand = schur(noisy, k, own, ys)
    peer = GaussianProcessRegressor(
        kernels.ConstantKernel(size["variance"]) * kernels.RBF(size["length_scale"]),
        alpha=noise,
        optimizer=None,  # type: ignore[arg-type]
    ).fit(xs, ys)
    theirs, doubt = peer.predict(new, return_std=True)
    evidence = stats.multivariate_normal.logpdf(ys, np.zeros(n), noisy)
    first = stats.multivariate_normal.logpdf(ys[:4], np.zeros(4), noisy[:4, :4])
    steps = sum(_predictive_log_density(f, xs, ys, i) for i in range(1, 4)) + stats.norm.logpdf(
        ys[0], scale=np.sqrt(noisy[0, 0])
    )
    exact = GaussianProcess.init(RBF.init(**size)).condition(jnp.asarray(xs), jnp.asarray(ys))
    return Verdict(
        close("mean, against the precision of the joint normal", mean, by_hand[0], tolerance=1e-10),
        close("covariance", covariance, by_hand[1], tolerance=1e-10),
        close("mean, against scikit-learn", mean, theirs, tolerance=1e-8),
        close(
            "standard deviation", np.sqrt(results.variance(jnp.asarray(new))), doubt, tolerance=1e-8
        ),
        close(
            "log evidence, against SciPy's normal density",
            results.log_marginal_likelihood,
            evidence,
            tolerance=1e-10,
        ),
        close(
            "log evidence of the first 4, as a sum of predictive log densities",
            steps,
            first,
            tolerance=1e-10,
        ),
        at_most("the variance increases at no input", np.diag(covariance), size["variance"]),
        close("no noise: mean at the data", exact.mean(jnp.asarray(xs)), ys, tolerance=1e-8),
        close(
            "no noise: variance at the data", exact.variance(jnp.asarray(xs)), 0.0, tolerance=1e-10
        ),
        refuted(
            close("with noise: mean at the data", results.mean(jnp.asarray(xs)), ys, tolerance=1e-8)
        ),
        assumptions=[close("jitter without noise", exact.jitter, 0.0, tolerance=0.0)],
        figure=_before_and_after(f, exact, (xs[:, 0], ys), key),
    )


def _predictive_log_density(f: GaussianProcess, xs: np.ndarray, ys: np.ndarray, i: int) -> float:
    """The predictive log density of the next observation, given those before."""
    posterior = f.condition(jnp.asarray(xs[:i]), jnp.asarray(ys[:i]))
    x = jnp.asarray(xs[i : i + 1])
    deviation = np.sqrt(float(posterior.variance(x)[0]) + float(f.noise))
    return float(stats.norm.logpdf(ys[i], float(posterior.mean(x)[0]), deviation))


def _before_and_after(f: GaussianProcess, exact: Any, data: Any, key: Any) -> Chart:
    t = np.linspace(-4, 7, 150)
    posterior = f.condition(*map(jnp.asarray, data))
    scale = np.sqrt(float(f.kernel.diagonal(jnp.asarray(t[:1]))[0]))
    band = lambda p: (
        t,
        np.asarray(p.mean(jnp.asarray(t))),
        np.sqrt(np.asarray(p.variance(jnp.asarray(t)))),
    )
    draws = lambda p: np.asarray(p.sample(jnp.asarray(t), 4, key=key))
    return Chart(
        band_panel("prior", draws(f), (t, np.zeros(len(t)), np.full(len(t), scale)), {}),
        band_panel("posterior", draws(posterior), band(posterior), {"data": data}),
        band_panel("without noise", draws(exact), band(exact), {"data": data}),
    )


@claim(
    "10.2-rbf",
    title="The RBF kernel",
    kind="definition",
    of=("bayes.RBF", "bayes.GaussianProcess"),
    cites="Rasmussen & Williams 2006",
)
def rbf(key, rng):
    r"""$k(x, x') = e^{-\gamma \|x - x'\|^2}$ is positive semi-definite. A process of this kernel
    has increments of variance $\mathrm{Var}[f(x) - f(x')] = 2(1 - k(x, x'))$: 0 for equal inputs, 2
    for inputs far apart.
    """
    gamma = 0.7
    draws = 20_000
    xs = rng.normal(size=(60, 3))
    ys = rng.normal(size=(20, 3))
    k = RBF.init(length_scale=1 / np.sqrt(2 * gamma))
    K = np.asarray(k(jnp.asarray(xs)))
    line = np.array([0.0, 0.1, 0.3, 0.6, 1.0, 3.0])[:, None]
    values = np.asarray(GaussianProcess.init(k).sample(jnp.asarray(line), draws, key=key))
    variances = np.mean((values[:, 1:] - values[:, :1]) ** 2, axis=0)
    expected = 2 * (1 - np.exp(-gamma * line[1:, 0] ** 2))
    t = np.linspace(0, 3, 80)
    return Verdict(
        close("k, against scikit-learn", K, rbf_kernel(xs, gamma=gamma)),
        close(
            "between two sets of inputs",
            np.asarray(k(jnp.asarray(xs), jnp.asarray(ys))),
            rbf_kernel(xs, ys, gamma=gamma),
        ),
        at_least("smallest eigenvalue, 60 inputs", np.linalg.eigvalsh(K).min(), -1e-10),
        at_least(
            "smallest eigenvalue, 60 inputs close together on a line",
            np.linalg.eigvalsh(np.asarray(k(jnp.asarray(np.linspace(0, 1, 60))))).min(),
            -1e-10,
        ),
        within(
            "variance of f(x) − f(0), x = 0.1 … 3",
            variances,
            expected,
            error=expected * np.sqrt(2 / draws),
        ),
        increasing("it increases with the distance", variances),
        refuted(
            close(
                "length scale 1/√γ",
                np.asarray(RBF.init(length_scale=gamma**-0.5)(jnp.asarray(xs))),
                rbf_kernel(xs, gamma=gamma),
            )
        ),
        figure=Panel(
            "distance",
            "variance of the difference",
            points={"20,000 draws": (line[1:, 0], variances)},
            lines={"2(1 − k)": (t, 2 - 2 * np.exp(-gamma * t**2))},
        ),
    )
