"""§5 and lecture 10, A.14 to A.17: one cell along a sequence, and why."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy.special import expit

from ... import layers, tree
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_least, at_most, close, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian
from .by_loop import FD, elman, plain, random_elman

SLACK = {"bound": 1e-8, "method": "finite differences"}


def blocks(f, xs):
    r"""The largest entry of $\partial y_t / \partial x_s$ for all $t$ and $s$, and how far
    differences are from it.
    """
    slope = np.asarray(jax.jit(jax.jacfwd(f))(jnp.asarray(xs)))
    return np.abs(slope).max(axis=(1, 3)), np.abs(slope - jacobian(f, xs, step=3e-4)).max()


def later(T):
    r"""The pairs $t, s$ with $s > t$."""
    return np.triu(np.ones((T, T), bool), 1)


@claim(
    "5.0-rnn",
    title="A recurrent network",
    kind="model",
    of=("layers.unroll", "layers.Recurrent", "layers.Elman"),
    cites="Elman 1990",
)
def recurrent(key):
    r"""$z_t = F[\theta](z_{t-1}, x_t)$ from $z_0 = 0$, with the same $\theta$ at every $t$, and
    outputs $y_t = G[\varphi](z_t)$. One set of weights serves any $T$, and $z_t$ does not change
    with what comes after $t$.
    """
    rng = chance(key)
    U, V, cell = random_elman(rng, 3, 5)
    W = rng.normal(size=(2, 5))
    xs = rng.normal(size=(12, 3))
    net = layers.Chain(layers.Recurrent(cell), jax.vmap(layers.Linear(jnp.asarray(W))))
    found = {T: np.asarray(net(jnp.asarray(xs[:T]))) for T in (1, 7, 12)}
    z = cell.start
    ys = []
    for x in jnp.asarray(xs):
        z, _ = cell(z, x)
        ys.append(W @ np.asarray(z))
    other = np.concatenate([xs[:5], rng.normal(size=(7, 3))])
    states = lambda xs: layers.unroll(cell, jnp.asarray(xs))[1]
    return Verdict(
        close(
            "against the loop in NumPy, T = 12",
            found[12],
            elman(U, V, xs)[1:] @ W.T,
            tolerance=1e-14,
        ),
        close("against the cell called at every time", found[12], ys, tolerance=1e-14),
        close("T = 7 and the first 7 of 12", found[7], found[12][:7], tolerance=1e-14),
        close("T = 1", found[1], (np.tanh(V @ xs[0]) @ W.T)[None], tolerance=1e-14),
        equal("z_1 to z_5, other inputs after", states(other)[:5], states(xs)[:5]),
        refuted(equal("z_6 to z_12, other inputs after", states(other)[5:], states(xs)[5:])),
        equal("weights of the cell: m² + mn + m", tree.size(cell), 5 * 5 + 5 * 3 + 5),
        refuted(
            close(
                "other weights at the last time",
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
def elmans(key):
    r"""$F[U, V](z, x) = \phi(Uz + Vx)$ and $G[W](z) = \psi(Wz)$, $U \in \mathbb{R}^{m \times m}$,
    $V \in \mathbb{R}^{m \times n}$, $W \in \mathbb{R}^{q \times m}$."""
    rng = chance(key)
    T = 6
    U, V, _ = random_elman(rng, 2, 4)
    W = rng.normal(size=(3, 4))
    xs = rng.normal(size=(T, 2))
    c = rng.normal(size=(T, 3))

    def outputs(U, V, W):
        return layers.sigmoid(
            jax.vmap(layers.Linear(W))(layers.unroll(plain(U, V), jnp.asarray(xs))[1])
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
    relu = plain(U, V, phi=layers.relu)
    return Verdict(
        close("outputs, against the loop", outputs(*point), expit(states @ W.T), tolerance=1e-14),
        close(
            "ReLU for φ",
            layers.unroll(relu, jnp.asarray(xs))[1],
            elman(U, V, xs, phi=lambda a: np.maximum(a, 0))[1:],
            tolerance=1e-13,
        ),
        *(
            close(f"gradient in {name}", g, jacobian(f, p), **FD)
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
    title="Windows are short, dense layers are large",
    kind="identity",
    of=("layers.Convolution", "layers.Linear", "layers.Elman"),
)
def motivation(key):
    r"""$L$ convolutions of size $K$ see $1 + L(K - 1)$ steps and no more; a dense layer on $T$
    steps of $n$ numbers to $T$ of $m$ needs $T^2 nm$ weights. The state $z_t$ of a recurrent
    network depends on all of $x_1, \dots, x_t$, with $m^2 + mn$ weights whatever $T$.
    """
    T = 24
    sizes = [(4, 3), (3, 2), (2, 5)]
    checks = []
    x = jnp.asarray(chance(key).normal(size=(1, T)))
    for (L, K), k in zip(sizes, jr.split(key, len(sizes))):
        stack = [
            layers.Convolution.init(1, 1, (K,), boundary="valid", key=k) for k in jr.split(k, L)
        ]
        net = layers.Chain(*[part for layer in stack for part in (layer, jnp.tanh)])
        support = [np.flatnonzero(row) for row in np.asarray(jax.jit(jax.jacrev(net))(x))[0, :, 0]]
        reach = {1 + places[-1] - places[0] for places in support}
        checks.append(
            equal(f"{L} of size {K}: steps an output sees", sorted(reach), [1 + L * (K - 1)])
        )
    n, m = 2, 3
    dense = lambda T: tree.size(layers.Linear.init(int(T) * n, int(T) * m, bias=False, key=key))
    cell = layers.Elman.init(n, m, key=key)
    reads, off = blocks(
        lambda xs: layers.unroll(cell, xs)[1][-1:], 0.3 * chance(key).normal(size=(T, n))
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
        equal("how many of 24 inputs z_24 reads", np.count_nonzero(reads), T),
        at_least("∂z_24/∂x_s, the least over s", reads.min(), 1e-6),
        at_most("∂z_24/∂x_s, against differences", off, **SLACK),
    )


@claim(
    "L10-A14-sequence-io",
    title="What goes in and comes out",
    kind="definition",
    of=("layers.Recurrent", "layers.Chain"),
)
def sequences(key):
    r"""A sequence $x_1, \dots, x_T \in \mathbb{R}^d$ is mapped to one label (many to one) or to a
    sequence (many to many). A network applied at each time by itself has
    $\partial y_t / \partial x_s = 0$ for $s \ne t$; a recurrent one has zeros for $s > t$ alone.
    """
    rng = chance(key)
    T = 7
    d = 3
    k = 4
    _, _, cell = random_elman(rng, d, 5)
    read = layers.Linear(jnp.asarray(rng.normal(size=(k, 5))))
    many = layers.Chain(layers.Recurrent(cell), jax.vmap(read))
    one = layers.Chain(layers.Recurrent(cell), lambda states: states[-1], read)
    step = jax.vmap(layers.Chain(layers.Linear.init(d, 5, key=key), layers.tanh, read))
    xs = rng.normal(size=(T, d))
    (alone, _), (along, off) = blocks(step, xs), blocks(many, xs)
    return Verdict(
        equal("many to one: shape", one(jnp.asarray(xs)).shape, (k,)),
        equal("many to many: shape", many(jnp.asarray(xs)).shape, (T, k)),
        close(
            "the one is the last of many",
            one(jnp.asarray(xs)),
            many(jnp.asarray(xs))[-1],
            tolerance=1e-14,
        ),
        equal("each time by itself: times that meet", alone > 0, np.eye(T, dtype=bool)),
        equal("recurrent: times that meet", along > 0, ~later(T)),
        at_most("recurrent: slopes, against differences", off, **SLACK),
    )


@claim(
    "L10-A16-rnn",
    title="Causal, and the same at all times",
    kind="model",
    of=("layers.unroll", "layers.Elman"),
)
def same_at_all_times(key):
    r"""$h_t = \tanh(W_h h_{t-1} + W_x x_t + b)$ and $y_t = V h_t + c$ with the same parameters for
    $t = 1, \dots, T$: $\partial y_t / \partial x_s = 0$ for $s > t$; and a sequence that begins
    later, out of silence that leaves the state at 0, gives the same outputs later.
    """
    rng = chance(key)
    T = 8
    late = 3
    W_h, W_x, cell = random_elman(rng, 2, 4)
    b = rng.normal(size=4)
    V = jnp.asarray(rng.normal(size=(3, 4)))
    c = jnp.asarray(rng.normal(size=3))
    offset = layers.Elman(cell.U, cell.V, jnp.asarray(b))
    xs = rng.normal(size=(T, 2))
    net = layers.Chain(layers.Recurrent(offset), jax.vmap(layers.Linear(V, c)))
    states = lambda cell, xs, **how: np.asarray(layers.unroll(cell, jnp.asarray(xs), **how)[1])
    delayed = np.concatenate([np.zeros((late, 2)), xs])
    there = jnp.arange(T + late) >= late
    reads, off = blocks(net, xs)
    return Verdict(
        close(
            "against the loop",
            net(jnp.asarray(xs)),
            elman(W_h, W_x, xs, b=b)[1:] @ np.asarray(V).T + np.asarray(c),
            tolerance=1e-13,
        ),
        equal("∂y_t/∂x_s for s > t", reads[later(T)], 0.0),
        equal("how many of the others are not 0", np.count_nonzero(reads), T * (T + 1) // 2),
        at_most("slopes, against differences", off, **SLACK),
        equal(
            "parameters: m² + mn + m and qm + q, for any T",
            tree.size(offset) + tree.size(layers.Linear(V, c)),
            4 * 4 + 4 * 2 + 4 + 3 * 4 + 3,
        ),
        close(
            "three zeros first, b = 0: three later",
            states(cell, delayed)[late:],
            states(cell, xs),
            tolerance=1e-14,
        ),
        refuted(
            close(
                "three zeros first, b ≠ 0",
                states(offset, delayed)[late:],
                states(offset, xs),
                tolerance=1e-3,
            )
        ),
        close(
            "three times without input, b ≠ 0",
            states(offset, delayed, mask=there)[late:],
            states(offset, xs),
            tolerance=1e-14,
        ),
    )


@erratum(
    "L10-A16-rnn",
    title="The first input is the first",
    printed=r"h_t = f_W(h_{t-1}, x_t), \quad t = 0, 1, \dots, T",
    corrected=r"h_t = f_W(h_{t-1}, x_t), \quad t = 1, \dots, T, \quad h_0 \text{ given}",
    of=("layers.unroll", "layers.Elman"),
    slip=True,
)
def first_input(key):
    r"""In A.17, equation 28. Inputs and targets are $x_1, \dots, x_T$ and $o_1, \dots, o_T$. From
    $t = 0$ on there would be $T + 1$ steps: one for an input $x_0$ that is not there, by which the
    state is no longer the given $h_0$ when $x_1$ comes."""
    rng = chance(key)
    T = 6
    W_h, W_x, cell = random_elman(rng, 2, 4)
    b = rng.normal(size=4)
    xs = rng.normal(size=(T, 2))
    found = layers.unroll(layers.Elman(cell.U, cell.V, jnp.asarray(b)), jnp.asarray(xs))[1]
    from_one, from_zero = (
        elman(W_h, W_x, x, b=b)[1:] for x in (xs, np.concatenate([np.zeros((1, 2)), xs]))
    )
    return Verdict(
        close("states at the times of the targets", found, from_one, tolerance=1e-13),
        equal("steps", len(from_one), T),
        printed=[
            close("states at the times of the targets", found, from_zero[1:], tolerance=1e-13),
            equal("steps", len(from_zero), T),
        ],
        figure=Chart(
            Panel(
                "t",
                "first unit",
                lines={
                    "from t = 1": (np.arange(1, T + 1), from_one[:, 0]),
                    "from t = 0": (np.arange(T + 1), from_zero[:, 0]),
                },
            )
        ),
    )
