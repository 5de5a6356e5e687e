"""§5 and lecture 10, A.16 and A.18: what networks learn over long lags, with gates and with
clipping.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from scipy.signal import lfilter

from ... import data, layers, train, tree
from ...core import predict, run
from ...layers import GRU, LSTM, Elman, Kept
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_least, at_most, close, equal, falls, refuted
from ..engine.claim import Verdict, claim
from .by_loop import FD, gru, lstm, slopes
from .gates import cell_path, forced, gru_of, lstm_of, small_lstm
from .vanishing import norms, of_radius

mean_square = train.average(lambda prediction, y: jnp.square(prediction[0] - y))


def ending(states):
    """The last state of all."""
    return states[-1]


def reader(cell, m, *, key):
    """A cell along the sequence, and a linear map of its last state to one number; in single
    precision.
    """
    net = layers.Chain(layers.Recurrent(cell), ending, layers.Linear.init(m, 1, key=key))
    return jax.tree.map(lambda a: a.astype(jnp.float32), net)


def trained(objective, optimiser, net, task, *, steps, batch, key):
    """The network after these many steps on fresh data, and the losses on the way."""
    batches = jax.tree.map(
        lambda a: a.reshape(steps, batch, *a.shape[1:]), task(key, steps * batch)
    )
    state, (_, info) = run(train.descend(objective, optimiser), net, batches, key=key)
    return state.model, info.loss


def first_bit(lag):
    """Sequences of random signs, and whether the first of them, `lag` times ago, was positive."""

    def draw(key, count):
        xs = jr.rademacher(key, (count, lag + 1, 1), dtype=jnp.float32)
        return xs, (xs[:, 0, 0] > 0).astype(jnp.int32)

    return draw


def short(key, n, m, *, scale=0.9):
    """Elman's cell with σ₁(U) = 0.9."""
    cell = Elman.init(n, m, recurrent_initialiser=layers.gaussian(1.0), key=key)
    return eqx.tree_at(lambda cell: cell.U, cell, scale * cell.U / jnp.linalg.norm(cell.U, 2))


@claim(
    "5.0-long-range",
    title="Long lags",
    kind="experiment",
    of=("layers.Elman", "layers.LSTM", "layers.GRU"),
    cites="Hochreiter & Schmidhuber 1997",
)
def long_lags(key):
    r"""Over a long lag the gradient of an Elman network with $\sigma_1(U) < 1$ is gone, that of a
    gated one is not: so the first of 31 random bits is recalled after training by an LSTM and by a
    GRU, and not by Elman's network.
    """
    m = 16
    xs = jr.normal(key, (99, 4))
    small = GRU(
        0.1 * jr.normal(key, (3 * m, m)),
        0.1 * jr.normal(key, (3 * m, 4)),
        GRU.init(4, m, keep=5.0, key=key).b,
    )
    start = {
        "Elman": norms(short(key, 4, m), xs)[-1],
        "GRU": norms(small, xs)[-1],
        "LSTM": np.linalg.norm(cell_path(small_lstm(key, forget=5.0), xs), 2),
    }
    make = {
        "Elman": lambda key: short(key, 1, m),
        "GRU": lambda key: GRU.init(1, m, keep=3.0, key=key),
        "LSTM": lambda key: LSTM.init(1, m, forget=3.0, key=key),
    }

    def accuracy(key, name):
        key_cell, key_read, key_data, key_test = jr.split(key, 4)
        net = reader(make[name](key_cell), m, key=key_read)
        net, losses = trained(
            train.binary_cross_entropy,
            optax.adam(0.01),
            net,
            first_bit(30),
            steps=250,
            batch=32,
            key=key_data,
        )
        return 1 - train.binary_error_rate(net, first_bit(30)(key_test, 500)), losses

    found = {
        name: [jax.jit(accuracy, static_argnums=1)(k, name) for k in jr.split(key, 3)]
        for name in make
    }
    median = {name: float(np.median([score for score, _ in runs])) for name, runs in found.items()}
    return Verdict(
        at_most("at the start, Elman's: ‖∂z_100/∂z_1‖", start["Elman"], 0.9**99),
        at_least("at the start, LSTM: ‖∂z_100/∂z_1‖", start["LSTM"], 0.3),
        at_least("at the start, GRU: ‖∂z_100/∂z_1‖", start["GRU"], 0.3),
        at_least("LSTM: accuracy, median of 3", median["LSTM"], 0.95),
        at_least("GRU: accuracy, median of 3", median["GRU"], 0.95),
        at_most("Elman's: accuracy, median of 3", median["Elman"], 0.7),
        figure=Chart(
            Panel(
                "step",
                "loss",
                lines={
                    name: (np.arange(250), np.median([way for _, way in runs], axis=0))
                    for name, runs in found.items()
                },
            )
        ),
    )


