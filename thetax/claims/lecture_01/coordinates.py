"""Lecture 1: coordinates in which a problem is easy, and the training loop that finds them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from scipy.optimize import linprog

from ... import layers, models, train
from ...core import iterate
from ...layers import Linear
from ...plot import Chart, Panel
from ..engine.check import at_least, close, equal, refuted
from ..engine.claim import Verdict, claim


def ring_and_disc(rng, n=60):
    """Points of a disc of radius 1, labelled −1, and of a ring from radius 1.5 to 2.5 around it,
    labelled +1.
    """
    radius = np.r_[np.sqrt(rng.uniform(0, 1, n)), np.sqrt(rng.uniform(1.5**2, 2.5**2, n))]
    angle = rng.uniform(-np.pi, np.pi, 2 * n)
    return np.c_[radius * np.cos(angle), radius * np.sin(angle)], np.repeat([-1, 1], n)


def polar(xs):
    """The radius and the angle of each point."""
    return np.c_[np.linalg.norm(xs, axis=1), np.arctan2(xs[:, 1], xs[:, 0])]


def _programme(xs, ys):
    """Whether some (w, b) has y (wᵀx + b) ≥ 1 on all points, by a separate linear programme."""
    rows = ys[:, None] * np.c_[xs, np.ones(len(xs))]
    return (
        linprog(
            np.zeros(rows.shape[1]), A_ub=-rows, b_ub=-np.ones(len(rows)), bounds=(None, None)
        ).status
        == 0
    )


def _scores(unit, xs):
    """wᵀx + b by NumPy; 0 where there is no separator."""
    return np.zeros(len(xs)) if unit is None else np.c_[xs, np.ones(len(xs))] @ np.asarray(unit.v)


def by_label(xs, ys):
    """The two classes of a plane as the points of a panel."""
    return {name: tuple(xs[ys == y].T[:2]) for name, y in (("disc", -1), ("ring", 1))}


@claim(
    "L1-coordinate-change",
    title="New coordinates make classes separable",
    kind="experiment",
    of=("models.find_separator", "models.fit_perceptron"),
)
def coordinate_change(rng):
    r"""A disc within a ring: no line separates them in $(x_1, x_2)$. In polar coordinates
    $(r, \varphi)$, or with $\|x\|^2$ as a third coordinate, a plane does, and the perceptron finds
    one.
    """
    xs, ys = ring_and_disc(rng)
    views = {
        "polar coordinates": polar(xs),
        "with ‖x‖² as a third coordinate": np.c_[xs, np.square(xs).sum(axis=1)],
    }
    raw = models.find_separator(xs, ys)
    alpha = np.zeros(len(xs)) if raw.certificate is None else raw.certificate
    checks = [
        equal("plane, raw: separable", raw.separable, False),
        equal(
            "plane, raw: a linear programme is feasible",
            _programme(xs, ys),
            False,
            method="brute force",
        ),
        close(
            "combination of the signed points that is 0",
            alpha @ (ys[:, None] * np.c_[xs, np.ones(len(xs))]),
            0.0,
            tolerance=1e-9,
        ),
        close("and the sum of its weights", alpha.sum(), 1.0, tolerance=1e-9),
    ]
    for name, view in views.items():
        result = models.find_separator(view, ys)
        fit = models.fit_perceptron(view, ys, epochs=5000)
        score = lambda unit, view=view: ys * _scores(unit, view)
        checks += [
            equal(
                f"{name}: a linear programme is feasible",
                _programme(view, ys),
                True,
                method="brute force",
            ),
            at_least(
                f"{name}: smallest score of the separator",
                score(result.model).min(),
                np.nextafter(0, 1),
            ),
            at_least(
                f"{name}: smallest score of the perceptron",
                score(fit.model).min(),
                np.nextafter(0, 1),
            ),
        ]
    w_r, w_angle, b = np.asarray(models.max_margin(polar(xs), ys).model.v)
    angle = np.array([-np.pi, np.pi])
    line = -(b + w_angle * angle) / w_r
    return Verdict(
        *checks,
        figure=Chart(
            Panel(
                "x₁", "x₂", points=by_label(xs, ys), equal_aspect=True, title="No line separates"
            ),
            Panel(
                "length r",
                "angle φ",
                points=by_label(polar(xs), ys),
                bounds={"a line": (line, angle)},
                title="In polar coordinates",
            ),
        ),
    )


def _trained(key, xs, labels, steps=400):
    """A network of two hidden layers after full-batch Adam."""
    net = models.MLP.init(2, 8, 8, 1, activation=layers.tanh, initialiser=layers.glorot, key=key)
    objective = lambda model, batch, key: train.binary_cross_entropy(model, (xs, labels))
    descent = train.descend(objective, optax.adam(0.03))
    return jax.jit(lambda net: iterate(descent, net, steps, key=key)[0].model)(net)


@claim(
    "L1-nested-representation",
    title="A network is a chain of coordinate changes",
    kind="experiment",
    of=("models.MLP", "models.find_separator", "train.descend"),
)
def nested(key, rng):
    r"""A network $F_L \circ \dots \circ F_1$ changes coordinates layer by layer,
    $h_\ell = F_\ell(h_{\ell-1})$. Trained on a disc within a ring, which no line separates, it ends
    in a hidden layer in which a plane does.
    """
    xs, ys = ring_and_disc(rng)
    net = _trained(key, jnp.asarray(xs), jnp.asarray((ys + 1) // 2))
    views = [xs]
    for part in net.body.layers:
        views.append(np.asarray(jax.vmap(part)(jnp.asarray(views[-1]))))
    h = xs
    for affine in net.body.layers[::2]:
        h = h @ np.asarray(affine.W).T + np.asarray(affine.b)
        h = h if affine is net.body.layers[-1] else np.tanh(h)
    last = models.find_separator(views[4], ys)
    score = _scores(last.model, views[4])
    across = views[4] - views[4].mean(axis=0)
    across = across @ np.linalg.svd(across, full_matrices=False)[2][1]
    return Verdict(
        close(
            "stepwise, against the whole network",
            views[-1],
            jax.vmap(net)(jnp.asarray(xs)),
            tolerance=1e-13,
        ),
        close("stepwise, against NumPy", views[-1], h),
        equal(
            "the raw data: a linear programme is feasible",
            _programme(xs, ys),
            False,
            method="brute force",
        ),
        equal("the raw data are separable", models.find_separator(xs, ys).separable, False),
        equal(
            "the last hidden layer: a linear programme is feasible",
            _programme(views[4], ys),
            True,
            method="brute force",
        ),
        at_least(
            "the last hidden layer: smallest score of its separator",
            (ys * score).min(),
            np.nextafter(0, 1),
        ),
        figure=Chart(
            Panel("x₁", "x₂", points=by_label(xs, ys), equal_aspect=True, title="The data"),
            Panel(
                "score of a separating plane",
                "second principal component",
                points=by_label(np.c_[score, across], ys),
                vertical_lines={"the plane": 0.0},
                title="The last hidden layer",
            ),
        ),
    )


class _Recorder(eqx.Module):
    """A linear model that records every call."""

    linear: Linear
    calls: list = eqx.field(static=True)

    def __call__(self, x):
        self.calls.append("prediction")
        return self.linear(x)


def _order(xs, ys):
    """The order of calls in three steps of the library's gradient descent."""
    calls = []

    def loss(prediction, y):
        calls.append("loss")
        return train.squared_loss(prediction, y)

    def update(updates, state, params=None):
        calls.append("update")
        return optax.sgd(0.1).update(updates, state, params)

    step = train.descend(
        train.batch_mean(loss), optax.GradientTransformation(optax.sgd(0.1).init, update)
    )
    state = step.init(_Recorder(Linear(jnp.zeros((1, xs.shape[1]))), calls))
    for _ in range(3):
        state, _ = step.step(state, (xs, ys), key=jr.key(0))
    return calls


