"""§3.3: a rate for each parameter: AdaGrad, RMSprop and Adam."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ... import train
from ...core import run
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_least, at_most, close, equal, refuted, within
from ..engine.claim import Verdict, claim, erratum
from .problems import descent


def walk(optimiser: optax.GradientTransformation, gradients: np.ndarray) -> tuple[np.ndarray, Any]:
    r"""The steps $\theta_{t+1} - \theta_t$ that an optimiser makes of a stream of gradients, and
    its memory at each.
    """

    def body(memory, g):
        step, memory = optimiser.update(g, memory, g)
        return memory, (step, memory)

    stream = jnp.asarray(gradients)
    _, (steps, memories) = jax.lax.scan(body, optimiser.init(stream[0]), stream)
    return np.asarray(steps), memories


def adagrad_loop(gradients: np.ndarray, eta: float, delta: float) -> np.ndarray:
    """The steps of AdaGrad on a stream of gradients, number by number."""
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
def adagrad(key):
    r"""$\gamma_i^t = \gamma_i^{t-1} + (\partial_i h(\theta^t))^2$ from $\gamma^{-1} = 0$, and
    $\theta_i^{t+1} = \theta_i^t - \frac{\eta}{\sqrt{\gamma_i^t} + \delta} \partial_i h(\theta^t)$.
    The scale of a coordinate does not matter: the first step is $\eta$ along each, and a coordinate
    scaled by $c$ goes the same way.
    """
    rng = chance(key)
    g = rng.normal(size=(60, 4)) * [1e-4, 1.0, 30.0, 1e5]
    steps, _ = walk(train.adagrad(0.1, delta=1e-3), g)
    optax_steps, _ = walk(optax.adagrad(0.1, initial_accumulator_value=0.0, eps=1e-3), g)
    first, _ = walk(train.adagrad(0.1, delta=0.0), g[:1])
    fading, _ = walk(train.rmsprop(0.1, decay=0.8, delta=1e-3), g)
    start = np.array([0.7, -1.1, 2.0])
    scaled = lambda c: (
        lambda theta, batch, key: (jnp.array([1.0, c, 1.0]) * jnp.log1p(theta**2)).sum()
    )
    path = lambda c, delta: descent(scaled(c), train.adagrad(0.1, delta=delta), start, 50)
    return Verdict(
        close(
            "60 steps, against a scalar loop", steps, adagrad_loop(g, 0.1, 1e-3), tolerance=1e-12
        ),
        close(
            "first step as δ → 0, over a billionfold of scales",
            first[0],
            -0.1 * np.sign(g[0]),
            tolerance=1e-12,
        ),
        close(
            "a coordinate scaled by 1000 steps the same, δ = 0",
            path(1000.0, 0.0),
            path(1.0, 0.0),
            tolerance=1e-12,
        ),
        refuted(close("and so with δ = 1", path(1000.0, 1.0), path(1.0, 1.0), tolerance=1e-12)),
        refuted(close("Optax's, with δ under the root", optax_steps, steps, tolerance=1e-6)),
        close(
            "RMSprop, against a scalar loop",
            fading,
            rmsprop_loop(g, 0.1, 0.8, 1e-3),
            tolerance=1e-12,
        ),
    )


def rmsprop_loop(gradients: np.ndarray, eta: float, alpha: float, delta: float) -> np.ndarray:
    """The steps of RMSprop, one after another."""
    steps = np.zeros_like(gradients)
    gamma = np.zeros(gradients.shape[1])
    for t, g in enumerate(gradients):
        gamma = alpha * gamma + (1 - alpha) * g**2
        steps[t] = -eta * g / (gamma**0.5 + delta)
    return steps


def rare_words(rng: np.random.Generator, n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Bags of ten words, of which the first is in nearly every text and the last in few; and labels
    in {0, 1}.
    """
    X = (rng.uniform(size=(n, 10)) < np.geomspace(0.9, 0.02, 10)).astype(float)
    X[0] = 1.0  # so that every word has been seen
    return X, (rng.uniform(size=n) < 0.3).astype(float)


