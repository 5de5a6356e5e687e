"""§6.5: BERT, a bidirectional encoder, and the masked-language-model loss."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float
from scipy.special import logsumexp
from scipy.stats import norm as normal

from ... import data, layers, train, tree
from ...models import BERT, BERTPretraining, SentenceClassifier, TokenClassifier, Translator
from ...plot import Heatmap
from ..engine.check import at_least, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim
from ..engine.differences import jacobian
from .bert_learning import CLS, MASK, SEP, SPECIAL, encoder
from .by_loop import EXACT, block, layer_of, linear, norm, perturbed, slopes, softmax


@claim(
    "6.5-bert",
    title="Every token attends to all others",
    kind="model",
    of=("models.BERT", "models.Translator", "models.SentenceClassifier", "models.TokenClassifier"),
    cites="Devlin et al. 2019",
)
def every_token(key, rng):
    r"""The encoder of a transformer on token, position and segment embeddings, without a causal
    mask: $\xi_i$ depends on $x_j$ for all $i$ and $j$. On top there is a head for the task.
    BERT-base, with the pooling layer, has 109,482,240 parameters.
    """
    T = 6
    draw: Any = {"depth": 2, "heads": 2, "hidden": 6}
    model = perturbed(
        BERT.init(11, 4, max_length=8, eps=1e-5, activation=layers.relu, key=key, **draw), key, 0.3
    )
    tokens = jnp.asarray(rng.permutation(11)[:T])
    segments = jnp.array([0, 0, 0, 1, 1, 1])
    x = (tokens, segments)
    E = model.embed.E
    heard = lambda V: eqx.tree_at(lambda m: m.embed.E, model, E.at[tokens].set(V))(x)
    causal = lambda X: model.trunk(X, mask=layers.CAUSAL)
    size = lambda f, X: np.abs(jacobian(jax.jit(f), X)).max(axis=(1, 3))
    all_hear = size(heard, E[tokens])
    left_hear = size(causal, model.input_embeddings(x))
    rows = (
        np.asarray(E)[tokens]
        + np.asarray(model.positions.P)[:T]
        + np.asarray(model.segments.E)[segments]
    )
    looped = norm(model.norm, rows)
    for depth in range(2):
        looped = block(layer_of(model.trunk, depth), looped)
    other = Translator.init(11, 11, 4, norms="after", key=key, **draw).encoder
    same = tree.ravel(other)[1](tree.ravel(model.trunk)[0])
    call = jax.jit(lambda model, x: model(x))
    sentence = perturbed(SentenceClassifier.init(model, 3, key=key), key)
    tagger = perturbed(TokenClassifier.init(model, 3, key=key), key)
    pooled = np.tanh(linear(sentence.pool, np.asarray(call(sentence.bert, x))[:1]))
    full = jax.eval_shape(lambda key: BERT.init(30_522, key=key), key)
    result = call(model, x)
    enter = model.input_embeddings(x)
    return Verdict(
        at_least("∂ξ_i/∂x_j for all i and j, by differences", all_hear, 1e-3),
        equal(
            "its trunk with a causal mask: which ξ_i depend on which x_j",
            left_hear > 1e-9,
            np.tri(T, dtype=bool),
        ),
        close(
            "by loops: the sum of three embeddings, the norm, two blocks", result, looped, **EXACT
        ),
        close(
            "the encoder of a translator with the same weights", call(same, enter), result, **EXACT
        ),
        refuted(close("with its own weights", call(other, enter), result, tolerance=1e-3)),
        close(
            "the sentence classification head",
            call(sentence, x),
            linear(sentence.head, pooled)[0],
            **EXACT,
        ),
        close(
            "the token classification head",
            call(tagger, x),
            linear(tagger.head, np.asarray(call(tagger.bert, x))),
            **EXACT,
        ),
        equal(
            "parameters of BERT-base, with the pooling layer",
            tree.size(full) + 768 * 769,
            109_482_240,
        ),
        figure=Heatmap(all_hear, "token j", "vector i", title="dependence of ξ_i on x_j"),
    )


class FixedVectors(eqx.Module):
    """A stand-in for BERT that returns fixed vectors; the segments hold the index of the text."""

    embed: layers.Embedding
    vectors: Float[Array, "n t d"]

    def __call__(self, x: Any) -> Float[Array, "t d"]:
        return self.vectors[x[1][0]]


class FixedLogits(eqx.Module):
    """A model that returns fixed logits, by the index of the text."""

    logits: Float[Array, "n t v"]

    def __call__(self, x: Any) -> Float[Array, "t v"]:
        return self.logits[x]


def by_hand(net: BERTPretraining, vectors: Any, tokens: np.ndarray, follows: np.ndarray) -> Any:
    """Logits and loss at every position, and the mean next-sentence loss, from the last vectors."""
    n, T, d = vectors.shape
    hidden = linear(net.transform, np.asarray(vectors).reshape(n * T, d))
    logits = norm(net.norm, hidden * normal.cdf(hidden)) @ np.asarray(
        net.bert.embed.E
    ).T + np.asarray(net.b)
    logits = logits.reshape(n, T, -1)
    cost = (
        logsumexp(logits, axis=2)
        - np.take_along_axis(logits, np.maximum(tokens, 0)[..., None], axis=2)[..., 0]
    )
    follow_logits = linear(net.next_sentence, np.tanh(linear(net.pool, np.asarray(vectors)[:, 0])))
    return (
        logits,
        cost,
        np.mean([logsumexp(row) - row[y] for row, y in zip(follow_logits, follows)]),
    )


def expected_slope(logits: np.ndarray, tokens: np.ndarray, is_target: np.ndarray) -> np.ndarray:
    r"""$(p - 1_{x_i}) / |M|$ at the masked positions, 0 elsewhere, by a loop."""
    slope = np.zeros(logits.shape)
    for i, t in np.argwhere(is_target):
        slope[i, t] = (
            softmax(logits[i, t]) - np.eye(logits.shape[2])[tokens[i, t]]
        ) / is_target.sum()
    return slope


@claim(
    "6.5-mlm-loss",
    title="The masked-language-model loss",
    kind="loss",
    of=(
        "train.masked_cross_entropy",
        "train.bert_pretraining",
        "data.mask_tokens",
        "models.BERTPretraining",
    ),
    cites="Devlin et al. 2019",
)
def at_gaps(key, rng):
    r"""$-\frac{1}{|M|} \sum_{i \in M} \log p(x_i \mid \tilde x)$ over the masked positions $M$: at
    all others the gradient in the logits is exactly 0, and at $i \in M$ it is
    $(p - 1_{x_i}) / |M|$. BERT's loss is the sum of this and the next-sentence loss.
    """
    n, T, V = 10, 8, 12
    tokens = rng.integers(len(SPECIAL), V, size=(n, T))
    tokens[:, 0], tokens[:, 4], tokens[:, 6], tokens[:, 7] = CLS, SEP, SEP, -1
    follows = rng.integers(2, size=n)
    gaps = {"mask_id": MASK, "special_ids": SPECIAL, "mask_rate": 0.4}
    net = perturbed(
        BERTPretraining.init(encoder(V - len(SPECIAL), 4, length=T, key=key), key=key), key, 0.3
    )
    batch = (jnp.asarray(tokens), jnp.tile(jnp.arange(n)[:, None], (1, T))), jnp.asarray(follows)
    put = lambda net, vectors: eqx.tree_at(
        lambda m: m.bert, net, FixedVectors(net.bert.embed, vectors)
    )
    fill = train.masked_cross_entropy(**gaps)
    both = train.bert_pretraining(**gaps)
    vectors = jnp.asarray(rng.normal(size=(n, T, 4)))
    of = lambda objective: (
        lambda vectors, net, batch, key: objective(put(net, vectors), batch, key=key)
    )
    loss, slope = jax.jit(jax.value_and_grad(of(fill)))(vectors, net, batch, key)
    total = jax.jit(of(both))(vectors, net, batch, key)
    is_target = np.abs(np.asarray(slope)).max(axis=2) > 0
    logits, cost, follow = by_hand(net, vectors, tokens, follows)
    hide = jax.jit(lambda tokens, key: data.mask_tokens(tokens, vocab_size=V, key=key, **gaps))
    targets = hide(batch[0][0], jr.fold_in(key, 1))[1]
    pulls = jax.jit(jax.grad(train.token_cross_entropy))(
        FixedLogits(jnp.asarray(logits)), (jnp.arange(n), targets)
    ).logits
    masked = np.asarray(targets) >= 0
    small = (jnp.asarray(tokens[:2]), jnp.array(2 * [[0] * 5 + [1] * 3])), batch[1][:2]
    pull, differences = slopes(lambda net: both(net, small, key=key), net, 1.0)
    return Verdict(
        equal(
            "special tokens or padding with a gradient",
            (is_target & (tokens < len(SPECIAL))).sum(),
            0,
        ),
        at_least("positions with a gradient, of 50 words", is_target.sum(), 5),
        close(
            "the mean over the masked positions, by a loop", loss, cost[is_target].mean(), **EXACT
        ),
        refuted(
            close(
                "the mean over all words", loss, cost[tokens >= len(SPECIAL)].mean(), tolerance=1e-6
            )
        ),
        equal("gradient in the logits where nothing is masked", pulls[~masked], 0.0),
        close("gradient in the logits", pulls, expected_slope(logits, tokens, masked), **EXACT),
        close(
            "with the next-sentence loss: the sum", total, cost[is_target].mean() + follow, **EXACT
        ),
        close_derivative(
            f"its derivative by all {len(pull)} parameters of a network",
            pull,
            differences,
            tolerance=1e-7,
        ),
    )
