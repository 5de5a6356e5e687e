"""§3.3: a learning rate for each parameter: AdaGrad, RMSprop and Adam."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ... import train
from ...core import run
from ...plot import Panel
from ..engine.check import at_least, at_most, close, equal, refuted, within
from ..engine.claim import Verdict, claim, erratum
from .problems import descent


def optimiser_steps(
    optimiser: optax.GradientTransformation, gradients: np.ndarray
) -> tuple[np.ndarray, Any]:
    r"""The steps $\theta_{t+1} - \theta_t$ that an optimiser computes from a sequence of gradients,
    and its states.
    """

    def body(memory, g):
        step, memory = optimiser.update(g, memory, g)
        return memory, (step, memory)

    stream = jnp.asarray(gradients)
    _, (steps, memories) = jax.lax.scan(body, optimiser.init(stream[0]), stream)
    return np.asarray(steps), memories


def adagrad_loop(gradients: np.ndarray, eta: float, delta: float) -> np.ndarray:
    """The steps of AdaGrad on a sequence of gradients, by a scalar loop."""
    steps = np.zeros_like(gradients)
    gamma = [0.0] * gradients.shape[1]
    for t, row in enumerate(gradients):
        for i, g in enumerate(row):
            gamma[i] = gamma[i] + g * g
            steps[t, i] = -eta * g / (gamma[i] ** 0.5 + delta)
    return steps


@claim(
    "3.3-adagrad",
    title="AdaGrad",
    kind="algorithm",
    of=("train.adagrad", "train.rmsprop"),
    cites="Duchi, Hazan & Singer 2011",
)
def adagrad(rng):
    r"""$\gamma_i^t = \gamma_i^{t-1} + (\partial_i h(\theta^t))^2$ from $\gamma^{-1} = 0$, and
    $\theta_i^{t+1} = \theta_i^t - \frac{\eta}{\sqrt{\gamma_i^t} + \delta} \partial_i h(\theta^t)$.
    With $\delta = 0$ the scale of a coordinate does not matter: the first step is $\eta$ along each
    coordinate, and a coordinate scaled by $c$ follows the same path.
    """
    g = rng.normal(size=(60, 4)) * [1e-4, 1.0, 30.0, 1e5]
    steps, _ = optimiser_steps(train.adagrad(0.1, eps=1e-3), g)
    optax_steps, _ = optimiser_steps(optax.adagrad(0.1, initial_accumulator_value=0.0, eps=1e-3), g)
    first_steps, _ = optimiser_steps(train.adagrad(0.1, eps=0.0), g[:1])
    rmsprop_steps, _ = optimiser_steps(train.rmsprop(0.1, decay=0.8, eps=1e-3), g)
    start = np.array([0.7, -1.1, 2.0])
    scaled = lambda c: (
        lambda theta, batch, key: (jnp.array([1.0, c, 1.0]) * jnp.log1p(theta**2)).sum()
    )
    path = lambda c, delta: descent(scaled(c), train.adagrad(0.1, eps=delta), start, 50)
    return Verdict(
        close("60 steps, against a scalar loop", steps, adagrad_loop(g, 0.1, 1e-3)),
        close(
            "first step for δ = 0, with gradient scales from 1e-4 to 1e5",
            first_steps[0],
            -0.1 * np.sign(g[0]),
        ),
        close("path of a coordinate scaled by 1000, δ = 0", path(1000.0, 0.0), path(1.0, 0.0)),
        refuted(
            close("path of a coordinate scaled by 1000, δ = 1", path(1000.0, 1.0), path(1.0, 1.0))
        ),
        refuted(
            close(
                "Optax's AdaGrad, which adds δ under the root", optax_steps, steps, tolerance=1e-6
            )
        ),
        close("RMSprop, against a scalar loop", rmsprop_steps, rmsprop_loop(g, 0.1, 0.8, 1e-3)),
    )


def rmsprop_loop(gradients: np.ndarray, eta: float, alpha: float, delta: float) -> np.ndarray:
    """The steps of RMSprop on a sequence of gradients, by a loop."""
    steps = np.zeros_like(gradients)
    gamma = np.zeros(gradients.shape[1])
    for t, g in enumerate(gradients):
        gamma = alpha * gamma + (1 - alpha) * g**2
        steps[t] = -eta * g / (gamma**0.5 + delta)
    return steps


def bags_of_words(rng: np.random.Generator, n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Bags of ten words and labels in {0, 1}; the first word is in nearly every text, the last in
    few.
    """
    X = (rng.uniform(size=(n, 10)) < np.geomspace(0.9, 0.02, 10)).astype(float)
    X[0] = 1.0  # every word occurs at least once
    return X, (rng.uniform(size=n) < 0.3).astype(float)


