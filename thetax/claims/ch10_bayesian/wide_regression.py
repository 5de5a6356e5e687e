"""§10.2: regression with the kernel of an infinitely wide network, its interpretation, and its
cost.
"""

from time import process_time
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ...bayes import (
    RBF,
    GaussianProcess,
    condition_iteratively,
    gaussian_log_density,
    pivoted_cholesky,
)
from ...explain import count_flops, infinite_width_limit
from ...layers import he, relu
from ...models import MLP, minimum_norm
from ...plot import Panel
from ..engine.check import between, close, equal, refuted, within
from ..engine.claim import Verdict, claim
from .nngp import recursion, relu_quadrature


def last_layers(
    X: np.ndarray, ys: np.ndarray, new: np.ndarray, width: int, keys: Any
) -> tuple[Any, Any]:
    """The predictions of random networks at new inputs after training only their last layers: from
    0, and from their initial values.
    """

    def one(key, X, ys, new):
        net = MLP.init(X.shape[1], width, 1, initialiser=he, key=key)
        first = net.body.layers[0]
        last = net.body.layers[-1]
        features = lambda xs: relu(jax.vmap(first)(xs))
        trained = [
            minimum_norm(features(X), ys, origin=start) for start in (0 * last.W[0], last.W[0])
        ]
        return [features(new) @ w for w in trained]

    from_0, from_there = jax.jit(
        lambda keys, *data: jax.lax.map(lambda key: one(key, *data), keys)
    )(keys, X, ys, new)
    return from_0, from_there


@claim(
    "10.2-nngp-regression",
    title="Regression with the NNGP kernel",
    kind="algorithm",
    of=("bayes.GaussianProcess", "explain.infinite_width_limit", "models.minimum_norm"),
    cites="Lee et al. 2018; Matthews et al. 2017",
)
def kernel_regression(key, rng):
    r"""$f^*(x) = k(x)^\top K^{-1} y$ with the NNGP kernel needs no training, interpolates the data
    and has a predictive variance. It is the prediction of a wide random network of which only the
    last layer is trained, from weights 0; trained from random weights, the predictions are
    distributed around it with that variance.
    """
    n = 6
    d = 6
    X = (
        np.sqrt(d) * np.linalg.qr(rng.normal(size=(d, d)))[0][:n]
    )  # orthogonal, so that K is far from singular
    new = rng.normal(size=(4, d))
    ys = rng.normal(size=n)
    kernel = infinite_width_limit(MLP.init(d, 4, 1, initialiser=he, key=key), initialiser=he).nngp
    results = GaussianProcess.init(kernel).condition(jnp.asarray(X), jnp.asarray(ys))
    mean, variance = (
        np.asarray(part(jnp.asarray(new))) for part in (results.mean, results.variance)
    )
    joint = recursion(
        np.concatenate([X, new]), relu_quadrature_or_half, depth=1, weight=2.0, bias=0.0
    )
    K = joint[:n, :n]
    k = joint[n:, :n]
    own = joint[n:, n:]
    key_one, key_many = jr.split(key)
    one = np.asarray(last_layers(X, ys, new, 20_000, key_one[None])[0][0])
    draws = 300
    many = np.asarray(last_layers(X, ys, new, 2000, jr.split(key_many, draws))[1])
    return Verdict(
        close("mean at the data", results.mean(jnp.asarray(X)), ys, tolerance=1e-8),
        close(
            "mean, against k(x)ᵀK⁻¹y by quadrature",
            mean,
            k @ np.linalg.solve(K, ys),
            tolerance=1e-8,
        ),
        close("variance", variance, np.diag(own - k @ np.linalg.solve(K, k.T)), tolerance=1e-8),
        close(
            "last layer of 20,000 random units, trained from 0",
            one,
            mean,
            tolerance=0.05,
            relative=True,
            method="brute force",
        ),
        within(
            "300 networks of width 2,000, trained from random weights: mean",
            many.mean(axis=0),
            mean,
            error=1.05 * np.sqrt(variance / draws),
        ),
        within(
            "their variance", many.var(axis=0), variance, error=1.1 * variance * np.sqrt(2 / draws)
        ),
        refuted(
            within(
                "their variance, against that of the prior",
                many.var(axis=0),
                np.diag(own),
                error=1.1 * variance * np.sqrt(2 / draws),
            )
        ),
        figure=_on_a_circle(key),
    )


