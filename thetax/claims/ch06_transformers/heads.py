"""§6.1, §6.2, lecture 10 A.22: multi-head attention, cross-attention, and masks."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import tree
from ...layers import CAUSAL, Attention, Linear, Mask
from ..engine.check import at_least, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim
from .by_loop import EXACT, attention, linear, many_heads, perturbed, slopes


def random_heads(key, d, heads, **options):
    """An attention layer with biases that are not 0."""
    return perturbed(Attention.init(d, heads, key=key, **options), jr.fold_in(key, 1))


def affine_rows(layer, rows):
    """Some rows of an affine layer."""
    return Linear(layer.W[rows], layer.b[rows])


def permute_heads(layer, order, size):
    """The layer with permuted heads, and the columns of the output map permuted accordingly."""
    rows = np.concatenate([size * head + np.arange(size) for head in order])
    Q, K, V = (affine_rows(m, rows) for m in (layer.Q, layer.K, layer.V))
    return Attention(Q, K, V, Linear(layer.O.W[:, rows], layer.O.b), layer.heads, layer.kv_heads)


@claim(
    "6.1-mhsa",
    "L10-A22-multihead",
    title="Multi-head attention",
    kind="layer",
    of=("layers.Attention",),
    cites="Vaswani et al. 2017",
)
def multi_head(key, rng):
    r"""$h$ heads, each with its own $W_Q^k, W_K^k, W_V^k$; their outputs are concatenated,
    $T \times h d_v$, and mapped by $W_O \in \mathbb{R}^{h d_v \times d}$. That is
    $\sum_k \mathrm{head}_k W_O^{(k)}$ with the blocks of rows of $W_O$, so the order of the heads
    does not matter.
    """
    T, d, h = 5, 6, 3
    layer = random_heads(key, d, h)
    X = rng.normal(size=(T, d))
    result = np.asarray(layer(jnp.asarray(X)))
    maps = [np.split(linear(m, X), h, axis=1) for m in (layer.Q, layer.K, layer.V)]
    tops = np.split(np.asarray(layer.O.W).T, h)
    summed = sum(attention(*head) @ top for head, top in zip(zip(*maps), tops)) + np.asarray(
        layer.O.b
    )
    unit = Linear(jnp.eye(d))
    single = Attention(unit, unit, unit, unit, 1, 1)
    pull, differences = slopes(
        lambda both: both[0](both[1]), (layer, jnp.asarray(X)), rng.normal(size=(T, d))
    )
    half = permute_heads(layer, [1, 0, 2], d // h)
    wrong = Attention(half.Q, half.K, half.V, layer.O, h, h)
    return Verdict(
        close("by loops over heads", result, many_heads(layer, X), **EXACT),
        close("as a sum over heads", result, summed, **EXACT),
        close(
            "one head, all matrices the identity: plain attention",
            single(jnp.asarray(X)),
            attention(X, X, X),
            **EXACT,
        ),
        close(
            "permuted heads and permuted blocks of W_O",
            permute_heads(layer, [2, 0, 1], d // h)(jnp.asarray(X)),
            result,
            **EXACT,
        ),
        refuted(
            close(
                "permuted heads, W_O unchanged",
                wrong(jnp.asarray(X)),
                result,
                tolerance=1e-3,
            )
        ),
        close_derivative(
            f"all {len(pull)} derivatives, by the weights and by X",
            pull,
            differences,
            tolerance=1e-7,
        ),
    )


@claim(
    "6.1-mhsa-fused",
    title="One product for all heads",
    kind="identity",
    of=("layers.Attention",),
    cites="Vaswani et al. 2017",
)
def fused(key, rng):
    r"""Three maps of width $h d_k$, split into heads, are the $3h$ maps of the heads."""
    T, d, h = 5, 8, 4
    layer = random_heads(key, d, h)
    X = rng.normal(size=(T, d))
    heads = [slice(d // h * k, d // h * (k + 1)) for k in range(h)]
    queries = layer.queries(jnp.asarray(X))
    keys_values = layer.keys_values(jnp.asarray(X))
    each = lambda matrix: np.stack(
        [np.asarray(jax.vmap(affine_rows(matrix, rows))(jnp.asarray(X))) for rows in heads], axis=1
    )
    by_turns = each(layer.Q).transpose(0, 2, 1).reshape(T, h, -1)
    none = Linear(jnp.eye(2))
    small = [
        Attention(
            affine_rows(layer.Q, rows),
            affine_rows(layer.K, rows),
            affine_rows(layer.V, rows),
            none,
            1,
            1,
        )
        for rows in heads
    ]
    result = np.concatenate([np.asarray(head(jnp.asarray(X))) for head in small], axis=1)
    return Verdict(
        close("queries", queries, each(layer.Q), tolerance=1e-13),
        close("keys", keys_values.keys, each(layer.K), tolerance=1e-13),
        close("values", keys_values.values, each(layer.V), tolerance=1e-13),
        refuted(
            close("queries, with every fourth column to a head", queries, by_turns, tolerance=1e-3)
        ),
        close(
            "output, by four layers of one head",
            layer(jnp.asarray(X)),
            linear(layer.O, result),
            tolerance=1e-13,
        ),
        equal("stored matrices: 4, not 3h + 1", len(jax.tree.leaves(layer)) // 2, 4),
    )


@claim(
    "6.2-cross-attention",
    title="Cross-attention",
    kind="layer",
    of=("layers.Attention",),
    cites="Vaswani et al. 2017",
)
def cross(key, rng):
    r"""$Q = AW_Q$ of one sequence, $K = BW_K$ and $V = BW_V$ of another, of different length and
    width: the weights are $T_a \times T_b$. The output is invariant to the order of $B$ and
    equivariant to that of $A$, and $B = A$ is self-attention.
    """
    a, b, d, e = 4, 6, 4, 3
    layer = random_heads(key, d, 2, memory_dim=e)
    A = rng.normal(size=(a, d))
    B = rng.normal(size=(b, e))
    call = lambda A, B: np.asarray(layer(jnp.asarray(A), jnp.asarray(B)))
    p = rng.permutation(a)
    r = rng.permutation(b)
    own = random_heads(key, d, 2)
    self_attention = own(jnp.asarray(A), jnp.asarray(A))
    c = rng.normal(size=(a, d))
    pull, differences = slopes(lambda t: t[0](*t[1:]), (layer, jnp.asarray(A), jnp.asarray(B)), c)
    return Verdict(
        close("by loops", call(A, B), many_heads(layer, A, B), **EXACT),
        equal(
            "shape of the weights", layer.weights(jnp.asarray(A), jnp.asarray(B)).shape, (2, a, b)
        ),
        equal("B = A: self-attention", self_attention, own(jnp.asarray(A))),
        close("rows of B permuted", call(A, B[r]), call(A, B), **EXACT),
        close("rows of A permuted: the outputs likewise", call(A[p], B), call(A, B)[p], **EXACT),
        refuted(close("other rows in B", call(A, B + 1), call(A, B), tolerance=1e-3)),
        close_derivative(
            f"all {len(pull)} derivatives, by the weights, A and B",
            pull,
            differences,
            tolerance=1e-7,
        ),
    )


@claim(
    "L10-A22-self-cross-masked",
    title="Self-attention, cross-attention and masked attention",
    kind="layer",
    of=("layers.Attention", "layers.Mask", "layers.CAUSAL"),
    cites="Vaswani et al. 2017",
)
def three_kinds(key, rng):
    r"""Self-attention takes queries, keys and values from one sequence, cross-attention keys and
    values from another, and causal self-attention lets $i$ attend to $j \le i$ only: scores of
    $-\infty$ before the softmax, whose rows still sum to 1. So a change at $s$ has no effect before
    $s$.
    """
    T, d = 6, 4
    layer = random_heads(key, d, 2)
    X = rng.normal(size=(T, d))
    B = rng.normal(size=(3, d))
    causal_mask = np.tril(np.ones((T, T), bool))
    call = jax.jit(lambda X: layer(X, mask=CAUSAL))
    result = np.asarray(call(jnp.asarray(X)))
    A = np.asarray(layer.weights(jnp.asarray(X), mask=CAUSAL))
    changed = {s: np.asarray(call(jnp.asarray(X).at[s].add(1.0))) for s in range(T)}
    late = [np.array_equal(changed[s][:s], result[:s]) for s in range(T)]
    felt = [np.abs(changed[s][s:] - result[s:]).max(axis=1).min() for s in range(T)]
    plain, after_change = (
        np.asarray(layer(jnp.asarray(X).at[T - 1].add(step))) for step in (0.0, 1.0)
    )
    window = Mask(before=2, after=0)
    near = causal_mask & ~np.tril(np.ones((T, T), bool), -3)
    return Verdict(
        close("self, by loops", plain, many_heads(layer, X), **EXACT),
        close(
            "cross, by loops",
            layer(jnp.asarray(X), jnp.asarray(B)),
            many_heads(layer, X, B),
            **EXACT,
        ),
        equal(
            "cross: shape of the weights",
            layer.weights(jnp.asarray(X), jnp.asarray(B)).shape,
            (2, T, 3),
        ),
        close("causal, by loops", result, many_heads(layer, X, visible=causal_mask), **EXACT),
        equal("causal: x_s changed, the outputs before s are the same", late, [True] * T),
        at_least("causal: x_s changed, the change of the outputs from s on", felt, 1e-6),
        refuted(
            equal(
                "not causal: the last token changed, the first output the same",
                after_change[0],
                plain[0],
            )
        ),
        equal(
            "causal: weights of later tokens",
            A[:, ~causal_mask],
            np.zeros((2, (~causal_mask).sum())),
        ),
        close("causal: rows sum to 1", A.sum(axis=2), 1.0, **EXACT),
        close(
            "a window of the last three, by loops",
            layer(jnp.asarray(X), mask=window),
            many_heads(layer, X, visible=near),
            **EXACT,
        ),
        equal(
            "the same θ for all of them: 4d² + 4d parameters", tree.size(layer), 4 * d * d + 4 * d
        ),
    )
