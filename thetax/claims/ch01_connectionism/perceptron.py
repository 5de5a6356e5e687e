"""The perceptron algorithm, on separable data and on data that are not separable."""

import jax
import jax.numpy as jnp
import numpy as np

from ... import models
from ...plot import Panel
from ..engine.check import at_least, at_most, close, equal, refuted
from ..engine.claim import Verdict, claim
from .points import separable_points

XOR = np.array([[0, 0], [1, 1], [0, 1], [1, 0]]), np.array([1, 1, -1, -1])
STEP = 2.0**-6  # coordinates are multiples of it, which makes every sum exact


def _algorithm(xs, ys, order):
    """Algorithm 1 step by step: the parameters after each update, the example that caused it, and
    the number of sweeps.
    """
    w = np.zeros(xs.shape[1])
    b = 0.0
    path = []
    index = []
    mistake = True
    sweeps = 0
    while mistake:
        mistake = False
        sweeps = sweeps + 1
        for i in order():
            if np.sign(w @ xs[i] + b) != ys[i]:
                w = w + ys[i] * xs[i]
                b = b + ys[i]
                mistake = True
                path.append(np.append(w, b))
                index.append(i)
    return np.array(path), np.array(index), sweeps


@claim(
    "1.2-perceptron-alg",
    title="The perceptron algorithm separates separable data",
    kind="algorithm",
    of=("models.fit_perceptron", "models.find_separator"),
    cites="Rosenblatt 1958",
)
def algorithm(key, rng):
    r"""From $w = 0$, $b = 0$ sweep the data, with $w \leftarrow w + yx$ and $b \leftarrow b + y$ on
    each misclassified $(x, y)$, until a sweep is clean. On separable data, in any order, it ends
    with $(w, b) \in V(S)$.
    """
    xs, ys, _ = separable_points(rng, 100, 20, 3, gap=0.1, step=STEP)
    data = jnp.asarray(xs), jnp.asarray(ys)
    fit = jax.vmap(models.fit_perceptron)(*data)
    keys = jax.random.split(key, 100)
    shuffled = jax.vmap(lambda x, y, key: models.fit_perceptron(x, y, key=key))(*data, keys)
    runs = [_algorithm(x, y, lambda: range(20)) for x, y in zip(xs, ys)]
    least = lambda unit: (
        ys * (np.einsum("knd,kd->kn", xs, unit.w) + np.asarray(unit.b)[:, None])
    ).min(axis=1)
    return Verdict(
        equal("weights", fit.model.v, [path[-1] for path, *_ in runs], method="brute force"),
        equal("updates", fit.mistakes, [len(path) for path, *_ in runs], method="brute force"),
        equal(
            "sweeps, including the clean one",
            fit.epochs,
            [sweeps for *_, sweeps in runs],
            method="brute force",
        ),
        equal("stopped after a clean sweep", fit.separated, True),
        at_least("least score, in the order given", least(fit.model), STEP**2, method="exact"),
        at_least("least score, in random orders", least(shuffled.model), STEP**2, method="exact"),
        refuted(equal("the weights do not depend on the order", shuffled.model.w, fit.model.w)),
        equal(
            "separable by the linear programme",
            [models.find_separator(x, y).separable for x, y in zip(xs, ys)],
            [True] * 100,
        ),
    )


@claim(
    "1.2-mistake-driven",
    title="Only mistakes change the weights",
    kind="identity",
    of=("models.perceptron_path", "models.fit_perceptron"),
    cites="Rosenblatt 1958",
)
def mistake_driven(rng):
    r"""An example that is classified correctly changes nothing, so $(w_t, b_t)$ is a function of
    the sequence of mistakes alone: replaying them without the data in between gives the same
    parameters.
    """
    xs, ys, _ = separable_points(rng, 30, 4, gap=0.05)
    path = models.perceptron_path(jnp.asarray(xs), jnp.asarray(ys), max_updates=2000)
    count = int(path.n_updates)
    index = np.asarray(path.indices)[:count]
    v = np.zeros(5)
    replayed = []
    for i in index:
        v = v + ys[i] * np.append(xs[i], 1.0)
        replayed.append(v)
    sweep_path, mistakes, _ = _algorithm(xs, ys, lambda: range(30))
    fit = models.fit_perceptron(xs, ys)
    vs = np.asarray(path.model.v)[1 : count + 1]
    return Verdict(
        equal("indices of the mistakes", index, mistakes, method="brute force"),
        equal("parameters after each mistake", vs, replayed),
        equal(
            "parameters after each mistake in sweeps over all data",
            sweep_path,
            replayed,
            method="brute force",
        ),
        equal("parameters of the fit", np.asarray(fit.model.v), replayed[-1]),
    )


@claim(
    "1.2-update-step",
    "1.2-fig1.3",
    title="One update turns w towards yx",
    kind="figure",
    of=("models.perceptron_path",),
    cites="Rosenblatt 1958",
)
def update_step(rng):
    r"""Without a bias an update on $(x, y)$ is $w_{t+1} = w_t + yx$, and raises the signed score of
    that example by exactly $\|x\|^2$: $y\,w_{t+1}^\top x = y\,w_t^\top x + \|x\|^2$.
    """
    xs, ys, _ = separable_points(rng, 40, 2, gap=0.02)
    path = models.perceptron_path(jnp.asarray(xs), jnp.asarray(ys), max_updates=400, bias=False)
    count = int(path.n_updates)
    w = np.asarray(path.model.w)
    i = np.asarray(path.indices)[:count]
    before = w[:count]
    after = w[1 : count + 1]
    z = ys[i, None] * xs[i]
    score = lambda w: np.einsum("td,td->t", w, z)
    t = int(
        np.argmax(
            np.linalg.norm(before, axis=1) * np.linalg.norm(z, axis=1) * (np.arange(count) > 0)
        )
    )
    arrow = lambda a, b: ([a[0], b[0]], [a[1], b[1]])
    across = 0.7 * np.outer(after[t], [-1, 1])
    return Verdict(
        close("score after - score before", score(after) - score(before), (xs[i] ** 2).sum(axis=1)),
        equal("w after", after, before + z),
        at_most("score before", score(before), 0.0, method="exact"),
        figure=Panel(
            "$w_1$",
            "$w_2$",
            equal_aspect=True,
            lines={
                "$w_t$": arrow([0, 0], before[t]),
                "$yx$": arrow(before[t], after[t]),
                "$w_{t+1}$": arrow([0, 0], after[t]),
            },
            bounds={"new boundary": (across[1], -across[0])},
        ),
    )


