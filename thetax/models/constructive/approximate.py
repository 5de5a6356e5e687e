r"""Constructive universal approximation (§2.5, §2.6): networks with one hidden layer and explicit
weights.

- `interpolating_network`: piecewise linear interpolation with ReLU units
- `step_network`: a staircase of step functions or steep sigmoids
- `ridge_network`: random units $\varphi(w^\top x + b)$ in any dimension, with least-squares output
  weights (random features)

Each returns an `MLP`.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Num, PRNGKeyArray

from ...core import as_floats
from ...layers import Activation, Chain, Linear, heaviside, relu, sigmoid, tanh
from ..linear.regression import least_squares
from ..mlp import MLP

Numbers = Num[Array, " m"] | Num[np.ndarray, " m"] | Sequence[float]
Examples = Num[Array, "n d"] | Num[np.ndarray, "n d"]


def interpolating_network(xs: Numbers, ys: Numbers) -> MLP:
    r"""ReLU network for piecewise linear interpolation, $g(x_i) = y_i$ (§2.6; Lebesgue 1898).

    For knots $x_0 < \dots < x_m$ with slopes $a_i = (y_i - y_{i-1}) / (x_i - x_{i-1})$,
    $g(x) = y_0 + a_1 (x - x_0)_+ - a_1 (x_0 - x)_+ + \sum_{i=1}^{m-1} (a_{i+1} - a_i)(x - x_i)_+$:
    $m$ pieces take $m + 1$ units, and the outer pieces extend beyond the knots.

    Departs: the notes count $m - 1$ units, without the two units of the affine part.

    >>> net = interpolating_network(np.array([0.0, 1.0, 3.0]), np.array([1.0, 2.0, 0.0]))
    >>> [net(jnp.array([x])).item() for x in (-1.0, 0.0, 0.5, 1.0, 2.0, 4.0)]
    [0.0, 1.0, 1.5, 2.0, 1.0, -1.0]
    """
    knots = np.asarray(xs, np.float64)
    values = np.asarray(ys, np.float64)
    if knots.ndim != 1 or knots.shape != values.shape or len(knots) < 2:
        raise ValueError(
            "interpolating_network: xs and ys must be vectors of equal length, at least 2; got "
            f"{knots.shape} and {values.shape}."
        )
    if not np.isfinite(values).all():
        index = int(np.isfinite(values).argmin())
        raise ValueError(
            f"interpolating_network: ys must be finite, but ys[{index}] is {values[index]}; drop "
            "it."
        )
    if not (np.diff(knots) > 0).all():
        raise ValueError(
            "interpolating_network: xs must increase strictly; sort them and drop duplicates."
        )
    slopes = np.diff(values) / np.diff(knots)
    w = np.concatenate([[-1.0], np.ones(len(slopes))])
    b = np.concatenate([[knots[0]], -knots[:-1]])
    v = np.concatenate([[-slopes[0]], slopes[:1], np.diff(slopes)])
    array = lambda a: jnp.asarray(a, jnp.zeros(()).dtype)
    hidden = Linear(array(w[:, None]), array(b))
    output = Linear(array(v[None]), array(values[:1]))
    return MLP(Chain(hidden, relu, output))


def step_network(
    f: Callable[[Array], Array], *, low: float, high: float, width: int, steepness: float = math.inf
) -> MLP:
    r"""Staircase approximation of $f$ on $[a, b]$ with `width` equal steps,
    $|f - g| \le \omega(f, h / 2)$ (§2.5; Cybenko 1989).

    With cells of length $h = (b - a) / (m + 1)$, edges $t_i = a + ih$ and midpoints $c_i$,
    $g(x) = f(c_0) + \sum_{i=1}^m (f(c_i) - f(c_{i-1}))\, 1\{x \ge t_i\}$; $\omega(f, \delta)$ is
    the modulus of continuity of $f$. A finite `steepness` $k$ replaces each step by the sigmoid
    $\sigma(k(x - t_i))$, which smooths the steps over a length of about $1 / k$.

    >>> net = step_network(jnp.sin, low=0.0, high=3.0, width=59)
    >>> abs(net(jnp.array([1.0])).item() - math.sin(1.0)) <= 0.025
    True
    """
    if not (low < high and width >= 1 and steepness > 0):
        raise ValueError(
            "step_network: expected low < high, width >= 1 and steepness > 0; "
            f"got low={low}, high={high}, width={width}, steepness={steepness}."
        )
    edges = jnp.linspace(low, high, width + 2)
    heights = _values(f, (edges[1:] + edges[:-1]) / 2)
    if heights.shape != (width + 1,):
        raise ValueError(
            "step_network: f must map a scalar to a scalar; its output has shape "
            f"{heights.shape[1:]}."
        )
    k, activation = (1.0, heaviside) if math.isinf(steepness) else (steepness, sigmoid)
    stairs = Linear(jnp.full((width, 1), k), -k * edges[1:-1])
    return MLP(Chain(stairs, activation, Linear(jnp.diff(heights)[None], heights[:1])))


def _values(f: Callable[[Array], Array], xs: Float[Array, " m"]) -> Float[Array, "m ..."]:
    """Evaluates the function at each number: with `jax.vmap`, or in a Python loop if it is no JAX
    function, such as `math.sin`.
    """
    try:
        return jax.vmap(f)(xs)
    except TypeError:  # f cannot be traced
        return as_floats("step_network", np.array([f(x) for x in np.asarray(xs)])).astype(xs.dtype)


def random_units(xs: Examples, *, width: int, spread: float = 1.0, key: PRNGKeyArray) -> Linear:
    r"""Random affine forms $w_j^\top x + b_j$ that vanish inside the range of the data:
    $w_j \sim N(0, s^2 I)$, $b_j = -w_j^\top t_j$.

    The points $t_j$ are uniform on the bounding box of the data, and $s$ is the `spread`.

    >>> units = random_units(jnp.zeros((5, 2)), width=3, key=jr.key(0))
    >>> units.W.shape, jnp.abs(units.b).tolist()
    ((3, 2), [0.0, 0.0, 0.0])
    """
    xs = as_floats("random_units", xs)
    if width < 1 or not spread > 0 or xs.ndim != 2 or not len(xs):
        raise ValueError(
            "random_units: expected xs of shape (n, d), width >= 1 and spread > 0; "
            f"got xs {xs.shape}, width={width}, spread={spread}."
        )
    key_w, key_t = jr.split(key)
    low = xs.min(axis=0)
    high = xs.max(axis=0)
    W = spread * jr.normal(key_w, (width, xs.shape[1]), xs.dtype)
    t = low[None] + (high - low)[None] * jr.uniform(key_t, W.shape, xs.dtype)
    return Linear(W, -(W * t).sum(axis=1))


def ridge_network(
    xs: Examples,
    ys: Num[Array, "n *m"] | Num[np.ndarray, "n *m"],
    *,
    width: int,
    activation: Activation = tanh,
    spread: float = 1.0,
    key: PRNGKeyArray,
) -> MLP:
    r"""Random-feature network $g(x) = c + \sum_j v_j\, \varphi(w_j^\top x + b_j)$ with random units
    and least-squares $v$ and $c$ (§2.5).

    A sum of ridge functions; as the width grows it approximates every continuous function on a box
    unless $\varphi$ is a polynomial (Leshno et al. 1993). `spread` is the standard deviation of the
    weights $w_j$, so the steepness of the units.

    >>> xs = jr.uniform(jr.key(0), (200, 2), minval=-1.0)
    >>> net = ridge_network(xs, xs[:, 0] * xs[:, 1], width=50, key=jr.key(1))
    >>> abs(net(jnp.array([0.5, -0.5])).item() + 0.25) < 0.01
    True
    """
    xs = as_floats("ridge_network", xs)
    ys = as_floats("ridge_network", ys)
    if len(xs) != len(ys):
        raise ValueError(
            f"ridge_network: got {len(xs)} xs and {len(ys)} ys; give one y for each x."
        )
    units = random_units(xs, width=width, spread=spread, key=key)
    return MLP(Chain(units, activation, _output(units, xs, ys, activation)))


@partial(jax.jit, static_argnames="activation")
def _output(
    units: Linear, xs: Float[Array, "n d"], ys: Float[Array, "n *m"], activation: Activation
) -> Linear:
    return least_squares(activation(jax.vmap(units)(xs)), ys)
