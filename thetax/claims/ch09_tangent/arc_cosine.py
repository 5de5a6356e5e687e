r"""§9.4: the tangent kernel of infinitely wide ReLU networks, of one hidden layer and of several,
in closed form.
"""

from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ...explain import dual_activation, infinite_width_limit
from ...layers import Chain, Linear, ntk_parametrisation, relu
from ...plot import Panel
from ..engine.check import at_least, close, equal, refuted, within
from ..engine.claim import Verdict, claim
from .width import by_kappa, kappa, kernels, shallow


def by_quadrature(x: np.ndarray, y: np.ndarray, nodes: int = 60) -> float:
    r"""$2\,\mathbb{E}\,\mathrm{ReLU}(u)\mathrm{ReLU}(v) + 2\, x^\top y\, P(u > 0, v > 0)$ for
    $u = w^\top x$ and $v = w^\top y$, by Gauss quadrature in the plane of the two inputs:
    Gauss-Laguerre along $r^2/2$, Gauss-Legendre over the wedge of angles.
    """
    angle = np.arccos(np.clip(x @ y / np.sqrt((x @ x) * (y @ y)), -1, 1))
    s, along = np.polynomial.laguerre.laggauss(8)
    t, around = np.polynomial.legendre.leggauss(nodes)
    low, high = angle - np.pi / 2, np.pi / 2  # where both are positive; x is at angle 0
    phi = (high + low) / 2 + (high - low) / 2 * t
    weight = np.outer(along, around) * (high - low) / 2 / (2 * np.pi)
    r = np.sqrt(2 * s)[:, None]
    u = r * np.cos(phi) * np.sqrt(x @ x)
    v = r * np.cos(phi - angle) * np.sqrt(y @ y)
    return float(2 * np.sum(weight * u * v) + 2 * x @ y * np.sum(weight))


@claim(
    "9.4-ntk-relu",
    title="The kernel of one hidden layer",
    kind="identity",
    of=("explain.infinite_width_limit", "explain.ntk", "layers.ntk_parametrisation"),
    cites="Bietti & Mairal 2019; Cho & Saul 2009",
)
def one_layer(key, rng):
    r"""For $f(x) = \sqrt{2/m} \sum_j a_j\, \mathrm{ReLU}(w_j^\top x)$ with $a, w$ standard normal
    and both trained, $k_\infty(x, x') = \|x\| \|x'\|\, \kappa(u)$ with the cosine $u$ and
    $\kappa(u) = \frac{2u}{\pi} (\pi - \arccos u) + \frac1\pi \sqrt{1 - u^2}$.
    """
    xs = rng.normal(size=(5, 3))
    seeds = 50
    above = np.triu_indices(5, 1)
    formula = by_kappa(xs, xs)[above]
    limit = lambda last: np.asarray(
        infinite_width_limit(shallow(3, 4, key=key, last=last)).ntk(jnp.asarray(xs))
    )[above]
    result = kernels(lambda key: shallow(3, 10_000, key=key), xs, seeds, key)[:, *above]
    planar = [by_quadrature(xs[i], xs[j]) for i, j in zip(*above)]
    u = np.linspace(-1, 1, 201)
    cosine = by_cosine(xs)[above]
    lengths = np.outer(*[np.linalg.norm(xs, axis=1)] * 2)[above]
    return Verdict(
        close("10 pairs, by quadrature", planar, formula, tolerance=1e-8),
        close("the library's limit", limit(2.0), formula, tolerance=1e-10),
        within(
            "50 networks of width 10,000",
            result.mean(axis=0),
            formula,
            error=result.std(axis=0, ddof=1) / np.sqrt(seeds),
        ),
        close("with 1/m in place of 2/m", limit(1.0), formula / 2, tolerance=1e-10),
        refuted(
            close(
                "√(1 − u²)/2π in place of √(1 − u²)/π",
                limit(2.0),
                formula - lengths * np.sqrt(1 - cosine**2) / (2 * np.pi),
                tolerance=1e-3,
            )
        ),
        figure=Panel(
            "cosine u",
            "κ(u)",
            points={"50 networks": (cosine, result.mean(axis=0) / lengths)},
            lines={
                "κ": (u, kappa(u)),
                "the first layer: u κ₀": (u, u * kappa_0(u)),
                "the last layer: κ₁": (u, kappa_1(u)),
            },
        ),
    )


