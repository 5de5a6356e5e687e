"""§5 and §5.3: what is asked of a sequence, and sequences from sequences."""

from itertools import pairwise, product

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy import stats
from scipy.special import log_softmax, softmax

from ... import layers, models, train, tree
from ...layers import Elman, Linear, Recurrent
from ...models import EncoderDecoder, NextToken, SequenceClassifier
from ..engine.chance import chance
from ..engine.check import close, equal, likely, refuted
from ..engine.claim import Verdict, claim
from ..engine.differences import jacobian
from .by_loop import FD, elman

BEGIN = 3  # the token that begins a target of the tokens 0, 1 and 2


@claim(
    "5.0-rnn-uses",
    title="Three uses",
    kind="definition",
    of=("train.token_cross_entropy", "models.NextToken", "models.SequenceClassifier"),
)
def uses(key):
    r"""A recurrent network may tag, $y_t$ for each $x_t$; go on, $y_t$ for $x_{t+1}$; or judge,
    $y_T$ for the whole. The gradient in the readout $W$ is the mean of
    $(\mathrm{softmax}(Wz_t) - e_{y_t}) z_t^\top$ over the times that are asked: all of them, or the
    last alone.
    """
    rng = chance(key)
    T = 6
    V = 5
    k = 3
    text = rng.integers(0, V, T + 1)
    tags = rng.integers(0, k, T)
    net = NextToken.init(V, 3, 4, cell=Elman.init, key=key)
    goes_on = lambda W: Recurrent(NextToken(net.embed, net.cell, Linear(W, jnp.zeros(V))))
    tagger = lambda W: Recurrent(NextToken(net.embed, net.cell, Linear(W, jnp.zeros(k))))
    judge = lambda W: SequenceClassifier(net.cell, Linear(W, jnp.zeros(k)), net.embed)
    E = np.asarray(net.embed.E)
    cell = net.cell
    z = elman(cell.U, cell.V, E[text[:-1]], b=np.asarray(cell.b))[1:]
    batch = lambda xs, ys: (jnp.asarray(xs)[None], jnp.asarray(ys)[None])
    W = rng.normal(size=(V, 4))
    w = rng.normal(size=(k, 4))
    slope = lambda objective, make, W, batch: jax.jit(
        jax.grad(lambda W: objective(make(W), batch))
    )(jnp.asarray(W))
    by_hand = lambda W, z, ys: (softmax(z @ W.T, axis=1) - np.eye(len(W))[ys]).T @ z / len(z)
    shifted = batch(text[:-1], text[1:])
    other = np.where(np.arange(T) > 2, (text[:-1] + 1) % V, text[:-1])
    logits = lambda tokens: goes_on(jnp.asarray(W))(jnp.asarray(tokens))
    found = slope(train.cross_entropy, judge, w, (shifted[0], jnp.asarray(tags[-1:])))
    return Verdict(
        close(
            "tag: gradient in W",
            slope(train.token_cross_entropy, tagger, w, batch(text[:-1], tags)),
            by_hand(w, z, tags),
            tolerance=1e-13,
        ),
        close(
            "go on: gradient in W",
            slope(train.token_cross_entropy, goes_on, W, shifted),
            by_hand(W, z, text[1:]),
            tolerance=1e-13,
        ),
        equal(
            "go on: the target at t is the input at t + 1", shifted[1][0, :-1], shifted[0][0, 1:]
        ),
        equal(
            "go on: what is said of x_4 does not see it", logits(other)[:3], logits(text[:-1])[:3]
        ),
        refuted(equal("go on: what is said after x_4", logits(other)[3:], logits(text[:-1])[3:])),
        close(
            "judge: gradient in W, z_T alone", found, by_hand(w, z[-1:], tags[-1:]), tolerance=1e-13
        ),
        refuted(
            close("judge: all times", found, by_hand(w, z, np.full(T, tags[-1])), tolerance=1e-3)
        ),
    )


def pair(key, *, attend=None):
    """A model from 4 tokens to 3, drawn with cells of Elman's, and a source."""
    model = EncoderDecoder.init(4, 4, 3, 5, attention_width=attend, cell=Elman.init, key=key)
    return model, jnp.asarray(chance(key).integers(0, 4, 6))


def restricted(model):
    """The same, with `BEGIN` never said."""
    b = model.target.readout.b.at[BEGIN].set(-jnp.inf)
    return NextToken(model.target.embed, model.target.cell, Linear(model.target.readout.W, b))