def sums(key, count):
    """Thirty numbers of [0, 1] of which two are marked, and the sum of the two; in single
    precision.
    """
    return jax.tree.map(lambda a: a.astype(jnp.float32), data.adding(count, length=30, key=key))


@claim(
    "L10-A18-lstm-gru",
    title="Gated cells",
    kind="experiment",
    of=("layers.LSTM", "layers.GRU", "data.adding"),
    cites="Hochreiter & Schmidhuber 1997; Cho et al. 2014",
)
def gated_cells(key):
    r"""The gated cells LSTM and GRU keep a memory, and with it the gradient: with the forget gate
    at 1 and the input gate at 0 for ever; at the start, with an offset of 1, a thousand times as
    much of it as a plain network after 50 steps. So an LSTM learns to add two marked numbers of 30.
    """
    rng = chance(key)
    m = 4
    n = 3
    five = [rng.normal(size=(m, m + n)) for _ in range(4)] + [np.eye(m)]
    three = rng.normal(size=(3, m, m + n))
    xs = rng.normal(size=(8, n))
    c = rng.normal(size=(8, m))
    pairs = [(lstm_of(*five), lstm(*five, xs=xs)[0]), (gru_of(*three), gru(*three, xs=xs)[0][1:])]
    checks = []
    for name, (cell, expected) in zip(("LSTM", "GRU"), pairs):
        gradient, numeric = slopes(cell, xs, c)
        checks += [
            close(
                f"{name}: against the loop",
                layers.unroll(cell, jnp.asarray(xs))[1],
                expected,
                tolerance=1e-13,
            ),
            close(f"{name}: all {len(gradient)} derivatives", gradient, numeric, **FD),
        ]
    z = jnp.asarray(rng.normal(size=m))
    keeping = forced(LSTM.init(n, m, key=key), forget=1e3, input=-1e3)
    after = layers.unroll(keeping, jr.normal(key, (100, n)), state=Kept(z, z))[0]
    inputs = jr.normal(key, (50, 4))
    ratios = []
    for k in jr.split(key, 11):
        plain = Elman(
            jnp.asarray(of_radius(chance(k), 16, 0.5)), jr.normal(k, (16, 4)) / 2, jnp.zeros(16)
        )
        kept = np.linalg.norm(cell_path(LSTM.init(4, 16, forget=1.0, key=k), inputs), 2)
        ratios.append(kept / norms(plain, inputs)[-1])
    key_cell, key_read, key_data, key_test = jr.split(key, 4)
    train_it = jax.jit(
        lambda net: trained(
            mean_square, optax.adam(0.01), net, sums, steps=700, batch=20, key=key_data
        )
    )
    net, losses = train_it(reader(LSTM.init(2, 16, key=key_cell), 16, key=key_read))
    test = sums(key_test, 1000)
    smooth = np.asarray(losses).reshape(70, 10).mean(axis=1)
    return Verdict(
        *checks,
        equal("forget 1, input 0: the cell after 100 steps", after.cell, z),
        at_least("LSTM over plain, ρ = ½, after 50 steps: median of 11", np.median(ratios), 1e3),
        at_most("adding: mean squared error of the LSTM", mean_square(net, test), 0.08),
        close("adding: of the mean alone", jnp.var(test[1]), 1 / 6, tolerance=0.03),
        figure=Chart(
            Panel(
                "step",
                "mean squared error",
                lines={"LSTM": (10 * np.arange(70), smooth)},
                bounds={"constant": ([0, 700], [1 / 6, 1 / 6])},
                log="y",
            )
        ),
    )