def by_cosine(xs: np.ndarray) -> np.ndarray:
    """The cosine similarities of all pairs of rows."""
    lengths = np.linalg.norm(xs, axis=1)
    return xs @ xs.T / np.outer(lengths, lengths)


def kappa_0(u: Any) -> np.ndarray:
    """Twice the probability that a unit is active for both of two inputs."""
    return (np.pi - np.arccos(u)) / np.pi


def kappa_1(u: Any) -> np.ndarray:
    """Twice the mean product of the ReLU outputs for both, for inputs of norm 1."""
    return (u * (np.pi - np.arccos(u)) + np.sqrt(1 - np.square(u))) / np.pi


@claim(
    "9.4-kappa-properties",
    title="The two parts of the kernel",
    kind="identity",
    of=("explain.infinite_width_limit", "explain.dual_activation"),
    cites="Bietti & Mairal 2019; Cho & Saul 2009",
)
def parts(key, rng):
    r"""$\kappa = u \kappa_0 + \kappa_1$ with $\kappa_0 = \frac1\pi (\pi - \arccos u)$, from the
    first layer, and $\kappa_1 = \frac1\pi (u (\pi - \arccos u) + \sqrt{1 - u^2})$, from the last;
    $\kappa(1) = 2$, $\kappa(-1) = 0$. The kernel is positive semi-definite and homogeneous:
    $k(cx, x') = c\,k(x, x')$ for $c > 0$.
    """
    xs = rng.normal(size=(50, 4))
    u = np.linspace(-1, 1, 101)
    kernel = infinite_width_limit(shallow(4, 4, key=key)).ntk
    one = jnp.ones(101)
    c = 3.7
    last, first = (
        2 * np.asarray(part) for part in dual_activation(relu).pair(one, jnp.asarray(u), one)
    )
    ends = jnp.asarray(np.stack([xs[0], -xs[0]]) / np.linalg.norm(xs[0]))
    circle = jnp.asarray(np.pad(np.stack([u, np.sqrt(1 - u**2)], axis=1), ((0, 0), (0, 2))))
    X = jnp.asarray(xs[:25])
    Y = jnp.asarray(xs[25:])
    K = np.asarray(kernel(jnp.asarray(xs)))
    return Verdict(
        close("κ₀: twice the probability that both are active", first, kappa_0(u)),
        close("κ₁: twice the mean product of ReLUs", last, kappa_1(u)),
        close("u κ₀ + κ₁, against κ", u * first + last, kappa(u)),
        close(
            "the kernel on the unit circle: κ",
            kernel(circle, circle[-1:])[:, 0],
            kappa(u),
            tolerance=1e-7,
        ),
        close("κ(1) = 2 and κ(−1) = 0", kernel(ends[:1], ends)[0], [2.0, 0.0], tolerance=1e-7),
        at_least("smallest eigenvalue on 50 inputs", np.linalg.eigvalsh(K).min(), -1e-10),
        close("one input multiplied by c", kernel(c * X, Y), c * kernel(X, Y), relative=True),
        close("both", kernel(c * X, c * Y), c**2 * kernel(X, Y), relative=True),
        refuted(
            close(
                "multiplied by c = −1", kernel(-X, Y), -kernel(X, Y), tolerance=1e-3, relative=True
            )
        ),
    )