@claim(
    "5.3-autoregressive",
    title="One token after another",
    kind="identity",
    of=("models.NextToken", "models.EncoderDecoder", "models.beam_search"),
)
def autoregressive(key):
    r"""$p(y_{1:n} \mid x) = \prod_i p(y_i \mid x, y_{1:i-1})$ is a distribution over sequences of
    length $n$; and if a token ends them, what has ended within $N$ steps and what still goes on
    make up 1.
    """
    n, end = 4, 0
    model, source = pair(key)
    cell, (_, state) = restricted(model), model.decoder(source)
    texts = np.array(list(product(range(3), repeat=n)))
    begun = np.concatenate([np.full((len(texts), 1), BEGIN), texts[:, :-1]], axis=1)
    logits = jax.jit(jax.vmap(lambda text: layers.unroll(cell, text, state=state)[1]))(
        jnp.asarray(begun)
    )
    steps = np.take_along_axis(np.asarray(jax.nn.softmax(logits)), texts[:, :, None], axis=2)[
        ..., 0
    ]
    p = steps.prod(axis=1)
    ended = {}
    for text, factors in zip(texts, steps):
        where = np.flatnonzero(text == end)
        if len(where):
            ended[tuple(text[: where[0] + 1])] = factors[: where[0] + 1].prod()
    going_on = sum(prob for text, prob in zip(texts, p) if end not in text)
    said = models.beam_search(cell, first=BEGIN, length=n, beam_width=81, state=state)
    place = np.asarray(said.tokens) @ 3 ** np.arange(n)[::-1]
    return Verdict(
        close("sum over all 81 sequences", p.sum(), 1.0, tolerance=1e-12),
        close(
            "the probability a search tells of each", np.exp(said.log_p), p[place], tolerance=1e-12
        ),
        equal("the search found all", np.sort(place), np.arange(81)),
        close(
            f"ended within 4 ({len(ended)} sequences), and not ended",
            sum(ended.values()) + going_on,
            1.0,
            tolerance=1e-12,
        ),
        refuted(close("ended within 4, alone", sum(ended.values()), 1.0, tolerance=1e-6)),
    )


@claim(
    "5.3-seq2seq",
    title="From sequence to sequence",
    kind="model",
    of=("models.EncoderDecoder", "models.sample"),
    cites="Sutskever, Vinyals & Le 2014",
)
def sequence_to_sequence(key):
    r"""An encoder maps $x_1, \dots, x_m$ to its last state $\zeta$; a decoder that begins in
    $z_0 = \zeta$ reads $y_1, \dots, y_{t-1}$, and $z_{t-1} \mapsto \mu_t$, from which $y_t$ is
    drawn. The likelihood of a given target is the product of the probabilities met on the way when
    its tokens are forced.
    """
    model, source = pair(key)
    target = np.array([BEGIN, 2, 0, 1, 1])
    read, cell = model.encoder.back, model.target.cell
    turned = np.asarray(model.source.E)[np.asarray(source)][::-1]
    zeta = elman(read.U, read.V, turned, b=np.asarray(read.b))[-1]
    z = elman(
        cell.U, cell.V, np.asarray(model.target.embed.E)[target], b=np.asarray(cell.b), z=zeta
    )[1:]
    logits = z @ np.asarray(model.target.readout.W).T + np.asarray(model.target.readout.b)
    by_hand = log_softmax(logits[:-1], axis=1)[np.arange(4), target[1:]].sum()
    batch = (source[None], jnp.asarray(target[None, :-1])), jnp.asarray(target[None, 1:])
    likelihood = jax.jit(lambda model: -4 * train.token_cross_entropy(model, batch))
    step, state = model.decoder(source)
    forced = 0.0
    for token, then in pairwise(target):
        state, out = step(state, jnp.asarray(token))
        forced += float(jax.nn.log_softmax(out)[then])
    theta, back = tree.ravel(model)
    step = restricted(model)
    state = model.decoder(source)[1]
    draw = jax.jit(
        jax.vmap(
            lambda key: models.sample(step, first=BEGIN, length=2, state=state, key=key).tokens
        )
    )
    drawn = np.asarray(draw(jr.split(key, 4000)))
    mu = softmax((logits[:1])[:, :3], axis=1)[0]
    second = [
        jax.nn.softmax(step(step(state, jnp.array(BEGIN))[0], jnp.array(y))[1])[:3]
        for y in range(3)
    ]
    expected = 4000 * (mu[:, None] * np.array(second)).ravel()
    return Verdict(
        close("teacher forcing, by hand", likelihood(model), by_hand, tolerance=1e-12),
        close("step by step with forced tokens", forced, by_hand, tolerance=1e-12),
        close(
            f"all {theta.size} derivatives",
            jax.jit(jax.grad(lambda v: likelihood(back(v))))(theta),
            jacobian(lambda v: likelihood(back(v)), theta, step=3e-4),
            **FD,
        ),
        likely(
            "4,000 pairs drawn, and μ: χ²",
            stats.chisquare(np.bincount(drawn @ [3, 1], minlength=9), expected).pvalue,
            false_alarm=1e-4,
        ),
        refuted(
            close(
                "a decoder that begins at 0",
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
