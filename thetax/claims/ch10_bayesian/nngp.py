"""§10.2: wide networks with activations converge to Gaussian processes, layer by layer (NNGP)."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import erf
from scipy import integrate, special, stats

from ...explain import dual_activation, infinite_width_limit
from ...layers import Linear, he, ntk_parametrisation, relu, tanh
from ...models import MLP
from ...plot import Chart, Panel
from ..engine.check import at_least, close, decreasing, not_rejected, refuted, within
from ..engine.claim import Verdict, claim, erratum
from ..engine.numpy_rng import numpy_rng

COUPLE = Callable[
    [float, float, float], float
]  # E φ(u)φ(v) from the variance of u, the covariance, and the variance of v


def quadrature_2d(phi: Callable[[np.ndarray], np.ndarray], nodes: int = 100) -> COUPLE:
    r"""$\mathbb{E}\,\varphi(u)\varphi(v)$ by Gauss-Hermite quadrature in two dimensions, for smooth
    $\varphi$.
    """
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    w = w / w.sum()

    def couple(x: float, k: float, y: float) -> float:
        u = np.sqrt(x) * z
        v = k / np.sqrt(x) * z[:, None] + np.sqrt(max(y - k**2 / x, 0.0)) * z[None]
        return float(w @ (phi(u)[:, None] * phi(v)) @ w)

    return couple


def relu_quadrature(x: float, k: float, y: float) -> float:
    r"""$\mathbb{E}\,\mathrm{ReLU}(u)\mathrm{ReLU}(v)$: the mean of ReLU$(v)$ given $u$ in closed
    form, and quadrature over $u > 0$.
    """
    nodes, weights = np.polynomial.legendre.leggauss(100)
    u = 6 * (1 + nodes)  # in units of its standard deviation, up to 12
    mean = k / np.sqrt(x) * u
    deviation = np.sqrt(max(y - k**2 / x, 1e-24))
    bell = lambda z: np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    inner_mean = mean * special.ndtr(mean / deviation) + deviation * bell(mean / deviation)
    return float(6 * weights @ (np.sqrt(x) * u * inner_mean * bell(u)))


def recursion(
    X: np.ndarray, couple: COUPLE, *, depth: int, weight: float, bias: float
) -> np.ndarray:
    r"""$k^\ell_{ij} = \sigma_w^2\, \mathbb{E}\,\varphi(u)\varphi(v) + \sigma_b^2$, entry by
    entry.
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
    """Five inputs in three dimensions, of similar norm."""
    rng = numpy_rng(key)
    X = rng.normal(size=(5, 3))
    return X / np.linalg.norm(X, axis=1, keepdims=True) * rng.uniform(1.0, 2.0, size=(5, 1))


