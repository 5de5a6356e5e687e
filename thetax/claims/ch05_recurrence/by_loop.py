"""The cells once more, as loops over time in NumPy: the other side of what is claimed of them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit

from ... import layers, tree
from ..engine.differences import jacobian

FD = {"tolerance": 1e-8, "method": "finite differences"}


def elman(
    U: Any, V: Any, xs: Any, *, b: Any = 0.0, z: Any = None, phi: Any = np.tanh
) -> np.ndarray:
    r"""$z_0, z_1, \dots, z_T$."""
    states = [np.zeros(len(U)) if z is None else np.asarray(z)]
    for x in np.asarray(xs):
        states.append(phi(np.asarray(U) @ states[-1] + np.asarray(V) @ x + b))
    return np.array(states)


def lstm(F: Any, G: Any, V: Any, H: Any, M: Any, xs: Any) -> tuple[np.ndarray, np.ndarray]:
    r"""$\zeta_1, \dots, \zeta_T$ and $z_1, \dots, z_T$ in the letters of the notes."""
    shown = np.zeros(len(M))
    cell = np.zeros(len(M))
    ways = []
    for x in np.asarray(xs):
        both = np.concatenate([shown, x])
        cell = expit(F @ both) * cell + expit(G @ both) * np.tanh(V @ both)
        shown = expit(H @ both) * np.tanh(M @ cell)
        ways.append((shown, cell))
    shown, cell = zip(*ways)
    return np.array(shown), np.array(cell)


def gru(G: Any, H: Any, V: Any, xs: Any) -> tuple[np.ndarray, np.ndarray]:
    r"""$z_0, \dots, z_T$, and the candidates $\tilde z_1, \dots, \tilde z_T$."""
    states = [np.zeros(len(G))]
    new = []
    for x in np.asarray(xs):
        both = np.concatenate([states[-1], x])
        keep = expit(G @ both)
        reset = expit(H @ both)
        new.append(np.tanh(V @ np.concatenate([reset * states[-1], x])))
        states.append(keep * states[-1] + (1 - keep) * new[-1])
    return np.array(states), np.array(new)


def plain(U: Any, V: Any, *, phi: Any = layers.tanh) -> layers.Elman:
    """The library's cell of these matrices, without an offset as in the notes."""
    return layers.Elman(jnp.asarray(U), jnp.asarray(V), jnp.zeros(len(U)), phi)


def random_elman(
    rng: np.random.Generator, n: int, m: int, *, scale: float = 1.0, phi: Any = layers.tanh
) -> Any:
    r"""$U$ and $V$ with entries of variance $\frac{1}{m}$ and $\frac{1}{n}$, and the cell of
    them.
    """
    U = scale * rng.normal(size=(m, m)) / np.sqrt(m)
    V = rng.normal(size=(m, n)) / np.sqrt(n)
    return U, V, plain(U, V, phi=phi)


@jax.jit
def outputs(cell: Any, xs: Any) -> Any:
    """All that a cell puts out, from its start."""
    return layers.unroll(cell, jnp.asarray(xs))[1]


@jax.jit
def last(cell: Any, xs: Any, state: Any) -> Any:
    """The state after a stretch, from a state."""
    return layers.unroll(cell, jnp.asarray(xs), state=state)[0]


def slopes(cell: Any, xs: Any, c: Any) -> tuple[np.ndarray, np.ndarray]:
    r"""The gradient of $\sum_t c_t^\top y_t$ in all weights of a cell: by the library, and by
    differences.
    """
    theta, back = tree.ravel(cell)
    value = jax.jit(lambda v: jnp.vdot(jnp.asarray(c), layers.unroll(back(v), jnp.asarray(xs))[1]))
    return np.asarray(jax.jit(jax.grad(value))(theta)), jacobian(value, theta, step=3e-4)
