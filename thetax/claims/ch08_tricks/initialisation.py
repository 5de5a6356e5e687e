"""§8.1: weight initialisation, so that signals neither vanish nor explode."""

from itertools import product

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy import integrate, stats

from ... import layers
from ...plot import Panel
from ..engine.check import at_least, at_most, close, not_rejected, refuted, within
from ..engine.claim import Verdict, claim, erratum

GAMMA = 1.7  # the standard deviation of the inputs


@claim(
    "8.1-init-gauss-unif",
    title="Normal and uniform initialisation",
    kind="algorithm",
    of=("layers.gaussian", "layers.uniform"),
)
def starts(key):
    r"""Weights are random with mean 0 and a chosen standard deviation $\sigma$: either
    $\theta \sim N(0, \sigma^2)$ or $\theta \sim \mathrm{Unif}[-\sqrt{3}\sigma, \sqrt{3}\sigma]$.
    """
    sigma = 0.3
    n = 10**6
    checks = []
    lines = {}
    edge = np.sqrt(3) * sigma
    laws = {
        "normal": (layers.gaussian(sigma), 2.0, stats.norm(0, sigma)),
        "uniform": (layers.uniform(sigma), 0.8, stats.uniform(-edge, 2 * edge)),
    }
    for (name, (initialiser, spread, exact)), key_law in zip(laws.items(), jr.split(key)):
        draws = np.asarray(initialiser(key_law, (1000, 1000))).ravel()
        error = sigma**2 * np.sqrt(
            spread / n
        )  # of the sample variance: (κ − 1) σ⁴ / n, κ = 3 or 9/5
        checks += [
            within(f"{name}: variance of 10⁶ draws", np.mean(draws**2), sigma**2, error=error),
            within(f"{name}: mean", draws.mean(), 0.0, error=sigma / np.sqrt(n)),
            not_rejected(
                f"{name}: Kolmogorov-Smirnov",
                stats.kstest(draws, exact.cdf).pvalue,
                false_alarm=1e-3,
            ),
        ]
        height, edges = np.histogram(draws, bins=60, density=True)
        lines[name] = (edges[:-1] + edges[1:]) / 2, height
    return Verdict(
        *checks,
        at_most("uniform: the largest draw", np.abs(draws).max(), edge),
        at_least("uniform: the bound is nearly attained", np.abs(draws).max(), 0.9999 * edge),
        refuted(
            within(
                "uniform of half-width σ: variance", np.mean(draws**2) / 3, sigma**2, error=error
            )
        ),
        figure=Panel("weight", "density", lines=lines),
    )


@claim(
    "8.1-uniform-var",
    title="The variance of a uniform weight",
    kind="identity",
    of=("layers.uniform",),
)
def uniform_variance(key, rng):
    r"""$\mathrm{Var}\,\mathrm{Unif}[a, b] = \frac{(b - a)^2}{12}$, so that the half-width
    $\sqrt{3}\sigma$ gives the variance $\sigma^2$.
    """
    checks = []
    for a, b in np.sort(rng.normal(size=(3, 2)) * 2):
        mean, square = (
            integrate.quad(np.polynomial.Polynomial.basis(p), a, b)[0] / (b - a) for p in (1, 2)
        )
        checks.append(close(f"over [{a:.2f}, {b:.2f}]", square - mean**2, (b - a) ** 2 / 12))
    sigma = rng.uniform(0.1, 2.0)
    unit = jr.uniform(key, (50,), minval=-1.0, maxval=1.0)
    edges = np.asarray(layers.uniform(sigma)(key, (50,)) / unit)
    edge = edges[0]
    variance = integrate.quad(lambda x: x**2 / (2 * edge), -edge, edge, epsabs=1e-14)[0]
    return Verdict(
        *checks,
        close("the library's half-width, for each draw", edges, np.sqrt(3) * sigma),
        close("the variance over this range", variance, sigma**2),
        refuted(close("with the half-width σ", variance / 3, sigma**2)),
    )


