r"""Deep linear networks (Lecture 1): $f(x) = W_L \cdots W_1 x$, which is linear in $x$ and not in
the weights.

As a function it is one matrix, `collapse(model).W`, of a rank bounded by the least width. As a
thing to train it has saddles, plateaus and a conserved quantity, and yet formulas for all of it.
The loss is $L = \frac12 \sum_i \|y_i - W_L \cdots W_1 x_i\|^2$, which is $n$ times `squared_error`.

`deep_linear`               the network, drawn at random
`factorise`                 the balanced network that computes a given matrix
`correlations`              all that $L$ knows of the data
`deep_linear_gradient`      $\partial L / \partial W_\ell$ in closed form, at any depth
`imbalance`                 what gradient flow conserves
`mode_growth`               how the singular modes of a network of two layers are learnt
`reduced_rank_regression`   where it ends

The networks are chains of `Linear` layers without bias.
"""

from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.random as jr
from jax.core import Tracer
from jaxtyping import Array, Float, Num, PRNGKeyArray

from ...core import Scalar
from ...layers import Chain, Initialiser, Linear, lecun
from .pca import as_matrix, expect_rank


def deep_linear(*sizes: int, initialiser: Initialiser = lecun, key: PRNGKeyArray) -> Chain:
    r"""Draws $x \mapsto W_L \cdots W_1 x$ of the given widths, input first and output last.

    >>> [layer.W.shape for layer in deep_linear(5, 2, 3, key=jr.key(0)).layers]
    [(2, 5), (3, 2)]
    """
    if len(sizes) < 2 or min(sizes) < 1:
        raise ValueError(
            f"deep_linear: needs an input and an output width, all positive; got {sizes}, e.g. "
            "(5, 2, 3)."
        )
    keys = jr.split(key, len(sizes) - 1)
    return Chain(
        *(
            Linear.init(n, m, initialiser=initialiser, bias=False, key=key)
            for (n, m), key in zip(pairwise(sizes), keys)
        )
    )


def factorise(W: Num[Any, "m n"], *, depth: int) -> Chain:
    r"""The balanced network of the given depth that computes $W$: each layer takes its share of
    every singular value.

    With $W = U \Sigma V^\top$, $W_1 = \Sigma^{1/L} V^\top$, $W_\ell = \Sigma^{1/L}$ and
    $W_L = U \Sigma^{1/L}$, so that $W_{\ell+1}^\top W_{\ell+1} = W_\ell W_\ell^\top$. The hidden
    widths are the least side of $W$. Arora et al. 2018.

    >>> net = factorise(jnp.array([[0.0, 8.0]]), depth=3)
    >>> (
    ...     net(jnp.array([1.0, 1.0])).round(3).tolist(),
    ...     [round(abs(layer.W).max().item(), 3) for layer in net.layers],
    ... )
    ([8.0], [2.0, 2.0, 2.0])
    """
    W = as_matrix("factorise", "W", W)
    if depth < 1:
        raise ValueError(f"factorise: depth counts the layers and must be at least 1; got {depth}.")
    if depth == 1:
        return Chain(Linear(W))
    U, s, Vt = jnp.linalg.svd(W, full_matrices=False)
    share = s ** (1 / depth)
    middle = [Linear(jnp.diag(share))] * (depth - 2)
    return Chain(Linear(share[:, None] * Vt), *middle, Linear(U * share[None]))


class Correlations(NamedTuple):
    r"""$\Sigma_{xx} = \sum_i x_i x_i^\top$ and $\Sigma_{yx} = \sum_i y_i x_i^\top$."""

    xx: Float[Array, "d d"]
    yx: Float[Array, "k d"]


def correlations(xs: Num[Any, "n d"], ys: Num[Any, "n k"]) -> Correlations:
    r"""The sums in which the gradient of every deep linear network sees the data (Lecture 1).

    Departs: the notes call the second $\Sigma_{xy}$, though its shape is $k \times d$.

    >>> found = correlations(jnp.array([[1.0, 2.0]]), jnp.array([[3.0]]))
    >>> found.xx.tolist(), found.yx.tolist()
    ([[1.0, 2.0], [2.0, 4.0]], [[3.0, 6.0]])
    """
    xs, ys = _pairs("correlations", xs, ys)
    return Correlations(xs.T @ xs, ys.T @ xs)


