r"""Deep linear networks (Lecture 1): $f(x) = W_L \cdots W_1 x$, linear in $x$ but not in the
weights.

The function is a single matrix, `merge_linear_layers(model).W`, of rank at most the smallest width.
Its training dynamics have saddle points, plateaus and a conserved quantity, all with closed-form
expressions. The loss is $L = \frac12 \sum_i \|y_i - W_L \cdots W_1 x_i\|^2$, which is $n$ times
`squared_error`.

- `deep_linear`: the network with random weights
- `balanced_factorisation`: the balanced network that computes a given matrix
- `second_moments`: the second moments of the data on which $L$ depends
- `deep_linear_gradient`: $\partial L / \partial W_\ell$ in closed form, at any depth
- `layer_imbalance`: the quantity that gradient flow conserves
- `mode_growth`: learning curves of the singular modes of a two-layer network
- `reduced_rank_regression`: the global minimum

The networks are chains of `Linear` layers without bias.
"""

from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.random as jr
from jax.core import Tracer
from jaxtyping import Array, Float, Num, PRNGKeyArray

from ...check import expect_count
from ...core import Scalar
from ...layers import Chain, Initialiser, Linear, lecun
from .pca import as_matrix, expect_rank


def deep_linear(*sizes: int, initialiser: Initialiser = lecun, key: PRNGKeyArray) -> Chain:
    r"""Random deep linear network $x \mapsto W_L \cdots W_1 x$ of the given widths, input first and
    output last.

    >>> [layer.W.shape for layer in deep_linear(5, 2, 3, key=jr.key(0)).layers]
    [(2, 5), (3, 2)]
    """
    if len(sizes) < 2 or min(sizes) < 1:
        raise ValueError(
            "deep_linear: sizes must be at least two positive widths, input first and output "
            f"last, such as (5, 2, 3); got {sizes}."
        )
    keys = jr.split(key, len(sizes) - 1)
    return Chain(
        *(
            Linear.init(n, m, initialiser=initialiser, bias=False, key=key)
            for (n, m), key in zip(pairwise(sizes), keys)
        )
    )


def balanced_factorisation(W: Num[Any, "m n"], *, depth: int) -> Chain:
    r"""Balanced deep linear network of the given depth that computes $W$: every layer has the
    $L$-th root of the singular values.

    With $W = U \Sigma V^\top$, $W_1 = \Sigma^{1/L} V^\top$, $W_\ell = \Sigma^{1/L}$ and
    $W_L = U \Sigma^{1/L}$, so that $W_{\ell+1}^\top W_{\ell+1} = W_\ell W_\ell^\top$. The hidden
    widths equal the smaller side of $W$. Arora et al. 2018.

    >>> net = balanced_factorisation(jnp.array([[0.0, 8.0]]), depth=3)
    >>> (
    ...     net(jnp.array([1.0, 1.0])).round(3).tolist(),
    ...     [round(abs(layer.W).max().item(), 3) for layer in net.layers],
    ... )
    ([8.0], [2.0, 2.0, 2.0])
    """
    W = as_matrix("balanced_factorisation", "W", W)
    expect_count("balanced_factorisation", depth=depth)
    if depth == 1:
        return Chain(Linear(W))
    U, s, Vt = jnp.linalg.svd(W, full_matrices=False)
    root = s ** (1 / depth)
    middle = [Linear(jnp.diag(root))] * (depth - 2)
    return Chain(Linear(root[:, None] * Vt), *middle, Linear(U * root[None]))


class SecondMoments(NamedTuple):
    r"""Second moments of the data: $\Sigma_{xx} = \sum_i x_i x_i^\top$ and
    $\Sigma_{yx} = \sum_i y_i x_i^\top$.
    """

    xx: Float[Array, "d d"]
    yx: Float[Array, "k d"]


def second_moments(xs: Num[Any, "n d"], ys: Num[Any, "n k"]) -> SecondMoments:
    r"""Second moments $\Sigma_{xx}$ and $\Sigma_{yx}$ of the data, on which alone the gradient of a
    deep linear network depends (Lecture 1).

    Departs: the notes call the second $\Sigma_{xy}$, though its shape is $k \times d$.

    >>> sigma = second_moments(jnp.array([[1.0, 2.0]]), jnp.array([[3.0]]))
    >>> sigma.xx.tolist(), sigma.yx.tolist()
    ([[1.0, 2.0], [2.0, 4.0]], [[3.0, 6.0]])
    """
    xs, ys = _pairs("correlations", xs, ys)
    return SecondMoments(xs.T @ xs, ys.T @ xs)