def empirical(
    X: np.ndarray, width: int, seeds: int, key: Any, *, activation: Any, initialiser: Any
) -> np.ndarray:
    """The mean of y yᵀ over `seeds` networks with two hidden layers, each with as many outputs as
    hidden units.
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
    title="The means of activations and of pre-activations",
    kind="identity",
    of=("explain.dual_activation", "layers.Linear"),
    cites="Neal 1996; Lee et al. 2018",
)
def mean(key, rng):
    r"""For a pre-activation $z \sim N(0, k)$ the activation has the mean $\mathbb{E}\,\varphi(z)$:
    $\sqrt{k / 2\pi}$ for ReLU, 0 for an odd $\varphi$. The next pre-activation, which is the
    process, has mean 0 nevertheless, since its weights have mean 0.
    """
    d, m, draws = 3, 64, 4000
    x = rng.normal(size=d)
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
    library_mean = lambda phi: np.asarray(dual_activation(phi).mean(jnp.asarray(ks)))

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
        close("ReLU, against √(k/2π)", library_mean(relu), np.sqrt(ks / (2 * np.pi))),
        close(
            "ReLU, against quadrature",
            library_mean(relu),
            by_rule(lambda z: max(z, 0.0)),
            tolerance=1e-9,
        ),
        close(
            "a shifted tanh, against quadrature",
            library_mean(lambda z: jnp.tanh(z + 1)),
            by_rule(lambda z: np.tanh(z + 1)),
            tolerance=1e-6,
        ),
        close(
            "tanh, erf, sin: odd",
            [library_mean(phi) for phi in (tanh, erf, jnp.sin)],
            np.zeros((3, 3)),
        ),
        within(
            "activations of 4,000 layers",
            after.mean(),
            np.sqrt(k / (2 * np.pi)),
            error=error(after),
        ),
        within("pre-activations", before.mean(), 0.0, error=error(before)),
        within("the next pre-activations", following.mean(), 0.0, error=error(following)),
        refuted(within("activations: 0", after.mean(), 0.0, error=error(after))),
        assumed=(
            "The notes' μ is the mean of the activations; the kernel is that of the "
            "pre-activations.",
        ),
    )


@claim(
    "10.2-nngp-recursion",
    title="The NNGP kernel, layer by layer",
    kind="theorem",
    of=("explain.infinite_width_limit", "models.MLP", "layers.ntk_parametrisation"),
    cites="Neal 1996; Lee et al. 2018",
)
def layer_by_layer(key, scale):
    r"""As the widths grow, a network's outputs become a Gaussian process with
    $k^0_{ij} = \frac{\sigma_w^2}{d} x_i^\top x_j + \sigma_b^2$ and
    $k^\ell_{ij} = \sigma_w^2\, \mathbb{E}\,\varphi(u)\varphi(v) + \sigma_b^2$, where $(u, v)$ is
    centred normal with the covariance $k^{\ell - 1}$ of the pair $i, j$.
    """
    X = examples(key)
    weight = 1.6
    bias = 0.2
    initialiser = ntk_parametrisation(weight=weight**0.5, bias=bias**0.5)
    checks = []
    couples = {
        "ReLU": (relu, relu_quadrature, 1e-9),
        "erf": (erf, quadrature_2d(special.erf), 1e-6),
        "tanh": (tanh, quadrature_2d(np.tanh), 1e-6),
    }
    for name, (phi, couple, tolerance) in couples.items():
        net = MLP.init(3, 4, 4, 1, activation=phi, initialiser=initialiser, key=key)
        K = np.asarray(infinite_width_limit(net).nngp(jnp.asarray(X)))
        expected = recursion(X, couple, depth=2, weight=weight, bias=bias)
        checks += [
            close(
                f"{name}, two hidden layers: against quadrature", K, expected, tolerance=tolerance
            ),
            at_least(f"{name}: smallest eigenvalue", np.linalg.eigvalsh(K).min(), -1e-10),
        ]
    width, seeds = (1500, 40) if scale == "full" else (300, 200)
    K = np.asarray(
        infinite_width_limit(MLP.init(3, 4, 4, 1, initialiser=initialiser, key=key)).nngp(
            jnp.asarray(X)
        )
    )
    wide = empirical(X, width, seeds, key, activation=relu, initialiser=initialiser)
    settings = {"tolerance": 0.05, "relative": True, "method": "brute force"}
    return Verdict(
        *checks,
        close(f"ReLU: {seeds} random networks of width {width}", wide, K, **settings),
        refuted(
            close(
                "the kernel with one layer fewer",
                wide,
                recursion(X, relu_quadrature, depth=1, weight=weight, bias=bias),
                **settings,
            )
        ),
    )


@erratum(
    "10.2-nngp-recursion",
    title="The factor of the weight variance",
    printed=r"k^\ell_{ij} = \mathbb{E}[\varphi(x_i^{\ell-1})\, \varphi(x_j^{\ell-1})]",
    corrected=r"k^\ell_{ij} = \sigma_w^2\, \mathbb{E}[\varphi(x_i^{\ell-1})\, "
    r"\varphi(x_j^{\ell-1})]",
    of=("explain.infinite_width_limit", "models.MLP", "layers.he"),
)
def layer_by_layer_printed(key):
    r"""Without $\sigma_w^2$ the kernel of a ReLU network is halved in every layer, which He
    initialisation, $\sigma_w^2 = 2$, prevents.
    """
    X = examples(key)
    wide = empirical(X, 300, 200, key, activation=relu, initialiser=he)
    unscaled: COUPLE = lambda x, k, y: relu_quadrature(x, k, y) / 2
    settings = {"tolerance": 0.05, "relative": True, "method": "brute force"}
    formula = lambda couple: recursion(X, couple, depth=2, weight=2.0, bias=0.0)
    K = np.asarray(
        infinite_width_limit(MLP.init(3, 4, 4, 1, key=key), initialiser=he).nngp(jnp.asarray(X))
    )
    check = lambda name, expected: close(
        f"200 random networks of width 300: {name}", wide, expected, **settings
    )
    return Verdict(
        check("with σ_w² = 2", formula(relu_quadrature)),
        check("the library's kernel", K),
        printed=[check("without σ_w²", formula(unscaled))],
    )


@claim(
    "10.2-nngp-relu",
    title="The arc-cosine kernel",
    kind="identity",
    of=("explain.dual_activation", "layers.relu"),
    cites="Cho & Saul 2009",
)
def arc_cosine(rng):
    r"""$\mathbb{E}\,\mathrm{ReLU}(u)\mathrm{ReLU}(v) = \frac{\sqrt{k_{ii} k_{jj}}}{2\pi}
    (\sin\theta + (\pi - \theta) \cos\theta)$ with $\theta = \arccos \frac{k_{ij}}{\sqrt{k_{ii}
    k_{jj}}}$: half the variance at $\theta = 0$, and 0 at $\theta = \pi$.
    """
    draws = 400_000
    x, y = rng.uniform(0.2, 3.0, size=(2, 40))
    theta = np.linspace(0.02, np.pi - 0.02, 40)
    k = np.sqrt(x * y) * np.cos(theta)
    pair = lambda *sizes: np.asarray(dual_activation(relu).pair(*map(jnp.asarray, sizes))[0])
    library = pair(x, k, y)
    formula = lambda rest: np.sqrt(x * y) / (2 * np.pi) * (np.sin(theta) + rest * np.cos(theta))
    u, z = rng.normal(size=(2, draws))
    v = np.cos(theta[[5, 20, 35], None]) * u + np.sin(theta[[5, 20, 35], None]) * z
    products = np.maximum(u, 0) * np.maximum(v, 0)
    unit = pair(np.ones(40), np.cos(theta), np.ones(40))
    ends = np.array([0.5, 2.0, 3.0])
    return Verdict(
        close("40 pairs, against the formula", library, formula(np.pi - theta)),
        close(
            "against quadrature",
            library,
            [relu_quadrature(*sizes) for sizes in zip(x, k, y)],
            tolerance=1e-8,
        ),
        within(
            "three angles, 400,000 draws",
            products.mean(axis=1),
            unit[[5, 20, 35]],
            error=products.std(axis=1) / np.sqrt(draws),
        ),
        close("θ = 0: k/2", pair(ends, ends, ends), ends / 2),
        close("θ = π: 0", pair(ends, -ends, ends), np.zeros(3)),
        refuted(
            close("with π + θ in place of π − θ", library, formula(np.pi + theta), tolerance=1e-8)
        ),
        figure=Panel(
            "angle θ",
            "E ReLU(u) ReLU(v)",
            lines={"closed form": (theta, unit)},
            points={"400,000 draws": (theta[[5, 20, 35]], products.mean(axis=1))},
            bounds={"E uv": (theta, np.cos(theta))},
            vertical_lines={"π/2": np.pi / 2},
        ),
    )


@claim(
    "10.2-nngp-clt",
    title="Pre-activations become normal with the width",
    kind="experiment",
    of=("models.MLP", "explain.infinite_width_limit"),
    cites="Neal 1996; Lee et al. 2018",
)
def central_limit(key, rng):
    r"""ReLU outputs are not normal, but a unit of the next layer is a sum over $m$ of them: over
    random networks its pre-activation is closer to $N(0, k)$ the larger $m$ is.
    """
    x = rng.normal(size=3)
    widths = (1, 4, 16, 64)
    draws = 20_000
    net = lambda m, key: MLP.init(3, m, 1, initialiser=he, key=key)
    k = float(infinite_width_limit(net(4, key), initialiser=he).nngp(jnp.asarray(x[None]))[0, 0])
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
        decreasing(
            "distance to N(0, k), widths 1, 4, 16, 64", [tests[m].statistic for m in widths]
        ),
        not_rejected("width 64: Kolmogorov-Smirnov", tests[64].pvalue, false_alarm=1e-3),
        refuted(not_rejected("width 4: Kolmogorov-Smirnov", tests[4].pvalue, false_alarm=1e-3)),
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