@claim(
    "1.2-nonseparable",
    title="On data that are not separable the algorithm never stops",
    kind="experiment",
    of=("models.fit_perceptron", "models.perceptron_path", "models.NotSeparable"),
    cites="Block & Levin 1970",
)
def nonseparable(key):
    r"""If $V(S) = \emptyset$ the algorithm never stops. On XOR, in integers, the second sweep
    begins and ends with the same $(w, b) = (-1, -1, -1)$: an endless cycle. The weights stay
    bounded.
    """
    xs, ys = map(jnp.asarray, XOR)
    sweep = jax.jit(
        lambda xs, ys, epochs: models.fit_perceptron(xs, ys, epochs=epochs), static_argnums=2
    )
    states = [np.asarray(fit.model.v) for fit in (sweep(xs, ys, epochs) for epochs in (1, 2, 3))]
    path = models.perceptron_path(xs, ys, max_updates=10_000)
    length = np.linalg.norm(np.asarray(path.model.v), axis=1)
    try:
        models.fit_perceptron(*XOR)
        certificate = np.full(4, np.nan)
    except models.NotSeparable as error:
        certificate = error.certificate
    return Verdict(
        equal("(w, b) after the first sweep", states[0], [-1, -1, -1]),
        equal(
            "(w, b) after the second and the third sweep", np.array(states[1:]).ravel(), [-1] * 6
        ),
        equal("updates among 10,000", path.n_updates, 10_000),
        at_most("largest ‖(w, b)‖ among them", length.max(), 2.0),
        equal("separable by the linear programme", models.find_separator(*XOR).separable, False),
        close("multipliers in the NotSeparable error", certificate, np.full(4, 0.25)),
        figure=Panel(
            "update",
            "‖(w, b)‖",
            lines={"XOR": (np.arange(25), length[:25])},
            title="the weights repeat a cycle",
        ),
    )


@claim(
    "1.2-span",
    title="The weights stay in the span of the data",
    kind="identity",
    of=("models.perceptron_path",),
)
def span(rng):
    r"""If $w_0$ lies in the span of $x_1, \dots, x_n$, so does every $w_t$; from any other $w_0$
    the part orthogonal to the span never changes.
    """
    xs, ys, _ = separable_points(rng, 4, 10, gap=0.1)
    w0 = rng.normal(size=10) - 3 * ys @ xs  # wrong on some example, like -Σyx
    outside = lambda w: w - np.linalg.lstsq(xs.T, w.T, rcond=None)[0].T @ xs
    run = lambda start: models.perceptron_path(
        jnp.asarray(xs),
        jnp.asarray(ys),
        max_updates=100,
        bias=False,
        start=models.Perceptron(jnp.asarray(start)),
    )
    from_span = run(-ys @ xs)
    from_outside = run(w0)
    largest_change = np.abs(np.diff(np.asarray(from_outside.model.w), axis=0)).max()
    return Verdict(
        at_most(
            "part of w_t outside the span",
            np.abs(outside(np.asarray(from_span.model.w))).max(),
            1e-10,
        ),
        close(
            "orthogonal part of w_t, started outside the span",
            outside(np.asarray(from_outside.model.w)),
            np.tile(outside(w0), (101, 1)),
            tolerance=1e-10,
        ),
        refuted(
            close(
                "w_t itself, started outside the span",
                np.asarray(from_outside.model.w),
                np.tile(w0, (101, 1)),
                tolerance=1e-10,
            )
        ),
        assumptions=[
            at_least("updates when started in the span", from_span.n_updates, 1, method="exact"),
            at_least(
                "largest change when started outside the span", largest_change, 0.1, method="exact"
            ),
        ],
    )


@claim(
    "1.2-xor",
    title="XOR is not linearly separable",
    kind="experiment",
    of=("models.find_separator",),
    cites="Minsky & Papert 1969",
)
def xor(key):
    r"""No line separates $(0, 0), (1, 1)$ from $(0, 1), (1, 0)$: the four constraints
    $y (w^\top x + b) > 0$ add up to $0 > 0$.
    """
    xs, ys = XOR
    separation = models.find_separator(xs, ys)
    rows = ys[:, None] * np.column_stack([xs, np.ones(4)])
    and_separation = models.find_separator(xs, np.array([-1, 1, -1, -1]))
    return Verdict(
        equal("separable", separation.separable, False),
        close("multipliers", separation.certificate, np.full(4, 0.25)),
        close("sum of the four constraints", np.ones(4) @ rows, np.zeros(3), method="exact"),
        equal("AND is separable", and_separation.separable, True),
        figure=Panel(
            "$x_1$",
            "$x_2$",
            points={"$y = +1$": (xs[:2, 0], xs[:2, 1]), "$y = -1$": (xs[2:, 0], xs[2:, 1])},
            equal_aspect=True,
            title="no line separates the classes",
        ),
    )
