"""§8.9: knowledge distillation at a temperature."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from scipy.special import entr, log_softmax, softmax

from ... import data, models, train
from ...core import iterate
from ...plot import Panel
from ..engine.check import at_least, at_most, between, close, close_derivative, increasing, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian


def loss(G, F, T: float = 1.0) -> jax.Array:
    """The library's loss of a student's logits against a teacher's."""
    return train.distillation_loss(jnp.asarray(G), jnp.asarray(F), temperature=T)


def centred(z: np.ndarray) -> np.ndarray:
    """Logits minus their mean."""
    return z - z.mean(axis=-1, keepdims=True)


def descend(objective, start, learning_rate: float, steps: int) -> np.ndarray:
    """The logits during gradient descent, including the start."""
    iteration = train.descend(lambda z, batch, key=None: objective(z), optax.sgd(learning_rate))
    way = jax.jit(lambda z: iterate(iteration, z, steps, record=lambda s: s.model)[1][0])
    return np.concatenate([start[None], np.asarray(way(jnp.asarray(start)))])


def divergence(F: np.ndarray, G: np.ndarray):
    r"""$\mathrm{KL}(p_F \| p_G)$, for many $G$."""
    return np.sum(softmax(F) * (log_softmax(F) - log_softmax(G, axis=-1)), axis=-1)


@claim(
    "8.9-distill-loss",
    title="The distillation loss",
    kind="loss",
    of=("train.distillation_loss", "train.distil"),
    cites="Hinton, Vinyals & Dean 2015",
)
def to_a_teacher(rng):
    r"""$\ell = -\sum_y \mathrm{softmax}(F)_y \log \mathrm{softmax}(G)_y \ge 0$ of a teacher's
    logits $F$ and a student's $G$ is $H(p_F) + \mathrm{KL}(p_F \| p_G)$: smallest, and equal to the
    entropy of $p_F$, at $G = F$ up to a constant.
    """
    k = 5
    F = rng.uniform(-1.5, 1.5, size=k)
    Gs = 2 * rng.normal(size=(1000, k))
    result = np.asarray(jax.vmap(lambda G: loss(G, F))(jnp.asarray(Gs)))
    entropy = entr(softmax(F)).sum()
    way = descend(lambda G: loss(G, F), Gs[0], 2.0, 2000)
    W = rng.normal(size=(k, 3))
    xs = rng.normal(size=(20, 3))
    teacher = lambda x: jnp.asarray(W) @ x
    mean = train.distil(teacher)(lambda x: 2 * teacher(x), jnp.asarray(xs))
    by_hand = np.mean([-softmax(W @ x) @ log_softmax(2 * W @ x) for x in xs])
    return Verdict(
        at_least("ℓ of 1,000 students", result, 0.0),
        close("ℓ − H(p_F), against the divergence", result - entropy, divergence(F, Gs)),
        close("ℓ at G = F + 3", loss(F + 3, F), entropy, tolerance=1e-13),
        at_least("ℓ at other logits, minus H(p_F)", result - entropy, 1e-6),
        close(
            "limit of gradient descent minus F, up to a constant",
            centred(way[-1]),
            centred(F),
            tolerance=1e-8,
        ),
        close("mean over a set of inputs", mean, by_hand, tolerance=1e-13),
        figure=Panel(
            "step",
            "divergence from the teacher",
            log="y",
            lines={
                "gradient descent on the student's logits": (
                    np.arange(100),
                    divergence(F, way[:100]),
                )
            },
        ),
    )


