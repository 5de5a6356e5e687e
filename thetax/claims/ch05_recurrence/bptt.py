"""§5 and lecture 10, A.17: the gradient goes back through time."""

import jax
import jax.numpy as jnp
import numpy as np

from ... import layers, train
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_most, close, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian
from .by_loop import FD, elman, last, plain, random_elman


def case(key, *, T=6, m=4, n=2, q=3):
    """Weights, a cell, a sequence and its targets."""
    rng = chance(key)
    U, V, cell = random_elman(rng, n, m)
    return U, V, cell, rng.normal(size=(q, m)), rng.normal(size=(T, n)), rng.normal(size=(T, q))


def losses(U, V, W, xs, ys, make=lambda cell: cell):
    r"""$\ell(Wz_t, y_t)$ for all $t$, by the library."""
    outputs = jax.vmap(layers.Linear(jnp.asarray(W)))(
        layers.unroll(make(plain(U, V)), jnp.asarray(xs))[1]
    )
    return jax.vmap(train.squared_loss)(outputs, jnp.asarray(ys))


def through_time(U, V, W, xs, ys):
    r"""$\partial L / \partial z_t$ for $t = 0, \dots, T$, from the end on; and $\phi'(a_t)$."""
    z = elman(U, V, xs)
    slope = 1 - z[1:] ** 2
    delta = np.zeros_like(z)
    for t in range(len(xs), 0, -1):
        delta[t] += W.T @ (W @ z[t] - ys[t - 1])
        delta[t - 1] = U.T @ (slope[t - 1] * delta[t])
    return z, slope, delta


@claim(
    "5.0-sequence-loss",
    title="The loss of a sequence",
    kind="loss",
    of=("train.squared_loss", "layers.unroll"),
)
def sequence_loss(key):
    r"""$L = \sum_{t=1}^T \ell(\hat y_t, y_t)$: a stretch and what follows it, begun in the state
    the stretch ended in, add up to the whole, and so do their gradients.
    """
    U, V, cell, W, xs, ys = case(key, T=7)
    z = elman(U, V, xs)[1:]
    read = layers.Linear(jnp.asarray(W))
    whole = losses(U, V, W, xs, ys)
    middle, _ = layers.unroll(cell, jnp.asarray(xs[:3]))
    rest = jax.vmap(read)(layers.unroll(cell, jnp.asarray(xs[3:]), state=middle)[1])
    parts = losses(U, V, W, xs[:3], ys[:3]).sum() + train.squared_loss(rest, jnp.asarray(ys[3:]))
    slope = jax.jit(jax.jacrev(lambda U: losses(U, V, W, xs, ys)))(jnp.asarray(U))
    total = jacobian(lambda U: losses(U, V, W, xs, ys).sum(), U)
    return Verdict(
        close(
            "ℓ at each time, by hand",
            whole,
            np.sum((z @ W.T - ys) ** 2, axis=1) / 2,
            tolerance=1e-13,
        ),
        close(
            "the library's loss of the whole sequence",
            train.squared_loss(jax.vmap(read)(jnp.asarray(z)), jnp.asarray(ys)),
            whole.sum(),
            tolerance=1e-12,
        ),
        close("3 and 4 times", parts, whole.sum(), tolerance=1e-12),
        close("gradients at each time, summed", slope.sum(axis=0), total, **FD),
        refuted(
            close(
                "means over 3 and 4 times",
                (whole[:3].mean() + whole[3:].mean()) / 2,
                whole.mean(),
                tolerance=1e-4,
            )
        ),
    )


@claim(
    "5.0-bptt",
    title="Backpropagation through time",
    kind="algorithm",
    of=("layers.unroll", "layers.Elman"),
    cites="Werbos 1990",
)
def backpropagation(key):
    r"""$\frac{\partial L}{\partial U} = \sum_t \frac{\partial L}{\partial z_t} \frac{\partial^+
    z_t}{\partial U}$
    with the total derivative on the left and, on the right, the immediate one, $z_{t-1}$ held
    fixed: with $d_t = \phi'(a_t) \odot \delta_t$ it is $\sum_t d_t z_{t-1}^\top$, and
    $\sum_t d_t x_t^\top$ for $V$. Total derivatives on both sides would count the past more than
    once.
    """
    U, V, _, W, xs, ys = case(key)
    z, slope, delta = through_time(U, V, W, xs, ys)
    d = slope * delta[1:]
    value = lambda U, V: losses(U, V, W, xs, ys).sum()
    found = jax.jit(jax.grad(value, argnums=(0, 1)))(jnp.asarray(U), jnp.asarray(V))
    numeric = jacobian(lambda U: value(U, V), U), jacobian(lambda V: value(U, V), V)
    totals = jacobian(lambda U: layers.unroll(plain(U, V), jnp.asarray(xs))[1], U)
    twice = np.einsum("ti,tijk->jk", delta[1:], totals)
    return Verdict(
        close("∂L/∂U by the library, against differences", found[0], numeric[0], **FD),
        close("∂L/∂V by the library, against differences", found[1], numeric[1], **FD),
        close("Σ d_t z_{t−1}ᵀ", found[0], d.T @ z[:-1], tolerance=1e-12),
        close("Σ d_t x_tᵀ", found[1], d.T @ xs, tolerance=1e-12),
        refuted(close("with total derivatives of z_t", twice, numeric[0], tolerance=1e-2)),
        refuted(close("the last time alone", np.outer(d[-1], z[-2]), numeric[0], tolerance=1e-2)),
    )


