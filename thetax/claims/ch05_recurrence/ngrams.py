"""Lecture 10, A.15 and A.16: n-gram models and word embeddings."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np

from ... import data, layers, models
from ...models import NGram
from ...plot import Panel
from ..engine.check import at_least, at_most, close, close_derivative, decreasing, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian

START = 3  # the token that begins a sentence of the tokens 0, 1 and 2


@jax.jit
def next_token_probabilities(cell, texts):
    """The distribution of the next token after each token of each text."""
    return jnp.exp(jax.vmap(lambda text: layers.unroll(cell, text)[1])(texts))


def last_probabilities(cell, texts):
    """The distribution of the next token after each text."""
    return np.asarray(next_token_probabilities(cell, jnp.asarray(texts)))[:, -1]


def conditionals(cell, texts):
    """The probability of each token of each text given the tokens before it, without the first."""
    p = np.asarray(next_token_probabilities(cell, jnp.asarray(texts)))
    return np.take_along_axis(p[:, :-1], np.asarray(texts)[:, 1:, None], axis=2)[..., 0]


@claim(
    "L10-A15-independence",
    title="The unigram model",
    kind="model",
    of=("models.NGram", "models.greedy"),
)
def independence(rng):
    r"""If words were independent, $p(x) = \prod_t p(x_t)$, the most likely sentence of $T$ words
    would be the most frequent word $T$ times: six times "the" has the probability $0.049^6$.
    """
    V = 10
    counts = rng.integers(5, 40, V)
    counts[rng.integers(V)] = 45
    text = rng.permutation(np.repeat(np.arange(V), counts))
    p = np.bincount(text, minlength=V) / len(text)
    cell = NGram.fit(text, vocab_size=V, order=0, discount=0.0)
    sentences = np.array(list(product(range(V), repeat=3)))
    probabilities = conditionals(
        cell, np.concatenate([np.zeros((V**3, 1), int), sentences], axis=1)
    ).prod(axis=1)
    english = np.repeat(np.arange(21), [49, *[48] * 19, 39])  # 1,000 words, 49 of them the first
    generated = models.greedy(
        NGram.fit(english, vocab_size=21, order=0, discount=0.0), start_token=20, max_new_tokens=6
    )
    return Verdict(
        close(
            "all 10³ sentences: the product of frequencies",
            probabilities,
            p[sentences].prod(axis=1),
        ),
        close("sum of their probabilities", probabilities.sum(), 1.0),
        equal(
            "the most likely sentence", sentences[probabilities.argmax()], np.full(3, p.argmax())
        ),
        equal(
            "greedy decoding: the most frequent word six times", generated.tokens, np.zeros(6, int)
        ),
        close("its probability", np.exp(generated.log_p), 1.38e-8, tolerance=0.005, relative=True),
        close("0.049⁶", np.exp(generated.log_p), 0.049**6, tolerance=1e-10, relative=True),
        refuted(
            close(
                "the average of 20 random sentences is as likely",
                probabilities[rng.integers(0, V**3, 20)].mean(),
                probabilities.max(),
                tolerance=1e-6,
            )
        ),
    )


def random_corpus(rng):
    """All sentences of four tokens, their joint distribution from random counts, and the texts,
    each with a leading `START`.
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
def chain_rule(rng):
    r"""$p(x_1, \dots, x_T) = \prod_t p(x_t \mid x_1, \dots, x_{t-1})$, for any joint
    distribution.
    """
    sentences, joint, texts = random_corpus(rng)
    cell = NGram.fit(texts, vocab_size=4, order=4, discount=0.0)
    with_start = np.concatenate([np.full((81, 1), START), sentences], axis=1)
    conditional = conditionals(cell, with_start)
    table = joint.reshape(3, 3, 3, 3)
    second = table.sum(axis=(2, 3)) / table.sum(axis=(1, 2, 3))[:, None]
    bigram = conditionals(NGram.fit(texts, vocab_size=4, order=1, discount=0.0), with_start)
    return Verdict(
        close("all 81 sentences", conditional.prod(axis=1), joint, tolerance=1e-14),
        close(
            "p(x₂ | x₁), by sums over the table",
            conditional[:, 1],
            second[sentences[:, 0], sentences[:, 1]],
            tolerance=1e-14,
        ),
        refuted(close("a bigram model", bigram.prod(axis=1), joint, tolerance=1e-4)),
    )


