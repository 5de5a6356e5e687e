r"""The Set Transformer (§7.2; Lee et al. 2019): attention among the elements, and pooling by
attention.
"""

from typing import Any

import equinox as eqx
import jax
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ...layers import (
    Chain,
    InducedSetAttentionBlock,
    Linear,
    PoolingMultiheadAttention,
    SetAttentionBlock,
    lecun,
)
from ...layers.sets.inputs import Elements, join_set, split_set


class SetTransformer(eqx.Module):
    r"""An embedding of the elements, `depth` attention blocks, pooling by attention (PMA), and an
    affine layer; invariant under permutations (§7.2; Lee et al. 2019).

    The blocks are induced (ISAB), or with `n_inducing=None` blocks of full self-attention (SAB).
    With `n_seeds` pooling gives as many vectors, which attend to each other, and the output has a
    row for each.

    >>> model = SetTransformer.init(2, 3, width=8, heads=2, n_inducing=4, depth=1, key=jr.key(0))
    >>> model(jax.numpy.ones((5, 2))).shape
    (3,)
    """

    embed: Linear
    blocks: Chain
    pool: PoolingMultiheadAttention
    decode: SetAttentionBlock | None
    head: Linear

    @classmethod
    def init(
        cls,
        d: int,
        m: int,
        *,
        width: int = 64,
        heads: int = 4,
        depth: int = 2,
        n_inducing: int | None = 16,
        n_seeds: int | None = None,
        key: PRNGKeyArray,
        **options: Any,
    ) -> "SetTransformer":
        """Initialises a network for elements of `d` features and `m` outputs.

        Other options are those of `MultiheadAttentionBlock.init`: `hidden` and `normalise`.
        """
        key_embed, key_pool, key_decode, key_head, *keys = jr.split(key, 4 + depth)
        if n_inducing is None:
            blocks = [SetAttentionBlock.init(width, heads, key=k, **options) for k in keys]
        else:
            blocks = [
                InducedSetAttentionBlock.init(width, heads, n_inducing=n_inducing, key=k, **options)
                for k in keys
            ]
        return cls(
            Linear.init(d, width, initialiser=lecun, key=key_embed),
            Chain(*blocks),
            PoolingMultiheadAttention.init(
                width, heads, n_seeds=1 if n_seeds is None else n_seeds, key=key_pool, **options
            ),
            None
            if n_seeds is None
            else SetAttentionBlock.init(width, heads, key=key_decode, **options),
            Linear.init(width, m, initialiser=lecun, key=key_head),
        )

    def __call__(self, x: Elements) -> Float[Array, "*k m"]:
        points, _ = split_set("SetTransformer", x, self.embed.W.shape[1])
        h = self.blocks(join_set(x, jax.vmap(self.embed)(points)))
        pooled = self.pool(h)
        if self.decode is None:
            return self.head(pooled[0])
        return jax.vmap(self.head)(self.decode(pooled))