def _variances(initialiser, n, m, inputs, key):
    """The variances of a layer's inputs and outputs, and of the backpropagated signals at its
    output and input.
    """

    @jax.jit
    def pass_through(key):
        key_W, key_x, key_d = jr.split(key, 3)
        layer = layers.Linear.init(n, m, initialiser=initialiser, bias=False, key=key_W)
        xs = GAMMA * jr.normal(key_x, (inputs, n))
        ds = jr.normal(key_d, (inputs, m))
        ys, back = jax.vjp(jax.vmap(layer), xs)
        return jnp.array([v.var() for v in (xs, ys, ds, back(ds)[0])])

    return np.asarray(pass_through(key))


@claim(
    "8.1-lecun",
    title="LeCun initialisation",
    kind="algorithm",
    of=("layers.lecun",),
    cites="LeCun et al. 1998",
)
def lecun(key):
    r"""Weights of standard deviation $\sigma = 1/\sqrt{n}$, $n$ the number of inputs of a unit: for
    inputs of mean 0 and covariance $\gamma I$,
    $\mathrm{Var}[(Wx)_i] = \gamma\, n \sigma^2 = \gamma$, and a linear layer preserves the
    variance.
    """
    x, y, *_ = _variances(layers.lecun, 300, 400, 5000, key)
    n = 5
    gamma = GAMMA**2
    signs = np.array(
        list(product([-1.0, 1.0], repeat=n))
    )  # all weights and all inputs with these variances
    outputs = jax.vmap(layers.Linear(jnp.asarray(signs / np.sqrt(n))))(
        jnp.asarray(np.sqrt(gamma) * signs)
    )
    draws = np.asarray(layers.lecun(key, (4000, 90)))
    error = np.sqrt(2 / draws.size) / 90
    return Verdict(
        close(
            "output over input variance, 300 to 400",
            y / x,
            1.0,
            tolerance=0.02,
            method="brute force",
        ),
        close(
            "averaged over all 2⁵ rows of W and 2⁵ inputs",
            np.mean(np.asarray(outputs) ** 2),
            gamma,
            method="brute force",
        ),
        within("variance of a weight, n = 90", draws.var(), 1 / 90, error=error),
        refuted(within("1/m, m = 4000", draws.var(), 1 / 4000, error=error)),
    )


@erratum(
    "8.1-lecun",
    title="γ is the variance of the inputs",
    printed=r"\gamma \text{ the standard deviation of } x_j, \quad \mathrm{Var}[(Wx)_i] = \gamma",
    corrected=r"\gamma \text{ the variance of } x_j, \quad \mathrm{Var}[(Wx)_i] = \gamma",
    of=("layers.lecun",),
    slip=True,
)
def lecun_printed(key):
    r"""One symbol has two meanings: the text before the list gives the inputs the standard
    deviation $\gamma$; in the derivation, which is right, $\gamma$ is their variance. With the
    former the outputs have variance $\gamma^2$.
    """
    _, y, *_ = _variances(layers.lecun, 300, 400, 5000, key)
    settings = {"tolerance": 0.03, "relative": True, "method": "brute force"}
    return Verdict(
        close(
            "output variance, inputs of standard deviation 1.7: γ = 1.7²", y, GAMMA**2, **settings
        ),
        printed=[
            close("output variance, inputs of standard deviation γ = 1.7", y, GAMMA, **settings)
        ],
    )


@claim(
    "8.1-xavier",
    title="Glorot initialisation",
    kind="algorithm",
    of=("layers.glorot",),
    cites="Glorot & Bengio 2010",
)
def xavier(key):
    r"""$\sigma = \sqrt{\frac{2}{n + m}}$ is a compromise between $n \sigma^2 = 1$, which preserves
    the variance forward, and $m \sigma^2 = 1$, which preserves that of the backpropagated signal:
    $\frac{n\sigma^2 + m\sigma^2}{2} = 1$.
    """
    key_odd, key_even, key_other = jr.split(key, 3)
    x, y, d, back = _variances(layers.glorot, 200, 600, 2000, key_odd)
    _, _, sent, returned = _variances(layers.lecun, 200, 600, 2000, key_other)
    X, Y, D, Back = _variances(layers.glorot, 400, 400, 2000, key_even)
    settings = {"tolerance": 0.02, "relative": True, "method": "brute force"}
    return Verdict(
        close("200 to 600, forward", y / x, 0.5, **settings),
        close("200 to 600, backward", back / d, 1.5, **settings),
        close("their mean", (y / x + back / d) / 2, 1.0, **settings),
        close("400 to 400, forward and backward", [Y / X, Back / D], [1.0, 1.0], **settings),
        close("LeCun's, 200 to 600, backward: m / n", returned / sent, 3.0, **settings),
        refuted(close("LeCun's, backward", returned / sent, 1.0, **settings)),
    )


