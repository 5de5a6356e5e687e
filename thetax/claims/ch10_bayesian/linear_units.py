"""§10.2: linear units with random weights are Gaussian processes; deep linear networks are
approximately.
"""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy import stats

from ...bayes import GaussianProcess, linear_kernel
from ...explain import infinite_width_limit
from ...layers import Initialiser, Linear, gaussian, identity, lecun, orthogonal
from ...models import MLP, ridge
from ...plot import Panel
from ..engine.check import close, decreasing, equal, not_rejected, refuted, within
from ..engine.claim import Verdict, claim, erratum
from .processes import covariance_errors, distances

SIGMA, DRAWS = 1.4, 200_000
UNIT = ("layers.Linear", "layers.gaussian", "bayes.linear_kernel")


def outputs(
    X: np.ndarray, units: int, draws: int, key: Any, initialiser: Initialiser | None = None
) -> np.ndarray:
    r"""The outputs of layers of `units` units without bias, $w \sim N(0, \frac{\sigma^2}{d} I)$,
    for the rows of $X$: draws, examples, units.
    """
    d = X.shape[1]
    initialiser = initialiser or gaussian(SIGMA / np.sqrt(d))

    @jax.jit
    def give(keys, X):
        return jax.vmap(
            lambda key: jax.vmap(
                Linear.init(d, units, initialiser=initialiser, bias=False, key=key)
            )(X)
        )(keys)

    return np.asarray(give(jr.split(key, draws), jnp.asarray(X)))


def second_moments(ys: np.ndarray) -> np.ndarray:
    """The mean of y yᵀ over the draws."""
    return ys.T @ ys / len(ys)


@claim(
    "10.2-linear-unit",
    title="A linear unit is a Gaussian process",
    kind="theorem",
    of=UNIT,
    cites="Neal 1996",
)
def unit(key, rng):
    r"""With $w \sim N(0, \frac{\sigma^2}{d} I_d)$ the outputs $y = Xw$,
    $X \in \mathbb{R}^{n \times d}$, have the distribution $N(0, \frac{\sigma^2}{d} XX^\top)$: a
    Gaussian process with the kernel $k(x, x') = \frac{\sigma^2}{d} x^\top x'$.
    """
    n, d = 4, 3
    X = rng.normal(size=(n, d))
    ys = outputs(X, 1, DRAWS, key)[:, :, 0]
    sigma = np.array([[SIGMA**2 / d * sum(a * b for a, b in zip(x, y)) for y in X] for x in X])
    kernel = linear_kernel(variance=SIGMA**2 / d)
    square = distances(ys, 0.0, sigma)
    return Verdict(
        within(
            "covariances of 200,000 draws",
            second_moments(ys),
            sigma,
            error=covariance_errors(sigma, DRAWS),
        ),
        within("means", ys.mean(axis=0), np.zeros(n), error=np.sqrt(np.diag(sigma) / DRAWS)),
        close("the library's kernel", np.asarray(kernel(jnp.asarray(X))), sigma),
        not_rejected(
            "squared distances, Kolmogorov-Smirnov against χ² with 3 degrees of freedom",
            stats.kstest(square, stats.chi2(d).cdf).pvalue,
        ),
        equal("rank of Σ: 4 outputs of 3 weights", np.linalg.matrix_rank(sigma), d),
    )


