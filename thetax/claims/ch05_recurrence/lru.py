"""§5.2: the linear recurrent unit, whose eigenvalues cannot leave the unit disk."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy import stats

from ... import layers, models, train
from ...core import predict, run
from ...layers import LRU
from ...plot import Panel
from ..engine.check import at_least, at_most, close, close_derivative, equal, not_rejected, refuted
from ..engine.claim import Verdict, claim
from .by_loop import outputs, weight_gradients


def lru_unit(nu, phi, C=None, G=None):
    """An `LRU`; by default C is all ones and G reads the first coordinate."""
    m = len(nu)
    parts = lambda M: jnp.asarray(np.stack([np.real(M), np.imag(M)]))
    return LRU(
        jnp.asarray(nu),
        jnp.asarray(phi),
        parts(np.ones((m, 1)) if C is None else C),
        parts(np.eye(1, m) if G is None else G),
    )


def nu_of_radius(r):
    r"""$\nu = \log(-\log r)$."""
    return np.log(-np.log(r))


@claim("5.2-polar", title="Polar coordinates", kind="identity", of=("layers.LRU",))
def polar(rng):
    r"""$z = r(\cos\varphi + i \sin\varphi)$ with $r = |z|$, and
    $e^{i\theta} = \cos\theta + i\sin\theta$.
    """
    r = rng.uniform(0.05, 0.95, 500)
    phi = rng.uniform(0, 2 * np.pi, 500)
    lam = np.asarray(lru_unit(nu_of_radius(r), phi).eigenvalues)
    on_circle = np.asarray(lru_unit(np.full(500, -40.0), phi).eigenvalues)
    return Verdict(
        close(
            "λ = r(cos φ + i sin φ)", lam, r * np.cos(phi) + 1j * r * np.sin(phi), tolerance=1e-14
        ),
        close("r = |λ|", np.hypot(np.real(lam), np.imag(lam)), r, tolerance=1e-14),
        close("φ = arg λ, in [0, 2π)", np.arctan2(np.imag(lam), np.real(lam)) % (2 * np.pi), phi),
        close("r = 1: e^{iφ}", on_circle, np.cos(phi) + 1j * np.sin(phi), tolerance=1e-15),
        close("NumPy's exponential", np.exp(1j * phi), on_circle, tolerance=1e-15),
        refuted(
            close(
                "sine and cosine exchanged",
                on_circle,
                np.sin(phi) + 1j * np.cos(phi),
                tolerance=1e-3,
            )
        ),
    )


@claim(
    "5.2-stable-exp",
    title="The LRU parametrisation keeps eigenvalues in the unit disk",
    kind="identity",
    of=("layers.LRU", "train.descend"),
    cites="Orvieto et al. 2023",
)
def stable(key, rng):
    r"""$\lambda = \exp(-e^\nu + i\varphi)$ has $|\lambda| = \exp(-e^\nu) \in (0, 1)$ for all real
    $\nu$ and $\varphi$, and $\nu = \log(-\log r)$ gives $|\lambda| = r$: no gradient step
    leaves the disk. In float64 $|\lambda|$ rounds to 1 for $\nu < -37$.
    """
    m = 20
    r = np.concatenate([np.geomspace(1e-6, 0.5, 50), 1 - np.geomspace(1e-6, 0.5, 50)])
    nu = rng.uniform(-20, 3, 10**5)
    sizes = np.abs(np.asarray(lru_unit(nu, rng.uniform(-9, 9, 10**5)).eigenvalues))
    noise = jnp.asarray(rng.normal(size=(100, 2, m)))
    iteration = train.descend(lambda theta, g, key=None: jnp.vdot(g, theta), optax.sgd(0.3))
    start = rng.uniform(0.9, 0.99, m), rng.uniform(0, 2 * np.pi, m)
    random_walk = jax.jit(
        lambda theta: run(iteration, theta, noise, key=key, record=lambda s: s.model)[1][0]
    )
    nus, phis = np.moveaxis(
        np.asarray(random_walk(jnp.asarray(np.stack([nu_of_radius(start[0]), start[1]])))), 1, 0
    )
    moduli = np.array([np.abs(lru_unit(*row).eigenvalues) for row in zip(nus, phis)])
    cartesian = np.stack([start[0] * np.cos(start[1]), start[0] * np.sin(start[1])])
    free_moduli = np.hypot(*np.moveaxis(np.asarray(random_walk(jnp.asarray(cartesian))), 1, 0))
    return Verdict(
        close(
            "r to ν to |λ|, r from 10⁻⁶ to 1 − 10⁻⁶",
            np.abs(lru_unit(nu_of_radius(r), 0 * r).eigenvalues),
            r,
        ),
        at_most("largest |λ| for 10⁵ values ν in [−20, 3]", sizes.max(), np.nextafter(1.0, 0.0)),
        at_least("smallest |λ| for 10⁵ values ν in [−20, 3]", sizes.min(), 1e-9),
        at_most("|λ| along 100 random steps of (ν, φ)", moduli, np.nextafter(1.0, 0.0)),
        refuted(at_most("|λ| along the same steps of (Re λ, Im λ)", free_moduli, 1.0)),
        equal(
            "float64, ν = −40: |λ|",
            np.abs(lru_unit(np.full(1, -40.0), np.zeros(1)).eigenvalues),
            np.ones(1),
        ),
        figure=Panel(
            "step",
            "largest modulus",
            lines={
                "steps of ν and φ": (np.arange(100), moduli.max(axis=1)),
                "steps of λ": (np.arange(100), free_moduli.max(axis=1)),
            },
        ),
    )


@claim(
    "5.2-lru-init",
    title="The initialisation of the eigenvalues",
    kind="algorithm",
    of=("layers.LRU",),
    cites="Orvieto et al. 2023",
)
def begins(key):
    r"""$\varphi \sim \mathrm{Unif}[0, 2\pi]$ and $r \sim \mathrm{Unif}(I)$ with $I \subset (0, 1)$,
    then $\nu = \log(-\log r)$; 0 and 1 are excluded, where $\nu$ is infinite.
    """
    low, high = 0.4, 0.9
    cell = LRU.init(1, 5000, 1, radius=(low, high), key=key)
    lam = np.asarray(cell.eigenvalues)
    p = lambda values, law: stats.kstest(values, law.cdf).pvalue
    disk = stats.rv_histogram(np.histogram(np.sqrt(np.linspace(low**2, high**2, 10**5)), bins=500))
    with np.errstate(divide="ignore"):
        ends = nu_of_radius(np.array([0.0, 1.0]))
    rejected = []
    for radius in ((0.0, 0.9), (0.4, 1.0)):
        try:
            rejected.append(LRU.init(1, 2, 1, radius=radius, key=key) is None)
        except ValueError:
            rejected.append(True)
    return Verdict(
        not_rejected(
            "|λ| uniform: Kolmogorov-Smirnov, 5,000",
            p(np.abs(lam), stats.uniform(low, high - low)),
            false_alarm=1e-4,
        ),
        not_rejected(
            "arg λ uniform",
            p(np.angle(lam) % (2 * np.pi), stats.uniform(0, 2 * np.pi)),
            false_alarm=1e-4,
        ),
        refuted(not_rejected("λ uniform on the annulus", p(np.abs(lam), disk), false_alarm=1e-4)),
        equal("ν at r = 0 and 1", ends, [np.inf, -np.inf]),
        equal("radii of 0 and of 1 are rejected", rejected, [True, True]),
        figure=Panel(
            "real part",
            "imaginary part",
            equal_aspect=True,
            points={"λ": (np.real(lam)[:800], np.imag(lam)[:800])},
        ),
    )


@claim(
    "5.2-lru",
    title="The linear recurrent unit",
    kind="model",
    of=("layers.LRU", "models.MLP"),
    cites="Orvieto et al. 2023",
)
def linear_unit(key, rng):
    r"""$\zeta_{t+1} = \Lambda \zeta_t + C x_t$ with complex diagonal
    $\Lambda = \exp(-e^\nu + i\varphi)$, and $y_t = \mathrm{MLP}(\mathrm{Re}(G\zeta_t))$:
    sequentially, by a parallel scan, or as a convolution with $\mathrm{Re}(G \Lambda^k C)$. The
    recurrence does not mix the coordinates of $\zeta$.
    """
    T = 60
    n = 2
    m = 5
    k = 3
    xs = rng.normal(size=(T, n))
    c = rng.normal(size=(6, k))
    cell = LRU.init(n, m, k, key=key)
    lam, C, G = (
        np.asarray(cell.eigenvalues),
        *(np.asarray(M[0] + 1j * M[1]) for M in (cell.C, cell.G)),
    )
    kernel = np.einsum("km,tm,mn->tkn", G, lam ** np.arange(T)[:, None], C).real
    spectra = np.fft.rfft(kernel, 2 * T, axis=0), np.fft.rfft(xs, 2 * T, axis=0)
    by_fft = np.fft.irfft(np.einsum("tkn,tn->tk", *spectra), 2 * T, axis=0)[:T]
    z = np.zeros(m, complex)
    states = []
    for x in xs:
        z = lam * z + C @ x
        states.append(z)
    by_loop = np.real(np.array(states) @ G.T)
    ys = outputs(cell, xs)
    stepped = jax.jit(lambda cell, xs: jax.lax.scan(lambda z, x: cell(z, x), cell.start, xs)[1])(
        cell, xs
    )
    gradient, numeric = weight_gradients(cell, xs[:6], c)
    state_jacobian = jax.jit(
        jax.jacfwd(lambda z: cell(z, jnp.asarray(xs[0]))[0], holomorphic=True)
    )(jnp.asarray(states[3]))
    net = models.MLP.init(k, 8, 1, key=key)
    with_network = layers.Chain(layers.Recurrent(cell), jax.vmap(net))(jnp.asarray(xs))
    return Verdict(
        close("scan, against the loop", ys, by_loop),
        close("step by step", stepped, by_loop),
        close("convolution by FFT", ys, by_fft, tolerance=1e-9),
        close("with an MLP on top", with_network, predict(net, jnp.asarray(by_loop))),
        close_derivative(f"all {len(gradient)} derivatives, in ν, φ, C and G", gradient, numeric),
        close("∂ζ_{t+1}/∂ζ_t is diagonal", state_jacobian, np.diag(lam), tolerance=1e-15),
        refuted(
            close(
                "without the imaginary part of G",
                np.real(states) @ np.real(G).T,
                by_loop,
                tolerance=1e-3,
            )
        ),
    )


@claim(
    "5.2-lru-universal",
    title="The state of an LRU determines the whole input",
    kind="theorem",
    of=("layers.LRU",),
    cites="Orvieto et al. 2024",
)
def universal(rng):
    r"""With $m \ge T$ distinct $\lambda_j$ the state $\zeta_T = \sum_t \lambda^{T-t} x_t$ is an
    invertible (Vandermonde) image of $x_1, \dots, x_T$: $G$ can output all of them at once, and
    a network on top can approximate any continuous function of the sequence. With a repeated
    $\lambda$ it is not invertible.
    """
    T = 8
    xs = rng.normal(size=(T, 1))
    phi = 2 * np.pi * (np.arange(T) + rng.uniform(0, 0.3, T)) / T
    nu = nu_of_radius(rng.uniform(0.9, 0.99, T))
    lam = np.asarray(lru_unit(nu, phi).eigenvalues)
    power = lam[:, None] ** np.arange(T - 1, -1, -1)
    state = np.asarray(layers.unroll(lru_unit(nu, phi), jnp.asarray(xs))[0])
    recovered = outputs(lru_unit(nu, phi, G=np.linalg.inv(power)), xs)
    nu[1], phi[1] = nu[0], phi[0]
    repeated = np.asarray(lru_unit(nu, phi).eigenvalues)[:, None] ** np.arange(T - 1, -1, -1)
    spread = lambda x: np.sort(np.asarray(x).ravel())[-1] - np.sort(np.asarray(x).ravel())[0]
    return Verdict(
        close("the state, from the powers", state, power @ xs[:, 0]),
        close("the input, from the state", np.linalg.solve(power, state), xs[:, 0], tolerance=1e-8),
        close("the input, as the output of the LRU at T", recovered[-1], xs[:, 0], tolerance=1e-8),
        close(
            "a function of the sequence: its range",
            spread(recovered[-1]),
            spread(xs),
            tolerance=1e-8,
        ),
        at_most("condition number of the matrix of powers", np.linalg.cond(power), 1e6),
        refuted(at_most("condition number, with a repeated λ", np.linalg.cond(repeated), 1e6)),
        equal("rank, with a repeated λ", np.linalg.matrix_rank(repeated), T - 1),
    )
