"""§10.2: networks with activations, which become Gaussian processes layer by layer as they
widen.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import erf
from scipy import integrate, special, stats

from ...explain import expectations, infinite
from ...layers import Linear, he, relu, tangent, tanh
from ...models import MLP
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_least, close, falls, likely, refuted, within
from ..engine.claim import Verdict, claim, erratum

LEE = "Neal 1996; Lee et al. 2018"
COUPLE = Callable[
    [float, float, float], float
]  # E φ(u)φ(v) of the two variances about their covariance


def by_grid(phi: Callable[[np.ndarray], np.ndarray], nodes: int = 100) -> COUPLE:
    r"""$\mathbb{E}\,\varphi(u)\varphi(v)$ by Gauss and Hermite's rule in two dimensions: for smooth
    $\varphi$.
    """
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    w = w / w.sum()

    def couple(x: float, k: float, y: float) -> float:
        u = np.sqrt(x) * z
        v = k / np.sqrt(x) * z[:, None] + np.sqrt(max(y - k**2 / x, 0.0)) * z[None]
        return float(w @ (phi(u)[:, None] * phi(v)) @ w)

    return couple


def by_kinks(x: float, k: float, y: float) -> float:
    r"""$\mathbb{E}\,\mathrm{ReLU}(u)\mathrm{ReLU}(v)$: the mean of ReLU$(v)$ given $u$ is known,
    and then quadrature over $u > 0$.
    """
    nodes, weights = np.polynomial.legendre.leggauss(100)
    u = 6 * (1 + nodes)  # in units of its deviation, up to 12
    mean = k / np.sqrt(x) * u
    deviation = np.sqrt(max(y - k**2 / x, 1e-24))
    bell = lambda z: np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    given = mean * special.ndtr(mean / deviation) + deviation * bell(mean / deviation)
    return float(6 * weights @ (np.sqrt(x) * u * given * bell(u)))


def recursion(
    X: np.ndarray, couple: COUPLE, *, depth: int, weight: float, bias: float
) -> np.ndarray:
    r"""$k^\ell_{ij} = \sigma_w^2\, \mathbb{E}\,\varphi(u)\varphi(v) + \sigma_b^2$, an entry at a
    time.
    """
    n = len(X)
    K = weight * X @ X.T / X.shape[1] + bias
    for _ in range(depth):
        K = np.array(
            [
                [weight * couple(K[i, i], K[i, j], K[j, j]) + bias for j in range(n)]
                for i in range(n)
            ]
        )
    return K


def examples(key: Any) -> np.ndarray:
    """Five inputs of three numbers, all about as long."""
    rng = chance(key)
    X = rng.normal(size=(5, 3))
    return X / np.linalg.norm(X, axis=1, keepdims=True) * rng.uniform(1.0, 2.0, size=(5, 1))


def empirical(
    X: np.ndarray, width: int, seeds: int, key: Any, *, activation: Any, initialiser: Any
) -> np.ndarray:
    """The mean of y yᵀ over so many networks of two hidden layers, each with as many outputs as
    units.
    """

    def one(key, X):
        ys = jax.vmap(
            MLP.init(
                X.shape[1],
                width,
                width,
                width,
                activation=activation,
                initialiser=initialiser,
                key=key,
            )
        )(X)
        return ys @ ys.T / width

    many = jax.jit(lambda keys, X: jax.lax.map(lambda key: one(key, X), keys).mean(axis=0))
    return np.asarray(many(jr.split(key, seeds), jnp.asarray(X)))


@claim(
    "10.2-nngp-mean",
    title="The mean of an activation, and of what comes before one",
    kind="identity",
    of=("explain.expectations", "layers.Linear"),
    cites=LEE,
)
def mean(key):
    r"""For a pre-activation $z \sim N(0, k)$ the activation has the mean $\mathbb{E}\,\varphi(z)$:
    $\sqrt{k / 2\pi}$ for ReLU, 0 for an odd $\varphi$. The next pre-activation, which the process
    is about, has mean 0 all the same, since its weights have.
    """
    d, m, draws = 3, 64, 4000
    x = chance(key).normal(size=d)
    k = float(2 * x @ x / d)
    ks = np.array([0.3, k, 4.0])
    by_rule = lambda phi: np.array(
        [
            integrate.quad(
                lambda z, s=s: phi(z) * stats.norm.pdf(z, scale=s),
                -40,
                40,
                points=[0.0],
                epsabs=1e-12,
            )[0]
            for s in np.sqrt(ks)
        ]
    )
    said = lambda phi: np.asarray(expectations(phi).mean(jnp.asarray(ks)))

    def layers(key, x):
        key_first, key_second = jr.split(key)
        first = Linear.init(d, m, initialiser=he, key=key_first)(x)
        return (
            first[0],
            relu(first)[0],
            Linear.init(m, 1, initialiser=he, key=key_second)(relu(first))[0],
        )

    over = jax.jit(jax.vmap(layers, in_axes=(0, None)))
    before, after, following = map(np.asarray, over(jr.split(key, draws), jnp.asarray(x)))
    error = lambda values: values.std() / np.sqrt(draws)
    return Verdict(
        close("ReLU, against √(k/2π)", said(relu), np.sqrt(ks / (2 * np.pi)), tolerance=1e-12),
        close(
            "ReLU, against quadrature", said(relu), by_rule(lambda z: max(z, 0.0)), tolerance=1e-9
        ),
        close(
            "a shifted tanh, against quadrature",
            said(lambda z: jnp.tanh(z + 1)),
            by_rule(lambda z: np.tanh(z + 1)),
            tolerance=1e-6,
        ),
        close(
            "tanh, erf, sin: odd",
            [said(phi) for phi in (tanh, erf, jnp.sin)],
            np.zeros((3, 3)),
            tolerance=1e-12,
        ),
        within(
            "activations of 4,000 layers",
            after.mean(),
            np.sqrt(k / (2 * np.pi)),
            error=error(after),
        ),
        within("pre-activations", before.mean(), 0.0, error=error(before)),
        within("the pre-activations that follow", following.mean(), 0.0, error=error(following)),
        refuted(within("activations: 0", after.mean(), 0.0, error=error(after))),
        assumed=(
            "The notes' μ is the mean of the activations; the kernel is that of the "
            "pre-activations.",
        ),
    )


@claim(
    "10.2-nngp-recursion",
    title="The kernel of a wide network, layer by layer",
    kind="theorem",
    of=("explain.infinite", "models.MLP", "layers.tangent"),
    cites=LEE,
)
def layer_by_layer(key, scale):
    r"""As the widths grow, a network's outputs become a Gaussian process with
    $k^0_{ij} = \frac{\sigma_w^2}{d} x_i^\top x_j + \sigma_b^2$ and
    $k^\ell_{ij} = \sigma_w^2\, \mathbb{E}\,\varphi(u)\varphi(v) + \sigma_b^2$, where $(u, v)$ is
    centred normal with the covariance that $k^{\ell - 1}$ gives the pair $i, j$.
    """
    X = examples(key)
    weight = 1.6
    bias = 0.2
    initialiser = tangent(weight=weight**0.5, bias=bias**0.5)
    checks = []
    couples = {
        "ReLU": (relu, by_kinks, 1e-9),
        "erf": (erf, by_grid(special.erf), 1e-6),
        "tanh": (tanh, by_grid(np.tanh), 1e-6),
    }
    for name, (phi, couple, tolerance) in couples.items():
        net = MLP.init(3, 4, 4, 1, activation=phi, initialiser=initialiser, key=key)
        K = np.asarray(infinite(net).nngp(jnp.asarray(X)))
        expected = recursion(X, couple, depth=2, weight=weight, bias=bias)
        checks += [
            close(
                f"{name}, two hidden layers: against quadrature", K, expected, tolerance=tolerance
            ),
            at_least(f"{name}: least eigenvalue", np.linalg.eigvalsh(K).min(), -1e-10),
        ]
    width, seeds = (1500, 40) if scale == "full" else (300, 200)
    K = np.asarray(
        infinite(MLP.init(3, 4, 4, 1, initialiser=initialiser, key=key)).nngp(jnp.asarray(X))
    )
    wide = empirical(X, width, seeds, key, activation=relu, initialiser=initialiser)
    settings = {"tolerance": 0.05, "relative": True, "method": "brute force"}
    return Verdict(
        *checks,
        close(f"ReLU: {seeds} random networks of width {width}", wide, K, **settings),
        refuted(
            close(
                "the kernel of one layer less",
                wide,
                recursion(X, by_kinks, depth=1, weight=weight, bias=bias),
                **settings,
            )
        ),
    )


@erratum(
    "10.2-nngp-recursion",
    title="The variance of the weights",
    printed=r"k^\ell_{ij} = \mathbb{E}[\varphi(x_i^{\ell-1})\, \varphi(x_j^{\ell-1})]",
    corrected=r"k^\ell_{ij} = \sigma_w^2\, \mathbb{E}[\varphi(x_i^{\ell-1})\, "
    r"\varphi(x_j^{\ell-1})]",
    of=("explain.infinite", "models.MLP", "layers.he"),
)
def layer_by_layer_printed(key):
    r"""Without $\sigma_w^2$ the kernel of a ReLU network shrinks to half with every layer, which
    He's weights, $\sigma_w^2 = 2$, are there to prevent."""
    X = examples(key)
    wide = empirical(X, 300, 200, key, activation=relu, initialiser=he)
    unscaled: COUPLE = lambda x, k, y: by_kinks(x, k, y) / 2
    settings = {"tolerance": 0.05, "relative": True, "method": "brute force"}
    formula = lambda couple: recursion(X, couple, depth=2, weight=2.0, bias=0.0)
    K = np.asarray(infinite(MLP.init(3, 4, 4, 1, key=key), initialiser=he).nngp(jnp.asarray(X)))
    check = lambda name, expected: close(
        f"200 random networks of width 300: {name}", wide, expected, **settings
    )
    return Verdict(
        check("with σ_w² = 2", formula(by_kinks)),
        check("the library's kernel", K),
        printed=[check("without σ_w²", formula(unscaled))],
    )


