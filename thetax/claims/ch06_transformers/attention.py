"""§6.1, lecture 10 A.21: queries, keys and values."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy.optimize import linprog
from scipy.stats import entropy

from ... import layers
from ...layers import Linear, Mask, attention_weights, dot_product_attention
from ...plot import Chart, Panel
from ..engine.check import (
    at_least,
    at_most,
    between,
    close,
    close_derivative,
    decreasing,
    equal,
    refuted,
    within,
)
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian
from .by_loop import EXACT, attention, dependence, one_head, weights

OF = ("layers.dot_product_attention", "layers.attention_weights")


def attention_table(Q, K, mask=layers.FULL):
    """The library's attention weights of one head."""
    return np.asarray(attention_weights(jnp.asarray(Q)[:, None], jnp.asarray(K)[:, None], mask)[0])


def random_qkv(rng, t, s, d, e):
    """Random queries, keys and values."""
    return rng.normal(size=(t, d)), rng.normal(size=(s, d)), rng.normal(size=(s, e))


@claim(
    "6.1-qkv",
    title="Queries, keys and values",
    kind="definition",
    of=("layers.Attention",),
    cites="Vaswani et al. 2017",
)
def projections(rng):
    r"""$Q = XW_Q$, $K = XW_K$ and $V = XW_V$ with $X \in \mathbb{R}^{T \times d}$,
    $W_Q, W_K \in \mathbb{R}^{d \times d_k}$ and $W_V \in \mathbb{R}^{d \times d_v}$: row $i$ of
    each depends on token $i$ alone.
    """
    T, d, d_k, d_v = 5, 4, 3, 2
    W_Q, W_K, W_V, X = *(rng.normal(size=(d, m)) for m in (d_k, d_k, d_v)), rng.normal(size=(T, d))
    out = Linear(jnp.asarray(rng.normal(size=(d, d_v))))
    Q, K, V = (Linear(jnp.asarray(W.T)) for W in (W_Q, W_K, W_V))
    layer = layers.Attention(Q, K, V, out, heads=1, kv_heads=1)
    parts = {
        "Q": (lambda X: layer.queries(X)[:, 0], W_Q),
        "K": (lambda X: layer.keys_values(X).keys[:, 0], W_K),
        "V": (lambda X: layer.keys_values(X).values[:, 0], W_V),
    }
    checks = []
    for name, (f, W) in parts.items():
        slope = jacobian(f, X)
        checks += [
            close(
                f"{name} = X W",
                f(jnp.asarray(X)),
                np.array([[x @ w for w in W.T] for x in X]),
                **EXACT,
            ),
            equal(
                f"{name}: dependence of a row on the tokens",
                np.abs(slope).max(axis=(1, 3)) > 1e-9,
                np.eye(T, dtype=bool),
            ),
            close_derivative(
                f"{name}: the derivative of a row by its token", slope[0, :, 0], W.T, tolerance=1e-7
            ),
        ]
    return Verdict(
        *checks,
        refuted(
            close_derivative(
                "Q = X W with the W of the keys",
                parts["Q"][0](jnp.asarray(X)),
                X @ W_K,
                tolerance=1e-7,
            )
        ),
    )