@erratum(
    "8.9-distill-loss",
    title="The minus sign of the cross-entropy",
    printed=r"\ell = \sum_y \mathrm{softmax}(F)_y \log \mathrm{softmax}(G)_y",
    corrected=r"\ell = -\sum_y \mathrm{softmax}(F)_y \log \mathrm{softmax}(G)_y",
    of=("train.distillation_loss",),
    cites="Hinton, Vinyals & Dean 2015",
)
def to_a_teacher_printed(rng):
    r"""Both forms, with and without temperature, are printed without the minus sign, and the
    gradient, teacher minus student, is that of the printed loss. This loss is negative, and
    minimising it drives the student away from the teacher without bound.
    """
    F = 1.5 * rng.normal(size=5)
    start = rng.normal(size=5)
    right, wrong = (descend(lambda G, s=s: s * loss(G, F), start, 0.5, 300) for s in (1, -1))
    tempered = float(loss(start, F, 3.0))
    by_hand = softmax(F / 3) @ log_softmax(start / 3)
    far = divergence(F, start)
    return Verdict(
        at_least("T = 1: the loss", float(loss(start, F)), 0.0),
        at_least("with temperature: the loss", tempered, 0.0),
        close("with temperature: against the sum by hand", tempered, -by_hand, tolerance=1e-13),
        at_most(
            "divergence after 300 steps, over the initial one", divergence(F, right[-1]) / far, 0.1
        ),
        printed=[
            at_least("T = 1: the loss", softmax(F) @ log_softmax(start), 0.0),
            at_least("with temperature: the loss", by_hand, 0.0),
            at_most(
                "divergence after 300 steps, over the initial one",
                divergence(F, wrong[-1]) / far,
                0.1,
            ),
        ],
        figure=Panel(
            "step",
            "divergence from the teacher",
            log="y",
            lines={
                "corrected": (np.arange(301), divergence(F, right)),
                "printed": (np.arange(301), divergence(F, wrong)),
            },
        ),
    )


@claim(
    "8.9-distill-temperature",
    title="The loss at a temperature",
    kind="loss",
    of=("train.distillation_loss", "train.distil"),
    cites="Hinton, Vinyals & Dean 2015",
)
def tempered(rng):
    r"""$\ell = -\sum_y \mathrm{softmax}(F/T)_y \big(G_y / T - \log \sum_{y'} e^{G_{y'} / T}\big)$,
    which at $T = 1$ is the loss without temperature.
    """
    F = 3 * rng.normal(size=6)
    G = 3 * rng.normal(size=6)
    W = rng.normal(size=(4, 3))
    xs = jnp.asarray(rng.normal(size=(9, 3)))
    teacher = lambda x: jnp.asarray(W) @ x
    student = lambda x: jnp.tanh(jnp.asarray(W) @ x)
    checks = []
    for T in (0.5, 1.0, 2.0, 20.0):
        inside = -np.sum(softmax(F / T) * (G / T - np.log(np.sum(np.exp(G / T)))))
        probabilities = -np.sum(softmax(F / T) * np.log(softmax(G / T)))
        checks += [
            close(f"T = {T:g}", loss(G, F, T), inside),
            close(f"T = {T:g}, as a cross-entropy of probabilities", loss(G, F, T), probabilities),
            close(
                f"T = {T:g}, the mean over inputs",
                train.distil(teacher, temperature=T)(student, xs),
                np.mean([loss(student(x), teacher(x), T) for x in xs]),
                tolerance=1e-13,
            ),
        ]
    plain = train.log_loss(jnp.asarray(G), jnp.asarray(softmax(F)))
    return Verdict(
        *checks,
        close("T = 1, against the loss without temperature", loss(G, F), plain, tolerance=1e-13),
        refuted(
            close(
                "T = 2, with only the student's logits divided",
                loss(G, F, 2.0),
                -softmax(F) @ log_softmax(G / 2),
                tolerance=1e-3,
            )
        ),
    )


