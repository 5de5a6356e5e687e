r"""Words as a network has them (L10 §A): which of them a judgement hangs on, and how their vectors
lie.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...layers import Embedding, tap
from .attention_alignment import words


@dataclass(frozen=True)
class TokenSaliency:
    r"""How much each token of one text matters for a judgement: $\|\partial z / \partial e_i\|$ for
    its vector $e_i$, and $e_i^\top \partial z / \partial e_i$, about what the logit $z$ owes to it.
    """

    size: Float[np.ndarray, " t"]
    owed: Float[np.ndarray, " t"]
    tokens: tuple[str, ...]
    about: str


def token_saliency(
    model: Any,
    x: Any,
    *,
    names: Sequence[str] = (),
    classes: Sequence[str] = (),
    place: int | None = None,
) -> TokenSaliency:
    r"""The slope of the likeliest logit with respect to the vector of each token (§4.2; Simonyan et
    al. 2014, Li et al. 2016); where a model speaks at every place, of what it says at `place`, or
    at the last.

    >>> import jax.random as jr
    >>> from thetax.models import GPT
    >>> model = GPT.init(5, 8, depth=1, heads=2, max_length=6, key=jr.key(0))
    >>> token_saliency(model, jnp.array([1, 3, -1]), names="abcde").size.shape
    (2,)
    """
    x = jax.tree.map(jnp.asarray, x)
    tokens = x[0] if isinstance(x, tuple) else x
    count = int((np.asarray(tokens) >= 0).sum())
    if place is not None and not 0 <= place < count:
        raise ValueError(
            f"token_saliency: place is that of one of {count} tokens, from 0 on; got {place}."
        )
    place = count - 1 if place is None else place
    table = _table(model)
    met: dict[str, Any] = {}

    def logit(moved):
        def visit(name, layer, call, given):
            y = call(given)
            if layer.E.shape != table.E.shape or y.shape != moved.shape:
                return y
            met["vectors"] = y
            return y + moved

        z = tap(model, select=lambda node: isinstance(node, Embedding), visit=visit)(x)
        z = z[place] if z.ndim == 2 else z
        return z.max(), (z.argmax(), met["vectors"])

    nothing = jnp.zeros((len(tokens), table.E.shape[1]), table.E.dtype)
    slope, (guess, vectors) = jax.grad(logit, has_aux=True)(nothing)
    there = np.asarray(tokens) >= 0
    size = np.linalg.norm(np.asarray(slope), axis=1)[there]
    owed = np.asarray((slope * vectors).sum(axis=1))[there]
    about = str(classes[int(guess)]) if classes else str(int(guess))
    return TokenSaliency(size, owed, words("token_saliency", "text", tokens, names), about)


def has_table(model: Any) -> bool:
    """Whether there is an `Embedding` in the model."""
    return bool(_tables(model))


def _tables(model: Any) -> list[Embedding]:
    nodes = jax.tree.leaves(model, is_leaf=lambda node: isinstance(node, Embedding))
    return [node for node in nodes if isinstance(node, Embedding)]


def _table(model: Any) -> Embedding:
    """The largest table of vectors in a model."""
    if not has_table(model):
        raise ValueError(
            f"{type(model).__name__} has no table of tokens; give a model that reads tokens."
        )
    return max(_tables(model), key=lambda node: node.E.size)


@dataclass(frozen=True)
class EmbeddingMap:
    """Tokens as points, in the two directions in which their vectors differ most, and the
    variance's share in each.
    """

    points: Float[np.ndarray, "n 2"]
    tokens: tuple[str, ...]
    share: Float[np.ndarray, " 2"]


def embedding_map(
    model: Any, *, names: Sequence[str] = (), which: Sequence[int] | None = None
) -> EmbeddingMap:
    r"""The vectors of the tokens on their first two principal components (L10 §A); of all, or of
    those in `which`.

    >>> from thetax.layers import Embedding
    >>> found = embedding_map(
    ...     Embedding(jnp.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.5, 0.0]])), names="abc"
    ... )
    >>> found.tokens, found.share.sum().round(6).item()
    (('a', 'b', 'c'), 1.0)
    """
    E = np.asarray(_table(model).E, np.float64)
    chosen = np.arange(len(E)) if which is None else np.asarray(which)
    rows = E[chosen] - E[chosen].mean(axis=0)
    U, s, _ = np.linalg.svd(rows, full_matrices=False)
    share = s**2 / max((s**2).sum(), 1e-30)
    return EmbeddingMap(U[:, :2] * s[:2], words("embedding_map", "table", chosen, names), share[:2])
