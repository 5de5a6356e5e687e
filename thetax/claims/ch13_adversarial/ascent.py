r"""§13.2: projected gradient ascent (PGD) in a ball, and its single step (FGSM)."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy.optimize import minimize

from ...attack import PGD, fgsm, margin_loss, perturb
from ...core import predict
from ...layers import Linear
from ...models import MLP
from ...threat import L2, Linf
from ...train import log_loss
from ..engine.check import at_least, at_most, close, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.numpy_rng import numpy_rng

D = 4
IDENTITY = lambda x: x


def nearest(z: np.ndarray, constraint: Any) -> np.ndarray:
    """The point of a convex set nearest to z, by a solver."""
    result = minimize(
        lambda eta: np.square(eta - z).sum(),
        np.zeros(len(z)),
        constraints=[constraint],
        options={"ftol": 1e-15, "maxiter": 300},
    )
    return result.x


def projection_checks(ball: Any, constraint: Any, key: Any) -> list[Any]:
    """Checks of a projection: the nearest point, and that distances do not increase."""
    zs = 1.5 * numpy_rng(key).normal(size=(12, D))
    ours = np.asarray(jax.vmap(ball.project)(jnp.asarray(zs)))
    solved = np.array([nearest(z, constraint) for z in zs])
    pairwise = lambda points: np.linalg.norm(points[:, None] - points[None], axis=-1)
    return [
        close("the nearest point, by SLSQP", ours, solved, tolerance=1e-5, method="brute force"),
        at_most("distances after minus distances before", pairwise(ours) - pairwise(zs), 1e-12),
    ]


def best_random(net: Any, xs: Any, ys: Any, ball: Any, key: Any, count: int = 10_000) -> np.ndarray:
    """The largest loss among random points of the ball, for each example."""
    draws = jax.vmap(lambda key: ball.sample(key, (D,)))(jr.split(key, count))
    return np.asarray(
        jax.vmap(lambda x, y: jax.vmap(lambda eta: log_loss(net(x + eta), y))(draws).max())(xs, ys)
    )


def loss_at(net: Any, points: Any, ys: Any) -> np.ndarray:
    """The loss of each example at its own point."""
    return np.asarray(jax.vmap(log_loss)(predict(net, points), ys))


def examples(key: Any) -> tuple[MLP, Any, Any]:
    """A network, inputs, and its predicted classes."""
    key_net, key_data = jr.split(key)
    net = MLP.init(D, 24, 3, key=key_net)
    xs = jr.normal(key_data, (40, D))
    return net, xs, jnp.argmax(predict(net, xs), axis=-1)


def ascent_limit(ball: Any, c: Any) -> Any:
    """The limit of ascent on −‖η − c‖²."""
    hill = PGD(
        lambda out, y: -jnp.square(out - c).sum(),
        ball,
        step_size=0.1,
        schedule=lambda t: 0.97**t,
        steps=700,
    )
    return np.asarray(hill(IDENTITY, jnp.zeros(len(c)), jnp.array(0)))


@claim(
    "13.2-pgd-l2",
    title="PGD in the Euclidean ball",
    kind="algorithm",
    of=("attack.PGD", "threat.L2"),
    cites="Madry et al. 2018",
)
def euclidean(key, rng):
    r"""$\eta \leftarrow \Pi_\varepsilon(\eta + \alpha \nabla_x \ell(x + \eta))$ with the projection
    $\Pi_\varepsilon(z) = z \min(1, \varepsilon / \|z\|_2)$. A linear loss is largest at
    $\varepsilon \nabla / \|\nabla\|$; a maximum inside the ball is found; and on a network none of
    10,000 random points in the ball has a larger loss.

    The step is taken along $\nabla / \|\nabla\|$, so that its length does not depend on the scale
    of the loss.
    """
    ball = L2(0.8)
    eps = 0.8
    w = jnp.asarray(rng.normal(size=D))
    linear = PGD(lambda out, y: out @ w, ball, step_size=0.3, steps=20)(
        IDENTITY, jnp.zeros(D), jnp.array(0)
    )
    c = jnp.asarray([0.3, -0.2, 0.1, 0.25])
    net, xs, ys = examples(key)
    result = perturb(
        net,
        (xs, ys),
        PGD(log_loss, ball, step_size=0.3, schedule=lambda t: 0.94**t, steps=60, restarts=40),
        key=key,
    ).xs
    return Verdict(
        *projection_checks(ball, {"type": "ineq", "fun": lambda eta: eps**2 - eta @ eta}, key),
        close(
            "a linear loss",
            np.asarray(linear),
            eps * np.asarray(w / jnp.linalg.norm(w)),
            tolerance=1e-9,
        ),
        close("a maximum inside", ascent_limit(ball, c), np.asarray(c), tolerance=1e-6),
        at_most("lengths", np.linalg.norm(np.asarray(result - xs), axis=1), eps * (1 + 1e-12)),
        at_least(
            "loss minus that of the best of 10,000 random points",
            loss_at(net, result, ys) - best_random(net, xs, ys, ball, key),
            -1e-9,
        ),
    )


def printed_ascent(c: np.ndarray, eps: float, norm: Any, steps: int = 400) -> np.ndarray:
    """Ascent on −‖η − c‖² with ε z / ‖z‖ after every step."""
    eta = np.zeros_like(c)
    for _ in range(steps):
        z = eta - 0.1 * 2 * (eta - c)
        eta = eps * z / norm(z)
    return eta


@erratum(
    "13.2-pgd-l2",
    title="Projection must not move interior points",
    printed=r"\Pi_\varepsilon(z) = \varepsilon \frac{z}{\|z\|_2}",
    corrected=r"\Pi_\varepsilon(z) = z \min\Big(1, \frac{\varepsilon}{\|z\|_2}\Big)",
    of=("threat.L2",),
)
def euclidean_printed(key):
    r"""As printed every point is moved to the sphere, interior points too: from the maximum
    $(0.3, 0)$ of $-\|\eta - c\|^2$ in the ball of radius 1 it goes to $(1, 0)$, and the loss is
    $-0.49$ instead of 0.
    """
    c = np.array([0.3, 0.0])
    eta = printed_ascent(c, 1.0, np.linalg.norm)
    z = np.array([0.2, -0.1])
    short = {"type": "ineq", "fun": lambda eta: 1 - eta @ eta}
    return Verdict(
        close("the maximum inside", ascent_limit(L2(1.0), jnp.asarray(c)), c, tolerance=1e-6),
        close(
            "a point inside",
            np.asarray(L2(1.0).project(jnp.asarray(z))),
            nearest(z, short),
            tolerance=1e-6,
            method="brute force",
        ),
        close("the printed loss", -np.square(eta - c).sum(), -0.49, tolerance=1e-9),
        printed=[
            close("the maximum inside", eta, c, tolerance=1e-6),
            close(
                "a point inside",
                z / np.linalg.norm(z),
                nearest(z, short),
                tolerance=1e-6,
                method="brute force",
            ),
        ],
    )


@claim(
    "13.2-pgd-linf",
    title="PGD in the cube",
    kind="algorithm",
    of=("attack.PGD", "threat.Linf"),
    cites="Madry et al. 2018",
)
def cube(key, rng):
    r"""$\eta \leftarrow \mathrm{clip}(\eta + \alpha\, \mathrm{sgn}(\nabla_x \ell(x + \eta)),
    -\varepsilon, \varepsilon)$: clipping is the Euclidean projection. A linear loss is largest at
    $\varepsilon\,
    \mathrm{sgn}(w)$, which is reached from any start once the steps sum to $2\varepsilon$; a
    maximum inside is found; no coordinate leaves the cube.
    """
    ball = Linf(0.6)
    eps = 0.6
    w = jnp.asarray(rng.normal(size=D))
    steps = PGD(lambda out, y: out @ w, ball, step_size=0.3, steps=4)
    linear = jnp.stack(
        [steps(IDENTITY, jnp.zeros(D), jnp.array(0), key=one) for one in jr.split(key, 5)]
    )
    c = jnp.asarray([0.3, -0.2, 0.1, 0.25])
    net, xs, ys = examples(key)
    result = perturb(
        net,
        (xs, ys),
        PGD(log_loss, ball, step_size=0.3, schedule=lambda t: 0.94**t, steps=60, restarts=40),
        key=key,
    ).xs
    return Verdict(
        *projection_checks(
            ball,
            {"type": "ineq", "fun": lambda eta: eps - np.abs(np.concatenate([eta, -eta]))},
            key,
        ),
        close(
            "a linear loss, from five starts", np.asarray(linear), np.tile(eps * np.sign(w), (5, 1))
        ),
        close("a maximum inside", ascent_limit(ball, c), np.asarray(c), tolerance=1e-6),
        at_most("largest change", np.abs(np.asarray(result - xs)).max(), eps + 1e-15),
        at_least(
            "loss minus that of the best of 10,000 random points",
            loss_at(net, result, ys) - best_random(net, xs, ys, ball, key),
            -1e-9,
        ),
    )


@erratum(
    "13.2-pgd-linf",
    title="Rescaling is not projection onto a cube",
    printed=r"\Pi_\varepsilon(z) = \varepsilon \frac{z}{\|z\|_\infty}",
    corrected=r"\Pi_\varepsilon(z)_i = \min(\max(z_i, -\varepsilon), \varepsilon)",
    of=("threat.Linf",),
)
def cube_printed(key):
    r"""For $(3, 0.5)$ and $\varepsilon = 1$ the printed formula gives $(1, 0.167)$, but $(1, 0.5)$
    is nearer; and it moves a maximum inside the cube.
    """
    z = np.array([3.0, 0.5])
    c = np.array([0.3, 0.2])
    box = {"type": "ineq", "fun": lambda eta: 1 - np.abs(np.concatenate([eta, -eta]))}
    largest = lambda z: np.abs(z).max()
    return Verdict(
        close(
            "the nearest point",
            np.asarray(Linf(1.0).project(jnp.asarray(z))),
            nearest(z, box),
            tolerance=1e-6,
            method="brute force",
        ),
        close("the maximum inside", ascent_limit(Linf(1.0), jnp.asarray(c)), c, tolerance=1e-6),
        close("the result of the printed formula", z / largest(z), [1.0, 0.1667], tolerance=1e-4),
        printed=[
            close(
                "the nearest point",
                z / largest(z),
                nearest(z, box),
                tolerance=1e-6,
                method="brute force",
            ),
            close("the maximum inside", printed_ascent(c, 1.0, largest), c, tolerance=1e-6),
        ],
    )


@claim(
    "13.2-fgsm",
    title="The fast gradient sign method",
    kind="algorithm",
    of=("attack.fgsm", "attack.PGD"),
    cites="Goodfellow, Shlens & Szegedy 2015",
)
def one_step(key, rng):
    r"""$\eta = \varepsilon\, \mathrm{sgn}(\nabla_x \ell(x))$ is a single step of PGD from 0 with
    $\alpha \ge \varepsilon$. For a linear model it is the worst perturbation, and increases the
    loss by $\varepsilon \|w\|_1$; for a network several steps do no worse on 95 % of the inputs. It
    is ascent, not descent.
    """
    eps = 0.3
    w = jnp.asarray(rng.normal(size=D))
    slope = lambda out, y: out @ w
    step = fgsm(slope, Linf(eps))(IDENTITY, jnp.zeros(D), jnp.array(0))
    net, xs, ys = examples(key)
    fast = perturb(net, (xs, ys), fgsm(log_loss, Linf(eps))).xs
    signs = np.sign(np.asarray(jax.vmap(jax.grad(lambda x, y: log_loss(net(x), y)))(xs, ys)))
    longer = perturb(
        net, (xs, ys), PGD(log_loss, Linf(eps), step_size=2 * eps, steps=1, output="last")
    ).xs
    many = perturb(net, (xs, ys), PGD(log_loss, Linf(eps), step_size=eps / 4, steps=20)).xs
    line = Linear(jnp.stack([jnp.zeros(D), w]), jnp.zeros(2))
    zero = jnp.array(0)
    raised = margin_loss(line(fgsm(margin_loss, Linf(eps))(line, xs[0], zero)), zero) - margin_loss(
        line(xs[0]), zero
    )
    change = loss_at(net, fast, ys).mean() - loss_at(net, xs, ys).mean()
    return Verdict(
        close("η", np.asarray(fast - xs), eps * signs),
        equal("a step of twice ε, projected", np.asarray(longer), np.asarray(fast)),
        close("increase for a linear model", float(step @ w), eps * float(jnp.abs(w).sum())),
        close("increase of its margin loss", float(raised), eps * float(jnp.abs(w).sum())),
        at_least(
            "share of inputs on which several steps do no worse",
            (loss_at(net, many, ys) >= loss_at(net, fast, ys) - 1e-12).mean(),
            0.95,
        ),
        refuted(at_most("the loss after minus the loss before", change, 0)),
    )
