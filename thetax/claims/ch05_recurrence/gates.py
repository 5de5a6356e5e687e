"""§5.1: gates, by which a state can be kept."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy.special import expit

from ... import layers, tree
from ...layers import GRU, LSTM, Kept
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_least, at_most, close, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian
from .by_loop import FD, gru, lstm

FAR = 40.0  # a logit at which a gate is 0 or 1 to the last bit


def lstm_of(F, G, V, H, M):
    """The library's cell of the notes' five matrices: the blocks are input, forget, candidate and
    output.
    """
    m = len(M)
    rows = jnp.concatenate([jnp.asarray(A) for A in (G, F, V, H)])
    return LSTM(rows[:, :m], rows[:, m:], jnp.zeros(4 * m), jnp.asarray(M))


def gru_of(G, H, V):
    """The library's cell of the notes' three matrices: the blocks are reset, keep and candidate."""
    m = len(G)
    rows = jnp.concatenate([jnp.asarray(A) for A in (H, G, V)])
    return GRU(rows[:, :m], rows[:, m:], jnp.zeros(3 * m))


def small_lstm(key, m=16, n=4, *, forget=0.0, scale=0.1):
    """A cell of small weights."""
    key_U, key_V = jr.split(key)
    b = jnp.zeros(4 * m).at[m : 2 * m].set(forget)
    return LSTM(scale * jr.normal(key_U, (4 * m, m)), scale * jr.normal(key_V, (4 * m, n)), b)


def forced(cell, **logits):
    """The cell with offsets such that these gates are open or closed whatever comes in."""
    m = cell.U.shape[1]
    places = {"input": 0, "forget": 1, "candidate": 2, "output": 3}
    b = cell.b
    for name, logit in logits.items():
        b = b.at[places[name] * m : (places[name] + 1) * m].set(logit)
    return eqx.tree_at(lambda cell: cell.b, cell, b)


@claim("5.1-gating", title="A gate", kind="definition", of=("layers.LSTM", "layers.GRU"))
def gating(key):
    r"""$z \leftarrow s \odot z$ with $s \in (0, 1)^m$: where $s_i \to 0$ the coordinate is
    forgotten, where $s_i \to 1$ it is kept.
    """
    rng = chance(key)
    m = 5
    z = rng.normal(size=m)
    x = jnp.asarray(rng.normal(size=3))
    state = Kept(jnp.asarray(0.1 * rng.normal(size=m)), jnp.asarray(z))
    cell = LSTM.init(3, m, key=key)
    step = lambda **logits: np.asarray(forced(cell, **logits)(state, x)[0].cell)
    b = lambda keep: jnp.zeros(3 * m).at[m : 2 * m].set(keep)
    unit = GRU.init(3, m, key=key)
    kept = eqx.tree_at(lambda cell: cell.b, unit, b(FAR))(jnp.asarray(z), x)[0]
    still = LSTM(jnp.zeros((4 * m, m)), jnp.zeros((4 * m, 3)), jnp.asarray(rng.normal(size=4 * m)))
    between = forced(still, input=-FAR)(state, x)[0].cell
    return Verdict(
        close("LSTM, logit +40: z", step(forget=FAR, input=-FAR), z, tolerance=1e-12),
        close("LSTM, logit −40: 0", step(forget=-FAR, input=-FAR), np.zeros(m), tolerance=1e-12),
        close(
            "LSTM, any logit: s ⊙ z",
            between,
            expit(np.asarray(still.b[m : 2 * m])) * z,
            tolerance=1e-14,
        ),
        close("GRU, logit +40: z", kept, z, tolerance=1e-12),
        refuted(close("LSTM, logit 0: z", step(forget=0.0, input=-FAR), z, tolerance=1e-3)),
    )


@claim(
    "5.1-lstm",
    title="Long short-term memory",
    kind="model",
    of=("layers.LSTM", "layers.Kept"),
    cites="Hochreiter & Schmidhuber 1997; Gers, Schmidhuber & Cummins 2000",
)
def long_short(key):
    r"""With $\tilde x_t = [\zeta_{t-1}, x_t]$:
    $z_t = \sigma(F\tilde x_t) \odot z_{t-1} + \sigma(G\tilde x_t) \odot \tanh(V\tilde x_t)$ and
    $\zeta_t = \sigma(H\tilde x_t) \odot \tanh(U z_t)$. So $|\zeta_t| < 1$ and $|z_t| \le t$; with
    $U = I$ it is the usual one.
    """
    rng = chance(key)
    T = 8
    m = 4
    n = 3
    five = [rng.normal(size=(m, m + n)) for _ in range(4)] + [rng.normal(size=(m, m))]
    xs = rng.normal(size=(T, n))
    c = jnp.asarray(rng.normal(size=(T, m)))
    cells = lambda cell, xs: jax.lax.scan(
        lambda s, x: (cell(s, x)[0],) * 2, cell.start, jnp.asarray(xs)
    )[1]
    shown, kept = lstm(*five, xs=xs)
    found = cells(lstm_of(*five), xs)
    usual = LSTM(lstm_of(*five).U, lstm_of(*five).V, jnp.zeros(4 * m))
    value = lambda *five: jnp.vdot(c, layers.unroll(lstm_of(*five), jnp.asarray(xs))[1])
    slopes = jax.jit(jax.grad(value, argnums=tuple(range(5))))(*map(jnp.asarray, five))
    each = [lambda A, i=i: value(*five[:i], A, *five[i + 1 :]) for i in range(5)]
    far = cells(lstm_of(*[9 * A for A in five]), np.tile(xs, (20, 1)))
    z = jnp.asarray(rng.normal(size=m))
    closed = forced(usual, forget=FAR, input=-FAR)
    after = layers.unroll(closed, jnp.asarray(np.tile(xs, (13, 1))), state=Kept(z, z))[0]
    return Verdict(
        close(
            "ζ, against the loop",
            layers.unroll(lstm_of(*five), jnp.asarray(xs))[1],
            shown,
            tolerance=1e-13,
        ),
        close("z, against the loop", found.cell, kept, tolerance=1e-13),
        *(
            close(f"gradient in {name}", g, jacobian(f, A, step=3e-4), **FD)
            for name, g, f, A in zip("FGVHU", slopes, each, five)
        ),
        close(
            "U = I: the usual one",
            layers.unroll(usual, jnp.asarray(xs))[1],
            lstm(*five[:4], M=np.eye(m), xs=xs)[0],
            tolerance=1e-13,
        ),
        refuted(
            close(
                "U = I, where it is not",
                lstm(*five[:4], M=np.eye(m), xs=xs)[0],
                shown,
                tolerance=1e-3,
            )
        ),
        close("forget open, input closed: z after 104 steps", after.cell, z, tolerance=1e-12),
        at_most("large weights: |ζ|", np.abs(far.shown), 1.0),
        at_most("large weights: |z_t| − t", np.abs(far.cell) - np.arange(1, 161)[:, None], 0.0),
    )


@erratum(
    "5.1-lstm",
    title="Which one is the gate",
    printed=r"\tanh(V\tilde x_t) \text{ the input gate}, \quad \sigma(G\tilde x_t) \text{ the "
    r"gate gate}",
    corrected=r"\sigma(G\tilde x_t) \text{ the input gate}, \quad \tanh(V\tilde x_t) \text{ the "
    r"candidate}",
    of=("layers.LSTM",),
    slip=True,
)
def input_gate(key):
    r"""Two names are exchanged; what the two compute is described rightly beside them. A gate that
    is closed lets nothing in: $z_t = \sigma(F\tilde x_t) \odot z_{t-1}$. So it is with
    $\sigma(G\tilde x_t)$; a $\tanh$ is not in $(0, 1)$, and at $-\infty$ it writes $-1$."""
    rng = chance(key)
    m = 4
    cell = LSTM.init(3, m, key=key)
    x = jnp.asarray(rng.normal(size=3))
    state = Kept(jnp.asarray(0.3 * rng.normal(size=m)), jnp.asarray(rng.normal(size=m)))
    forget = expit(np.asarray(cell.V @ x + cell.U @ state.shown + cell.b)[m : 2 * m])
    after = lambda **closed: forced(cell, **closed)(state, x)[0].cell
    settings = {"expected": forget * np.asarray(state.cell), "tolerance": 1e-12}
    return Verdict(
        close("σ(Gx̃) closed: what was kept alone", after(input=-FAR), **settings),
        printed=[close("tanh(Vx̃) closed: what was kept alone", after(candidate=-FAR), **settings)],
    )


def replayed(cell, xs):
    """What went into the gates along a run, and a cell that takes just that for its gates: they are
    held fixed.
    """
    m = cell.U.shape[1]
    before = jnp.concatenate([jnp.zeros((1, m)), layers.unroll(cell, xs)[1][:-1]])
    logits = xs @ cell.V.T + before @ cell.U.T + cell.b[None]
    return logits, LSTM(jnp.zeros((4 * m, m)), jnp.eye(4 * m), jnp.zeros(4 * m))


@jax.jit
def cell_path(cell, xs):
    r"""$\partial z_T / \partial z_0$ from a state of 0, all paths through the gates included."""
    end = lambda z: layers.unroll(cell, xs, state=Kept(jnp.zeros_like(z), z))[0].cell
    return jax.jacfwd(end)(cell.start.cell)


@claim(
    "5.1-lstm-shortcut",
    title="The short cut through the cell",
    kind="identity",
    of=("layers.LSTM",),
    cites="Hochreiter & Schmidhuber 1997",
)
def short_cut(key):
    r"""With the gates held fixed
    $\frac{\partial z_T}{\partial z_t} = \prod_{j=t+1}^T \mathrm{diag}\, \sigma(F\tilde x_j)$:
    forget gates near 1 keep a gradient for long, forget gates of $\frac12$ do not.
    """
    m, n, T = 4, 3, 6
    cell = LSTM.init(n, m, forget=0.5, key=key)
    xs = jr.normal(key, (T, n))
    logits, fixed = replayed(cell, xs)
    gates = expit(np.asarray(logits)[:, m : 2 * m])
    path = lambda cell, xs: jacobian(
        lambda z: layers.unroll(cell, xs, state=Kept(jnp.zeros(m), z))[0].cell, np.zeros(m)
    )
    still = small_lstm(key, m, n, scale=0.0)
    kept = np.diag(cell_path(forced(still, forget=10.0), jnp.zeros((100, n))))
    half = np.diag(cell_path(still, jnp.zeros((50, n))))
    ages = np.arange(1, 101)
    return Verdict(
        close(
            "the replay gives the same states",
            layers.unroll(fixed, logits)[1],
            layers.unroll(cell, xs)[1],
            tolerance=1e-14,
        ),
        close("∂z_6/∂z_0, gates fixed", path(fixed, logits), np.diag(gates.prod(axis=0)), **FD),
        refuted(
            close(
                "∂z_6/∂z_0, gates not fixed",
                path(cell, xs),
                np.diag(gates.prod(axis=0)),
                tolerance=1e-3,
            )
        ),
        at_least("forget gates σ(10): after 100 steps", kept, 0.99),
        close("forget gates ½: after 50 steps", half, 0.5**50, tolerance=1e-12, relative=True),
        figure=Chart(
            Panel(
                "steps back",
                "gradient along the cell",
                log="y",
                lines={f"forget logit {b}": (ages, expit(b) ** ages) for b in (0, 1, 3, 5)},
            )
        ),
    )


@erratum(
    "5.1-lstm-shortcut",
    title="The gradient can vanish",
    printed=r"\frac{\partial z_T}{\partial z_t} \not\to 0 \text{ with any gates}",
    corrected=r"\frac{\partial z_T}{\partial z_t} \not\to 0 \text{ with } \sigma(F\tilde x_j) "
    r"\approx 1",
    of=("layers.LSTM",),
)
def it_can_vanish(key):
    r"""The short cut multiplies by the forget gates, which are below 1: with small weights each is
    near $\frac12$, and after 60 steps nothing is left. It need not vanish where they are near 1.
    """
    xs = jr.normal(key, (60, 4))
    norm = lambda forget: np.linalg.norm(cell_path(small_lstm(key, forget=forget), xs), 2)
    return Verdict(
        at_least("forget offset 5: ‖∂z_60/∂z_0‖", norm(5.0), 0.3),
        printed=[at_least("forget offset 0: ‖∂z_60/∂z_0‖", norm(0.0), 0.3)],
    )


@claim(
    "5.1-gru",
    title="The gated recurrent unit",
    kind="model",
    of=("layers.GRU",),
    cites="Cho et al. 2014",
)
def gated(key):
    r"""$s = \sigma(G[z_{t-1}, x_t])$, $\zeta_t = \sigma(H[z_{t-1}, x_t])$,
    $\tilde z_t = \tanh(V[\zeta_t \odot z_{t-1}, x_t])$ and
    $z_t = s \odot z_{t-1} + (1 - s) \odot \tilde z_t$: the state lies between what it was and the
    candidate, so $|z_t| < 1$. Here $s$ keeps; some libraries write $1 - s$.
    """
    rng = chance(key)
    T = 8
    m = 4
    n = 3
    three = [rng.normal(size=(m, m + n)) for _ in range(3)]
    xs = rng.normal(size=(T, n))
    c = jnp.asarray(rng.normal(size=(T, m)))
    z, new = gru(*three, xs=xs)
    found = np.asarray(layers.unroll(gru_of(*three), jnp.asarray(xs))[1])
    value = lambda *three: jnp.vdot(c, layers.unroll(gru_of(*three), jnp.asarray(xs))[1])
    slopes = jax.jit(jax.grad(value, argnums=(0, 1, 2)))(*map(jnp.asarray, three))
    each = [lambda A, i=i: value(*three[:i], A, *three[i + 1 :]) for i in range(3)]
    before = np.concatenate([np.zeros((1, m)), found[:-1]])
    low = np.minimum(before, new)
    high = np.maximum(before, new)
    far = layers.unroll(gru_of(*[5 * A for A in three]), jnp.asarray(np.tile(xs, (20, 1))))[1]
    copying = GRU.init(n, m, keep=FAR, key=key)
    start = jnp.asarray(rng.normal(size=m))
    other = gru_of(-three[0], *three[1:])
    return Verdict(
        close("against the loop", found, z[1:], tolerance=1e-13),
        *(
            close(f"gradient in {name}", g, jacobian(f, A, step=3e-4), **FD)
            for name, g, f, A in zip("GHV", slopes, each, three)
        ),
        at_most("z_t above the larger of the two", found - high, 0.0, slack=1e-14),
        at_least("z_t above the smaller of the two", found - low, 0.0, slack=1e-14),
        at_most("large weights: |z_t|", np.abs(far), 1.0),
        close(
            "s → 1 copies the state, 100 steps",
            layers.unroll(copying, jnp.asarray(np.tile(xs, (13, 1))), state=start)[0],
            start,
            tolerance=1e-12,
        ),
        refuted(
            close("1 − s for s", layers.unroll(other, jnp.asarray(xs))[1], z[1:], tolerance=1e-3)
        ),
    )


@claim(
    "5.1-param-count",
    title="Three matrices or five",
    kind="identity",
    of=("layers.GRU", "layers.LSTM"),
)
def counts(key):
    r"""A GRU has the matrices $G, H, V$, $3m(m + n)$ numbers; the LSTM of the notes $F, G, V, H$
    and $U$, $4m(m + n) + m^2$. Offsets come on top.
    """
    checks = []
    for n, m in ((3, 5), (7, 2), (16, 16)):
        three = GRU.init(n, m, key=key)
        five = LSTM.init(n, m, mixed=True, key=key)
        four = LSTM.init(n, m, key=key)
        matrices = lambda cell: tree.size(cell) - tree.size(cell.b)
        checks += [
            equal(f"GRU, n = {n}, m = {m}", matrices(three), 3 * m * (m + n)),
            equal(f"LSTM, n = {n}, m = {m}", matrices(five), 4 * m * (m + n) + m * m),
            equal(f"LSTM with U = I, n = {n}, m = {m}", matrices(four), 4 * m * (m + n)),
            equal(f"offsets, n = {n}, m = {m}", [three.b.size, five.b.size], [3 * m, 4 * m]),
        ]
    return Verdict(*checks)