@claim(
    "3.3-adagrad-effective",
    title="AdaGrad's effective learning rates",
    kind="identity",
    of=("train.adagrad",),
    cites="Duchi, Hazan & Singer 2011",
)
def adagrad_effective(key, rng):
    r"""The effective rate $\frac{\eta}{\sqrt{\gamma_i^t} + \delta}$ never grows, and it is larger
    for parameters whose past gradients were small: rare features keep large steps, and bad scaling
    slows it little.
    """
    g = rng.standard_t(2, size=(300, 6))
    _, (memory, _) = optimiser_steps(train.adagrad(0.5, eps=1e-8), g)
    effective = 0.5 / (np.sqrt(np.asarray(memory.gamma)) + 1e-8)
    X, y = bags_of_words(rng)
    logistic = lambda w, batch, key: jax.nn.softplus(batch[0] @ w) - batch[1] * (batch[0] @ w)
    step = train.descend(logistic, train.adagrad(0.5))
    texts = (jnp.asarray(X), jnp.asarray(y))
    gamma = run(
        step, jnp.zeros(10), texts, key=key, record=lambda state: state.optimiser_state[0].gamma
    )[1][0]
    rates = 0.5 / (np.sqrt(np.asarray(gamma)) + 1e-8)
    t = np.arange(1, 601)
    order = np.argsort(X.sum(axis=0))
    start = 3 * rng.normal(size=5)
    gd_steps = _steps_to(optax.sgd, np.append(np.linspace(0.5, 1.98, 12), 2 / 1.001), start)
    adagrad_steps = _steps_to(train.adagrad, np.geomspace(0.1, 10, 13), start)
    return Verdict(
        at_most(
            "increase of the effective rate, on random gradients", np.diff(effective, axis=0), 0.0
        ),
        equal(
            "order of the effective rates, against the order of the past gradients",
            np.argsort(effective[-1]),
            np.argsort(-np.sum(g**2, axis=0)),
        ),
        at_least(
            "logistic: rate of the 3 rarest words over the rate of the 3 most frequent",
            rates[-1, order[:3]].min() / rates[-1, order[-3:]].max(),
            1.5,
        ),
        at_most(
            "steps to 1e-6, condition number 1000: best AdaGrad against best gradient descent",
            adagrad_steps,
            gd_steps / 2,
        ),
        figure=Panel(
            "step",
            "effective rate",
            log="y",
            lines={
                f"word in {X[:, i].sum():.0f} of 600 texts": (t, rates[:, i])
                for i in order[[0, 4, 9]]
            },
        ),
    )


def _steps_to(make_optimiser: Any, etas: np.ndarray, start: np.ndarray, limit: int = 8000) -> int:
    """The fewest steps over the learning rates to 1e-6 on a quadratic of condition number 1000; at
    most `limit`.
    """
    scales = jnp.geomspace(1e-3, 1.0, 5)
    objective = lambda theta, batch, key: (scales * theta**2).sum() / 2

    def losses(eta):
        iteration = train.descend(objective, make_optimiser(eta))
        state = iteration.init(jnp.asarray(start))
        step = lambda state, _: iteration.step(state, None, key=jr.key(0))
        return jax.lax.scan(step, state, length=limit)[1].loss

    reached = np.asarray(jax.jit(jax.vmap(losses))(jnp.asarray(etas))) <= 1e-6
    return int(np.where(reached.any(axis=1), reached.argmax(axis=1), limit).min())


def adam_loop(
    gradients: np.ndarray, eta: float, beta: float, alpha: float, delta: float, bias: Any
) -> np.ndarray:
    """The steps of Adam by a scalar loop; the averages are divided by `bias(β, t)`."""
    steps = np.zeros_like(gradients)
    for i in range(gradients.shape[1]):
        m = gamma = 0.0
        for t, g in enumerate(gradients[:, i], start=1):
            m = beta * m + (1 - beta) * g
            gamma = alpha * gamma + (1 - alpha) * g * g
            steps[t - 1, i] = -eta * (m / bias(beta, t)) / ((gamma / bias(alpha, t)) ** 0.5 + delta)
    return steps


