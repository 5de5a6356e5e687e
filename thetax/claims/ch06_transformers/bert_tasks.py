"""§6.5: an encoder with a task head: part-of-speech tagging, sentiment, question answering."""

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from sklearn.linear_model import LogisticRegression

from ... import train
from ...core import predict
from ...layers import glorot
from ...models import SentenceClassifier, SpanPredictor, TokenClassifier, best_span
from ...plot import Panel
from ..engine.check import (
    at_least,
    at_most,
    close,
    close_derivative,
    equal,
    not_rejected,
    refuted,
    within,
)
from ..engine.claim import Verdict, claim
from .bert_learning import (
    SPECIAL,
    binomial_p_value,
    encode_sentences,
    encoder,
    mean_losses,
    random_batches,
    train_by_adam,
)
from .by_loop import EXACT, linear, perturbed, single_precision, slopes, softmax

TAGS = ("determiner", "noun", "verb", "pronoun")
START = np.array([0.5, 0.1, 0.1, 0.3])
AFTER = np.array(
    [[0.0, 0.9, 0.05, 0.05], [0.1, 0.2, 0.6, 0.1], [0.5, 0.2, 0.05, 0.25], [0.05, 0.05, 0.8, 0.1]]
)
SPOKEN = np.array(
    [
        [0.5, 0.5, 0.0] + [0.0] * 12,  # the; that
        [0.0, 0.0, 0.0]
        + [0.1] * 4
        + [0.15] * 4
        + [0.0] * 4,  # four nouns, and four words that are nouns or verbs
        [0.0, 0.0, 0.0] + [0.0] * 4 + [0.15] * 4 + [0.1] * 4,
        [0.0, 0.5, 0.5] + [0.0] * 12,  # that; she
    ]
)
T = 8


