"""Lecture 10, A.26: attention to long sequences, without the table of all pairs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...explain import operations
from ...layers import (
    CAUSAL,
    Attention,
    Mask,
    attend,
    block_pairs,
    hierarchical_attention,
    linear_attention,
    sparse_attention,
)
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_least, between, close, equal, refuted
from ..engine.claim import Verdict, claim
from .by_loop import EXACT, attention, blocks, weights


def drawn(rng: np.random.Generator, T: int, d: int, e: int) -> tuple[Any, Any, Any]:
    """Queries, keys and values of one head."""
    return tuple(jnp.asarray(rng.normal(size=(T, 1, width))) for width in (d, d, e))  # type: ignore[return-value]


def flat(*heads: Any) -> list[np.ndarray]:
    """Without the axis of the one head."""
    return [np.asarray(head)[:, 0] for head in heads]


def allowed(pairs: Any, blocks: int, size: int) -> np.ndarray:
    """Who sees whom, token by token."""
    table = np.zeros((blocks, blocks), bool)
    table[tuple(np.array(pairs).T)] = True
    return np.kron(table, np.ones((size, size), bool))


def products(f: Any, *args: Any) -> int:
    """Operations in matrix products."""
    return operations(f, *args)["dot_general"]


def power(x: Any, y: Any) -> float:
    """The slope on logarithmic axes."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


@claim(
    "L10-A26-sparse-attention",
    title="Windows, a few seen by all, and chance links",
    kind="layer",
    of=("layers.sparse_attention", "layers.block_pairs", "layers.attend"),
    cites="Beltagy, Peters & Cohan 2020; Zaheer et al. 2020",
)
def sparse(key):
    r"""A token looks at a window of $w$ around it and at $g$ tokens that see and are seen by all,
    and perhaps at some drawn by chance: the softmax over these alone, as with scores of $-\infty$
    elsewhere, from $O(T(w + g))$ scores. By way of a token that is seen by all, two layers reach
    everywhere.
    """
    rng, (n, w, g, size) = chance(key), (6, 1, 1, 3)
    T = n * size
    m = n - g
    Q, K, V = drawn(rng, T, 4, 5)
    plain = block_pairs(n, window=w, everywhere=g)
    mixed = block_pairs(n, window=w, everywhere=g, random=1, seed=3)
    call = jax.jit(
        lambda pairs, mask: sparse_attention(pairs, size)(Q, K, V, mask), static_argnums=0
    )
    seen = {
        name: allowed(pairs, n, size)
        for name, pairs in {"Longformer": plain, "BigBird": mixed}.items()
    }
    causal = np.tril(np.ones((T, T), bool))
    tokens = block_pairs(12, window=1, everywhere=1)
    layer = Attention.init(4, 2, kernel=sparse_attention(tokens, 1), key=key)
    X = rng.normal(size=(12, 4))
    one = blocks(layer, X)
    two = blocks(lambda X: layer(layer(X)), X)
    full = block_pairs(n, window=n - 1)
    counts = [len(block_pairs(k, window=2, everywhere=1)) for k in (8, 16, 32, 64)]
    return Verdict(
        close(
            "Longformer, by loops over what is seen",
            call(plain, Mask())[:, 0],
            attention(*flat(Q, K, V), seen=seen["Longformer"]),
            **EXACT,
        ),
        close(
            "BigBird, against a mask on the whole table",
            call(mixed, Mask()),
            attend(Q, K, V, Mask(there=jnp.asarray(seen["BigBird"]))),
            **EXACT,
        ),
        close(
            "causal besides, against both masks",
            call(plain, CAUSAL)[:, 0],
            attention(*flat(Q, K, V), seen=seen["Longformer"] & causal),
            **EXACT,
        ),
        refuted(
            close(
                "Longformer, against the whole table",
                call(plain, Mask()),
                attend(Q, K, V),
                tolerance=1e-3,
            )
        ),
        close(
            "a window of everything: attention itself", call(full, Mask()), attend(Q, K, V), **EXACT
        ),
        equal(
            "pairs of blocks: n² − m² + m(2w + 1) − w(w + 1)",
            len(plain),
            n * n - m * m + m * (2 * w + 1) - w * (w + 1),
        ),
        equal("and one more from each block but the first, by chance", len(mixed), len(plain) + m),
        equal(
            "pairs for 8, 16, 32 and 64 blocks, w = 2: 7 more for each",
            np.diff(counts),
            7 * np.array([8, 16, 32]),
        ),
        equal("one layer, blocks of one token: who is reached", one > 0, allowed(tokens, 12, 1)),
        equal("two layers: tokens that are reached", np.count_nonzero(two), 144),
    )


