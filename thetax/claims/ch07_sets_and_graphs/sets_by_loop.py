"""Reference implementations of networks for sets, in NumPy, and generic weights."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import tree
from ...layers import Linear, SharedMLP, TNet
from ...models import PointNetFeatures
from ..engine.differences import jacobian


def generic(model: Any, key: Any, scale: float = 0.3) -> Any:
    """The model with noise on all parameters, so that no weight is 0."""
    return tree.axpy(scale, tree.normal_like(key, model), model)


def relu(x: np.ndarray) -> np.ndarray:
    """The positive part."""
    return np.maximum(x, 0)


def affine(layer: Linear, x: np.ndarray) -> np.ndarray:
    """$Wx + b$ of one vector."""
    return np.asarray(layer.W) @ x + np.asarray(layer.b)


def mlp(net: Any, x: np.ndarray, activation: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """An MLP of one vector, layer by layer."""
    linears = [layer for layer in net.body.layers if isinstance(layer, Linear)]
    for layer in linears[:-1]:
        x = activation(affine(layer, x))
    return affine(linears[-1], x)


def shared(net: SharedMLP, X: np.ndarray) -> np.ndarray:
    """A shared MLP with ReLU, element by element."""
    rows = []
    for x in X:
        for i, layer in enumerate(net.layers):
            x = affine(layer, x)
            x = relu(x) if i < len(net.layers) - 1 or net.activate_last else x
        rows.append(x)
    return np.array(rows)


def transform(net: TNet | None, X: np.ndarray) -> np.ndarray:
    """The matrix of a T-net; without one the identity."""
    if net is None:
        return np.eye(X.shape[1])
    h = shared(net.points, X).max(axis=0)
    h = h if net.head is None else shared(net.head, h[None])[0]
    return affine(net.last, h).reshape(X.shape[1], X.shape[1])


def features(net: PointNetFeatures, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The local features, and those of the points before the maximum."""
    local = shared(net.local, X @ transform(net.input_net, X))
    local = local @ transform(net.feature_net, local)
    return local, shared(net.points, local)


def slope_and_differences(value: Callable[[Any], Any], model: Any) -> tuple[Any, np.ndarray]:
    """The gradient in all parameters by automatic and by finite differences."""
    theta, back = tree.ravel(model)
    of_theta = jax.jit(lambda theta: value(back(theta)))
    return jax.grad(of_theta)(theta), jacobian(of_theta, theta)


def random_points(key: Any, *shape: int) -> np.ndarray:
    """Standard normal points."""
    return np.asarray(jr.normal(key, shape, jnp.float64))
