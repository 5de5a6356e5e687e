r"""Constructive Barron approximation (§2.5): a dimension-independent rate for functions with a
finite Barron constant.

For $f(x) = \int \hat f(\omega) e^{i\omega^\top x} d\omega$ let
$C_f = \int \|\omega\| |\hat f(\omega)| d\omega$. On the ball of radius $r$, $f - f(0)$ is the mean
of $2 r C_f$ times a random step; the average of $m$ such steps errs by at most $(2 r C_f)^2 / m$ in
mean square, whatever the dimension.

- `barron_network`: samples the steps from the Fourier transform
- `sample_units`: samples units of a given network (Maurey)
- `greedy_network`: adds the unit that reduces the error most, one at a time (Jones)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...check import expect_count
from ...core import Scalar
from ...layers import Activation, Chain, Linear, Pointwise, heaviside, sigmoid
from ..mlp import MLP

Wave = tuple[Float[Array, " n"], Scalar]  # frequency ω and phase φ


@dataclass(frozen=True)
class CosineMixture:
    r"""A function as a mixture of cosine waves,
    $f(x) = f(0) + C_f\, \mathbb{E} \frac{\cos(\omega^\top x + \varphi) - \cos\varphi}{\|\omega\|}$.

    `draw(key)` samples $(\omega, \varphi)$: the frequency with density proportional to
    $\|\omega\| |\hat f(\omega)|$, and the phase of $\hat f(\omega)$; `constant` is the Barron
    constant $C_f$. Departs: the notes use $C_f$ without defining it.

    >>> cosine = CosineMixture(
    ...     1.0, 2.0, lambda key: (jnp.array([0.0, 2.0]), jnp.zeros(()))
    ... )  # cos(2 x₂)
    >>> cosine.constant
    2.0

    """

    origin: float  # f(0)
    constant: float
    draw: Callable[[PRNGKeyArray], Wave]


def gaussian_bell(n: int) -> CosineMixture:
    r"""The Gaussian $f(x) = e^{-\|x\|^2 / 2} = \mathbb{E} \cos(\omega^\top x)$,
    $\omega \sim N(0, I_n)$, as a mixture of waves (§2.5).

    $C_f = \mathbb{E}\|\omega\| = \sqrt 2\, \Gamma(\frac{n+1}{2}) / \Gamma(\frac n2)$. Weighted by
    its length, $\omega$ has a uniform direction and a length with the $\chi$ distribution of
    $n + 1$ degrees of freedom.

    >>> round(gaussian_bell(1).constant ** 2, 4)  # 2/π
    0.6366
    """
    if n < 1:
        raise ValueError(f"gaussian_bell: the dimension must be at least 1; got {n}.")
    constant = math.sqrt(2) * math.exp(math.lgamma((n + 1) / 2) - math.lgamma(n / 2))

    def draw(key: PRNGKeyArray) -> Wave:
        direction, length = jnp.split(jr.normal(key, (2 * n + 1,)), [n])
        return jnp.linalg.norm(length) * direction / jnp.linalg.norm(direction), jnp.zeros(())

    return CosineMixture(1.0, constant, draw)


def barron_network(
    waves: CosineMixture,
    *,
    radius: float,
    width: int,
    steepness: float = math.inf,
    key: PRNGKeyArray,
) -> MLP:
    r"""Random network of Barron's theorem, $g_m = f(0) + \frac{2 r C_f}{m} \sum_j u_j$, with
    $\mathbb{E} \int (f - g_m)^2 d\mu \le (2 r C_f)^2 / m$ (§2.5).

    For every probability measure $\mu$ on the ball of radius $r$. With $\rho = \|\omega\|$ and
    $t = \omega^\top x / \rho$, a wave is
    $\cos(\rho t + \varphi) - \cos\varphi = -\rho \int_0^t \sin(\rho s + \varphi) ds$; with $s$
    uniform on $[-r, r]$ a unit is $u = -\sin(\rho s + \varphi) 1\{t > s\}$ for $s > 0$, and
    otherwise $u = \sin(\rho s + \varphi) 1\{t < s\}$. A finite `steepness` replaces steps by
    sigmoids. Barron 1993.

    >>> net = barron_network(gaussian_bell(3), radius=1.0, width=4000, key=jr.key(0))
    >>> abs(net(jnp.array([0.5, 0.0, 0.0])).item() - math.exp(-0.125)) < 0.1
    True
    """
    if not (radius > 0 and width >= 1 and steepness > 0):
        raise ValueError(
            "barron_network: expected radius > 0, width >= 1 and steepness > 0; "
            f"got radius={radius}, width={width}, steepness={steepness}."
        )
    key_waves, key_places = jr.split(key)
    omega, phase = jax.vmap(waves.draw)(jr.split(key_waves, width))
    rho = jnp.linalg.norm(omega, axis=1)
    s = radius * jr.uniform(key_places, (width,), omega.dtype, minval=-1.0)
    # the step faces away from the origin: 1{t > s} if s > 0, 1{−t > −s} if s < 0
    side = jnp.where(s > 0, 1.0, -1.0).astype(omega.dtype)
    v = -side * jnp.sin(rho * s + phase) * (2 * radius * waves.constant / width)
    k, activation = (1.0, heaviside) if math.isinf(steepness) else (steepness, sigmoid)
    units = Linear(k * (side / rho)[:, None] * omega, -k * side * s)
    output = Linear(v[None], jnp.full((1,), waves.origin, omega.dtype))
    return MLP(Chain(units, activation, output))


def sample_units(model: MLP, *, width: int, key: PRNGKeyArray) -> MLP:
    r"""Narrower random network with the given network as its expectation: samples `width` units
    with replacement (§2.5).

    From $f = c + \sum_j v_j \varphi_j$ unit $j$ is sampled with probability
    $p_j = \|v_j\| / \sum_i \|v_i\|$ and weight $v_j / (m p_j)$, so that $\mathbb{E}\|f - g_m\|^2$
    is the variance of one sample divided by $m$ (Maurey, in Pisier 1981).

    >>> net = MLP.init(2, 400, 1, activation=jnp.tanh, key=jr.key(0))
    >>> narrow = sample_units(net, width=20, key=jr.key(1))
    >>> narrow.body.layers[0].W.shape
    (20, 2)
    """
    units, activation, output = _one_hidden_layer("sample_units", model)
    expect_count("sample_units", width=width)
    norm = jnp.linalg.norm(output.W, axis=0)
    indices = jr.categorical(key, jnp.log(norm), shape=(width,))
    V = output.W[:, indices] * (norm.sum() / (width * norm[indices]))[None]
    return MLP(
        Chain(
            _select_units(units, indices),
            activation,
            Linear(V, output.b, output.scale_W, output.scale_b),
        )
    )


def _select_units(units: Linear, indices: Int[Array, " m"]) -> Linear:
    b = None if units.b is None else units.b[indices]
    return Linear(units.W[indices], b, units.scale_W, units.scale_b)


def _one_hidden_layer(name: str, model: MLP) -> tuple[Linear, Pointwise, Linear]:
    """The layers of a network with one hidden layer; raises for any other network."""
    match model.body.layers:
        case (Linear() as units, Pointwise() as activation, Linear() as output):
            return units, activation, output
    kinds = ", ".join(type(layer).__name__ for layer in model.body.layers)
    raise ValueError(
        f"{name}: expected one hidden layer (Linear, activation, Linear); got {kinds}."
    )


class GreedyNetwork(NamedTuple):
    """A network built one unit at a time, and its error after each unit."""

    model: MLP
    errors: Float[Array, " m"]  # mean squared error after each unit
    chosen: Int[Array, " m"]  # row index of each unit


def greedy_network(
    xs: Float[Array, "n d"],
    ys: Float[Array, " n"],
    units: Linear,
    *,
    width: int,
    activation: Activation = sigmoid,
) -> GreedyNetwork:
    r"""Greedy approximation: adds the unit $\varphi_j$ with the smallest
    $\min_{a, \beta} \|y - a g_{k-1} - \beta \varphi_j\|$, `width` times (§2.5).

    If $y$, less its mean, is in the convex hull of functions $\pm B \varphi_j$ of norm at most $b$,
    then $\|y - g_k\|^2 \le (b^2 - \|y\|^2) / k$, as the best unit is no worse than the average one
    (Jones 1992, Barron 1993). The output bias is free. `random_units` gives candidate units.

    >>> from thetax.models import random_units
    >>> xs = jr.normal(jr.key(0), (100, 2))
    >>> candidates = random_units(xs, width=400, key=jr.key(1))
    >>> fit = greedy_network(xs, jnp.tanh(xs[:, 0]), candidates, width=16)
    >>> fit.errors.shape, bool(fit.errors[-1] < 0.1 * fit.errors[0])
    ((16,), True)

    """
    if width < 1 or len(xs) != len(ys):
        raise ValueError(
            "greedy_network: expected one y for each x and width >= 1; got "
            f"{len(xs)} xs, {len(ys)} ys, width={width}."
        )
    chosen, v, constant, errors = _greedy(xs, ys, units, width, activation)
    output = Linear(v[None], constant[None])
    model = MLP(Chain(_select_units(units, chosen), activation, output))
    return GreedyNetwork(model, errors, chosen)


@partial(jax.jit, static_argnames=("width", "activation"))
def _greedy(xs, ys, units, width, activation):
    features = activation(jax.vmap(units)(xs))
    centre = features.mean(axis=0)
    middle = ys.mean()
    Phi = features - centre[None]
    y = ys - middle
    floor = jnp.finfo(y.dtype).eps * jnp.square(Phi).sum(axis=0)

    def add(carry, k):
        g, v = carry
        length = g @ g
        onto = g / jnp.where(length > 0, length, 1.0)  # g / ‖g‖², 0 at the start
        residual = Phi - jnp.outer(g, onto @ Phi)  # the part of each unit orthogonal to g
        square = jnp.square(residual).sum(axis=0)
        inner = y @ residual
        new = square > 100 * floor  # not a multiple of g up to rounding
        j = jnp.argmax(jnp.where(new, inner**2 / jnp.where(new, square, 1.0), -1.0))
        beta = jnp.where(new[j], inner[j] / jnp.where(new[j], square[j], 1.0), 0.0)
        a = onto @ (y - beta * Phi[:, j])
        g = a * g + beta * Phi[:, j]
        v = (a * v).at[k].set(beta)
        return (g, v), (j, jnp.mean(jnp.square(y - g)))

    start = jnp.zeros_like(y), jnp.zeros(width, y.dtype)
    (_, v), (chosen, errors) = jax.lax.scan(add, start, jnp.arange(width))
    return chosen, v, middle - v @ centre[chosen], errors