def phi(x: np.ndarray) -> np.ndarray:
    """elu + 1, which is positive."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


@claim(
    "L10-A26-linear-attention",
    title="Scores that come apart",
    kind="layer",
    of=("layers.linear_attention", "layers.attend"),
    cites="Katharopoulos et al. 2020",
)
def linear(key):
    r"""$\Xi = \varphi(Q)(\varphi(K)^\top V) / \varphi(Q)(\varphi(K)^\top 1)$ with $\varphi > 0$:
    the product of keys and values is made first, in $O(Td^2)$. Causal, it is a recurrence with the
    state $S_t = S_{t-1} + \varphi(k_t)v_t^\top$, and the same as the masked table of $T^2$ scores.
    """
    rng, (T, d, e) = chance(key), (9, 3, 4)
    Q, K, V = drawn(rng, T, d, e)
    q, k, v = flat(Q, K, V)
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
        "linear": [products(linear_attention, *shapes(T)) for T in times],
        "linear, causal": [
            products(lambda q, k, v: linear_attention(q, k, v, CAUSAL), *shapes(T)) for T in times
        ],
        "softmax": [products(attend, *shapes(T)) for T in times[:5]],
    }
    long = drawn(rng, 150, d, e)
    far = np.tril(phi(flat(long[0])[0]) @ phi(flat(long[1])[0]).T)
    return Verdict(
        close(
            "keys and values first, against the table first",
            linear_attention(Q, K, V)[:, 0],
            first,
            tolerance=1e-10,
        ),
        close(
            "causal, against the masked table",
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
            "causal, 150 tokens, against the masked table",
            linear_attention(*long, CAUSAL)[:, 0],
            far @ flat(long[2])[0] / far.sum(axis=1, keepdims=True),
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
        between("operations: power of T", power(times, cost["linear"]), 0.99, 1.01),
        between("operations, causal: power of T", power(times, cost["linear, causal"]), 0.95, 1.05),
        between("operations of the softmax: power of T", power(times, cost["softmax"]), 1.99, 2.01),
        figure=Chart(
            Panel(
                "T",
                "operations in products, d = 16",
                log="xy",
                lines={name: (times, way) for name, way in cost.items()},
            )
        ),
    )


@claim(
    "L10-A26-hierarchical",
    title="Within blocks, then between them",
    kind="layer",
    of=("layers.hierarchical_attention", "layers.attend"),
    cites="Yang et al. 2016",
)
def hierarchical(key):
    r"""Tokens attend within their block of $b$, and the blocks, each as the mean of its tokens, to
    the other blocks: $Tb + (T/b)^2$ scores. One block of all tokens is full attention.
    """
    rng, (T, b, d) = chance(key), (12, 3, 4)
    Q, K, V = drawn(rng, T, d, d)
    q, k, v = flat(Q, K, V)
    parts = [slice(b * i, b * (i + 1)) for i in range(T // b)]
    near = np.concatenate([attention(q[part], k[part], v[part]) for part in parts])
    means = [np.array([x[part].mean(axis=0) for part in parts]) for x in (q, k, v)]
    far = attention(*means, seen=~np.eye(T // b, dtype=bool))
    expected = near + np.repeat(far, b, axis=0)
    call = lambda size: np.asarray(hierarchical_attention(size)(Q, K, V))
    layer = Attention.init(4, 2, kernel=hierarchical_attention(b), key=key)
    reached = blocks(layer, rng.normal(size=(T, 4)))
    scores = lambda T, b: T * b + (T // b) ** 2
    sizes = [(64, 4), (64, 8), (256, 16)]
    head = lambda T: [jax.ShapeDtypeStruct((T, 1, d), float)] * 3
    counted = [products(hierarchical_attention(b), *head(T)) // (4 * d) for T, b in sizes]
    T_long = 2 ** np.arange(6, 13)
    return Verdict(
        close("blocks of 3, by loops", call(b)[:, 0], expected, **EXACT),
        close("one block of all tokens: attention itself", call(T), attend(Q, K, V), **EXACT),
        refuted(close("blocks of 3: attention itself", call(b), attend(Q, K, V), tolerance=1e-3)),
        refuted(close("blocks of 3: within blocks alone", call(b)[:, 0], near, tolerance=1e-3)),
        at_least("every token is reached from every other", reached, 1e-9),
        equal("scores: Tb + (T/b)²", counted, [scores(T, b) for T, b in sizes]),
        refuted(equal("scores: T²", counted, [T * T for T, _ in sizes])),
        figure=Chart(
            Panel(
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
            )
        ),
    )
