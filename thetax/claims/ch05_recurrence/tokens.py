"""§5 and §5.3: sequence tasks, and sequence-to-sequence models."""

from itertools import pairwise, product

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy import stats
from scipy.special import log_softmax, softmax

from ... import layers, models, train, tree
from ...layers import Elman, Linear, Recurrent
from ...models import EncoderDecoder, LanguageModelCell, SequenceClassifier
from ..engine.check import close, close_derivative, equal, not_rejected, refuted
from ..engine.claim import Verdict, claim
from ..engine.differences import jacobian
from ..engine.numpy_rng import numpy_rng
from .by_loop import elman

BEGIN = 3  # the token that begins a target of the tokens 0, 1 and 2


@claim(
    "5.0-rnn-uses",
    title="Tagging, language modelling and classification",
    kind="definition",
    of=("train.token_cross_entropy", "models.LanguageModelCell", "models.SequenceClassifier"),
)
def uses(key, rng):
    r"""A recurrent network can tag, $y_t$ for each $x_t$; predict the next token, $y_t$ for
    $x_{t+1}$; or classify, $y_T$ for the whole sequence. The gradient by the readout $W$ is the
    mean of $(\mathrm{softmax}(Wz_t) - e_{y_t}) z_t^\top$ over the time steps with a target: all of
    them, or the last alone.
    """
    T = 6
    V = 5
    k = 3
    text = rng.integers(0, V, T + 1)
    tags = rng.integers(0, k, T)
    net = LanguageModelCell.init(V, 3, 4, cell=Elman.init, key=key)
    language_model = lambda W: Recurrent(
        LanguageModelCell(net.embed, net.cell, Linear(W, jnp.zeros(V)))
    )
    tagger = lambda W: Recurrent(LanguageModelCell(net.embed, net.cell, Linear(W, jnp.zeros(k))))
    classifier = lambda W: SequenceClassifier(net.cell, Linear(W, jnp.zeros(k)), net.embed)
    E = np.asarray(net.embed.E)
    cell = net.cell
    z = elman(cell.U, cell.V, E[text[:-1]], b=np.asarray(cell.b))[1:]
    batch = lambda xs, ys: (jnp.asarray(xs)[None], jnp.asarray(ys)[None])
    W = rng.normal(size=(V, 4))
    w = rng.normal(size=(k, 4))
    gradient = lambda objective, make, W, batch: jax.jit(
        jax.grad(lambda W: objective(make(W), batch))
    )(jnp.asarray(W))
    by_hand = lambda W, z, ys: (softmax(z @ W.T, axis=1) - np.eye(len(W))[ys]).T @ z / len(z)
    shifted = batch(text[:-1], text[1:])
    changed = np.where(np.arange(T) > 2, (text[:-1] + 1) % V, text[:-1])
    logits = lambda tokens: language_model(jnp.asarray(W))(jnp.asarray(tokens))
    classifier_gradient = gradient(
        train.cross_entropy, classifier, w, (shifted[0], jnp.asarray(tags[-1:]))
    )
    return Verdict(
        close(
            "tagging: gradient by W",
            gradient(train.token_cross_entropy, tagger, w, batch(text[:-1], tags)),
            by_hand(w, z, tags),
            tolerance=1e-13,
        ),
        close(
            "language model: gradient by W",
            gradient(train.token_cross_entropy, language_model, W, shifted),
            by_hand(W, z, text[1:]),
            tolerance=1e-13,
        ),
        equal(
            "language model: the target at t is the input at t + 1",
            shifted[1][0, :-1],
            shifted[0][0, 1:],
        ),
        equal(
            "language model: the prediction of x_4 does not depend on x_4",
            logits(changed)[:3],
            logits(text[:-1])[:3],
        ),
        refuted(
            equal(
                "language model: predictions after x_4 do not depend on x_4",
                logits(changed)[3:],
                logits(text[:-1])[3:],
            )
        ),
        close(
            "classification: gradient by W, from z_T alone",
            classifier_gradient,
            by_hand(w, z[-1:], tags[-1:]),
            tolerance=1e-13,
        ),
        refuted(
            close(
                "classification: gradient by W, from all time steps",
                classifier_gradient,
                by_hand(w, z, np.full(T, tags[-1])),
                tolerance=1e-3,
            )
        ),
    )


def random_model(key, *, attend=None):
    """A random encoder-decoder with Elman cells, from 4 tokens to 3, and a source."""
    model = EncoderDecoder.init(4, 4, 3, 5, attention_width=attend, cell=Elman.init, key=key)
    return model, jnp.asarray(numpy_rng(key).integers(0, 4, 6))


def without_begin_token(model):
    """The decoder cell with probability 0 for `BEGIN`."""
    b = model.target.readout.b.at[BEGIN].set(-jnp.inf)
    return LanguageModelCell(
        model.target.embed, model.target.cell, Linear(model.target.readout.W, b)
    )


