"""§2.1: least squares and logistic regression."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from scipy import special, stats

from ... import explain, layers, models, train, tree
from ...core import run
from ...layers import Linear
from ...plot import Panel
from ..engine import differences
from ..engine.check import at_least, at_most, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.numpy_rng import numpy_rng


def _problem(key, d, n):
    """Examples as columns of X, as in the course, their targets, and the generator."""
    rng = numpy_rng(key)
    return rng.normal(size=(d, n)), rng.normal(size=n), rng


def _loss(X, y):
    """The library's objective times n, the sum over the examples of the course."""
    batch = jnp.asarray(X.T), jnp.asarray(y)
    return lambda w: len(y) * train.squared_error(Linear(w[None]), batch)


@claim(
    "2.1-lsq-loss",
    "2.1-lsq-matrix",
    title="The least-squares loss as a sum and in matrix form",
    kind="loss",
    of=("train.squared_error", "models.linear_regression"),
    cites="Legendre 1805",
)
def least_squares_loss(key):
    r"""The loss of linear regression is $\ell(w) = \frac12 \sum_{i=1}^n (w^\top x_i - y_i)^2$; with
    the examples as columns of $X \in \mathbb{R}^{d \times n}$ it is $\frac12 \|X^\top w - y\|^2$.
    The library's objective is the mean, $\ell / n$.
    """
    X, y, rng = _problem(key, 4, 30)
    w = rng.normal(size=4)
    total = sum((w @ X[:, i] - y[i]) ** 2 for i in range(30)) / 2
    matrix = np.linalg.norm(X.T @ w - y) ** 2 / 2
    measured = _loss(X, y)(jnp.asarray(w)).item()
    model = models.linear_regression(4)
    at_origin = 30 * train.squared_error(model, (jnp.asarray(X.T), jnp.asarray(y))).item()
    return Verdict(
        close("n times the objective, against the sum", measured, total, relative=True),
        close("n times the objective, against the matrix form", measured, matrix, relative=True),
        close(
            "n times the objective of the model at the origin: ½‖y‖²",
            at_origin,
            y @ y / 2,
            relative=True,
        ),
        equal("initial weights of the model", jax.tree.leaves(model)[0], np.zeros((1, 4))),
        refuted(close("without the factor one half", 2 * measured, total, tolerance=1e-6)),
    )


@erratum(
    "2.1-lsq-loss",
    title="A sum of squares, not their mean",
    printed=r"\mathrm{MSE} = \frac12 \sum_{i=1}^n (w^\top x_i - y_i)^2",
    corrected=r"\frac{n}{2}\, \mathrm{MSE} = \frac12 \sum_{i=1}^n (w^\top x_i - y_i)^2",
    of=("train.squared_error",),
    slip=True,
)
def least_squares_loss_erratum(key):
    r"""The loss is called the mean squared error but is a sum, $n / 2$ times the mean. The sums of
    §9.1 and §9.2 have the same wrong name."""
    X, y, rng = _problem(key, 4, 9)
    w = rng.normal(size=4)
    mean = np.square(X.T @ w - y).mean()
    printed = sum((w @ X[:, i] - y[i]) ** 2 for i in range(9)) / 2
    same = lambda name, value: close(f"{name}, against the mean square", value, mean, relative=True)
    return Verdict(
        same("the sum, over n/2", printed / (9 / 2)),
        same("twice the objective of the library", 2 * _loss(X, y)(jnp.asarray(w)).item() / 9),
        printed=[same("the sum", printed)],
    )


