"""Reference implementations of the cells as loops over time in NumPy, and helpers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit

from ... import layers, tree
from ..engine.differences import jacobian


def elman(
    U: Any, V: Any, xs: Any, *, b: Any = 0.0, z: Any = None, phi: Any = np.tanh
) -> np.ndarray:
    r"""$z_0, z_1, \dots, z_T$."""
    states = [np.zeros(len(U)) if z is None else np.asarray(z)]
    for x in np.asarray(xs):
        states.append(phi(np.asarray(U) @ states[-1] + np.asarray(V) @ x + b))
    return np.array(states)


def lstm(F: Any, G: Any, V: Any, H: Any, M: Any, xs: Any) -> tuple[np.ndarray, np.ndarray]:
    r"""$\zeta_1, \dots, \zeta_T$ and $z_1, \dots, z_T$ in the notation of the notes."""
    hidden = np.zeros(len(M))
    cell = np.zeros(len(M))
    states = []
    for x in np.asarray(xs):
        joined = np.concatenate([hidden, x])
        cell = expit(F @ joined) * cell + expit(G @ joined) * np.tanh(V @ joined)
        hidden = expit(H @ joined) * np.tanh(M @ cell)
        states.append((hidden, cell))
    hidden, cell = zip(*states)
    return np.array(hidden), np.array(cell)


def gru(G: Any, H: Any, V: Any, xs: Any) -> tuple[np.ndarray, np.ndarray]:
    r"""$z_0, \dots, z_T$, and the candidates $\tilde z_1, \dots, \tilde z_T$."""
    states = [np.zeros(len(G))]
    candidates = []
    for x in np.asarray(xs):
        joined = np.concatenate([states[-1], x])
        keep = expit(G @ joined)
        reset = expit(H @ joined)
        candidates.append(np.tanh(V @ np.concatenate([reset * states[-1], x])))
        states.append(keep * states[-1] + (1 - keep) * candidates[-1])
    return np.array(states), np.array(candidates)


def elman_cell(U: Any, V: Any, *, phi: Any = layers.tanh) -> layers.Elman:
    """An `Elman` cell with these matrices and without bias, as in the notes."""
    return layers.Elman(jnp.asarray(U), jnp.asarray(V), jnp.zeros(len(U)), phi)


def random_elman(
    rng: np.random.Generator, n: int, m: int, *, scale: float = 1.0, phi: Any = layers.tanh
) -> Any:
    r"""$U$ and $V$ with entries of variance $\frac{1}{m}$ and $\frac{1}{n}$, and their cell."""
    U = scale * rng.normal(size=(m, m)) / np.sqrt(m)
    V = rng.normal(size=(m, n)) / np.sqrt(n)
    return U, V, elman_cell(U, V, phi=phi)


@jax.jit
def outputs(cell: Any, xs: Any) -> Any:
    """All outputs of a cell, from its start state."""
    return layers.unroll(cell, jnp.asarray(xs))[1]


@jax.jit
def final_state(cell: Any, xs: Any, state: Any) -> Any:
    """The final state after a sequence, from a given state."""
    return layers.unroll(cell, jnp.asarray(xs), state=state)[0]


def weight_gradients(cell: Any, xs: Any, c: Any) -> tuple[np.ndarray, np.ndarray]:
    r"""The gradient of $\sum_t c_t^\top y_t$ by all weights of a cell, by autodiff and by finite
    differences.
    """
    theta, back = tree.ravel(cell)
    value = jax.jit(lambda v: jnp.vdot(jnp.asarray(c), layers.unroll(back(v), jnp.asarray(xs))[1]))
    return np.asarray(jax.jit(jax.grad(value))(theta)), jacobian(value, theta, step=3e-4)