@claim(
    "10.2-nngp-relu",
    title="The arc-cosine kernel",
    kind="identity",
    of=("explain.expectations", "layers.relu"),
    cites="Cho & Saul 2009",
)
def arc_cosine(key):
    r"""$\mathbb{E}\,\mathrm{ReLU}(u)\mathrm{ReLU}(v) = \frac{\sqrt{k_{ii} k_{jj}}}{2\pi}
    (\sin\theta + (\pi - \theta) \cos\theta)$
    with $\theta = \arccos \frac{k_{ij}}{\sqrt{k_{ii} k_{jj}}}$: half the variance at $\theta = 0$,
    nothing at $\theta = \pi$.
    """
    rng = chance(key)
    draws = 400_000
    x, y = rng.uniform(0.2, 3.0, size=(2, 40))
    theta = np.linspace(0.02, np.pi - 0.02, 40)
    k = np.sqrt(x * y) * np.cos(theta)
    pair = lambda *sizes: np.asarray(expectations(relu).pair(*map(jnp.asarray, sizes))[0])
    said = pair(x, k, y)
    formula = lambda rest: np.sqrt(x * y) / (2 * np.pi) * (np.sin(theta) + rest * np.cos(theta))
    u, z = rng.normal(size=(2, draws))
    v = np.cos(theta[[5, 20, 35], None]) * u + np.sin(theta[[5, 20, 35], None]) * z
    products = np.maximum(u, 0) * np.maximum(v, 0)
    unit = pair(np.ones(40), np.cos(theta), np.ones(40))
    ends = np.array([0.5, 2.0, 3.0])
    return Verdict(
        close("40 pairs, against the formula", said, formula(np.pi - theta), tolerance=1e-12),
        close(
            "against quadrature", said, [by_kinks(*sizes) for sizes in zip(x, k, y)], tolerance=1e-8
        ),
        within(
            "three angles, 400,000 draws",
            products.mean(axis=1),
            unit[[5, 20, 35]],
            error=products.std(axis=1) / np.sqrt(draws),
        ),
        close("θ = 0: k/2", pair(ends, ends, ends), ends / 2, tolerance=1e-12),
        close("θ = π: 0", pair(ends, -ends, ends), np.zeros(3), tolerance=1e-12),
        refuted(close("π + θ in its place", said, formula(np.pi + theta), tolerance=1e-8)),
        figure=Chart(
            Panel(
                "angle θ",
                "E ReLU(u) ReLU(v)",
                lines={"closed form": (theta, unit)},
                points={"400,000 draws": (theta[[5, 20, 35]], products.mean(axis=1))},
                bounds={"E uv": (theta, np.cos(theta))},
                vertical_lines={"π/2": np.pi / 2},
            )
        ),
    )