@claim(
    "3.3-adagrad-effective",
    title="AdaGrad's steps",
    kind="identity",
    of=("train.adagrad",),
    cites="Duchi, Hazan & Singer 2011",
)
def adagrad_effective(key):
    r"""The effective rate $\frac{\eta}{\sqrt{\gamma_i^t} + \delta}$ never grows, and it is larger
    for parameters whose past gradients were small: rare features keep large steps, and bad scaling
    costs little.
    """
    rng = chance(key)
    g = rng.standard_t(2, size=(300, 6))
    _, (memory, _) = walk(train.adagrad(0.5, delta=1e-8), g)
    effective = 0.5 / (np.sqrt(np.asarray(memory.gamma)) + 1e-8)
    X, y = rare_words(rng)
    logistic = lambda w, batch, key: jax.nn.softplus(batch[0] @ w) - batch[1] * (batch[0] @ w)
    step = train.descend(logistic, train.adagrad(0.5))
    texts = (jnp.asarray(X), jnp.asarray(y))
    gamma = run(step, jnp.zeros(10), texts, key=key, record=lambda state: state.memory[0].gamma)[1][
        0
    ]
    rates = 0.5 / (np.sqrt(np.asarray(gamma)) + 1e-8)
    t = np.arange(1, 601)
    order = np.argsort(X.sum(axis=0))
    begin = 3 * rng.normal(size=5)
    gd = _steps_to(optax.sgd, np.append(np.linspace(0.5, 1.98, 12), 2 / 1.001), begin)
    ada = _steps_to(train.adagrad, np.geomspace(0.1, 10, 13), begin)
    return Verdict(
        at_most(
            "growth of the effective rate, on random gradients", np.diff(effective, axis=0), 0.0
        ),
        equal(
            "the smaller the past gradients, the larger the rate",
            np.argsort(effective[-1]),
            np.argsort(-np.sum(g**2, axis=0)),
        ),
        at_least(
            "logistic: rate of the 3 rarest words, over that of the 3 commonest",
            rates[-1, order[:3]].min() / rates[-1, order[-3:]].max(),
            1.5,
        ),
        at_most("steps to 1e-6, condition 1000: AdaGrad's best, against descent's", ada, gd / 2),
        figure=Chart(
            Panel(
                "step",
                "effective rate",
                log="y",
                lines={
                    f"word in {X[:, i].sum():.0f} of 600 texts": (t, rates[:, i])
                    for i in order[[0, 4, 9]]
                },
            ),
        ),
    )


def _steps_to(make: Any, etas: np.ndarray, start: np.ndarray, limit: int = 8000) -> int:
    """The fewest steps, over the rates, to 1e-6 on a quadratic of condition 1000; the limit if
    never.
    """
    scales = jnp.geomspace(1e-3, 1.0, 5)
    objective = lambda theta, batch, key: (scales * theta**2).sum() / 2

    def losses(eta):
        iteration = train.descend(objective, make(eta))
        state = iteration.init(jnp.asarray(start))
        step = lambda state, _: iteration.step(state, None, key=jr.key(0))
        return jax.lax.scan(step, state, length=limit)[1].loss

    below = np.asarray(jax.jit(jax.vmap(losses))(jnp.asarray(etas))) <= 1e-6
    return int(np.where(below.any(axis=1), below.argmax(axis=1), limit).min())


def adam_loop(
    gradients: np.ndarray, eta: float, beta: float, alpha: float, delta: float, bias: Any
) -> np.ndarray:
    """The steps of Adam, number by number; `bias(β, t)` is what an average is divided by."""
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
def adam(key):
    r"""$m_t = \beta m_{t-1} + (1 - \beta)\nabla h$,
    $\gamma_t = \alpha\gamma_{t-1} + (1 - \alpha)(\nabla h)^2$,
    $\theta_{t+1} = \theta_t - \eta\,\frac{m_t}{\sqrt{\gamma_t} + \delta}$. Both averages start at
    0; corrected by $1 - \beta^t$ and $1 - \alpha^t$, a constant gradient makes steps of exactly
    $\eta$, and uncorrected the first is $\frac{1 - \beta}{\sqrt{1 - \alpha}}\,\eta$.
    """
    rng = chance(key)
    g = rng.normal(size=(80, 3)) * [1e-3, 1.0, 50.0]
    beta = 0.9
    alpha = 0.999
    steps, _ = walk(train.adam(0.02, delta=1e-6), g)
    raw, (memory, _) = walk(train.uncorrected_adam(0.02, delta=1e-6), g)
    unrolled = lambda decay, x: np.stack(
        [sum((1 - decay) * decay ** (t - s) * x[s] for s in range(t + 1)) for t in range(len(x))]
    )
    constant = np.tile([[3.0, -1e-3]], (100, 1))
    even, _ = walk(train.adam(0.02, delta=0.0), constant)
    first, _ = walk(train.uncorrected_adam(0.02, delta=0.0), constant)
    t = np.arange(1, 101)
    loop = lambda bias: adam_loop(g, 0.02, beta, alpha, 1e-6, bias)
    return Verdict(
        close(
            "corrected, against a scalar loop",
            steps,
            loop(lambda decay, t: 1 - decay**t),
            tolerance=1e-12,
        ),
        close(
            "uncorrected, against a scalar loop", raw, loop(lambda decay, t: 1.0), tolerance=1e-12
        ),
        close("m_t, against (1 − β) Σ β^(t−s) ∇h_s", memory.m, unrolled(beta, g), tolerance=1e-12),
        close(
            "γ_t, against (1 − α) Σ α^(t−s) (∇h_s)²",
            memory.gamma,
            unrolled(alpha, g**2),
            tolerance=1e-10,
        ),
        close(
            "corrected, constant gradient: every step",
            even,
            -0.02 * np.sign(constant),
            tolerance=1e-12,
        ),
        close(
            "uncorrected: first step over η",
            np.abs(first[0]) / 0.02,
            0.1 / np.sqrt(0.001),
            tolerance=1e-9,
        ),
        close("which is", abs(first[0, 0]) / 0.02, 3.162, tolerance=5e-4),
        figure=Chart(
            Panel(
                "step",
                "step over η, constant gradient",
                lines={
                    "corrected": (t, np.abs(even[:, 0]) / 0.02),
                    "uncorrected": (t, np.abs(first[:, 0]) / 0.02),
                },
            ),
        ),
    )


