r"""Token saliency (input gradients of embeddings), and a PCA map of token embeddings (L10 §A)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...layers import Embedding, tap
from .attention_alignment import token_strings


@dataclass(frozen=True)
class TokenSaliency:
    r"""For each token with embedding $e_i$ the gradient norm $\|\partial z / \partial e_i\|$ of the
    logit $z$, and gradient times input, $e_i^\top \partial z / \partial e_i$, a first-order
    estimate of the token's contribution to $z$.
    """

    gradient_norm: Float[np.ndarray, " t"]
    gradient_times_input: Float[np.ndarray, " t"]
    tokens: tuple[str, ...]
    predicted: str  # the class or token whose logit is z


def token_saliency(
    model: Any,
    x: Any,
    *,
    vocab: Sequence[str] = (),
    classes: Sequence[str] = (),
    position: int | None = None,
) -> TokenSaliency:
    r"""Token saliency: gradient of the largest logit with respect to the embedding of each token
    (§4.2; Simonyan et al. 2014, Li et al. 2016).

    If the model has logits at every position, as a language model has, those at `position` are
    used, by default at the last. `vocab` are the token strings, `classes` the names of the outputs.

    >>> import jax.random as jr
    >>> from thetax.models import GPT
    >>> model = GPT.init(5, 8, depth=1, heads=2, max_length=6, key=jr.key(0))
    >>> token_saliency(model, jnp.array([1, 3, -1]), vocab="abcde").gradient_norm.shape
    (2,)
    """
    x = jax.tree.map(jnp.asarray, x)
    tokens = x[0] if isinstance(x, tuple) else x
    valid = np.asarray(tokens) >= 0
    n_tokens = int(valid.sum())
    if position is not None and not 0 <= position < n_tokens:
        raise ValueError(
            f"token_saliency: position must be between 0 and {n_tokens - 1} for {n_tokens} tokens; "
            f"got {position}."
        )
    position = n_tokens - 1 if position is None else position
    table = _embedding(model)
    captured: dict[str, Any] = {}

    def logit(offset):
        # Adds an offset to the embeddings: the gradient in it is that in the embeddings.
        def visit(name, layer, call, given):
            y = call(given)
            if layer.E.shape != table.E.shape or y.shape != offset.shape:
                return y
            captured["embeddings"] = y
            return y + offset

        z = tap(model, select=lambda node: isinstance(node, Embedding), visit=visit)(x)
        z = z[position] if z.ndim == 2 else z
        return z.max(), (z.argmax(), captured["embeddings"])

    zero = jnp.zeros((len(tokens), table.E.shape[1]), table.E.dtype)
    gradient, (predicted, embeddings) = jax.grad(logit, has_aux=True)(zero)
    return TokenSaliency(
        np.linalg.norm(np.asarray(gradient), axis=1)[valid],
        np.asarray((gradient * embeddings).sum(axis=1))[valid],
        token_strings("token_saliency", "text", tokens, vocab),
        str(classes[int(predicted)]) if classes else str(int(predicted)),
    )


def has_embedding(model: Any) -> bool:
    """Whether the model has an `Embedding` layer."""
    return bool(_embeddings(model))


def _embeddings(model: Any) -> list[Embedding]:
    nodes = jax.tree.leaves(model, is_leaf=lambda node: isinstance(node, Embedding))
    return [node for node in nodes if isinstance(node, Embedding)]


def _embedding(model: Any) -> Embedding:
    """The largest embedding table of a model."""
    if not has_embedding(model):
        raise ValueError(
            f"{type(model).__name__} has no Embedding layer; give a model that takes tokens."
        )
    return max(_embeddings(model), key=lambda node: node.E.size)


@dataclass(frozen=True)
class EmbeddingMap:
    """Token embeddings on their first two principal components, and the fraction of the variance
    that each component explains.
    """

    points: Float[np.ndarray, "n 2"]
    tokens: tuple[str, ...]
    explained_variance: Float[np.ndarray, " 2"]


def embedding_map(
    model: Any, *, vocab: Sequence[str] = (), indices: Sequence[int] | None = None
) -> EmbeddingMap:
    r"""PCA of the token embeddings: all tokens, or those in `indices`, on the first two principal
    components (L10 §A).

    >>> from thetax.layers import Embedding
    >>> embedding = Embedding(jnp.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.5, 0.0]]))
    >>> result = embedding_map(embedding, vocab="abc")
    >>> result.tokens, result.explained_variance.sum().round(6).item()
    (('a', 'b', 'c'), 1.0)
    """
    E = np.asarray(_embedding(model).E, np.float64)
    selected = np.arange(len(E)) if indices is None else np.asarray(indices)
    centred = E[selected] - E[selected].mean(axis=0)
    U, s, _ = np.linalg.svd(centred, full_matrices=False)
    explained = s**2 / max((s**2).sum(), 1e-30)
    tokens = token_strings("embedding_map", "table", selected, vocab)
    return EmbeddingMap(U[:, :2] * s[:2], tokens, explained[:2])
