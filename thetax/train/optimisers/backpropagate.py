r"""Backpropagation (§3.1): a forward pass that stores every activation $h_\ell$, then a backward
pass that propagates $\delta_\ell$.

For $F = F_L \circ \dots \circ F_1$ with $h_\ell = F_\ell[\theta_\ell](h_{\ell-1})$ and $h_0 = x$,

$$\delta_L = \frac{\partial \ell}{\partial \hat y}, \qquad
\delta_{\ell-1} = \Big[\frac{\partial h_\ell}{\partial h_{\ell-1}}\Big]^\top \delta_\ell, \qquad
\frac{\partial \ell}{\partial \theta_\ell} = \Big[\frac{\partial h_\ell}{\partial
\theta_\ell}\Big]^\top \delta_\ell.$$

Both transposed Jacobians of a layer are applied by one vector-Jacobian product, without forming
them. For graphs that are not chains, `jax.grad` is the same algorithm, with gradients summed where
a value is used more than once.
"""

from typing import Any, NamedTuple

import jax

from ...core import Scalar, apply
from ...layers import Chain
from ..objectives.loss import Loss


class Backprop(NamedTuple):
    r"""Gradient (shaped like the chain), loss, activations $h_0, \dots, h_L$ and
    $\delta_0, \dots, \delta_L$.
    """

    gradient: Chain
    loss: Scalar
    activations: tuple[Any, ...]
    deltas: tuple[Any, ...]


def backpropagate(chain: Chain, loss: Loss, x: Any, y: Any) -> Backprop:
    r"""Gradient of $l(F(x), y)$ in every parameter, with all $h_\ell$ and $\delta_\ell$, for one
    example (§3.1).

    Each layer and its vector-Jacobian product are evaluated once, so the cost is linear in depth.
    The layers may be anything a `Chain` takes: affine, pointwise, `Residual`, `Concat`, nested
    chains. The gradient equals that of `jax.grad`. Departs: the notes drop the $\partial$ signs of
    the recursion, and print the gradient of $\theta_\ell$ for $\delta_\ell$ as a row. Rumelhart,
    Hinton & Williams 1986.

    >>> import jax.numpy as jnp
    >>> from thetax.layers import Linear
    >>> from thetax.train import squared_loss
    >>> chain = Chain(Linear(jnp.array([[2.0]])), jnp.square, Linear(jnp.array([[3.0]])))
    >>> result = backpropagate(chain, squared_loss, jnp.array([1.0]), jnp.array([11.0]))
    >>> [h.item() for h in result.activations], [delta.item() for delta in result.deltas]
    ([1.0, 2.0, 4.0, 12.0], [24.0, 12.0, 3.0, 1.0])
    >>> result.gradient.layers[0].W.item(), result.gradient.layers[2].W.item()
    (12.0, 4.0)
    """
    if not isinstance(chain, Chain):
        raise ValueError(
            f"backpropagate: expected a Chain of layers; got {type(chain).__name__}. Use "
            "model.body of an MLP, or jax.grad for any other model."
        )
    activations = [x]
    pullbacks = []
    for layer in chain.layers:
        h, pullback = jax.vjp(apply, layer, activations[-1])
        activations.append(h)
        pullbacks.append(pullback)
    value, delta = jax.value_and_grad(loss)(activations[-1], y)
    deltas = [delta]
    gradients = []
    for pullback in reversed(pullbacks):
        gradient, delta = pullback(delta)
        gradients.append(gradient)
        deltas.append(delta)
    return Backprop(Chain(*gradients[::-1]), value, tuple(activations), tuple(deltas[::-1]))