@claim(
    "8.1-kaiming",
    title="He initialisation",
    kind="algorithm",
    of=("layers.he", "layers.relu"),
    cites="He et al. 2015",
)
def kaiming(key):
    r"""$\sigma = \sqrt{2/n}$ for ReLU units: half of a symmetric $z$ is set to 0,
    $\mathbb{E}[\mathrm{ReLU}(z)^2] = \frac12 \mathrm{Var}(z)$, so twice the variance preserves the
    second moment from layer to layer.
    """
    key_h, key_W = jr.split(key)
    h = jr.normal(key_h, (40, 500))

    @jax.jit
    def ratios(key, h):
        after = lambda initialiser: layers.relu(
            jax.vmap(layers.Linear.init(500, 500, initialiser=initialiser, key=key))(h)
        )
        return jnp.array(
            [
                jnp.mean(after(initialiser) ** 2) / jnp.mean(h**2)
                for initialiser in (layers.he, layers.lecun)
            ]
        )

    he, lecun = np.stack([ratios(key, h) for key in jr.split(key_W, 20)]).T
    return Verdict(
        close(
            "E h² after over before, mean of 20 draws",
            he.mean(),
            1.0,
            tolerance=0.05,
            method="brute force",
        ),
        refuted(close("with LeCun's σ", lecun.mean(), 1.0, tolerance=0.05, method="brute force")),
        close(
            "with LeCun's σ it is halved", lecun.mean(), 0.5, tolerance=0.025, method="brute force"
        ),
    )


@claim(
    "8.1-kaiming-half",
    title="ReLU keeps half of a symmetric signal",
    kind="identity",
    of=("layers.relu", "layers.he"),
)
def half(key, rng):
    r"""For $z$ symmetric about 0, $P(z > 0) = \frac12$ and
    $\mathbb{E}[\mathrm{ReLU}(z)^2] = \frac12 \mathbb{E}[z^2]$."""
    checks = []
    relu = lambda z: np.asarray(layers.relu(jnp.asarray(z)))
    nodes, weights = np.polynomial.legendre.leggauss(200)
    bell = lambda z: stats.norm.pdf(z, scale=GAMMA)
    box = lambda z: np.where(np.abs(z) <= 2, 1 / 4, 0.0)
    for name, pdf, edge, variance in (
        ("normal", bell, 10 * GAMMA, GAMMA**2),
        ("uniform", box, 2.0, 4 / 3),
    ):
        z = np.concatenate(
            [-edge * (1 + nodes) / 2, edge * (1 + nodes) / 2]
        )  # a quadrature rule for each side of the kink
        share = np.tile(weights * edge / 2, 2) * pdf(z)
        checks += [
            close(f"{name}: E ReLU(z)²", share @ relu(z) ** 2, variance / 2, tolerance=1e-10),
            close(f"{name}: P(z > 0)", share @ (relu(z) > 0), 0.5, tolerance=1e-10),
        ]
    m = 40_000
    layer = layers.Linear.init(50, m, initialiser=layers.he, key=key)
    active = np.mean(relu(layer(jnp.asarray(rng.normal(size=50)))) > 0)
    return Verdict(
        *checks,
        within("share of 40,000 units that are active", active, 0.5, error=0.5 / np.sqrt(m)),
    )


def _there_and_back(f, x, delta):
    y, back = jax.vjp(f, x)
    return y, back(delta)[0]


