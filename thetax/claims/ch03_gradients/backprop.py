"""§3.1: gradients through a chain of layers."""

from functools import reduce
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import layers, train, tree
from ...core import apply
from ...plot import Panel
from ..engine.check import close, close_derivative, equal
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian


class Convolution(eqx.Module):
    r"""$x \mapsto k * x$, truncated to the length of $x$: a layer that shares weights between
    positions.
    """

    k: jax.Array

    def __call__(self, x):
        return jnp.convolve(x, self.k, mode="same")


@jax.jit
def mixed_chain(key: Any) -> tuple[layers.Chain, jax.Array]:
    """A chain of a dense, a residual, a convolutional, a dense and a softmax layer of different
    widths, and an input.
    """
    keys = jr.split(key, 5)
    dense = lambda n, m, key: layers.Linear(
        jr.normal(key, (m, n)) / np.sqrt(n), jr.normal(key, (m,)) / 3
    )
    chain = layers.Chain(
        layers.Chain(dense(3, 5, keys[0]), jnp.tanh),
        layers.Residual(layers.Chain(dense(5, 5, keys[1]), jax.nn.sigmoid)),
        Convolution(jr.normal(keys[2], (5,))),
        layers.Chain(dense(5, 4, keys[3]), layers.softplus),
        jax.nn.softmax,
    )
    return chain, jr.normal(keys[4], (3,))


def squared_loss(prediction, y):
    """The squared loss of the library."""
    return train.squared_loss(prediction, y)


def cross_entropy(prediction, y):
    """The cross-entropy of the library."""
    return train.log_loss(prediction, y)


def backward(chain: layers.Chain, loss: Any, x: Any, y: Any) -> train.Backprop:
    """`train.backpropagate`, compiled."""
    return jax.jit(lambda chain, x, y: train.backpropagate(chain, loss, x, y))(
        chain, x, jnp.asarray(y)
    )


def remaining_loss(chain: layers.Chain, ell: int, loss: Any, y: Any) -> Any:
    r"""The loss as a function of $h_\ell$, through the layers after $\ell$."""
    return lambda h: loss(reduce(lambda h, layer: apply(layer, h), chain.layers[ell:], h), y)


TARGET = np.array([0.1, 0.2, 0.3, 0.4])


@claim(
    "3.1-setup",
    title="A network as a chain",
    kind="definition",
    of=("layers.Chain", "train.backpropagate"),
)
def setup(key):
    r"""A network is a composition $F = F_L \circ \dots \circ F_1$,
    $h_\ell = F_\ell[\theta_\ell](h_{\ell-1})$ with $h_0 = x$, with a loss $\ell(y, F(x))$: the
    values $h_\ell$ stored in the forward pass are those of the composition.
    """
    chain, x = mixed_chain(key)
    result = backward(chain, squared_loss, x, TARGET)
    a, b, c, d, _ = (jax.tree.map(np.asarray, layer) for layer in chain.layers)
    h = [np.asarray(x)]
    h += [np.tanh(a.layers[0].W @ h[0] + a.layers[0].b)]
    h += [h[1] + 1 / (1 + np.exp(-(b.inner.layers[0].W @ h[1] + b.inner.layers[0].b)))]
    h += [np.convolve(h[2], c.k, mode="same")]
    h += [np.log1p(np.exp(d.layers[0].W @ h[3] + d.layers[0].b))]
    h += [np.exp(h[4]) / np.exp(h[4]).sum()]
    return Verdict(
        *[close(f"h_{i}", result.activations[i], h[i], tolerance=1e-13) for i in range(6)],
        close("F(x) composed directly", chain(x), h[-1], tolerance=1e-13),
        close("the loss", result.loss, np.sum((h[-1] - TARGET) ** 2) / 2, tolerance=1e-13),
    )


@claim(
    "3.1-delta",
    "3.1-delta-base",
    title="The backpropagated signal δ",
    kind="definition",
    of=("train.backpropagate",),
)
def delta(key):
    r"""$\delta_\ell = \partial \ell / \partial h_\ell$ is the derivative of the loss by $h_\ell$
    through the layers after it. The recursion begins at
    $\delta_L = \partial \ell(y, \hat y) / \partial \hat y$, which is $\hat y - y$ for the squared
    loss and $\mathrm{softmax}(\hat y) - y$ for the cross-entropy.
    """
    chain, x = mixed_chain(key)
    y = jnp.asarray(TARGET)
    checks = []
    for name, loss in {"squared": squared_loss, "cross-entropy": cross_entropy}.items():
        result = backward(chain, loss, x, y)
        for ell, h in enumerate(result.activations):
            expected = jacobian(remaining_loss(chain, ell, loss, y), h)
            checks.append(
                close_derivative(f"δ_{ell}, {name}", result.deltas[ell], expected, tolerance=1e-9)
            )
        last = np.asarray(result.activations[-1])
        soft = np.exp(last) / np.exp(last).sum()
        base = last - TARGET if name == "squared" else soft - TARGET
        checks.append(
            close(f"δ_L in closed form, {name}", result.deltas[-1], base, tolerance=1e-13)
        )
    return Verdict(*checks)


