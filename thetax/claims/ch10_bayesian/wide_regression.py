"""§10.2: regression with the kernel of an infinitely wide network, what it equals, and what it
costs.
"""

from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ...bayes import RBF, GaussianProcess, condition_iteratively, log_density, pivoted_cholesky
from ...explain import infinite, operations
from ...layers import he, relu
from ...models import MLP, minimum_norm
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import between, close, equal, refuted, within
from ..engine.claim import Verdict, claim
from .nngp import by_kinks, recursion


def last_layers(
    X: np.ndarray, ys: np.ndarray, new: np.ndarray, width: int, keys: Any
) -> tuple[Any, Any]:
    """What random networks say at new inputs once their last layers, and these alone, are trained:
    from 0, and from where they began.
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
    title="Regression with a network of infinite width",
    kind="algorithm",
    of=("bayes.GaussianProcess", "explain.infinite", "models.minimum_norm"),
    cites="Lee et al. 2018; Matthews et al. 2017",
)
def kernel_regression(key):
    r"""$f^*(x) = k(x)^\top K^{-1} y$ with the kernel of the wide network needs no training, goes
    through the data and comes with a variance. It is what a wide random network says whose last
    layer alone is trained, from weights 0; trained from random ones, networks scatter about it with
    that variance.
    """
    rng = chance(key)
    n = 6
    d = 6
    X = (
        np.sqrt(d) * np.linalg.qr(rng.normal(size=(d, d)))[0][:n]
    )  # at right angles, so that K is far from singular
    new = rng.normal(size=(4, d))
    ys = rng.normal(size=n)
    kernel = infinite(MLP.init(d, 4, 1, initialiser=he, key=key), initialiser=he).nngp
    found = GaussianProcess.init(kernel).condition(jnp.asarray(X), jnp.asarray(ys))
    mean, variance = (np.asarray(part(jnp.asarray(new))) for part in (found.mean, found.variance))
    joint = recursion(np.concatenate([X, new]), by_kinks_or_half, depth=1, weight=2.0, bias=0.0)
    K = joint[:n, :n]
    k = joint[n:, :n]
    own = joint[n:, n:]
    key_one, key_many = jr.split(key)
    one = np.asarray(last_layers(X, ys, new, 20_000, key_one[None])[0][0])
    draws = 300
    many = np.asarray(last_layers(X, ys, new, 2000, jr.split(key_many, draws))[1])
    return Verdict(
        close("mean at the data", found.mean(jnp.asarray(X)), ys, tolerance=1e-8),
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
                "their variance: that of the prior",
                many.var(axis=0),
                np.diag(own),
                error=1.1 * variance * np.sqrt(2 / draws),
            )
        ),
        figure=_on_a_circle(key),
    )


def by_kinks_or_half(x: float, k: float, y: float) -> float:
    """For an input with itself half its variance."""
    return x / 2 if x == y == k else by_kinks(x, k, y)


def _on_a_circle(key: Any) -> Chart:
    """Inputs on a circle, a few of them seen: what one infinitely wide network believes of the
    others.
    """
    around = lambda t: jnp.asarray(np.stack([np.cos(t), np.sin(t)], axis=1))
    kernel = infinite(MLP.init(2, 4, 4, 1, initialiser=he, key=key), initialiser=he).nngp
    t = np.linspace(-np.pi, np.pi, 150)
    seen = np.array([-2.5, -1.6, -0.9, 0.2, 0.8, 1.3])
    found = GaussianProcess.init(kernel).condition(around(seen), jnp.asarray(np.sin(3 * seen)))
    mean = np.asarray(found.mean(around(t)))
    doubt = 2 * np.sqrt(np.asarray(found.variance(around(t))))
    band = {"± 2 standard deviations": (t, mean - doubt, mean + doubt)}
    points = {"data": (seen, np.sin(3 * seen))}
    return Chart(
        Panel("angle of the input", "output", bands=band, lines={"mean": (t, mean)}, points=points)
    )


def seconds(f: Any, times: int) -> float:
    """The least time of several."""
    taken = []
    for _ in range(times):
        began = perf_counter()
        f()
        taken.append(perf_counter() - began)
    return min(taken)


@claim(
    "10.2-nngp-cost",
    title="The square in memory, the cube in time",
    kind="experiment",
    of=(
        "bayes.GaussianProcess",
        "bayes.log_density",
        "bayes.pivoted_cholesky",
        "bayes.condition_iteratively",
    ),
)
def cost(key):
    r"""For $n$ examples $K$ has $n^2$ entries, and its factor takes time of order $n^3$. Without
    the factor, by products with blocks of $K$, memory is of order $n$.
    """
    sizes = np.array([250, 500, 1000, 2000])
    xs = jnp.asarray(chance(key).normal(size=(2000, 3)))
    f = GaussianProcess.init(RBF.init(), noise=0.1)
    factor = f.condition(xs[:250], xs[:250, 0]).L
    K = f.kernel(xs) + 0.1 * jnp.eye(2000)
    solved = jax.jit(log_density)
    parts = [(K[:n, :n], xs[:n, :1]) for n in sizes]
    times = [seconds(lambda part=part: jax.block_until_ready(solved(*part)), 6) for part in parts]
    slope = np.polyfit(np.log(sizes), np.log(times), 1)[0]
    work = [
        sum(
            operations(
                lambda xs, n=n: pivoted_cholesky(f.kernel, xs, rank=int(n)).L, xs[:n]
            ).values()
        )
        for n in sizes
    ]
    few = sizes[:2]
    lean = [condition_iteratively(f, xs[:n], xs[:n, 0], rank=10, tolerance=1e-4) for n in few]
    held = [sum(leaf.size for leaf in jax.tree.leaves(found)) for found in lean]
    return Verdict(
        equal("bytes of K, n = 250 … 2,000", [part[0].nbytes for part in parts], 8 * sizes**2),
        equal("of its factor, n = 250", factor.nbytes, 8 * 250**2),
        between("power of n by which the time of factor and solve grows", slope, 2.0, 3.3),
        between(
            "power of n of a whole Cholesky's operations, counted",
            np.polyfit(np.log(sizes), np.log(work), 1)[0],
            2.9,
            3.1,
        ),
        equal(
            "by conjugate gradients: numbers held for each example more",
            (held[1] - held[0]) / 250,
            _each(lean[0]),
        ),
        assumptions=[
            equal(
                "conjugate gradients converged",
                [bool(found.converged) for found in lean],
                [True] * 2,
            )
        ],
        figure=Chart(
            Panel(
                "examples n",
                "seconds",
                log="xy",
                points={"measured": (sizes, times)},
                bounds={"n³": (sizes, times[-1] * (sizes / sizes[-1]) ** 3)},
            )
        ),
    )


def _each(found: Any) -> int:
    """Numbers held for one example: its inputs, its weight, its row of the preconditioner."""
    return found.xs.shape[1] + 1 + found.pivots.L.shape[1]