@claim(
    "2.1-lsq-convex",
    title="Least squares is convex",
    kind="theorem",
    of=("train.squared_error", "explain.hvp"),
)
def least_squares_is_convex(key):
    r"""The least-squares loss is convex: its Hessian is $XX^\top \succeq 0$, everywhere."""
    X, y, rng = _problem(key, 4, 12)
    loss = _loss(X, y)
    w = jnp.asarray(rng.normal(size=4))
    gram = np.array([[sum(X[i] * X[j]) for j in range(4)] for i in range(4)])
    exact = jax.vmap(lambda v: explain.hvp(lambda w, batch: loss(w), w, None, v))(jnp.eye(4))
    by_differences = differences.hessian(loss, w)
    values = jax.vmap(loss)
    u, v = 3 * rng.normal(size=(2, 1000, 4))
    middle = values(jnp.asarray(u + v) / 2)
    ends = (values(jnp.asarray(u)) + values(jnp.asarray(v))) / 2
    return Verdict(
        close_derivative("Hessian by differences", by_differences, gram, tolerance=1e-4),
        close("Hessian by hvp", exact, gram, tolerance=1e-10),
        at_least("smallest eigenvalue", np.linalg.eigvalsh(np.asarray(exact)).min(), -1e-10),
        at_most(
            "loss at 1,000 midpoints minus the mean loss of the ends",
            np.asarray(middle - ends),
            0.0,
            slack=1e-10,
        ),
        refuted(
            at_most(
                "negative loss at 1,000 midpoints minus the mean of the ends",
                np.asarray(ends - middle),
                0.0,
                slack=1e-10,
            )
        ),
    )


def _gradients(X, y, w):
    """The gradient at w by automatic differentiation and by differences."""
    loss = _loss(X, y)
    by_differences = differences.jacobian(loss, w)
    return np.asarray(jax.grad(loss)(jnp.asarray(w))), by_differences


@claim(
    "2.1-ols-gradient",
    title="The gradient of least squares",
    kind="identity",
    of=("train.squared_error",),
)
def least_squares_gradient(key):
    r"""With the examples as columns of $X \in \mathbb{R}^{d \times n}$,
    $\nabla \ell(w) = X X^\top w - X y$.
    """
    checks = []
    for d, n in ((3, 7), (5, 5)):
        X, y, rng = _problem(jr.fold_in(key, d), d, n)
        w = rng.normal(size=d)
        gradient, numeric = _gradients(X, y, w)
        formula = X @ X.T @ w - X @ y
        checks += [
            close(f"automatic differentiation, d={d}, n={n}", gradient, formula, tolerance=1e-10),
            close_derivative(f"finite differences, d={d}, n={n}", numeric, formula, tolerance=1e-7),
        ]
    return Verdict(*checks)


@erratum(
    "2.1-ols-gradient",
    title="The gradient for examples as columns",
    printed=r"\nabla \ell(w) = X^\top X w - X^\top y",
    corrected=r"\nabla \ell(w) = X X^\top w - X y",
    of=("train.squared_error",),
)
def least_squares_gradient_erratum(key):
    r"""The printed gradient is that of examples as rows. For $X \in \mathbb{R}^{d \times n}$ it is
    not defined unless $d = n$, and then it has another value. The solution in the next line has the
    same error: printed $w^* = (X^\top X)^{-1} X^\top y$, it should be $(XX^\top)^{-1} X y$."""
    X, _, rng = _problem(key, 3, 7)
    S, z, _ = _problem(jr.fold_in(key, 1), 5, 5)
    w = rng.normal(size=5)
    _, numeric = _gradients(S, z, w)

    def gradient(form, formula):
        return close_derivative(f"{form}, d = n = 5", formula, numeric, tolerance=1e-6)

    def multiplies(form, gram):
        return equal(
            f"{form}, d = 3, n = 7: number of columns of the matrix that multiplies w",
            gram.shape[1],
            3,
        )

    return Verdict(
        multiplies("XXᵀ", X @ X.T),
        gradient("XXᵀw − Xy", S @ S.T @ w - S @ z),
        printed=[multiplies("XᵀX", X.T @ X), gradient("XᵀXw − Xᵀy", S.T @ S @ w - S.T @ z)],
    )


def _with_negatives(X, y):
    """The data and their negatives; for these the intercept is 0, and the weights are those of the
    model without intercept.
    """
    return jnp.asarray(np.concatenate([X.T, -X.T])), jnp.asarray(np.concatenate([y, -y]))


