"""§3.1: what backpropagation costs, and the same on any graph."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import layers, train
from ...core import apply
from ...jaxpr import inner_programs
from ...plot import Chart, Panel
from ..engine.check import at_most, between, close, equal, refuted
from ..engine.claim import Verdict, claim
from ..engine.differences import jacobian
from .backprop import backward, squares


def work(f: Any, *args: Any) -> int:
    """Multiply-adds and elementary operations of a function, counted in its program."""
    return _work(jax.make_jaxpr(f)(*args).jaxpr)


def _work(jaxpr: Any) -> int:
    total = 0
    for equation in jaxpr.eqns:
        if inner := inner_programs(equation):
            total += sum(_work(program.jaxpr) for program in inner)
            continue
        size = sum(out.aval.size for out in equation.outvars)
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            size *= int(np.prod([equation.invars[0].aval.shape[axis] for axis in contracted]))
        total += size
    return total


def naive(chain: layers.Chain, loss: Any, x: Any, y: Any) -> list[Any]:
    """Each layer's gradient by a way back of its own: nothing is remembered between them."""
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
    r"""Since $\delta_\ell$ is found from $\delta_{\ell+1}$ alone, the way back costs a small
    constant times the way forward, whatever the depth $L$: each layer is pulled back through once.
    Without that memory the cost is a quadratic in $L$: its second difference is one pull-back more
    for each layer.
    """
    width = 8
    depths = (2, 4, 8, 16, 32, 64)
    few = range(2, 9)
    layer = layers.Chain(layers.Linear(jr.normal(key, (width, width)), jnp.zeros(width)), jnp.tanh)
    x = y = jnp.ones(width)
    deep = lambda depth: layers.Chain(*[layer] * depth)
    forth = lambda depths: np.array([work(lambda c: squares(c(x), y), deep(L)) for L in depths])
    once = lambda depths: np.array(
        [work(lambda c: train.backpropagate(c, squares, x, y).gradient, deep(L)) for L in depths]
    )
    forward = forth(depths)
    shallow = forth(few)
    back = once(depths) - forward
    linear = once(few) - shallow
    quadratic = np.array([work(lambda c: naive(c, squares, x, y), deep(L)) for L in few]) - shallow
    slope = np.polyfit(np.log(depths[1:]), np.log(back[1:]), 1)[0]
    pull = work(lambda h, delta: jax.vjp(layer, h)[1](delta)[0], x, x)
    calls = pulls(key, 7)
    return Verdict(
        at_most("backward over forward", back / forward, 3.0),
        between("power of the depth in the way back", slope, 0.95, 1.05),
        equal("times each of 7 layers is pulled back", calls, np.ones(7, int)),
        equal("second differences in the depth, 2 to 8", np.diff(linear, 2), np.zeros(5, int)),
        refuted(at_most("backward over forward, without memory", quadratic / shallow, 3.0)),
        equal(
            "second differences without memory: one pull-back",
            np.diff(quadratic, 2),
            np.full(5, pull),
        ),
        figure=Chart(
            Panel(
                "layers",
                "multiply-adds",
                lines={
                    "forward": (depths, forward),
                    "backward": (depths, back),
                    "no memory": (few, quadratic),
                },
                bounds={"3 × forward": (depths, 3 * forward)},
            )
        ),
    )


def pulls(key: Any, depth: int) -> np.ndarray:
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
    train.backpropagate(layers.Chain(*map(counting, range(depth))), squares, x, x)
    return counts


def diamond(np_like: Any, theta: Any) -> Any:
    """A graph in which values are used twice and more, by numpy or by JAX: not a chain."""
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
    r"""On a graph where a value is used several times its $\delta$ is the sum over the uses; so the
    gradient of any program comes in one pass back. References that know nothing of it: dual numbers
    forwards, $\mathrm{Im}\, f(\theta + ih e_j)/h$ in complex numbers, and differences.
    """
    theta = jr.normal(key, (3,))
    reverse = np.asarray(jax.grad(lambda t: diamond(jnp, t))(theta))
    h = 1e-30
    step = lambda f, t: np.array(
        [np.imag(f(np.asarray(t) + 1j * h * e)) / h for e in np.eye(len(t))]
    )
    forward = np.array([jax.jvp(lambda t: diamond(jnp, t), (theta,), (e,))[1] for e in jnp.eye(3)])
    a = lambda t: np.sin(t[0] * t[1]) + t[2]
    cut = lambda t: (
        diamond(np, t) - (d_of(t) * a(t) - d_of(t) * a(np.asarray(theta)))
    )  # one use of a is forgotten
    W, x, y = (jr.normal(k, shape) for k, shape in zip(jr.split(key, 3), ((4, 4), (4,), (8,))))
    shared = lambda W: layers.Chain(
        layers.Residual(layers.Chain(layers.Linear(W), jnp.tanh)),
        layers.Linear(W),
        layers.Concat(layers.Pointwise(jnp.sin)),
    )
    found = backward(shared(W), squares, x, y).gradient
    summed = found.layers[0].inner.layers[0].W + found.layers[1].W
    by_numpy = lambda w: _residual_loss(w.reshape(4, 4), np.asarray(x), np.asarray(y))
    expected = step(by_numpy, np.asarray(W).ravel())
    return Verdict(
        close(
            "reverse, against the complex step",
            reverse,
            step(lambda t: diamond(np, t), theta),
            tolerance=1e-12,
            relative=True,
        ),
        close("reverse, against dual numbers", reverse, forward, tolerance=1e-12, relative=True),
        close(
            "reverse, against differences",
            reverse,
            jacobian(lambda t: diamond(jnp, t), theta),
            tolerance=1e-8,
            relative=True,
            method="finite differences",
        ),
        close(
            "a weight used twice: its gradients add up",
            np.ravel(summed),
            expected,
            tolerance=1e-12,
            relative=True,
        ),
        refuted(
            close(
                "the last use alone",
                np.ravel(found.layers[1].W),
                expected,
                tolerance=1e-3,
                relative=True,
            )
        ),
        refuted(
            close("one use forgotten", step(cut, theta), reverse, tolerance=1e-3, relative=True)
        ),
    )


def d_of(t: Any) -> Any:
    """The value at the end of the diamond, in NumPy."""
    a = np.sin(t[0] * t[1]) + t[2]
    c = np.exp(a / 3) + t[1] * a * a
    return c * a * t[1] + np.cos(c * t[0])


def _residual_loss(W: np.ndarray, x: np.ndarray, y: np.ndarray) -> Any:
    h = W @ (x + np.tanh(W @ x))
    return np.sum((np.concatenate([h, np.sin(h)]) - y) ** 2) / 2
