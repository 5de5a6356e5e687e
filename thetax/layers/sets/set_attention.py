r"""The blocks of the Set Transformer: attention among the elements of a set (§7.2, §6.1; Lee et al.
2019).

$$\mathrm{MAB}(X, Y) = \mathrm{LN}(H + \mathrm{FF}(H)), \qquad
H = \mathrm{LN}(X + \mathrm{MultiHead}(X, Y, Y))$$

$$\mathrm{SAB}(X) = \mathrm{MAB}(X, X), \qquad
\mathrm{ISAB}(X) = \mathrm{MAB}(X, \mathrm{MAB}(I, X)), \qquad
\mathrm{PMA}(X) = \mathrm{MAB}(S, \mathrm{FF}(X))$$

with learned inducing points $I$ and seeds $S$. Without positional encodings attention is
permutation equivariant, so SAB and ISAB are equivariant and PMA is invariant.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ...check import expect_count
from ...core import Model
from ..attention import FULL, Attention, Mask
from ..feed_forward import FeedForward
from ..initialise import glorot
from ..normalisation import LayerNorm
from .inputs import Elements, expect_no_batch_norm, join_set, split_set


class MultiheadAttentionBlock(eqx.Module):
    r"""$\mathrm{MAB}(X, Y)$: the rows of $X$ attend to those of $Y$, and a feed-forward layer
    follows; both with a residual connection and a norm (Lee et al. 2019).

    `normalise=None` leaves out the norms. Elements of $Y$ whose mask is false are not attended to.

    >>> block = MultiheadAttentionBlock.init(4, 2, key=jr.key(0))
    >>> block(jax.numpy.ones((3, 4)), jax.numpy.ones((7, 4))).shape
    (3, 4)
    """

    attention: Attention
    feed_forward: FeedForward
    norms: tuple[Any, ...]

    @classmethod
    def init(
        cls,
        d: int,
        heads: int,
        *,
        hidden: int | None = None,
        normalise: Callable[[int], Model] | None = LayerNorm.init,
        key: PRNGKeyArray,
    ) -> "MultiheadAttentionBlock":
        """Initialises a block of width `d`; `hidden`, the width of the feed-forward layer, is by
        default `d`.
        """
        key_attention, key_feed = jr.split(key)
        return cls(
            Attention.init(d, heads, key=key_attention),
            FeedForward.init(d, d if hidden is None else hidden, key=key_feed),
            () if normalise is None else (normalise(d), normalise(d)),
        )

    def __check_init__(self):
        expect_no_batch_norm("MultiheadAttentionBlock", self.norms)

    def __call__(
        self,
        x: Float[Array, "n d"],
        y: Float[Array, "s d"],
        *,
        mask: Bool[Array, " s"] | None = None,
    ) -> Float[Array, "n d"]:
        h = x + self.attention(x, y, mask=FULL if mask is None else Mask(allowed=mask))
        h = jax.vmap(self.norms[0])(h) if self.norms else h
        h = h + self.feed_forward(h)
        return jax.vmap(self.norms[1])(h) if self.norms else h


class SetAttentionBlock(eqx.Module):
    r"""$\mathrm{SAB}(X) = \mathrm{MAB}(X, X)$: every element attends to all, at the cost $O(n^2)$.

    >>> SetAttentionBlock.init(4, 2, key=jr.key(0))(jax.numpy.ones((3, 4))).shape
    (3, 4)
    """

    block: MultiheadAttentionBlock

    @classmethod
    def init(cls, d: int, heads: int, *, key: PRNGKeyArray, **options: Any) -> "SetAttentionBlock":
        """Initialises a block of width `d`; the options are those of `MultiheadAttentionBlock`."""
        return cls(MultiheadAttentionBlock.init(d, heads, key=key, **options))

    def __call__(self, x: Elements) -> Any:
        points, mask = split_set("SetAttentionBlock", x, self.block.attention.Q.W.shape[1])
        return join_set(x, self.block(points, points, mask=mask))


class InducedSetAttentionBlock(eqx.Module):
    r"""$\mathrm{ISAB}(X) = \mathrm{MAB}(X, H)$ with $H = \mathrm{MAB}(I, X)$: the elements attend
    to `n_inducing` learned points, which attend to the elements, at the cost $O(n)$.

    >>> InducedSetAttentionBlock.init(4, 2, n_inducing=5, key=jr.key(0))(
    ...     jax.numpy.ones((3, 4))
    ... ).shape
    (3, 4)
    """

    inducing: Float[Array, "i d"]
    gather: MultiheadAttentionBlock
    spread: MultiheadAttentionBlock

    @classmethod
    def init(
        cls, d: int, heads: int, *, n_inducing: int = 16, key: PRNGKeyArray, **options: Any
    ) -> "InducedSetAttentionBlock":
        """Initialises a block of width `d`; other options are those of
        `MultiheadAttentionBlock`.
        """
        expect_count("InducedSetAttentionBlock", n_inducing=n_inducing)
        key_points, key_gather, key_spread = jr.split(key, 3)
        return cls(
            glorot(key_points, (n_inducing, d)),
            MultiheadAttentionBlock.init(d, heads, key=key_gather, **options),
            MultiheadAttentionBlock.init(d, heads, key=key_spread, **options),
        )

    def __call__(self, x: Elements) -> Any:
        points, mask = split_set("InducedSetAttentionBlock", x, self.inducing.shape[1])
        return join_set(x, self.spread(points, self.gather(self.inducing, points, mask=mask)))


class PoolingMultiheadAttention(eqx.Module):
    r"""$\mathrm{PMA}(X) = \mathrm{MAB}(S, \mathrm{FF}(X))$: `n_seeds` learned queries attend to the
    elements, a learned aggregation into `n_seeds` vectors.

    >>> pool = PoolingMultiheadAttention.init(4, 2, n_seeds=3, key=jr.key(0))
    >>> pool(jax.numpy.ones((7, 4))).shape
    (3, 4)
    """

    seeds: Float[Array, "k d"]
    feed_forward: FeedForward
    block: MultiheadAttentionBlock

    @classmethod
    def init(
        cls, d: int, heads: int, *, n_seeds: int = 1, key: PRNGKeyArray, **options: Any
    ) -> "PoolingMultiheadAttention":
        """Initialises pooling of width `d`; other options are those of
        `MultiheadAttentionBlock`.
        """
        expect_count("PoolingMultiheadAttention", n_seeds=n_seeds)
        key_seeds, key_feed, key_block = jr.split(key, 3)
        return cls(
            glorot(key_seeds, (n_seeds, d)),
            FeedForward.init(d, d, key=key_feed),
            MultiheadAttentionBlock.init(d, heads, key=key_block, **options),
        )

    def __call__(self, x: Elements) -> Float[Array, "k d"]:
        points, mask = split_set("PoolingMultiheadAttention", x, self.seeds.shape[1])
        return self.block(self.seeds, self.feed_forward(points), mask=mask)
