"""Checks of invariance and equivariance of functions of sets, over all or many orders."""

from collections.abc import Callable
from itertools import permutations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

CYCLE = np.array([1, 2, 0])  # an order whose matrix is not its own inverse


def all_orders(M: int) -> np.ndarray:
    """All orders of M elements, one a row."""
    return np.array(list(permutations(range(M))))


def matrix_of(order: np.ndarray) -> np.ndarray:
    """The permutation matrix P with (PX)_i = X_{order(i)}."""
    return np.eye(len(order))[order]


def values(f: Callable[[Any], Any], X: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """f(PX) for every order."""
    return np.asarray(jax.jit(jax.vmap(f))(jnp.asarray(X[orders])))


def invariance_error(f: Callable[[Any], Any], X: np.ndarray, orders: np.ndarray) -> float:
    r"""The largest $|f(PX) - f(X)|$, relative to the largest $|f(X)|$."""
    y = np.asarray(f(jnp.asarray(X)))
    return float(np.abs(values(f, X, orders) - y).max() / np.abs(y).max())


def equivariance_error(f: Callable[[Any], Any], X: np.ndarray, orders: np.ndarray) -> float:
    r"""The largest $|f(PX) - P f(X)|$, relative to the largest $|f(X)|$."""
    y = np.asarray(f(jnp.asarray(X)))
    return float(np.abs(values(f, X, orders) - y[orders]).max() / np.abs(y).max())
