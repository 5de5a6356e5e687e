"""§8.2: weight decay as a step, as a penalty, as a prior and as a constraint."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from scipy import optimize, stats
from sklearn.linear_model import Ridge

from ... import layers, models, train, tree
from ...core import run
from ...plot import Panel
from ..ch03_gradients.problems import descent
from ..engine import differences
from ..engine.check import at_least, at_most, close, close_derivative, decreasing, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.numpy_rng import numpy_rng

THETA = np.array([2.0, -1.0])
SLOPE = np.array([0.3, 0.4])
RATE = 0.1
STRENGTH = 0.5


def _tilted(theta, batch=None, *, key=None):
    """A loss with a constant gradient."""
    return jnp.asarray(SLOPE) @ theta


def _flat(theta, batch=None, *, key=None):
    """A constant loss."""
    return jnp.zeros(())


@claim(
    "8.2-weight-decay",
    title="Weight decay",
    kind="algorithm",
    of=("train.weight_decay", "train.descend"),
    cites="Hanson & Pratt 1989; Krogh & Hertz 1992",
)
def weight_decay(key):
    r"""$\theta_{t+1} = \theta_t - \eta (\nabla \ell(\theta_t) + \mu \theta_t) = (1 - \eta\mu)\,
    \theta_t - \eta \nabla \ell(\theta_t)$: before each step the weights shrink by the factor $1 -
    \eta\mu$. Where the gradient of the loss is 0 their norm decays as $(1 - \eta\mu)^t$.
    """
    step = descent(train.weight_decay(_tilted, strength=STRENGTH), optax.sgd(RATE), THETA, 1)[1]
    chained = optax.chain(optax.add_decayed_weights(STRENGTH), optax.sgd(RATE))
    path = descent(train.weight_decay(_flat, strength=STRENGTH), optax.sgd(RATE), THETA, 60)
    norms = np.linalg.norm(path, axis=1)
    t = np.arange(61)
    law = np.linalg.norm(THETA) * (1 - RATE * STRENGTH) ** t
    return Verdict(
        close(
            "one step from (2, −1), gradient (0.3, 0.4), η = 0.1, μ = 0.5",
            step,
            [1.87, -0.99],
            tolerance=1e-14,
        ),
        close(
            "inside the optimiser",
            descent(_tilted, chained, THETA, 1)[1],
            [1.87, -0.99],
            tolerance=1e-14,
        ),
        close("without a gradient: norms over 60 steps", norms, law),
        refuted(close("by (1 − 2ημ)ᵗ", norms, np.linalg.norm(THETA) * 0.9**t, tolerance=1e-6)),
        figure=Panel(
            "step",
            "norm of the weights",
            points={"descent": (t[::3], norms[::3])},
            bounds={"(1 − ημ)ᵗ": (t, law)},
        ),
    )


@erratum(
    "8.2-weight-decay",
    title="The sign of the decay and the learning rate",
    printed=r"\theta_{t+1} = \theta_t - \eta(\nabla\ell(\theta_t) - \mu\theta_t) = (1 - "
    r"\eta\mu)\theta_t - \nabla\ell"
    r"(\theta_t)",
    corrected=r"\theta_{t+1} = \theta_t - \eta(\nabla\ell(\theta_t) + \mu\theta_t) = (1 - "
    r"\eta\mu)\theta_t - \eta"
    r"\nabla\ell(\theta_t)",
    of=("train.weight_decay",),
)
def weight_decay_printed(key):
    r"""The first line is printed with $-\mu\theta_t$, which drives the weights away from the
    origin; the second lacks the learning rate before the gradient, and is not equal to the first.
    """
    decayed = train.weight_decay(_tilted, strength=STRENGTH)
    step = descent(decayed, optax.sgd(RATE), THETA, 1)[1]
    shrunk = np.linalg.norm(
        descent(train.weight_decay(_flat, strength=STRENGTH), optax.sgd(RATE), THETA, 1)[1]
    )
    penalised = lambda theta: _tilted(theta) + STRENGTH / 2 * jnp.vdot(theta, theta)
    expected = THETA - RATE * differences.jacobian(penalised, THETA)
    settings = {"tolerance": 1e-10, "method": "finite differences"}
    first = THETA - RATE * (SLOPE - STRENGTH * THETA)
    second = (1 - RATE * STRENGTH) * THETA - SLOPE
    printed_norm = np.linalg.norm(THETA + RATE * STRENGTH * THETA)
    return Verdict(
        close("a step on ℓ + (μ/2)‖θ‖²", step, expected, **settings),
        close(
            "(1 − ημ)θ − η∇ℓ", (1 - RATE * STRENGTH) * THETA - RATE * SLOPE, expected, **settings
        ),
        at_most("the norm after a step without a gradient", shrunk, np.linalg.norm(THETA)),
        printed=[
            close("the first line", first, expected, **settings),
            close("the second line", second, expected, **settings),
            at_most(
                "the norm after a step of the first line without a gradient",
                printed_norm,
                np.linalg.norm(THETA),
            ),
        ],
    )


@claim(
    "8.2-wd-l2",
    title="For gradient descent, weight decay is a squared-norm penalty",
    kind="identity",
    of=("train.weight_decay", "train.descend", "train.adam"),
    cites="Loshchilov & Hutter 2019",
)
def penalty(key):
    r"""A step of weight decay is a gradient step on
    $\ell_\mu(\theta) = \ell(\theta) + \frac\mu2 \|\theta\|^2$, $\|\theta\|^2 = \sum_l \|W_l\|_F^2$.
    For Adam, which also rescales the gradient of the penalty, it is not: the decoupled step
    $\theta \leftarrow (1 - \eta\mu)\theta + u_t$ is a different method, AdamW.
    """
    key_net, key_x, key_w = jr.split(key, 3)
    net = models.MLP.init(3, 5, 2, activation=jnp.tanh, key=key_net)
    xs = jr.normal(key_x, (100, 8, 3))
    batches = xs, jnp.sin(xs @ jr.normal(key_w, (3, 2)))
    mu, eta = 0.05, 0.1
    coupled = train.weight_decay(train.squared_error, strength=mu)
    ways = {
        "sgd": (coupled, optax.sgd(eta)),
        "adam": (coupled, train.adam(eta)),
        "adamw": (train.squared_error, optax.adamw(eta, weight_decay=mu)),
    }
    vector = lambda state: tree.ravel(state.model)[0]
    walk = lambda net, way: run(train.descend(*way), net, batches, key=key, record=vector)[1][0]
    results, by_hand = jax.jit(
        lambda net: (
            {name: walk(net, way) for name, way in ways.items()},
            _by_hand(net, batches, mu, eta),
        )
    )(net)
    results = {name: np.asarray(path) for name, path in results.items()}
    theta, back = tree.ravel(net)
    empty = train.weight_decay(_flat, strength=mu)
    squares = sum(np.linalg.norm(leaf) ** 2 for leaf in jax.tree.leaves(net))
    return Verdict(
        close("100 steps of SGD on ℓ_μ, against (1 − ημ)θ − η∇ℓ", results["sgd"], by_hand[0]),
        close(
            "the penalty, against the sum of squared Frobenius norms",
            empty(net, None),
            mu / 2 * squares,
            tolerance=1e-13,
        ),
        close_derivative(
            "its gradient, against μθ",
            differences.jacobian(lambda v: empty(back(v), None), theta),
            mu * theta,
            tolerance=1e-9,
        ),
        close("Adam on ℓ_μ, 100 steps, by hand", results["adam"], by_hand[1], tolerance=1e-10),
        close(
            "AdamW, 100 steps: (1 − ημ)θ + Adam's step, by hand",
            results["adamw"],
            by_hand[2],
            tolerance=1e-10,
        ),
        at_least(
            "Adam: largest difference between the two",
            np.abs(results["adam"] - results["adamw"]).max(),
            1e-3,
        ),
        figure=_norms(net, results, mu),
    )


def _by_hand(net, batches, mu, eta):
    r"""The paths of $(1 - \eta\mu)\theta - \eta\nabla\ell$, of Adam on $\nabla\ell + \mu\theta$,
    and of AdamW.
    """
    theta, back = tree.ravel(net)
    gradient = lambda v, batch: jax.grad(lambda v: train.squared_error(back(v), batch))(v)

    def moments(m, v, g, t):
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g**2
        return m, v, eta * m / (1 - 0.9**t) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)

    def step(carry, item):
        (sgd, (adam, m, v), (adamw, M, V)), (t, batch) = carry, item
        sgd = (1 - eta * mu) * sgd - eta * gradient(sgd, batch)
        m, v, u = moments(m, v, gradient(adam, batch) + mu * adam, t)
        M, V, U = moments(M, V, gradient(adamw, batch), t)
        new = sgd, (adam - u, m, v), ((1 - eta * mu) * adamw - U, M, V)
        return new, (sgd, new[1][0], new[2][0])

    still = jnp.zeros_like(theta)
    start = theta, (theta, still, still), (theta, still, still)
    return jax.lax.scan(step, start, (jnp.arange(1.0, 101.0), batches))[1]


def _norms(net, paths, mu):
    t = np.arange(101)
    start = np.asarray(tree.ravel(net)[0])[None]
    names = {
        "sgd": "SGD on the penalised loss",
        "adam": "Adam on the penalised loss",
        "adamw": "AdamW",
    }
    norm = lambda path: np.linalg.norm(np.concatenate([start, path]), axis=1)
    lines = {label: (t, norm(paths[name])) for name, label in names.items()}
    return Panel("step", "norm of the weights", lines=lines, title=f"μ = {mu:g}")


@claim(
    "8.2-wd-ridge",
    title="Weight decay in linear regression is ridge regression",
    kind="identity",
    of=("train.weight_decay", "models.ridge"),
    cites="Hoerl & Kennard 1970",
)
def ridge(rng):
    r"""For $\ell(\theta) = \frac12 \|y - X\theta\|^2$ the minimiser of $\ell_\mu$ is
    $(X^\top X + \mu I)^{-1} X^\top y$. (The library's objective is the mean over $n$ examples, so
    its strength is $\mu / n$.)
    """
    X = rng.normal(size=(30, 4))
    y = rng.normal(size=30)
    mu = 2.0
    curvatures = np.linalg.eigvalsh(X.T @ X) + mu
    batch = jnp.asarray(X), jnp.asarray(y)
    objective = train.weight_decay(train.squared_error, strength=mu / 30)
    loss = lambda theta, _, key=None: objective(layers.Linear(theta[None]), batch)
    result = descent(loss, optax.sgd(60 / (curvatures[0] + curvatures[-1])), np.zeros(4), 300)[-1]
    solved = np.linalg.solve(X.T @ X + mu * np.eye(4), X.T @ y)
    plain, offset = (Ridge(alpha=mu, fit_intercept=fit).fit(X, y) for fit in (False, True))
    exact = models.ridge(*batch, strength=mu)
    return Verdict(
        close("gradient descent, against the closed form", result, solved, tolerance=1e-8),
        close("gradient descent, against scikit-learn", result, plain.coef_, tolerance=1e-8),
        close(
            "models.ridge, which does not penalise the intercept, against scikit-learn",
            np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(exact)]),
            np.append(offset.coef_, offset.intercept_),
            tolerance=1e-8,
        ),
        refuted(
            close(
                "with strength μ for the mean",
                result,
                np.linalg.solve(X.T @ X + 30 * mu * np.eye(4), X.T @ y),
                tolerance=1e-8,
            )
        ),
    )


@claim(
    "8.2-wd-bayes",
    title="Weight decay is a normal prior",
    kind="identity",
    of=("train.weight_decay",),
    cites="MacKay 1992",
)
def prior(rng):
    r"""With $\ell = -\log p(y \mid \theta)$ and the prior $\theta \sim N(0, \sigma^2 I)$, the most
    probable $\theta$ given the data minimises $\ell + \frac{\mu}{2} \|\theta\|^2$ with
    $\mu = 1/\sigma^2$.
    """
    X = rng.normal(size=(30, 3))
    sigma = 0.7
    y = (rng.random(30) < 1 / (1 + np.exp(-X @ [1.0, -2.0, 0.5]))).astype(float)
    batch = jnp.asarray(X), jnp.asarray(y)

    def minimiser(mu):
        objective = train.weight_decay(train.binary_cross_entropy, strength=mu / 30)
        loss = lambda theta, _, key=None: objective(layers.Linear(theta[None]), batch)
        rate = 1 / (np.linalg.eigvalsh(X.T @ X)[-1] / 120 + mu / 30)
        return descent(loss, optax.sgd(rate), np.zeros(3), 1500)[-1]

    likelihood = lambda theta: stats.bernoulli.logpmf(y, 1 / (1 + np.exp(-X @ theta))).sum()
    posterior = lambda theta: likelihood(theta) + stats.norm.logpdf(theta, scale=sigma).sum()
    slope = lambda theta: X.T @ (y - 1 / (1 + np.exp(-X @ theta))) - theta / sigma**2
    most = optimize.root(slope, np.zeros(3), tol=1e-14).x
    nearby = [posterior(most + 1e-3 * v) for v in rng.normal(size=(200, 3))]
    result = minimiser(1 / sigma**2)
    targets = rng.normal(size=30)
    joint = (
        sigma**2 * X.T @ np.linalg.solve(sigma**2 * X @ X.T + np.eye(30), targets)
    )  # E[θ | y] of a joint normal
    centred = models.ridge(
        jnp.asarray(np.concatenate([X, -X])),
        jnp.asarray(np.concatenate([targets, -targets])),
        strength=2 / sigma**2,
    )
    return Verdict(
        close(
            "logistic: gradient descent on ℓ_μ, against the most probable θ",
            result,
            most,
            tolerance=1e-10,
        ),
        at_most("logistic: log posterior of 200 nearby points", nearby, posterior(most)),
        refuted(
            close("logistic: with μ = 1/(2σ²)", minimiser(1 / (2 * sigma**2)), most, tolerance=1e-3)
        ),
        close(
            "least squares: ridge, against the mean of the posterior",
            centred.W[0],
            joint,
            tolerance=1e-10,
        ),
    )


def _regression(key):
    """Centred data with five features, and the squares of their singular values."""
    rng = numpy_rng(key)
    X = rng.normal(size=(40, 5)) * [0.25, 0.4, 0.6, 1.0, 1.5]
    X = X - X.mean(axis=0)
    y = X @ rng.normal(size=5) * 1.5 + rng.normal(size=40)
    return X, y - y.mean()


def _within_ball(X, y, radius):
    """The minimiser of the squared error in the ball of the given radius, by SLSQP."""
    loss = lambda theta: (np.square(X @ theta - y).sum() / 2, X.T @ (X @ theta - y))
    ball = {"type": "ineq", "fun": lambda th: radius**2 - th @ th, "jac": lambda th: -2 * th}
    start = np.full(5, radius / 5)
    return optimize.minimize(
        loss,
        start,
        jac=True,
        method="SLSQP",
        constraints=[ball],
        options={"ftol": 1e-15, "maxiter": 500},
    ).x


def _minimiser(X, y, mu):
    return np.asarray(models.ridge(jnp.asarray(X), jnp.asarray(y), strength=mu).W[0])


@claim(
    "8.2-wd-lagrangian",
    title="Weight decay is a norm constraint",
    kind="theorem",
    of=("models.ridge", "train.weight_decay"),
)
def lagrangian(key):
    r"""For convex $\ell$, the minimiser $\theta^*_\mu$ of $\ell + \frac\mu2 \|\theta\|^2$ solves
    $\min \ell$ subject to $\|\theta\| \le r$ with $r = \|\theta^*_\mu\|$. The radius decreases
    strictly as $\mu$ grows; $\mu$ is the multiplier, $\nabla \ell(\theta) + \mu\theta = 0$.
    """
    X, y = _regression(key)
    results = {mu: _minimiser(X, y, mu) for mu in (0.1, 1.0, 10.0)}
    mus = np.geomspace(0.01, 1000, 50)
    radii = [np.linalg.norm(_minimiser(X, y, mu)) for mu in mus]
    slope = lambda theta: differences.jacobian(
        lambda th: jnp.square(jnp.asarray(X) @ th - jnp.asarray(y)).sum() / 2, theta
    )
    data = jnp.asarray(X), jnp.asarray(y)
    decayed = lambda mu: train.weight_decay(
        train.squared_error, strength=mu / len(y)
    )  # both as means
    flat = {
        mu: jax.grad(lambda th, mu=mu: decayed(mu)(layers.Linear(th[None]), data))(
            jnp.asarray(theta)
        )
        for mu, theta in results.items()
    }
    return Verdict(
        *[
            close(
                f"μ = {mu:g}: SLSQP in the ball of radius {np.linalg.norm(theta):.2f}",
                _within_ball(X, y, np.linalg.norm(theta)),
                theta,
                tolerance=1e-5,
                method="brute force",
            )
            for mu, theta in results.items()
        ],
        *[
            close_derivative(
                f"μ = {mu:g}: ∇ℓ + μθ", slope(theta) + mu * theta, np.zeros(5), tolerance=1e-7
            )
            for mu, theta in results.items()
        ],
        *[
            close(
                f"μ = {mu:g}: the gradient of the penalised loss", g, np.zeros(5), tolerance=1e-10
            )
            for mu, g in flat.items()
        ],
        decreasing("r(μ) over 50 strengths", radii),
        assumptions=[
            at_least("smallest eigenvalue of the Hessian", np.linalg.eigvalsh(X.T @ X)[0], 0.0)
        ],
        figure=Panel(
            "strength μ",
            "radius r",
            lines={"norm of the minimiser": (mus, radii)},
            bounds={"r = μ": (mus, mus)},
            log="xy",
        ),
    )


@erratum(
    "8.2-wd-lagrangian",
    title="The radius is not the multiplier",
    printed=r"\min_\theta \ell(\theta) \quad \mathrm{s.t.}\ \|\theta\| \le \mu",
    corrected=r"\min_\theta \ell(\theta) \quad \mathrm{s.t.}\ \|\theta\| \le r(\mu) = "
    r"\|\theta^*_\mu\|",
    of=("models.ridge",),
)
def lagrangian_printed(key):
    r"""The constraint belonging to the penalty is printed as $\|\theta\| \le \mu$; the radius is
    $\|\theta^*_\mu\|$, which decreases as $\mu$ grows.
    """
    X, y = _regression(key)
    results = {mu: _minimiser(X, y, mu) for mu in (0.1, 10.0)}
    settings = {"tolerance": 1e-5, "method": "brute force"}
    template = "μ = {:g}: SLSQP in the ball of radius {:.2f}"
    solves = lambda mu, radius: close(
        template.format(mu, radius), _within_ball(X, y, radius), results[mu], **settings
    )
    return Verdict(
        *[solves(mu, np.linalg.norm(theta)) for mu, theta in results.items()],
        printed=[solves(mu, mu) for mu in results],
    )
