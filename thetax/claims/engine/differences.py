"""Derivatives without differentiation: the other side of every gradient that is claimed."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

STEP = 1e-3


def jacobian(f: Callable[[Any], Any], x: Any, *, step: float = STEP) -> np.ndarray:
    """The derivative of an array by an array, shape f(x) then shape x, by the five-point rule, of
    error step⁴.
    """
    x = np.asarray(x, np.float64)
    units = np.eye(x.size).reshape(x.size, *x.shape)
    places = x + step * np.array([-2.0, -1.0, 1.0, 2.0]).reshape(-1, 1, *[1] * x.ndim) * units
    values = np.asarray(jax.vmap(jax.vmap(f))(jnp.asarray(places)))
    slopes = np.tensordot(np.array([1.0, -8.0, 8.0, -1.0]) / (12 * step), values, axes=1)
    return np.moveaxis(slopes, 0, -1).reshape(slopes.shape[1:] + x.shape)


def hessian(f: Callable[[Any], Any], x: Any, *, step: float = STEP) -> np.ndarray:
    """The second derivative of a number by a vector, from its values alone."""
    return jacobian(lambda y: _gradient(f, y, step), x, step=step)


def _gradient(f: Callable[[Any], Any], x: Any, step: float) -> Any:
    """Central differences that `jax.vmap` can map, of error step²."""
    units = step * jnp.eye(x.size, dtype=x.dtype)
    up, down = (jax.vmap(lambda unit, side=side: f(x + side * unit))(units) for side in (1.0, -1.0))
    return (up - down) / (2 * step)