def tagged_sentences(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Sentences of the grammar, and the tag of each word."""
    draw = lambda p: (p.cumsum(axis=1) > rng.random((count, 1))).argmax(axis=1)
    tags = [draw(np.tile(START, (count, 1)))]
    for _ in range(T - 1):
        tags.append(draw(AFTER[tags[-1]]))
    return np.stack([draw(SPOKEN[tag]) for tag in tags], axis=1), np.stack(tags, axis=1)


def tag_posteriors(words: np.ndarray) -> np.ndarray:
    """The probability of each tag at each position, given the whole sentence, by the
    forward-backward algorithm.
    """
    heard = [SPOKEN[:, word].T for word in words.T]
    before = [START * heard[0]]
    after = [np.ones_like(heard[0])]
    for now in heard[1:]:
        before.append(before[-1] @ AFTER * now)
    for now in heard[:0:-1]:
        after.append(after[-1] * now @ AFTER.T)
    joint = np.stack([a * b for a, b in zip(before, after[::-1])], axis=1)
    return joint / joint.sum(axis=2, keepdims=True)


def tag_word_probabilities() -> np.ndarray:
    """The joint probability of tag and word at a random position: (tags, words)."""
    at = [START]
    for _ in range(T - 1):
        at.append(at[-1] @ AFTER)
    return np.mean(at, axis=0)[:, None] * SPOKEN


@claim(
    "6.5-pos",
    title="Part-of-speech tagging from context",
    kind="model",
    of=("models.TokenClassifier", "train.token_cross_entropy", "train.token_error_rate"),
    cites="Devlin et al. 2019",
)
def speech_tags(key, rng):
    r"""$\mathrm{softmax}(W\xi_t + b)$ for every token. In a grammar with words that are noun or
    verb, and one that is determiner or pronoun, the best tagger of single words is right with
    probability $\sum_w \max_k p(k, w) = 0.738$; the Bayes-optimal tagger of whole sentences with
    0.895. Measured over 6 seeds: BERT 0.87 to 0.89.
    """
    key_net, key_fit = jr.split(key)
    learn, (words, tags) = tagged_sentences(rng, 4000), tagged_sentences(rng, 1000)
    encode = lambda words, tags: (
        encode_sentences(len(SPECIAL) + words, length=T + 2)[0],
        np.pad(tags, ((0, 0), (1, 1)), constant_values=-1),
    )
    net = single_precision(
        TokenClassifier.init(
            encoder(SPOKEN.shape[1], length=T + 2, key=key_net),
            len(TAGS),
            initialiser=glorot,
            key=key_net,
        )
    )

    @jax.jit
    def taught(net, batches, test, key):
        net, losses = train_by_adam(
            train.token_cross_entropy, net, batches, learning_rate=8e-3, key=key
        )
        return 1 - train.token_error_rate(net, test), predict(net, test[0][:1]), losses

    test = jax.tree.map(jnp.asarray, encode(words, tags))
    right, logits, losses = taught(
        net, random_batches(encode(*learn), rng, steps=320), test, key_fit
    )
    table = tag_word_probabilities()
    posterior = tag_posteriors(words)
    alone = table.argmax(axis=0)[words] == tags
    most = posterior.argmax(axis=2) == tags
    error = lambda hits: hits.mean(axis=1).std(ddof=1) / np.sqrt(len(hits))
    bound = float(table.max(axis=0).sum())
    return Verdict(
        equal(
            "logits: a row for each token, a column for each tag",
            logits.shape[1:],
            (T + 2, len(TAGS)),
        ),
        within(
            "the best tagger of single words, against its probability",
            alone.mean(),
            bound,
            error=error(alone),
        ),
        at_least("BERT: accuracy minus that probability", float(right), bound + 0.1),
        within(
            "optimal tagger: accuracy, against its own probabilities",
            most.mean(),
            posterior.max(axis=2).mean(),
            error=error(most),
        ),
        at_most(
            "BERT: accuracy, against the optimal tagger",
            float(right),
            most.mean(),
            slack=0.005,
        ),
        at_least("the same", float(right), most.mean(), slack=0.04),
        figure=Panel(
            "step",
            "loss",
            lines={"BERT": mean_losses(losses)},
            bounds={"optimal tagger": ([0, 320], 2 * [_surprise(posterior, tags)])},
        ),
    )


def _surprise(posterior: np.ndarray, tags: np.ndarray) -> float:
    return float(-np.log(np.take_along_axis(posterior, tags[..., None], axis=2)).mean())


GOOD, DULL, WORDS = (
    6,
    10,
    5,
)  # positive words (as many negative ones), neutral words, words of a review
KINDS = {"no negation": 0.4, "before the verdict": 0.3, "elsewhere": 0.3}


def reviews(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Reviews of five words, one of them a verdict; the negation, 0, inverts it if it stands right
    before it.
    """
    xs = 1 + 2 * GOOD + rng.integers(DULL, size=(count, WORDS))
    ys = np.zeros(count, int)
    for i, kind in enumerate(rng.choice(len(KINDS), size=count, p=list(KINDS.values()))):
        at = rng.integers(1, WORDS)
        verdict = rng.integers(2 * GOOD)
        elsewhere = rng.choice([t for t in range(WORDS) if t not in (at - 1, at)])
        xs[i, at], ys[i] = 1 + verdict, (verdict < GOOD) ^ (kind == 1)
        if kind:
            xs[i, at - 1 if kind == 1 else elsewhere] = 0
    return xs, ys


@claim(
    "6.5-sentiment",
    title="Negation and sentiment",
    kind="model",
    of=("models.SentenceClassifier", "train.cross_entropy", "train.error_rate"),
    cites="Devlin et al. 2019",
)
def sentiment(key, rng):
    r"""$W\tanh(P\xi_1) + b$, with $\xi_1$ at [CLS]. In reviews of five words a negation inverts the
    verdict if it stands right before it, in 3 of 10 reviews, and has no effect elsewhere, in 3 of
    10. A classifier of bags of words has an accuracy of at most $1 - 0.3$, logistic regression on
    counts included. Measured over 6 seeds: BERT 0.98 to 1, the regression about 0.7.
    """
    key_net, key_fit = jr.split(key)
    (xs, ys), (test, truth) = reviews(rng, 4000), reviews(rng, 2000)
    size = 1 + 2 * GOOD + DULL
    counts = lambda xs: np.stack([np.bincount(x, minlength=size) for x in xs])
    bag = LogisticRegression(max_iter=300).fit(counts(xs), ys).predict(counts(test)) == truth
    read = lambda xs, ys: (encode_sentences(len(SPECIAL) + xs, length=WORDS + 2)[0], ys)
    bert = encoder(size, length=WORDS + 2, depth=2, key=key_net)
    net = single_precision(SentenceClassifier.init(bert, 2, initialiser=glorot, key=key_net))

    @jax.jit
    def taught(net, batches, test, key):
        net, losses = train_by_adam(train.cross_entropy, net, batches, learning_rate=8e-3, key=key)
        return 1 - train.error_rate(net, test), losses

    right, losses = taught(
        net,
        random_batches(read(xs, ys), rng, steps=450),
        jax.tree.map(jnp.asarray, read(test, truth)),
        key_fit,
    )
    bound = 1 - min(KINDS["before the verdict"], KINDS["elsewhere"])
    most = lambda hits: not_rejected(
        f"no better than 0.7: binomial test, {len(test):,} reviews",
        binomial_p_value(hits, len(test), bound),
    )
    return Verdict(
        at_least("BERT: accuracy", float(right), 0.95),
        at_most(
            "word counts: accuracy of logistic regression", bag.mean(), float(right), slack=-0.2
        ),
        most(bag.sum()),
        refuted(most(len(test) * float(right))),
        figure=Panel("step", "loss", lines={"BERT": mean_losses(losses)}),
    )


@claim(
    "6.5-qa",
    title="Extractive question answering",
    kind="model",
    of=("models.SpanPredictor", "models.best_span", "train.span_loss", "train.span_cross_entropy"),
    cites="Devlin et al. 2019; Rajpurkar et al. 2016",
)
def answers(key, rng):
    r"""$s_i = S^\top \xi_i$ and $e_j = E^\top \xi_j$ for the tokens of the passage only; the loss
    is $-\frac12(\log \mathrm{softmax}_i(s) + \log \mathrm{softmax}_j(e))$, and the answer
    $\mathrm{argmax}_{i \le j < i + \ell}\, s_i + e_j$, the best of $T\ell$ sums.
    """
    length = 9
    first = rng.integers(5, 9, size=(2, 2))
    second = rng.integers(5, 9, size=(2, 3))
    xs = tuple(
        jnp.asarray(a) for a in encode_sentences(first, [second[0], second[1, :2]], length=length)
    )
    passage = np.array([[0, 0, 0, 0, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1, 0, 0, 0]], bool)
    net = perturbed(SpanPredictor.init(encoder(4, 4, length=length, key=key), key=key), key, 0.3)
    spans = jnp.array([[4, 6], [5, 5]])
    loss_of = lambda net: train.span_cross_entropy(net, (xs, spans))
    outputs_of = jax.jit(lambda net: (predict(net, xs), predict(net.bert, xs), loss_of(net)))
    scores, vectors, loss = map(np.asarray, outputs_of(net))
    by_hand = np.stack(
        [np.where(here, linear(net.head, row).T, -np.inf) for here, row in zip(passage, vectors)]
    )
    halves = [
        -np.log(softmax(s[here])[int(at) - 4])
        for both, here, span in zip(scores, passage, spans)
        for s, at in zip(both, span)
    ]
    each = [train.span_loss(*pair) for pair in zip(jnp.asarray(scores), spans)]
    pull, differences = slopes(loss_of, net, 1.0)
    find = lambda scores, ell: jax.jit(
        jax.vmap(lambda one: jnp.stack(best_span(one, max_length=ell)))
    )(jnp.asarray(scores))
    many = rng.normal(size=(200, 2, 12))
    results = {ell: np.asarray(find(many, ell)) for ell in (1, 3, 12)}
    sums = jax.make_jaxpr(lambda scores: best_span(scores, max_length=5))(jnp.zeros((2, 100)))
    table = max(int(np.prod(out.aval.shape)) for step in sums.jaxpr.eqns for out in step.outvars)
    best = np.asarray(find(scores, 4))
    return Verdict(
        equal(
            "question, special tokens and padding are excluded",
            np.isfinite(scores[:, 0]),
            passage,
        ),
        close(
            "scores, from the vectors of the encoder",
            scores[:, :, 4:6],
            by_hand[:, :, 4:6],
            **EXACT,
        ),
        close("loss, by a loop", loss, np.mean(halves), **EXACT),
        close(
            "loss of each answer, from its scores",
            each,
            np.reshape(halves, (2, 2)).mean(axis=1),
            **EXACT,
        ),
        close_derivative(
            f"its derivative by all {len(pull)} parameters", pull, differences, tolerance=1e-7
        ),
        *[
            equal(
                f"200 best spans of at most {ell}, by brute force",
                spans,
                [best_span_by_loop(one, ell) for one in many],
            )
            for ell, spans in results.items()
        ],
        refuted(
            equal(
                "those of at most 3, if only the end were maximised",
                results[3][:, 1],
                many[:, 1].argmax(axis=1),
            )
        ),
        equal(
            "the best span lies in the passage",
            passage[np.arange(2)[:, None], best],
            np.ones((2, 2), bool),
        ),
        equal("T = 100, ℓ = 5: entries of the largest array", table, 500),
    )


def best_span_by_loop(scores: Any, longest: int) -> tuple[int, int]:
    """The span with the highest sum, by brute force."""
    spans = [(i, j) for i, j in product(range(scores.shape[1]), repeat=2) if i <= j < i + longest]
    return max(spans, key=lambda span: scores[0, span[0]] + scores[1, span[1]])
