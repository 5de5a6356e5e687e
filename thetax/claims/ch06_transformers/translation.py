"""§6.4, lecture 10 A.23: the whole transformer: parallel and step-by-step decoding, and
training.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from ... import train
from ...core import run
from ...layers import SinusoidalPositions
from ...models import GPT, Translator, greedy
from ...plot import Panel
from ..engine.check import at_least, at_most, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim
from .by_loop import EXACT, perturbed, single_precision, slopes, softmax


@claim(
    "6.4-causal-parallel",
    title="Parallel and step-by-step decoding agree",
    kind="identity",
    of=("models.Translator", "models.GPT"),
    cites="Vaswani et al. 2017",
)
def parallel(key, rng):
    r"""One masked pass over the whole target gives the same logits as the decoder token by token on
    growing prefixes, with a KV cache or recomputed each time.
    """
    T = 7
    source = jnp.asarray(rng.integers(6, size=5))
    target = jnp.asarray(rng.integers(5, size=T))
    nets = {
        "translator": Translator.init(6, 5, 8, depth=2, heads=2, key=key),
        "GPT": GPT.init(5, 8, depth=2, heads=2, max_length=9, key=key),
        "Llama": GPT.llama(5, 8, depth=2, heads=2, kv_heads=1, hidden=8, key=key),
    }
    nets = {name: perturbed(net, key, 0.1) for name, net in nets.items()}
    checks = []
    for name, net in nets.items():
        one_pass, steps, anew = decode_three_ways(net, source, target)
        checks += [
            close(f"{name}: KV cache, against one pass", steps, one_pass, tolerance=1e-10),
            close(
                f"{name}: recomputed for 1, 4 and 7 tokens",
                anew,
                np.asarray(one_pass)[[0, 3, T - 1]],
                tolerance=1e-10,
            ),
        ]
    gpt = nets["GPT"]
    fourth = gpt(target)[3]
    late = lambda prompt: after_prompt(gpt, prompt, target[3])
    return Verdict(
        *checks,
        close(
            "GPT: after a prompt of 3 tokens, the fourth", late(target[:3]), fourth, tolerance=1e-10
        ),
        refuted(
            close("GPT: after a prompt of 2, the fourth", late(target[:2]), fourth, tolerance=1e-6)
        ),
    )


@jax.jit
def decode_three_ways(net, source, target):
    """The logits in one pass; token by token with a KV cache; and the last of 1, 4 and all tokens,
    recomputed.
    """
    alone = isinstance(net, GPT)
    call = lambda target: net(target if alone else (source, target))
    cell, state = (
        net.decoder(max_length=len(target))
        if alone
        else net.decoder(source, max_length=len(target))
    )
    steps = jax.lax.scan(lambda state, y: cell(state, y), state, target)[1]
    return call(target), steps, jnp.stack([call(target[:t])[-1] for t in (1, 4, len(target))])


@jax.jit
def after_prompt(net, prompt, token):
    """The logits after a token that follows a prompt."""
    cell, state = net.decoder(prompt, max_length=9)
    return cell(state, token)[1]


class Table(eqx.Module):
    """A cell whose logits are the row of a table at the token it reads."""

    rows: Float[Array, "v v"]

    @property
    def start(self) -> None:
        """The empty state."""

    def __call__(self, state: None, token: Int[Array, ""]) -> tuple[None, Float[Array, " v"]]:
        return state, self.rows[token]


@claim(
    "6.4-greedy-decode",
    title="Greedy decoding",
    kind="algorithm",
    of=("models.greedy", "models.Translator"),
    cites="Vaswani et al. 2017",
)
def one_by_one(key, rng):
    r"""$y_t = \mathrm{argmax}\, p(\cdot \mid \Xi, y_{1:t-1})$, each token fed back, until the end
    token or the maximum length. The probability of the output is the product of the probabilities
    of its tokens.
    """
    table = np.array(
        [[0.1, 0.6, 0.2, 0.1], [0.1, 0.1, 0.2, 0.6], [0.7, 0.1, 0.1, 0.1], [0.2, 0.1, 0.5, 0.2]]
    )
    cell = Table(jnp.log(jnp.asarray(table)))
    ends = greedy(cell, start_token=0, max_new_tokens=6, end_token=2)
    endless = greedy(cell, start_token=0, max_new_tokens=6)
    net = perturbed(Translator.init(6, 5, 8, depth=1, heads=2, tied=False, key=key), key, 0.7)
    source = jnp.asarray(rng.integers(6, size=4))
    cell, state = net.decoder(source, max_length=6)
    output = greedy(cell, state=state, start_token=0, max_new_tokens=6)
    tokens = [0]
    p = 1.0
    chances = np.ones(1)
    full_pass = jax.jit(lambda net, target: net((source, target)))
    for t in range(6):
        chances = softmax(np.asarray(full_pass(net, jnp.asarray(tokens + [0] * (5 - t))))[t])
        tokens.append(int(chances.argmax()))
        p *= chances.max()
    stop = tokens[3]
    stopped = np.asarray(
        greedy(cell, state=state, start_token=0, max_new_tokens=6, end_token=stop).tokens
    )
    truncated = tokens[1 : 1 + tokens[1:].index(stop) + 1]
    return Verdict(
        equal("a known table: the output up to the end token", ends.tokens, [1, 3, 2, -1, -1, -1]),
        equal("a known table: the maximum length", endless.tokens, [1, 3, 2, 0, 1, 3]),
        close("a known table: its probability, 0.6 · 0.6 · 0.5", jnp.exp(ends.log_p), 0.18),
        equal("a translator: against full passes over the output", output.tokens, tokens[1:]),
        close("a translator: log p of the output", output.log_p, np.log(p), tolerance=1e-10),
        refuted(
            close(
                "a translator: log p of fewer tokens",
                output.log_p,
                np.log(p / chances.max()),
                tolerance=1e-6,
            )
        ),
        equal(
            "a translator: it stops at the first end token",
            stopped,
            truncated + [-1] * (6 - len(truncated)),
        ),
    )


def learn(net, batches, *, learning_rate, key):
    """The model after a step of Adam on each batch, with cosine decay of the learning rate; and the
    losses.
    """
    steps = len(jax.tree.leaves(batches)[0])
    adam = optax.adam(optax.warmup_cosine_decay_schedule(0.0, learning_rate, steps // 10, steps))
    descent = train.descend(
        train.token_cross_entropy, optax.chain(optax.clip_by_global_norm(1.0), adam)
    )
    state, (_, info) = run(descent, net, batches, key=key)
    return state.model, info.loss


def pairs(rng, count, *, size=6, lengths=(3, 5), target_of=lambda words: words):
    """Random sources, decoder inputs and targets. The start token is `size`, the end token `size` +
    1.
    """
    most = lengths[1]
    source, read, target = (np.full((count, most + extra), -1) for extra in (0, 1, 1))
    for i, n in enumerate(rng.integers(lengths[0], lengths[1] + 1, size=count)):
        words = rng.integers(size, size=n)
        source[i, :n], read[i, 0], read[i, 1 : n + 1] = words, size, target_of(words)
        target[i, :n], target[i, n] = target_of(words), size + 1
    return (jnp.asarray(source), jnp.asarray(read)), jnp.asarray(target)


def exact_match(net, batch, *, begin, end):
    """The share of sources whose greedy output equals the target, to the last token."""
    (source, _), target = batch

    def decode(source):
        cell, state = net.decoder(source, max_length=target.shape[1])
        return greedy(
            cell, state=state, start_token=begin, end_token=end, max_new_tokens=target.shape[1]
        ).tokens

    return jnp.mean((jax.vmap(decode)(source) == target).all(axis=1))


@claim(
    "6.4-transformer",
    "L10-A23-transformer",
    title="The transformer",
    kind="model",
    of=("models.Translator", "models.greedy", "train.token_cross_entropy"),
    cites="Vaswani et al. 2017",
)
def transformer(key, rng):
    r"""An encoder of $\mathrm{LN}(x + \mathrm{MH}(x))$ and $\mathrm{LN}(x + F(x))$ and a decoder
    with cross-attention to the encoder's output. Source and target may differ in length; without
    positions the encoder is permutation equivariant; the decoder is causal. It memorises eight
    pairs of a copying task.
    """
    net = Translator.init(5, 4, 4, depth=1, heads=2, hidden=6, norms="after", tied=False, key=key)
    source = jnp.array([1, 4, 2, 0, -1])
    target = jnp.array([0, 3, 1])
    c = rng.normal(size=(3, 4))
    pull, differences = slopes(lambda net: net((source, target)), perturbed(net, key), c)
    no_positions = Translator.init(
        5, 4, 4, depth=2, heads=2, norms="after", positions=None, key=key
    )
    order = rng.permutation(4)
    learner = single_precision(
        Translator.init(8, 8, 16, depth=1, heads=2, hidden=32, norms="after", key=key)
    )

    @jax.jit
    def by_heart(net, batch, key):
        batches = jax.tree.map(lambda a: jnp.broadcast_to(a, (250, *a.shape)), batch)
        net, losses = learn(net, batches, learning_rate=1e-2, key=key)
        return (
            losses,
            train.token_cross_entropy(net, batch),
            exact_match(net, batch, begin=6, end=7),
        )

    losses, last, right = by_heart(learner, pairs(rng, 8), key)
    call = jax.jit(lambda source, target: net((source, target)))
    logits = call(source, target)
    ahead = call(source, target.at[2].set(2))
    encode = jax.jit(lambda net, source: net.encode(source))
    encode_permuted = lambda net: (encode(net, source[:4][order]), encode(net, source[:4])[order])
    return Verdict(
        equal("5 source tokens, 3 target tokens, vocabulary of 4", logits.shape, (3, 4)),
        close_derivative(
            f"the derivative by all {len(pull)} parameters", pull, differences, tolerance=1e-7
        ),
        close(
            "without positions: the encoder is equivariant", *encode_permuted(no_positions), **EXACT
        ),
        refuted(
            close(
                "with positions: the encoder is equivariant", *encode_permuted(net), tolerance=1e-3
            )
        ),
        close("the padding of a source has no effect", logits, call(source[:4], target), **EXACT),
        equal("the decoder is causal", logits[:2], ahead[:2]),
        at_most("8 memorised pairs: loss", float(last), 1e-2),
        equal("8 memorised pairs: exact greedy outputs", float(right), 1.0),
        figure=Panel(
            "step", "loss", lines={"8 pairs": (np.arange(250), np.asarray(losses))}, log="y"
        ),
    )


SIZE, BATCH, STEPS = 10, 32, 800
ENGLISH = np.array([3, 7, 0, 9, 5, 1, 8, 2, 6, 4])  # the translation of each word


@claim(
    "6.4-translation-experiment",
    title="A small translation task",
    kind="experiment",
    of=("models.Translator", "models.greedy", "layers.SinusoidalPositions", "train.descend"),
    cites="Vaswani et al. 2017",
)
def translation(key, rng):
    r"""Ten words, each with one translation, sentences of 3 to 6 words, translated in reverse
    order: a transformer with one block on each side, width 32 and two heads translates new
    sentences without a mistake. Without positions it cannot distinguish the orders of a sentence.
    """
    task = {"size": SIZE, "lengths": (3, 6), "target_of": lambda words: ENGLISH[words][::-1]}
    data = jax.tree.map(lambda a: a.reshape(STEPS, BATCH, -1), pairs(rng, STEPS * BATCH, **task))
    training_set = {
        tuple(row) for row in np.asarray(data[0][0]).reshape(STEPS * BATCH, -1).tolist()
    }
    candidates = pairs(rng, 600, **task)
    new = np.array(
        [tuple(row) not in training_set for row in np.asarray(candidates[0][0]).tolist()]
    )
    candidates = jax.tree.map(lambda a: a[np.flatnonzero(new)[:200]], candidates)

    @jax.jit
    def taught(net, data, candidates, key):
        net, losses = learn(net, data, learning_rate=8e-3, key=key)
        return exact_match(net, candidates, begin=SIZE, end=SIZE + 1), losses

    draw = lambda places: single_precision(
        Translator.init(SIZE, SIZE + 2, 32, depth=1, heads=2, hidden=64, positions=places, key=key)
    )
    placed, losses = taught(draw(SinusoidalPositions()), data, candidates, key)
    without, loss_without = taught(draw(None), data, candidates, key)
    step = np.arange(STEPS).reshape(-1, 10).mean(axis=1)
    smooth = lambda losses: np.asarray(losses).reshape(-1, 10).mean(axis=1)
    return Verdict(
        equal("new sentences", len(candidates[1]), 200),
        at_least("exact translations", float(placed), 0.95),
        at_most("exact translations, without positions", float(without), 0.5),
        figure=Panel(
            "step",
            "loss",
            lines={
                "with positions": (step, smooth(losses)),
                "without": (step, smooth(loss_without)),
            },
            log="y",
        ),
    )
