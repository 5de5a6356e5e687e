"""Lecture 10, A.24 and A.25: expressive power of transformers, scaling laws, and attention weights
as explanations.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float

from ... import layers, models, train
from ...core import predict, run
from ...layers import Attention, LearnedPositions, Linear
from ...plot import Chart, Heatmap, Panel
from ..engine.check import at_least, at_most, close, decreasing, refuted, within
from ..engine.claim import Verdict, claim
from .by_loop import single_precision


def trained(
    objective: Any, net: Any, batch: Any, *, learning_rate: float, steps: int, key: Any
) -> tuple[Any, Any]:
    """The model after `steps` steps of Adam on one batch, and its losses."""
    descent = train.descend(
        objective, optax.adam(optax.cosine_decay_schedule(learning_rate, steps))
    )
    batches = jax.tree.map(lambda a: jnp.broadcast_to(a, (steps, *a.shape)), batch)
    state, (_, info) = run(descent, net, batches, key=key)
    return state.model, info.loss


STEPS = 500


class SequenceMap(eqx.Module):
    """A sequence-to-sequence map: input map, optional positions, two blocks, output map."""

    enter: Linear
    places: LearnedPositions | None
    trunk: models.Trunk
    leave: Linear

    @classmethod
    def init(cls, n: int, d: int, *, placed: bool, length: int, key: Any) -> "SequenceMap":
        """For vectors of `n` numbers, with width `d`."""
        key_in, key_places, key_trunk, key_out = jr.split(key, 4)
        places = (
            LearnedPositions.init(length, d, initialiser=layers.gaussian(1.0), key=key_places)
            if placed
            else None
        )
        trunk = models.Trunk.init(2, d, 2, 4 * d, key=key_trunk)
        return cls(Linear.init(n, d, key=key_in), places, trunk, Linear.init(d, n, key=key_out))

    def __call__(self, x: Float[Array, "t n"]) -> Float[Array, "t n"]:
        x = jax.vmap(self.enter)(x)
        return jax.vmap(self.leave)(self.trunk(x if self.places is None else self.places(x)))


@claim(
    "L10-A24-universal",
    title="Universal with positions, equivariant without",
    kind="theorem",
    of=("models.Trunk", "layers.LearnedPositions", "train.descend"),
    cites="Yun et al. 2020",
)
def universal(key, rng):
    r"""For inputs $X$ and $PX$ with targets $Y$ and $Z \ne PY$ a network with $f(PX) = Pf(X)$ has a
    mean loss of at least $\frac14 \|Y - P^{-1}Z\|^2$, whatever its size. A transformer without
    positions reaches this bound but not less; with positions it fits both.
    """
    n, T, d = 3, 4, 2
    X, Y, Z = rng.normal(size=(3, n, T, d))
    orders = np.array([np.roll(np.arange(T), 1 + i) for i in range(n)])
    permuted = np.stack([x[order] for x, order in zip(X, orders)])
    back = np.stack([z[np.argsort(order)] for z, order in zip(Z, orders)])
    floor = float(((Y - back) ** 2).sum(axis=(1, 2)).mean() / 4)
    batch = jax.tree.map(
        lambda *a: jnp.asarray(np.concatenate(a), jnp.float32), (X, Y), (permuted, Z)
    )
    fit = jax.jit(
        lambda net, batch, key: trained(total, net, batch, learning_rate=1e-2, steps=STEPS, key=key)
    )
    nets = [
        single_precision(SequenceMap.init(d, 16, placed=placed, length=T, key=key))
        for placed in (True, False)
    ]
    (with_places, falling), (without, flat) = (fit(net, batch, key) for net in nets)
    loss = jax.jit(total)
    near = lambda net: float(loss(net, batch))
    step = np.arange(STEPS)
    return Verdict(
        at_least("without positions: loss over the bound", near(without) / floor, 1.0, slack=1e-4),
        at_most("without positions: loss over the bound, trained", near(without) / floor, 1.02),
        at_most("with positions: loss", near(with_places), 1e-3),
        refuted(
            at_least(
                "with positions: loss over the bound", near(with_places) / floor, 1.0, slack=1e-4
            )
        ),
        close(
            "without positions: f(PX) = P f(X) after training",
            *_pair_losses(without, X, permuted, orders),
            tolerance=1e-3,
        ),
        figure=Panel(
            "step",
            "loss",
            log="y",
            lines={"with positions": (step, falling), "without": (step, flat)},
            bounds={"floor": ([0, STEPS], [floor, floor])},
        ),
    )


def total(model: Any, batch: Any, *, key: Any = None) -> Any:
    """The mean squared distance to the targets."""
    xs, ys = batch
    return jnp.mean(jnp.sum((predict(model, xs) - ys) ** 2, axis=(1, 2)))


def _pair_losses(
    net: Any, X: np.ndarray, permuted: np.ndarray, orders: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    f = jax.jit(lambda net, X: predict(net, X))
    result, plain = (np.asarray(f(net, jnp.asarray(x, jnp.float32))) for x in (permuted, X))
    return result, np.stack([y[order] for y, order in zip(plain, orders)])


COUNTS = 100 * 2 ** np.arange(8)  # examples: 100 to 12,800
WORDS, DRAWS = 5000, 4


@claim(
    "L10-A24-scaling-law",
    title="Scaling laws: loss against data",
    kind="experiment",
    of=("layers.Embedding", "models.MLP", "train.descend", "train.squared_error"),
    cites="Hestness et al. 2017; Kaplan et al. 2020; Hutter 2021",
)
def scaling_law(key):
    r"""A student learns from $N$ examples of a teacher, and its loss on new examples falls with $N$
    in a straight line on logarithmic axes, so that the loss for twice as many can be extrapolated.
    This holds for a network that learns from another one of the same architecture and sees each
    example once, and for words with $p_i \propto i^{-2}$, each with its own value: there the loss
    is the probability of unseen words, $\sum_i p_i (1 - p_i)^N$, nearly a power of $N$.
    """
    key_table, key_net = jr.split(key)
    p = 1 / np.arange(1.0, WORDS + 1) ** 2
    p /= p.sum()
    losses, words = zip(*[_table_loss(key, jnp.asarray(p)) for key in jr.split(key_table, DRAWS)])
    loss = np.mean(losses, axis=0)
    never = np.mean([_unseen_probability(np.asarray(w), p) for w in words], axis=0)
    unseen, error = np.array(
        [(p @ (1 - p) ** N, np.sqrt(p**2 @ (1 - p) ** N / DRAWS)) for N in COUNTS]
    ).T
    along = np.asarray(jax.jit(jax.vmap(_network_loss))(jr.split(key_net, DRAWS)), np.float64).mean(
        axis=0
    )
    network = along[COUNTS // 100 - 1]
    (line, checks), (line_net, checks_net) = (
        _line_checks("words", loss),
        _line_checks("network", network),
    )
    return Verdict(
        *checks,
        close("words: loss over the share of words not drawn", loss / never, 1.0, tolerance=0.02),
        within("words: this share, against its mean", never, unseen, error=error),
        *checks_net,
        decreasing("network: loss, 100 to 12,800 examples", network),
        figure=Chart(
            Panel(
                "examples N",
                "loss on new examples",
                log="xy",
                points={"words": (COUNTS, loss)},
                lines={"unseen words": (COUNTS, unseen)},
                bounds=line,
            ),
            Panel(
                "examples N",
                "",
                log="xy",
                points={"network": (COUNTS, network)},
                bounds=line_net,
                lines={"during training": (100 * np.arange(1, len(along) + 1), along)},
            ),
        ),
    )


def _line_checks(name: str, loss: np.ndarray) -> tuple[Any, list[Any]]:
    """The line through the losses on logarithmic axes, with checks that it is straight and that the
    other losses predict the last.
    """
    x = np.log(COUNTS)
    y = np.log(loss)
    slope, level = np.polyfit(x, y, 1)
    line = {f"N^{slope:.2f}": (COUNTS, np.exp(slope * x + level))}
    predicted = np.exp(np.polyval(np.polyfit(x[:-1], y[:-1], 1), x[-1]))
    return line, [
        at_least(
            f"{name}: R² of the line through 8 sizes",
            1 - np.var(y - slope * x - level) / np.var(y),
            0.95,
        ),
        close(
            f"{name}: 12,800 examples, predicted from 100 to 6,400, over measured",
            predicted / loss[-1],
            1.0,
            tolerance=0.2,
        ),
        refuted(
            close(
                f"{name}: predicted as for 6,400, over measured",
                loss[-2] / loss[-1],
                1.0,
                tolerance=0.2,
            )
        ),
    ]


@jax.jit
def _table_loss(key: Any, p: Any) -> Any:
    """A table of values, from zeros, trained on more and more words; its exact expected loss on a
    new word.
    """
    key_words, key_values = jr.split(key)
    values = jr.rademacher(key_values, (WORDS, 1), float)
    words = jr.choice(key_words, WORDS, (int(COUNTS[-1]),), p=p)
    descent = train.descend(train.squared_error, optax.adam(optax.cosine_decay_schedule(0.1, 100)))

    def loss(N):
        there = jnp.arange(len(words)) < N
        batch = jnp.where(there, words, -1), jnp.where(there[:, None], values[words], 0)
        batches = jax.tree.map(lambda a: jnp.broadcast_to(a, (100, *a.shape)), batch)
        table = run(descent, layers.Embedding(jnp.zeros((WORDS, 1))), batches, key=key)[0].model.E
        return p @ (table - values)[:, 0] ** 2

    return jax.lax.map(loss, jnp.asarray(COUNTS)), words


def _unseen_probability(words: np.ndarray, p: np.ndarray) -> np.ndarray:
    """The total probability of the words that are not among the first N, for all sizes."""
    return np.array([1 - p[np.unique(words[:N])].sum() for N in COUNTS])


def _network_loss(key: Any, n: int = 16, width: int = 32, every: int = 100) -> Any:
    """A network trained on the outputs of another of the same architecture, each example seen once;
    its loss on new examples after every hundred.

    The variances of the inputs decay as $i^{-2}$, as in most data."""
    key_teacher, key_net, key_x, key_test = jr.split(key, 4)
    draw = lambda key: single_precision(
        models.MLP.init(n, width, 1, activation=layers.tanh, key=key)
    )
    scale = 1 / jnp.arange(1, n + 1, dtype="float32")
    scale = scale / jnp.sqrt(jnp.mean(scale**2))
    inputs = lambda key, *shape: (
        jr.normal(key, (*shape, n), "float32") * scale.reshape(*[1] * len(shape), n)
    )
    teacher = draw(key_teacher)
    net = draw(key_net)
    xs = inputs(key_x, COUNTS[-1] // every, every, 1)
    test = inputs(key_test, 1000)
    ys = jax.vmap(jax.vmap(lambda x: predict(teacher, x)))(xs)
    descent = train.descend(train.squared_error, optax.sgd(0.02))
    step = lambda state, batch: (descent.step(state, batch, key=key)[0], None)

    def hundred(state, examples):
        state, _ = jax.lax.scan(step, state, examples)
        return state, jnp.mean((predict(state.model, test) - predict(teacher, test)) ** 2)

    return jax.lax.scan(hundred, descent.init(net), (xs, ys))[1]


class LookUp(eqx.Module):
    """Attention to a memory with one query, and the logits of the result."""

    attend: Attention
    read: Linear

    def __call__(self, pair: Any) -> Float[Array, " v"]:
        question, memory = pair
        return self.read(self.attend(question, memory)[0])


NAMES, VALUES, LONG, LISTS = 12, 8, 6, 3000


def look_up_data(key: Any) -> Any:
    """Lists of (name, value) pairs and the query name of each list; the correct values; the index
    of the pair.
    """
    key_name, key_value, key_ask = jr.split(key, 3)
    named = jax.vmap(lambda key: jr.permutation(key, NAMES)[:LONG])(jr.split(key_name, LISTS))
    valued = jr.randint(key_value, (LISTS, LONG), 0, VALUES)
    indices = jr.randint(key_ask, (LISTS,), 0, LONG)
    memory = jnp.concatenate([jax.nn.one_hot(named, NAMES), jax.nn.one_hot(valued, VALUES)], axis=2)
    question = jax.nn.one_hot(jnp.take_along_axis(named, indices[:, None], axis=1), NAMES)
    answer = jnp.take_along_axis(valued, indices[:, None], axis=1)[:, 0]
    return jax.tree.map(lambda a: a.astype(jnp.float32), (question, memory)), answer, indices


@claim(
    "L10-A25-interpretability",
    title="Attention weights as explanations",
    kind="experiment",
    of=("layers.Attention", "train.cross_entropy"),
    cites="Bahdanau, Cho & Bengio 2015",
)
def lookup(key):
    r"""Given a list of pairs (name, value) and a query name, attention with one head, trained only
    to predict the value, puts nearly all of its weight on the pair with this name.
    """

    @jax.jit
    def taught(key):
        key_learn, key_test, key_net, key_read = jr.split(key, 4)
        attend = Attention.init(NAMES, 1, head_dim=16, memory_dim=NAMES + VALUES, key=key_net)
        net = single_precision(LookUp(attend, Linear.init(NAMES, VALUES, key=key_read)))
        pairs, answers, _ = look_up_data(key_learn)
        descent = train.descend(
            train.cross_entropy, optax.adam(optax.cosine_decay_schedule(0.1, 800))
        )
        rows = jr.randint(key, (800, 64), 0, LISTS)
        batches = jax.tree.map(lambda a: a[rows], (pairs, answers))
        net = run(descent, net, batches, key=key)[0].model
        (question, memory), answers, indices = look_up_data(key_test)
        weights = jax.vmap(lambda q, m: net.attend.weights(q, m)[0, 0])(question, memory)
        return weights, indices, train.error_rate(net, ((question, memory), answers))

    weights, indices, error = taught(key)
    A = np.asarray(weights)
    at = np.asarray(indices)
    right = A[np.arange(LISTS), at]
    order = np.argsort(at[:60], kind="stable")
    return Verdict(
        at_most("error rate of the values", float(error), 0.01),
        at_least("weight on the queried pair, mean of 3000 lists", right.mean(), 0.9),
        refuted(
            at_least(
                "weight on the next pair, mean",
                A[np.arange(LISTS), (at + 1) % LONG].mean(),
                0.9,
            )
        ),
        close("weights sum to 1", A.sum(axis=1), 1.0, tolerance=1e-5),
        figure=Heatmap(
            np.asarray(A[:60][order], np.float64),
            "pair in the list",
            "query, sorted by the queried pair",
            title="weights",
        ),
    )
