"""Lecture 10, A.15 and A.16: the probability of a sentence, counted, and words as vectors."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np

from ... import data, layers, models
from ...models import NGram
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_least, at_most, close, equal, falls, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian
from .by_loop import FD

START = 3  # the token that begins a sentence of the tokens 0, 1 and 2


@jax.jit
def laws(cell, texts):
    """The law of the next token after each token of each text."""
    return jnp.exp(jax.vmap(lambda text: layers.unroll(cell, text)[1])(texts))


def after(cell, texts):
    """The law of the next token after each text."""
    return np.asarray(laws(cell, jnp.asarray(texts)))[:, -1]


def conditionals(cell, texts):
    """The probability of each token of each text given those before it in the text; that of the
    first is left out.
    """
    p = np.asarray(laws(cell, jnp.asarray(texts)))
    return np.take_along_axis(p[:, :-1], np.asarray(texts)[:, 1:, None], axis=2)[..., 0]


@claim(
    "L10-A15-independence",
    title="Words by themselves",
    kind="model",
    of=("models.NGram", "models.greedy"),
)
def independence(key):
    r"""If words were independent, $p(x) = \prod_t p(x_t)$, the likeliest sentence of $T$ words
    would say the most frequent word $T$ times: six times "the" has the probability $0.049^6$.
    """
    rng = chance(key)
    V = 10
    counts = rng.integers(5, 40, V)
    counts[rng.integers(V)] = 45
    text = rng.permutation(np.repeat(np.arange(V), counts))
    p = np.bincount(text, minlength=V) / len(text)
    cell = NGram.fit(text, vocab_size=V, order=0, discount=0.0)
    sentences = np.array(list(product(range(V), repeat=3)))
    found = conditionals(cell, np.concatenate([np.zeros((V**3, 1), int), sentences], axis=1)).prod(
        axis=1
    )
    english = np.repeat(np.arange(21), [49, *[48] * 19, 39])  # 1,000 words, 49 of them the first
    said = models.greedy(
        NGram.fit(english, vocab_size=21, order=0, discount=0.0), first=20, length=6
    )
    return Verdict(
        close(
            "all 10³ sentences: the product of frequencies",
            found,
            p[sentences].prod(axis=1),
            tolerance=1e-12,
        ),
        close("they sum to 1", found.sum(), 1.0, tolerance=1e-12),
        equal("the likeliest of them", sentences[found.argmax()], np.full(3, p.argmax())),
        equal("the likeliest word, said six times", said.tokens, np.zeros(6, int)),
        close("its probability", np.exp(said.log_p), 1.38e-8, tolerance=0.005, relative=True),
        close("0.049⁶", np.exp(said.log_p), 0.049**6, tolerance=1e-10, relative=True),
        refuted(
            close(
                "the average of 20 random sentences is as likely",
                found[rng.integers(0, V**3, 20)].mean(),
                found.max(),
                tolerance=1e-6,
            )
        ),
    )


def counted(rng):
    """Sentences of four tokens with random counts: the joint table, and the texts, each begun by
    `START`.
    """
    sentences = np.array(list(product(range(3), repeat=4)))
    counts = rng.integers(1, 6, len(sentences))
    texts = np.repeat(np.concatenate([np.full((81, 1), START), sentences], axis=1), counts, axis=0)
    return sentences, counts / counts.sum(), [list(map(int, text)) for text in texts]


@claim(
    "L10-A15-chain-rule",
    title="The chain rule of probability",
    kind="identity",
    of=("models.NGram",),
)
def chain_rule(key):
    r"""$p(x_1, \dots, x_T) = \prod_t p(x_t \mid x_1, \dots, x_{t-1})$, for any joint
    distribution.
    """
    sentences, joint, texts = counted(chance(key))
    cell = NGram.fit(texts, vocab_size=4, order=4, discount=0.0)
    begun = np.concatenate([np.full((81, 1), START), sentences], axis=1)
    found = conditionals(cell, begun)
    table = joint.reshape(3, 3, 3, 3)
    second = table.sum(axis=(2, 3)) / table.sum(axis=(1, 2, 3))[:, None]
    short = conditionals(NGram.fit(texts, vocab_size=4, order=1, discount=0.0), begun)
    return Verdict(
        close("all 81 sentences", found.prod(axis=1), joint, tolerance=1e-14),
        close(
            "p(x₂ | x₁), by sums over the table",
            found[:, 1],
            second[sentences[:, 0], sentences[:, 1]],
            tolerance=1e-14,
        ),
        refuted(close("given one word before alone", short.prod(axis=1), joint, tolerance=1e-4)),
    )


@erratum(
    "L10-A15-chain-rule",
    title="A marginal is not a conditional",
    printed=r"p(x_T) = p(x_T \mid x_1, \dots, x_{T-1})",
    corrected=r"p(x_1, \dots, x_T) = p(x_1, \dots, x_{T-1})\, p(x_T \mid x_1, \dots, x_{T-1})",
    of=("models.NGram",),
    slip=True,
)
def marginal(key):
    r"""What is modelled is the last word given the others. The two are the same only if the last
    word is independent of them.
    """
    sentences, joint, texts = counted(chance(key))
    begun = np.concatenate([np.full((81, 1), START), sentences], axis=1)
    *before, last = conditionals(NGram.fit(texts, vocab_size=4, order=4, discount=0.0), begun).T
    alone = joint.reshape(27, 3).sum(axis=0)[sentences[:, -1]]
    name = "p(x₁, x₂, x₃) times the factor of the last word, all 81 sentences"
    return Verdict(
        close(name, np.prod(before, axis=0) * last, joint, tolerance=1e-14),
        printed=[close(name, np.prod(before, axis=0) * alone, joint, tolerance=1e-14)],
    )


@claim("L10-A15-table-size", title="How large the table is", kind="identity", of=("models.NGram",))
def table_size(key):
    r"""A table of $p(x_t \mid N \text{ words})$ over $V$ words has $V^N$ contexts and $V^{N+1}$
    entries, of which $V^N(V - 1)$ are free, for those of a context sum to 1.
    """
    sizes = [(V, N) for V in range(2, 6) for N in range(1, 5)]
    found = []
    for V, N in sizes:
        texts = [list(text) for text in product(range(V), repeat=N + 1)]
        cell = NGram.fit(texts, vocab_size=V, order=N, discount=0.0)
        found.append((len(np.unique(np.asarray(cell.ngrams[N]) // V)), len(cell.counts[N])))
    V, N = np.array(sizes).T
    contexts, entries = np.array(found).T
    p = after(
        NGram.fit(chance(key).integers(0, 3, 200), vocab_size=3, order=2),
        list(product(range(3), repeat=2)),
    )
    return Verdict(
        equal("contexts, V = 2 to 5 and N = 1 to 4", contexts, V**N),
        equal("entries", entries, V ** (N + 1)),
        equal("free: less one equation for each context", entries - contexts, V**N * (V - 1)),
        close("the entries of each context sum to 1", p.sum(axis=1), np.ones(9), tolerance=1e-12),
        refuted(equal("entries, if they were V^N", entries, V**N)),
        figure=Chart(
            Panel(
                "words of context",
                "entries",
                log="y",
                lines={f"V = {v}": (N[v == V], entries[v == V]) for v in range(2, 6)},
            )
        ),
    )


def second_order(rng, length, *, size=3):
    """A text in which two words decide the next, by the table it is drawn from."""
    table = 0.03 + (1 - 0.03 * size) * rng.dirichlet(np.full(size, 0.4), size=(size, size))
    edges = table.cumsum(axis=2)
    draws = rng.uniform(size=length)
    text = [0, 1]
    for u in draws:
        text.append(min(int(np.searchsorted(edges[text[-2], text[-1]], u)), size - 1))
    return np.array(text), table


def perplexity(cell, text):
    """The exponential of the mean of −log p."""
    return float(np.exp(-np.log(conditionals(cell, text[None])).mean()))


@claim(
    "L10-A15-ngram",
    title="A few words of context",
    kind="model",
    of=("models.NGram", "layers.unroll"),
    cites="Shannon 1948; Ney, Essen & Kneser 1994",
)
def ngram(key):
    r"""$p(x) \approx \prod_t p(x_t \mid x_{t-N}, \dots, x_{t-1})$ from counts: what lies further
    back than $N$ words is not seen. On a text in which two words decide the next the table is found
    as the text grows, and the perplexity falls until $N = 2$.
    """
    rng = chance(key)
    text, table = second_order(rng, 24_000)
    held = text[-4000:]
    pairs = np.array(list(product(range(3), repeat=2)))
    far = []
    away = {}
    for n in (200, 2000, 20_000):
        q = after(NGram.fit(text[:n], vocab_size=3, order=2, discount=0.1), pairs).reshape(3, 3, 3)
        far.append(float(np.mean(np.sum(table * np.log(table / q), axis=2))))
    for order in range(4):
        away[order] = perplexity(NGram.fit(text[:20_000], vocab_size=3, order=order), held)
    cell = NGram.fit(text[:20_000], vocab_size=3, order=2, discount=0.0)
    counts = np.zeros((3, 3, 3))
    np.add.at(counts, (text[:19_998], text[1:19_999], text[2:20_000]), 1)
    changed = after(cell, np.concatenate([np.full((9, 1), 0), pairs], axis=1))
    other = after(cell, np.concatenate([np.full((9, 1), 2), pairs], axis=1))
    return Verdict(
        close(
            "p, by counts",
            after(cell, pairs).reshape(3, 3, 3),
            counts / counts.sum(axis=2, keepdims=True),
            tolerance=1e-12,
        ),
        falls("divergence from the truth: 200, 2,000 and 20,000 words", far),
        at_most("divergence, 20,000 words", far[-1], 0.01),
        equal("another word three back", changed, other),
        refuted(equal("another word two back", after(cell, pairs[:3]), after(cell, pairs[6:]))),
        falls("perplexity on new text, N = 0, 1 and 2", [away[order] for order in range(3)]),
        at_least("perplexity, N = 3 over N = 2", away[3] / away[2], 0.999),
        figure=Chart(
            Panel(
                "words of context",
                "perplexity on new text",
                lines={"24,000 words": (list(away), list(away.values()))},
            )
        ),
    )


@erratum(
    "L10-A15-ngram",
    title="N words, not N + 1",
    printed=r"\prod_t p(x_t \mid x_{t-N-1}, \dots, x_{t-1})",
    corrected=r"\prod_t p(x_t \mid x_{t-N}, \dots, x_{t-1})",
    of=("models.NGram",),
    slip=True,
)
def one_too_many(key):
    r"""From $t - N - 1$ to $t - 1$ there are $N + 1$ words; in the example of the lecture $N$ is 2,
    and two words are given.
    """
    rng = chance(key)
    N = 2
    text, _ = second_order(rng, 3000)
    cell = NGram.fit(text, vocab_size=3, order=N, discount=0.0)
    found = conditionals(cell, text[None])[0, 19:299]

    def by_counts(words):
        runs = [tuple(text[t - words : t + 1]) for t in range(words, len(text))]
        return [
            runs.count(run) / sum(r[:-1] == run[:-1] for r in runs)
            for run in (tuple(text[t - words : t + 1]) for t in range(20, 300))
        ]

    name = "p(x_t) for 280 times, by counts of the context"
    return Verdict(
        close(name, found, by_counts(len(range(-N, 0))), tolerance=1e-12),
        printed=[close(name, found, by_counts(len(range(-N - 1, 0))), tolerance=1e-12)],
    )


@claim(
    "L10-A16-embedding",
    title="Words as vectors",
    kind="layer",
    of=("layers.Embedding", "data.Vocabulary"),
    cites="Bengio et al. 2003",
)
def embedding(key):
    r"""A text becomes numbers, and each number a row of a table: $E[t] = e_t^\top E$. So the
    gradient of $E$ adds up, in each row, what comes back to every place where its token stands.
    """
    rng = chance(key)
    known = data.Vocabulary.fit(["the cat sat on the mat", "the dog sat"], size=4)
    tokens = np.asarray(known.encode(["the cat and the dog"], length=6))[0]
    E = rng.normal(size=(5, 3))
    c = rng.normal(size=(6, 3))
    layer = layers.Embedding(jnp.asarray(E))
    hot = np.eye(5)[np.maximum(tokens, 0)] * (tokens >= 0)[:, None]
    value = lambda E: jnp.vdot(jnp.asarray(c), jnp.sin(layers.Embedding(E)(jnp.asarray(tokens))))
    slope = np.asarray(jax.grad(value)(jnp.asarray(E)))
    back = c * np.cos(hot @ E) * (tokens >= 0)[:, None]
    summed = np.zeros_like(E)
    np.add.at(summed, tokens[tokens >= 0], back[tokens >= 0])
    once = np.zeros_like(E)
    once[tokens[tokens >= 0]] = back[tokens >= 0]
    return Verdict(
        equal(
            "the words as numbers: known, not known (4), and none (−1)",
            [tokens[0], tokens[3], tokens[2], tokens[5]],
            [tokens[3], tokens[0], 4, -1],
        ),
        equal("rows, and one-hot vectors times E", layer(jnp.asarray(tokens)), hot @ E),
        close("gradient: added up row by row", slope, summed, tolerance=1e-14),
        close("gradient, by differences", slope, jacobian(value, E), **FD),
        refuted(close("gradient: the last place of a token alone", slope, once, tolerance=1e-3)),
    )
