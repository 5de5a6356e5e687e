"""§5 and lecture 10, A.17: backpropagation through time."""

import jax
import jax.numpy as jnp
import numpy as np

from ... import layers, train
from ...plot import Panel
from ..engine.check import at_most, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian
from ..engine.numpy_rng import numpy_rng
from .by_loop import elman, elman_cell, final_state, random_elman


def random_problem(key, *, T=6, m=4, n=2, q=3):
    """Random weights, their cell, the readout matrix, a sequence and its targets."""
    rng = numpy_rng(key)
    U, V, cell = random_elman(rng, n, m)
    return U, V, cell, rng.normal(size=(q, m)), rng.normal(size=(T, n)), rng.normal(size=(T, q))


def losses(U, V, W, xs, ys, make=lambda cell: cell):
    r"""$\ell(Wz_t, y_t)$ for all $t$, computed by the library."""
    outputs = jax.vmap(layers.Linear(jnp.asarray(W)))(
        layers.unroll(make(elman_cell(U, V)), jnp.asarray(xs))[1]
    )
    return jax.vmap(train.squared_loss)(outputs, jnp.asarray(ys))


def backward_loop(U, V, W, xs, ys):
    r"""$\partial L / \partial z_t$ for $t = 0, \dots, T$, by a backward loop; also $z_t$ and
    $\phi'(a_t)$.
    """
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
    r"""$L = \sum_{t=1}^T \ell(\hat y_t, y_t)$: if a sequence is split and the second part starts
    in the final state of the first, the losses of the parts add up to the total, and so do the
    gradients of the $\ell$.
    """
    U, V, cell, W, xs, ys = random_problem(key, T=7)
    z = elman(U, V, xs)[1:]
    read = layers.Linear(jnp.asarray(W))
    per_step = losses(U, V, W, xs, ys)
    middle_state, _ = layers.unroll(cell, jnp.asarray(xs[:3]))
    predictions = jax.vmap(read)(layers.unroll(cell, jnp.asarray(xs[3:]), state=middle_state)[1])
    parts = losses(U, V, W, xs[:3], ys[:3]).sum() + train.squared_loss(
        predictions, jnp.asarray(ys[3:])
    )
    per_step_gradient = jax.jit(jax.jacrev(lambda U: losses(U, V, W, xs, ys)))(jnp.asarray(U))
    total = jacobian(lambda U: losses(U, V, W, xs, ys).sum(), U)
    return Verdict(
        close(
            "ℓ at each time, by a loop",
            per_step,
            np.sum((z @ W.T - ys) ** 2, axis=1) / 2,
            tolerance=1e-13,
        ),
        close(
            "train.squared_loss of the whole sequence",
            train.squared_loss(jax.vmap(read)(jnp.asarray(z)), jnp.asarray(ys)),
            per_step.sum(),
        ),
        close("loss of parts of length 3 and 4", parts, per_step.sum()),
        close_derivative("gradients at each time, summed", per_step_gradient.sum(axis=0), total),
        refuted(
            close(
                "mean of the mean losses of the parts",
                (per_step[:3].mean() + per_step[3:].mean()) / 2,
                per_step.mean(),
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
    with the total derivative on the left and the immediate one (for fixed $z_{t-1}$) on the right:
    with $d_t = \phi'(a_t) \odot \delta_t$ it is $\sum_t d_t z_{t-1}^\top$, and
    $\sum_t d_t x_t^\top$ for $V$. Total derivatives on both sides would count earlier steps
    more than once.
    """
    U, V, _, W, xs, ys = random_problem(key)
    z, slope, delta = backward_loop(U, V, W, xs, ys)
    d = slope * delta[1:]
    value = lambda U, V: losses(U, V, W, xs, ys).sum()
    gradients = jax.jit(jax.grad(value, argnums=(0, 1)))(jnp.asarray(U), jnp.asarray(V))
    numeric = jacobian(lambda U: value(U, V), U), jacobian(lambda V: value(U, V), V)
    totals = jacobian(lambda U: layers.unroll(elman_cell(U, V), jnp.asarray(xs))[1], U)
    twice = np.einsum("ti,tijk->jk", delta[1:], totals)
    return Verdict(
        close_derivative("∂L/∂U by autodiff, against finite differences", gradients[0], numeric[0]),
        close_derivative("∂L/∂V by autodiff, against finite differences", gradients[1], numeric[1]),
        close("Σ d_t z_{t−1}ᵀ", gradients[0], d.T @ z[:-1]),
        close("Σ d_t x_tᵀ", gradients[1], d.T @ xs),
        refuted(close("with total derivatives of z_t", twice, numeric[0], tolerance=1e-2)),
        refuted(
            close("the last time step alone", np.outer(d[-1], z[-2]), numeric[0], tolerance=1e-2)
        ),
    )


def step_jacobians(U, V, xs):
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
    U$ with $\dot\Phi_j = \mathrm{diag}\,\phi'(U z_{j-1} + V x_j)$: the factor with the largest
    index is on the left.
    """
    U, V, cell, W, xs, ys = random_problem(key, T=7)
    z = elman(U, V, xs)
    J = step_jacobians(U, V, xs)
    t = 2
    T = 7
    read = jax.vmap(layers.Linear(jnp.asarray(W)))
    loss_at = lambda z, i: train.squared_loss(jnp.asarray(W) @ z, jnp.asarray(ys[i - 1]))
    later_losses = lambda z: train.squared_loss(
        read(layers.unroll(cell, jnp.asarray(xs[t:]), state=z)[1]), jnp.asarray(ys[t:])
    )
    total = W.T @ (W @ z[t] - ys[t - 1])
    product = np.eye(4)
    for i in range(t + 1, T + 1):
        product = J[i - 1] @ product
        total = total + product.T @ W.T @ (W @ z[i] - ys[i - 1])
    return Verdict(
        close_derivative(
            "∂z_7/∂z_2, against the product",
            jacobian(lambda z: final_state(cell, xs[t:], z), z[t]),
            product,
        ),
        close(
            "Jacobian of one step",
            jax.jacfwd(lambda z: cell(z, jnp.asarray(xs[0]))[0])(jnp.asarray(z[0])),
            J[0],
            tolerance=1e-13,
        ),
        close(
            "∂L/∂z_2, against the sum",
            jax.grad(lambda z: later_losses(z) + loss_at(z, t))(jnp.asarray(z[t])),
            total,
        ),
        close_derivative(
            "∂L/∂z_2, by finite differences",
            jacobian(lambda z: later_losses(z) + loss_at(z, t), z[t]),
            total,
        ),
        refuted(
            close(
                "∂L/∂z_2, against the sum without the last time step",
                jacobian(lambda z: later_losses(z) + loss_at(z, t), z[t]),
                total - product.T @ W.T @ (W @ z[T] - ys[T - 1]),
                tolerance=1e-6,
            )
        ),
    )


@erratum(
    "5.0-hidden-gradient",
    title="The factor of the latest step is on the left",
    printed=r"\frac{\partial z_i}{\partial z_t} = \prod_{j=t+1}^{i} \dot\Phi_j U",
    corrected=r"\frac{\partial z_i}{\partial z_t} = \dot\Phi_i U\, \dot\Phi_{i-1} U \cdots "
    r"\dot\Phi_{t+1} U",
    of=("layers.unroll", "layers.Elman"),
    slip=True,
)
def order(key):
    r"""Matrices do not commute, and the notes do not give the order of the factors. By the chain
    rule the latest step is on the left; with the factors from left to right in the order of $j$ the
    product is different."""
    U, V, cell, _, xs, _ = random_problem(key, T=4)
    J = step_jacobians(U, V, xs)
    measured = jacobian(lambda z: final_state(cell, xs, z), np.zeros(4))
    return Verdict(
        close_derivative("∂z_4/∂z_0", measured, J[3] @ J[2] @ J[1] @ J[0]),
        printed=[close_derivative("∂z_4/∂z_0", measured, J[0] @ J[1] @ J[2] @ J[3])],
    )


def real_time_gradient(U, V, W, xs, ys):
    r"""Forward-mode gradients by U and V:
    $P_t = \mathrm{diag}(\phi')(U P_{t-1} + \partial^+ a_t)$.
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


def truncated_gradient(U, V, W, xs, ys, k):
    r"""$\partial L / \partial U$ with the state treated as constant at every $k$-th step."""
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
    title="Unrolling in time, and truncated backpropagation",
    kind="algorithm",
    of=("layers.unroll", "layers.TruncatedBPTT", "layers.Elman"),
    cites="Williams & Zipser 1989; Williams & Peng 1990",
)
def unrolled(key):
    r"""Unrolled, a recurrent network is a feed-forward one whose layers share their weights: the
    gradient is the sum over the copies. Forward mode, which propagates
    $\partial z_t / \partial \theta$, gives the same. Truncation after $k$ steps changes the
    gradient, except for $k = T$.
    """
    T = 7
    U, V, _, W, xs, ys = random_problem(key, T=T)
    value = lambda U, V, **how: losses(U, V, W, xs, ys, **how).sum()
    gradient_of = lambda **how: jax.jit(jax.grad(lambda U: value(U, V, **how)))(jnp.asarray(U))
    gradient = gradient_of()
    forward_gradients = real_time_gradient(U, V, W, xs, ys)
    truncated = {
        k: gradient_of(make=lambda cell, k=k: layers.TruncatedBPTT(cell, k)) for k in (1, 3, T)
    }

    def loss_of_copies(Us):
        z = jnp.zeros(4)
        total = 0.0
        for t in range(T):
            z = elman_cell(Us[t], V)(z, jnp.asarray(xs[t]))[0]
            total += train.squared_loss(jnp.asarray(W) @ z, jnp.asarray(ys[t]))
        return total

    copy_gradients = jax.jit(jax.grad(loss_of_copies))(jnp.tile(jnp.asarray(U), (T, 1, 1)))
    distances = [
        float(np.abs(np.asarray(truncated[k]) - np.asarray(gradient)).max()) for k in truncated
    ]
    return Verdict(
        close_derivative(
            "∂L/∂U, against finite differences", gradient, jacobian(lambda U: value(U, V), U)
        ),
        close("∂L/∂U, against the sum over 7 copies", gradient, copy_gradients.sum(axis=0)),
        close("∂L/∂U, in forward mode", gradient, forward_gradients[0]),
        close(
            "∂L/∂V, in forward mode",
            jax.jit(jax.grad(value, argnums=1))(jnp.asarray(U), jnp.asarray(V)),
            forward_gradients[1],
        ),
        *(
            close(
                f"truncated after {k}, against a loop",
                truncated[k],
                truncated_gradient(U, V, W, xs, ys, k),
            )
            for k in truncated
        ),
        close("truncated after 7, against the full gradient", truncated[T], gradient),
        refuted(at_most("truncated after 3: distance from the full gradient", distances[1], 1e-3)),
        equal(
            "truncation does not change the forward pass",
            losses(U, V, W, xs, ys, make=lambda c: layers.TruncatedBPTT(c, T)),
            losses(U, V, W, xs, ys),
        ),
        figure=Panel(
            "time step of the copy",
            "norm of its gradient",
            points={
                "copy of U": (np.arange(1, T + 1), np.linalg.norm(copy_gradients, axis=(1, 2)))
            },
        ),
    )