@claim(
    "6.1-attention",
    "L10-A21-attention",
    title="Attention",
    kind="layer",
    of=OF,
    cites="Vaswani et al. 2017",
)
def attention_itself(rng):
    r"""$A = \mathrm{softmax}_{\mathrm{row}}(QK^\top / \sqrt{d_k})$ and $\Xi = AV$, for $n$ queries
    and $m$ keys and values. A score of $-\infty$ is a weight of exactly 0.
    """
    n = 5
    m = 7
    Q, K, V = random_qkv(rng, n, m, 3, 4)
    A = attention_table(Q, K)
    visible = rng.random((n, m)) < 0.6
    visible[:, 0] = True
    masked = attention_table(Q, K, Mask(allowed=jnp.asarray(visible)))
    c = jnp.asarray(rng.normal(size=(n, 4)))
    value: Any = lambda q, k, v: jnp.vdot(
        c, dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
    )
    inputs = tuple(map(jnp.asarray, (Q, K, V)))
    perturbed: Any = [
        lambda x, at=at: value(*[x if i == at else g for i, g in enumerate(inputs)])
        for at in range(3)
    ]
    W = [jnp.asarray(rng.normal(size=shape)) for shape in ((6, 3), (6, 3), (6, 4))]
    X = jnp.asarray(rng.normal(size=(n, 6)))
    through = lambda W_Q, X: value(X @ W_Q, X @ W[1], X @ W[2])
    best = np.argmax(Q @ K.T, axis=1)
    return Verdict(
        close("Ξ, by three loops", one_head(Q, K, V), attention(Q, K, V), **EXACT),
        close("A, by loops", A, weights(Q, K), **EXACT),
        refuted(close("A without the root", A, weights(Q, K, scale=1.0), tolerance=1e-3)),
        close("rows of A sum to 1", A.sum(axis=1), 1.0, **EXACT),
        at_least("the smallest entry of A", A.min(), 0.0),
        close(
            "with a mask: by loops over the visible keys",
            masked,
            weights(Q, K, visible=visible),
            **EXACT,
        ),
        equal(
            "with a mask: weights of the masked keys", masked[~visible], np.zeros((~visible).sum())
        ),
        close(
            "queries of large norm: the value of the best key",
            one_head(1e6 * Q, K, V),
            V[best],
            tolerance=1e-8,
        ),
        *[
            close_derivative(
                f"∂Ξ/∂{name}",
                jax.grad(value, at)(*inputs),
                jacobian(perturbed[at], inputs[at]),
                tolerance=1e-7,
            )
            for at, name in enumerate("QKV")
        ],
        close_derivative(
            "∂Ξ/∂W_Q",
            jax.grad(through)(W[0], X),
            jacobian(lambda W_Q: through(W_Q, X), W[0]),
            tolerance=1e-7,
        ),
        close_derivative(
            "∂Ξ/∂X",
            jax.grad(through, 1)(W[0], X),
            jacobian(lambda X: through(W[0], X), X),
            tolerance=1e-7,
        ),
    )


def in_hull(point, V):
    """Whether the point is a convex combination of the rows of V, by a linear program."""
    result = linprog(
        np.zeros(len(V)), A_eq=np.vstack([V.T, np.ones(len(V))]), b_eq=np.append(point, 1)
    )
    return result.status == 0


@claim(
    "6.1-attention-rows",
    title="A mean of the values",
    kind="identity",
    of=OF,
    cites="Vaswani et al. 2017",
)
def rows(rng):
    r"""$\xi_i = \sum_t a_{it} v_t$ with $a_{it} = \mathrm{softmax}_t(q_i^\top k_t / \sqrt{d_k})$: a
    row of $A$ is a probability vector, and $\xi_i$ a convex combination of the values.
    """
    T = 6
    Q, K, V = random_qkv(rng, T, T, 3, 2)
    A = attention_table(Q, K)
    out = one_head(Q, K, V)
    same = np.tile(rng.normal(size=2), (T, 1))
    return Verdict(
        close("rows sum to 1", A.sum(axis=1), 1.0, **EXACT),
        at_least("the smallest weight", A.min(), 0.0),
        close(
            "ξ_i, summed over t",
            out,
            [sum(A[i, t] * V[t] for t in range(T)) for i in range(T)],
            **EXACT,
        ),
        equal(
            "ξ_i in the convex hull of the values, by a linear program",
            [in_hull(xi, V) for xi in out],
            [True] * T,
        ),
        refuted(
            equal("a point outside the hull, by the same", in_hull(V.max(axis=0) + 1, V), True)
        ),
        close("equal values: the output is that value", one_head(Q, K, same), same, **EXACT),
    )


