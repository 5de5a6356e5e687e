"""§5.1: gated cells, LSTM and GRU."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy.special import expit

from ... import layers, tree
from ...layers import GRU, LSTM, LSTMState
from ...plot import Panel
from ..engine.check import at_least, at_most, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian
from .by_loop import gru, lstm

FAR = 40.0  # a logit at which a gate is 0 or 1 up to rounding


def lstm_from(F, G, V, H, M):
    """An `LSTM` cell from the notes' five matrices: the blocks are input, forget, candidate and
    output.
    """
    m = len(M)
    rows = jnp.concatenate([jnp.asarray(A) for A in (G, F, V, H)])
    return LSTM(rows[:, :m], rows[:, m:], jnp.zeros(4 * m), jnp.asarray(M))


def gru_from(G, H, V):
    """A `GRU` cell from the notes' three matrices: the blocks are reset, keep and candidate."""
    m = len(G)
    rows = jnp.concatenate([jnp.asarray(A) for A in (H, G, V)])
    return GRU(rows[:, :m], rows[:, m:], jnp.zeros(3 * m))


def small_lstm(key, m=16, n=4, *, forget=0.0, scale=0.1):
    """An LSTM cell with small weights."""
    key_U, key_V = jr.split(key)
    b = jnp.zeros(4 * m).at[m : 2 * m].set(forget)
    return LSTM(scale * jr.normal(key_U, (4 * m, m)), scale * jr.normal(key_V, (4 * m, n)), b)


def set_gates(cell, **logits):
    """The cell with these gate biases, large enough to open or close a gate for every input."""
    m = cell.U.shape[1]
    blocks = {"input": 0, "forget": 1, "candidate": 2, "output": 3}
    b = cell.b
    for name, logit in logits.items():
        b = b.at[blocks[name] * m : (blocks[name] + 1) * m].set(logit)
    return eqx.tree_at(lambda cell: cell.b, cell, b)


@claim("5.1-gating", title="Gates", kind="definition", of=("layers.LSTM", "layers.GRU"))
def gating(key, rng):
    r"""$z \leftarrow s \odot z$ with $s \in (0, 1)^m$: for $s_i \to 0$ the coordinate is
    forgotten, for $s_i \to 1$ it is kept.
    """
    m = 5
    z = rng.normal(size=m)
    x = jnp.asarray(rng.normal(size=3))
    state = LSTMState(jnp.asarray(0.1 * rng.normal(size=m)), jnp.asarray(z))
    cell = LSTM.init(3, m, key=key)
    step = lambda **logits: np.asarray(set_gates(cell, **logits)(state, x)[0].c)
    b = lambda keep: jnp.zeros(3 * m).at[m : 2 * m].set(keep)
    unit = GRU.init(3, m, key=key)
    gru_state = eqx.tree_at(lambda cell: cell.b, unit, b(FAR))(jnp.asarray(z), x)[0]
    constant_gates = LSTM(
        jnp.zeros((4 * m, m)), jnp.zeros((4 * m, 3)), jnp.asarray(rng.normal(size=4 * m))
    )
    scaled_state = set_gates(constant_gates, input=-FAR)(state, x)[0].c
    return Verdict(
        close("LSTM, logit +40: z", step(forget=FAR, input=-FAR), z),
        close("LSTM, logit −40: 0", step(forget=-FAR, input=-FAR), np.zeros(m)),
        close(
            "LSTM, any logit: s ⊙ z",
            scaled_state,
            expit(np.asarray(constant_gates.b[m : 2 * m])) * z,
            tolerance=1e-14,
        ),
        close("GRU, logit +40: z", gru_state, z),
        refuted(close("LSTM, logit 0: z", step(forget=0.0, input=-FAR), z, tolerance=1e-3)),
    )