@claim(
    "3.3-adam",
    title="Adam",
    kind="algorithm",
    of=("train.adam", "train.uncorrected_adam"),
    cites="Kingma & Ba 2015",
)
def adam(rng):
    r"""$m_t = \beta m_{t-1} + (1 - \beta)\nabla h$,
    $\gamma_t = \alpha\gamma_{t-1} + (1 - \alpha)(\nabla h)^2$,
    $\theta_{t+1} = \theta_t - \eta\,\frac{m_t}{\sqrt{\gamma_t} + \delta}$. Both averages start at
    0. With the corrections $1 - \beta^t$ and $1 - \alpha^t$ a constant gradient gives steps of
    exactly $\eta$; without them the first step is $\frac{1 - \beta}{\sqrt{1 - \alpha}}\,\eta$.
    """
    g = rng.normal(size=(80, 3)) * [1e-3, 1.0, 50.0]
    beta = 0.9
    alpha = 0.999
    steps, _ = optimiser_steps(train.adam(0.02, eps=1e-6), g)
    uncorrected, (memory, _) = optimiser_steps(train.uncorrected_adam(0.02, eps=1e-6), g)
    unrolled = lambda decay, x: np.stack(
        [sum((1 - decay) * decay ** (t - s) * x[s] for s in range(t + 1)) for t in range(len(x))]
    )
    constant = np.tile([[3.0, -1e-3]], (100, 1))
    constant_steps, _ = optimiser_steps(train.adam(0.02, eps=0.0), constant)
    uncorrected_steps, _ = optimiser_steps(train.uncorrected_adam(0.02, eps=0.0), constant)
    t = np.arange(1, 101)
    loop = lambda bias: adam_loop(g, 0.02, beta, alpha, 1e-6, bias)
    return Verdict(
        close("corrected, against a scalar loop", steps, loop(lambda decay, t: 1 - decay**t)),
        close("uncorrected, against a scalar loop", uncorrected, loop(lambda decay, t: 1.0)),
        close("m_t, against (1 − β) Σ β^(t−s) ∇h_s", memory.m, unrolled(beta, g)),
        close(
            "γ_t, against (1 − α) Σ α^(t−s) (∇h_s)²",
            memory.gamma,
            unrolled(alpha, g**2),
            tolerance=1e-10,
        ),
        close(
            "corrected, constant gradient: every step", constant_steps, -0.02 * np.sign(constant)
        ),
        close(
            "uncorrected: first step over η",
            np.abs(uncorrected_steps[0]) / 0.02,
            0.1 / np.sqrt(0.001),
            tolerance=1e-9,
        ),
        close(
            "uncorrected: first step over η, in numbers",
            abs(uncorrected_steps[0, 0]) / 0.02,
            3.162,
            tolerance=5e-4,
        ),
        figure=Panel(
            "step",
            "step over η, constant gradient",
            lines={
                "corrected": (t, np.abs(constant_steps[:, 0]) / 0.02),
                "uncorrected": (t, np.abs(uncorrected_steps[:, 0]) / 0.02),
            },
        ),
    )


@erratum(
    "3.3-adam",
    title="Adam's step size is missing",
    printed=r"\theta_{t+1} = \theta_t - \eta_t \odot g_t, \quad \eta_t = \frac{1}{\sqrt{\gamma_t} "
    r"+ \delta}",
    corrected=r"\theta_{t+1} = \theta_t - \eta_t \odot g_t, \quad \eta_t = "
    r"\frac{\eta}{\sqrt{\gamma_t} + \delta}",
    of=("train.uncorrected_adam",),
    cites="Kingma & Ba 2015",
)
def adam_printed(key):
    r"""As printed, the global step size $\eta$ is missing (AdaGrad, above it, has one). The first
    step is then $\frac{1 - \beta}{\sqrt{1 - \alpha}} = 3.16$ for every problem, and on $\frac12
    \theta^2$ from 0.1 the iterates move far from the minimum.
    """
    bowl = lambda theta, batch=None, key=None: jnp.square(theta).sum() / 2
    start = np.array([0.1])
    eta = 0.01
    corrected = descent(bowl, train.uncorrected_adam(eta), start, 300)[:, 0]
    theta = start[0]
    m = 0.0
    gamma = 0.0
    printed_path = [start[0]]
    for _ in range(300):
        m = 0.9 * m + 0.1 * theta
        gamma = 0.999 * gamma + 0.001 * theta**2
        theta = theta - m / (gamma**0.5 + 1e-8)
        printed_path.append(theta)
    first = 0.1 / np.sqrt(0.001) * eta
    return Verdict(
        close("the first step, for η = 0.01", start[0] - corrected[1], first, tolerance=1e-6),
        at_most("distance from the minimum over 300 steps", np.abs(corrected), 0.2),
        printed=[
            close(
                "the first step, for η = 0.01", start[0] - printed_path[1], first, tolerance=1e-6
            ),
            at_most("distance from the minimum over 300 steps", np.abs(printed_path), 0.2),
        ],
    )