def relu_quadrature_or_half(x: float, k: float, y: float) -> float:
    """Half the variance for an input with itself."""
    return x / 2 if x == y == k else relu_quadrature(x, k, y)


def _on_a_circle(key: Any) -> Panel:
    """Inputs on a circle, a few of them observed: the posterior of an infinitely wide network at
    the others.
    """
    around = lambda t: jnp.asarray(np.stack([np.cos(t), np.sin(t)], axis=1))
    kernel = infinite_width_limit(
        MLP.init(2, 4, 4, 1, initialiser=he, key=key), initialiser=he
    ).nngp
    t = np.linspace(-np.pi, np.pi, 150)
    observed = np.array([-2.5, -1.6, -0.9, 0.2, 0.8, 1.3])
    result = GaussianProcess.init(kernel).condition(
        around(observed), jnp.asarray(np.sin(3 * observed))
    )
    mean = np.asarray(result.mean(around(t)))
    doubt = 2 * np.sqrt(np.asarray(result.variance(around(t))))
    band = {"± 2 standard deviations": (t, mean - doubt, mean + doubt)}
    points = {"data": (observed, np.sin(3 * observed))}
    return Panel(
        "angle of the input", "output", bands=band, lines={"mean": (t, mean)}, points=points
    )


def seconds(f: Any, times: int) -> float:
    """The least processor time of several runs, which other processes change less than the time
    on the clock.
    """
    elapsed = []
    for _ in range(times):
        start = process_time()
        f()
        elapsed.append(process_time() - start)
    return min(elapsed)


@claim(
    "10.2-nngp-cost",
    title="Quadratic memory, cubic time",
    kind="experiment",
    of=(
        "bayes.GaussianProcess",
        "bayes.gaussian_log_density",
        "bayes.pivoted_cholesky",
        "bayes.condition_iteratively",
    ),
)
def cost(rng):
    r"""For $n$ examples $K$ has $n^2$ entries, and its Cholesky factorisation takes $O(n^3)$ time.
    Without it, by products with blocks of $K$, memory is $O(n)$.
    """
    sizes = np.array([250, 500, 1000, 2000])
    xs = jnp.asarray(rng.normal(size=(2000, 3)))
    f = GaussianProcess.init(RBF.init(), noise=0.1)
    factor = f.condition(xs[:250], xs[:250, 0]).L
    K = f.kernel(xs) + 0.1 * jnp.eye(2000)
    solved = jax.jit(gaussian_log_density)
    parts = [(K[:n, :n], xs[:n, :1]) for n in sizes]
    times = [seconds(lambda part=part: jax.block_until_ready(solved(*part)), 6) for part in parts]
    slope = np.polyfit(np.log(sizes), np.log(times), 1)[0]
    work = [
        sum(
            count_flops(
                lambda xs, n=n: pivoted_cholesky(f.kernel, xs, rank=int(n)).L, xs[:n]
            ).values()
        )
        for n in sizes
    ]
    few = sizes[:2]
    lean = [condition_iteratively(f, xs[:n], xs[:n, 0], rank=10, tolerance=1e-4) for n in few]
    stored = [sum(leaf.size for leaf in jax.tree.leaves(results)) for results in lean]
    return Verdict(
        equal("bytes of K, n = 250 … 2,000", [part[0].nbytes for part in parts], 8 * sizes**2),
        equal("bytes of its factor, n = 250", factor.nbytes, 8 * 250**2),
        between("power of n in the time of factorisation and solve", slope, 2.0, 3.3),
        between(
            "power of n in the counted operations of a Cholesky factorisation",
            np.polyfit(np.log(sizes), np.log(work), 1)[0],
            2.9,
            3.1,
        ),
        equal(
            "by conjugate gradients: stored numbers per additional example",
            (stored[1] - stored[0]) / 250,
            _per_example(lean[0]),
        ),
        assumptions=[
            equal(
                "conjugate gradients converged",
                [bool(results.converged) for results in lean],
                [True] * 2,
            )
        ],
        figure=Panel(
            "examples n",
            "seconds",
            log="xy",
            points={"measured": (sizes, times)},
            bounds={"n³": (sizes, times[-1] * (sizes / sizes[-1]) ** 3)},
        ),
    )


def _per_example(solution: Any) -> int:
    """Stored numbers per example: its inputs, its weight, its row of the preconditioner."""
    return solution.xs.shape[1] + 1 + solution.low_rank.L.shape[1]