@claim(
    "5.1-lstm",
    title="Long short-term memory",
    kind="model",
    of=("layers.LSTM", "layers.LSTMState"),
    cites="Hochreiter & Schmidhuber 1997; Gers, Schmidhuber & Cummins 2000",
)
def long_short(rng):
    r"""With $\tilde x_t = [\zeta_{t-1}, x_t]$:
    $z_t = \sigma(F\tilde x_t) \odot z_{t-1} + \sigma(G\tilde x_t) \odot \tanh(V\tilde x_t)$ and
    $\zeta_t = \sigma(H\tilde x_t) \odot \tanh(U z_t)$. So $|\zeta_t| < 1$ and $|z_t| \le t$;
    $U = I$ gives the standard LSTM.
    """
    T = 8
    m = 4
    n = 3
    matrices = [rng.normal(size=(m, m + n)) for _ in range(4)] + [rng.normal(size=(m, m))]
    xs = rng.normal(size=(T, n))
    c = jnp.asarray(rng.normal(size=(T, m)))
    cells = lambda cell, xs: jax.lax.scan(
        lambda s, x: (cell(s, x)[0],) * 2, cell.start, jnp.asarray(xs)
    )[1]
    hidden, cell_states = lstm(*matrices, xs=xs)
    states = cells(lstm_from(*matrices), xs)
    standard = LSTM(lstm_from(*matrices).U, lstm_from(*matrices).V, jnp.zeros(4 * m))
    value = lambda *matrices: jnp.vdot(c, layers.unroll(lstm_from(*matrices), jnp.asarray(xs))[1])
    slopes = jax.jit(jax.grad(value, argnums=tuple(range(5))))(*map(jnp.asarray, matrices))
    partials = [lambda A, i=i: value(*matrices[:i], A, *matrices[i + 1 :]) for i in range(5)]
    long_states = cells(lstm_from(*[9 * A for A in matrices]), np.tile(xs, (20, 1)))
    z = jnp.asarray(rng.normal(size=m))
    closed_input = set_gates(standard, forget=FAR, input=-FAR)
    final = layers.unroll(closed_input, jnp.asarray(np.tile(xs, (13, 1))), state=LSTMState(z, z))[0]
    return Verdict(
        close(
            "ζ, against the loop",
            layers.unroll(lstm_from(*matrices), jnp.asarray(xs))[1],
            hidden,
            tolerance=1e-13,
        ),
        close("z, against the loop", states.c, cell_states, tolerance=1e-13),
        *(
            close_derivative(f"gradient by {name}", g, jacobian(f, A, step=3e-4))
            for name, g, f, A in zip("FGVHU", slopes, partials, matrices)
        ),
        close(
            "U = I: the standard LSTM",
            layers.unroll(standard, jnp.asarray(xs))[1],
            lstm(*matrices[:4], M=np.eye(m), xs=xs)[0],
            tolerance=1e-13,
        ),
        refuted(
            close(
                "U = I in the loop, but not in the cell",
                lstm(*matrices[:4], M=np.eye(m), xs=xs)[0],
                hidden,
                tolerance=1e-3,
            )
        ),
        close("forget open, input closed: z after 104 steps", final.c, z),
        at_most("large weights: |ζ|", np.abs(long_states.h), 1.0),
        at_most(
            "large weights: |z_t| − t", np.abs(long_states.c) - np.arange(1, 161)[:, None], 0.0
        ),
    )


@erratum(
    "5.1-lstm",
    title="The names of input gate and candidate are exchanged",
    printed=r"\tanh(V\tilde x_t) \text{ the input gate}, \quad \sigma(G\tilde x_t) \text{ the "
    r"gate gate}",
    corrected=r"\sigma(G\tilde x_t) \text{ the input gate}, \quad \tanh(V\tilde x_t) \text{ the "
    r"candidate}",
    of=("layers.LSTM",),
    slip=True,
)
def input_gate(key, rng):
    r"""Two names are exchanged; the description of what they compute is right. A closed input gate
    admits no input: $z_t = \sigma(F\tilde x_t) \odot z_{t-1}$. This holds for
    $\sigma(G\tilde x_t)$; a $\tanh$ is not in $(0, 1)$, and at $-\infty$ it adds $-1$."""
    m = 4
    cell = LSTM.init(3, m, key=key)
    x = jnp.asarray(rng.normal(size=3))
    state = LSTMState(jnp.asarray(0.3 * rng.normal(size=m)), jnp.asarray(rng.normal(size=m)))
    forget = expit(np.asarray(cell.V @ x + cell.U @ state.h + cell.b)[m : 2 * m])
    cell_after = lambda **logits: set_gates(cell, **logits)(state, x)[0].c
    settings = {"expected": forget * np.asarray(state.c), "tolerance": 1e-12}
    return Verdict(
        close("σ(Gx̃) closed: only the kept state remains", cell_after(input=-FAR), **settings),
        printed=[
            close(
                "tanh(Vx̃) closed: only the kept state remains",
                cell_after(candidate=-FAR),
                **settings,
            )
        ],
    )