def steps(U, V, xs):
    r"""$\dot\Phi_j U$ for $j = 1, \dots, T$."""
    return (1 - elman(U, V, xs)[1:] ** 2)[:, :, None] * np.asarray(U)


@claim(
    "5.0-hidden-gradient",
    title="The gradient at a hidden state",
    kind="identity",
    of=("layers.unroll", "layers.Elman"),
)
def hidden(key):
    r"""$\frac{\partial L}{\partial z_t} = \sum_{i=t}^T \frac{\partial \ell_i}{\partial \hat y_i}
    \frac{\partial \hat y_i}{\partial z_i}\, \dot\Phi_i U\, \dot\Phi_{i-1} U \cdots \dot\Phi_{t+1}
    U$
    with $\dot\Phi_j = \mathrm{diag}\,\phi'(U z_{j-1} + V x_j)$: the largest index on the left.
    """
    U, V, cell, W, xs, ys = case(key, T=7)
    z = elman(U, V, xs)
    J = steps(U, V, xs)
    t = 2
    T = 7
    read = jax.vmap(layers.Linear(jnp.asarray(W)))
    one = lambda z, i: train.squared_loss(jnp.asarray(W) @ z, jnp.asarray(ys[i - 1]))
    later = lambda z: train.squared_loss(
        read(layers.unroll(cell, jnp.asarray(xs[t:]), state=z)[1]), jnp.asarray(ys[t:])
    )
    total = W.T @ (W @ z[t] - ys[t - 1])
    reach = np.eye(4)
    for i in range(t + 1, T + 1):
        reach = J[i - 1] @ reach
        total = total + reach.T @ W.T @ (W @ z[i] - ys[i - 1])
    return Verdict(
        close(
            "∂z_7/∂z_2: the product", jacobian(lambda z: last(cell, xs[t:], z), z[t]), reach, **FD
        ),
        close(
            "one step, by the library",
            jax.jacfwd(lambda z: cell(z, jnp.asarray(xs[0]))[0])(jnp.asarray(z[0])),
            J[0],
            tolerance=1e-13,
        ),
        close(
            "∂L/∂z_2: the sum",
            jax.grad(lambda z: later(z) + one(z, t))(jnp.asarray(z[t])),
            total,
            tolerance=1e-12,
        ),
        close(
            "∂L/∂z_2, by differences", jacobian(lambda z: later(z) + one(z, t), z[t]), total, **FD
        ),
        refuted(
            close(
                "without the last time",
                jacobian(lambda z: later(z) + one(z, t), z[t]),
                total - reach.T @ W.T @ (W @ z[T] - ys[T - 1]),
                tolerance=1e-6,
            )
        ),
    )


@erratum(
    "5.0-hidden-gradient",
    title="The latest factor stands first",
    printed=r"\frac{\partial z_i}{\partial z_t} = \prod_{j=t+1}^{i} \dot\Phi_j U",
    corrected=r"\frac{\partial z_i}{\partial z_t} = \dot\Phi_i U\, \dot\Phi_{i-1} U \cdots "
    r"\dot\Phi_{t+1} U",
    of=("layers.unroll", "layers.Elman"),
    slip=True,
)
def order(key):
    r"""Matrices do not commute, and the order of the factors is left to the reader. By the chain
    rule the latest step stands first; written from left to right in the order of $j$, the product
    is another one."""
    U, V, cell, _, xs, _ = case(key, T=4)
    J = steps(U, V, xs)
    measured = jacobian(lambda z: last(cell, xs, z), np.zeros(4))
    return Verdict(
        close("∂z_4/∂z_0", measured, J[3] @ J[2] @ J[1] @ J[0], **FD),
        printed=[close("∂z_4/∂z_0", measured, J[0] @ J[1] @ J[2] @ J[3], **FD)],
    )


