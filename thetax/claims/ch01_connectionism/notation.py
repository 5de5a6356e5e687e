"""The symbols of the course, with checks of gradients and Hessians."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp, softmax

from ... import explain, layers
from ..engine.check import close, close_derivative, equal
from ..engine.claim import Verdict, claim


def _functions(A):
    """Name, the function in NumPy and in JAX, and its gradient and Hessian in closed form."""

    def valley_hessian(x):
        H = np.diag(
            np.append(1200 * x[:-1] ** 2 - 400 * x[1:] + 2, 0)
            + np.append(0, np.full(len(x) - 1, 200))
        )
        return H + np.diag(-400 * x[:-1], 1) + np.diag(-400 * x[:-1], -1)

    def valley_gradient(x):
        bend = x[1:] - x[:-1] ** 2
        return np.append(-400 * x[:-1] * bend - 2 * (1 - x[:-1]), 0) + np.append(0, 200 * bend)

    valley = lambda x: (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
    simplex = lambda x: np.diag(softmax(x)) - np.outer(softmax(x), softmax(x))
    return [
        (
            "quadratic form",
            lambda x: x @ A @ x,
            lambda x: x @ A @ x,
            lambda x: (A + A.T) @ x,
            lambda x: A + A.T,
        ),
        ("log-sum-exp", logsumexp, jax.nn.logsumexp, softmax, simplex),
        ("Rosenbrock", valley, valley, valley_gradient, valley_hessian),
    ]


def _differences(f, x, step):
    """Central differences of a function of a vector, one row per coordinate."""
    return np.array([(f(x + step * e) - f(x - step * e)) / (2 * step) for e in np.eye(len(x))])


@claim(
    "1.0-notation",
    title="Gradients and Hessians agree with finite differences",
    kind="definition",
    of=("explain.hvp", "layers.heaviside", "layers.relu"),
)
def notation(rng):
    r"""$1\{p\}$ is 1 if $p$ holds and 0 otherwise; $(z)_+ = \max(0, z)$; $\nabla f \in
    \mathbb{R}^n$ is the column of partial derivatives and $\nabla^2 f \in \mathbb{R}^{n \times n}$
    the symmetric matrix of second partial derivatives.
    """
    A = rng.normal(size=(4, 4))
    x = rng.normal(size=4)
    z = np.array([-2.0, -0.0, 0.0, 0.5, 3.0])
    checks = [
        equal("1{z ≥ 0}", layers.heaviside(jnp.asarray(z)), [0.0, 1.0, 1.0, 1.0, 1.0]),
        equal("(z)₊", layers.relu(jnp.asarray(z)), [0.0, 0.0, 0.0, 0.5, 3.0]),
    ]
    for name, f, traceable, gradient, hessian in _functions(A):
        slope = np.asarray(jax.grad(traceable)(jnp.asarray(x)))
        product = lambda v, f=traceable: explain.hvp(lambda x, _: f(x), jnp.asarray(x), None, v)
        H = np.asarray(jax.vmap(product)(jnp.eye(4)))
        by_differences = _differences(lambda p, f=f: _differences(f, p, 1e-4), x, 1e-4)
        checks += [
            close_derivative(
                f"∇ of the {name}, by differences",
                _differences(f, x, 1e-6),
                gradient(x),
                tolerance=1e-6,
                relative=True,
            ),
            close(f"∇ of the {name}, by autodiff", slope, gradient(x), relative=True),
            close_derivative(
                f"∇² of the {name}, by differences",
                by_differences,
                hessian(x),
                tolerance=1e-4,
                relative=True,
            ),
            close(f"∇² of the {name}, by products Hv", H, hessian(x), relative=True),
            close(f"∇² of the {name} is symmetric", H, H.T),
        ]
    return Verdict(*checks)