def deep_linear_gradient(model: Chain, data: SecondMoments) -> Chain:
    r"""Gradient of a deep linear network in closed form, shaped like the model:
    $\partial L / \partial W_\ell = -(W_L \cdots W_{\ell+1})^\top (\Sigma_{yx} - W\Sigma_{xx})
    (W_{\ell-1} \cdots W_1)^\top$
    with $W = W_L \cdots W_1$; $n$ times the gradient of `squared_error`.

    For $f(x) = BAx$ these are $-B^\top (\Sigma_{yx} - BA\Sigma_{xx})$ and
    $-(\Sigma_{yx} - BA\Sigma_{xx}) A^\top$. The cost does not depend on the number of examples.
    (Lecture 1; Baldi & Hornik 1989.)

    >>> net = Chain(Linear(jnp.array([[2.0]])), Linear(jnp.array([[3.0]])))
    >>> gradient = deep_linear_gradient(net, second_moments(jnp.array([[1.0]]), jnp.array([[5.0]])))
    >>> [layer.W.item() for layer in gradient.layers]
    [3.0, 2.0]
    """
    layers = _layers("deep_linear_gradient", model)
    W = [layer.scale_W * layer.W for layer in layers]
    d = W[0].shape[1]
    k = len(W[-1])
    if data.xx.shape != (d, d) or data.yx.shape != (k, d):
        raise ValueError(
            f"deep_linear_gradient: a network with {d} inputs and {k} outputs needs correlations "
            f"xx ({d}, {d}) and yx ({k}, {d}); got {data.xx.shape} and {data.yx.shape}."
        )
    before = list(
        accumulate(
            W[:-1], lambda product, next: next @ product, initial=jnp.eye(d, dtype=W[0].dtype)
        )
    )
    after = list(
        accumulate(
            W[:0:-1], lambda product, next: product @ next, initial=jnp.eye(k, dtype=W[0].dtype)
        )
    )[::-1]
    residual = data.yx - W[-1] @ before[-1] @ data.xx
    gradients = [
        -layer.scale_W * P.T @ residual @ Q.T for layer, P, Q in zip(layers, after, before)
    ]
    return Chain(
        *(Linear(G, None, layer.scale_W, layer.scale_b) for G, layer in zip(gradients, layers))
    )


def layer_imbalance(model: Chain) -> tuple[Float[Array, "h h"], ...]:
    r"""Imbalance $W_{\ell+1}^\top W_{\ell+1} - W_\ell W_\ell^\top$ of each hidden layer, a
    conserved quantity of gradient flow.

    It is conserved for every loss, since
    $W_{\ell+1}^\top \frac{\partial L}{\partial W_{\ell+1}} = \frac{\partial L}{\partial W_\ell}
    W_\ell^\top$.
    If it is 0 the network is balanced. Saxe, McClelland & Ganguli 2014; Arora et al. 2018.

    >>> net = Chain(Linear(jnp.array([[2.0]])), Linear(jnp.array([[3.0]])))
    >>> [matrix.tolist() for matrix in layer_imbalance(net)]
    [[[5.0]]]
    """
    W = [layer.W for layer in _layers("imbalance", model)]
    return tuple(after.T @ after - before @ before.T for before, after in pairwise(W))


def mode_growth(times: Any, *, strengths: Any, start: Any) -> Float[Array, "t r"]:
    r"""Strength of each singular mode of $W = BA$ under gradient flow on $L$: $\dot a = 2a(s - a)$,
    a sigmoid in time,

    $$a(t) = \frac{s\, e^{2st}}{e^{2st} - 1 + s / a_0}.$$

    For inputs with $\Sigma_{xx} = I$ and a balanced initialisation
    $W(0) = U \mathrm{diag}(a_0) V^\top$ in the singular vectors of
    $\Sigma_{yx} = U \mathrm{diag}(s) V^\top$, the modes evolve independently; strong modes are
    learnt first, each after a time of about $\frac{1}{2s} \log \frac{s}{a_0}$. `strengths` is $s$
    and `start` is $a_0$. Saxe, McClelland & Ganguli 2014.

    >>> mode_growth([0.0, 50.0], strengths=[2.0, 1.0], start=[0.25, 0.25]).round(3).tolist()
    [[0.25, 0.25], [2.0, 1.0]]
    """
    t, s, a = (jnp.asarray(each, jnp.result_type(float)) for each in (times, strengths, start))
    if t.ndim != 1 or s.ndim != 1 or s.shape != a.shape:
        raise ValueError(
            "mode_growth: times, strengths and start must be vectors, the last two of equal "
            f"length; got shapes {t.shape}, {s.shape} and {a.shape}."
        )
    if not isinstance(s + a, Tracer) and bool(((s < 0) | (a < 0)).any()):
        raise ValueError(
            "mode_growth: strengths and start are singular values and must not be negative."
        )
    exponent = 2 * s[None] * t[:, None]
    nonzero_s = jnp.where(s > 0, s, 1.0)[None]
    # (1 - e^{-2st}) / s, with its limit 2t at s = 0
    ratio = jnp.where(s[None] > 0, -jnp.expm1(-exponent) / nonzero_s, 2 * t[:, None])
    decay = jnp.where(a[None] > 0, jnp.exp(-exponent), 1.0)  # a mode that starts at 0 stays at 0
    return a[None] / (a[None] * ratio + decay)