def deep(d: int, m: int, hidden: int, *, key: Any) -> Chain:
    """ReLU layers of width m in the NTK parametrisation without biases: variance 1 first, then
    2.
    """
    *keys, key_last = jr.split(key, hidden + 1)
    layers = []
    n = d
    for key in keys:
        initialiser = ntk_parametrisation(weight=1.0 if n == d and not layers else 2**0.5)
        layers += [Linear.init(n, m, initialiser=initialiser, bias=False, key=key), relu]
        n = m
    return Chain(
        *layers,
        Linear.init(n, 1, initialiser=ntk_parametrisation(weight=2**0.5), bias=False, key=key_last),
    )


def recursion(xs: np.ndarray, hidden: int, *, grows: bool = True) -> np.ndarray:
    r"""$\Theta^{l+1} = \Sigma^{l+1} + \Theta^l \odot \dot\Sigma^{l+1}$ by angles; without
    $\Theta^l$ it is the kernel of the last layer only.
    """
    sigma = xs @ xs.T / xs.shape[1]
    theta = sigma if grows else np.zeros_like(sigma)
    for _ in range(hidden):
        lengths = np.sqrt(np.outer(np.diag(sigma), np.diag(sigma)))
        u = np.clip(sigma / lengths, -1, 1)
        np.fill_diagonal(u, 1.0)
        sigma = lengths * kappa_1(u)
        theta = lengths * kappa_1(u) + (theta * kappa_0(u) if grows else 0)
    return theta


@claim(
    "9.4-ntk-recursion",
    title="The kernel of many layers",
    kind="identity",
    of=("explain.infinite_width_limit", "explain.ntk", "layers.ntk_parametrisation"),
    cites="Jacot et al. 2018; Arora et al. 2019",
)
def many_layers(key, rng, scale):
    r"""From $\Sigma^0 = \Theta^0 = \frac1d x^\top x'$ each ReLU layer gives
    $\Sigma^{l+1} = 2\,\mathbb{E}\,\varphi(u)\varphi(v)$,
    $\dot\Sigma^{l+1} = 2\,\mathbb{E}\,\varphi'(u)\varphi'(v)$ and
    $\Theta^{l+1} = \Sigma^{l+1} + \Theta^l \odot \dot\Sigma^{l+1}$ with
    $(u, v) \sim N(0, \Sigma^l)$; $\Theta^L$ is the tangent kernel of $L$ hidden layers.
    """
    xs = rng.normal(size=(5, 4))
    width, seeds = (1500, 80) if scale == "full" else (512, 300)
    result = kernels(lambda key: deep(4, width, 2, key=key), xs, seeds, key).mean(axis=0)
    limit = lambda hidden: np.asarray(
        infinite_width_limit(deep(4, 4, hidden, key=key)).ntk(jnp.asarray(xs))
    )
    settings = {"tolerance": 0.02, "relative": True, "method": "brute force"}
    angle = np.linspace(0, np.pi, 80)
    circle = 2**0.5 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    around = {f"{hidden} hidden": recursion(circle, hidden)[0] for hidden in (1, 2, 5, 20)}
    return Verdict(
        *[
            close(
                f"{hidden} hidden layers: the library's limit, against the recursion",
                limit(hidden),
                recursion(xs, hidden),
                tolerance=1e-7,
            )
            for hidden in (1, 2, 4)
        ],
        close("one hidden layer: ‖x‖‖x'‖κ(u)/d", limit(1), by_kappa(xs, xs) / 4, tolerance=1e-7),
        close(f"{seeds} networks of two hidden layers of {width}", result, limit(2), **settings),
        refuted(close("the last layer only", result, recursion(xs, 2, grows=False), **settings)),
        equal(
            "Θ(x, x): ‖x‖²/d times the number of layers",
            np.round(np.diag(limit(4)) / np.sum(xs**2, axis=1) * 4, 10),
            np.full(5, 5.0),
        ),
        figure=Panel(
            "angle",
            "Θ(x, x') / Θ(x, x)",
            lines={name: (angle, k / k[0]) for name, k in around.items()},
        ),
    )
