"""§6.4, lecture 10 A.23: the parts of a transformer: layer norms, feed-forward networks, encoder
and decoder blocks.
"""

import jax
import jax.numpy as jnp
import numpy as np

from ... import layers, models, tree
from ...layers import CAUSAL, FeedForward, LayerNorm
from ...models import TransformerBlock, Trunk
from ..engine.check import at_least, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim
from ..engine.differences import jacobian
from .by_loop import EXACT, block, dependence, feed_forward, layer_of, norm, perturbed, slopes


@claim(
    "6.4-layernorm",
    title="Layer normalisation",
    kind="layer",
    of=("layers.LayerNorm",),
    cites="Ba, Kiros & Hinton 2016",
)
def layer_norm(rng):
    r"""$\mathrm{LN}(x) = g \odot (x - \bar x) / \sqrt{\mathrm{var}(x) + \varepsilon} + b$ over the
    features of a token, with the biased variance: mean 0 and variance 1 before $g$ and $b$, and the
    same for $cx + a$ with $c > 0$.
    """
    d = 7
    X = 3 * rng.normal(size=(4, d)) + 1
    g = rng.normal(size=d)
    b = rng.normal(size=d)
    layer = LayerNorm(jnp.asarray(g), jnp.asarray(b), 1e-3)
    each = lambda layer, X: np.asarray(jax.vmap(layer)(jnp.asarray(X)))
    plain = each(LayerNorm.init(d, eps=1e-14), X)
    shifted = each(LayerNorm.init(d, eps=1e-14), 5 * X - 2)
    unbiased = b + g * (X - X.mean(axis=1, keepdims=True)) / np.sqrt(
        X.var(axis=1, ddof=1, keepdims=True) + 1e-3
    )
    pull, differences = slopes(
        lambda both: both[0](both[1]), (layer, jnp.asarray(X[0])), rng.normal(size=d)
    )
    return Verdict(
        close("by the formula", each(layer, X), norm(layer, X), **EXACT),
        refuted(
            close(
                "by the formula with the unbiased variance",
                each(layer, X),
                unbiased,
                tolerance=1e-3,
            )
        ),
        close("mean of each token", plain.mean(axis=1), 0.0, **EXACT),
        close("variance of each token", plain.var(axis=1), 1.0, **EXACT),
        close("of 5x − 2", shifted, plain, tolerance=1e-11),
        refuted(close("of −x", each(LayerNorm.init(d), -X), plain, tolerance=1e-3)),
        close_derivative("all derivatives, in g, b and x", pull, differences, tolerance=1e-7),
    )


@claim(
    "6.4-pointwise-mlp",
    "L10-A23-ffn",
    title="The position-wise feed-forward network",
    kind="layer",
    of=("layers.FeedForward",),
    cites="Vaswani et al. 2017",
)
def pointwise(key, rng):
    r"""$W_2 \varphi(W_1 x_t + b_1) + b_2$ with $\varphi = \max(0, \cdot)$ and the same weights for
    every token: two convolutions with kernels of size 1, without interaction between tokens.
    """
    T, d, m = 5, 4, 9
    layer = perturbed(FeedForward.init(d, m, key=key), key)
    X = rng.normal(size=(T, d))
    order = rng.permutation(T)
    result = np.asarray(layer(jnp.asarray(X)))
    as_conv = lambda part: layers.Convolution(part.W[..., None], part.b)
    narrow = layers.Chain(as_conv(layer.up), layers.relu, as_conv(layer.down))
    slope = jacobian(layer, X)
    met = np.abs(slope).max(axis=(1, 3))
    return Verdict(
        close("token by token, in a loop", result, feed_forward(layer, X), **EXACT),
        close(
            "as convolutions with kernels of size 1", narrow(jnp.asarray(X.T)).T, result, **EXACT
        ),
        close("tokens in another order", layer(jnp.asarray(X[order])), result[order], **EXACT),
        equal(
            "dependence of the outputs on the tokens, by finite differences",
            met > 1e-8,
            np.eye(T, dtype=bool),
        ),
        equal(
            "the same by automatic differentiation", dependence(layer, X) > 0, np.eye(T, dtype=bool)
        ),
        refuted(
            close(
                "other weights for the last token",
                result[-1],
                feed_forward(perturbed(layer, key), X)[-1],
                tolerance=1e-3,
            )
        ),
        equal("parameters: 2 d m + m + d", tree.size(layer), 2 * d * m + m + d),
    )


