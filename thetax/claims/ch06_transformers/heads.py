"""§6.1, §6.2, lecture 10 A.22: several heads, another memory, and masks."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import tree
from ...layers import CAUSAL, Attention, Linear, Mask
from ..engine.chance import chance
from ..engine.check import at_least, close, equal, refuted
from ..engine.claim import Verdict, claim
from .by_loop import EXACT, FD, attention, linear, many_heads, slopes, spread

VASWANI = "Vaswani et al. 2017"


def random_heads(key, d, heads, **options):
    """A layer with offsets that are not 0."""
    return spread(Attention.init(d, heads, key=key, **options), jr.fold_in(key, 1))


def part(layer, rows):
    """Some rows of an affine layer."""
    return Linear(layer.W[rows], layer.b[rows])


def in_order(layer, order, size):
    """The heads in another order, and the columns of the last map with them."""
    rows = np.concatenate([size * head + np.arange(size) for head in order])
    Q, K, V = (part(m, rows) for m in (layer.Q, layer.K, layer.V))
    return Attention(Q, K, V, Linear(layer.O.W[:, rows], layer.O.b), layer.heads, layer.groups)


@claim(
    "6.1-mhsa",
    "L10-A22-multihead",
    title="Several heads",
    kind="layer",
    of=("layers.Attention",),
    cites=VASWANI,
)
def multi_head(key):
    r"""$h$ heads, each with its own $W_Q^k, W_K^k, W_V^k$; what they find is put side by side,
    $T \times h d_v$, and mapped by $W_O \in \mathbb{R}^{h d_v \times d}$. That is
    $\sum_k \mathrm{head}_k W_O^{(k)}$ with the blocks of rows of $W_O$, so heads have no order.
    """
    rng, (T, d, h) = chance(key), (5, 6, 3)
    layer = random_heads(key, d, h)
    X = rng.normal(size=(T, d))
    found = np.asarray(layer(jnp.asarray(X)))
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
    half = in_order(layer, [1, 0, 2], d // h)
    wrong = Attention(half.Q, half.K, half.V, layer.O, h, h)
    return Verdict(
        close("by loops over heads", found, many_heads(layer, X), **EXACT),
        close("as a sum over heads", found, summed, **EXACT),
        close(
            "one head, all matrices the identity: plain attention",
            single(jnp.asarray(X)),
            attention(X, X, X),
            **EXACT,
        ),
        close(
            "heads in another order, the blocks of W_O with them",
            in_order(layer, [2, 0, 1], d // h)(jnp.asarray(X)),
            found,
            **EXACT,
        ),
        refuted(
            close(
                "heads in another order, W_O as it was",
                wrong(jnp.asarray(X)),
                found,
                tolerance=1e-3,
            )
        ),
        close(f"all {len(pull)} derivatives, in the weights and in X", pull, differences, **FD),
    )


@claim(
    "6.1-mhsa-fused",
    title="One product for all heads",
    kind="identity",
    of=("layers.Attention",),
    cites=VASWANI,
)
def fused(key):
    r"""Three maps of width $h d_k$, cut into heads, are the $3h$ maps of the heads."""
    rng, (T, d, h) = chance(key), (5, 8, 4)
    layer = random_heads(key, d, h)
    X = rng.normal(size=(T, d))
    heads = [slice(d // h * k, d // h * (k + 1)) for k in range(h)]
    asked = layer.ask(jnp.asarray(X))
    shown = layer.show(jnp.asarray(X))
    each = lambda whole: np.stack(
        [np.asarray(jax.vmap(part(whole, rows))(jnp.asarray(X))) for rows in heads], axis=1
    )
    by_turns = each(layer.Q).transpose(0, 2, 1).reshape(T, h, -1)
    none = Linear(jnp.eye(2))
    small = [
        Attention(part(layer.Q, rows), part(layer.K, rows), part(layer.V, rows), none, 1, 1)
        for rows in heads
    ]
    found = np.concatenate([np.asarray(head(jnp.asarray(X))) for head in small], axis=1)
    return Verdict(
        close("queries", asked, each(layer.Q), tolerance=1e-13),
        close("keys", shown.keys, each(layer.K), tolerance=1e-13),
        close("values", shown.values, each(layer.V), tolerance=1e-13),
        refuted(close("queries, every fourth number to a head", asked, by_turns, tolerance=1e-3)),
        close(
            "what is found, by four layers of one head",
            layer(jnp.asarray(X)),
            linear(layer.O, found),
            tolerance=1e-13,
        ),
        equal("matrices held: 4, not 3h + 1", len(jax.tree.leaves(layer)) // 2, 4),
    )


@claim(
    "6.2-cross-attention",
    title="Attention to another sequence",
    kind="layer",
    of=("layers.Attention",),
    cites=VASWANI,
)
def cross(key):
    r"""$Q = AW_Q$ of one sequence, $K = BW_K$ and $V = BW_V$ of another, of other length and width:
    the weights are $T_a \times T_b$. The order of $B$ does not matter, that of $A$ goes through,
    and $B = A$ is self-attention.
    """
    rng, (a, b, d, e) = chance(key), (4, 6, 4, 3)
    layer = random_heads(key, d, 2, memory=e)
    A = rng.normal(size=(a, d))
    B = rng.normal(size=(b, e))
    call = lambda A, B: np.asarray(layer(jnp.asarray(A), jnp.asarray(B)))
    p = rng.permutation(a)
    r = rng.permutation(b)
    own = random_heads(key, d, 2)
    twice = own(jnp.asarray(A), jnp.asarray(A))
    c = rng.normal(size=(a, d))
    pull, differences = slopes(lambda t: t[0](*t[1:]), (layer, jnp.asarray(A), jnp.asarray(B)), c)
    return Verdict(
        close("by loops", call(A, B), many_heads(layer, A, B), **EXACT),
        equal(
            "shape of the weights", layer.weights(jnp.asarray(A), jnp.asarray(B)).shape, (2, a, b)
        ),
        equal("B = A: self-attention", twice, own(jnp.asarray(A))),
        close("rows of B in another order", call(A, B[r]), call(A, B), **EXACT),
        close(
            "rows of A in another order: so are those found", call(A[p], B), call(A, B)[p], **EXACT
        ),
        refuted(close("other rows in B", call(A, B + 1), call(A, B), tolerance=1e-3)),
        close(f"all {len(pull)} derivatives, in the weights, A and B", pull, differences, **FD),
    )


@claim(
    "L10-A22-self-cross-masked",
    title="Self, cross and masked",
    kind="layer",
    of=("layers.Attention", "layers.Mask", "layers.CAUSAL"),
    cites=VASWANI,
)
def three_kinds(key):
    r"""Self-attention takes queries, keys and values from one sequence, cross-attention keys and
    values from another, and causal self-attention lets $i$ see $j \le i$ alone: scores of $-\infty$
    before the softmax, whose rows still sum to 1. So no change at $s$ is noticed before $s$.
    """
    rng, (T, d) = chance(key), (6, 4)
    layer = random_heads(key, d, 2)
    X = rng.normal(size=(T, d))
    B = rng.normal(size=(3, d))
    seen = np.tril(np.ones((T, T), bool))
    call = jax.jit(lambda X: layer(X, mask=CAUSAL))
    found = np.asarray(call(jnp.asarray(X)))
    A = np.asarray(layer.weights(jnp.asarray(X), mask=CAUSAL))
    changed = {s: np.asarray(call(jnp.asarray(X).at[s].add(1.0))) for s in range(T)}
    late = [np.array_equal(changed[s][:s], found[:s]) for s in range(T)]
    felt = [np.abs(changed[s][s:] - found[s:]).max(axis=1).min() for s in range(T)]
    plain, moved = (np.asarray(layer(jnp.asarray(X).at[T - 1].add(step))) for step in (0.0, 1.0))
    window = Mask(before=2, after=0)
    near = seen & ~np.tril(np.ones((T, T), bool), -3)
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
        close("causal, by loops", found, many_heads(layer, X, seen=seen), **EXACT),
        equal("causal: x_s changed, the outputs before s are the same", late, [True] * T),
        at_least("causal: x_s changed, how much those from s on change", felt, 1e-6),
        refuted(
            equal(
                "not causal: the last token changed, the first output the same", moved[0], plain[0]
            )
        ),
        equal("causal: weights of what is later", A[:, ~seen], np.zeros((2, (~seen).sum()))),
        close("causal: rows sum to 1", A.sum(axis=2), 1.0, **EXACT),
        close(
            "the last three alone, by loops",
            layer(jnp.asarray(X), mask=window),
            many_heads(layer, X, seen=near),
            **EXACT,
        ),
        equal("the same θ for all of them: 4d² + 4d numbers", tree.size(layer), 4 * d * d + 4 * d),
    )
