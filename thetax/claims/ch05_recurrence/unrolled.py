"""§5 and lecture 10, A.14 to A.17: recurrent networks along a sequence."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy.special import expit

from ... import layers, tree
from ...plot import Panel
from ..engine.check import at_least, at_most, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian
from ..engine.numpy_rng import numpy_rng
from .by_loop import elman, elman_cell, random_elman

SLACK = {"bound": 1e-8, "method": "finite differences"}


def jacobian_blocks(f, xs):
    r"""The largest entry of $\partial y_t / \partial x_s$ for all $t$ and $s$, and the largest
    error against finite differences.
    """
    slope = np.asarray(jax.jit(jax.jacfwd(f))(jnp.asarray(xs)))
    return np.abs(slope).max(axis=(1, 3)), np.abs(slope - jacobian(f, xs, step=3e-4)).max()


def future_pairs(T):
    r"""The pairs $t, s$ with $s > t$."""
    return np.triu(np.ones((T, T), bool), 1)


@claim(
    "5.0-rnn",
    title="A recurrent network",
    kind="model",
    of=("layers.unroll", "layers.Recurrent", "layers.Elman"),
    cites="Elman 1990",
)
def recurrent(rng):
    r"""$z_t = F[\theta](z_{t-1}, x_t)$ from $z_0 = 0$, with the same $\theta$ at every $t$, and
    outputs $y_t = G[\varphi](z_t)$. The weights do not depend on $T$, and $z_t$ does not depend
    on later inputs.
    """
    U, V, cell = random_elman(rng, 3, 5)
    W = rng.normal(size=(2, 5))
    xs = rng.normal(size=(12, 3))
    net = layers.Chain(layers.Recurrent(cell), jax.vmap(layers.Linear(jnp.asarray(W))))
    by_length = {T: np.asarray(net(jnp.asarray(xs[:T]))) for T in (1, 7, 12)}
    z = cell.start
    ys = []
    for x in jnp.asarray(xs):
        z, _ = cell(z, x)
        ys.append(W @ np.asarray(z))
    changed = np.concatenate([xs[:5], rng.normal(size=(7, 3))])
    states = lambda xs: layers.unroll(cell, jnp.asarray(xs))[1]
    return Verdict(
        close(
            "against the loop in NumPy, T = 12",
            by_length[12],
            elman(U, V, xs)[1:] @ W.T,
            tolerance=1e-14,
        ),
        close("against the cell called step by step", by_length[12], ys, tolerance=1e-14),
        close("T = 7, against the first 7 of 12", by_length[7], by_length[12][:7], tolerance=1e-14),
        close("T = 1", by_length[1], (np.tanh(V @ xs[0]) @ W.T)[None], tolerance=1e-14),
        equal("z_1 to z_5, with other inputs after 5", states(changed)[:5], states(xs)[:5]),
        refuted(
            equal("z_6 to z_12, with other inputs after 5", states(changed)[5:], states(xs)[5:])
        ),
        equal("weights of the cell: m² + mn + m", tree.size(cell), 5 * 5 + 5 * 3 + 5),
        refuted(
            close(
                "with other weights at the last step",
                np.tanh((U + 0.1) @ elman(U, V, xs)[-2] + V @ xs[-1]),
                states(xs)[-1],
                tolerance=1e-3,
            )
        ),
    )


@claim(
    "5.0-elman",
    title="Elman's network",
    kind="model",
    of=("layers.Elman", "layers.unroll"),
    cites="Elman 1990",
)
def elmans(rng):
    r"""$F[U, V](z, x) = \phi(Uz + Vx)$ and $G[W](z) = \psi(Wz)$, $U \in \mathbb{R}^{m \times m}$,
    $V \in \mathbb{R}^{m \times n}$, $W \in \mathbb{R}^{q \times m}$."""
    T = 6
    U, V, _ = random_elman(rng, 2, 4)
    W = rng.normal(size=(3, 4))
    xs = rng.normal(size=(T, 2))
    c = rng.normal(size=(T, 3))

    def outputs(U, V, W):
        return layers.sigmoid(
            jax.vmap(layers.Linear(W))(layers.unroll(elman_cell(U, V), jnp.asarray(xs))[1])
        )

    point = tuple(map(jnp.asarray, (U, V, W)))
    value = lambda *weights: jnp.vdot(jnp.asarray(c), outputs(*weights))
    partial = (
        lambda U: value(U, *point[1:]),
        lambda V: value(point[0], V, point[2]),
        lambda W: value(*point[:2], W),
    )
    gradients = jax.grad(value, argnums=(0, 1, 2))(*point)
    states = elman(U, V, xs)[1:]
    relu = elman_cell(U, V, phi=layers.relu)
    return Verdict(
        close("outputs, against the loop", outputs(*point), expit(states @ W.T), tolerance=1e-14),
        close(
            "with φ = ReLU",
            layers.unroll(relu, jnp.asarray(xs))[1],
            elman(U, V, xs, phi=lambda a: np.maximum(a, 0))[1:],
            tolerance=1e-13,
        ),
        *(
            close_derivative(f"gradient by {name}", g, jacobian(f, p))
            for name, g, f, p in zip("UVW", gradients, partial, point)
        ),
        refuted(
            close(
                "with the transpose of U",
                outputs(point[0].T, *point[1:]),
                expit(states @ W.T),
                tolerance=1e-3,
            )
        ),
    )


@claim(
    "5.0-motivation",
    title="Recurrent networks have long memory and few weights",
    kind="identity",
    of=("layers.Convolution", "layers.Linear", "layers.Elman"),
)
def motivation(key):
    r"""$L$ convolutions of size $K$ have a receptive field of $1 + L(K - 1)$ steps; a dense layer
    from $T$ steps of $n$ numbers to $T$ of $m$ needs $T^2 nm$ weights. The state $z_t$ of a
    recurrent network depends on all of $x_1, \dots, x_t$, with $m^2 + mn$ weights for every $T$.
    """
    T = 24
    sizes = [(4, 3), (3, 2), (2, 5)]
    checks = []
    x = jnp.asarray(numpy_rng(key).normal(size=(1, T)))
    for (L, K), k in zip(sizes, jr.split(key, len(sizes))):
        stack = [
            layers.Convolution.init(1, 1, (K,), boundary="valid", key=k) for k in jr.split(k, L)
        ]
        net = layers.Chain(*[part for layer in stack for part in (layer, jnp.tanh)])
        support = [np.flatnonzero(row) for row in np.asarray(jax.jit(jax.jacrev(net))(x))[0, :, 0]]
        widths = {1 + support_row[-1] - support_row[0] for support_row in support}
        checks.append(
            equal(
                f"{L} convolutions of size {K}: receptive field", sorted(widths), [1 + L * (K - 1)]
            )
        )
    n, m = 2, 3
    dense = lambda T: tree.size(layers.Linear.init(int(T) * n, int(T) * m, bias=False, key=key))
    cell = layers.Elman.init(n, m, key=key)
    influence, error = jacobian_blocks(
        lambda xs: layers.unroll(cell, xs)[1][-1:], 0.3 * numpy_rng(key).normal(size=(T, n))
    )
    lengths = np.array([10, 100])
    return Verdict(
        *checks,
        equal(
            "weights of a dense layer, T = 10 and 100",
            [dense(T) for T in lengths],
            lengths**2 * n * m,
        ),
        equal("weights of the cell", tree.size(cell) - m, m**2 + m * n),
        equal("number of inputs, of 24, on which z_24 depends", np.count_nonzero(influence), T),
        at_least("smallest ∂z_24/∂x_s over s", influence.min(), 1e-6),
        at_most("∂z_24/∂x_s, against finite differences", error, **SLACK),
    )


@claim(
    "L10-A14-sequence-io",
    title="Many-to-one and many-to-many maps of sequences",
    kind="definition",
    of=("layers.Recurrent", "layers.Chain"),
)
def sequences(key, rng):
    r"""A sequence $x_1, \dots, x_T \in \mathbb{R}^d$ is mapped to one label (many to one) or to a
    sequence (many to many). A network applied separately at each time
    has $\partial y_t / \partial x_s = 0$ for $s \ne t$; a recurrent network only for $s > t$.
    """
    T = 7
    d = 3
    k = 4
    _, _, cell = random_elman(rng, d, 5)
    read = layers.Linear(jnp.asarray(rng.normal(size=(k, 5))))
    many_to_many = layers.Chain(layers.Recurrent(cell), jax.vmap(read))
    many_to_one = layers.Chain(layers.Recurrent(cell), lambda states: states[-1], read)
    step = jax.vmap(layers.Chain(layers.Linear.init(d, 5, key=key), layers.tanh, read))
    xs = rng.normal(size=(T, d))
    (pointwise_influence, _), (recurrent_influence, error) = (
        jacobian_blocks(step, xs),
        jacobian_blocks(many_to_many, xs),
    )
    return Verdict(
        equal("many to one: shape", many_to_one(jnp.asarray(xs)).shape, (k,)),
        equal("many to many: shape", many_to_many(jnp.asarray(xs)).shape, (T, k)),
        close(
            "many to one is the last output of many to many",
            many_to_one(jnp.asarray(xs)),
            many_to_many(jnp.asarray(xs))[-1],
            tolerance=1e-14,
        ),
        equal(
            "pointwise: pairs with ∂y_t/∂x_s ≠ 0", pointwise_influence > 0, np.eye(T, dtype=bool)
        ),
        equal("recurrent: pairs with ∂y_t/∂x_s ≠ 0", recurrent_influence > 0, ~future_pairs(T)),
        at_most("recurrent: Jacobian, against finite differences", error, **SLACK),
    )


@claim(
    "L10-A16-rnn",
    title="Recurrent networks are causal and time-invariant",
    kind="model",
    of=("layers.unroll", "layers.Elman"),
)
def same_at_all_times(rng):
    r"""$h_t = \tanh(W_h h_{t-1} + W_x x_t + b)$ and $y_t = V h_t + c$ with the same parameters for
    $t = 1, \dots, T$: $\partial y_t / \partial x_s = 0$ for $s > t$; and a sequence delayed by
    inputs that leave the state at 0 gives the same outputs with the same delay.
    """
    T = 8
    delay = 3
    W_h, W_x, cell = random_elman(rng, 2, 4)
    b = rng.normal(size=4)
    V = jnp.asarray(rng.normal(size=(3, 4)))
    c = jnp.asarray(rng.normal(size=3))
    offset = layers.Elman(cell.U, cell.V, jnp.asarray(b))
    xs = rng.normal(size=(T, 2))
    net = layers.Chain(layers.Recurrent(offset), jax.vmap(layers.Linear(V, c)))
    states = lambda cell, xs, **how: np.asarray(layers.unroll(cell, jnp.asarray(xs), **how)[1])
    delayed = np.concatenate([np.zeros((delay, 2)), xs])
    mask = jnp.arange(T + delay) >= delay
    influence, error = jacobian_blocks(net, xs)
    return Verdict(
        close(
            "against the loop",
            net(jnp.asarray(xs)),
            elman(W_h, W_x, xs, b=b)[1:] @ np.asarray(V).T + np.asarray(c),
            tolerance=1e-13,
        ),
        equal("∂y_t/∂x_s for s > t", influence[future_pairs(T)], 0.0),
        equal("number of non-zero ∂y_t/∂x_s", np.count_nonzero(influence), T * (T + 1) // 2),
        at_most("Jacobian, against finite differences", error, **SLACK),
        equal(
            "parameters: m² + mn + m and qm + q, for any T",
            tree.size(offset) + tree.size(layers.Linear(V, c)),
            4 * 4 + 4 * 2 + 4 + 3 * 4 + 3,
        ),
        close(
            "delayed by three zero inputs, b = 0",
            states(cell, delayed)[delay:],
            states(cell, xs),
            tolerance=1e-14,
        ),
        refuted(
            close(
                "delayed by three zero inputs, b ≠ 0",
                states(offset, delayed)[delay:],
                states(offset, xs),
                tolerance=1e-3,
            )
        ),
        close(
            "delayed by three masked inputs, b ≠ 0",
            states(offset, delayed, mask=mask)[delay:],
            states(offset, xs),
            tolerance=1e-14,
        ),
    )


@erratum(
    "L10-A16-rnn",
    title="The recurrence starts at t = 1, not at t = 0",
    printed=r"h_t = f_W(h_{t-1}, x_t), \quad t = 0, 1, \dots, T",
    corrected=r"h_t = f_W(h_{t-1}, x_t), \quad t = 1, \dots, T, \quad h_0 \text{ given}",
    of=("layers.unroll", "layers.Elman"),
    slip=True,
)
def first_input(rng):
    r"""In A.17, equation 28. Inputs and targets are $x_1, \dots, x_T$ and $o_1, \dots, o_T$. From
    $t = 0$ there would be $T + 1$ steps, one of them for an input $x_0$ that does not exist; it
    would change the given $h_0$ before $x_1$ is read."""
    T = 6
    W_h, W_x, cell = random_elman(rng, 2, 4)
    b = rng.normal(size=4)
    xs = rng.normal(size=(T, 2))
    states = layers.unroll(layers.Elman(cell.U, cell.V, jnp.asarray(b)), jnp.asarray(xs))[1]
    from_one, from_zero = (
        elman(W_h, W_x, x, b=b)[1:] for x in (xs, np.concatenate([np.zeros((1, 2)), xs]))
    )
    return Verdict(
        close("states at the times of the targets", states, from_one, tolerance=1e-13),
        equal("number of steps", len(from_one), T),
        printed=[
            close("states at the times of the targets", states, from_zero[1:], tolerance=1e-13),
            equal("number of steps", len(from_zero), T),
        ],
        figure=Panel(
            "t",
            "first unit",
            lines={
                "from t = 1": (np.arange(1, T + 1), from_one[:, 0]),
                "from t = 0": (np.arange(T + 1), from_zero[:, 0]),
            },
        ),
    )