@claim(
    "8.9-temperature-soften",
    title="A high temperature softens the probabilities",
    kind="identity",
    of=("train.distillation_loss",),
    cites="Hinton, Vinyals & Dean 2015",
)
def soften(rng):
    r"""The entropy of $\mathrm{softmax}(F/T)$ rises with $T$, to $\log k$ as $T \to \infty$; as
    $T \to 0$ the probabilities become one-hot at the largest logit.
    """
    F = 2 * rng.normal(size=6)
    temperatures = np.geomspace(0.1, 100, 50)
    own = jax.vmap(
        lambda T: train.distillation_loss(jnp.asarray(F), jnp.asarray(F), temperature=T)
    )  # its entropy
    entropies = np.asarray(own(jnp.asarray(temperatures)))
    hot, cold = own(jnp.array([1e5, 1e-3]))
    gradient = lambda T: (
        T * jax.grad(lambda G: loss(G, F, T))(jnp.zeros(6))
    )  # 1/k minus the teacher's probabilities
    p = {T: 1 / 6 - np.asarray(gradient(T)) for T in (1e-3, 1.0, 1e8)}
    return Verdict(
        close(
            "the library's entropy", entropies, [entr(softmax(F / T)).sum() for T in temperatures]
        ),
        increasing("entropy at 50 temperatures", entropies),
        close("T → ∞: log k", hot, np.log(6), tolerance=1e-6),
        close("T → ∞: probabilities", p[1e8], np.full(6, 1 / 6), tolerance=1e-6),
        close("T → 0: entropy", cold, 0.0, tolerance=1e-6),
        close(
            "T → 0: one-hot at the largest logit", p[1e-3], np.eye(6)[F.argmax()], tolerance=1e-6
        ),
        refuted(close("T = 1: one-hot", p[1.0], np.eye(6)[F.argmax()], tolerance=1e-2)),
        figure=Panel(
            "temperature",
            "entropy (nats)",
            log="x",
            lines={"softmax(F/T)": (temperatures, entropies)},
            bounds={"log k": (temperatures[[0, -1]], np.full(2, np.log(6)))},
        ),
    )


@claim(
    "8.9-distill-grad",
    title="The gradient of the distillation loss",
    kind="identity",
    of=("train.distillation_loss",),
    cites="Hinton, Vinyals & Dean 2015",
)
def gradient(rng):
    r"""$\frac{\partial \ell}{\partial G_y} = \frac1T \big(\mathrm{softmax}(G/T)_y -
    \mathrm{softmax}(F/T)_y\big)$ for the loss that is minimised.
    """
    checks = []
    F = 2 * rng.normal(size=6)
    G = 2 * rng.normal(size=6)
    for T in (0.5, 1.0, 4.0):
        result = jax.grad(lambda G, T=T: loss(G, F, T))(jnp.asarray(G))
        checks += [
            close(f"T = {T:g}", result, (softmax(G / T) - softmax(F / T)) / T, tolerance=1e-13),
            close_derivative(
                f"T = {T:g}, by differences", result, jacobian(lambda G, T=T: loss(G, F, T), G)
            ),
        ]
    return Verdict(*checks)


@erratum(
    "8.9-distill-grad",
    title="A difference of probabilities, not of logits",
    printed=r"\text{the gradient is a difference of tempered logits}",
    corrected=r"\text{the gradient is a difference of tempered probabilities}",
    of=("train.distillation_loss",),
    cites="Hinton, Vinyals & Dean 2015",
    slip=True,
)
def gradient_printed(rng):
    r"""One word: the formula has $\mathrm{softmax}(F/T)_y$ and $\mathrm{softmax}(G/T)_y$, not
    $F_y / T$ and $G_y / T$. (Its sign belongs to the erratum of the loss.)
    """
    T = 2.0
    F = 2 * rng.normal(size=6)
    G = 2 * rng.normal(size=6)
    slope = jacobian(lambda G: loss(G, F, T), G)
    fd = {"tolerance": 1e-8, "method": "finite differences"}
    return Verdict(
        close(
            "student's probabilities minus teacher's, over T",
            (softmax(G / T) - softmax(F / T)) / T,
            slope,
            **fd,
        ),
        close(
            "the library's gradient", jax.grad(lambda G: loss(G, F, T))(jnp.asarray(G)), slope, **fd
        ),
        printed=[
            close("student's logits minus teacher's, over T", (G / T - F / T) / T, slope, **fd)
        ],
    )