@erratum(
    "10.2-linear-unit",
    title="The shape of the covariance, and the factor 1/d",
    printed=r"y \sim N(0, \tfrac{\sigma^2}{d} X^\top X), \quad k(x, x') = \tfrac{\sigma^2}{n} "
    r"x^\top x'",
    corrected=r"y \sim N(0, \tfrac{\sigma^2}{d} X X^\top), \quad k(x, x') = \tfrac{\sigma^2}{d} "
    r"x^\top x'",
    of=UNIT,
)
def unit_printed(key, rng):
    r"""The covariance of $n$ outputs is $n \times n$, while $X^\top X$ is $d \times d$, and a
    different matrix even where $n = d$; and the covariance of two examples cannot depend on the
    number of the others.
    """
    n, d = 4, 3
    X = rng.normal(size=(n, d))
    even = rng.normal(size=(d, d))
    key_X, key_even = jr.split(key)
    moments = second_moments(outputs(X, 1, DRAWS, key_X)[:, :, 0])
    seen_even = second_moments(outputs(even, 1, DRAWS, key_even)[:, :, 0])
    kernel = lambda scale: np.asarray(linear_kernel(variance=scale)(jnp.asarray(X)))
    share = SIGMA**2 / d
    error = covariance_errors(SIGMA**2 / d * X @ X.T, DRAWS)
    error_even = covariance_errors(share * even @ even.T, DRAWS)
    return Verdict(
        equal("shape of XXᵀ", (X @ X.T).shape, moments.shape),
        within(
            "3 examples of 3 inputs: covariances, XXᵀ",
            seen_even,
            share * even @ even.T,
            error=error_even,
        ),
        within(
            "4 examples of 3 inputs: kernel with σ²/d", moments, kernel(SIGMA**2 / d), error=error
        ),
        printed=[
            equal("shape of XᵀX", (X.T @ X).shape, moments.shape),
            within(
                "3 examples of 3 inputs: covariances, XᵀX",
                seen_even,
                share * even.T @ even,
                error=error_even,
            ),
            within(
                "4 examples of 3 inputs: kernel with σ²/n",
                moments,
                kernel(SIGMA**2 / n),
                error=error,
            ),
        ],
    )


@claim(
    "10.2-linear-multi",
    title="The units of a layer are independent",
    kind="identity",
    of=("layers.Linear", "layers.gaussian"),
)
def several(key, rng):
    r"""Given the inputs, the units of a layer with independent weights are independent, identically
    distributed processes: $\mathrm{Cov}(y_i^{(a)}, y_j^{(b)}) = \delta_{ab}\, k(x_i, x_j)$, and all
    outputs are jointly normal.
    """
    n, d, m, draws = 2, 3, 3, 50_000
    X = rng.normal(size=(n, d))
    key_layer, key_turned = jr.split(key)
    ys = outputs(X, m, draws, key_layer).transpose(0, 2, 1).reshape(draws, m * n)
    k = SIGMA**2 / d * X @ X.T
    sigma = np.kron(np.eye(m), k)
    orthogonal_units = outputs(X[:1], m, draws, key_turned, orthogonal)[
        :, 0
    ]  # units with orthogonal weights
    return Verdict(
        within(
            "covariances of 3 units at 2 inputs, 0 between units",
            second_moments(ys),
            sigma,
            error=covariance_errors(sigma, draws),
        ),
        not_rejected(
            "jointly normal: squared distances, against χ² with 6 degrees of freedom",
            stats.kstest(distances(ys, 0.0, sigma), stats.chi2(m * n).cdf).pvalue,
        ),
        _squares("squares of two units", ys[:, [0, n]]),
        refuted(_squares("squares of two units with orthogonal weights", orthogonal_units[:, :2])),
    )


def _squares(name: str, pair: np.ndarray) -> Any:
    """The correlation of the squares of two units: 0 if they are independent."""
    return within(
        f"{name}: correlation", np.corrcoef((pair**2).T)[0, 1], 0.0, error=1 / np.sqrt(len(pair))
    )


@claim(
    "10.2-gp-blr",
    title="The linear kernel gives Bayesian linear regression",
    kind="theorem",
    of=("bayes.GaussianProcess", "bayes.linear_kernel", "models.ridge"),
    cites="Rasmussen & Williams 2006",
)
def regression(rng):
    r"""With the kernel $s\,x^\top x'$ the posterior of the process is that of $f = w^\top x$,
    $w \sim N(0, sI)$: with $A = \frac{1}{\gamma^2} X^\top X + \frac1s I$ mean
    $\frac{1}{\gamma^2} x^\top A^{-1} X^\top y$ and variance $x^\top A^{-1} x$. The mean is ridge
    regression of strength $\gamma^2 / s$.
    """
    rng, (n, d), s, noise = rng, (12, 4), 0.8, 0.3
    X = rng.normal(size=(n, d))
    new = rng.normal(size=(6, d))
    X = X - X.mean(axis=0)  # so that an intercept has no effect
    ys = X @ rng.normal(size=d) + np.sqrt(noise) * rng.normal(size=n)
    ys = ys - ys.mean()
    results = GaussianProcess.init(linear_kernel(variance=s), noise=noise).condition(
        jnp.asarray(X), jnp.asarray(ys)
    )
    A = np.linalg.inv(X.T @ X / noise + np.eye(d) / s)
    mean, covariance = (
        np.asarray(part(jnp.asarray(new))) for part in (results.mean, results.covariance)
    )
    line = lambda strength: np.asarray(
        jax.vmap(ridge(jnp.asarray(X), jnp.asarray(ys), strength=strength))(jnp.asarray(new))
    )[:, 0]
    evidence = stats.multivariate_normal.logpdf(ys, np.zeros(n), s * X @ X.T + noise * np.eye(n))
    return Verdict(
        close("mean, from the weights", mean, new @ A @ X.T @ ys / noise, tolerance=1e-10),
        close("covariance, from the weights", covariance, new @ A @ new.T, tolerance=1e-10),
        close(
            "mean, against ridge regression of strength γ²/s",
            mean,
            line(noise / s),
            tolerance=1e-10,
        ),
        refuted(close("mean, against strength γ²", mean, line(noise), tolerance=1e-10)),
        close("log evidence", results.log_marginal_likelihood, evidence, tolerance=1e-10),
    )