@claim(
    "10.2-nngp-clt",
    title="The next layer makes it normal",
    kind="experiment",
    of=("models.MLP", "explain.infinite"),
    cites=LEE,
)
def central_limit(key):
    r"""ReLUs are not normal, but a unit of the next layer sums up $m$ of them: over random networks
    its pre-activation comes the nearer to $N(0, k)$ the larger $m$ is.
    """
    x = chance(key).normal(size=3)
    widths = (1, 4, 16, 64)
    draws = 20_000
    net = lambda m, key: MLP.init(3, m, 1, initialiser=he, key=key)
    k = float(infinite(net(4, key), initialiser=he).nngp(jnp.asarray(x[None]))[0, 0])
    give = lambda m: jax.jit(jax.vmap(lambda key, x: net(m, key)(x)[0], in_axes=(0, None)))
    ys = {
        m: np.asarray(give(m)(jr.split(key, draws), jnp.asarray(x)))
        for m, key in zip(widths, jr.split(key, 4))
    }
    tests = {m: stats.kstest(values, stats.norm(0, np.sqrt(k)).cdf) for m, values in ys.items()}
    z = np.linspace(-4, 4, 61)
    height = lambda values: np.histogram(values / np.sqrt(k), bins=z, density=True)[0]
    middle = (z[1:] + z[:-1]) / 2
    return Verdict(
        falls("distance to N(0, k), widths 1, 4, 16, 64", [tests[m].statistic for m in widths]),
        likely("width 64: Kolmogorov-Smirnov", tests[64].pvalue, false_alarm=1e-3),
        refuted(likely("width 4: Kolmogorov-Smirnov", tests[4].pvalue, false_alarm=1e-3)),
        within(
            "variance at width 64: k",
            np.mean(ys[64] ** 2),
            k,
            error=np.std(ys[64] ** 2) / np.sqrt(draws),
        ),
        figure=Chart(
            Panel(
                "output / √k",
                "density",
                log="y",
                lines={f"width {m}": (middle, height(ys[m])) for m in (4, 16, 64)},
                bounds={"normal": (middle, stats.norm.pdf(middle))},
            ),
            Panel(
                "width",
                "Kolmogorov's distance",
                log="xy",
                lines={"20,000 networks": (widths, [tests[m].statistic for m in widths])},
            ),
        ),
    )