def real_time(U, V, W, xs, ys):
    r"""Forwards, without any way back: $P_t = \mathrm{diag}(\phi')(U P_{t-1} + \partial^+ a_t)$ for
    $U$ and $V$.
    """
    m, n = V.shape
    z = np.zeros(m)
    P = np.zeros((m, m, m))
    Q = np.zeros((m, m, n))
    gradient = [np.zeros_like(U), np.zeros_like(V)]
    for x, y in zip(xs, ys):
        before = z
        z = np.tanh(U @ z + V @ x)
        past = lambda P: np.tensordot(U, P, axes=1)
        P = (1 - z**2)[:, None, None] * (past(P) + np.eye(m)[:, :, None] * before)
        Q = (1 - z**2)[:, None, None] * (past(Q) + np.eye(m)[:, :, None] * x)
        delta = W.T @ (W @ z - y)
        gradient = [
            gradient[0] + np.tensordot(delta, P, axes=1),
            gradient[1] + np.tensordot(delta, Q, axes=1),
        ]
    return gradient


def windows(U, V, W, xs, ys, k):
    r"""$\partial L / \partial U$ with the state taken as given at every $k$-th time, by hand."""
    z = elman(U, V, xs)
    total = np.zeros_like(U)
    for begin in range(0, len(xs), k):
        stop = min(begin + k, len(xs))
        delta = np.zeros(len(U))
        for t in range(stop, begin, -1):
            d = (1 - z[t] ** 2) * (delta + W.T @ (W @ z[t] - ys[t - 1]))
            total = total + np.outer(d, z[t - 1])
            delta = U.T @ d
    return total


@claim(
    "L10-A17-bptt",
    title="Unroll in time and go back",
    kind="algorithm",
    of=("layers.unroll", "layers.Truncated", "layers.Elman"),
    cites="Williams & Zipser 1989; Williams & Peng 1990",
)
def unrolled(key):
    r"""Unrolled, a recurrent network is a feed-forward one whose layers share their weights: the
    gradient is the sum over the copies. The same comes forwards, carrying
    $\partial z_t / \partial \theta$ along. Cut off after $k$ times it is another, which is the
    whole for $k = T$.
    """
    T = 7
    U, V, _, W, xs, ys = case(key, T=T)
    value = lambda U, V, **how: losses(U, V, W, xs, ys, **how).sum()
    slope = lambda **how: jax.jit(jax.grad(lambda U: value(U, V, **how)))(jnp.asarray(U))
    found = slope()
    exact = real_time(U, V, W, xs, ys)
    cuts = {k: slope(make=lambda cell, k=k: layers.Truncated(cell, k)) for k in (1, 3, T)}

    def copies(Us):
        z = jnp.zeros(4)
        total = 0.0
        for t in range(T):
            z = plain(Us[t], V)(z, jnp.asarray(xs[t]))[0]
            total += train.squared_loss(jnp.asarray(W) @ z, jnp.asarray(ys[t]))
        return total

    each = jax.jit(jax.grad(copies))(jnp.tile(jnp.asarray(U), (T, 1, 1)))
    away = [float(np.abs(np.asarray(cuts[k]) - np.asarray(found)).max()) for k in cuts]
    return Verdict(
        close("∂L/∂U, against differences", found, jacobian(lambda U: value(U, V), U), **FD),
        close("the sum over 7 copies", found, each.sum(axis=0), tolerance=1e-12),
        close("forwards, in real time: U", found, exact[0], tolerance=1e-12),
        close(
            "forwards, in real time: V",
            jax.jit(jax.grad(value, argnums=1))(jnp.asarray(U), jnp.asarray(V)),
            exact[1],
            tolerance=1e-12,
        ),
        *(
            close(f"cut after {k}, by hand", cuts[k], windows(U, V, W, xs, ys, k), tolerance=1e-12)
            for k in cuts
        ),
        close("cut after 7: the whole", cuts[T], found, tolerance=1e-12),
        refuted(at_most("cut after 3: distance from the whole", away[1], 1e-3)),
        equal(
            "forward, a cut changes nothing",
            losses(U, V, W, xs, ys, make=lambda c: layers.Truncated(c, T)),
            losses(U, V, W, xs, ys),
        ),
        figure=Chart(
            Panel(
                "time of the copy",
                "length of its gradient",
                points={"copy of U": (np.arange(1, T + 1), np.linalg.norm(each, axis=(1, 2)))},
            )
        ),
    )
