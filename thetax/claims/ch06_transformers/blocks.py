"""§6.4, lecture 10 A.23: what a transformer is made of: norms, small networks, blocks of an encoder
and a decoder.
"""

import jax
import jax.numpy as jnp
import numpy as np

from ... import layers, models, tree
from ...layers import CAUSAL, FeedForward, LayerNorm
from ...models import TransformerBlock, Trunk
from ..engine.chance import chance
from ..engine.check import at_least, close, equal, refuted
from ..engine.claim import Verdict, claim
from ..engine.differences import jacobian
from .by_loop import EXACT, FD, block, blocks, feed, layer_of, norm, slopes, spread

VASWANI = "Vaswani et al. 2017"


@claim(
    "6.4-layernorm",
    title="Normalised over the features",
    kind="layer",
    of=("layers.LayerNorm",),
    cites="Ba, Kiros & Hinton 2016",
)
def layer_norm(key):
    r"""$\mathrm{LN}(x) = g \odot (x - \bar x) / \sqrt{\mathrm{var}(x) + \varepsilon} + b$ over the
    features of a token, with the biased variance: mean 0 and variance 1 before $g$ and $b$, and the
    same for $cx + a$ with $c > 0$.
    """
    rng = chance(key)
    d = 7
    X = 3 * rng.normal(size=(4, d)) + 1
    g = rng.normal(size=d)
    b = rng.normal(size=d)
    layer = LayerNorm(jnp.asarray(g), jnp.asarray(b), 1e-3)
    each = lambda layer, X: np.asarray(jax.vmap(layer)(jnp.asarray(X)))
    plain = each(LayerNorm.init(d, epsilon=1e-14), X)
    moved = each(LayerNorm.init(d, epsilon=1e-14), 5 * X - 2)
    unbiased = b + g * (X - X.mean(axis=1, keepdims=True)) / np.sqrt(
        X.var(axis=1, ddof=1, keepdims=True) + 1e-3
    )
    pull, differences = slopes(
        lambda both: both[0](both[1]), (layer, jnp.asarray(X[0])), rng.normal(size=d)
    )
    return Verdict(
        close("by the formula", each(layer, X), norm(layer, X), **EXACT),
        refuted(
            close("by the formula, the variance unbiased", each(layer, X), unbiased, tolerance=1e-3)
        ),
        close("mean of each token", plain.mean(axis=1), 0.0, **EXACT),
        close("variance of each token", plain.var(axis=1), 1.0, **EXACT),
        close("of 5x − 2", moved, plain, tolerance=1e-11),
        refuted(close("of −x", each(LayerNorm.init(d), -X), plain, tolerance=1e-3)),
        close("all derivatives, in g, b and x", pull, differences, **FD),
    )


@claim(
    "6.4-pointwise-mlp",
    "L10-A23-ffn",
    title="A network for each token",
    kind="layer",
    of=("layers.FeedForward",),
    cites=VASWANI,
)
def pointwise(key):
    r"""$W_2 \varphi(W_1 x_t + b_1) + b_2$ with $\varphi = \max(0, \cdot)$ and the same weights for
    every token: two convolutions whose windows are one place wide, and no token is told of another.
    """
    rng, (T, d, m) = chance(key), (5, 4, 9)
    layer = spread(FeedForward.init(d, m, key=key), key)
    X = rng.normal(size=(T, d))
    order = rng.permutation(T)
    found = np.asarray(layer(jnp.asarray(X)))
    as_conv = lambda part: layers.Convolution(part.W[..., None], part.b)
    narrow = layers.Chain(as_conv(layer.up), layers.relu, as_conv(layer.down))
    slope = jacobian(layer, X)
    met = np.abs(slope).max(axis=(1, 3))
    return Verdict(
        close("token by token, in a loop", found, feed(layer, X), **EXACT),
        close("as convolutions with windows of 1", narrow(jnp.asarray(X.T)).T, found, **EXACT),
        close("tokens in another order", layer(jnp.asarray(X[order])), found[order], **EXACT),
        equal(
            "whose tokens an output depends on, by differences", met > 1e-8, np.eye(T, dtype=bool)
        ),
        equal("the same by automatic derivatives", blocks(layer, X) > 0, np.eye(T, dtype=bool)),
        refuted(
            close(
                "other weights for the last token",
                found[-1],
                feed(spread(layer, key), X)[-1],
                tolerance=1e-3,
            )
        ),
        equal("numbers: 2 d m + m + d", tree.size(layer), 2 * d * m + m + d),
    )


def silenced(part):
    """The block with nothing to say: the last maps of its parts are 0."""
    zero = lambda layer: jax.tree.map(jnp.zeros_like, layer)
    quiet = lambda a: layers.Attention(a.Q, a.K, a.V, zero(a.O), a.heads, a.groups)
    think = FeedForward(part.feed.up, zero(part.feed.down))
    return TransformerBlock(
        quiet(part.attention), part.norm, think, part.feed_norm, norms=part.norms
    )