@claim(
    "3.1-delta-recursion",
    title="The recursion of backpropagation",
    kind="algorithm",
    of=("train.backpropagate",),
    cites="Rumelhart, Hinton & Williams 1986",
)
def recursion(key):
    r"""$\delta_\ell = \big[\frac{\partial h_{\ell+1}}{\partial h_\ell}\big]^\top \delta_{\ell+1}$;
    for a dense layer $h_{\ell+1} = \varphi(W h_\ell + b)$ this is
    $\delta_\ell = W^\top (\varphi'(a) \odot \delta_{\ell+1})$.
    """
    chain, x = mixed_chain(key)
    y = jnp.asarray(TARGET)
    result = backward(chain, squared_loss, x, y)
    jacobians = [
        np.asarray(jax.jacfwd(layer)(h)) for layer, h in zip(chain.layers, result.activations)
    ]
    product = np.asarray(result.activations[-1]) - TARGET
    checks = []
    for ell in range(4, -1, -1):
        product = jacobians[ell].T @ product
        checks.append(close(f"δ_{ell} by full Jacobians", result.deltas[ell], product))
        slope = jacobian(remaining_loss(chain, ell, squared_loss, y), result.activations[ell])
        checks.append(
            close_derivative(
                f"δ_{ell} by finite differences", result.deltas[ell], slope, tolerance=1e-9
            )
        )
    dense = chain.layers[0].layers[0]
    a = np.asarray(dense.W) @ np.asarray(x) + np.asarray(dense.b)
    by_hand = np.asarray(dense.W).T @ ((1 - np.tanh(a) ** 2) * np.asarray(result.deltas[1]))
    expected = jax.grad(lambda chain: squared_loss(chain(x), y))(chain)
    distance = tree.norm(tree.axpy(-1.0, expected, result.gradient))
    return Verdict(
        *checks,
        close("the dense layer's Wᵀ(φ'(a) ⊙ δ)", result.deltas[0], by_hand, tolerance=1e-13),
        close(
            "all gradients, against jax.grad: distance",
            distance,
            0.0,
            tolerance=1e-13,
            method="closed form",
        ),
        figure=_pathways(result, jacobians),
    )


def _pathways(result: Any, jacobians: list[np.ndarray]) -> Panel:
    ell = np.arange(6)
    sizes = [np.linalg.norm(np.asarray(delta)) for delta in result.deltas]
    ends = np.asarray(result.deltas[-1])
    by_hand = [np.linalg.norm(reduce(lambda d, J: J.T @ d, jacobians[i:][::-1], ends)) for i in ell]
    return Panel(
        "layer",
        "length of δ",
        lines={"backpropagated": (ell, sizes)},
        points={"full Jacobians": (ell, by_hand)},
    )


@erratum(
    "3.1-delta-recursion",
    title="The recursion needs derivatives",
    printed=r"\delta_\ell = \Big[\frac{h_{\ell+1}}{h_\ell}\Big]^\top \delta_{\ell+1}",
    corrected=r"\delta_\ell = \Big[\frac{\partial h_{\ell+1}}{\partial h_\ell}\Big]^\top "
    r"\delta_{\ell+1}",
    of=("train.backpropagate",),
    slip=True,
)
def recursion_printed(key):
    r"""The signs $\partial$ are missing in print: the matrix of the quotients
    $h_{\ell+1, i} / h_{\ell, j}$ does not propagate $\delta_{\ell+1}$; the Jacobian does.
    """
    chain, x = mixed_chain(key)
    y = jnp.asarray(TARGET)
    result = backward(chain, squared_loss, x, y)
    printed = []
    checks = []
    for ell in range(5):
        h = np.asarray(result.activations[ell])
        after = np.asarray(result.activations[ell + 1])
        expected = jacobian(remaining_loss(chain, ell, squared_loss, y), h)
        quotients = (after[:, None] / h[None]).T @ np.asarray(result.deltas[ell + 1])
        printed.append(
            close_derivative(f"δ_{ell} by quotients", quotients, expected, tolerance=1e-9)
        )
        checks.append(close_derivative(f"δ_{ell}", result.deltas[ell], expected, tolerance=1e-9))
    return Verdict(*checks, printed=printed)


