"""§5 and lecture 10, A.16 and A.18: long lags, gates and gradient clipping."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from scipy.signal import lfilter

from ... import data, layers, train, tree
from ...core import predict, run
from ...layers import GRU, LSTM, Elman, LSTMState
from ...plot import Panel
from ..engine.check import at_least, at_most, close, close_derivative, decreasing, equal, refuted
from ..engine.claim import Verdict, claim
from ..engine.numpy_rng import numpy_rng
from .by_loop import gru, lstm, weight_gradients
from .gates import cell_path, gru_from, lstm_from, set_gates, small_lstm
from .vanishing import jacobian_norms, with_spectral_radius

mean_square = train.batch_mean(lambda prediction, y: jnp.square(prediction[0] - y))


def last_state(states):
    """The last state of a sequence."""
    return states[-1]


def sequence_regressor(cell, m, *, key):
    """A recurrent network and a linear map of its last state to a number, in single precision."""
    net = layers.Chain(layers.Recurrent(cell), last_state, layers.Linear.init(m, 1, key=key))
    return jax.tree.map(lambda a: a.astype(jnp.float32), net)


def train_on(objective, optimiser, net, task, *, steps, batch, key):
    """The network after `steps` steps on new data, and the losses."""
    batches = jax.tree.map(
        lambda a: a.reshape(steps, batch, *a.shape[1:]), task(key, steps * batch)
    )
    state, (_, info) = run(train.descend(objective, optimiser), net, batches, key=key)
    return state.model, info.loss


def first_bit(lag):
    """Sequences of random signs, and whether the first (of `lag` + 1) is positive."""

    def draw(key, count):
        xs = jr.rademacher(key, (count, lag + 1, 1), dtype=jnp.float32)
        return xs, (xs[:, 0, 0] > 0).astype(jnp.int32)

    return draw


def contracting_elman(key, n, m, *, scale=0.9):
    """Elman's cell with σ₁(U) = 0.9."""
    cell = Elman.init(n, m, recurrent_initialiser=layers.gaussian(1.0), key=key)
    return eqx.tree_at(lambda cell: cell.U, cell, scale * cell.U / jnp.linalg.norm(cell.U, 2))


@claim(
    "5.0-long-range",
    title="Recall over long lags",
    kind="experiment",
    of=("layers.Elman", "layers.LSTM", "layers.GRU"),
    cites="Hochreiter & Schmidhuber 1997",
)
def long_lags(key):
    r"""Over a long lag the gradient of an Elman network with $\sigma_1(U) < 1$ vanishes, that of a
    gated network does not. After training an LSTM and a GRU recall the first of 31 random bits;
    Elman's network does not.
    """
    m = 16
    xs = jr.normal(key, (99, 4))
    small = GRU(
        0.1 * jr.normal(key, (3 * m, m)),
        0.1 * jr.normal(key, (3 * m, 4)),
        GRU.init(4, m, update_bias=5.0, key=key).b,
    )
    gradient_norms = {
        "Elman": jacobian_norms(contracting_elman(key, 4, m), xs)[-1],
        "GRU": jacobian_norms(small, xs)[-1],
        "LSTM": np.linalg.norm(cell_path(small_lstm(key, forget=5.0), xs), 2),
    }
    make_cell = {
        "Elman": lambda key: contracting_elman(key, 1, m),
        "GRU": lambda key: GRU.init(1, m, update_bias=3.0, key=key),
        "LSTM": lambda key: LSTM.init(1, m, forget_bias=3.0, key=key),
    }

    def accuracy(key, name):
        key_cell, key_read, key_data, key_test = jr.split(key, 4)
        net = sequence_regressor(make_cell[name](key_cell), m, key=key_read)
        net, losses = train_on(
            train.binary_cross_entropy,
            optax.adam(0.01),
            net,
            first_bit(30),
            steps=250,
            batch=32,
            key=key_data,
        )
        return 1 - train.binary_error_rate(net, first_bit(30)(key_test, 500)), losses

    results = {
        name: [jax.jit(accuracy, static_argnums=1)(k, name) for k in jr.split(key, 3)]
        for name in make_cell
    }
    median = {
        name: float(np.median([score for score, _ in runs])) for name, runs in results.items()
    }
    return Verdict(
        at_most(
            "at initialisation, Elman's network: ‖∂z_100/∂z_1‖", gradient_norms["Elman"], 0.9**99
        ),
        at_least("at initialisation, LSTM: ‖∂z_100/∂z_1‖", gradient_norms["LSTM"], 0.3),
        at_least("at initialisation, GRU: ‖∂z_100/∂z_1‖", gradient_norms["GRU"], 0.3),
        at_least("LSTM: accuracy, median of 3", median["LSTM"], 0.95),
        at_least("GRU: accuracy, median of 3", median["GRU"], 0.95),
        at_most("Elman's network: accuracy, median of 3", median["Elman"], 0.7),
        figure=Panel(
            "step",
            "loss",
            lines={
                name: (np.arange(250), np.median([way for _, way in runs], axis=0))
                for name, runs in results.items()
            },
        ),
    )