def deep_linear_gradient(model: Chain, data: Correlations) -> Chain:
    r"""$\partial L / \partial W_\ell = -(W_L \cdots W_{\ell+1})^\top (\Sigma_{yx} - W\Sigma_{xx})
    (W_{\ell-1} \cdots W_1)^\top$
    with $W = W_L \cdots W_1$, shaped like the model; $n$ times that of `squared_error`.

    For $f(x) = BAx$ these are $-B^\top (\Sigma_{yx} - BA\Sigma_{xx})$ and
    $-(\Sigma_{yx} - BA\Sigma_{xx}) A^\top$. The cost does not grow with the number of examples.
    (Lecture 1; Baldi & Hornik 1989.)

    >>> net = Chain(Linear(jnp.array([[2.0]])), Linear(jnp.array([[3.0]])))
    >>> found = deep_linear_gradient(net, correlations(jnp.array([[1.0]]), jnp.array([[5.0]])))
    >>> [layer.W.item() for layer in found.layers]
    [3.0, 2.0]
    """
    layers = _layers("deep_linear_gradient", model)
    W = [layer.scale_W * layer.W for layer in layers]
    d = W[0].shape[1]
    k = len(W[-1])
    if data.xx.shape != (d, d) or data.yx.shape != (k, d):
        raise ValueError(
            f"deep_linear_gradient: a network from {d} inputs to {k} outputs needs correlations xx "
            f"({d}, {d}) and yx ({k}, {d}); got {data.xx.shape} and {data.yx.shape}."
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
    missing = data.yx - W[-1] @ before[-1] @ data.xx
    gradients = [-layer.scale_W * P.T @ missing @ Q.T for layer, P, Q in zip(layers, after, before)]
    return Chain(
        *(Linear(G, None, layer.scale_W, layer.scale_b) for G, layer in zip(gradients, layers))
    )


def imbalance(model: Chain) -> tuple[Float[Array, "h h"], ...]:
    r"""$W_{\ell+1}^\top W_{\ell+1} - W_\ell W_\ell^\top$ for each hidden layer, which gradient flow
    does not change.

    It holds whatever the loss, since
    $W_{\ell+1}^\top \frac{\partial L}{\partial W_{\ell+1}} = \frac{\partial L}{\partial W_\ell}
    W_\ell^\top$.
    Where it is 0 the network is balanced. Saxe, McClelland & Ganguli 2014; Arora et al. 2018.

    >>> [
    ...     found.tolist()
    ...     for found in imbalance(Chain(Linear(jnp.array([[2.0]])), Linear(jnp.array([[3.0]]))))
    ... ]
    [[[5.0]]]
    """
    W = [layer.W for layer in _layers("imbalance", model)]
    return tuple(after.T @ after - before @ before.T for before, after in pairwise(W))


def mode_growth(times: Any, *, strengths: Any, start: Any) -> Float[Array, "t r"]:
    r"""The strength of each mode of $W = BA$ under gradient flow on $L$: $\dot a = 2a(s - a)$, a
    sigmoid in time,

    $$a(t) = \frac{s\, e^{2st}}{e^{2st} - 1 + s / a_0}.$$

    For inputs with $\Sigma_{xx} = I$ and a balanced start $W(0) = U \mathrm{diag}(a_0) V^\top$ in
    the singular vectors of $\Sigma_{yx} = U \mathrm{diag}(s) V^\top$, the modes do not hear of each
    other; the strong ones are learnt first, each after a time of about
    $\frac{1}{2s} \log \frac{s}{a_0}$. Saxe, McClelland & Ganguli 2014.

    >>> mode_growth([0.0, 50.0], strengths=[2.0, 1.0], start=[0.25, 0.25]).round(3).tolist()
    [[0.25, 0.25], [2.0, 1.0]]
    """
    t, s, a = (jnp.asarray(each, jnp.result_type(float)) for each in (times, strengths, start))
    if t.ndim != 1 or s.ndim != 1 or s.shape != a.shape:
        raise ValueError(
            "mode_growth: expected a row of times, and as many starts as strengths; got shapes "
            f"{t.shape}, {a.shape} and {s.shape}."
        )
    if not isinstance(s + a, Tracer) and bool(((s < 0) | (a < 0)).any()):
        raise ValueError(
            "mode_growth: strengths and starts are singular values, which are not negative."
        )
    grown = 2 * s[None] * t[:, None]
    rate = jnp.where(s > 0, s, 1.0)[None]
    time = jnp.where(
        s[None] > 0, -jnp.expm1(-grown) / rate, 2 * t[:, None]
    )  # (1 - e^{-2st}) / s, also at s = 0
    left = jnp.where(a[None] > 0, jnp.exp(-grown), 1.0)  # what does not begin stays
    return a[None] / (a[None] * time + left)


class ReducedRank(NamedTuple):
    r"""The network $x \mapsto BAx$, its mean loss, which `squared_error` gives too, and the values
    it chose from.
    """

    model: Chain
    loss: Scalar
    singular: Float[Array, " q"]  # of the fitted values without a bound on the rank


def reduced_rank_regression(xs: Num[Any, "n d"], ys: Num[Any, "n k"], *, rank: int) -> ReducedRank:
    r"""The least squares fit $W$ of rank $m$ at most: where a deep linear network of least width
    $m$ can end.

    With $\hat Y$ the fitted values of ordinary least squares, $W_\infty$, and $Q_m$ the first $m$
    left singular vectors of $\hat Y = [\hat y_1 \dots \hat y_n]$, $W = Q_m Q_m^\top W_\infty$; here
    $B = Q_m$ and $A = Q_m^\top W_\infty$. There is no bias: centre the data to have one. The linear
    autoencoder is the case of $y_i = x_i$. (Izenman 1975; Baldi & Hornik 1989.)

    >>> xs = jnp.eye(2)
    >>> found = reduced_rank_regression(xs, jnp.array([[3.0, 0.0], [0.0, 1.0]]), rank=1)
    >>> found.model(jnp.ones(2)).round(4).tolist(), found.loss.item()
    ([3.0, 0.0], 0.25)
    """
    xs, ys = _pairs("reduced_rank_regression", xs, ys)
    expect_rank("reduced_rank_regression", "rank", rank, min(xs.shape[1], ys.shape[1]))
    V, s, Ut = jnp.linalg.svd(xs, full_matrices=False)
    tiny = s.max() * max(xs.shape) * jnp.finfo(s.dtype).eps
    inverse = jnp.where(s > tiny, 1 / jnp.where(s > tiny, s, 1.0), 0.0)
    within = (
        ys.T @ V * jnp.where(s > tiny, 1.0, 0.0)[None]
    )  # the values in the space of the data: Ŷ = within Vᵀ
    Q, singular, _ = jnp.linalg.svd(within, full_matrices=False)
    B = Q[:, :rank]
    A = B.T @ within * inverse[None] @ Ut
    lost = (ys**2).sum() - (singular[:rank] ** 2).sum()
    return ReducedRank(Chain(Linear(A), Linear(B)), lost / (2 * len(xs)), singular)


def _layers(name: str, model: Any) -> tuple[Linear, ...]:
    """The layers of a deep linear network, or a refusal."""
    parts = model.layers if isinstance(model, Chain) else ()
    wrong = next(
        (part for part in parts if not isinstance(part, Linear) or part.b is not None), None
    )
    if not parts or wrong is not None:
        came = type(model).__name__ if wrong is None else type(wrong).__name__
        came += " with a bias" if isinstance(wrong, Linear) else ""
        raise ValueError(
            f"{name}: expected a Chain of Linear layers without bias, as deep_linear makes; got "
            f"{came}."
        )
    return parts


def _pairs(name: str, xs: Any, ys: Any) -> tuple[Float[Array, "n d"], Float[Array, "n k"]]:
    xs = as_matrix(name, "xs", xs)
    ys = as_matrix(name, "ys", ys)
    if len(xs) != len(ys):
        raise ValueError(f"{name}: got {len(xs)} xs and {len(ys)} ys; row i of both is example i.")
    return xs, ys
