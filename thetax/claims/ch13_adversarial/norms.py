r"""§13.1: how small a change is, and which numbers it changes."""

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
from ...plot import Chart, Panel
from ...threat import L0, L1, L2, Linf, p_norm, p_steepest
from ...train import cross_entropy, log_loss
from ..engine.chance import chance
from ..engine.check import at_least, at_most, close, equal, refuted
from ..engine.claim import Verdict, claim, erratum

POWERS = (1, 2, 3, np.inf, 0)
FEW = 20  # pixels, at most


def classes(model: Any, xs: Any) -> np.ndarray:
    """What a model says."""
    return np.argmax(np.asarray(predict(model, jnp.asarray(xs))), axis=-1)


@claim(
    "13.1-attack",
    title="An adversarial example",
    kind="definition",
    of=("attack.PGD", "threat.L2", "attack.untargeted", "attack.perturb"),
)
def adversarial(key):
    r"""A perturbation $\eta$ with $\|\eta\|_p \le \varepsilon$ is adversarial for $x$ if
    $f(x + \eta) \ne f(x)$, where $f$ says one of $m$ classes. At $\varepsilon = 0$ there is none.
    """
    key_net, key_data, key_line, key_start = jr.split(key, 4)
    net = MLP.init(6, 32, 3, key=key_net)
    xs = jr.normal(key_data, (100, 6))
    said = jnp.asarray(classes(net, xs))
    attack = lambda radius: PGD(untargeted(margin_loss), L2(radius), step_size=radius / 4, steps=20)
    found = {
        r: np.asarray(perturb(attack(r), net, (xs, said), key=key_start))
        for r in (0.0, 0.3, 1.0, 3.0)
    }
    changed = {r: (classes(net, near) != said).mean() for r, near in found.items()}
    line = Linear.init(6, 3, key=key_line)
    told = jnp.asarray(classes(line, xs))
    far = np.asarray(jax.vmap(lambda x, y: affine_radius(line, x, y))(xs, told))
    near = [
        perturb(attack(0.99 * r), line, (x[None], y[None]))[0]
        for x, y, r in zip(xs, told, far[:20].tolist())
    ]
    exact = perturb(AffineAttack(L2, overshoot=0.01), line, (xs, told))
    return Verdict(
        equal("share that is changed at ε = 0", changed[0.0], 0.0),
        at_most(
            "‖η‖ − ε",
            [np.linalg.norm(near - xs, axis=1).max() - r for r, near in found.items()],
            1e-9,
        ),
        at_least("share that is changed at ε = 3", changed[3.0], 0.9),
        at_least("more is changed in a larger ball", np.diff(list(changed.values())), 0.0),
        equal(
            "affine, ε = 0.99 of the distance: classes", classes(line, jnp.stack(near)), told[:20]
        ),
        close(
            "affine, the exact attack: lengths",
            np.linalg.norm(exact - xs, axis=1),
            1.01 * far,
            tolerance=1e-9,
        ),
        equal(
            "affine, ε = 1.01 of the distance: unchanged",
            int((classes(line, exact) == told).sum()),
            0,
        ),
    )


def printed_norm(x: np.ndarray, p: int) -> float:
    """Without absolute values; a root of a negative number is taken where it is real."""
    total = (x**p).sum()
    return float(np.sign(total) * np.abs(total) ** (1 / p))


