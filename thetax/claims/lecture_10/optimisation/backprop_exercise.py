"""Lecture 10, exercise 3: backpropagation through one hidden layer, by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .... import layers, train, tree
from ...engine.check import close, close_derivative, equal, refuted
from ...engine.claim import Verdict, claim
from ...engine.differences import jacobian

D, K1, K, N = 3, 5, 2, 7


def example(rng: np.random.Generator) -> tuple[layers.Chain, np.ndarray, np.ndarray]:
    """A network of widths 3, 5 and 2 with logistic units, seven inputs and their targets."""
    first = layers.Linear(jnp.asarray(rng.normal(size=(K1, D))), jnp.asarray(rng.normal(size=K1)))
    last = layers.Linear(jnp.asarray(rng.normal(size=(K, K1))), jnp.asarray(rng.normal(size=K)))
    return (
        layers.Chain(first, layers.sigmoid, last),
        rng.normal(size=(N, D)),
        rng.normal(size=(N, K)),
    )


@jax.jit
def _squares(chain, x, y):
    return train.backpropagate(chain, train.squared_loss, x, y)


@jax.jit
def _logs(chain, x, y):
    return train.backpropagate(chain, train.log_loss, x, y)


def by_hand(chain: layers.Chain, x0: np.ndarray, delta2: np.ndarray) -> dict[str, np.ndarray]:
    r"""All gradients from $\delta_2$, for one example, as in the exercise."""
    W0, b0, W1 = (np.asarray(a) for a in (chain.layers[0].W, chain.layers[0].b, chain.layers[2].W))
    x1 = 1 / (1 + np.exp(-(W0 @ x0 + b0)))
    p1 = W1.T @ delta2
    delta1 = p1 * x1 * (1 - x1)
    return {
        "W1": np.outer(delta2, x1),
        "b1": delta2,
        "p1": p1,
        "W0": np.outer(delta1, x0),
        "b0": delta1,
    }


def output(chain: layers.Chain, x0: np.ndarray) -> np.ndarray:
    """x₂, by numpy."""
    (W0, b0), (W1, b1) = (
        (np.asarray(layer.W), np.asarray(layer.b)) for layer in (chain.layers[0], chain.layers[2])
    )
    return W1 @ (1 / (1 + np.exp(-(W0 @ x0 + b0)))) + b1


def by_exercise_names(result: train.Backprop) -> dict[str, Any]:
    """The library's gradients under the names of the exercise."""
    first, _, last = result.gradient.layers
    return {"W1": last.W, "b1": last.b, "p1": result.deltas[2], "W0": first.W, "b0": first.b}


SIZES = {"W1": (K, K1), "b1": (K,), "p1": (K1,), "W0": (K1, D), "b0": (K1,)}


@claim(
    "L10-ex3a-backprop",
    title="One hidden layer, by hand",
    kind="exercise",
    of=("train.backpropagate",),
)
def one_example(rng):
    r"""For $x_1 = \sigma(W_0 x_0 + b_0)$, $x_2 = W_1 x_1 + b_1$ and $\frac12 \|x_2 - y\|^2$:
    $\delta_2 = x_2 - y$, $\nabla_{W_1} = \delta_2 x_1^\top$, $\nabla_{b_1} = \delta_2$,
    $p_1 = W_1^\top \delta_2$, $\delta_1 = p_1 \odot x_1 \odot (1 - x_1)$,
    $\nabla_{W_0} = \delta_1 x_0^\top$ and $\nabla_{b_0} = \delta_1$.
    """
    chain, xs, ys = example(rng)
    x = xs[0]
    y = ys[0]
    result = by_exercise_names(_squares(chain, jnp.asarray(x), jnp.asarray(y)))
    expected = by_hand(chain, x, output(chain, x) - y)
    theta, back = tree.ravel(chain)
    slopes = jacobian(
        lambda v: jnp.square(back(v)(jnp.asarray(x)) - jnp.asarray(y)).sum() / 2, theta
    )
    ours = np.concatenate([np.ravel(result[name]) for name in ("W0", "b0", "W1", "b1")])
    without = by_hand(chain, x, output(chain, x) - y)[
        "p1"
    ]  # δ₁ without the derivative of the activation
    return Verdict(
        *(
            close(f"∇ of {name}" if name != "p1" else "p₁", result[name], expected[name])
            for name in SIZES
        ),
        *(equal(f"shape of {name}", np.shape(result[name]), SIZES[name]) for name in SIZES),
        close_derivative("all gradients by differences", ours, slopes),
        refuted(close("∇ of b₀ without x₁(1 − x₁)", result["b0"], without, tolerance=1e-8)),
    )


