r"""The vision transformer (§6.6; Dosovitskiy et al. 2021): an encoder of image patches.

The image is divided into $N = HW/P^2$ patches, each embedded by one linear map. A class token is
prepended, position embeddings are added, and a transformer encoder follows. Without position
embeddings the model is invariant to permutations of the patches.
"""

from functools import partial

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ...core import expect_floats, expect_shape
from ...layers import (
    Convolution,
    Dropout,
    FeedForward,
    Initialiser,
    LayerNorm,
    LearnedPositions,
    Linear,
    gaussian,
    gelu,
)
from .transformer import Trunk

SMALL = gaussian(0.02)


class ViT(eqx.Module):
    r"""Maps an image $(c, h, w)$ to class logits; `ViT.init(classes=1000, key=key)` is ViT-B/16.

    >>> net = ViT.init(
    ...     10, image_size=(8, 8), channels=1, patch_size=4, d=8, depth=2, heads=2, key=jr.key(0)
    ... )
    >>> net(jnp.ones((1, 8, 8))).shape, net.patches(jnp.ones((1, 8, 8))).shape
    ((10,), (4, 8))
    """

    stem: Convolution
    class_token: Float[Array, " d"]
    trunk: Trunk
    head: Linear
    positions: LearnedPositions | None = None
    drop: Dropout = Dropout(0.0)
    image_size: tuple[int, int] = eqx.field(static=True, default=(224, 224))

    @classmethod
    def init(
        cls,
        classes: int,
        *,
        image_size: tuple[int, int] = (224, 224),
        channels: int = 3,
        patch_size: int = 16,
        d: int = 768,
        depth: int = 12,
        heads: int = 12,
        hidden: int | None = None,
        positions: bool = True,
        eps: float = 1e-12,
        dropout: float = 0.0,
        remat: bool = False,
        initialiser: Initialiser = SMALL,
        key: PRNGKeyArray,
    ) -> "ViT":
        """Initialises a ViT; with `positions=False` it has no position embeddings."""
        if patch_size < 1 or image_size[0] % patch_size or image_size[1] % patch_size:
            raise ValueError(
                f"ViT: patch_size must divide the image_size; got patch_size={patch_size}, "
                f"image_size={image_size}."
            )
        key_stem, key_class, key_positions, key_trunk, key_head = jr.split(key, 5)
        n_patches = (image_size[0] // patch_size) * (image_size[1] // patch_size)
        trunk = Trunk.init(
            depth,
            d,
            heads,
            hidden or 4 * d,
            norm=partial(LayerNorm.init, eps=eps),
            feed=partial(FeedForward.init, activation=gelu),
            dropout=dropout,
            remat=remat,
            initialiser=initialiser,
            key=key_trunk,
        )
        return cls(
            Convolution.init(
                channels,
                d,
                (patch_size, patch_size),
                boundary="valid",
                stride=patch_size,
                initialiser=initialiser,
                key=key_stem,
            ),
            initialiser(key_class, (1, d))[0],
            trunk,
            Linear.init(d, classes, initialiser=initialiser, key=key_head),
            LearnedPositions.init(n_patches + 1, d, initialiser=initialiser, key=key_positions)
            if positions
            else None,
            Dropout(dropout),
            image_size,
        )

    def patches(self, x: Float[Array, "c h w"]) -> Float[Array, "n d"]:
        """The patch embeddings in row-major order, computed by a strided convolution."""
        expect_shape("ViT", x, (self.stem.W.shape[1], *self.image_size))
        expect_floats("ViT", x)
        return self.stem(x).reshape(len(self.class_token), -1).T

    def input_embeddings(self, x: Float[Array, "c h w"]) -> Float[Array, "m d"]:
        """The class token and the patch embeddings, with position embeddings."""
        tokens = jnp.concatenate([self.class_token[None], self.patches(x)])
        return tokens if self.positions is None else self.positions(tokens)

    def last_hidden(
        self, x: Float[Array, "c h w"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "m d"]:
        """The hidden states after the last layer."""
        key_drop, key_trunk = (None, None) if key is None else jr.split(key)
        return self.trunk(self.drop(self.input_embeddings(x), key=key_drop), key=key_trunk)

    def attention_weights(self, x: Float[Array, "c h w"]) -> Float[Array, "l heads m m"]:
        """The attention weights of every layer and head; the first token is the class token."""
        return self.trunk.attention_weights(self.input_embeddings(x))

    def __call__(
        self, x: Float[Array, "c h w"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " k"]:
        return self.head(self.last_hidden(x, key=key)[0])