@claim(
    "6.4-encoder",
    title="An encoder",
    kind="model",
    of=("models.Trunk", "models.TransformerBlock"),
    cites=VASWANI,
)
def encoder(key):
    r"""$N$ blocks of attention and a network for each token, each of the two with a residual and a
    norm: $x + f(\mathrm{LN}(x))$ with norms before, $\mathrm{LN}(x + f(x))$ as first published. A
    block has $4d^2 + 2 d\, d_{ff}$ weights, $5d + d_{ff}$ offsets and $4d$ numbers in its norms.
    """
    rng, (T, d, h, m, N) = chance(key), (4, 8, 2, 12, 2)
    X = jnp.asarray(rng.normal(size=(T, d)))
    checks = []
    call = jax.jit(lambda model, X: model(X))
    for norms in ("before", "after"):
        trunk = spread(Trunk.init(N, d, h, m, norms=norms, key=key), key)
        expected = np.asarray(X)
        for depth in range(N):
            expected = block(layer_of(trunk, depth), expected)
        expected = norm(trunk.last, expected) if norms == "before" else expected
        checks.append(
            close(f"norms {norms}: block after block, in NumPy", call(trunk, X), expected, **EXACT)
        )
        other = models.Trunk(trunk.blocks, None if norms == "before" else LayerNorm.init(d))
        checks.append(
            refuted(
                close(
                    f"norms {norms}: the last norm where it is not",
                    call(other, X),
                    expected,
                    tolerance=1e-3,
                )
            )
        )
    trunk = Trunk.init(N, d, h, m, key=key)
    pull, differences = slopes(lambda x: trunk(x), X, rng.normal(size=(T, d)))
    theta, against = slopes(lambda one: one(X), layer_of(trunk, 0), rng.normal(size=(T, d)))
    one = layer_of(trunk, 0)
    after = TransformerBlock.init(d, h, m, norms="after", key=key)
    return Verdict(
        *checks,
        equal("norms before, last maps 0: the identity", call(silenced(one), X), X),
        refuted(
            close(
                "norms after, last maps 0: the identity",
                call(silenced(after), X),
                X,
                tolerance=1e-3,
            )
        ),
        close("two blocks: the derivative in X", pull, differences, **FD),
        close(f"one block: the derivative in {len(theta)} numbers", theta, against, **FD),
        equal("numbers of a block", tree.size(one), 4 * d * d + 2 * d * m + 5 * d + m + 4 * d),
    )


@claim(
    "6.4-decoder",
    title="A decoder",
    kind="model",
    of=("models.Trunk", "models.Translator", "layers.CAUSAL"),
    cites=VASWANI,
)
def decoder(key):
    r"""$N$ blocks of masked attention over $y_{1:t-1}$, attention to $\Xi$ and a network for each
    token, each with a residual and a norm; then a linear map and a softmax for the next token. What
    is put out at $t$ does not depend on what comes after, and at every $t$ on all of $\Xi$.
    """
    rng, (T, s, d) = chance(key), (5, 3, 6)
    trunk = spread(Trunk.init(2, d, 2, 8, norms="after", memory=d, key=key), key)
    Y = jnp.asarray(rng.normal(size=(T, d)))
    memory = jnp.asarray(rng.normal(size=(s, d)))
    seen = np.tril(np.ones((T, T), bool))
    call = jax.jit(lambda Y, memory: trunk(Y, mask=CAUSAL, memory=memory))
    expected = np.asarray(Y)
    for depth in range(2):
        expected = block(layer_of(trunk, depth), expected, memory=np.asarray(memory), seen=seen)
    by_y = blocks(lambda Y: call(Y, memory), Y)
    by_memory = blocks(lambda memory: call(Y, memory), memory)
    moved = np.abs(np.asarray(call(Y, memory + rng.normal(size=(s, d))) - call(Y, memory))).max(
        axis=1
    )
    net = models.Translator.init(7, 5, d, depth=1, heads=2, tied=False, key=key)
    speak = jax.jit(lambda net, target: net((jnp.array([1, 2, 3]), target)))
    logits = speak(net, jnp.array([0, 4, 1, 2]))
    other = speak(net, jnp.array([0, 4, 3, 3]))
    free = blocks(lambda Y: trunk(Y, memory=memory), Y)
    return Verdict(
        close("block after block, in NumPy", call(Y, memory), expected, **EXACT),
        equal("∂out_t/∂y_s for s > t", by_y[~seen], np.zeros((~seen).sum())),
        at_least("∂out_t/∂y_s for s ≤ t", by_y[seen], 1e-9),
        refuted(
            equal("∂out_t/∂y_s for s > t, without a mask", free[~seen], np.zeros((~seen).sum()))
        ),
        at_least("∂out_t/∂ξ_j, all t and j", by_memory, 1e-9),
        at_least("another Ξ: how much every output changes", moved, 1e-3),
        equal("a translator's logits, shape", logits.shape, (4, 5)),
        equal("its first two, other tokens after", logits[:2], other[:2]),
        close("its probabilities sum to 1", jax.nn.softmax(logits).sum(axis=1), 1.0, **EXACT),
    )
