r"""§13.1: the size of a perturbation in different norms, and its sparsity."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy.optimize import minimize

from ... import data
from ...attack import PGD, AffineAttack, affine_radius, fgsm, margin_loss, perturb, untargeted
from ...core import predict
from ...layers import Linear
from ...models import MLP
from ...plot import Panel
from ...threat import L0, L1, L2, Linf, p_norm, p_steepest
from ...train import cross_entropy, log_loss
from ..engine.check import at_least, at_most, close, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.numpy_rng import numpy_rng

POWERS = (1, 2, 3, np.inf, 0)
FEW = 20  # largest number of pixels


def classes(model: Any, xs: Any) -> np.ndarray:
    """The predicted classes."""
    return np.argmax(np.asarray(predict(model, jnp.asarray(xs))), axis=-1)


@claim(
    "13.1-attack",
    title="An adversarial example",
    kind="definition",
    of=("attack.PGD", "threat.L2", "attack.untargeted", "attack.perturb"),
)
def adversarial(key):
    r"""A perturbation $\eta$ with $\|\eta\|_p \le \varepsilon$ is adversarial for $x$ if
    $f(x + \eta) \ne f(x)$, where $f$ predicts one of $m$ classes. At $\varepsilon = 0$ there is
    none.
    """
    key_net, key_data, key_line, key_start = jr.split(key, 4)
    net = MLP.init(6, 32, 3, key=key_net)
    xs = jr.normal(key_data, (100, 6))
    predicted = jnp.asarray(classes(net, xs))
    attack = lambda radius: PGD(untargeted(margin_loss), L2(radius), step_size=radius / 4, steps=20)
    results = {
        r: np.asarray(perturb(net, (xs, predicted), attack(r), key=key_start).xs)
        for r in (0.0, 0.3, 1.0, 3.0)
    }
    changed = {r: (classes(net, near) != predicted).mean() for r, near in results.items()}
    line = Linear.init(6, 3, key=key_line)
    affine_predicted = jnp.asarray(classes(line, xs))
    far = np.asarray(jax.vmap(lambda x, y: affine_radius(line, x, y))(xs, affine_predicted))
    near = [
        perturb(line, (x[None], y[None]), attack(0.99 * r)).xs[0]
        for x, y, r in zip(xs, affine_predicted, far[:20].tolist())
    ]
    exact = perturb(line, (xs, affine_predicted), AffineAttack(L2, overshoot=0.01)).xs
    return Verdict(
        equal("attack success rate at ε = 0", changed[0.0], 0.0),
        at_most(
            "‖η‖ − ε",
            [np.linalg.norm(near - xs, axis=1).max() - r for r, near in results.items()],
            1e-9,
        ),
        at_least("attack success rate at ε = 3", changed[3.0], 0.9),
        at_least("increase of the success rate with ε", np.diff(list(changed.values())), 0.0),
        equal(
            "affine, ε = 0.99 of the distance: classes",
            classes(line, jnp.stack(near)),
            affine_predicted[:20],
        ),
        close(
            "affine, the exact attack: norms",
            np.linalg.norm(exact - xs, axis=1),
            1.01 * far,
            tolerance=1e-9,
        ),
        equal(
            "affine, 1.01 of the distance: unchanged classes",
            int((classes(line, exact) == affine_predicted).sum()),
            0,
        ),
    )


def printed_norm(x: np.ndarray, p: int) -> float:
    """The norm without absolute values; the root of a negative number is taken if it is real."""
    total = (x**p).sum()
    return float(np.sign(total) * np.abs(total) ** (1 / p))


def is_norm(name: str, norm: Any, key: Any) -> list[Any]:
    """The norm axioms on random vectors."""
    rng = numpy_rng(key)
    x = rng.normal(size=(50, 4))
    y = rng.normal(size=(50, 4))
    c = rng.normal(size=50)
    n = lambda rows: np.array([float(norm(row)) for row in rows])
    return [
        close(f"{name}: ‖cx‖ = |c| ‖x‖", n(c[:, None] * x), np.abs(c) * n(x), tolerance=1e-9),
        at_most(f"{name}: ‖x + y‖ − ‖x‖ − ‖y‖", n(x + y) - n(x) - n(y), 1e-12),
        at_least(f"{name}: ‖x‖", n(x), 1e-9),
    ]


@claim(
    "13.1-pnorm",
    title="The size of a perturbation",
    kind="definition",
    of=("threat.p_norm", "threat.L0", "threat.L1", "threat.L2", "threat.Linf"),
)
def sizes(key, rng):
    r"""$\|x\|_p = (\sum_i |x_i|^p)^{1/p}$ is a norm for $p \ge 1$ and tends to
    $\max_i |x_i| = \|x\|_\infty$; $\|x\|_0$, the number of $x_i \ne 0$, is not a norm: twice a
    vector has as many.
    """
    x = rng.normal(size=(20, 5))
    axioms = [
        check
        for p in POWERS[:4]
        for check in is_norm(f"p = {p}", lambda row, p=p: p_norm(jnp.asarray(row), p), key)
    ]
    ours = np.array([[float(p_norm(jnp.asarray(row), p)) for p in POWERS] for row in x])
    tend = np.array([float(p_norm(jnp.asarray(x[0]), p)) for p in (1, 4, 16, 64, 256)])
    some = x[0] * [1, 0, 1, 1, 0]
    balls = [float(ball.norm(jnp.asarray(some))) for ball in (L0(3), L1(1.0), L2(1.0), Linf(1.0))]
    by_numpy = [np.linalg.norm(some, p) for p in (0, 1, 2, np.inf)]
    return Verdict(
        close("numpy's", ours, np.array([[np.linalg.norm(row, p) for p in POWERS] for row in x])),
        close("by the balls for p = 0, 1, 2, ∞", balls, by_numpy),
        close("‖(1, −2)‖_3", float(p_norm(jnp.array([1.0, -2.0]), 3)), 2.0801, tolerance=1e-4),
        at_most("it decreases with p", np.diff(tend), 0.0),
        close("p = 256 and infinity", tend[-1], np.abs(x[0]).max(), tolerance=0.01),
        *axioms,
        refuted(is_norm("p = 0", lambda row: p_norm(jnp.asarray(row), 0), key)[0]),
    )


@erratum(
    "13.1-pnorm",
    title="A norm without absolute values",
    printed=r"\|x\|_p = \Big(\sum_i x_i^p\Big)^{1/p}",
    corrected=r"\|x\|_p = \Big(\sum_i |x_i|^p\Big)^{1/p}",
    of=("threat.p_norm",),
)
def sizes_printed(key):
    r"""For odd $p$ the printed sum can be negative: $(1, -2)$ has the "norm" $-1$ for $p = 1$, and
    the cube root of $-7$ for $p = 3$.
    """
    x = np.array([1.0, -2.0])
    of = lambda norm: [norm(x, p) for p in (1, 3)]
    return Verdict(
        close(
            "‖(1, −2)‖_p for p = 1, 3",
            of(lambda x, p: float(p_norm(jnp.asarray(x), p))),
            [3.0, 9 ** (1 / 3)],
            tolerance=1e-9,
        ),
        at_least("‖(1, −2)‖_p", of(lambda x, p: float(p_norm(jnp.asarray(x), p))), 0.0),
        printed=[
            close(
                "‖(1, −2)‖_p for p = 1, 3", of(printed_norm), [3.0, 9 ** (1 / 3)], tolerance=1e-9
            ),
            at_least("‖(1, −2)‖_p", of(printed_norm), 0.0),
        ],
    )


@claim(
    "13.1-dual-norm",
    title="The direction of steepest ascent",
    kind="identity",
    of=("threat.p_steepest", "threat.L1", "threat.L2", "threat.Linf"),
)
def dual(key):
    r"""$\max_{\|\eta\|_p \le \varepsilon} w^\top \eta = \varepsilon \|w\|_q$ with $1/p + 1/q = 1$,
    at $\eta = \varepsilon\, \mathrm{sgn}(w) \odot |w|^{q-1} / \|w\|_q^{q-1}$.
    """
    w = numpy_rng(key).normal(size=6)
    eps = 0.7
    balls = {1: L1(eps), 2: L2(eps), np.inf: Linf(eps)}
    q = {1: np.inf, 2: 2, 3: 1.5, np.inf: 1}
    reached = [float(w @ (eps * np.asarray(p_steepest(jnp.asarray(w), p)))) for p in q]
    in_balls = [eps * float(ball.dual_norm(jnp.asarray(w))) for ball in balls.values()]
    inside = {"type": "ineq", "fun": lambda eta: eps**3 - (np.abs(eta) ** 3).sum()}
    solved = minimize(
        lambda eta: -w @ eta, 0.1 * np.sign(w), constraints=[inside], options={"ftol": 1e-14}
    )
    draws = numpy_rng(key).normal(size=(10_000, 6))
    best = [(eps * draws / np.linalg.norm(draws, p, axis=1, keepdims=True) @ w).max() for p in q]
    return Verdict(
        close(
            "wᵀη at the maximiser", reached, [eps * np.linalg.norm(w, dual) for dual in q.values()]
        ),
        close("dual norms of the balls", in_balls, [eps * np.linalg.norm(w, q[p]) for p in balls]),
        close(
            "p = 3: the maximiser of SLSQP",
            eps * np.asarray(p_steepest(jnp.asarray(w), 3)),
            solved.x,
            tolerance=1e-5,
            method="brute force",
        ),
        close("p = 3: its maximum", reached[2], -solved.fun, tolerance=1e-6, method="brute force"),
        at_most("10,000 random directions", np.array(best) - reached, 1e-12),
    )


@claim(
    "13.1-norm-sparsity",
    title="Dense and sparse perturbations",
    kind="experiment",
    of=("attack.fgsm", "threat.L0", "attack.PGD"),
)
def sparsity(key):
    r"""On handwritten digits and a linear classifier, a step along the sign of the gradient changes
    every pixel with a nonzero gradient; a sparse attack misclassifies half of the digits by
    changing at most ten of 64 pixels.
    """
    xs, ys = data.load("digits").train
    xs = jnp.asarray(xs[:1000], float).reshape(1000, 64) / jnp.max(xs)
    ys = jnp.asarray(ys[:1000])
    line = fit_linear(xs, ys)
    right = classes(line, xs) == np.asarray(ys)
    some = np.flatnonzero(right)[:200]
    xs = xs[some]
    ys = ys[some]
    everywhere = np.asarray(perturb(line, (xs, ys), fgsm(log_loss, Linf(0.05))).xs)
    slope = np.asarray(jax.vmap(jax.grad(lambda x, y: log_loss(line(x), y)))(xs, ys))
    needed = np.full(len(xs), np.inf)
    for count in range(FEW, 0, -1):
        attack = PGD(
            untargeted(margin_loss), L0(float(count)), step_size=1.0, steps=10, box=(0.0, 1.0)
        )
        needed[classes(line, perturb(line, (xs, ys), attack).xs) != np.asarray(ys)] = count
    shares = [(needed <= count).mean() for count in range(1, FEW + 1)]
    return Verdict(
        equal(
            "pixels changed by the sign",
            (everywhere != np.asarray(xs)).sum(axis=1),
            (slope != 0).sum(axis=1),
        ),
        at_least("changed pixels of 64, at least", (slope != 0).sum(axis=1), 60),
        at_most("pixels that a sparse attack needs, median", np.median(needed), 10),
        assumptions=[at_least("accuracy of the classifier", right.mean(), 0.9)],
        figure=Panel(
            "maximum number of changed pixels",
            "attack success rate",
            lines={"linear classifier": (np.arange(1, FEW + 1), shares)},
        ),
    )


def fit_linear(xs: Any, ys: Any) -> Linear:
    """A linear classifier, trained by gradient descent."""
    step = jax.jit(
        lambda line: jax.tree.map(
            lambda p, g: p - 1.0 * g, line, jax.grad(cross_entropy)(line, (xs, ys))
        )
    )
    line = Linear(jnp.zeros((10, xs.shape[1])), jnp.zeros(10))
    return jax.lax.fori_loop(0, 300, lambda _, line: step(line), line)