@claim(
    "2.1-ols",
    title="Ordinary least squares",
    kind="algorithm",
    of=("models.least_squares", "train.descend"),
    cites="Legendre 1805",
)
def ordinary_least_squares(key):
    r"""The least-squares loss is least at $w^* = (XX^\top)^{-1} X y$ where $XX^\top$ is invertible,
    and otherwise the pseudo-inverse gives the minimiser of least norm. The residuals are orthogonal
    to the data; gradient descent converges to $w^*$.
    """
    X, y, _ = _problem(key, 4, 25)
    fit = models.least_squares(*_with_negatives(X, y))
    w = np.asarray(fit.W)[0]
    gradient, _ = _gradients(X, y, w)
    with_intercept = models.least_squares(jnp.asarray(X.T), jnp.asarray(y))
    ones = np.ones((1, 25))
    expected = np.linalg.lstsq(np.concatenate([X, ones]).T, y, rcond=None)[0]
    wide_X, wide_y, _ = _problem(jr.fold_in(key, 1), 9, 5)
    least_norm = np.asarray(models.least_squares(*_with_negatives(wide_X, wide_y)).W)[0]
    batches = jax.tree.map(
        lambda a: jnp.broadcast_to(a, (2000, *a.shape)), (jnp.asarray(X.T), jnp.asarray(y))
    )
    descent = train.descend(train.squared_error, optax.sgd(0.2))
    state, (_, info) = jax.jit(
        lambda batches: run(descent, models.linear_regression(4), batches, key=jr.key(0))
    )(batches)
    excess = np.asarray(info.loss) - np.square(X.T @ expected[:4] + expected[4] - y).mean() / 2
    return Verdict(
        close("against the normal equations", w, np.linalg.solve(X @ X.T, X @ y), tolerance=1e-9),
        close(
            "against LAPACK's least squares",
            w,
            np.linalg.lstsq(X.T, y, rcond=None)[0],
            tolerance=1e-9,
        ),
        close("data times residuals", X @ (X.T @ w - y), np.zeros(4), tolerance=1e-9),
        at_most("norm of the gradient", np.linalg.norm(gradient), 1e-9),
        close(
            "least norm, 9 weights and 5 examples",
            least_norm,
            np.linalg.pinv(wide_X.T) @ wide_y,
            tolerance=1e-9,
        ),
        close("with an intercept", tree.ravel(with_intercept)[0], expected, tolerance=1e-9),
        close(
            "parameters after 2,000 steps of gradient descent",
            tree.ravel(state.model)[0],
            expected,
            tolerance=1e-6,
        ),
        assumptions=[at_least("rank of X", np.linalg.matrix_rank(X), 4)],
        figure=Panel(
            "step",
            "mean loss above the minimum",
            lines={"gradient descent": (np.arange(1, 121), excess[:120])},
            log="y",
        ),
    )


@claim(
    "2.1-sigmoid",
    "2.1-logreg",
    title="Sigmoid and logistic regression",
    kind="model",
    of=("layers.sigmoid", "models.logistic_regression"),
    cites="Cox 1958",
)
def logistic_model(rng):
    r"""$\sigma(z) = 1 / (1 + e^{-z})$ has values in $(0, 1)$ and $\sigma(-z) = 1 - \sigma(z)$.
    Logistic regression is $f[w](x) = \sigma(w^\top x) = P(y = 1 \mid x)$, so that the log-odds
    $\log \frac{f}{1 - f}$ are $w^\top x$.
    """
    z = np.concatenate([np.linspace(-800, 800, 1601), np.linspace(-30, 30, 601)])
    s = np.asarray(layers.sigmoid(jnp.asarray(z)))
    inner = np.asarray(layers.sigmoid(jnp.linspace(-30.0, 30.0, 601)))
    w = rng.normal(size=(1, 4))
    xs = rng.normal(size=(50, 4))
    origin = models.logistic_regression(4)
    model = Linear(origin.W + w, origin.b)
    f = np.asarray(jax.vmap(lambda x: layers.sigmoid(model(x))[0])(jnp.asarray(xs)))
    grid = np.linspace(-6, 6, 121)
    return Verdict(
        close("against scipy, |z| up to 800", s, special.expit(z), tolerance=1e-15),
        close(
            "σ(−z) + σ(z)",
            np.asarray(layers.sigmoid(jnp.asarray(-z))) + s,
            np.ones_like(z),
            tolerance=1e-15,
        ),
        at_least("least value on [−30, 30], above 0", inner.min(), np.nextafter(0, 1)),
        at_most("largest value on [−30, 30], below 1", inner.max(), np.nextafter(1, 0)),
        close("log-odds", np.log(f / (1 - f)), [sum(w[0] * x) for x in xs], tolerance=1e-9),
        figure=Panel(
            "log-odds z", "probability σ(z)", lines={"sigmoid": (grid, special.expit(grid))}
        ),
    )


