r"""§13.1: the smallest adversarial perturbation of an affine classifier, in closed form."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy.optimize import linprog, minimize
from scipy.sparse import block_diag, csr_array

from ...attack import AffineAttack, affine_distance, affine_radius
from ...layers import Linear, tanh
from ...models import MLP
from ...threat import L1, L2, Linf
from ..engine.check import at_least, at_most, between, close, equal
from ..engine.claim import Verdict, claim
from ..engine.numpy_rng import numpy_rng

D, M = 5, 4
NORMS = {"1": L1, "2": L2, "∞": Linf}


def problem(key: Any, m: int = M) -> tuple[Linear, Any, Any]:
    """A classifier, an input, and its predicted class."""
    key_line, key_bias, key_x = jr.split(key, 3)
    line = Linear(jr.normal(key_line, (m, D)), jr.normal(key_bias, (m,)))
    x = jr.normal(key_x, (D,))
    return line, x, jnp.argmax(line(x))


def margin(line: Linear, x: Any, i: Any, j: Any) -> tuple[np.ndarray, float]:
    """The gradient of f_i − f_j, and its value at x."""
    z = line(x)
    return np.asarray(line.W[i] - line.W[j]), float(z[i] - z[j])


def quadratic(w: np.ndarray, gap: float) -> Any:
    """The smallest η in the Euclidean norm with wᵀη + gap ≤ 0, by a solver."""
    below = {"type": "ineq", "fun": lambda eta: -(w @ eta + gap), "jac": lambda eta: -w}
    return minimize(
        lambda eta: eta @ eta / 2,
        -0.1 * w,
        jac=lambda eta: eta,
        constraints=[below],
        options={"ftol": 1e-16, "maxiter": 200},
    )


@claim("13.1-affine-classifier", title="Affine classifiers", kind="model", of=("layers.Linear",))
def classifier(key, rng):
    r"""$f(x) = \mathrm{argmax}_i\, w_i^\top x + b_i$ does not change if one $w$ and one $b$ are
    added for all classes.
    """
    line, _, _ = problem(key)
    xs = rng.normal(size=(200, D))
    w = rng.normal(size=D)
    b = rng.normal()
    shifted = Linear(line.W + w[None], line(jnp.zeros(D)) + b)
    say = lambda model: np.argmax(np.asarray(jax.vmap(model)(jnp.asarray(xs))), axis=1)
    by_hand = [
        max(range(M), key=lambda i: float(np.asarray(line.W)[i] @ x + np.asarray(line.b)[i]))
        for x in xs
    ]
    return Verdict(
        equal("one logit per class", list(line(jnp.asarray(xs[0])).shape), [M]),
        equal("classes, by hand", say(line), np.array(by_hand)),
        equal("classes after the same shift for all", say(shifted), say(line)),
        at_least("number of predicted classes", len(set(say(line).tolist())), 2),
    )


@claim(
    "13.1-affine-program",
    title="The smallest perturbation as a quadratic program",
    kind="definition",
    of=("attack.AffineAttack",),
)
def program(key):
    r"""For two classes, $\min \frac12 \|\eta\|^2$ subject to
    $(w_1 - w_2)^\top (x + \eta) + b_1 - b_2 \le 0$, with the Lagrangian
    $\frac12 \|\eta\|^2 + \lambda ((w_1 - w_2)^\top (x + \eta) + b_1 - b_2)$: at the optimum
    $\eta + \lambda (w_1 - w_2) = 0$, $\lambda \ge 0$, and $\lambda$ times the constraint is 0.
    """
    line, x, i = problem(key, 2)
    w, gap = margin(line, x, i, 1 - i)
    eta = np.asarray(AffineAttack(L2)(line, x, i) - x)
    lam = -(eta @ w) / (w @ w)
    return Verdict(
        at_most("stationarity", np.abs(eta + lam * w), 1e-8),
        at_least("multiplier", lam, 0.0),
        at_most("constraint times multiplier", abs(lam * (w @ eta + gap)), 1e-8),
        at_most("constraint", w @ eta + gap, 1e-8),
        close(
            "against the solution of SLSQP",
            eta,
            quadratic(w, gap).x,
            tolerance=1e-6,
            method="brute force",
        ),
    )


@claim(
    "13.1-affine-optimal",
    title="The smallest perturbation of an affine classifier",
    kind="theorem",
    of=("attack.AffineAttack", "attack.affine_radius"),
)
def optimal(key):
    r"""$\eta^* = \frac{f_1(x) - f_2(x)}{\|w_1 - w_2\|^2} (w_2 - w_1)$, of length
    $(f_1(x) - f_2(x)) / \|w_1 - w_2\|$, the distance to the boundary. At $x + \eta^*$ the two
    classes tie; only larger perturbations change the class.
    """
    line, x, i = problem(key, 2)
    w, gap = margin(line, x, i, 1 - i)
    eta = np.asarray(AffineAttack(L2)(line, x, i) - x)
    class_at = lambda eta: int(jnp.argmax(line(x + jnp.asarray(eta))))
    directions = numpy_rng(key).normal(size=(10_000, D))
    lengths = np.linalg.norm(eta) * numpy_rng(key).uniform(0, 1 - 1e-9, size=10_000)
    shorter = directions * (lengths / np.linalg.norm(directions, axis=1))[:, None]
    predicted = np.argmax(
        np.asarray(jax.vmap(lambda eta: line(x + eta))(jnp.asarray(shorter))), axis=1
    )
    return Verdict(
        close("η*", eta, -gap / (w @ w) * w),
        close("its length", float(affine_radius(line, x, i)), gap / np.linalg.norm(w)),
        close("η* of SLSQP", eta, quadratic(w, gap).x, tolerance=1e-6, method="brute force"),
        at_most("f_1 − f_2 at x + η*", abs(margin(line, x + eta, i, 1 - i)[1]), 1e-12),
        equal("class after (1 + 1e-6) η*", class_at((1 + 1e-6) * eta), int(1 - i)),
        equal("class after (1 − 1e-6) η*", class_at((1 - 1e-6) * eta), int(i)),
        equal(
            "shorter perturbations, of 10,000, that change the class",
            int((predicted != int(i)).sum()),
            0,
            method="brute force",
        ),
    )


@claim(
    "13.1-affine-multiclass",
    title="The nearest of several classes",
    kind="algorithm",
    of=("attack.affine_distance", "attack.AffineAttack"),
)
def multiclass(key):
    r"""From class $i$, the nearest boundary is that of the $j$ with the smallest
    $(f_i - f_j) / \|w_i - w_j\|$, or $\|\cdot\|_q$ for another norm: the minimum of $m - 1$
    quadratic programs, on 200 random problems.
    """
    n = 200
    lines, xs, predicted = jax.vmap(problem)(jr.split(key, n))
    rivals = np.arange(M)[None] != np.asarray(predicted)[:, None]
    W = np.asarray(lines.W)
    z = np.asarray(jax.vmap(lambda line, x: line(x))(lines, xs))
    of_said = np.asarray(predicted)[:, None]
    ws = (np.take_along_axis(W, of_said[..., None], axis=1) - W)[rivals]
    gaps = (np.take_along_axis(z, of_said, axis=1) - z)[rivals]
    programs = {
        "1": np.abs(linear_programs(ws, gaps, "1")).sum(axis=1),
        "2": np.array([np.sqrt(2 * quadratic(w, gap).fun) for w, gap in zip(ws, gaps)]),
        "∞": np.abs(linear_programs(ws, gaps, "∞")).max(axis=1),
    }
    checks = []
    for p, norm in NORMS.items():
        result = np.asarray(
            jax.vmap(lambda line, x, y, norm=norm: affine_distance(line, x, y, norm))(
                lines, xs, predicted
            )
        )
        eta = np.asarray(jax.vmap(AffineAttack(norm))(lines, xs, predicted) - xs)
        lengths = np.linalg.norm(eta, {"1": 1, "2": 2, "∞": np.inf}[p], axis=1)
        solved = np.full((n, M), np.inf)
        solved[rivals] = programs[p]
        checks += [
            close(
                f"p = {p}: distances of 200 problems, by {3 * n} programs",
                result[rivals],
                programs[p],
                tolerance=1e-6,
                method="brute force",
            ),
            equal(
                f"p = {p}: the nearest class",
                np.argmin(result, axis=1),
                np.argmin(solved, axis=1),
                method="brute force",
            ),
            close(
                f"p = {p}: norms of the attack, against the minimum of the programs",
                lengths,
                solved.min(axis=1),
                tolerance=1e-6,
                method="brute force",
            ),
        ]
    return Verdict(*checks)


def linear_programs(ws: np.ndarray, gaps: np.ndarray, p: str) -> np.ndarray:
    """For each w and gap the smallest η in the norm 1 or ∞ with wᵀη + gap ≤ 0: η = u − v, or |η_i|
    ≤ t.

    The programs share no variables, so that one program with the summed objective solves all of
    them.
    """
    n, d = ws.shape
    if p == "1":
        rows = [csr_array(np.concatenate([w, -w])[None]) for w in ws]
        result = linprog(np.ones(2 * d * n), A_ub=block_diag(rows), b_ub=-gaps)
        u, v = np.moveaxis(result.x.reshape(n, 2, d), 1, 0)
        return u - v
    within = np.block([[np.eye(d), -np.ones((d, 1))], [-np.eye(d), -np.ones((d, 1))]])
    blocks = block_diag([csr_array(np.concatenate([within, np.append(w, 0.0)[None]])) for w in ws])
    limits = np.concatenate([np.zeros((n, 2 * d)), -gaps[:, None]], axis=1).ravel()
    result = linprog(np.tile(np.eye(d + 1)[-1], n), A_ub=blocks, b_ub=limits, bounds=(None, None))
    return result.x.reshape(n, d + 1)[:, :d]


@claim(
    "13.1-affine-pnorm",
    title="The smallest perturbation in other norms",
    kind="theorem",
    of=("attack.affine_radius", "attack.AffineAttack", "threat.L1", "threat.Linf"),
)
def other_norms(key):
    r"""In the $p$-norm the smallest perturbation has the norm $(f_1 - f_2) / \|w_1 - w_2\|_q$; for
    $p = \infty$ every coordinate is changed equally, for $p = 1$ a single one.
    """
    line, x, i = problem(key, 2)
    w, gap = margin(line, x, i, 1 - i)
    q = {"1": np.inf, "2": 2, "∞": 1}
    radius = {p: float(affine_radius(line, x, i, norm)) for p, norm in NORMS.items()}
    eta = {p: np.asarray(AffineAttack(norm)(line, x, i) - x) for p, norm in NORMS.items()}
    solved = {p: linear_programs(w[None], np.array([gap]), p)[0] for p in ("1", "∞")}
    return Verdict(
        close("lengths", list(radius.values()), [gap / np.linalg.norm(w, q[p]) for p in NORMS]),
        close(
            "by linear programs",
            [radius["1"], radius["∞"]],
            [np.abs(solved["1"]).sum(), np.abs(solved["∞"]).max()],
            tolerance=1e-8,
            method="brute force",
        ),
        close(
            "p = 1: the perturbation of the program",
            eta["1"],
            solved["1"],
            tolerance=1e-8,
            method="brute force",
        ),
        equal("p = 1: changed coordinates", int((eta["1"] != 0).sum()), 1),
        close("p = ∞: all are changed equally", np.abs(eta["∞"]), np.full(D, radius["∞"])),
    )


@claim(
    "13.1-linearise",
    title="The linearised classifier",
    kind="identity",
    of=("layers.Linear", "models.MLP"),
)
def linearised(key):
    r"""$f_i(x) = f_i(\tilde x) + \langle \nabla f_i(\tilde x), x - \tilde x \rangle + O(\|x -
    \tilde x\|^2)$. As an affine classifier of $x$ it has the bias $f_i(\tilde x) - \nabla
    f_i(\tilde x)^\top \tilde x$; $f_i(\tilde x)$ is the bias as a function of the displacement.
    """
    key_net, key_x, key_v = jr.split(key, 3)
    net = MLP.init(D, 16, M, activation=tanh, key=key_net)
    x = jr.normal(key_x, (D,))
    v = jr.normal(key_v, (D,))
    J = jax.jacrev(net)(x)
    z = net(x)
    steps = np.geomspace(1e-3, 1e-1, 7)
    remainders = [float(jnp.linalg.norm(net(x + s * v) - z - s * (J @ v))) for s in steps]
    slope = np.polyfit(np.log(steps), np.log(remainders), 1)[0]
    affine = Linear(J, z - J @ x)
    near = Linear(J, z)
    return Verdict(
        between("order of the remainder", slope, 1.9, 2.1),
        close("the affine classifier of x", np.asarray(affine(x + v)), np.asarray(z + J @ v)),
        close("and as a function of the displacement", np.asarray(near(v)), np.asarray(z + J @ v)),
    )
