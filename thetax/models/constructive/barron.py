r"""Barron's theorem made constructive (§2.5): few units suffice in any dimension, for functions of
bounded oscillation.

For $f(x) = \int \hat f(\omega) e^{i\omega^\top x} d\omega$ let
$C_f = \int \|\omega\| |\hat f(\omega)| d\omega$. On the ball of radius $r$, $f - f(0)$ is the mean
of $2 r C_f$ times a random step; the average of $m$ such steps errs by at most $(2 r C_f)^2 / m$ in
mean square, whatever the dimension.

`barron_network`   draws the steps from the Fourier transform
`sample_units`     draws units from a network that is there (Maurey)
`greedy_network`   chooses one unit at a time, the one that helps most (Jones)
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

from ...core import Scalar
from ...layers import Activation, Chain, Linear, Pointwise, heaviside, sigmoid
from ..mlp import MLP

Wave = tuple[Float[Array, " n"], Scalar]  # frequency ω and phase φ


@dataclass(frozen=True)
class CosineMixture:
    r"""A function as a mixture of waves,
    $f(x) = f(0) + C_f\, \mathbb{E} \frac{\cos(\omega^\top x + \varphi) - \cos\varphi}{\|\omega\|}$.

    `draw(key)` gives $(\omega, \varphi)$ with density proportional to $\|\omega\| |\hat f(\omega)|$
    and the phase of $\hat f(\omega)$; `constant` is $C_f$. Departs: the notes use $C_f$ without
    defining it.

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
    r"""$f(x) = e^{-\|x\|^2 / 2} = \mathbb{E} \cos(\omega^\top x)$, $\omega \sim N(0, I_n)$ (§2.5).

    $C_f = \mathbb{E}\|\omega\| = \sqrt 2\, \Gamma(\frac{n+1}{2}) / \Gamma(\frac n2)$. Weighted by
    its length, $\omega$ has a uniform direction and a length of the $\chi$ law with $n + 1$ degrees
    of freedom.

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
    r"""$g_m = f(0) + \frac{2 r C_f}{m} \sum_j u_j$,
    $\mathbb{E} \int (f - g_m)^2 d\mu \le (2 r C_f)^2 / m$ (§2.5).

    For every probability $\mu$ on the ball of radius $r$. With $\rho = \|\omega\|$ and
    $t = \omega^\top x / \rho$, a wave is
    $\cos(\rho t + \varphi) - \cos\varphi = -\rho \int_0^t \sin(\rho s + \varphi) ds$; with $s$
    uniform on $[-r, r]$ a unit is $u = -\sin(\rho s + \varphi) 1\{t > s\}$ for $s > 0$, and
    otherwise $u = \sin(\rho s + \varphi) 1\{t < s\}$. A finite steepness turns steps into sigmoids.
    Barron 1993.

    >>> net = barron_network(gaussian_bell(3), radius=1.0, width=4000, key=jr.key(0))
    >>> abs(net(jnp.array([0.5, 0.0, 0.0])).item() - math.exp(-0.125)) < 0.1
    True
    """
    if not (radius > 0 and width >= 1 and steepness > 0):
        raise ValueError(
            "barron_network: needs a positive radius, a width of at least 1 and a positive "
            f"steepness; got radius={radius}, width={width}, steepness={steepness}."
        )
    key_waves, key_places = jr.split(key)
    omega, phase = jax.vmap(waves.draw)(jr.split(key_waves, width))
    rho = jnp.linalg.norm(omega, axis=1)
    s = radius * jr.uniform(key_places, (width,), omega.dtype, minval=-1.0)
    side = jnp.where(s > 0, 1.0, -1.0).astype(
        omega.dtype
    )  # 1{t > s} outwards of s > 0, 1{−t > −s} of s < 0
    v = -side * jnp.sin(rho * s + phase) * (2 * radius * waves.constant / width)
    k, activation = (1.0, heaviside) if math.isinf(steepness) else (steepness, sigmoid)
    units = Linear(k * (side / rho)[:, None] * omega, -k * side * s)
    output = Linear(v[None], jnp.full((1,), waves.origin, omega.dtype))
    return MLP(Chain(units, activation, output))


def sample_units(model: MLP, *, width: int, key: PRNGKeyArray) -> MLP:
    r"""A thinner network whose mean is the given one: `width` units drawn with replacement (§2.5).

    From $f = c + \sum_j v_j \varphi_j$ a unit $j$ is drawn with probability
    $p_j = \|v_j\| / \sum_i \|v_i\|$ and counts $v_j / (m p_j)$, so that $\mathbb{E}\|f - g_m\|^2$
    is the variance of one draw over $m$ (Maurey, in Pisier 1981).

    >>> net = MLP.init(2, 400, 1, activation=jnp.tanh, key=jr.key(0))
    >>> thin = sample_units(net, width=20, key=jr.key(1))
    >>> thin.body.layers[0].W.shape
    (20, 2)
    """
    units, activation, output = _one_hidden_layer("sample_units", model)
    if width < 1:
        raise ValueError(f"sample_units: width must be at least 1; got {width}.")
    size = jnp.linalg.norm(output.W, axis=0)
    chosen = jr.categorical(key, jnp.log(size), shape=(width,))
    V = output.W[:, chosen] * (size.sum() / (width * size[chosen]))[None]
    rows = Linear(
        units.W[chosen], None if units.b is None else units.b[chosen], units.scale_W, units.scale_b
    )
    return MLP(Chain(rows, activation, Linear(V, output.b, output.scale_W, output.scale_b)))


def _one_hidden_layer(name: str, model: MLP) -> tuple[Linear, Pointwise, Linear]:
    """The parts of a network with one hidden layer and nothing else; any other is refused."""
    match model.body.layers:
        case (Linear() as units, Pointwise() as activation, Linear() as output):
            return units, activation, output
    kinds = ", ".join(type(layer).__name__ for layer in model.body.layers)
    raise ValueError(
        f"{name}: expected one hidden layer (Linear, activation, Linear); got {kinds}."
    )


class GreedyNetwork(NamedTuple):
    """A network found one unit at a time, and how well it did on the way."""

    model: MLP
    errors: Float[Array, " m"]  # mean square, after each unit
    chosen: Int[Array, " m"]  # the units taken, by their row


def greedy_network(
    xs: Float[Array, "n d"],
    ys: Float[Array, " n"],
    units: Linear,
    *,
    width: int,
    activation: Activation = sigmoid,
) -> GreedyNetwork:
    r"""Adds the unit $\varphi_j$ for which $\min_{a, \beta} \|y - a g_{k-1} - \beta \varphi_j\|$ is
    least, `width` times (§2.5).

    If $y$, less its mean, is in the convex hull of functions $\pm B \varphi_j$ of norm at most $b$,
    then $\|y - g_k\|^2 \le (b^2 - \|y\|^2) / k$: the best of all units does no worse than the
    average one (Jones 1992, Barron 1993). The output constant is free. `random_units` makes units
    to choose from.

    >>> from thetax.models import random_units
    >>> xs = jr.normal(jr.key(0), (100, 2))
    >>> found = greedy_network(
    ...     xs, jnp.tanh(xs[:, 0]), random_units(xs, width=400, key=jr.key(1)), width=16
    ... )
    >>> found.errors.shape, bool(found.errors[-1] < 0.1 * found.errors[0])
    ((16,), True)

    """
    if width < 1 or len(xs) != len(ys):
        raise ValueError(
            "greedy_network: needs a value for each example and a width of at least 1; got "
            f"{len(xs)} examples, {len(ys)} values, width={width}."
        )
    chosen, v, constant, errors = _greedy(xs, ys, units, width, activation)
    rows = Linear(
        units.W[chosen], None if units.b is None else units.b[chosen], units.scale_W, units.scale_b
    )
    return GreedyNetwork(
        MLP(Chain(rows, activation, Linear(v[None], constant[None]))), errors, chosen
    )


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
        onto = g / jnp.where(length > 0, length, 1.0)  # g / ‖g‖², nothing at the start
        rest = Phi - jnp.outer(g, onto @ Phi)  # the part of each unit that is new
        square = jnp.square(rest).sum(axis=0)
        inner = y @ rest
        new = square > 100 * floor
        j = jnp.argmax(jnp.where(new, inner**2 / jnp.where(new, square, 1.0), -1.0))
        beta = jnp.where(new[j], inner[j] / jnp.where(new[j], square[j], 1.0), 0.0)
        a = onto @ (y - beta * Phi[:, j])
        g = a * g + beta * Phi[:, j]
        v = (a * v).at[k].set(beta)
        return (g, v), (j, jnp.mean(jnp.square(y - g)))

    start = jnp.zeros_like(y), jnp.zeros(width, y.dtype)
    (_, v), (chosen, errors) = jax.lax.scan(add, start, jnp.arange(width))
    return chosen, v, middle - v @ centre[chosen], errors
