r"""§13.1: DeepFool, the affine solution iterated on a nonlinear classifier."""

from functools import cache
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ... import data
from ...attack import (
    PGD,
    AffineAttack,
    DeepFool,
    MinimumNormAttack,
    margin_loss,
    perturb,
    untargeted,
)
from ...core import predict
from ...models import MLP
from ...plot import Panel
from ...threat import L2, Linf
from ...train import Silent, cross_entropy, descend, fit, log_loss
from ..engine.check import at_least, at_most, close
from ..engine.claim import Verdict, claim, erratum
from .affine import problem

BOX = (0.0, 1.0)


@cache
def digits() -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Digits with pixels from 0 to 1, for training and for testing."""
    xs, ys = data.load("digits").train
    xs = jnp.asarray(xs, float).reshape(len(xs), 64) / jnp.max(xs)
    ys = jnp.asarray(ys)
    return (xs[:1400], ys[:1400]), (xs[1400:], ys[1400:])


def trained(objective: Any, key: Any, *, epochs: int = 15, hidden: int = 64) -> MLP:
    """A network of one hidden layer on digits."""
    train, _ = digits()
    key_init, key_fit = jr.split(key)
    iteration = descend(objective, optax.adam(3e-3))
    net = MLP.init(64, hidden, 10, key=key_init)
    return fit(
        iteration, net, train, epochs=epochs, batch_size=50, key=key_fit, progress=Silent()
    ).model


def correct(model: Any, xs: Any, ys: Any) -> np.ndarray:
    """Which examples a model classifies correctly."""
    return np.argmax(np.asarray(predict(model, jnp.asarray(xs))), axis=-1) == np.asarray(ys)


def perturbation_norms(xs: Any, perturbed: Any) -> np.ndarray:
    """The Euclidean norms of the perturbations."""
    return np.linalg.norm(np.asarray(perturbed - xs).reshape(len(xs), -1), axis=1)


@claim(
    "13.1-deepfool",
    title="DeepFool",
    kind="algorithm",
    of=("attack.DeepFool", "attack.MinimumNormAttack", "attack.AffineAttack"),
    cites="Moosavi-Dezfooli, Fawzi & Frossard 2016",
)
def deepfool(key):
    r"""At $x_t = x + \eta$ the classifier is linearised, and $\eta$ grows by the smallest $\delta$
    that reaches the nearest class $j$:
    $\delta = \frac{\Delta f}{\|\Delta w\|_q^q} |\Delta w|^{q-1} \mathrm{sgn}(\Delta w)$; until
    $f_j(x + \eta) > f_i(x + \eta)$ for some $j$. For an affine classifier one step is exact; for a
    network on digits it finds an adversarial example for nearly all inputs, about as near as a
    search over radii does.
    """
    net, (_, (xs, ys)) = trained(cross_entropy, key), digits()
    xs, ys = (part[correct(net, xs, ys)][:150] for part in (xs, ys))
    result = perturb(net, (xs, ys), DeepFool(L2, overshoot=0.02)).xs
    searched = perturb(
        net,
        (xs, ys),
        MinimumNormAttack(
            PGD(untargeted(margin_loss), L2(6.0), step_size=1.5, steps=30), binary_search_steps=14
        ),
    ).xs
    along = perturb(
        net,
        (xs, ys),
        MinimumNormAttack(
            PGD(untargeted(log_loss), Linf(1.0), step_size=1.0, steps=1), binary_search_steps=14
        ),
    ).xs
    least = perturbation_norms(xs, result)
    sign = perturbation_norms(xs, along)
    sign = np.where(correct(net, along, ys), np.inf, sign)  # where no step along the signs succeeds
    line, x, i = problem(key)
    once = DeepFool(L2, steps=1, overshoot=0.0)(line, x, i)
    return Verdict(
        close(
            "affine: one step",
            np.asarray(once),
            np.asarray(AffineAttack(L2)(line, x, i)),
            tolerance=1e-9,
        ),
        at_least(
            "digits: attack success rate in 50 steps", 1 - correct(net, result, ys).mean(), 0.99
        ),
        at_most(
            "mean norm, against bisection",
            least.mean() / perturbation_norms(xs, searched).mean(),
            1.5,
        ),
        at_least("share with a norm at most that along the signs", (least <= sign).mean(), 0.95),
        assumptions=[
            at_most("share still correct after the search", correct(net, searched, ys).mean(), 0.0)
        ],
        figure=Panel(
            "norm by bisection",
            "length",
            points={
                "DeepFool": (perturbation_norms(xs, searched), least),
                "along the signs": (perturbation_norms(xs, searched), sign),
            },
        ),
    )


@erratum(
    "13.1-deepfool",
    title="Each step starts from the current iterate",
    printed=r"\langle \nabla f_i(x) - \nabla f_j(x), \delta \rangle + f_i(x) - f_j(x) \le 0",
    corrected=r"\langle \nabla f_i(x_t) - \nabla f_j(x_t), \delta \rangle + f_i(x_t) - f_j(x_t) "
    r"\le 0, \quad "
    r"x_t = x + \eta_{t-1}",
    of=("attack.DeepFool",),
    slip=True,
)
def iterate_printed(key):
    r"""The program has $x$ in place of the current iterate, for which a side note decides. With
    $f_1(x) - f_2(x) = \tanh x + 0.9$ and $x = 0.5$ every step is then the same, and the second goes
    far beyond the tie: $\eta = -3.46$. With the iterates the tie is reached at
    $\eta = \mathrm{artanh}(-0.9) - 0.5 = -1.97$.
    """
    x, gap = 0.5, lambda x: np.tanh(x) + 0.9
    model = lambda x: jnp.stack([jnp.tanh(x[0]) + 0.9, 0 * x[0]])
    result = DeepFool(L2, overshoot=0.0)(model, jnp.array([x]), jnp.array(0))[0] - x

    def program(fixed, steps=50):
        eta = 0.0
        for _ in range(steps):
            at = x if fixed else x + eta
            eta -= gap(at) / (1 - np.tanh(at) ** 2)
            if gap(x + eta) <= 0:
                break
        return eta

    reached = lambda name, eta: close(f"{name}: η", eta, np.arctanh(-0.9) - x, tolerance=1e-6)
    return Verdict(
        reached("at the iterates", program(fixed=False)),
        reached("the library", result),
        printed=[reached("at x", program(fixed=True))],
    )