@claim(
    "L1-training-loop",
    title="The training loop",
    kind="algorithm",
    of=("train.descend", "core.iterate"),
    cites="Chollet 2017",
)
def training_loop(key, rng):
    r"""The weights give a prediction, the prediction and the target a loss, and the loss an update
    of the weights, $\theta_{t+1} = \theta_t - \eta \nabla \ell(\theta_t)$, repeatedly. On least
    squares it reaches the loss of the normal equations.
    """
    xs = rng.normal(size=(40, 3))
    ys = rng.normal(size=40)
    eta = 0.3
    steps = 300
    batch = jnp.asarray(xs), jnp.asarray(ys)
    descent = train.descend(lambda model, _, key: train.squared_error(model, batch), optax.sgd(eta))
    start = Linear(jnp.asarray(rng.normal(size=(1, 3))))
    loop = jax.jit(
        lambda model: iterate(descent, model, steps, key=key, record=lambda state: state.model.W[0])
    )
    path = np.concatenate([np.asarray(start.W), (record := loop(start)[1])[0]])
    slopes = (path @ xs.T - ys) @ xs / 40
    best = np.linalg.lstsq(xs, ys, rcond=None)[0]
    least = np.square(xs @ best - ys).mean() / 2
    loss = np.square(path @ xs.T - ys).mean(axis=1) / 2
    order = ["prediction", "loss", "update"] * 3
    stale = path[1:-1] - eta * slopes[:-2]
    return Verdict(
        close(
            "loss after 300 steps, against LAPACK's least squares", loss[-1], least, tolerance=1e-6
        ),
        close("each step, by the gradient at its start", path[1:], path[:-1] - eta * slopes[:-1]),
        refuted(close("each step, by the gradient one step back", path[2:], stale)),
        equal("the order of three steps", _order(*batch), order),
        close("the reported losses", record[1].loss, loss[:-1]),
        figure=Panel(
            "step",
            "loss above the minimum",
            lines={"descent": (np.arange(61), loss[:61] - least)},
            log="y",
        ),
    )