def frozen_gates(cell, xs):
    """The gate logits along a sequence, and a cell that reads them as inputs, so that its gates do
    not depend on its state.
    """
    m = cell.U.shape[1]
    before = jnp.concatenate([jnp.zeros((1, m)), layers.unroll(cell, xs)[1][:-1]])
    logits = xs @ cell.V.T + before @ cell.U.T + cell.b[None]
    return logits, LSTM(jnp.zeros((4 * m, m)), jnp.eye(4 * m), jnp.zeros(4 * m))


@jax.jit
def cell_path(cell, xs):
    r"""$\partial z_T / \partial z_0$ from a state of 0, including all paths through the gates."""
    end = lambda z: layers.unroll(cell, xs, state=LSTMState(jnp.zeros_like(z), z))[0].c
    return jax.jacfwd(end)(cell.start.c)


@claim(
    "5.1-lstm-shortcut",
    title="The gradient along the cell state of an LSTM",
    kind="identity",
    of=("layers.LSTM",),
    cites="Hochreiter & Schmidhuber 1997",
)
def short_cut(key):
    r"""With the gates held fixed
    $\frac{\partial z_T}{\partial z_t} = \prod_{j=t+1}^T \mathrm{diag}\, \sigma(F\tilde x_j)$:
    forget gates near 1 preserve a gradient over many steps, forget gates of $\frac12$ do not.
    """
    m, n, T = 4, 3, 6
    cell = LSTM.init(n, m, forget_bias=0.5, key=key)
    xs = jr.normal(key, (T, n))
    logits, fixed = frozen_gates(cell, xs)
    gates = expit(np.asarray(logits)[:, m : 2 * m])
    path = lambda cell, xs: jacobian(
        lambda z: layers.unroll(cell, xs, state=LSTMState(jnp.zeros(m), z))[0].c, np.zeros(m)
    )
    zero_cell = small_lstm(key, m, n, scale=0.0)
    open_gates = np.diag(cell_path(set_gates(zero_cell, forget=10.0), jnp.zeros((100, n))))
    half_gates = np.diag(cell_path(zero_cell, jnp.zeros((50, n))))
    ages = np.arange(1, 101)
    return Verdict(
        close(
            "hidden states with fixed gates",
            layers.unroll(fixed, logits)[1],
            layers.unroll(cell, xs)[1],
            tolerance=1e-14,
        ),
        close_derivative(
            "∂z_6/∂z_0, gates fixed", path(fixed, logits), np.diag(gates.prod(axis=0))
        ),
        refuted(
            close(
                "∂z_6/∂z_0, gates not fixed",
                path(cell, xs),
                np.diag(gates.prod(axis=0)),
                tolerance=1e-3,
            )
        ),
        at_least("forget gates σ(10): after 100 steps", open_gates, 0.99),
        close("forget gates ½: after 50 steps", half_gates, 0.5**50, relative=True),
        figure=Panel(
            "steps back",
            "gradient along the cell",
            log="y",
            lines={f"forget logit {b}": (ages, expit(b) ** ages) for b in (0, 1, 3, 5)},
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
    r"""The derivative is a product of forget gates, which are below 1: with small weights each is
    near $\frac12$, and the gradient vanishes within 60 steps. It need not vanish if they are near
    1.
    """
    xs = jr.normal(key, (60, 4))
    norm = lambda forget: np.linalg.norm(cell_path(small_lstm(key, forget=forget), xs), 2)
    return Verdict(
        at_least("forget bias 5: ‖∂z_60/∂z_0‖", norm(5.0), 0.3),
        printed=[at_least("forget bias 0: ‖∂z_60/∂z_0‖", norm(0.0), 0.3)],
    )


@claim(
    "5.1-gru",
    title="The gated recurrent unit",
    kind="model",
    of=("layers.GRU",),
    cites="Cho et al. 2014",
)
def gated(key, rng):
    r"""$s = \sigma(G[z_{t-1}, x_t])$, $\zeta_t = \sigma(H[z_{t-1}, x_t])$,
    $\tilde z_t = \tanh(V[\zeta_t \odot z_{t-1}, x_t])$ and
    $z_t = s \odot z_{t-1} + (1 - s) \odot \tilde z_t$: the new state lies between the old state and
    the candidate, so $|z_t| < 1$. Here $s$ weights the old state; some libraries use $1 - s$.
    """
    T = 8
    m = 4
    n = 3
    matrices = [rng.normal(size=(m, m + n)) for _ in range(3)]
    xs = rng.normal(size=(T, n))
    c = jnp.asarray(rng.normal(size=(T, m)))
    z, candidates = gru(*matrices, xs=xs)
    states = np.asarray(layers.unroll(gru_from(*matrices), jnp.asarray(xs))[1])
    value = lambda *matrices: jnp.vdot(c, layers.unroll(gru_from(*matrices), jnp.asarray(xs))[1])
    slopes = jax.jit(jax.grad(value, argnums=(0, 1, 2)))(*map(jnp.asarray, matrices))
    partials = [lambda A, i=i: value(*matrices[:i], A, *matrices[i + 1 :]) for i in range(3)]
    before = np.concatenate([np.zeros((1, m)), states[:-1]])
    low = np.minimum(before, candidates)
    high = np.maximum(before, candidates)
    long_states = layers.unroll(
        gru_from(*[5 * A for A in matrices]), jnp.asarray(np.tile(xs, (20, 1)))
    )[1]
    copying = GRU.init(n, m, update_bias=FAR, key=key)
    start = jnp.asarray(rng.normal(size=m))
    swapped = gru_from(-matrices[0], *matrices[1:])
    return Verdict(
        close("against the loop", states, z[1:], tolerance=1e-13),
        *(
            close_derivative(f"gradient by {name}", g, jacobian(f, A, step=3e-4))
            for name, g, f, A in zip("GHV", slopes, partials, matrices)
        ),
        at_most("z_t minus the larger of old state and candidate", states - high, 0.0, slack=1e-14),
        at_least(
            "z_t minus the smaller of old state and candidate", states - low, 0.0, slack=1e-14
        ),
        at_most("large weights: |z_t|", np.abs(long_states), 1.0),
        close(
            "s → 1 copies the state, 100 steps",
            layers.unroll(copying, jnp.asarray(np.tile(xs, (13, 1))), state=start)[0],
            start,
        ),
        refuted(
            close(
                "1 − s instead of s",
                layers.unroll(swapped, jnp.asarray(xs))[1],
                z[1:],
                tolerance=1e-3,
            )
        ),
    )


@claim(
    "5.1-param-count",
    title="The numbers of parameters of GRU and LSTM",
    kind="identity",
    of=("layers.GRU", "layers.LSTM"),
)
def counts(key):
    r"""A GRU has the matrices $G, H, V$ with $3m(m + n)$ entries; the LSTM of the notes $F, G, V,
    H$ and $U$ with $4m(m + n) + m^2$; and biases.
    """
    checks = []
    for n, m in ((3, 5), (7, 2), (16, 16)):
        gru_unit = GRU.init(n, m, key=key)
        lstm_with_U = LSTM.init(n, m, output_matrix=True, key=key)
        lstm_standard = LSTM.init(n, m, key=key)
        matrices = lambda cell: tree.size(cell) - tree.size(cell.b)
        checks += [
            equal(f"GRU, n = {n}, m = {m}", matrices(gru_unit), 3 * m * (m + n)),
            equal(f"LSTM, n = {n}, m = {m}", matrices(lstm_with_U), 4 * m * (m + n) + m * m),
            equal(f"LSTM with U = I, n = {n}, m = {m}", matrices(lstm_standard), 4 * m * (m + n)),
            equal(
                f"biases, n = {n}, m = {m}", [gru_unit.b.size, lstm_with_U.b.size], [3 * m, 4 * m]
            ),
        ]
    return Verdict(*checks)