def zero_outputs(part):
    """The block whose output maps are 0."""
    zero = lambda layer: jax.tree.map(jnp.zeros_like, layer)
    quiet = lambda a: layers.Attention(a.Q, a.K, a.V, zero(a.O), a.heads, a.kv_heads)
    think = FeedForward(part.feed.up, zero(part.feed.down))
    return TransformerBlock(
        quiet(part.attention), part.norm, think, part.feed_norm, norms=part.norms
    )


@claim(
    "6.4-encoder",
    title="The transformer encoder",
    kind="model",
    of=("models.Trunk", "models.TransformerBlock"),
    cites="Vaswani et al. 2017",
)
def encoder(key, rng):
    r"""$N$ blocks of attention and a feed-forward network, each of the two with a residual
    connection and a layer norm: $x + f(\mathrm{LN}(x))$ with pre-norm, $\mathrm{LN}(x + f(x))$ with
    post-norm, as first published. A block has $4d^2 + 2 d\, d_{ff}$ weights, $5d + d_{ff}$ biases
    and $4d$ parameters in its norms.
    """
    T, d, h, m, N = 4, 8, 2, 12, 2
    X = jnp.asarray(rng.normal(size=(T, d)))
    checks = []
    call = jax.jit(lambda model, X: model(X))
    for norms in ("before", "after"):
        trunk = perturbed(Trunk.init(N, d, h, m, norms=norms, key=key), key)
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
                    f"norms {norms}: with the final norm of the other form",
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
        equal("pre-norm, output maps 0: the identity", call(zero_outputs(one), X), X),
        refuted(
            close(
                "post-norm, output maps 0: the identity",
                call(zero_outputs(after), X),
                X,
                tolerance=1e-3,
            )
        ),
        close_derivative("two blocks: the derivative by X", pull, differences, tolerance=1e-7),
        close_derivative(
            f"one block: the derivative by {len(theta)} parameters", theta, against, tolerance=1e-7
        ),
        equal("parameters of a block", tree.size(one), 4 * d * d + 2 * d * m + 5 * d + m + 4 * d),
    )


@claim(
    "6.4-decoder",
    title="The transformer decoder",
    kind="model",
    of=("models.Trunk", "models.Translator", "layers.CAUSAL"),
    cites="Vaswani et al. 2017",
)
def decoder(key, rng):
    r"""$N$ blocks of causal self-attention over $y_{1:t-1}$, cross-attention to $\Xi$ and a
    feed-forward network, each with a residual connection and a layer norm; then a linear map and a
    softmax for the next token. The output at $t$ does not depend on later tokens, and depends on
    all of $\Xi$.
    """
    T, s, d = 5, 3, 6
    trunk = perturbed(Trunk.init(2, d, 2, 8, norms="after", memory_dim=d, key=key), key)
    Y = jnp.asarray(rng.normal(size=(T, d)))
    memory = jnp.asarray(rng.normal(size=(s, d)))
    causal = np.tril(np.ones((T, T), bool))
    call = jax.jit(lambda Y, memory: trunk(Y, mask=CAUSAL, memory=memory))
    expected = np.asarray(Y)
    for depth in range(2):
        expected = block(
            layer_of(trunk, depth), expected, memory=np.asarray(memory), visible=causal
        )
    by_y = dependence(lambda Y: call(Y, memory), Y)
    by_memory = dependence(lambda memory: call(Y, memory), memory)
    change = np.abs(np.asarray(call(Y, memory + rng.normal(size=(s, d))) - call(Y, memory))).max(
        axis=1
    )
    net = models.Translator.init(7, 5, d, depth=1, heads=2, tied=False, key=key)
    speak = jax.jit(lambda net, target: net((jnp.array([1, 2, 3]), target)))
    logits = speak(net, jnp.array([0, 4, 1, 2]))
    other = speak(net, jnp.array([0, 4, 3, 3]))
    free = dependence(lambda Y: trunk(Y, memory=memory), Y)
    return Verdict(
        close("block after block, in NumPy", call(Y, memory), expected, **EXACT),
        equal("∂out_t/∂y_s for s > t", by_y[~causal], np.zeros((~causal).sum())),
        at_least("∂out_t/∂y_s for s ≤ t", by_y[causal], 1e-9),
        refuted(
            equal("∂out_t/∂y_s for s > t, without a mask", free[~causal], np.zeros((~causal).sum()))
        ),
        at_least("∂out_t/∂ξ_j, all t and j", by_memory, 1e-9),
        at_least("another Ξ: change of every output", change, 1e-3),
        equal("shape of a translator's logits", logits.shape, (4, 5)),
        equal("its first two logits, with other later tokens", logits[:2], other[:2]),
        close("its probabilities sum to 1", jax.nn.softmax(logits).sum(axis=1), 1.0, **EXACT),
    )