def fading(key, count, times=20):
    r"""Noise, and its fading sum $\sum_t 0.8^{T-t} x_t$."""
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
    length; below $\tau$ it does nothing. A network whose gradient explodes, $\rho(U) = 1.3$, learns
    with it, and at the same rate does not without.
    """
    rng = chance(key)
    tau = 1.0
    m = 6
    steps = 800
    rate = 0.02
    clip = optax.clip_by_global_norm(tau)
    move = train.descend(
        lambda theta, g, key=None: tree.dot(theta, g), optax.chain(clip, optax.sgd(1.0))
    )
    moved = lambda g: (
        -np.asarray(move.step(move.init(jnp.zeros(5)), jnp.asarray(g), key=key)[0].model)
    )
    g = rng.normal(size=5)
    unit = g / np.linalg.norm(g)
    long = 7 * g / np.linalg.norm(g)
    small = 0.3 * g / np.linalg.norm(g)

    def start(key):
        U = of_radius(chance(key), m, 1.3)
        V = jr.normal(key, (m, 1)) / 2
        cell = Elman(jnp.asarray(U), V, jnp.zeros(m), layers.identity)
        return layers.Chain(layers.Recurrent(cell), ending, layers.Linear.init(m, 1, key=key))

    @jax.jit
    @jax.vmap
    def learn(net, key):
        ways = optax.sgd(rate), optax.chain(clip, optax.sgd(rate))
        ends = [
            trained(mean_square, way, net, fading, steps=steps, batch=20, key=key) for way in ways
        ]
        return [(mean_square(end, fading(jr.fold_in(key, 1), 200)), losses) for end, losses in ends]

    keys = jr.split(key, 5)
    nets = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(start, keys))
    (free, _), (clipped, losses) = learn(nets, keys)
    target = float(np.sum(0.64 ** np.arange(20)))
    return Verdict(
        close("a gradient of length 7: the step", moved(long), tau * unit, tolerance=1e-12),
        close("a gradient of length 0.3: the step", moved(small), small, tolerance=1e-15),
        refuted(close("a gradient of length 7, not clipped", moved(long), long, tolerance=1e-3)),
        at_most("with clipping: error over variance, 5 starts", np.asarray(clipped) / target, 0.1),
        equal("without: starts that learn, of 5", np.sum(np.asarray(free) / target < 0.1), 0),
        figure=Chart(
            Panel(
                "step",
                "mean squared error, clipped",
                log="y",
                lines={
                    f"start {i}": (np.arange(steps), way)
                    for i, way in enumerate(np.asarray(losses))
                },
            )
        ),
    )


def hidden_system(key):
    """A stable system of two states: what it puts out for one sequence of numbers."""
    rng = chance(key)
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
    title="Networks imitate systems",
    kind="experiment",
    of=("layers.Elman", "layers.Recurrent"),
    cites="Schäfer & Zimmermann 2006",
)
def imitation(key):
    r"""Recurrent networks approximate causal systems that are the same at all times: one of two
    hidden states is imitated the better the wider the network. A linear one of as many states is
    imitated exactly.
    """
    steps = 1500
    widths = (2, 8, 32)
    times = 20
    key_system, key_x, key_test, key_net = jr.split(key, 4)
    system = hidden_system(key_system)
    xs = jr.normal(key_x, (100, times, 1))
    test = jr.normal(key_test, (100, times, 1))
    ys = system(xs)
    truth = system(test)
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
        return jnp.sqrt(jnp.mean((predict(net, test) - truth) ** 2) / jnp.var(truth)), predict(
            net, test
        )[0, :, 0]

    found = {m: jax.jit(error, static_argnums=1)(key_net, m) for m in widths}
    linear = Elman(
        jnp.array([[0.6, -0.3], [1.0, 0.0]]),
        jnp.array([[1.0], [0.0]]),
        jnp.zeros(2),
        layers.identity,
    )
    filtered = lfilter([1.0], [1.0, -0.6, 0.3], np.asarray(test[0, :, 0]))
    return Verdict(
        falls(
            "test error over deviation, widths 2, 8 and 32", [float(e) for e, _ in found.values()]
        ),
        at_most("width 32", float(found[32][0]), 0.1),
        close(
            "a linear filter of two states",
            layers.unroll(linear, test[0])[1][:, 0],
            filtered,
            tolerance=1e-12,
        ),
        figure=Chart(
            Panel(
                "t",
                "output",
                points={"system": (np.arange(times), truth[0, :, 0])},
                lines={f"width {m}": (np.arange(times), way) for m, (_, way) in found.items()},
            )
        ),
    )