@claim(
    "5.3-autoregressive",
    title="Autoregressive models are distributions over sequences",
    kind="identity",
    of=("models.LanguageModelCell", "models.EncoderDecoder", "models.beam_search"),
)
def autoregressive(key):
    r"""$p(y_{1:n} \mid x) = \prod_i p(y_i \mid x, y_{1:i-1})$ is a distribution over sequences of
    length $n$; with an end token, the sequences that end within $N$ steps and those that continue
    have total probability 1.
    """
    n, end = 4, 0
    model, source = random_model(key)
    cell, (_, state) = without_begin_token(model), model.decoder(source)
    texts = np.array(list(product(range(3), repeat=n)))
    inputs = np.concatenate([np.full((len(texts), 1), BEGIN), texts[:, :-1]], axis=1)
    logits = jax.jit(jax.vmap(lambda text: layers.unroll(cell, text, state=state)[1]))(
        jnp.asarray(inputs)
    )
    steps = np.take_along_axis(np.asarray(jax.nn.softmax(logits)), texts[:, :, None], axis=2)[
        ..., 0
    ]
    p = steps.prod(axis=1)
    finished = {}
    for text, factors in zip(texts, steps):
        where = np.flatnonzero(text == end)
        if len(where):
            finished[tuple(text[: where[0] + 1])] = factors[: where[0] + 1].prod()
    unfinished = sum(prob for text, prob in zip(texts, p) if end not in text)
    search = models.beam_search(
        cell, start_token=BEGIN, max_new_tokens=n, beam_width=81, state=state
    )
    numbers = np.asarray(search.tokens) @ 3 ** np.arange(n)[::-1]
    return Verdict(
        close("sum over all 81 sequences", p.sum(), 1.0),
        close("probabilities from a beam search", np.exp(search.log_p), p[numbers]),
        equal("the beam search finds all sequences", np.sort(numbers), np.arange(81)),
        close(
            f"finished within 4 steps ({len(finished)} sequences), plus unfinished",
            sum(finished.values()) + unfinished,
            1.0,
        ),
        refuted(
            close("finished within 4 steps, alone", sum(finished.values()), 1.0, tolerance=1e-6)
        ),
    )


@claim(
    "5.3-seq2seq",
    title="Sequence-to-sequence models",
    kind="model",
    of=("models.EncoderDecoder", "models.sample"),
    cites="Sutskever, Vinyals & Le 2014",
)
def sequence_to_sequence(key):
    r"""An encoder maps $x_1, \dots, x_m$ to its last state $\zeta$; a decoder with start state
    $z_0 = \zeta$ reads $y_1, \dots, y_{t-1}$, and maps $z_{t-1} \mapsto \mu_t$, from which $y_t$ is
    sampled. The likelihood of a target is the product of its token probabilities under teacher
    forcing.
    """
    model, source = random_model(key)
    target = np.array([BEGIN, 2, 0, 1, 1])
    encoder_cell, cell = model.encoder.backward, model.target.cell
    reversed_source = np.asarray(model.source.E)[np.asarray(source)][::-1]
    zeta = elman(encoder_cell.U, encoder_cell.V, reversed_source, b=np.asarray(encoder_cell.b))[-1]
    z = elman(
        cell.U, cell.V, np.asarray(model.target.embed.E)[target], b=np.asarray(cell.b), z=zeta
    )[1:]
    logits = z @ np.asarray(model.target.readout.W).T + np.asarray(model.target.readout.b)
    by_hand = log_softmax(logits[:-1], axis=1)[np.arange(4), target[1:]].sum()
    batch = (source[None], jnp.asarray(target[None, :-1])), jnp.asarray(target[None, 1:])
    likelihood = jax.jit(lambda model: -4 * train.token_cross_entropy(model, batch))
    step, state = model.decoder(source)
    log_likelihood = 0.0
    for token, next_token in pairwise(target):
        state, out = step(state, jnp.asarray(token))
        log_likelihood += float(jax.nn.log_softmax(out)[next_token])
    theta, back = tree.ravel(model)
    step = without_begin_token(model)
    state = model.decoder(source)[1]
    draw = jax.jit(
        jax.vmap(
            lambda key: (
                models.sample(
                    step, start_token=BEGIN, max_new_tokens=2, state=state, key=key
                ).tokens
            )
        )
    )
    samples = np.asarray(draw(jr.split(key, 4000)))
    mu = softmax((logits[:1])[:, :3], axis=1)[0]
    second = [
        jax.nn.softmax(step(step(state, jnp.array(BEGIN))[0], jnp.array(y))[1])[:3]
        for y in range(3)
    ]
    expected = 4000 * (mu[:, None] * np.array(second)).ravel()
    return Verdict(
        close("teacher forcing, against the formula", likelihood(model), by_hand),
        close("teacher forcing step by step", log_likelihood, by_hand),
        close_derivative(
            f"all {theta.size} derivatives",
            jax.jit(jax.grad(lambda v: likelihood(back(v))))(theta),
            jacobian(lambda v: likelihood(back(v)), theta, step=3e-4),
        ),
        not_rejected(
            "4,000 sampled pairs, χ² test against μ",
            stats.chisquare(np.bincount(samples @ [3, 1], minlength=9), expected).pvalue,
            false_alarm=1e-4,
        ),
        refuted(
            close(
                "a decoder with start state 0",
                log_softmax(
                    elman(
                        cell.U,
                        cell.V,
                        np.asarray(model.target.embed.E)[target],
                        b=np.asarray(cell.b),
                    )[1:-1]
                    @ np.asarray(model.target.readout.W).T,
                    axis=1,
                )[np.arange(4), target[1:]].sum(),
                by_hand,
                tolerance=1e-4,
            )
        ),
    )