@claim(
    "8.9-distill-highT",
    title="At high temperature, logits are matched",
    kind="theorem",
    of=("train.distillation_loss",),
    cites="Hinton, Vinyals & Dean 2015",
)
def high_temperature(rng):
    r"""As $T \to \infty$, $T^2\, \frac{\partial \ell}{\partial G_y} \to \frac1k \big((G_y - \bar G)
    - (F_y - \bar F)\big)$, with an error proportional to $1/T$: the student matches the teacher's
    logits, up to a constant.
    """
    k = 6
    F = rng.normal(size=k)
    G = rng.normal(size=k)
    temperatures = np.array([10.0, 100.0, 1000.0])
    slope = jax.vmap(
        lambda T: (
            T**2 * jax.grad(train.distillation_loss)(jnp.asarray(G), jnp.asarray(F), temperature=T)
        )
    )
    result = np.asarray(slope(jnp.asarray(temperatures)))
    limit = (centred(G) - centred(F)) / k
    error = np.abs(result - limit).max(axis=1)
    fit = np.polyfit(np.log(temperatures), np.log(error), 1)[0]
    return Verdict(
        between("slope of the error, on logarithmic axes", fit, -1.05, -0.95),
        at_most("error at T = 1000, over the largest entry", error[-1] / np.abs(limit).max(), 0.01),
        refuted(
            at_most(
                "without the factor T²",
                np.abs(result[-1] / 1e6 - limit).max() / np.abs(limit).max(),
                0.01,
            )
        ),
        figure=Panel(
            "temperature",
            "distance to the limit",
            log="xy",
            points={"measured": (temperatures, error)},
            bounds={"slope −1": (temperatures, error[-1] * 1000 / temperatures)},
        ),
    )


@claim(
    "8.9-distill-experiment",
    title="A distilled student is better than one trained on labels",
    kind="experiment",
    of=("train.distil", "models.MLP", "train.descend"),
    cites="Hinton, Vinyals & Dean 2015; Bucilă et al. 2006",
)
def taught(key, scale):
    r"""A teacher of two layers of 128 units learns digits from 100 labels. A student of 8 units
    that learns from its outputs on 2,000 unlabelled inputs is better than the same student trained
    on the labels.
    """
    seeds, steps = (20, 3000) if scale == "full" else (10, 1200)
    xs, ys = data.load("digits").train
    xs = jnp.asarray(xs.reshape(len(xs), -1))
    ys = jnp.asarray(ys)
    results = jax.jit(jax.vmap(lambda key: _taught(key, xs, ys, steps)))(jr.split(key, seeds))
    teacher, labelled, distilled = (np.asarray(a, np.float64) for a in results)
    return Verdict(
        at_least(
            f"seeds of {seeds} in which the distilled student is at least as good",
            int((distilled >= labelled).sum()),
            seeds * 8 // 10,
        ),
        at_least(
            "mean test accuracy, distilled minus trained on labels",
            (distilled - labelled).mean(),
            0.0,
        ),
        figure=Panel(
            "accuracy, trained on labels",
            "accuracy, distilled",
            points={"student, a seed": (labelled, distilled)},
            bounds={
                "equal": (np.sort(labelled), np.sort(labelled)),
                "the teachers' mean": (np.sort(labelled)[[0, -1]], np.full(2, teacher.mean())),
            },
        ),
    )


def _taught(key, xs, ys, steps):
    """Test accuracies of a teacher, of a student trained on the labels, and of the same student
    distilled.
    """
    key_rows, key_more, key_noise, key_teacher, key_student, key_batch = jr.split(key, 6)
    rows = jr.permutation(key_rows, len(xs))
    labelled_data = (xs[rows[:100]], ys[rows[:100]])
    test = (xs[rows[1300:]], ys[rows[1300:]])
    others = rows[100:1300][jr.randint(key_more, (2000,), 0, 1200)]
    unlabelled = xs[others] + 0.1 * jr.normal(key_noise, (2000, 64), jnp.float32)
    make = lambda key, *sizes: jax.tree.map(
        lambda a: a.astype(jnp.float32), models.MLP.init(64, *sizes, 10, key=key)
    )

    def fit(objective, model, batches, learning_rate):
        descent = train.descend(objective, optax.adam(learning_rate))
        return jax.lax.scan(
            lambda s, batch: descent.step(s, batch, key=key), descent.init(model), batches
        )[0].model

    few, many = (jr.randint(key_batch, (steps, 50), 0, n) for n in (100, 2000))
    teacher = fit(
        train.cross_entropy,
        make(key_teacher, 128, 128),
        jax.tree.map(lambda a: a[few[:200, :25]], labelled_data),
        3e-3,
    )
    student = make(key_student, 8)
    labelled = fit(
        train.cross_entropy, student, jax.tree.map(lambda a: a[few], labelled_data), 5e-3
    )
    distilled = fit(train.distil(teacher, temperature=2.0), student, unlabelled[many], 5e-3)
    return tuple(1 - train.error_rate(model, test) for model in (teacher, labelled, distilled))
