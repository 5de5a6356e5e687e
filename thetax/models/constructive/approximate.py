r"""Universal approximation made constructive (§2.5, §2.6): networks with one hidden layer that one
can write down.

`interpolate` the polygon through given points, of ReLU units `step_network` a staircase, of steps
or steep sigmoids `ridge_network` random units $\varphi(w^\top x + b)$ in any dimension, with
least-squares output weights

Each returns an ordinary `MLP`.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Num, PRNGKeyArray

from ...core import floats
from ...layers import Activation, Chain, Linear, heaviside, relu, sigmoid, tanh
from ..linear.regression import least_squares
from ..mlp import MLP

Numbers = Num[Array, " m"] | Num[np.ndarray, " m"] | Sequence[float]
Examples = Num[Array, "n d"] | Num[np.ndarray, "n d"]


def interpolate(xs: Numbers, ys: Numbers) -> MLP:
    r"""The continuous piecewise linear $g$ with $g(x_i) = y_i$, as a ReLU network (§2.6; Lebesgue
    1898).

    For knots $x_0 < \dots < x_m$ with slopes $a_i = (y_i - y_{i-1}) / (x_i - x_{i-1})$,
    $g(x) = y_0 + a_1 (x - x_0)_+ - a_1 (x_0 - x)_+ + \sum_{i=1}^{m-1} (a_{i+1} - a_i)(x - x_i)_+$:
    $m$ pieces take $m + 1$ units, and beyond the knots the outer pieces go on.

    Departs: the notes count $m - 1$ units, without the two of the affine part.

    >>> net = interpolate(np.array([0.0, 1.0, 3.0]), np.array([1.0, 2.0, 0.0]))
    >>> [net(jnp.array([x])).item() for x in (-1.0, 0.0, 0.5, 1.0, 2.0, 4.0)]
    [0.0, 1.0, 1.5, 2.0, 1.0, -1.0]
    """
    knots = np.asarray(xs, np.float64)
    values = np.asarray(ys, np.float64)
    if knots.ndim != 1 or knots.shape != values.shape or len(knots) < 2:
        raise ValueError(
            f"interpolate: expected as many values as knots, two at least; got {knots.shape} and "
            f"{values.shape}."
        )
    if not np.isfinite(values).all():
        place = int(np.isfinite(values).argmin())
        raise ValueError(
            f"interpolate: the values must be finite, but value {place} is {values[place]}; leave "
            "it out."
        )
    if not (np.diff(knots) > 0).all():
        raise ValueError(
            "interpolate: the knots must increase strictly; sort them and keep one value for each."
        )
    slopes = np.diff(values) / np.diff(knots)
    w = np.concatenate([[-1.0], np.ones(len(slopes))])
    b = np.concatenate([[knots[0]], -knots[:-1]])
    v = np.concatenate([[-slopes[0]], slopes[:1], np.diff(slopes)])
    ready = lambda a: jnp.asarray(a, jnp.zeros(()).dtype)
    return MLP(
        Chain(Linear(ready(w[:, None]), ready(b)), relu, Linear(ready(v[None]), ready(values[:1])))
    )


def step_network(
    f: Callable[[Array], Array], *, low: float, high: float, width: int, steepness: float = math.inf
) -> MLP:
    r"""A staircase under $f$ on $[a, b]$ of `width` equal steps, $|f - g| \le \omega(f, h / 2)$
    (§2.5; Cybenko 1989).

    With cells of length $h = (b - a) / (m + 1)$, edges $t_i = a + ih$ and middles $c_i$,
    $g(x) = f(c_0) + \sum_{i=1}^m (f(c_i) - f(c_{i-1}))\, 1\{x \ge t_i\}$, where $\omega(f, \delta)$
    is the most by which $f$ differs at points not further apart than $\delta$. A finite steepness
    $k$ puts $\sigma(k(x - t_i))$ in the place of each step, which rounds the stairs over a length
    of about $1 / k$.

    >>> net = step_network(jnp.sin, low=0.0, high=3.0, width=59)
    >>> abs(net(jnp.array([1.0])).item() - math.sin(1.0)) <= 0.025
    True
    """
    if not (low < high and width >= 1 and steepness > 0):
        raise ValueError(
            "step_network: needs low < high, a width of at least 1 and a positive steepness; "
            f"got low={low}, high={high}, width={width}, steepness={steepness}."
        )
    edges = jnp.linspace(low, high, width + 2)
    heights = _values(f, (edges[1:] + edges[:-1]) / 2)
    if heights.shape != (width + 1,):
        raise ValueError(
            "step_network: f must map a number to a number; it maps it to shape "
            f"{heights.shape[1:]}."
        )
    k, activation = (1.0, heaviside) if math.isinf(steepness) else (steepness, sigmoid)
    stairs = Linear(jnp.full((width, 1), k), -k * edges[1:-1])
    return MLP(Chain(stairs, activation, Linear(jnp.diff(heights)[None], heights[:1])))


def _values(f: Callable[[Array], Array], xs: Float[Array, " m"]) -> Float[Array, "m ..."]:
    """The function at each number: mapped by JAX, or one after another where it is not JAX's, as
    `np.sin`.
    """
    try:
        return jax.vmap(f)(xs)
    except TypeError:  # of JAX, that f wants a number
        return floats("step_network", np.array([f(x) for x in np.asarray(xs)])).astype(xs.dtype)


def random_units(xs: Examples, *, width: int, spread: float = 1.0, key: PRNGKeyArray) -> Linear:
    r"""Affine forms $w_j^\top x + b_j$ that vanish among the data: $w_j \sim N(0, s^2 I)$,
    $b_j = -w_j^\top t_j$.

    The points $t_j$ are uniform on the smallest box around the data, and $s$ is the `spread`.

    >>> units = random_units(jnp.zeros((5, 2)), width=3, key=jr.key(0))
    >>> units.W.shape, jnp.abs(units.b).tolist()
    ((3, 2), [0.0, 0.0, 0.0])
    """
    xs = floats("random_units", xs)
    if width < 1 or not spread > 0 or xs.ndim != 2 or not len(xs):
        raise ValueError(
            "random_units: needs examples as rows, a width of at least 1 and a positive spread; "
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
    r"""$g(x) = c + \sum_j v_j\, \varphi(w_j^\top x + b_j)$ with random units and least-squares $v$
    and $c$ (§2.5).

    A sum of functions of one direction each; as the width grows it approaches every continuous
    function on a box unless $\varphi$ is a polynomial (Leshno et al. 1993). `spread` is the
    steepness of the units.

    >>> xs = jr.uniform(jr.key(0), (200, 2), minval=-1.0)
    >>> net = ridge_network(xs, xs[:, 0] * xs[:, 1], width=50, key=jr.key(1))
    >>> abs(net(jnp.array([0.5, -0.5])).item() + 0.25) < 0.01
    True
    """
    xs = floats("ridge_network", xs)
    ys = floats("ridge_network", ys)
    if len(xs) != len(ys):
        raise ValueError(
            f"ridge_network: got {len(xs)} examples and {len(ys)} values; give one for each."
        )
    units = random_units(xs, width=width, spread=spread, key=key)
    return MLP(Chain(units, activation, _output(units, xs, ys, activation)))


@partial(jax.jit, static_argnames="activation")
def _output(
    units: Linear, xs: Float[Array, "n d"], ys: Float[Array, "n *m"], activation: Activation
) -> Linear:
    return least_squares(activation(jax.vmap(units)(xs)), ys)