@erratum(
    "6.1-attention-rows",
    title="The sum runs over the values of all tokens",
    printed=r"\xi_i = \sum_t \mathrm{softmax}_t(a_i) v_i",
    corrected=r"\xi_i = \sum_t a_{it} v_t,\quad a_{it} = \mathrm{softmax}_t(q_i^\top k_t / "
    r"\sqrt{d_k})",
    of=("layers.dot_product_attention",),
)
def values_over_t(rng):
    r"""With $v_i$ in the sum the weights sum to 1 and $\xi_i = v_i$: the other tokens would have no
    effect. And $a_i$ is the row of weights already; another softmax of it gives a different row.
    """
    T = 6
    Q, K, V = random_qkv(rng, T, T, 3, 2)
    A = weights(Q, K)
    out = one_head(Q, K, V)
    softmax_twice = np.exp(A) / np.exp(A).sum(axis=1, keepdims=True)
    return Verdict(
        close("ξ, of the values v_t", out, np.einsum("it,tc->ic", A, V), **EXACT),
        printed=[
            close("ξ, of the value v_i", out, np.einsum("it,ic->ic", A, V), **EXACT),
            close("ξ, of v_t and a softmax of A", out, softmax_twice @ V, **EXACT),
        ],
    )


@claim(
    "6.1-query-locality",
    title="Each output depends on its own query only",
    kind="identity",
    of=("layers.dot_product_attention",),
    cites="Vaswani et al. 2017",
)
def locality(rng):
    r"""$\xi_i$ depends on $q_i$ and no other query, and on all keys and values:
    $\partial \xi_i / \partial q_j = 0$ for $j \ne i$.
    """
    T = 5
    Q, K, V = (jnp.asarray(M) for M in random_qkv(rng, T, T, 3, 2))
    f = lambda q, k, v: dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
    parts = {
        "q": (lambda q: f(q, K, V), Q),
        "k": (lambda k: f(Q, k, V), K),
        "v": (lambda v: f(Q, K, v), V),
    }
    slopes = {name: jacobian(g, M) for name, (g, M) in parts.items()}
    own = {name: np.abs(slope).max(axis=(1, 3)) for name, slope in slopes.items()}
    off_diagonal = ~np.eye(T, dtype=bool)
    others = jnp.asarray(rng.normal(size=(T, 3))).at[1].set(Q[1])
    return Verdict(
        equal("ξ_2 with all other queries changed", f(others, K, V)[1], f(Q, K, V)[1]),
        equal("∂ξ_i/∂q_j, j ≠ i", dependence(parts["q"][0], Q)[off_diagonal], np.zeros(T * T - T)),
        at_most(
            "∂ξ_i/∂q_j by differences, j ≠ i",
            own["q"][off_diagonal],
            1e-11,
            method="finite differences",
        ),
        at_least("∂ξ_i/∂q_i", np.diag(own["q"]), 1e-3),
        at_least("∂ξ_i/∂k_t, all i and t", own["k"], 1e-6),
        at_least("∂ξ_i/∂v_t, all i and t", own["v"], 1e-6),
        *[
            close_derivative(
                f"the same by automatic derivatives: {name}",
                dependence(g, M),
                own[name],
                tolerance=1e-7,
            )
            for name, (g, M) in parts.items()
        ],
    )


@erratum(
    "6.1-query-locality",
    title="A token also attends to its own key and value",
    printed=r"\xi_i \text{ depends only on } q_i \text{ and all other key-value pairs}",
    corrected=r"\xi_i \text{ depends only on } q_i \text{ and all key-value pairs}",
    of=("layers.dot_product_attention", "layers.attention_weights"),
    slip=True,
)
def own_value_counts(rng):
    r"""The sum above it runs over all $t$, and $\frac{\partial \xi_i}{\partial v_i} = a_{ii} I$
    with $a_{ii} > 0$. A single token has no other pair, and its output is its own value.
    """
    Q, K, V = random_qkv(rng, 5, 5, 3, 2)
    slope = jacobian(
        lambda v: dot_product_attention(
            jnp.asarray(Q)[:, None], jnp.asarray(K)[:, None], v[:, None]
        )[:, 0],
        V,
    )
    own = np.stack([slope[i, :, i] for i in range(5)])
    alone = one_head(Q[:1], K[:1], V[:1])
    return Verdict(
        close_derivative(
            "∂ξ_i/∂v_i, against a_ii I",
            own,
            np.diag(attention_table(Q, K))[:, None, None] * np.eye(2),
            tolerance=1e-7,
        ),
        close("one token: ξ, against v", alone, V[:1], **EXACT),
        printed=[
            close_derivative("∂ξ_i/∂v_i, against 0", own, np.zeros((5, 2, 2)), tolerance=1e-7),
            close("one token: ξ, against 0", alone, np.zeros((1, 2)), **EXACT),
        ],
    )