def kurtosis(
    widths: tuple[int, ...], x: np.ndarray, draws: int, key: Any
) -> tuple[float, float, float]:
    """The excess kurtosis of linear networks with these hidden widths, its standard error, and the
    mean of y² over k.
    """

    def one(key, x):
        return MLP.init(len(x), *widths, 1, activation=identity, initialiser=lecun, key=key)(x)[0]

    many = jax.jit(
        lambda keys, x: jax.lax.map(lambda keys: jax.vmap(one, in_axes=(0, None))(keys, x), keys)
    )
    ys = many(jr.split(key, (20, draws // 20)), jnp.asarray(x))
    z = np.asarray(ys, np.float64).ravel()
    square = z**2 / np.mean(z**2)
    fourth = np.mean(square**2)
    influence = (
        square**2 - fourth - 2 * fourth * (square - 1)
    )  # influence of one draw on the ratio of moments
    return (
        float(fourth - 3),
        float(influence.std() / np.sqrt(len(z))),
        float(np.mean(z**2) / np.mean(x**2)),
    )


@claim(
    "10.2-deep-linear",
    title="Deep linear networks are nearly normal",
    kind="theorem",
    of=("models.MLP", "layers.lecun", "explain.infinite_width_limit"),
    cites="Matthews et al. 2018",
)
def deep(key, rng, scale):
    r"""A linear network with a hidden layer of width $m$ has, over random weights, an output with
    excess kurtosis $\frac6m$ at every input: not normal, but closer to it the wider the layer, with
    the covariance of a single unit at every width. Two such layers have $3(1 + \frac2m)^2 - 3$.
    """
    x = rng.normal(size=2)
    draws = 400_000 if scale == "full" else 200_000
    widths = (4, 16, 64)
    keys = jr.split(key, 4)
    result = np.array([kurtosis((m,), x, draws, key) for m, key in zip(widths, keys)])
    two_layers = kurtosis((4, 4), x, draws, keys[3])
    net = MLP.init(2, 16, 1, activation=identity, initialiser=lecun, key=key)
    limit = float(infinite_width_limit(net, initialiser=lecun).nngp(jnp.asarray(x[None]))[0, 0])
    m = np.array(widths)
    return Verdict(
        within("widths 4, 16, 64: 6/m", result[:, 0], 6 / m, error=result[:, 1]),
        within(
            "two layers of width 4: 3(1 + 2/m)² − 3",
            two_layers[0],
            3 * 1.5**2 - 3,
            error=two_layers[1],
        ),
        decreasing("it decreases with the width", result[:, 0]),
        refuted(within("width 4: 0, as if it were normal", result[0, 0], 0.0, error=result[0, 1])),
        within(
            "E y² over k, every width", result[:, 2], np.ones(3), error=np.sqrt((2 + 6 / m) / draws)
        ),
        close("the kernel in the limit, against xᵀx/d", limit, x @ x / 2),
        figure=Panel(
            "width m",
            "excess kurtosis",
            log="xy",
            points={"random networks": (m, result[:, 0])},
            bounds={"6/m": (m, 6 / m)},
        ),
    )
