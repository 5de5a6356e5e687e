"""§6.4, lecture 10 A.23: the whole transformer: all at once or word by word, and what it learns."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from ... import train
from ...core import run
from ...layers import Sinusoidal
from ...models import GPT, Translator, greedy
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_least, at_most, close, equal, refuted
from ..engine.claim import Verdict, claim
from .by_loop import EXACT, FD, single, slopes, softmax, spread

VASWANI = "Vaswani et al. 2017"


@claim(
    "6.4-causal-parallel",
    title="All at once, or word by word",
    kind="identity",
    of=("models.Translator", "models.GPT"),
    cites=VASWANI,
)
def parallel(key):
    r"""One masked pass over the whole target gives the logits that the decoder gives word by word
    on growing beginnings, with what it has read kept as keys and values, or made anew each time.
    """
    rng = chance(key)
    T = 7
    source = jnp.asarray(rng.integers(6, size=5))
    target = jnp.asarray(rng.integers(5, size=T))
    nets = {
        "translator": Translator.init(6, 5, 8, depth=2, heads=2, key=key),
        "GPT": GPT.init(5, 8, depth=2, heads=2, max_length=9, key=key),
        "Llama": GPT.llama(5, 8, depth=2, heads=2, groups=1, hidden=8, key=key),
    }
    nets = {name: spread(net, key, 0.1) for name, net in nets.items()}
    checks = []
    for name, net in nets.items():
        whole, steps, anew = ways(net, source, target)
        checks += [
            close(f"{name}: kept, against all at once", steps, whole, tolerance=1e-10),
            close(
                f"{name}: made anew for 1, 4 and 7 words",
                anew,
                np.asarray(whole)[[0, 3, T - 1]],
                tolerance=1e-10,
            ),
        ]
    gpt = nets["GPT"]
    fourth = gpt(target)[3]
    late = lambda prompt: after_prompt(gpt, prompt, target[3])
    return Verdict(
        *checks,
        close(
            "GPT: after a prompt of 3 words, the fourth", late(target[:3]), fourth, tolerance=1e-10
        ),
        refuted(
            close("GPT: after a prompt of 2, the fourth", late(target[:2]), fourth, tolerance=1e-6)
        ),
    )


@jax.jit
def ways(net, source, target):
    """The logits all at once; word by word with what was read kept; and the last of 1, 4 and all
    words, made anew.
    """
    alone = isinstance(net, GPT)
    call = lambda target: net(target if alone else (source, target))
    cell, state = (
        net.decoder(length=len(target)) if alone else net.decoder(source, length=len(target))
    )
    steps = jax.lax.scan(lambda state, y: cell(state, y), state, target)[1]
    return call(target), steps, jnp.stack([call(target[:t])[-1] for t in (1, 4, len(target))])


@jax.jit
def after_prompt(net, prompt, token):
    """The logits after a token, once a prompt has been read."""
    cell, state = net.decoder(prompt, length=9)
    return cell(state, token)[1]


class Table(eqx.Module):
    """The cell whose logits are a row of a table, by the word it reads."""

    rows: Float[Array, "v v"]

    @property
    def start(self) -> None:
        """It remembers nothing."""

    def __call__(self, state: None, token: Int[Array, ""]) -> tuple[None, Float[Array, " v"]]:
        return state, self.rows[token]


@claim(
    "6.4-greedy-decode",
    title="The likeliest word, again and again",
    kind="algorithm",
    of=("models.greedy", "models.Translator"),
    cites=VASWANI,
)
def one_by_one(key):
    r"""$y_t = \mathrm{argmax}\, p(\cdot \mid \Xi, y_{1:t-1})$, each fed back, until the word that
    ends it or the most there may be. The probability of what was said is the product of those of
    its words.
    """
    table = np.array(
        [[0.1, 0.6, 0.2, 0.1], [0.1, 0.1, 0.2, 0.6], [0.7, 0.1, 0.1, 0.1], [0.2, 0.1, 0.5, 0.2]]
    )
    cell = Table(jnp.log(jnp.asarray(table)))
    ends = greedy(cell, first=0, length=6, end=2)
    endless = greedy(cell, first=0, length=6)
    net = spread(Translator.init(6, 5, 8, depth=1, heads=2, tied=False, key=key), key, 0.7)
    source = jnp.asarray(chance(key).integers(6, size=4))
    cell, state = net.decoder(source, length=6)
    said = greedy(cell, state=state, first=0, length=6)
    tokens = [0]
    p = 1.0
    chances = np.ones(1)
    whole = jax.jit(lambda net, target: net((source, target)))
    for t in range(6):
        chances = softmax(np.asarray(whole(net, jnp.asarray(tokens + [0] * (5 - t))))[t])
        tokens.append(int(chances.argmax()))
        p *= chances.max()
    stop = tokens[3]
    stopped = np.asarray(greedy(cell, state=state, first=0, length=6, end=stop).tokens)
    kept = tokens[1 : 1 + tokens[1:].index(stop) + 1]
    return Verdict(
        equal("a table known: what is said until the end", ends.tokens, [1, 3, 2, -1, -1, -1]),
        equal("a table known: the most there may be", endless.tokens, [1, 3, 2, 0, 1, 3]),
        close(
            "a table known: its probability, 0.6 · 0.6 · 0.5",
            jnp.exp(ends.log_p),
            0.18,
            tolerance=1e-12,
        ),
        equal("a translator: against whole passes over what was said", said.tokens, tokens[1:]),
        close("a translator: log p of it", said.log_p, np.log(p), tolerance=1e-10),
        refuted(
            close(
                "a translator: log p of fewer words",
                said.log_p,
                np.log(p / chances.max()),
                tolerance=1e-6,
            )
        ),
        equal("a translator: it stops at the first end", stopped, kept + [-1] * (6 - len(kept))),
    )


def learn(net, batches, *, rate, key):
    """The model after so many steps of Adam, its rate falling as a cosine; and the losses."""
    steps = len(jax.tree.leaves(batches)[0])
    adam = optax.adam(optax.warmup_cosine_decay_schedule(0.0, rate, steps // 10, steps))
    descent = train.descend(
        train.token_cross_entropy, optax.chain(optax.clip_by_global_norm(1.0), adam)
    )
    state, (_, info) = run(descent, net, batches, key=key)
    return state.model, info.loss


def pairs(rng, count, *, size=6, lengths=(3, 5), said=lambda words: words):
    """Random sources; what is read, from the first word on; and what is to be said. `size` begins,
    `size` + 1 ends.
    """
    most = lengths[1]
    source, read, target = (np.full((count, most + extra), -1) for extra in (0, 1, 1))
    for i, n in enumerate(rng.integers(lengths[0], lengths[1] + 1, size=count)):
        words = rng.integers(size, size=n)
        source[i, :n], read[i, 0], read[i, 1 : n + 1] = words, size, said(words)
        target[i, :n], target[i, n] = said(words), size + 1
    return (jnp.asarray(source), jnp.asarray(read)), jnp.asarray(target)


def said_right(net, batch, *, begin, end):
    """The share of sources for which what it says by itself is what is to be said, to the last
    word.
    """
    (source, _), target = batch

    def says(source):
        cell, state = net.decoder(source, length=target.shape[1])
        return greedy(cell, state=state, first=begin, end=end, length=target.shape[1]).tokens

    return jnp.mean((jax.vmap(says)(source) == target).all(axis=1))


@claim(
    "6.4-transformer",
    "L10-A23-transformer",
    title="The transformer",
    kind="model",
    of=("models.Translator", "models.greedy", "train.token_cross_entropy"),
    cites=VASWANI,
)
def transformer(key):
    r"""An encoder of $\mathrm{LN}(x + \mathrm{MH}(x))$ and $\mathrm{LN}(x + F(x))$ and a decoder
    that also looks at what the encoder found. Source and target may differ in length; without
    places the encoder goes with the order of its tokens; the decoder does not look ahead. Eight
    pairs to be copied are learned by heart.
    """
    rng = chance(key)
    net = Translator.init(5, 4, 4, depth=1, heads=2, hidden=6, norms="after", tied=False, key=key)
    source = jnp.array([1, 4, 2, 0, -1])
    target = jnp.array([0, 3, 1])
    c = rng.normal(size=(3, 4))
    pull, differences = slopes(lambda net: net((source, target)), spread(net, key), c)
    bare = Translator.init(5, 4, 4, depth=2, heads=2, norms="after", positions=None, key=key)
    order = rng.permutation(4)
    learner = single(Translator.init(8, 8, 16, depth=1, heads=2, hidden=32, norms="after", key=key))

    @jax.jit
    def by_heart(net, batch, key):
        batches = jax.tree.map(lambda a: jnp.broadcast_to(a, (250, *a.shape)), batch)
        net, losses = learn(net, batches, rate=1e-2, key=key)
        return losses, train.token_cross_entropy(net, batch), said_right(net, batch, begin=6, end=7)

    losses, last, right = by_heart(learner, pairs(rng, 8), key)
    call = jax.jit(lambda source, target: net((source, target)))
    logits = call(source, target)
    ahead = call(source, target.at[2].set(2))
    encode = jax.jit(lambda net, source: net.encode(source))
    moved = lambda net: (encode(net, source[:4][order]), encode(net, source[:4])[order])
    return Verdict(
        equal("5 words of the source, 3 of the target, 4 to choose from", logits.shape, (3, 4)),
        close(f"the derivative in all {len(pull)} numbers", pull, differences, **FD),
        close("without places: the encoder goes with the order", *moved(bare), **EXACT),
        refuted(close("with places: the encoder goes with the order", *moved(net), tolerance=1e-3)),
        close("the filling of a source changes nothing", logits, call(source[:4], target), **EXACT),
        equal("the decoder does not look ahead", logits[:2], ahead[:2]),
        at_most("8 pairs learned by heart: loss", float(last), 1e-2),
        equal("8 pairs, said by itself without a mistake", float(right), 1.0),
        figure=Chart(
            Panel("step", "loss", lines={"8 pairs": (np.arange(250), np.asarray(losses))}, log="y")
        ),
    )


SIZE, BATCH, STEPS = 10, 32, 800
ENGLISH = np.array([3, 7, 0, 9, 5, 1, 8, 2, 6, 4])  # what each word is in the other language


@claim(
    "6.4-translation-experiment",
    title="A small language is learned",
    kind="experiment",
    of=("models.Translator", "models.greedy", "layers.Sinusoidal", "train.descend"),
    cites=VASWANI,
)
def translation(key):
    r"""Ten words, each with one translation, sentences of 3 to 6 words, said from the end: a
    transformer of one block on each side, width 32 and two heads says new ones without a mistake.
    Without places it is told no order, and cannot do better than the orders of a sentence that look
    alike allow.
    """
    rng = chance(key)
    task = {"size": SIZE, "lengths": (3, 6), "said": lambda words: ENGLISH[words][::-1]}
    data = jax.tree.map(lambda a: a.reshape(STEPS, BATCH, -1), pairs(rng, STEPS * BATCH, **task))
    known = {tuple(row) for row in np.asarray(data[0][0]).reshape(STEPS * BATCH, -1).tolist()}
    fresh = pairs(rng, 600, **task)
    new = np.array([tuple(row) not in known for row in np.asarray(fresh[0][0]).tolist()])
    fresh = jax.tree.map(lambda a: a[np.flatnonzero(new)[:200]], fresh)

    @jax.jit
    def taught(net, data, fresh, key):
        net, losses = learn(net, data, rate=8e-3, key=key)
        return said_right(net, fresh, begin=SIZE, end=SIZE + 1), losses

    draw = lambda places: single(
        Translator.init(SIZE, SIZE + 2, 32, depth=1, heads=2, hidden=64, positions=places, key=key)
    )
    placed, losses = taught(draw(Sinusoidal()), data, fresh, key)
    bare, lost = taught(draw(None), data, fresh, key)
    step = np.arange(STEPS).reshape(-1, 10).mean(axis=1)
    smooth = lambda losses: np.asarray(losses).reshape(-1, 10).mean(axis=1)
    return Verdict(
        equal("sentences not seen before", len(fresh[1]), 200),
        at_least("said without a mistake", float(placed), 0.95),
        at_most("said without a mistake, without places", float(bare), 0.5),
        figure=Chart(
            Panel(
                "step",
                "loss",
                lines={"with places": (step, smooth(losses)), "without": (step, smooth(lost))},
                log="y",
            )
        ),
    )
