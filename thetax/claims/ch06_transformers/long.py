"""Lecture 10, A.26: attention to long sequences, without the matrix of all pairs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...explain import count_flops
from ...layers import (
    CAUSAL,
    Attention,
    Mask,
    block_pairs,
    dot_product_attention,
    hierarchical_attention,
    linear_attention,
    sparse_attention,
)
from ...plot import Panel
from ..engine.check import at_least, between, close, equal, refuted
from ..engine.claim import Verdict, claim
from .by_loop import EXACT, attention, dependence, weights


def random_qkv(rng: np.random.Generator, T: int, d: int, e: int) -> tuple[Any, Any, Any]:
    """Queries, keys and values of one head."""
    return tuple(jnp.asarray(rng.normal(size=(T, 1, width))) for width in (d, d, e))  # type: ignore[return-value]


def without_head_axis(*heads: Any) -> list[np.ndarray]:
    """The arrays without the axis of the one head."""
    return [np.asarray(head)[:, 0] for head in heads]


def allowed(pairs: Any, dependence: int, size: int) -> np.ndarray:
    """The mask of visible pairs, token by token."""
    table = np.zeros((dependence, dependence), bool)
    table[tuple(np.array(pairs).T)] = True
    return np.kron(table, np.ones((size, size), bool))


def matmul_flops(f: Any, *args: Any) -> int:
    """FLOPs in matrix products."""
    return count_flops(f, *args)["dot_general"]


def power(x: Any, y: Any) -> float:
    """The slope on logarithmic axes."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


@claim(
    "L10-A26-sparse-attention",
    title="Sparse attention: windows, global tokens, random links",
    kind="layer",
    of=("layers.sparse_attention", "layers.block_pairs", "layers.dot_product_attention"),
    cites="Beltagy, Peters & Cohan 2020; Zaheer et al. 2020",
)
def sparse(key, rng):
    r"""A token attends to a window of $w$ around it, to $g$ global tokens, which attend to all and
    are visible to all, and optionally to some random tokens: a softmax over these only, as with
    scores of $-\infty$ elsewhere, from $O(T(w + g))$ scores. Through a global token, two layers
    connect all pairs.
    """
    n, w, g, size = 6, 1, 1, 3
    T = n * size
    m = n - g
    Q, K, V = random_qkv(rng, T, 4, 5)
    plain = block_pairs(n, window=w, global_blocks=g)
    mixed = block_pairs(n, window=w, global_blocks=g, random_blocks=1, seed=3)
    call = jax.jit(
        lambda pairs, mask: sparse_attention(pairs, size)(Q, K, V, mask), static_argnums=0
    )
    visible = {
        name: allowed(pairs, n, size)
        for name, pairs in {"Longformer": plain, "BigBird": mixed}.items()
    }
    causal = np.tril(np.ones((T, T), bool))
    tokens = block_pairs(12, window=1, global_blocks=1)
    layer = Attention.init(4, 2, kernel=sparse_attention(tokens, 1), key=key)
    X = rng.normal(size=(12, 4))
    one = dependence(layer, X)
    two = dependence(lambda X: layer(layer(X)), X)
    full = block_pairs(n, window=n - 1)
    counts = [len(block_pairs(k, window=2, global_blocks=1)) for k in (8, 16, 32, 64)]
    return Verdict(
        close(
            "Longformer, by loops over the visible pairs",
            call(plain, Mask())[:, 0],
            attention(*without_head_axis(Q, K, V), visible=visible["Longformer"]),
            **EXACT,
        ),
        close(
            "BigBird, against a mask on the full matrix",
            call(mixed, Mask()),
            dot_product_attention(Q, K, V, Mask(allowed=jnp.asarray(visible["BigBird"]))),
            **EXACT,
        ),
        close(
            "causal in addition, against both masks",
            call(plain, CAUSAL)[:, 0],
            attention(*without_head_axis(Q, K, V), visible=visible["Longformer"] & causal),
            **EXACT,
        ),
        refuted(
            close(
                "Longformer, against full attention",
                call(plain, Mask()),
                dot_product_attention(Q, K, V),
                tolerance=1e-3,
            )
        ),
        close(
            "a window over everything: full attention",
            call(full, Mask()),
            dot_product_attention(Q, K, V),
            **EXACT,
        ),
        equal(
            "pairs of blocks: n² − m² + m(2w + 1) − w(w + 1)",
            len(plain),
            n * n - m * m + m * (2 * w + 1) - w * (w + 1),
        ),
        equal("and one random block more for each block but the first", len(mixed), len(plain) + m),
        equal(
            "pairs for 8, 16, 32 and 64 blocks, w = 2: 7 more per block",
            np.diff(counts),
            7 * np.array([8, 16, 32]),
        ),
        equal("one layer, blocks of one token: connected pairs", one > 0, allowed(tokens, 12, 1)),
        equal("two layers: connected tokens", np.count_nonzero(two), 144),
    )


