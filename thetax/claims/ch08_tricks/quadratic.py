"""§8.2: weight decay near a minimiser, where the loss is its second-order expansion."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ... import explain, layers, train
from ...plot import Panel
from ..ch03_gradients.problems import descent, spectrum
from ..engine.check import at_least, at_most, between, close, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.numpy_rng import numpy_rng

STRENGTHS = (0.1, 1.0, 10.0)


def bowl(H, best):
    r"""$3 + \frac12 (\theta - \theta^*)^\top H (\theta - \theta^*)$ as an objective."""
    H = jnp.asarray(H)
    best = jnp.asarray(best)
    return lambda theta, batch=None, key=None: 3.0 + (theta - best) @ H @ (theta - best) / 2


def _logistic(rng):
    """The library's logistic loss on data that are not separable, and its minimiser by Newton's
    method in NumPy.
    """
    X = rng.normal(size=(40, 3))
    y = (rng.random(40) < 1 / (1 + np.exp(-X @ [1.0, -0.5, 0.3]))).astype(float)
    batch = jnp.asarray(X), jnp.asarray(y)
    loss = lambda theta, _=None, key=None: train.binary_cross_entropy(
        layers.Linear(theta[None]), batch
    )

    def minimiser(mu):
        theta = np.zeros(3)
        for _ in range(30):
            p = 1 / (1 + np.exp(-X @ theta))
            H = X.T * (p * (1 - p)) @ X / 40 + mu * np.eye(3)
            theta = theta - np.linalg.solve(H, X.T @ (p - y) / 40 + mu * theta)
        return theta

    return loss, minimiser


def _hessian(loss, theta):
    """The Hessian, from the library's Hessian-vector products."""
    product = jax.jit(lambda v: explain.hvp(loss, jnp.asarray(theta), None, v))
    return np.stack([np.asarray(product(v)) for v in jnp.eye(len(theta))])


def _remainders(key, factor=0.5):
    r"""Sizes of steps $\delta$; the largest error of $c\,\delta^\top H \delta$ for the increase of
    the logistic loss over twenty directions, that of $2c\,H\delta$ for its gradient, and the
    largest gradient.
    """
    rng = numpy_rng(key)
    loss, minimiser = _logistic(rng)
    best = minimiser(0.0)
    along = rng.normal(size=(20, 3))
    H = _hessian(loss, best)
    sizes = np.geomspace(0.1, 0.001, 8)
    steps = sizes[:, None, None] * along / np.linalg.norm(along, axis=1, keepdims=True)
    values, slopes = jax.vmap(jax.vmap(jax.value_and_grad(loss)))(jnp.asarray(best + steps))
    rise = np.asarray(values) - float(loss(jnp.asarray(best)))
    off = np.abs(rise - factor * np.einsum("tki,ij,tkj->tk", steps, H, steps))
    norms = lambda v: np.linalg.norm(v, axis=-1).max(axis=1)
    return (
        sizes,
        off.max(axis=1),
        norms(np.asarray(slopes) - 2 * factor * steps @ H),
        norms(np.asarray(slopes)),
    )