@claim(
    "6.1-soft-dictionary",
    title="A soft dictionary",
    kind="identity",
    of=("layers.dot_product_attention",),
    cites="Vaswani et al. 2017",
)
def dictionary(rng):
    r"""Attention is a soft look-up: with scores multiplied by $\beta \to \infty$ each query returns
    the value of the best matching key, and with $\beta = 0$ the mean of all values.
    """
    T = 6
    Q = np.eye(T)
    K = np.linalg.qr(rng.normal(size=(T, T)))[0]
    V = rng.normal(size=(T, 2))
    best = np.argmax(Q @ K.T, axis=1)
    betas = np.array([0.0, 1.0, 10.0, 100.0, 1e3, 1e4])
    looked = np.array([one_head(beta * np.sqrt(T) * Q, K, V) for beta in betas])
    off = np.abs(looked - V[best]).max(axis=(1, 2))
    return Verdict(
        at_most("β = 10⁴: difference from the value of the best key", off[-1], 1e-8),
        close(
            "β = 0: the mean of the values",
            looked[0],
            np.tile(V.mean(axis=0), (T, 1)),
            tolerance=1e-15,
        ),
        refuted(
            close(
                "β = 1: the mean of the values",
                looked[1],
                np.tile(V.mean(axis=0), (T, 1)),
                tolerance=1e-3,
            )
        ),
        decreasing("difference, β = 1, 10, 100 and 10³", off[1:5] + 1e-300),
        figure=Panel(
            "β",
            "difference from the value of the best key",
            lines={"attention": (betas[1:], off[1:])},
            log="x",
        ),
    )


def rank(M):
    """The numerical rank."""
    return int(np.linalg.matrix_rank(np.asarray(M)))


@claim("6.1-rank", title="Scores have low rank, attention weights need not", kind="theorem", of=OF)
def ranks(rng):
    r"""$\mathrm{rank}(QK^\top) \le d_k$ and $\mathrm{rank}(\Xi) \le d_v$, but the softmax of the
    scores may have any rank: for $q = k = (0, 1, 2)$ the scores have rank 1 and $\det A = 0.0244$.
    """
    T = 8
    q = np.array([[0.0], [1.0], [2.0]])
    small = attention_table(q, q)
    cases = {d_k: random_qkv(rng, T, T, d_k, 2) for d_k in (1, 2, 3)}
    return Verdict(
        equal("q = k = (0, 1, 2): rank of the scores", rank(q @ q.T), 1),
        close("q = k = (0, 1, 2): det A", np.linalg.det(small), 0.0244, tolerance=5e-5),
        equal("q = k = (0, 1, 2): rank of A", rank(small), 3),
        equal(
            "T = 8, d_k = 1, 2 and 3: rank of the scores",
            [rank(Q @ K.T) for Q, K, _ in cases.values()],
            [1, 2, 3],
        ),
        equal(
            "T = 8, d_k = 1, 2 and 3: rank of A",
            [rank(attention_table(3 * Q, K)) for Q, K, _ in cases.values()],
            [T, T, T],
        ),
        at_most("rank of Ξ, d_v = 2", [rank(one_head(*case)) for case in cases.values()], 2),
    )