def adding_task(key, count):
    """Thirty numbers in [0, 1], two of them marked, and the sum of the two, in single precision."""
    return jax.tree.map(
        lambda a: a.astype(jnp.float32), data.adding_problem(count, length=30, key=key)
    )


@claim(
    "L10-A18-lstm-gru",
    title="LSTM and GRU preserve memory and gradient",
    kind="experiment",
    of=("layers.LSTM", "layers.GRU", "data.adding_problem"),
    cites="Hochreiter & Schmidhuber 1997; Cho et al. 2014",
)
def gated_cells(key):
    r"""The gated cells LSTM and GRU keep a memory, and with it the gradient. With the forget gate
    at 1 and the input gate at 0 the memory is kept forever; at initialisation with a forget bias of
    1, after 50 steps, the gradient is a thousand times that of a plain network. An LSTM learns to
    add two marked numbers of 30.
    """
    rng = numpy_rng(key)
    m = 4
    n = 3
    lstm_matrices = [rng.normal(size=(m, m + n)) for _ in range(4)] + [np.eye(m)]
    gru_matrices = rng.normal(size=(3, m, m + n))
    xs = rng.normal(size=(8, n))
    c = rng.normal(size=(8, m))
    pairs = [
        (lstm_from(*lstm_matrices), lstm(*lstm_matrices, xs=xs)[0]),
        (gru_from(*gru_matrices), gru(*gru_matrices, xs=xs)[0][1:]),
    ]
    checks = []
    for name, (cell, expected) in zip(("LSTM", "GRU"), pairs):
        gradient, numeric = weight_gradients(cell, xs, c)
        checks += [
            close(
                f"{name}: against the loop",
                layers.unroll(cell, jnp.asarray(xs))[1],
                expected,
                tolerance=1e-13,
            ),
            close_derivative(f"{name}: all {len(gradient)} derivatives", gradient, numeric),
        ]
    z = jnp.asarray(rng.normal(size=m))
    frozen = set_gates(LSTM.init(n, m, key=key), forget=1e3, input=-1e3)
    final = layers.unroll(frozen, jr.normal(key, (100, n)), state=LSTMState(z, z))[0]
    inputs = jr.normal(key, (50, 4))
    ratios = []
    for k in jr.split(key, 11):
        elman_cell = Elman(
            jnp.asarray(with_spectral_radius(numpy_rng(k), 16, 0.5)),
            jr.normal(k, (16, 4)) / 2,
            jnp.zeros(16),
        )
        lstm_norm = np.linalg.norm(cell_path(LSTM.init(4, 16, forget_bias=1.0, key=k), inputs), 2)
        ratios.append(lstm_norm / jacobian_norms(elman_cell, inputs)[-1])
    key_cell, key_read, key_data, key_test = jr.split(key, 4)
    fit = jax.jit(
        lambda net: train_on(
            mean_square, optax.adam(0.01), net, adding_task, steps=700, batch=20, key=key_data
        )
    )
    net, losses = fit(sequence_regressor(LSTM.init(2, 16, key=key_cell), 16, key=key_read))
    test = adding_task(key_test, 1000)
    smooth = np.asarray(losses).reshape(70, 10).mean(axis=1)
    return Verdict(
        *checks,
        equal("forget 1, input 0: the cell after 100 steps", final.c, z),
        at_least(
            "gradient of LSTM over plain network, ρ = ½, after 50 steps: median of 11",
            np.median(ratios),
            1e3,
        ),
        at_most("adding: mean squared error of the LSTM", mean_square(net, test), 0.08),
        close(
            "adding: mean squared error of the constant mean",
            jnp.var(test[1]),
            1 / 6,
            tolerance=0.03,
        ),
        figure=Panel(
            "step",
            "mean squared error",
            lines={"LSTM": (10 * np.arange(70), smooth)},
            bounds={"constant": ([0, 700], [1 / 6, 1 / 6])},
            log="y",
        ),
    )