def convergence_order(sizes, errors):
    """The order of the errors, by a linear fit of the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(errors), 1)[0])


@claim(
    "8.2-taylor",
    title="The loss near a minimiser",
    kind="identity",
    of=("explain.hvp", "train.binary_cross_entropy"),
)
def taylor(key, rng):
    r"""Around a minimiser $\ell(\theta) \approx \ell(\theta^*) + \frac12 (\theta - \theta^*)^\top H
    (\theta - \theta^*)$ with $H = \nabla^2 \ell(\theta^*)$, and
    $\nabla \ell(\theta) \approx H (\theta - \theta^*)$: exactly for a quadratic loss, with
    remainders of third and second order otherwise.
    """
    H, best, theta = spectrum(rng, [0.3, 1.0, 2.5]), *rng.normal(size=(2, 3))
    loss = bowl(H, best)
    offset = theta - best
    hessian = _hessian(loss, best)
    sizes, remainder, left_slope, _ = _remainders(key)
    return Verdict(
        close(
            "a quadratic: the value", loss(jnp.asarray(theta)), 3 + offset @ hessian @ offset / 2
        ),
        close("a quadratic: the gradient", jax.grad(loss)(jnp.asarray(theta)), hessian @ offset),
        at_least(
            "logistic: order of the remainder",
            convergence_order(sizes, remainder),
            2.9,
            method="trend",
        ),
        at_least(
            "logistic: order of the gradient's",
            convergence_order(sizes, left_slope),
            1.9,
            method="trend",
        ),
        figure=Panel(
            "distance from the minimiser",
            "remainder",
            log="xy",
            points={"loss": (sizes, remainder), "gradient": (sizes, left_slope)},
            bounds={
                "slope 3 and 2": (
                    np.concatenate([sizes, [np.nan], sizes]),
                    np.concatenate(
                        [
                            remainder[0] * (sizes / sizes[0]) ** 3,
                            [np.nan],
                            left_slope[0] * (sizes / sizes[0]) ** 2,
                        ]
                    ),
                )
            },
        ),
    )


@erratum(
    "8.2-taylor",
    title="The second-order term has a factor one half",
    printed=r"\ell(\theta) \approx \ell(\theta^*) + (\theta - \theta^*)^\top H (\theta - \theta^*)",
    corrected=r"\ell(\theta) \approx \ell(\theta^*) + \frac12 (\theta - \theta^*)^\top H (\theta "
    r"- \theta^*)",
    of=("explain.hvp",),
)
def taylor_printed(key, rng):
    r"""Printed without the $\frac12$, here and again in §8.3, the expansion doubles the increase of
    the loss; the gradient printed beside it, $H(\theta - \theta^*)$, is that of the form with
    $\frac12$.
    """
    H, best, theta = spectrum(rng, [0.3, 1.0, 2.5]), *rng.normal(size=(2, 3))
    loss = bowl(H, best)
    rise = float(loss(jnp.asarray(theta))) - 3
    form = (theta - best) @ _hessian(loss, best) @ (theta - best)

    def checks(factor):
        sizes, remainder, left_slope, slope = _remainders(key, factor)
        return [
            close("a quadratic: increase of the loss", rise, factor * form),
            at_least(
                "logistic: order of the remainder",
                convergence_order(sizes, remainder),
                2.9,
                method="trend",
            ),
            at_most(
                "logistic: relative error of its gradient, smallest step",
                left_slope[-1] / slope[-1],
                0.01,
            ),
        ]

    return Verdict(*checks(0.5), printed=checks(1.0))


@claim(
    "8.2-wd-solution",
    title="The minimiser with weight decay",
    kind="theorem",
    of=("train.weight_decay", "explain.hvp"),
)
def solution(rng):
    r"""Where $\ell$ is quadratic, $\theta^*_\mu = (H + \mu I)^{-1} H \theta^*$ minimises
    $\ell + \frac\mu2\|\theta\|^2$; for another loss the error is $O(\mu^2)$ as $\mu \to 0$."""
    H = spectrum(rng, [0.3, 1.0, 2.5, 4.0])
    best = rng.normal(size=4)
    decayed = lambda mu: train.weight_decay(bowl(H, best), strength=mu)
    walk = lambda mu: descent(decayed(mu), optax.sgd(2 / (4.3 + 2 * mu)), np.zeros(4), 300)
    limits = {mu: walk(mu)[-1] for mu in STRENGTHS}
    formula = lambda H, mu, best: np.linalg.solve(H + mu * np.eye(len(H)), H @ best)
    loss, minimiser = _logistic(rng)
    theta = minimiser(0.0)
    hessian = _hessian(loss, theta)
    mus = np.geomspace(3e-3, 3e-5, 8)
    errors = [np.linalg.norm(minimiser(mu) - formula(hessian, mu, theta)) for mu in mus]
    ends = np.stack(
        [
            jax.grad(train.weight_decay(loss, strength=mu))(jnp.asarray(minimiser(mu)), None)
            for mu in mus
        ]
    )
    return Verdict(
        *[
            close(
                f"μ = {mu:g}: gradient descent, against the formula",
                limit,
                formula(H, mu, best),
                tolerance=1e-8,
            )
            for mu, limit in limits.items()
        ],
        refuted(
            close(
                "μ = 1: with μ(H + μI)⁻¹", limits[1.0], best - formula(H, 1.0, best), tolerance=1e-3
            )
        ),
        between("logistic: order of the error in μ", convergence_order(mus, errors), 1.9, 2.1),
        close("logistic: ∇ℓ_μ at its minimisers", ends, np.zeros_like(ends)),
        figure=Panel(
            "strength μ",
            "error of the formula",
            points={"logistic loss": (mus, errors)},
            bounds={"μ²": (mus, errors[0] * (mus / mus[0]) ** 2)},
            log="xy",
        ),
    )


@claim(
    "8.2-wd-shrinkage",
    title="Weight decay shrinks directions that the data do not determine",
    kind="theorem",
    of=("explain.weight_decay_factor", "explain.effective_parameters"),
    cites="Krogh & Hertz 1992; MacKay 1992",
)
def shrinkage(key, rng):
    r"""In the eigenbasis $H = Q^\top \Lambda Q$ weight decay acts on each direction separately,
    $(Q\theta^*_\mu)_i = \frac{\lambda_i}{\lambda_i + \mu} (Q\theta^*)_i$: directions with
    $\lambda_i \gg \mu$ are kept, those with $\lambda_i \ll \mu$ shrink to 0. The sum of the factors
    is the effective number of parameters: for ridge regression the trace of the matrix that maps
    targets to predictions.
    """
    root = rng.normal(size=(5, 5))
    H = root.T @ root + 0.01 * np.eye(5)
    best = rng.normal(size=5)
    values, vectors = np.linalg.eigh(H)
    solved = lambda mu: vectors.T @ np.linalg.solve(H + mu * np.eye(5), H @ best)
    shrunk = lambda mu: explain.weight_decay_factor(values, strength=mu) * (vectors.T @ best)
    X = rng.normal(size=(20, 6)) * np.geomspace(0.1, 3, 6)
    mu = 2.0
    batch = jnp.asarray(X), jnp.asarray(rng.normal(size=20))
    mean = lambda theta, batch: train.squared_error(layers.Linear(theta[None]), batch)
    result = explain.effective_parameters(mean, jnp.zeros(6), batch, strength=mu / 20, key=key)
    hat = X @ np.linalg.solve(X.T @ X + mu * np.eye(6), X.T)
    return Verdict(
        *[close(f"μ = {mu:g}: each direction", shrunk(mu), solved(mu)) for mu in STRENGTHS],
        refuted(
            close("with μ/(λ + μ)", shrunk(1.0), vectors.T @ best - solved(1.0), tolerance=1e-3)
        ),
        close("μ → 0", explain.weight_decay_factor(values, strength=1e-14), 1.0, tolerance=1e-11),
        close(
            "μ → ∞, times μ/λ",
            explain.weight_decay_factor(values, strength=1e14) * 1e14 / values,
            1.0,
            tolerance=1e-11,
        ),
        equal(
            "in a flat direction", explain.weight_decay_factor([0.0, 0.0], strength=1.0), [0.0, 0.0]
        ),
        close(
            "curvatures of a regression, matrix-free",
            result.curvatures,
            np.linalg.svd(X)[1] ** 2 / 20,
            tolerance=1e-10,
        ),
        close(
            "the sum of their factors, against the trace of the hat matrix",
            result.effective,
            np.trace(hat),
            tolerance=1e-9,
        ),
        figure=_factors(),
    )


def _factors():
    lam = np.geomspace(1e-3, 1e3, 200)
    return Panel(
        "curvature of a direction",
        "remaining share of the minimiser",
        log="x",
        lines={
            f"μ = {mu:g}": (lam, explain.weight_decay_factor(lam, strength=mu)) for mu in STRENGTHS
        },
    )