@erratum(
    "L10-A15-chain-rule",
    title="A marginal is not a conditional",
    printed=r"p(x_T) = p(x_T \mid x_1, \dots, x_{T-1})",
    corrected=r"p(x_1, \dots, x_T) = p(x_1, \dots, x_{T-1})\, p(x_T \mid x_1, \dots, x_{T-1})",
    of=("models.NGram",),
    slip=True,
)
def marginal(rng):
    r"""The model is of the last word given the others. The two probabilities are equal only if the
    last word is independent of the others.
    """
    sentences, joint, texts = random_corpus(rng)
    with_start = np.concatenate([np.full((81, 1), START), sentences], axis=1)
    *before, last = conditionals(
        NGram.fit(texts, vocab_size=4, order=4, discount=0.0), with_start
    ).T
    marginals = joint.reshape(27, 3).sum(axis=0)[sentences[:, -1]]
    name = "p(x₁, x₂, x₃) times the factor of the last word, all 81 sentences"
    return Verdict(
        close(name, np.prod(before, axis=0) * last, joint, tolerance=1e-14),
        printed=[close(name, np.prod(before, axis=0) * marginals, joint, tolerance=1e-14)],
    )


@claim(
    "L10-A15-table-size", title="The size of an n-gram table", kind="identity", of=("models.NGram",)
)
def table_size(rng):
    r"""A table of $p(x_t \mid N \text{ words})$ over $V$ words has $V^N$ contexts and $V^{N+1}$
    entries, of which $V^N(V - 1)$ are free, since those of a context sum to 1.
    """
    sizes = [(V, N) for V in range(2, 6) for N in range(1, 5)]
    table_sizes = []
    for V, N in sizes:
        texts = [list(text) for text in product(range(V), repeat=N + 1)]
        cell = NGram.fit(texts, vocab_size=V, order=N, discount=0.0)
        table_sizes.append((len(np.unique(np.asarray(cell.ngrams[N]) // V)), len(cell.counts[N])))
    V, N = np.array(sizes).T
    contexts, entries = np.array(table_sizes).T
    p = last_probabilities(
        NGram.fit(rng.integers(0, 3, 200), vocab_size=3, order=2), list(product(range(3), repeat=2))
    )
    return Verdict(
        equal("contexts, V = 2 to 5 and N = 1 to 4", contexts, V**N),
        equal("entries", entries, V ** (N + 1)),
        equal("free entries: one constraint per context", entries - contexts, V**N * (V - 1)),
        close("the entries of each context sum to 1", p.sum(axis=1), np.ones(9)),
        refuted(equal("entries, against V^N", entries, V**N)),
        figure=Panel(
            "words of context",
            "entries",
            log="y",
            lines={f"V = {v}": (N[v == V], entries[v == V]) for v in range(2, 6)},
        ),
    )


def second_order(rng, length, *, size=3):
    """A text from a second-order Markov chain, and the table of its transition probabilities."""
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
    title="N-gram models",
    kind="model",
    of=("models.NGram", "layers.unroll"),
    cites="Shannon 1948; Ney, Essen & Kneser 1994",
)
def ngram(rng):
    r"""$p(x) \approx \prod_t p(x_t \mid x_{t-N}, \dots, x_{t-1})$ from counts: words more than $N$
    back are ignored. On a text from a second-order Markov chain the estimate converges to the true
    table as the text grows, and the perplexity falls until $N = 2$.
    """
    text, table = second_order(rng, 24_000)
    held_out = text[-4000:]
    pairs = np.array(list(product(range(3), repeat=2)))
    divergences = []
    perplexities = {}
    for n in (200, 2000, 20_000):
        q = last_probabilities(
            NGram.fit(text[:n], vocab_size=3, order=2, discount=0.1), pairs
        ).reshape(3, 3, 3)
        divergences.append(float(np.mean(np.sum(table * np.log(table / q), axis=2))))
    for order in range(4):
        perplexities[order] = perplexity(
            NGram.fit(text[:20_000], vocab_size=3, order=order), held_out
        )
    cell = NGram.fit(text[:20_000], vocab_size=3, order=2, discount=0.0)
    counts = np.zeros((3, 3, 3))
    np.add.at(counts, (text[:19_998], text[1:19_999], text[2:20_000]), 1)
    after_0 = last_probabilities(cell, np.concatenate([np.full((9, 1), 0), pairs], axis=1))
    after_2 = last_probabilities(cell, np.concatenate([np.full((9, 1), 2), pairs], axis=1))
    return Verdict(
        close(
            "p, against counts",
            last_probabilities(cell, pairs).reshape(3, 3, 3),
            counts / counts.sum(axis=2, keepdims=True),
        ),
        decreasing("divergence from the truth: 200, 2,000 and 20,000 words", divergences),
        at_most("divergence, 20,000 words", divergences[-1], 0.01),
        equal("p after a change of the third-last word", after_0, after_2),
        refuted(
            equal(
                "p after a change of the second-last word",
                last_probabilities(cell, pairs[:3]),
                last_probabilities(cell, pairs[6:]),
            )
        ),
        decreasing(
            "perplexity on new text, N = 0, 1 and 2", [perplexities[order] for order in range(3)]
        ),
        at_least("perplexity, N = 3 over N = 2", perplexities[3] / perplexities[2], 0.999),
        figure=Panel(
            "words of context",
            "perplexity on new text",
            lines={"24,000 words": (list(perplexities), list(perplexities.values()))},
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
def one_too_many(rng):
    r"""From $t - N - 1$ to $t - 1$ there are $N + 1$ words; in the example of the lecture $N$ is 2,
    and two words are given.
    """
    N = 2
    text, _ = second_order(rng, 3000)
    cell = NGram.fit(text, vocab_size=3, order=N, discount=0.0)
    fitted = conditionals(cell, text[None])[0, 19:299]

    def by_counts(words):
        runs = [tuple(text[t - words : t + 1]) for t in range(words, len(text))]
        return [
            runs.count(run) / sum(r[:-1] == run[:-1] for r in runs)
            for run in (tuple(text[t - words : t + 1]) for t in range(20, 300))
        ]

    name = "p(x_t) for 280 times, by counts of the context"
    return Verdict(
        close(name, fitted, by_counts(len(range(-N, 0)))),
        printed=[close(name, fitted, by_counts(len(range(-N - 1, 0))))],
    )


@claim(
    "L10-A16-embedding",
    title="Word embeddings",
    kind="layer",
    of=("layers.Embedding", "data.Vocabulary"),
    cites="Bengio et al. 2003",
)
def embedding(rng):
    r"""A text becomes token ids, and each id a row of a table: $E[t] = e_t^\top E$. So each row of
    the gradient by $E$ is the sum of the gradients at all positions of its token.
    """
    vocabulary = data.Vocabulary.fit(["the cat sat on the mat", "the dog sat"], vocab_size=4)
    tokens = np.asarray(vocabulary.encode(["the cat and the dog"], length=6))[0]
    E = rng.normal(size=(5, 3))
    c = rng.normal(size=(6, 3))
    layer = layers.Embedding(jnp.asarray(E))
    one_hot = np.eye(5)[np.maximum(tokens, 0)] * (tokens >= 0)[:, None]
    value = lambda E: jnp.vdot(jnp.asarray(c), jnp.sin(layers.Embedding(E)(jnp.asarray(tokens))))
    slope = np.asarray(jax.grad(value)(jnp.asarray(E)))
    token_gradients = c * np.cos(one_hot @ E) * (tokens >= 0)[:, None]
    total = np.zeros_like(E)
    np.add.at(total, tokens[tokens >= 0], token_gradients[tokens >= 0])
    last_only = np.zeros_like(E)
    last_only[tokens[tokens >= 0]] = token_gradients[tokens >= 0]
    return Verdict(
        equal(
            "token ids: in the vocabulary, unknown (4), and padding (−1)",
            [tokens[0], tokens[3], tokens[2], tokens[5]],
            [tokens[3], tokens[0], 4, -1],
        ),
        equal("rows, and one-hot vectors times E", layer(jnp.asarray(tokens)), one_hot @ E),
        close("gradient by E, against sums over positions", slope, total, tolerance=1e-14),
        close_derivative("gradient by E, against finite differences", slope, jacobian(value, E)),
        refuted(
            close(
                "gradient by E, from the last position of each token alone",
                slope,
                last_only,
                tolerance=1e-3,
            )
        ),
    )