def decaying_sum(key, count, times=20):
    r"""Noise, and its exponentially weighted sum $\sum_t 0.8^{T-t} x_t$."""
    xs = jr.normal(key, (count, times, 1))
    return xs, xs[:, :, 0] @ 0.8 ** jnp.arange(times)[::-1]


@claim(
    "L10-A18-clip",
    title="Gradient clipping",
    kind="experiment",
    of=("train.descend", "layers.Elman"),
    cites="Pascanu, Mikolov & Bengio 2013",
)
def clipping(key):
    r"""$g \leftarrow g \min(1, \tau / \|g\|)$ keeps the direction of a gradient and bounds its
    norm; below $\tau$ it is the identity. A network whose gradient explodes, $\rho(U) = 1.3$,
    learns with clipping, and does not learn without it at the same learning rate.
    """
    rng = numpy_rng(key)
    tau = 1.0
    m = 6
    steps = 800
    rate = 0.02
    clip = optax.clip_by_global_norm(tau)
    iteration = train.descend(
        lambda theta, g, key=None: tree.dot(theta, g), optax.chain(clip, optax.sgd(1.0))
    )
    clipped_step = lambda g: (
        -np.asarray(iteration.step(iteration.init(jnp.zeros(5)), jnp.asarray(g), key=key)[0].model)
    )
    g = rng.normal(size=5)
    unit = g / np.linalg.norm(g)
    long_gradient = 7 * g / np.linalg.norm(g)
    short_gradient = 0.3 * g / np.linalg.norm(g)

    def make_net(key):
        U = with_spectral_radius(numpy_rng(key), m, 1.3)
        V = jr.normal(key, (m, 1)) / 2
        cell = Elman(jnp.asarray(U), V, jnp.zeros(m), layers.identity)
        return layers.Chain(layers.Recurrent(cell), last_state, layers.Linear.init(m, 1, key=key))

    @jax.jit
    @jax.vmap
    def train_both(net, key):
        optimisers = optax.sgd(rate), optax.chain(clip, optax.sgd(rate))
        results = [
            train_on(mean_square, way, net, decaying_sum, steps=steps, batch=20, key=key)
            for way in optimisers
        ]
        return [
            (mean_square(end, decaying_sum(jr.fold_in(key, 1), 200)), losses)
            for end, losses in results
        ]

    keys = jr.split(key, 5)
    nets = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(make_net, keys))
    (unclipped_error, _), (clipped_error, losses) = train_both(nets, keys)
    target = float(np.sum(0.64 ** np.arange(20)))
    return Verdict(
        close("a gradient of norm 7: the step", clipped_step(long_gradient), tau * unit),
        close(
            "a gradient of norm 0.3: the step",
            clipped_step(short_gradient),
            short_gradient,
            tolerance=1e-15,
        ),
        refuted(
            close(
                "a gradient of norm 7, not clipped",
                clipped_step(long_gradient),
                long_gradient,
                tolerance=1e-3,
            )
        ),
        at_most(
            "with clipping: error over variance, 5 initialisations",
            np.asarray(clipped_error) / target,
            0.1,
        ),
        equal(
            "without clipping: initialisations that learn, of 5",
            np.sum(np.asarray(unclipped_error) / target < 0.1),
            0,
        ),
        figure=Panel(
            "step",
            "mean squared error with clipping",
            log="y",
            lines={
                f"start {i}": (np.arange(steps), way) for i, way in enumerate(np.asarray(losses))
            },
        ),
    )


