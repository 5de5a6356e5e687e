"""Reference implementations of attention and its blocks, as loops in NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import layers, models, tree
from ..engine.differences import jacobian

EXACT: Any = {"tolerance": 1e-12}


def softmax(z: np.ndarray) -> np.ndarray:
    """The softmax of a vector."""
    e = np.exp(z - z.max())
    return e / e.sum()


def weights(Q: Any, K: Any, *, visible: Any = None, scale: float | None = None) -> np.ndarray:
    r"""$a_{it} = \mathrm{softmax}_t(q_i^\top k_t / \sqrt{d_k})$ by loops, over the $t$ visible to
    $i$.
    """
    Q = np.asarray(Q)
    K = np.asarray(K)
    A = np.zeros((len(Q), len(K)))
    for i, q in enumerate(Q):
        there = [t for t in range(len(K)) if visible is None or visible[i][t]]
        scores = np.array([sum(q[c] * K[t, c] for c in range(len(q))) for t in there])
        A[i, there] = softmax(scores / (np.sqrt(K.shape[1]) if scale is None else scale))
    return A


def attention(Q: Any, K: Any, V: Any, *, visible: Any = None) -> np.ndarray:
    r"""$\xi_i = \sum_t a_{it} v_t$ by loops."""
    A = weights(Q, K, visible=visible)
    V = np.asarray(V)
    return np.array([[sum(a * v for a, v in zip(row, column)) for column in V.T] for row in A])


def linear(layer: Any, X: np.ndarray) -> np.ndarray:
    """An affine layer on every row."""
    return X @ np.asarray(layer.W).T + (0.0 if layer.b is None else np.asarray(layer.b))


def many_heads(
    layer: Any, X: np.ndarray, memory: np.ndarray | None = None, *, visible: Any = None
) -> np.ndarray:
    """Multi-head attention: each head with its rows of the matrices, then the output map."""
    memory = X if memory is None else memory
    Q = linear(layer.Q, X)
    K = linear(layer.K, memory)
    V = linear(layer.V, memory)
    parts = [np.split(M, layer.heads, axis=1) for M in (Q, K, V)]
    return linear(
        layer.O, np.concatenate([attention(*head, visible=visible) for head in zip(*parts)], axis=1)
    )


def norm(layer: Any, X: np.ndarray) -> np.ndarray:
    """A layer norm on every row, by its formula."""
    mean = X.mean(axis=1, keepdims=True)
    variance = X.var(axis=1, keepdims=True)
    return np.asarray(layer.mu) + np.asarray(layer.gamma) * (X - mean) / np.sqrt(
        variance + layer.eps
    )


def feed_forward(layer: Any, X: np.ndarray) -> np.ndarray:
    """The feed-forward network with ReLU, row by row."""
    return np.array([linear(layer.down, np.maximum(linear(layer.up, x[None]), 0))[0] for x in X])


def block(
    part: models.TransformerBlock, X: np.ndarray, *, memory: Any = None, visible: Any = None
) -> np.ndarray:
    """A block of an encoder or a decoder, with pre-norm or post-norm."""
    looks = [(part.norm, lambda X: many_heads(part.attention, X, visible=visible))]
    looks += (
        []
        if part.cross is None
        else [(part.cross_norm, lambda X: many_heads(part.cross, X, memory))]
    )
    for its_norm, f in [*looks, (part.feed_norm, lambda X: feed_forward(part.feed, X))]:
        X = X + f(norm(its_norm, X)) if part.norms == "before" else norm(its_norm, X + f(X))
    return X


def layer_of(trunk: models.Trunk, depth: int) -> models.TransformerBlock:
    """One block of a stack."""
    return jax.tree.map(lambda leaf: leaf[depth], trunk.blocks.layers)


def perturbed(model: Any, key: Any, size: float = 0.2) -> Any:
    """The model with all parameters perturbed, so that no norm or bias has its initial value."""
    return tree.axpy(size, tree.normal_like(key, model), model)


def single_precision(model: Any) -> Any:
    """The model in single precision."""
    return jax.tree.map(lambda a: a.astype(jnp.float32), model)


def slopes(f: Any, model: Any, c: Any) -> tuple[np.ndarray, np.ndarray]:
    r"""The gradient of $\langle c, f(\theta) \rangle$ in $\theta$: by JAX, and by finite
    differences.
    """
    theta, back = tree.ravel(model)
    value = jax.jit(lambda v: jnp.vdot(jnp.asarray(c), f(back(v))))
    return np.asarray(jax.jit(jax.grad(value))(theta)), jacobian(value, theta, step=3e-4)


def dependence(f: Any, X: Any) -> np.ndarray:
    r"""The largest entry of $\partial y_i / \partial x_j$ for all $i$ and $j$."""
    return np.abs(np.asarray(jax.jit(jax.jacfwd(f))(jnp.asarray(X)))).max(axis=(1, 3))


def one_head(Q: Any, K: Any, V: Any, mask: layers.Mask = layers.FULL) -> np.ndarray:
    """The library's attention with one head."""
    q, k, v = (jnp.asarray(M)[:, None] for M in (Q, K, V))
    return np.asarray(layers.dot_product_attention(q, k, v, mask)[:, 0])