@erratum(
    "3.3-adam",
    title="Adam has a step size",
    printed=r"\theta_{t+1} = \theta_t - \eta_t \odot g_t, \quad \eta_t = \frac{1}{\sqrt{\gamma_t} "
    r"+ \delta}",
    corrected=r"\theta_{t+1} = \theta_t - \eta_t \odot g_t, \quad \eta_t = "
    r"\frac{\eta}{\sqrt{\gamma_t} + \delta}",
    of=("train.uncorrected_adam",),
    cites="Kingma & Ba 2015",
)
def adam_printed(key):
    r"""As printed the global step $\eta$ is missing (AdaGrad, above it, has one). The first step is
    then $\frac{1 - \beta}{\sqrt{1 - \alpha}} = 3.16$ whatever the problem, and a bowl of width 1 is
    left at once and for long.
    """
    bowl = lambda theta, batch=None, key=None: jnp.square(theta).sum() / 2
    start = np.array([0.1])
    eta = 0.01
    right = descent(bowl, train.uncorrected_adam(eta), start, 300)[:, 0]
    theta = start[0]
    m = 0.0
    gamma = 0.0
    wrong = [start[0]]
    for _ in range(300):
        m = 0.9 * m + 0.1 * theta
        gamma = 0.999 * gamma + 0.001 * theta**2
        theta = theta - m / (gamma**0.5 + 1e-8)
        wrong.append(theta)
    first = 0.1 / np.sqrt(0.001) * eta
    return Verdict(
        close("the first step, for η = 0.01", start[0] - right[1], first, tolerance=1e-6),
        at_most("distance from the minimum over 300 steps", np.abs(right), 0.2),
        printed=[
            close("the first step, for η = 0.01", start[0] - wrong[1], first, tolerance=1e-6),
            at_most("distance from the minimum over 300 steps", np.abs(wrong), 0.2),
        ],
    )


@claim(
    "3.3-adam-averages", title="Adam's averages", kind="identity", of=("train.uncorrected_adam",)
)
def adam_averages(key):
    r"""$m_t$ is an exponential average of the gradients and $\gamma_t$ of their squares. For
    independent gradients of mean $\mu$ and variance $\sigma^2$, $m_t$ has mean $\mu$ and variance
    $\sigma^2 \frac{1-\beta}{1+\beta}$ in the long run: with $\beta = 0.9$, one nineteenth.
    """
    steps, width, sigma, mean = 200_000, 4, 2.0, 0.5
    g = mean + sigma * jr.normal(key, (steps, width))
    memory = jax.jit(_averages)(g)
    m = np.asarray(memory.m)[1000:]
    gamma = np.asarray(memory.gamma)[10_000:]
    expected = sigma**2 * 0.1 / 1.9
    blocks = m[: len(m) // 1000 * 1000].reshape(-1, 1000, width)  # long enough to be independent
    spread = ((blocks - mean) ** 2).mean(axis=1).ravel()
    means = blocks.mean(axis=1).ravel()
    t = np.arange(150)
    return Verdict(
        close("variance of m", m.var(), expected, tolerance=0.03, relative=True, method="trend"),
        within(
            "variance of m, block by block",
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
        figure=Chart(
            Panel(
                "step",
                "value",
                lines={"gradient": (t, np.asarray(g[5000:5150, 0])), "m": (t, m[4000:4150, 0])},
                bounds={"mean of the gradient": (t, 0 * t + mean)},
            ),
        ),
    )


@erratum(
    "3.3-adam-averages",
    title="Adam's averages must forget",
    printed=r"\alpha, \beta \in [0, 1]",
    corrected=r"\alpha, \beta \in [0, 1)",
    of=("train.uncorrected_adam",),
)
def adam_averages_printed(key):
    r"""With $\beta = 1$ is $g_t = g_{t-1} = g_0 = 0$, and no step is ever made; with $\alpha = 1$
    is $\gamma_t = 0$, and the step is $g_t / \delta$. Below 1 both averages of a constant gradient
    tend to what they average."""
    g = chance(key).uniform(0.5, 2, size=3)
    t = 3000
    constant = np.tile(g, (t, 1))

    def limits(share, m, gamma):
        return [
            close(f"α = β = {share}, {t:,} equal gradients: g_t", m, g, tolerance=1e-9),
            close(f"α = β = {share}, {t:,} equal gradients: γ_t", gamma, g**2, tolerance=1e-9),
        ]

    checks = []
    for share in (0.0, 0.9, 0.99):
        memory = walk(train.uncorrected_adam(1.0, beta1=share, beta2=share), constant)[1][0]
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