@erratum(
    "6.1-rank",
    title="The rank of the scores is bounded, not that of the weights",
    printed=r"\mathrm{rank}(A) \le d_k",
    corrected=r"\mathrm{rank}(QK^\top) \le d_k",
    of=("layers.attention_weights",),
)
def rank_of_the_scores(rng):
    r"""The softmax exponentiates every entry before the rows are normalised, which raises the
    rank.
    """
    Q, K, _ = random_qkv(rng, 8, 8, 2, 1)
    few = np.array([[0.0], [1.0], [2.0]])
    return Verdict(
        at_most("rank of the scores, d_k = 2", rank(Q @ K.T), 2),
        at_most("rank of the scores, q = k = (0, 1, 2)", rank(few @ few.T), 1),
        printed=[
            at_most("rank of the weights, d_k = 2", rank(attention_table(Q, K)), 2),
            at_most("rank of the weights, q = k = (0, 1, 2)", rank(attention_table(few, few)), 1),
        ],
    )


@claim(
    "6.1-scaling",
    "L10-A21-scaling",
    title="Why scores are divided by √d",
    kind="theorem",
    of=("layers.attention_weights",),
    cites="Vaswani et al. 2017",
)
def scaling(key, rng):
    r"""For independent $q, k \sim \mathcal{N}(0, I)$ in $d_k$ dimensions
    $\mathrm{Var}(q^\top k) = d_k$, so that scores divided by $\sqrt{d_k}$ have variance 1. Without
    the factor the largest weight tends to 1 as $d_k$ grows, and the derivative of the softmax to 0.
    """
    sizes = (1, 4, 64)
    n = 200_000
    products = {d: np.einsum("nd,nd->n", *rng.normal(size=(2, n, d))) for d in sizes}
    variance = np.array([p.var(ddof=1) for p in products.values()])
    error = np.array([np.sqrt(((p - p.mean()) ** 2).var() / n) for p in products.values()])
    widths = np.array([4, 16, 64, 256])
    look = jax.jit(lambda Q, K: attention_weights(Q[:, None], K[:, None])[0])
    unscaled = []
    scaled = []
    for d, k in zip(widths, jr.split(key, 4)):
        Q, K = jr.normal(k, (2, 300, int(d)))
        scaled.append(np.asarray(look(Q, K[:32])))
        unscaled.append(np.asarray(look(Q * np.sqrt(d), K[:32])))
    top = lambda tables: np.array([A.max(axis=1).mean() for A in tables])
    spread = lambda tables: np.array([entropy(A, axis=1).mean() for A in tables])
    slope = lambda tables: np.array([np.sqrt(_square(A)).mean() for A in tables])
    return Verdict(
        within("Var(q·k), d = 1, 4 and 64", variance, np.array(sizes, float), error=error),
        within("Var(q·k / √d)", variance / sizes, np.ones(3), error=error / sizes),
        decreasing("entropy of the weights, not scaled, d = 4 to 256", spread(unscaled)),
        at_most("entropy at d = 256, not scaled", spread(unscaled)[-1], 0.4),
        between("entropy at d = 256, scaled", spread(scaled)[-1], 2.8, float(np.log(32))),
        at_least("largest weight at d = 256, not scaled", top(unscaled)[-1], 0.85),
        at_most("largest weight, scaled, d = 4 to 256", top(scaled), 0.3),
        at_most(
            "derivative of the softmax, not scaled: d = 256 over d = 4",
            slope(unscaled)[-1] / slope(unscaled)[0],
            0.6,
        ),
        at_least(
            "derivative of the softmax, scaled: d = 256 over d = 4",
            slope(scaled)[-1] / slope(scaled)[0],
            0.9,
        ),
        figure=Chart(
            *[
                Panel(
                    "d_k",
                    name,
                    log="x",
                    lines={"q·k": (widths, f(unscaled)), "q·k / √d": (widths, f(scaled))},
                )
                for name, f in {"largest weight": top, "entropy": spread}.items()
            ]
        ),
    )


def _square(A):
    r"""$\|\mathrm{diag}(a) - aa^\top\|_F^2$, the derivative of the softmax, for every row."""
    second = (A**2).sum(axis=1)
    third = (A**3).sum(axis=1)
    return np.maximum(second - 2 * third + second**2, 0)