class ReducedRank(NamedTuple):
    r"""Reduced-rank regression: the network $x \mapsto BAx$ and its mean loss (the value of
    `squared_error`).
    """

    model: Chain
    loss: Scalar
    singular_values: Float[Array, " q"]  # of the fitted values of ordinary least squares


def reduced_rank_regression(xs: Num[Any, "n d"], ys: Num[Any, "n k"], *, rank: int) -> ReducedRank:
    r"""Reduced-rank regression: the least-squares fit $W$ of rank at most $m$ = `rank`, the global
    minimum of a deep linear network with smallest width $m$.

    With $\hat Y$ the fitted values of ordinary least squares, $W_\infty$, and $Q_m$ the first $m$
    left singular vectors of $\hat Y = [\hat y_1 \dots \hat y_n]$, $W = Q_m Q_m^\top W_\infty$; here
    $B = Q_m$ and $A = Q_m^\top W_\infty$. There is no bias: centre the data first. The linear
    autoencoder is the case $y_i = x_i$. (Izenman 1975; Baldi & Hornik 1989.)

    >>> xs = jnp.eye(2)
    >>> fit = reduced_rank_regression(xs, jnp.array([[3.0, 0.0], [0.0, 1.0]]), rank=1)
    >>> fit.model(jnp.ones(2)).round(4).tolist(), fit.loss.item()
    ([3.0, 0.0], 0.25)
    """
    xs, ys = _pairs("reduced_rank_regression", xs, ys)
    expect_rank("reduced_rank_regression", "rank", rank, min(xs.shape[1], ys.shape[1]))
    V, s, Ut = jnp.linalg.svd(xs, full_matrices=False)
    nonzero = s > s.max() * max(xs.shape) * jnp.finfo(s.dtype).eps
    inverse = jnp.where(nonzero, 1 / jnp.where(nonzero, s, 1.0), 0.0)
    fitted = ys.T @ V * jnp.where(nonzero, 1.0, 0.0)[None]  # Ŷ = fitted Vᵀ
    Q, singular_values, _ = jnp.linalg.svd(fitted, full_matrices=False)
    B = Q[:, :rank]
    A = B.T @ fitted * inverse[None] @ Ut
    residual = (ys**2).sum() - (singular_values[:rank] ** 2).sum()
    return ReducedRank(Chain(Linear(A), Linear(B)), residual / (2 * len(xs)), singular_values)


def _layers(name: str, model: Any) -> tuple[Linear, ...]:
    """The layers of a deep linear network; raises for any other model."""
    parts = model.layers if isinstance(model, Chain) else ()
    wrong = next(
        (part for part in parts if not isinstance(part, Linear) or part.b is not None), None
    )
    if not parts or wrong is not None:
        given = type(model).__name__ if wrong is None else type(wrong).__name__
        given += " with a bias" if isinstance(wrong, Linear) else ""
        raise ValueError(
            f"{name}: expected a Chain of Linear layers without bias, such as deep_linear returns; "
            f"got {given}."
        )
    return parts


def _pairs(name: str, xs: Any, ys: Any) -> tuple[Float[Array, "n d"], Float[Array, "n k"]]:
    xs = as_matrix(name, "xs", xs)
    ys = as_matrix(name, "ys", ys)
    if len(xs) != len(ys):
        raise ValueError(f"{name}: got {len(xs)} xs and {len(ys)} ys; row i of both is example i.")
    return xs, ys