@claim(
    "3.3-adam-averages", title="Adam's averages", kind="identity", of=("train.uncorrected_adam",)
)
def adam_averages(key):
    r"""$m_t$ is an exponential average of the gradients and $\gamma_t$ of their squares. For
    independent gradients of mean $\mu$ and variance $\sigma^2$, $m_t$ has mean $\mu$ and variance
    $\sigma^2 \frac{1-\beta}{1+\beta}$ in the limit: with $\beta = 0.9$, $\sigma^2 / 19$.
    """
    steps, width, sigma, mean = 200_000, 4, 2.0, 0.5
    g = mean + sigma * jr.normal(key, (steps, width))
    memory = jax.jit(_averages)(g)
    m = np.asarray(memory.m)[1000:]
    gamma = np.asarray(memory.gamma)[10_000:]
    expected = sigma**2 * 0.1 / 1.9
    blocks = m[: len(m) // 1000 * 1000].reshape(-1, 1000, width)  # long blocks: nearly independent
    spread = ((blocks - mean) ** 2).mean(axis=1).ravel()
    means = blocks.mean(axis=1).ravel()
    t = np.arange(150)
    return Verdict(
        close("variance of m", m.var(), expected, tolerance=0.03, relative=True, method="trend"),
        within(
            "variance of m, with the standard error over blocks",
            spread.mean(),
            expected,
            error=spread.std() / np.sqrt(len(spread)),
        ),
        within("mean of m", means.mean(), mean, error=means.std() / np.sqrt(len(means))),
        close(
            "mean of γ, against μ² + σ²",
            gamma.mean(),
            mean**2 + sigma**2,
            tolerance=0.03,
            relative=True,
            method="trend",
        ),
        figure=Panel(
            "step",
            "value",
            lines={"gradient": (t, np.asarray(g[5000:5150, 0])), "m": (t, m[4000:4150, 0])},
            bounds={"mean of the gradient": (t, 0 * t + mean)},
        ),
    )


@erratum(
    "3.3-adam-averages",
    title="Adam's decay rates must be below 1",
    printed=r"\alpha, \beta \in [0, 1]",
    corrected=r"\alpha, \beta \in [0, 1)",
    of=("train.uncorrected_adam",),
)
def adam_averages_printed(rng):
    r"""With $\beta = 1$ we have $g_t = g_{t-1} = g_0 = 0$, and every step is 0; with $\alpha = 1$
    we have $\gamma_t = 0$, and the step is $g_t / \delta$. Below 1 both averages converge under a
    constant gradient, to the gradient and to its square.
    """
    g = rng.uniform(0.5, 2, size=3)
    t = 3000
    constant = np.tile(g, (t, 1))

    def limits(share, m, gamma):
        return [
            close(f"α = β = {share}, {t:,} equal gradients: g_t", m, g, tolerance=1e-9),
            close(f"α = β = {share}, {t:,} equal gradients: γ_t", gamma, g**2, tolerance=1e-9),
        ]

    checks = []
    for share in (0.0, 0.9, 0.99):
        memory = optimiser_steps(train.uncorrected_adam(1.0, beta1=share, beta2=share), constant)[
            1
        ][0]
        checks += limits(share, np.asarray(memory.m)[-1], np.asarray(memory.gamma)[-1])
    m = np.zeros(3)
    gamma = np.zeros(3)
    for slope in constant:
        m = 1.0 * m + (1 - 1.0) * slope
        gamma = 1.0 * gamma + (1 - 1.0) * slope**2
    return Verdict(*checks, printed=limits(1, m, gamma))


def _averages(gradients: jax.Array) -> Any:
    optimiser = train.uncorrected_adam(1.0)

    def body(memory, g):
        after = optimiser.update(g, memory, g)[1]
        return after, after

    memories: Any = jax.lax.scan(body, optimiser.init(gradients[0]), gradients)[1]
    return memories[0]
