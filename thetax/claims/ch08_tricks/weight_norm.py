"""§8.6: weight normalisation, its gradients, and their projection."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ... import layers, train
from ...core import iterate, predict
from ...plot import Panel
from ..engine.check import at_least, close, close_derivative, refuted
from ..engine.claim import Verdict, claim
from ..engine.differences import jacobian


def unit(v, gamma) -> layers.WeightNorm:
    r"""One unit, $w = \gamma v / \|v\|$, without a bias."""
    return layers.WeightNorm(jnp.asarray(v)[None], jnp.asarray(gamma, float)[None], jnp.zeros(1))


def target(X):
    """A target that no linear unit can represent."""
    return 1 + jnp.sin(3 * X[:, 0])


def squares(f: layers.WeightNorm, X) -> jax.Array:
    r"""$\frac1n \sum_i \tanh^2(w^\top x_i - y_i)$: a loss that is not convex."""
    return jnp.square(jnp.tanh(predict(f, jnp.asarray(X))[:, 0] - target(X))).mean()


def by_weights(w: np.ndarray, X: np.ndarray, b: float = 0.0) -> np.ndarray:
    r"""$\partial \ell / \partial w$ of the same loss, by hand, at the bias $b$."""
    t = np.tanh(X @ w + b - np.asarray(target(X)))
    return (2 * t * (1 - t**2)) @ X / len(X)


@partial(jax.jit, static_argnames="steps")
def descent(f: layers.WeightNorm, X, eta, steps: int) -> layers.WeightNorm:
    """The unit after each step."""
    iteration = train.descend(lambda f, batch, key=None: squares(f, X), optax.sgd(eta))
    return iterate(iteration, f, steps, record=lambda state: state.model)[1][0]


@claim(
    "8.6-weight-norm",
    title="Weight normalisation",
    kind="layer",
    of=("layers.WeightNorm",),
    cites="Salimans & Kingma 2016",
)
def weight_norm(rng):
    r"""$f(x) = \varphi(w^\top x)$ with $w = \gamma v / \|v\|_2$: the length is $\|w\| = |\gamma|$,
    and only the direction of $v$ matters: $v \mapsto cv$ changes nothing for $c > 0$.
    """
    V = rng.normal(size=(4, 3))
    gamma = np.array([2.0, -1.3, 0.5, 1.0])
    b = rng.normal(size=4)
    X = rng.normal(size=(6, 3))
    make = lambda V: layers.WeightNorm(jnp.asarray(V), jnp.asarray(gamma), jnp.asarray(b))
    result = np.asarray(predict(make(V), jnp.asarray(X)))
    rows = np.array([g * v / np.sqrt(v @ v) for g, v in zip(gamma, V)])
    return Verdict(
        close("against the formula", result, X @ rows.T + b, tolerance=1e-13),
        close(
            "norms of the rows", np.linalg.norm(make(V).W, axis=1), np.abs(gamma), tolerance=1e-14
        ),
        close("with 7.5 v", predict(make(7.5 * V), jnp.asarray(X)), result, tolerance=1e-13),
        refuted(close("with −v", predict(make(-V), jnp.asarray(X)), result, tolerance=1e-3)),
    )


@claim(
    "8.6-wn-grad-gamma",
    "8.6-wn-grad-v",
    title="Gradients of a normalised weight",
    kind="identity",
    of=("layers.WeightNorm",),
    cites="Salimans & Kingma 2016",
)
def gradients(rng):
    r"""$\frac{\partial \ell}{\partial \gamma} = \frac{\partial \ell}{\partial w} \frac{v}{\|v\|}$
    and
    $\frac{\partial \ell}{\partial v} = \frac{\gamma}{\|v\|} \frac{\partial \ell}{\partial w} \big(I
    - \frac{w w^\top}{\|w\|^2}\big)$,
    also for $\gamma < 0$.
    """
    checks = []
    X = rng.normal(size=(30, 4))
    v = rng.normal(size=4)
    length = np.linalg.norm(v)
    loss = lambda v, gamma: squares(unit(v, gamma), X)
    slopes = jax.grad(loss, argnums=(0, 1))
    for gamma in (0.8, -1.3):
        w = gamma * v / length
        to_w = by_weights(w, X)
        by_v, by_gamma = (np.asarray(g) for g in slopes(jnp.asarray(v), jnp.asarray(gamma)))
        lines = {  # the steps of the derivation
            "through dw/dv": to_w @ (gamma * (np.eye(4) / length - np.outer(v, v) / length**3)),
            "1/‖v‖ factored out": gamma / length * to_w @ (np.eye(4) - np.outer(v, v) / length**2),
            "v in terms of w": gamma / length * to_w @ (np.eye(4) - np.outer(w, w) / (w @ w)),
        }
        checks += [
            close(f"γ = {gamma}: ∂ℓ/∂γ", by_gamma, to_w @ v / length, tolerance=1e-13),
            close_derivative(
                f"γ = {gamma}: ∂ℓ/∂γ by differences",
                by_gamma[None],
                jacobian(lambda g: loss(v, g[0]), [gamma]),
            ),
            *(
                close(f"γ = {gamma}: ∂ℓ/∂v, {name}", by_v, value, tolerance=1e-13)
                for name, value in lines.items()
            ),
            close_derivative(
                f"γ = {gamma}: ∂ℓ/∂v by differences",
                by_v,
                jacobian(lambda v, g=gamma: loss(v, g), v),
            ),
            refuted(
                close(
                    f"γ = {gamma}: without the projection",
                    by_v,
                    gamma / length * to_w,
                    tolerance=1e-4,
                )
            ),
        ]
    return Verdict(*checks)


@claim(
    "8.6-wn-projection",
    title="The norm of v never decreases",
    kind="theorem",
    of=("layers.WeightNorm", "train.descend"),
    cites="Salimans & Kingma 2016",
)
def projection(rng):
    r"""$P = I - w w^\top / \|w\|^2$ projects onto $w^\perp$. So
    $v^\top \partial \ell / \partial v = 0$, and gradient descent never shortens $v$:
    $\|v_{t+1}\|^2 = \|v_t\|^2 + \eta^2 \|\partial \ell / \partial v\|^2$.
    """
    eta = 0.5
    X = rng.normal(size=(30, 4))
    v = 0.1 * rng.normal(size=4)
    start = unit(v, -1.3)
    w = np.asarray(start.W)[0]
    P = np.eye(4) - np.outer(w, w) / (w @ w)
    way = descent(start, X, eta, 100)
    V = np.concatenate([v[None], np.asarray(way.V)[:, 0]])
    gamma = np.concatenate([[-1.3], np.asarray(way.gamma)[:, 0]])
    W = gamma[:, None] * V / np.linalg.norm(V, axis=1, keepdims=True)
    offsets = np.concatenate([[0.0], np.asarray(way.b)[:, 0]])  # learned together with the weights
    to_w = np.array([by_weights(w, X, b) for w, b in zip(W, offsets)])
    across = to_w - np.sum(to_w * W, axis=1, keepdims=True) * W / np.sum(
        W**2, axis=1, keepdims=True
    )
    to_v = (gamma / np.linalg.norm(V, axis=1))[:, None] * across
    square = np.sum(V**2, axis=1)
    t = np.arange(101)
    along = np.sum(V * to_v, axis=1) / np.linalg.norm(V, axis=1)
    result = np.asarray(jax.grad(squares)(start, X).V)[0]
    return Verdict(
        close("PP = P", P @ P, P, tolerance=1e-14),
        close("P is symmetric", P, P.T, tolerance=0.0),
        close("Pw", P @ w, 0.0, tolerance=1e-14),
        close("the gradient is in the image of P", P @ result, result, tolerance=1e-13),
        close("the component of ∂ℓ/∂v along v, at all 101 iterates", along, 0.0),
        close(
            "growth of ‖v‖² in each of 100 steps",
            np.diff(square),
            eta**2 * np.sum(to_v[:-1] ** 2, axis=1),
            tolerance=1e-13,
        ),
        at_least("‖v‖² never decreases", np.diff(square), 0.0, slack=1e-14),
        close(
            "against a step of gradient descent by hand",
            V[1:],
            V[:-1] - eta * to_v[:-1],
            tolerance=1e-13,
        ),
        refuted(
            close(
                "growth with η in place of η²",
                np.diff(square),
                eta * np.sum(to_v[:-1] ** 2, axis=1),
                tolerance=1e-4,
            )
        ),
        figure=Panel(
            "step", "length", lines={"of v": (t, np.sqrt(square)), "of w": (t, np.abs(gamma))}
        ),
    )


@claim(
    "8.6-wn-bn-equiv",
    title="When weight norm equals batch norm",
    kind="identity",
    of=("layers.WeightNorm", "layers.BatchNorm"),
    cites="Salimans & Kingma 2016",
)
def as_batch_norm(rng):
    r"""If $\|w\|_I / \|w\|_\Sigma = 1$, as for whitened inputs ($\mathbb{E} x = 0$,
    $\mathrm{Cov}(x) = I$), a batch norm of mean $\mu = 0$ after $v^\top x$ is the weight norm
    $\gamma v^\top x / \|v\|$.
    """
    raw = rng.normal(size=(200, 4)) @ rng.normal(size=(4, 4))
    centred = raw - raw.mean(axis=0)
    values, Q = np.linalg.eigh(np.cov(centred.T, bias=True))
    white = centred @ (Q / np.sqrt(values)) @ Q.T  # ZCA
    v = rng.normal(size=4)
    gamma = 1.7
    batch = layers.Chain(
        layers.Linear(jnp.asarray(v)[None]), layers.BatchNorm(jnp.array([gamma]), jnp.zeros(1), 0.0)
    )
    both = lambda X: [np.asarray(predict(f, jnp.asarray(X)))[:, 0] for f in (unit(v, gamma), batch)]
    (weight, over_batch), (other, over_other) = both(white), both(centred)
    return Verdict(
        close("batch norm and weight norm on whitened inputs", over_batch, weight, tolerance=1e-10),
        close("against γ v·x / ‖v‖", weight, gamma * white @ v / np.linalg.norm(v)),
        refuted(close("on the raw inputs", over_other, other, tolerance=1e-2)),
        assumptions=[
            close("mean of the inputs", white.mean(axis=0), np.zeros(4)),
            close("their covariance", np.cov(white.T, bias=True), np.eye(4), tolerance=1e-10),
        ],
        figure=Panel(
            "weight norm",
            "batch norm",
            equal_aspect=True,
            points={
                "raw inputs": (other, over_other),
                "whitened": (weight, over_batch),
            },
        ),
    )


@claim(
    "8.6-fig-projection",
    title="Diagram: the gradient without its component along w",
    kind="figure",
    of=("layers.WeightNorm", "train.descend"),
    cites="Salimans & Kingma 2016",
)
def picture(rng):
    r"""Every step of a weight norm is orthogonal to the weights: the component of
    $-\partial \ell / \partial w$ along $w$ is removed, and $v$ moves at a right angle to itself in
    every step.
    """
    eta = 2.0
    steps = 6
    X = rng.normal(size=(30, 2))
    angle = np.linspace(0, 2 * np.pi, 100)
    starts = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    pulls = np.array([-by_weights(w, X) for w in starts])
    cosines = np.sum(pulls * starts, axis=1) / np.linalg.norm(pulls, axis=1)
    parts = np.linalg.norm(pulls, axis=1) * np.minimum(np.abs(cosines), np.sqrt(1 - cosines**2))
    first = np.argmax(parts)  # from here both components of the gradient are visible
    v = starts[first]
    raw = pulls[first]
    descent = train.descend(lambda f, batch, key=None: squares(f, X), optax.sgd(eta))
    way = jax.jit(lambda f: iterate(descent, f, steps, record=lambda s: s.model)[1][0])(
        unit(v, 1.0)
    )
    V = np.concatenate([v[None], np.asarray(way.V)[:, 0]])
    moves = np.diff(V, axis=0)
    across = raw - (raw @ v) * v
    line = lambda start, by: (
        np.array([start[0], start[0] + by[0]]),
        np.array([start[1], start[1] + by[1]]),
    )
    turns = np.unwrap(np.arctan2(V[:, 1], V[:, 0]))
    arc = np.linspace(turns.min() - 0.2, turns.max() + 0.2, 50)
    arcs = lambda wave: np.concatenate([np.append(np.linalg.norm(u) * wave, np.nan) for u in V])
    cosine = np.sum(moves * V[:-1], axis=1) / (
        np.linalg.norm(moves, axis=1) * np.linalg.norm(V[:-1], axis=1)
    )
    return Verdict(
        close("cosine of each drawn step with v", cosine, 0.0),
        close(
            "the first drawn step, against −η times the component of ∂ℓ/∂w orthogonal to v",
            moves[0],
            eta * across,
        ),
        refuted(close("cosine of −∂ℓ/∂w with v", cosines[first], 0.0, tolerance=1e-3)),
        figure=Panel(
            "first weight",
            "second weight",
            equal_aspect=True,
            lines={
                "v": line(np.zeros(2), v),
                "−η ∂ℓ/∂w": line(v, eta * raw),
                "its component orthogonal to v": line(v, eta * across),
            },
            points={"v, step by step": (V[:, 0], V[:, 1])},
            bounds={"norms of v": (arcs(np.cos(arc)), arcs(np.sin(arc)))},
        ),
    )