def phi(x: np.ndarray) -> np.ndarray:
    """elu + 1, which is positive."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


@claim(
    "L10-A26-linear-attention",
    title="Linear attention",
    kind="layer",
    of=("layers.linear_attention", "layers.dot_product_attention"),
    cites="Katharopoulos et al. 2020",
)
def linear(rng):
    r"""$\Xi = \varphi(Q)(\varphi(K)^\top V) / \varphi(Q)(\varphi(K)^\top 1)$ with $\varphi > 0$:
    the product of keys and values is computed first, in $O(Td^2)$. With a causal mask it is a
    recurrence with the state $S_t = S_{t-1} + \varphi(k_t)v_t^\top$, and equals the masked matrix
    of $T^2$ scores.
    """
    T, d, e = 9, 3, 4
    Q, K, V = random_qkv(rng, T, d, e)
    q, k, v = without_head_axis(Q, K, V)
    table = phi(q) @ phi(k).T
    first = table @ v / table.sum(axis=1, keepdims=True)
    masked = np.tril(table)
    S = np.zeros((d, e))
    z = np.zeros(d)
    steps = []
    for t in range(T):
        S = S + np.outer(phi(k[t]), v[t])
        z = z + phi(k[t])
        steps.append(phi(q[t]) @ S / (phi(q[t]) @ z))
    times = 2 ** np.arange(6, 11)
    shapes = lambda T: [jax.ShapeDtypeStruct((int(T), 1, 16), float)] * 3
    cost = {
        "linear": [matmul_flops(linear_attention, *shapes(T)) for T in times],
        "linear, causal": [
            matmul_flops(lambda q, k, v: linear_attention(q, k, v, CAUSAL), *shapes(T))
            for T in times
        ],
        "softmax": [matmul_flops(dot_product_attention, *shapes(T)) for T in times[:5]],
    }
    long = random_qkv(rng, 150, d, e)
    far = np.tril(phi(without_head_axis(long[0])[0]) @ phi(without_head_axis(long[1])[0]).T)
    return Verdict(
        close(
            "keys and values first, against the score matrix first",
            linear_attention(Q, K, V)[:, 0],
            first,
            tolerance=1e-10,
        ),
        close(
            "causal, against the masked matrix",
            linear_attention(Q, K, V, CAUSAL)[:, 0],
            masked @ v / masked.sum(axis=1, keepdims=True),
            tolerance=1e-10,
        ),
        close(
            "causal, against the recurrence",
            linear_attention(Q, K, V, CAUSAL)[:, 0],
            steps,
            tolerance=1e-10,
        ),
        close(
            "causal, 150 tokens, against the masked matrix",
            linear_attention(*long, CAUSAL)[:, 0],
            far @ without_head_axis(long[2])[0] / far.sum(axis=1, keepdims=True),
            tolerance=1e-10,
        ),
        refuted(
            close(
                "against the softmax",
                linear_attention(Q, K, V)[:, 0],
                weights(q, k) @ v,
                tolerance=1e-3,
            )
        ),
        between("FLOPs: power of T", power(times, cost["linear"]), 0.99, 1.01),
        between("FLOPs, causal: power of T", power(times, cost["linear, causal"]), 0.95, 1.05),
        between(
            "FLOPs of softmax attention: power of T", power(times, cost["softmax"]), 1.99, 2.01
        ),
        figure=Panel(
            "T",
            "FLOPs in matrix products, d = 16",
            log="xy",
            lines={name: (times, way) for name, way in cost.items()},
        ),
    )


@claim(
    "L10-A26-hierarchical",
    title="Hierarchical attention",
    kind="layer",
    of=("layers.hierarchical_attention", "layers.dot_product_attention"),
    cites="Yang et al. 2016",
)
def hierarchical(key, rng):
    r"""Tokens attend within their block of $b$, and the blocks, each as the mean of its tokens, to
    the other blocks: $Tb + (T/b)^2$ scores. With one block it is full attention.
    """
    T, b, d = 12, 3, 4
    Q, K, V = random_qkv(rng, T, d, d)
    q, k, v = without_head_axis(Q, K, V)
    parts = [slice(b * i, b * (i + 1)) for i in range(T // b)]
    near = np.concatenate([attention(q[part], k[part], v[part]) for part in parts])
    means = [np.array([x[part].mean(axis=0) for part in parts]) for x in (q, k, v)]
    far = attention(*means, visible=~np.eye(T // b, dtype=bool))
    expected = near + np.repeat(far, b, axis=0)
    call = lambda size: np.asarray(hierarchical_attention(size)(Q, K, V))
    layer = Attention.init(4, 2, kernel=hierarchical_attention(b), key=key)
    reached = dependence(layer, rng.normal(size=(T, 4)))
    scores = lambda T, b: T * b + (T // b) ** 2
    sizes = [(64, 4), (64, 8), (256, 16)]
    head = lambda T: [jax.ShapeDtypeStruct((T, 1, d), float)] * 3
    counted = [matmul_flops(hierarchical_attention(b), *head(T)) // (4 * d) for T, b in sizes]
    T_long = 2 ** np.arange(6, 13)
    return Verdict(
        close("blocks of 3, by loops", call(b)[:, 0], expected, **EXACT),
        close(
            "one block of all tokens: full attention",
            call(T),
            dot_product_attention(Q, K, V),
            **EXACT,
        ),
        refuted(
            close(
                "blocks of 3: full attention",
                call(b),
                dot_product_attention(Q, K, V),
                tolerance=1e-3,
            )
        ),
        refuted(
            close("blocks of 3: attention within blocks only", call(b)[:, 0], near, tolerance=1e-3)
        ),
        at_least("every token depends on every other", reached, 1e-9),
        equal("scores: Tb + (T/b)²", counted, [scores(T, b) for T, b in sizes]),
        refuted(equal("scores: T²", counted, [T * T for T, _ in sizes])),
        figure=Panel(
            "T",
            "scores",
            log="xy",
            lines={
                "all pairs": (T_long, T_long**2),
                "blocks of T^(1/3)": (
                    T_long,
                    [scores(T, round(T ** (1 / 3))) for T in T_long.tolist()],
                ),
            },
        ),
    )
