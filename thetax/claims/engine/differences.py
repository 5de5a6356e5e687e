"""Finite differences, to check gradients and Hessians without automatic differentiation."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

STEP = 1e-3


def jacobian(f: Callable[[Any], Any], x: Any, *, step: float = STEP) -> np.ndarray:
    """The Jacobian by the five-point rule, of shape (*f(x).shape, *x.shape); error O(step⁴)."""
    x = np.asarray(x, np.float64)
    units = np.eye(x.size).reshape(x.size, *x.shape)
    points = x + step * np.array([-2.0, -1.0, 1.0, 2.0]).reshape(-1, 1, *[1] * x.ndim) * units
    values = np.asarray(jax.vmap(jax.vmap(f))(jnp.asarray(points)))
    slopes = np.tensordot(np.array([1.0, -8.0, 8.0, -1.0]) / (12 * step), values, axes=1)
    return np.moveaxis(slopes, 0, -1).reshape(slopes.shape[1:] + x.shape)


def hessian(f: Callable[[Any], Any], x: Any, *, step: float = STEP) -> np.ndarray:
    """The Hessian of a scalar function of a vector, from its values only."""
    return jacobian(lambda y: _gradient(f, y, step), x, step=step)


def _gradient(f: Callable[[Any], Any], x: Any, step: float) -> Any:
    """The gradient by central differences, usable under `jax.vmap`; error O(step²)."""
    units = step * jnp.eye(x.size, dtype=x.dtype)
    up, down = (jax.vmap(lambda unit, side=side: f(x + side * unit))(units) for side in (1.0, -1.0))
    return (up - down) / (2 * step)