def hidden_system(key):
    """A stable random system with two states, as a function from input sequences to outputs."""
    rng = numpy_rng(key)
    A = rng.normal(size=(2, 2))
    B = rng.normal(size=(2, 1))
    c = jnp.asarray(rng.normal(size=2))
    A = jnp.asarray(0.8 * A / np.linalg.norm(A, 2))
    B = jnp.asarray(B / np.linalg.norm(B))

    def step(h, x):
        h = jnp.tanh(A @ h + B @ x)
        return h, jnp.tanh(2 * h[0]) * h[1] + c @ h

    return jax.vmap(lambda xs: jax.lax.scan(step, jnp.zeros(2), xs)[1][:, None])


@claim(
    "L10-A16-rnn-universal",
    title="Recurrent networks approximate dynamical systems",
    kind="experiment",
    of=("layers.Elman", "layers.Recurrent"),
    cites="Schäfer & Zimmermann 2006",
)
def imitation(key):
    r"""Recurrent networks approximate causal time-invariant systems: the error for a system with
    two hidden states decreases with the width. A linear system is represented exactly with as many
    units as states.
    """
    steps = 1500
    widths = (2, 8, 32)
    times = 20
    key_system, key_x, key_test, key_net = jr.split(key, 4)
    system = hidden_system(key_system)
    xs = jr.normal(key_x, (100, times, 1))
    test = jr.normal(key_test, (100, times, 1))
    ys = system(xs)
    expected = system(test)
    rows = jr.randint(key_net, (steps, 25), 0, 100)
    descent = train.descend(
        train.squared_error, optax.adam(optax.cosine_decay_schedule(0.01, steps))
    )

    def error(key, m):
        key_cell, key_read = jr.split(key)
        cell = Elman.init(
            1, m, recurrent_initialiser=layers.gaussian(0.5 / np.sqrt(m)), key=key_cell
        )
        net = layers.Chain(layers.Recurrent(cell), jax.vmap(layers.Linear.init(m, 1, key=key_read)))
        net = run(descent, net, (xs[rows], ys[rows]), key=key)[0].model
        return jnp.sqrt(
            jnp.mean((predict(net, test) - expected) ** 2) / jnp.var(expected)
        ), predict(net, test)[0, :, 0]

    results = {m: jax.jit(error, static_argnums=1)(key_net, m) for m in widths}
    linear = Elman(
        jnp.array([[0.6, -0.3], [1.0, 0.0]]),
        jnp.array([[1.0], [0.0]]),
        jnp.zeros(2),
        layers.identity,
    )
    filtered = lfilter([1.0], [1.0, -0.6, 0.3], np.asarray(test[0, :, 0]))
    return Verdict(
        decreasing(
            "test error over standard deviation, widths 2, 8 and 32",
            [float(e) for e, _ in results.values()],
        ),
        at_most("test error over standard deviation, width 32", float(results[32][0]), 0.1),
        close("a linear filter of two states", layers.unroll(linear, test[0])[1][:, 0], filtered),
        figure=Panel(
            "t",
            "output",
            points={"system": (np.arange(times), expected[0, :, 0])},
            lines={f"width {m}": (np.arange(times), way) for m, (_, way) in results.items()},
        ),
    )
