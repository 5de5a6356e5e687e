"""§3.1: the cost of backpropagation, and reverse mode on any graph."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import layers, train
from ...core import apply
from ...jaxpr import inner_programs
from ...plot import Panel
from ..engine.check import at_most, between, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim
from ..engine.differences import jacobian
from .backprop import backward, squared_loss


def count_operations(f: Any, *args: Any) -> int:
    """The number of multiply-adds and elementary operations of a function, from its jaxpr."""
    return _count_operations(jax.make_jaxpr(f)(*args).jaxpr)


def _count_operations(jaxpr: Any) -> int:
    total = 0
    for equation in jaxpr.eqns:
        if inner := inner_programs(equation):
            total += sum(_count_operations(program.jaxpr) for program in inner)
            continue
        size = sum(out.aval.size for out in equation.outvars)
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            size *= int(np.prod([equation.invars[0].aval.shape[axis] for axis in contracted]))
        total += size
    return total


def gradients_without_reuse(chain: layers.Chain, loss: Any, x: Any, y: Any) -> list[Any]:
    """The gradient of each layer by a backward pass of its own; no δ is reused."""
    h = [x]
    for layer in chain.layers:
        h.append(apply(layer, h[-1]))
    gradients = []
    for ell in range(len(chain.layers)):
        delta = jax.grad(loss)(h[-1], y)
        for layer, before in list(zip(chain.layers, h))[:ell:-1]:
            delta = jax.vjp(layer, before)[1](delta)[0]
        gradients.append(
            jax.vjp(lambda layer, b=h[ell]: apply(layer, b), chain.layers[ell])[1](delta)[0]
        )
    return gradients


@claim(
    "3.1-linear-time",
    title="Backpropagation takes linear time",
    kind="identity",
    of=("train.backpropagate",),
)
def linear_time(key):
    r"""Since $\delta_\ell$ is computed from $\delta_{\ell+1}$ alone, the backward pass costs a
    small constant times the forward pass at every depth $L$: one vector-Jacobian product per layer.
    If no $\delta$ is reused the cost is quadratic in $L$: its second difference is the cost of one
    vector-Jacobian product.
    """
    width = 8
    depths = (2, 4, 8, 16, 32, 64)
    small_depths = range(2, 9)
    layer = layers.Chain(layers.Linear(jr.normal(key, (width, width)), jnp.zeros(width)), jnp.tanh)
    x = y = jnp.ones(width)
    deep = lambda depth: layers.Chain(*[layer] * depth)
    forward_cost = lambda depths: np.array(
        [count_operations(lambda c: squared_loss(c(x), y), deep(L)) for L in depths]
    )
    total_cost = lambda depths: np.array(
        [
            count_operations(lambda c: train.backpropagate(c, squared_loss, x, y).gradient, deep(L))
            for L in depths
        ]
    )
    forward = forward_cost(depths)
    forward_small = forward_cost(small_depths)
    backward_cost = total_cost(depths) - forward
    backward_small = total_cost(small_depths) - forward_small
    quadratic = (
        np.array(
            [
                count_operations(lambda c: gradients_without_reuse(c, squared_loss, x, y), deep(L))
                for L in small_depths
            ]
        )
        - forward_small
    )
    slope = np.polyfit(np.log(depths[1:]), np.log(backward_cost[1:]), 1)[0]
    pull = count_operations(lambda h, delta: jax.vjp(layer, h)[1](delta)[0], x, x)
    calls = count_pullbacks(key, 7)
    return Verdict(
        at_most("backward over forward", backward_cost / forward, 3.0),
        between("power of the depth in the cost of the backward pass", slope, 0.95, 1.05),
        equal("number of vector-Jacobian products of each of 7 layers", calls, np.ones(7, int)),
        equal(
            "second differences of the backward cost, depths 2 to 8",
            np.diff(backward_small, 2),
            np.zeros(5, int),
        ),
        refuted(at_most("backward over forward, without reuse", quadratic / forward_small, 3.0)),
        equal(
            "second differences without reuse: one vector-Jacobian product",
            np.diff(quadratic, 2),
            np.full(5, pull),
        ),
        figure=Panel(
            "layers",
            "multiply-adds",
            lines={
                "forward": (depths, forward),
                "backward": (depths, backward_cost),
                "backward, without reuse": (small_depths, quadratic),
            },
            bounds={"3 × forward": (depths, 3 * forward)},
        ),
    )


def count_pullbacks(key: Any, depth: int) -> np.ndarray:
    """How often `backpropagate` calls the vector-Jacobian product of each layer."""
    counts = np.zeros(depth, int)

    def counting(i):
        @jax.custom_vjp
        def f(x):
            return jnp.sin(x)

        def back(x, delta):
            counts[i] += 1
            return (jnp.cos(x) * delta,)

        f.defvjp(lambda x: (jnp.sin(x), x), back)
        return f

    x = jr.normal(key, (3,))
    train.backpropagate(layers.Chain(*map(counting, range(depth))), squared_loss, x, x)
    return counts


def diamond(np_like: Any, theta: Any) -> Any:
    """A function whose graph is not a chain (values are used more than once), in NumPy or JAX."""
    a = np_like.sin(theta[0] * theta[1]) + theta[2]
    b = a * theta[1]
    c = np_like.exp(a / 3) + b * a
    d = c * b + np_like.cos(c * theta[0])
    return d * a + c * theta[2] + np_like.tanh(d - b)


@claim(
    "3.1-autodiff",
    title="Reverse mode on any graph",
    kind="algorithm",
    of=("train.backpropagate", "layers.Residual", "layers.Concat"),
    cites="Linnainmaa 1970; Squire & Trapp 1998 (the complex step)",
)
def autodiff(key):
    r"""If a value is used several times, its $\delta$ is the sum over the uses; so one backward
    pass gives the gradient of any program. Independent references: dual numbers in forward mode,
    the complex step $\mathrm{Im}\, f(\theta + ih e_j)/h$, and finite differences.
    """
    theta = jr.normal(key, (3,))
    reverse = np.asarray(jax.grad(lambda t: diamond(jnp, t))(theta))
    h = 1e-30
    step = lambda f, t: np.array(
        [np.imag(f(np.asarray(t) + 1j * h * e)) / h for e in np.eye(len(t))]
    )
    forward = np.array([jax.jvp(lambda t: diamond(jnp, t), (theta,), (e,))[1] for e in jnp.eye(3)])
    a = lambda t: np.sin(t[0] * t[1]) + t[2]
    missing_use = lambda t: (
        diamond(np, t) - (diamond_end(t) * a(t) - diamond_end(t) * a(np.asarray(theta)))
    )  # without the gradient of one use of a
    W, x, y = (jr.normal(k, shape) for k, shape in zip(jr.split(key, 3), ((4, 4), (4,), (8,))))
    tied = lambda W: layers.Chain(
        layers.Residual(layers.Chain(layers.Linear(W), jnp.tanh)),
        layers.Linear(W),
        layers.Concat(layers.Pointwise(jnp.sin)),
    )
    result = backward(tied(W), squared_loss, x, y).gradient
    total_gradient = result.layers[0].inner.layers[0].W + result.layers[1].W
    by_numpy = lambda w: _residual_loss(w.reshape(4, 4), np.asarray(x), np.asarray(y))
    expected = step(by_numpy, np.asarray(W).ravel())
    return Verdict(
        close(
            "reverse, against the complex step",
            reverse,
            step(lambda t: diamond(np, t), theta),
            relative=True,
        ),
        close("reverse, against dual numbers", reverse, forward, relative=True),
        close_derivative(
            "reverse, against finite differences",
            reverse,
            jacobian(lambda t: diamond(jnp, t), theta),
            relative=True,
        ),
        close(
            "a weight used twice: its gradients add up",
            np.ravel(total_gradient),
            expected,
            relative=True,
        ),
        refuted(
            close(
                "gradient of the last use alone",
                np.ravel(result.layers[1].W),
                expected,
                tolerance=1e-3,
                relative=True,
            )
        ),
        refuted(
            close(
                "gradient without one of the uses",
                step(missing_use, theta),
                reverse,
                tolerance=1e-3,
                relative=True,
            )
        ),
    )


def diamond_end(t: Any) -> Any:
    """The variable `d` of `diamond`, in NumPy."""
    a = np.sin(t[0] * t[1]) + t[2]
    c = np.exp(a / 3) + t[1] * a * a
    return c * a * t[1] + np.cos(c * t[0])


def _residual_loss(W: np.ndarray, x: np.ndarray, y: np.ndarray) -> Any:
    h = W @ (x + np.tanh(W @ x))
    return np.sum((np.concatenate([h, np.sin(h)]) - y) ** 2) / 2