@claim("L10-ex3b-batch", title="All examples at once", kind="exercise", of=("train.backpropagate",))
def batch(rng):
    r"""With the examples as rows of $X_0, X_1, \Delta_2$ and
    $\Delta_1 = (\Delta_2 W_1) \odot X_1 \odot (1 - X_1)$ the gradients of the sum of the losses are
    $\Delta_2^\top X_1$, $\Delta_2^\top 1$, $\Delta_1^\top X_0$ and $\Delta_1^\top 1$. The gradient
    of the empirical risk is $1/N$ of it.
    """
    chain, xs, ys = example(rng)
    results = jax.vmap(_squares, in_axes=(None, 0, 0))(chain, jnp.asarray(xs), jnp.asarray(ys))
    total = {
        name: np.asarray(leaf).sum(axis=0)
        for name, leaf in by_exercise_names(results).items()
        if name != "p1"
    }
    W0 = np.asarray(chain.layers[0].W)
    b0 = np.asarray(chain.layers[0].b)
    W1 = np.asarray(chain.layers[2].W)
    b1 = np.asarray(chain.layers[2].b)
    X1 = 1 / (1 + np.exp(-(xs @ W0.T + b0)))
    delta2 = X1 @ W1.T + b1 - ys
    delta1 = delta2 @ W1 * X1 * (1 - X1)
    matrix = {
        "W1": delta2.T @ X1,
        "b1": delta2.sum(axis=0),
        "W0": delta1.T @ xs,
        "b0": delta1.sum(axis=0),
    }
    loop = {name: np.zeros(SIZES[name]) for name in matrix}
    for x, y in zip(xs, ys):
        one = by_hand(chain, x, output(chain, x) - y)
        loop = {name: loop[name] + one[name] for name in loop}
    mean = jax.grad(train.squared_error)(chain, (jnp.asarray(xs), jnp.asarray(ys)))
    checks = []
    for name, value in matrix.items():
        checks.append(close(f"∇ of {name} in matrices, against a loop", value, loop[name]))
        checks.append(close(f"the library's sum for {name}", total[name], value))
    return Verdict(
        *checks,
        close("∇ of W₀ of the mean, times N", N * np.asarray(mean.layers[0].W), matrix["W0"]),
        refuted(
            close(
                "∇ of W₀ of the mean, not multiplied",
                mean.layers[0].W,
                matrix["W0"],
                tolerance=1e-8,
            )
        ),
    )


@claim(
    "L10-ex3c-ce",
    title="Backpropagation with cross-entropy",
    kind="exercise",
    of=("train.log_loss", "train.backpropagate"),
)
def cross_entropy(rng):
    r"""For $-\sum_k y_k \log \mathrm{softmax}_k(x_2)$ only the start of the recursion changes:
    $\delta_2 = \mathrm{softmax}(x_2) \sum_k y_k - y$, which is $\mathrm{softmax}(x_2) - y$ when $y$
    is a distribution, one-hot or not.
    """
    chain, xs, _ = example(rng)
    targets = {
        "one-hot": np.array([0.0, 1.0]),
        "a distribution": np.array([0.3, 0.7]),
        "of sum 2.5": np.array([2, 0.5]),
    }
    theta, back = tree.ravel(chain)
    checks = []
    short = []
    for i, (name, y) in enumerate(targets.items()):
        x = xs[i]
        z = output(chain, xs[i])
        soft = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
        results = _logs(chain, jnp.asarray(x), jnp.asarray(y))
        loss = lambda v, x=x, y=y: (
            -jnp.asarray(y)
            @ (back(v)(jnp.asarray(x)) - jnp.log(jnp.exp(back(v)(jnp.asarray(x))).sum()))
        )
        slopes = jacobian(loss, theta)
        ours = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(results.gradient)])
        delta2 = soft * y.sum() - y
        checks += [
            close(f"{name}: δ₂", results.deltas[-1], delta2),
            close(f"{name}: δ₁", by_exercise_names(results)["b0"], by_hand(chain, x, delta2)["b0"]),
            close_derivative(f"{name}: all gradients by differences", ours, slopes),
        ]
        short.append(
            close(f"{name}: δ₂ without the sum", results.deltas[-1], soft - y, tolerance=1e-8)
        )
    integer = _logs(chain, jnp.asarray(xs[0]), jnp.array(1))
    as_label = close(
        "the label 1 as an integer",
        integer.deltas[-1],
        _logs(chain, jnp.asarray(xs[0]), jnp.array([0.0, 1.0])).deltas[-1],
    )
    return Verdict(*checks, *short[:2], refuted(short[2]), as_label)
