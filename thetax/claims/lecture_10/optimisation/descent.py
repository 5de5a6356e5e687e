"""Lecture 10, §3.3 and §3.4: steepest descent, learning rates, and convergence."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from scipy.optimize import minimize

from .... import layers, models, train, tree
from ....core import run
from ....plot import Chart, Panel
from ...ch03_gradients.problems import descent, quadratic, spectrum
from ...engine.check import at_least, at_most, close, close_derivative, decreasing, equal, refuted
from ...engine.claim import Verdict, claim, erratum


@claim(
    "L10-3.3-steepest",
    title="The direction of steepest ascent",
    kind="theorem",
    of=("train.descend",),
)
def steepest(key, rng):
    r"""Among all unit vectors $u$ the slope $u^\top \nabla\hat R(\theta)$ is largest for
    $u = \nabla\hat R / \|\nabla\hat R\|$, where it is $\|\nabla\hat R\|$; a step of gradient
    descent goes in the opposite direction.
    """
    data = jnp.asarray(rng.normal(size=(10, 3))), jnp.asarray(rng.normal(size=10))
    net = models.MLP.init(3, 4, 1, activation=layers.tanh, key=key)
    theta, back = tree.ravel(net)
    risk = lambda theta: train.squared_error(back(theta), data)
    gradient = np.asarray(jax.grad(risk)(theta))
    u = rng.normal(size=(10_000, len(theta)))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    length = np.linalg.norm(gradient)
    along = np.asarray(
        _slopes(
            risk, theta, jnp.asarray(np.r_[u, gradient[None] / length, -gradient[None] / length])
        )
    )
    step = train.descend(lambda theta, batch, key: risk(theta), optax.sgd(0.1))
    update = np.asarray(step.step(step.init(theta), None, key=key)[0].model - theta)
    return Verdict(
        at_most("slopes along 10,000 directions, by differences", along[:-2], length, slack=1e-8),
        close_derivative("along the gradient: ‖∇R‖", along[-2], length),
        close_derivative("against it: −‖∇R‖", along[-1], -length),
        close_derivative("u·∇R, against the slopes", u @ gradient, along[:-2]),
        close(
            "the normalised step of gradient descent",
            update / np.linalg.norm(update),
            -gradient / length,
            tolerance=1e-13,
        ),
        figure=Panel(
            "cosine of the angle with ∇R",
            "slope over ‖∇R‖",
            points={"random directions": (u[:400] @ gradient / length, along[:400] / length)},
            bounds={"the cosine": ([-1, 1], [-1, 1])},
        ),
    )


def _slopes(risk, theta, u, step=1e-3):
    at = lambda k: jax.jit(jax.vmap(lambda u: risk(theta + k * step * u)))(u)
    return (at(-2) - 8 * at(-1) + 8 * at(1) - at(2)) / (12 * step)


@claim(
    "L10-3.3-lr-schedule",
    title="Learning-rate schedules",
    kind="algorithm",
    of=("train.descend",),
    cites="Robbins & Monro 1951; Loshchilov & Hutter 2017",
)
def schedules(key):
    r"""A learning rate that decays exponentially, $\eta_0 \alpha^t$, by steps, by a power,
    $\eta_0 (1 + \beta t)^{-\alpha}$, along a cosine, $\frac{\eta_0}{2}(1 + \cos \frac{\pi t}{T})$,
    or with a warm-up. With noisy gradients it ends nearer to the minimum than a constant rate.
    """
    T = 40
    t = np.arange(40)
    cases = {
        "factor": (optax.exponential_decay(0.5, 1, 0.9), 0.5 * 0.9**t),
        "steps": (
            optax.piecewise_constant_schedule(0.5, {15: 0.1, 30: 0.1}),
            np.where(t < 15, 0.5, np.where(t < 30, 0.05, 0.005)),
        ),
        "power": (lambda t: 0.5 * (1 + 0.2 * t) ** -0.5, 0.5 / np.sqrt(1 + 0.2 * t)),
        "cosine": (optax.cosine_decay_schedule(0.5, T), 0.25 * (1 + np.cos(np.pi * t / T))),
        "warm-up, cosine": (
            optax.warmup_cosine_decay_schedule(0.0, 0.5, 8, T),
            np.where(t < 8, 0.5 * t / 8, 0.25 * (1 + np.cos(np.pi * (t - 8) / (T - 8)))),
        ),
    }
    slope = lambda theta, batch=None, key=None: theta.sum()
    steps = {
        name: -np.diff(descent(slope, optax.sgd(rate), [0.0], T)[:, 0])
        for name, (rate, _) in cases.items()
    }

    def noisy(theta, batch, key):
        return (theta**2 / 2 + jr.normal(key, theta.shape) * theta).sum()

    def error(rate, key):
        walk = train.descend(noisy, optax.sgd(rate))
        return jnp.square(run(walk, jnp.ones(20), jnp.zeros(300), key=key)[0].model).mean()

    ends = lambda rate: np.asarray(
        jax.jit(jax.vmap(lambda key: error(rate, key)))(jr.split(key, 10))
    )
    fall = ends(optax.cosine_decay_schedule(0.5, 300))
    stay = ends(0.5)
    return Verdict(
        *[
            close(f"{name}: 40 learning rates, from the steps", steps[name], rate, tolerance=1e-6)
            for name, (_, rate) in cases.items()
        ],
        at_least(
            "noisy quadratic: seeds of 10 that end nearer to the minimum with the cosine",
            int((fall < stay).sum()),
            9,
            method="trend",
        ),
        figure=Chart(
            *[
                Panel("step", "rate", lines={name: (t, steps[name]) for name in names})
                for names in (("factor", "steps", "power"), ("cosine", "warm-up, cosine"))
            ]
        ),
    )


@claim(
    "L10-3.4-gd",
    title="Gradient descent on the risk",
    kind="algorithm",
    of=("train.descend", "train.binary_cross_entropy"),
)
def gd(key, rng):
    r"""$\theta^{k+1} = \theta^k - \eta \nabla\hat R(\theta^k)$: on a quadratic
    $\theta^k = (I - \eta H)^k \theta^0$, and on the logistic risk it reaches the minimiser found by
    SciPy.
    """
    H = spectrum(rng, [0.2, 0.7, 1.5])
    eta = 0.6
    start = rng.normal(size=3)
    path = descent(quadratic(H).objective, optax.sgd(eta), start, 40)
    powers = np.stack([np.linalg.matrix_power(np.eye(3) - eta * H, k) @ start for k in range(41)])
    X = rng.normal(size=(60, 2))
    y = (rng.uniform(size=60) < 1 / (1 + np.exp(-X @ [1.0, -0.5]))).astype(int)
    model = models.logistic_regression(2)
    data = (jnp.asarray(X), jnp.asarray(y))
    step = train.descend(
        lambda net, batch, key: train.binary_cross_entropy(net, data), optax.sgd(2.0)
    )
    result, (_, info) = jax.jit(lambda net: run(step, net, jnp.zeros(1500), key=key))(model)
    risk = lambda w: np.mean(np.logaddexp(0, X @ w[:2] + w[2]) - y * (X @ w[:2] + w[2]))
    best = minimize(risk, np.zeros(3), method="BFGS", options={"gtol": 1e-10}).x
    losses = np.asarray(info.loss)
    return Verdict(
        close("quadratic: the iterates, against the powers", path, powers),
        refuted(
            close(
                "with the other sign",
                path,
                np.stack(
                    [np.linalg.matrix_power(np.eye(3) + eta * H, k) @ start for k in range(41)]
                ),
                tolerance=1e-3,
            )
        ),
        close(
            "logistic risk: the limit, against SciPy's",
            tree.ravel(result.model)[0],
            best,
            tolerance=1e-6,
        ),
        close("the gradient there", info.gradient[-1], 0.0, tolerance=1e-9),
        figure=Panel(
            "step",
            "logistic risk above its minimum",
            lines={"descent": (np.arange(400), np.maximum(losses[:400] - risk(best), 1e-15))},
            log="y",
        ),
    )


def waves(theta, batch=None, key=None):
    r"""$\frac14 \theta^2 + \sin 2\theta + \frac12 \sin 5\theta$ in each coordinate: not convex,
    $L \le \frac12 + 4 + \frac{25}{2}$.
    """
    return (theta**2 / 4 + jnp.sin(2 * theta) + jnp.sin(5 * theta) / 2).sum()


BEND = 0.5 + 4 + 12.5
wave = lambda t: (t**2 / 4 + np.sin(2 * t) + np.sin(5 * t) / 2).sum(axis=-1)
wave_slope = lambda t: t / 2 + 2 * np.cos(2 * t) + 2.5 * np.cos(5 * t)


@claim(
    "L10-3.4-gd-stationary",
    title="Gradients tend to zero",
    kind="theorem",
    of=("train.descend", "train.binary_log_loss"),
    cites="Nesterov 2004, §1.2.3",
)
def stationary(rng):
    r"""If $\nabla\hat R$ is $L$-Lipschitz, $\hat R$ is bounded below and $0 < \eta < 2/L$, each
    step decreases $\hat R$ by at least $\eta (1 - \frac{\eta L}{2}) \|\nabla\hat R\|^2$ and
    $\min_{k<K} \|\nabla\hat R(\theta^k)\|^2 \le \frac{\hat R_0 - \inf \hat R}{K \eta (1 - \eta L /
    2)}$, so that $\|\nabla\hat R\| \to
    0$. The iterates need not converge: on separable data $\|\theta^k\| \to \infty$.
    """
    K = 300
    starts = rng.uniform(-6, 6, size=(40, 2))
    least = 2 * wave(np.linspace(-4, 4, 400_001)[:, None]).min()
    checks = []
    for share in (0.5, 1.0, 1.9):
        eta = share / BEND
        path = descent(waves, optax.sgd(eta), starts, K)
        h = wave(path)
        g = np.sum(wave_slope(path) ** 2, axis=-1)
        gain = eta * (1 - eta * BEND / 2)
        k = np.arange(1, K + 1)[:, None]
        lowest = np.minimum.accumulate(g[:-1], axis=0)
        checks += [
            at_most(
                f"η = {share:g}/L: h after each step, against the bound",
                h[1:] - h[:-1] + gain * g[:-1],
                0.0,
                slack=1e-12,
            ),
            at_most(
                f"η = {share:g}/L: smallest ‖∇‖² of K steps, over its bound",
                lowest * k * gain / (h[0] - least),
                1.0,
            ),
            at_most(f"η = {share:g}/L: ‖∇‖ after {K} steps", np.sqrt(g[-1]), 1e-3),
        ]
    path_norms, apart = separable(rng)
    lengths = np.linalg.norm(path_norms, axis=1)
    slopes = np.linalg.norm(apart, axis=1)
    marks = [10, 100, 1000, 10_000]
    return Verdict(
        *checks,
        decreasing("separable data: ‖∇‖ at k = 10, 100, 1000, 10,000", slopes[marks]),
        at_most("and at the end", slopes[-1], 1e-3),
        at_least("growth of ‖θ‖ from one to the next", np.diff(lengths[marks]), 0.5),
        assumptions=[
            at_most("largest curvature on a grid", np.abs(_bend(np.linspace(-6, 6, 4001))), BEND)
        ],
        figure=Chart(
            Panel(
                "step K",
                "smallest ‖∇R‖² so far, η = 1.9/L",
                log="xy",
                lines={"run 1": (k[:, 0], np.maximum(lowest[:, 0], 1e-20))},
                bounds={"promised": (k[:, 0], (h[0] - least)[0] / (k[:, 0] * gain))},
            ),
            Panel(
                "step",
                "separable data",
                lines={
                    "‖∇R‖": (np.arange(1, 10_001), slopes[1:]),
                    "‖θ‖": (np.arange(1, 10_001), lengths[1:]),
                },
                log="xy",
            ),
        ),
    )


def _bend(t):
    return 0.5 - 4 * np.sin(2 * t) - 12.5 * np.sin(5 * t)


def separable(rng):
    """Gradient descent on the logistic risk of linearly separable data: its path, and the gradients
    along it by NumPy.
    """
    side = rng.choice([-1.0, 1.0], size=30)
    X = rng.normal(size=(30, 2))
    X[:, 0] = side * (0.5 + np.abs(X[:, 0]))
    data = (jnp.asarray(X), jnp.asarray((side > 0).astype(int)))
    signed = side[:, None] * X
    risk = lambda w, batch=None, key=None: jax.vmap(train.binary_log_loss)(
        data[0] @ w, data[1]
    ).mean()
    path = descent(risk, optax.sgd(1.0), np.zeros(2), 10_000)
    return path, -(1 / (1 + np.exp(path @ signed.T))) @ signed / 30


@erratum(
    "L10-3.4-gd-stationary",
    title="The risk must be bounded below",
    printed=r"\hat R \text{ sufficiently well-behaved, e.g. } \nabla\hat R \text{ Lipschitz} "
    r"\implies "
    r"\|\nabla\hat R(\theta^k)\| \to 0",
    corrected=r"\nabla\hat R \text{ Lipschitz}, \ \inf\hat R > -\infty \implies \|\nabla\hat "
    r"R(\theta^k)\| \to 0",
    of=("train.descend",),
    slip=True,
)
def stationary_printed(rng):
    r"""The printed example of "sufficiently well-behaved" is not sufficient by itself:
    $\hat R(\theta) = -\theta$ has a constant gradient, so the gradient never tends to 0. With
    $\hat R$ bounded below, as every risk with losses $\ge 0$ is, it does.
    """
    start = rng.uniform(-3, 3, size=1)
    down = lambda theta, batch=None, key=None: -theta.sum()
    norms = {name: _lengths(f, start) for name, f in {"−θ": down, "waves": waves}.items()}
    rest = lambda name, sizes: at_most(f"{name}: ‖∇‖ after 300 steps", sizes[-1], 1e-3)
    grid = np.linspace(-100, 100, 20_001)
    return Verdict(
        rest("θ²/4 + sin 2θ + ½ sin 5θ", norms["waves"]),
        at_least("which is bounded below by −3/2", wave(grid[:, None]), -1.5),
        equal("−θ: ‖∇‖ at every step", np.unique(norms["−θ"]), [1.0]),
        printed=[rest("−θ, of Lipschitz constant 0", norms["−θ"])],
    )


def _lengths(f, start):
    step = train.descend(f, optax.sgd(1 / BEND))
    return np.asarray(run(step, jnp.asarray(start), jnp.zeros(300), key=jr.key(0))[1][1].gradient)