@claim(
    "2.1-logreg-ce",
    "2.1-logreg-margin-form",
    title="The loss of logistic regression, in two forms",
    kind="loss",
    of=("train.binary_cross_entropy",),
)
def logistic_loss(rng):
    r"""The negative mean log-likelihood
    $-\frac1n \sum_i [y_i \log \sigma(w^\top x_i) + (1 - y_i) \log(1 - \sigma(w^\top x_i))]$ is
    $\frac1n \sum_i \log(1 + e^{-(2 y_i - 1) w^\top x_i})$, a function of the margin. The computed
    value stays finite for large margins.
    """
    xs = rng.normal(size=(60, 3))
    ys = rng.integers(0, 2, 60)
    w = rng.normal(size=3)
    z = xs @ w
    objective = lambda w: train.binary_cross_entropy(
        Linear(jnp.asarray(w)[None]), (jnp.asarray(xs), jnp.asarray(ys))
    )
    measured = objective(w).item()
    likelihood = -stats.bernoulli.logpmf(ys, special.expit(z)).mean()
    extreme = train.binary_cross_entropy(
        Linear(jnp.ones((1, 1))), (jnp.array([[800.0], [-800.0]]), jnp.array([0, 0]))
    )
    grid = np.linspace(-4, 4, 81)
    return Verdict(
        close("against scipy's Bernoulli likelihood", measured, likelihood),
        close("the margin form", np.mean(np.logaddexp(0, -(2 * ys - 1) * z)), measured),
        close("minus log σ of the margin", -special.log_expit((2 * ys - 1) * z).mean(), measured),
        close(
            "mean loss at logits 800 and −800, both labelled 0",
            extreme.item(),
            400.0,
            tolerance=1e-9,
        ),
        refuted(
            close(
                "with y instead of 2y − 1",
                np.mean(np.logaddexp(0, -ys * z)),
                measured,
                tolerance=1e-6,
            )
        ),
        figure=Panel(
            "margin (2y − 1) wᵀx",
            "loss",
            lines={"log(1 + exp(−margin))": (grid, np.logaddexp(0, -grid))},
            bounds={"mistake": (grid, (grid < 0).astype(float))},
        ),
    )


@claim(
    "2.1-logreg-gradient",
    title="Gradient and curvature of the logistic loss",
    kind="identity",
    of=("train.binary_log_loss",),
)
def logistic_gradient(rng):
    r"""For one example the gradient of the logistic loss is $(\sigma(w^\top x) - y)\, x$ and its
    Hessian $\sigma(1 - \sigma)\, x x^\top \succeq 0$: the loss is convex.
    """
    checks = []
    for y in (0, 1):
        w, x = rng.normal(size=(2, 4))
        loss = lambda w, x=x, y=y: train.binary_log_loss(
            jnp.vdot(w, jnp.asarray(x)), jnp.asarray(y)
        )
        s = special.expit(w @ x)
        numeric = differences.jacobian(loss, w)
        numeric_hessian = differences.hessian(loss, w)
        exact = np.asarray(jax.hessian(loss)(jnp.asarray(w)))
        formula = s * (1 - s) * np.outer(x, x)
        checks += [
            close_derivative(f"gradient by finite differences, y={y}", numeric, (s - y) * x),
            close(
                f"gradient by automatic differentiation, y={y}",
                jax.grad(loss)(jnp.asarray(w)),
                (s - y) * x,
            ),
            close_derivative(
                f"Hessian by finite differences, y={y}", numeric_hessian, formula, tolerance=1e-4
            ),
            close(f"Hessian by automatic differentiation, y={y}", exact, formula),
            at_least(f"smallest eigenvalue, y={y}", np.linalg.eigvalsh(exact).min(), -1e-10),
        ]
    return Verdict(*checks)
