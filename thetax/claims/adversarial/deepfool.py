r"""§13.1: DeepFool, the affine solution taken again and again where the classifier bends."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ... import data
from ...attack import L2, PGD, AffineAttack, DeepFool, Linf, Nearest, away, margin, perturb
from ...core import predict
from ...models import MLP
from ...plot import Chart, Panel
from ...train import Silent, cross_entropy, descend, fit, log_loss
from ..check import at_least, at_most, close, equal
from ..claim import Verdict, claim, erratum
from .affine import problem

BOX = (0.0, 1.0)


@cache
def digits() -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Digits with pixels from 0 to 1, those to learn from and the others."""
    xs, ys = data.load("digits").train
    xs, ys = jnp.asarray(xs, float).reshape(len(xs), 64) / jnp.max(xs), jnp.asarray(ys)
    return (xs[:1400], ys[:1400]), (xs[1400:], ys[1400:])


def trained(objective: Any, key: Any, *, epochs: int = 15, hidden: int = 64) -> MLP:
    """A network of one hidden layer on digits."""
    train, _ = digits()
    key_init, key_fit = jr.split(key)
    iteration = descend(objective, optax.adam(3e-3))
    net = MLP.init(64, hidden, 10, key=key_init)
    return fit(iteration, net, train, epochs=epochs, batch=50, key=key_fit, progress=Silent()).model


def right(model: Any, xs: Any, ys: Any) -> np.ndarray:
    """Which examples a model has right."""
    return np.argmax(np.asarray(predict(model, jnp.asarray(xs))), axis=-1) == np.asarray(ys)


def lengths(xs: Any, found: Any) -> np.ndarray:
    """Euclidean, of the changes."""
    return np.linalg.norm(np.asarray(found - xs).reshape(len(xs), -1), axis=1)


@claim("13.1-deepfool", title="DeepFool", kind="algorithm",
       of=("attack.DeepFool", "attack.Nearest", "attack.AffineAttack"),
       cites="Moosavi-Dezfooli, Fawzi & Frossard 2016")  # fmt: skip
def deepfool(key):
    r"""At $x_t = x + \eta$ the classifier is taken as affine, and $\eta$ grows by the least $\delta$ with which the
    easiest class $j$ overtakes: $\delta = \frac{\Delta f}{\|\Delta w\|_q^q} |\Delta w|^{q-1} \mathrm{sgn}(\Delta w)$;
    until $f_j(x + \eta) > f_i(x + \eta)$ for some $j$. Of an affine classifier one step is exact; of a network on
    digits it finds a wrong input for nearly all, about as near as a search over radii does."""
    net, (_, (xs, ys)) = trained(cross_entropy, key), digits()
    xs, ys = (part[right(net, xs, ys)][:150] for part in (xs, ys))
    found = perturb(DeepFool(L2, overshoot=0.02), net, (xs, ys))
    searched = perturb(Nearest(PGD(away(margin), L2(6.0), rate=1.5, steps=30), rounds=14), net, (xs, ys))
    along = perturb(Nearest(PGD(away(log_loss), Linf(1.0), rate=1.0, steps=1), rounds=14), net, (xs, ys))
    least, sign = lengths(xs, found), lengths(xs, along)
    sign = np.where(right(net, along, ys), np.inf, sign)  # where no step along the signs is long enough
    line, x, i = problem(key)
    once = DeepFool(L2, steps=1, overshoot=0.0)(line, x, i)
    return Verdict(
        close("affine: one step", np.asarray(once), np.asarray(AffineAttack(L2)(line, x, i)), tolerance=1e-9),
        at_least("digits: share made wrong in 50 steps", 1 - right(net, found, ys).mean(), 0.99),
        at_most("mean length, against bisection", least.mean() / lengths(xs, searched).mean(), 1.5),
        at_least("share no longer than along the signs", (least <= sign).mean(), 0.95),
        assumptions=[at_most("share the search left right", right(net, searched, ys).mean(), 0.0)],
        figure=Chart(Panel("length by bisection", "length", points={
            "DeepFool": (lengths(xs, searched), least), "along the signs": (lengths(xs, searched), sign)})),
    )  # fmt: skip


def stops(rule: Any, keys: Any) -> tuple[np.ndarray, np.ndarray]:
    """After how many steps on affine classifiers a rule is met, of 50, and whether the class has changed by then."""
    lines, xs, said = jax.vmap(problem)(keys)
    ends = jax.vmap(AffineAttack(L2, overshoot=0.02))(lines, xs, said)  # from the first step on it stays there
    z = [np.asarray(jax.vmap(lambda line, x: line(x))(lines, points)) for points in (xs, ends)]
    met = np.array([[rule(row, int(i)) for row, i in zip(part, said)] for part in z])
    steps = np.where(met[0], 0, np.where(met[1], 1, 50))
    return steps, (steps == 1) & (np.argmax(z[1], axis=1) != np.asarray(said))


@erratum(
    "13.1-deepfool",
    title="When DeepFool stops",
    printed=r"f_i(x + \eta_t) > f_i(x + \eta_t)",
    corrected=r"f_j(x + \eta_t) > f_i(x + \eta_t)",
    of=("attack.DeepFool",),
)
def stop_printed(key):
    r"""The printed rule compares a number with itself and is never met; the loop must end when another class has
    overtaken the right one."""
    overtaken = lambda z, i: np.delete(z, i).max() > z[i]
    printed = lambda z, i: z[i] > z[i]
    keys = jr.split(key, 10)
    return Verdict(
        at_most("steps until it stops, on ten affine classifiers", stops(overtaken, keys)[0], 1),
        equal("and the class has changed", stops(overtaken, keys)[1], np.ones(10, bool)),
        printed=[at_most("steps until it stops, on ten affine classifiers", stops(printed, keys)[0], 49)],
    )