def is_norm(name: str, norm: Any, key: Any) -> list[Any]:
    """The axioms on random vectors."""
    rng = chance(key)
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
    title="The size of a change",
    kind="definition",
    of=("threat.p_norm", "threat.L0", "threat.L1", "threat.L2", "threat.Linf"),
)
def sizes(key):
    r"""$\|x\|_p = (\sum_i |x_i|^p)^{1/p}$ is a norm for $p \ge 1$ and tends to
    $\max_i |x_i| = \|x\|_\infty$; $\|x\|_0$, the number of $x_i \ne 0$, is none: twice a vector has
    as many.
    """
    x = chance(key).normal(size=(20, 5))
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
        close(
            "numpy's",
            ours,
            np.array([[np.linalg.norm(row, p) for p in POWERS] for row in x]),
            tolerance=1e-12,
        ),
        close("of a shift, by the balls for p = 0, 1, 2, ∞", balls, by_numpy, tolerance=1e-12),
        close("‖(1, −2)‖_3", float(p_norm(jnp.array([1.0, -2.0]), 3)), 2.0801, tolerance=1e-4),
        at_most("it falls with p", np.diff(tend), 0.0),
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
    r"""For odd $p$ the printed sum is negative where numbers are: $(1, -2)$ has the size $-1$ for
    $p = 1$, and the root of $-7$ for $p = 3$.
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
    title="The steepest change",
    kind="identity",
    of=("threat.p_steepest", "threat.L1", "threat.L2", "threat.Linf"),
)
def dual(key):
    r"""$\max_{\|\eta\|_p \le \varepsilon} w^\top \eta = \varepsilon \|w\|_q$ with $1/p + 1/q = 1$,
    at $\eta = \varepsilon\, \mathrm{sgn}(w) \odot |w|^{q-1} / \|w\|_q^{q-1}$.
    """
    w = chance(key).normal(size=6)
    eps = 0.7
    balls = {1: L1(eps), 2: L2(eps), np.inf: Linf(eps)}
    q = {1: np.inf, 2: 2, 3: 1.5, np.inf: 1}
    reached = [float(w @ (eps * np.asarray(p_steepest(jnp.asarray(w), p)))) for p in q]
    in_balls = [eps * float(ball.dual(jnp.asarray(w))) for ball in balls.values()]
    inside = {"type": "ineq", "fun": lambda eta: eps**3 - (np.abs(eta) ** 3).sum()}
    solved = minimize(
        lambda eta: -w @ eta, 0.1 * np.sign(w), constraints=[inside], options={"ftol": 1e-14}
    )
    draws = chance(key).normal(size=(10_000, 6))
    best = [(eps * draws / np.linalg.norm(draws, p, axis=1, keepdims=True) @ w).max() for p in q]
    return Verdict(
        close(
            "wᵀη at the maximiser",
            reached,
            [eps * np.linalg.norm(w, dual) for dual in q.values()],
            tolerance=1e-12,
        ),
        close(
            "dual norms of the balls",
            in_balls,
            [eps * np.linalg.norm(w, q[p]) for p in balls],
            tolerance=1e-12,
        ),
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
    title="Every pixel a little, or a few by much",
    kind="experiment",
    of=("attack.fgsm", "threat.L0", "attack.PGD"),
)
def sparsity(key):
    r"""On handwritten digits and a linear classifier, the sign of the gradient changes every pixel
    that has one; a change of few pixels, each by as much as it can be, makes half of the digits
    wrong with ten of 64 or fewer.
    """
    xs, ys = data.load("digits").train
    xs = jnp.asarray(xs[:1000], float).reshape(1000, 64) / jnp.max(xs)
    ys = jnp.asarray(ys[:1000])
    line = fitted(xs, ys)
    right = classes(line, xs) == np.asarray(ys)
    some = np.flatnonzero(right)[:200]
    xs = xs[some]
    ys = ys[some]
    everywhere = np.asarray(perturb(fgsm(log_loss, Linf(0.05)), line, (xs, ys)))
    slope = np.asarray(jax.vmap(jax.grad(lambda x, y: log_loss(line(x), y)))(xs, ys))
    needed = np.full(len(xs), np.inf)
    for count in range(FEW, 0, -1):
        attack = PGD(
            untargeted(margin_loss), L0(float(count)), step_size=1.0, steps=10, box=(0.0, 1.0)
        )
        needed[classes(line, perturb(attack, line, (xs, ys))) != np.asarray(ys)] = count
    shares = [(needed <= count).mean() for count in range(1, FEW + 1)]
    return Verdict(
        equal(
            "pixels changed by the sign",
            (everywhere != np.asarray(xs)).sum(axis=1),
            (slope != 0).sum(axis=1),
        ),
        at_least("of 64, at least", (slope != 0).sum(axis=1), 60),
        at_most("pixels that a change of few needs, median", np.median(needed), 10),
        assumptions=[at_least("share that the classifier has right", right.mean(), 0.9)],
        figure=Chart(
            Panel(
                "pixels that may be changed",
                "share of digits made wrong",
                lines={"linear classifier": (np.arange(1, FEW + 1), shares)},
            )
        ),
    )


def fitted(xs: Any, ys: Any) -> Linear:
    """A linear classifier by descent."""
    step = jax.jit(
        lambda line: jax.tree.map(
            lambda p, g: p - 1.0 * g, line, jax.grad(cross_entropy)(line, (xs, ys))
        )
    )
    line = Linear(jnp.zeros((10, xs.shape[1])), jnp.zeros(10))
    return jax.lax.fori_loop(0, 300, lambda _, line: step(line), line)