@claim(
    "8.1-orthogonal",
    title="Orthogonal initialisation",
    kind="algorithm",
    of=("layers.orthogonal",),
    cites="Saxe, McClelland & Ganguli 2014; Mezzadri 2007",
)
def orthogonal(key, rng):
    r"""$W$ drawn uniformly among the (semi-)orthogonal matrices, by the QR decomposition of a
    Gaussian matrix with the signs of $R$ moved into $Q$: every singular value is 1, every
    eigenvalue of a square $W$ has modulus 1, and norms are preserved forward and backward through
    any depth.
    """
    checks = []
    for m, n in ((24, 24), (30, 12), (12, 30)):
        W = np.asarray(layers.orthogonal(key, (m, n)))
        gram = W.T @ W if m >= n else W @ W.T
        checks.append(
            at_most(
                f"{m} × {n}: ‖Gram matrix − I‖", np.linalg.norm(gram - np.eye(min(m, n))), 1e-12
            )
        )
    deep = jax.vmap(
        lambda key: layers.Linear.init(24, 24, initialiser=layers.orthogonal, bias=False, key=key)
    )
    through = lambda x, keys: jax.lax.scan(lambda h, layer: (layer(h), None), x, deep(keys))[0]
    x, delta = rng.normal(size=(2, 24))
    y, back = jax.jit(lambda x, delta, keys: _there_and_back(lambda x: through(x, keys), x, delta))(
        x, delta, jr.split(key, 100)
    )
    many = np.asarray(jax.vmap(lambda key: layers.orthogonal(key, (5, 5)))(jr.split(key, 4000)))
    eigenvalues = np.linalg.eigvals(many)
    traces = np.trace(many, axis1=1, axis2=2)
    return Verdict(
        *checks,
        close("‖x‖ after 100 layers", np.linalg.norm(y), np.linalg.norm(x), tolerance=1e-10),
        close(
            "‖δ‖ after 100 layers backward",
            np.linalg.norm(back),
            np.linalg.norm(delta),
            tolerance=1e-10,
        ),
        close("moduli of the eigenvalues of 4,000 draws, 5 × 5", np.abs(eigenvalues), 1.0),
        at_least("one draw: largest imaginary part", np.abs(eigenvalues[0].imag).max(), 0.01),
        within("uniform over the group: E tr W", traces.mean(), 0.0, error=1 / np.sqrt(4000)),
        within(
            "uniform over the group: E (tr W)²", np.mean(traces**2), 1.0, error=np.sqrt(2 / 4000)
        ),
        figure=Panel(
            "real part",
            "imaginary part",
            equal_aspect=True,
            points={
                "eigenvalues of 40 draws": (
                    eigenvalues[:40].real.ravel(),
                    eigenvalues[:40].imag.ravel(),
                )
            },
        ),
    )


@erratum(
    "8.1-orthogonal",
    title="Orthogonal matrices rotate",
    printed=r"\lambda_i(W) \in \{-1, 1\}",
    corrected=r"\sigma_i(W) = 1, \quad |\lambda_i(W)| = 1",
    of=("layers.orthogonal",),
)
def orthogonal_printed(key):
    r"""The eigenvalues of an orthogonal matrix lie on the unit circle, and are $\pm 1$ only where
    it is also symmetric, as a reflection is; the singular values are all 1.
    """
    W = np.asarray(layers.orthogonal(key, (5, 5)))
    v = W[0]
    reflection = np.eye(5) - 2 * np.outer(v, v)
    return Verdict(
        close(
            "squared moduli of the eigenvalues",
            np.abs(np.linalg.eigvals(W)) ** 2,
            1.0,
            tolerance=1e-10,
        ),
        close("singular values", np.linalg.svd(W, compute_uv=False), 1.0, tolerance=1e-10),
        close(
            "squared eigenvalues of a reflection",
            np.linalg.eigvals(reflection) ** 2,
            1.0,
            tolerance=1e-10,
        ),
        printed=[
            close(
                "squared eigenvalues, 1 if each is 1 or −1",
                np.linalg.eigvals(W) ** 2,
                1.0,
                tolerance=1e-10,
            )
        ],
    )