@claim(
    "3.1-param-gradient",
    title="The gradient of the parameters",
    kind="algorithm",
    of=("train.backpropagate",),
)
def parameters(key):
    r"""The gradient of a layer's parameters is
    $\frac{\partial \ell}{\partial \theta_\ell} = [\partial h_\ell / \partial \theta_\ell]^\top
    \delta_\ell$;
    for a dense layer
    $\frac{\partial \ell}{\partial W} = (\varphi'(a) \odot \delta_\ell)\, h_{\ell-1}^\top$ and
    $\frac{\partial \ell}{\partial b} = \varphi'(a) \odot \delta_\ell$.
    """
    checks = []
    for name, (chain, x), y in (
        ("mixed", mixed_chain(key), TARGET),
        ("widths 2-3-5-4", unequal_widths(key), TARGET),
    ):
        result = backward(chain, squared_loss, x, y)
        theta, back = tree.ravel(chain)
        expected = jacobian(
            lambda v, back=back, x=x, y=y: squared_loss(back(v)(x), jnp.asarray(y)), theta
        )
        checks.append(
            close_derivative(
                f"all {len(theta)} parameters of the {name} chain",
                tree.ravel(result.gradient)[0],
                expected,
                tolerance=1e-9,
            )
        )
    for i, layer in enumerate(chain.layers[::2]):
        W, b, h, d = (
            np.asarray(v)
            for v in (layer.W, layer.b, result.activations[2 * i], result.deltas[2 * i + 2])
        )
        back_through = (1 - np.tanh(W @ h + b) ** 2) * d
        gradient = result.gradient.layers[2 * i]
        checks.append(
            close(
                f"(φ'(a) ⊙ δ) hᵀ of layer {i + 1}",
                gradient.W,
                np.outer(back_through, h),
                tolerance=1e-13,
            )
        )
        checks.append(
            close(f"φ'(a) ⊙ δ of layer {i + 1}", gradient.b, back_through, tolerance=1e-13)
        )
    return Verdict(*checks)


@jax.jit
def unequal_widths(key: Any) -> tuple[layers.Chain, jax.Array]:
    """A dense network whose widths are all different, and an input."""
    keys = jr.split(key, 4)
    parts = [
        layers.Linear(jr.normal(k, (m, n)), jr.normal(k, (m,)))
        for k, n, m in zip(keys, (2, 3, 5), (3, 5, 4))
    ]
    sequence = [part for layer in parts for part in (layer, jnp.tanh)]
    return layers.Chain(*sequence), jr.normal(keys[3], (2,))


@erratum(
    "3.1-param-gradient",
    title="The Jacobian of the parameters is transposed",
    printed=r"\frac{\partial \ell}{\partial \theta_\ell} = \delta_\ell\, \frac{\partial "
    r"h_\ell}{\partial \theta_\ell}",
    corrected=r"\frac{\partial \ell}{\partial \theta_\ell} = "
    r"\Big[\frac{\partial h_\ell}{\partial \theta_\ell}\Big]^\top \delta_\ell",
    of=("train.backpropagate",),
    slip=True,
)
def parameters_printed(key):
    r"""The printed product is right if $\delta_\ell$ is a row vector. In the recursion above it is
    a column, whose single column does not match the $m$ rows of the Jacobian; the transposed
    Jacobian must then stand on the left.
    """
    chain, x = mixed_chain(key)
    result = backward(chain, squared_loss, x, TARGET)
    h = result.activations[2]
    column = np.asarray(result.deltas[3])[:, None]
    k = chain.layers[2].k
    J = np.asarray(jax.jacfwd(lambda k: Convolution(k)(h))(k))
    through = lambda k: remaining_loss(chain, 3, squared_loss, jnp.asarray(TARGET))(
        Convolution(k)(h)
    )
    expected = jacobian(through, k)
    fd = {"tolerance": 1e-9, "method": "finite differences"}
    return Verdict(
        equal("columns on the left, rows on the right", J.T.shape[1], column.shape[0]),
        close("with the transpose", (J.T @ column)[:, 0], expected, **fd),
        close("train.backpropagate", result.gradient.layers[2].k, expected, **fd),
        printed=[equal("columns on the left, rows on the right", column.shape[1], J.shape[0])],
    )
