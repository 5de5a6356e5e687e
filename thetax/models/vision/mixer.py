r"""MLP-Mixer (lecture 10; Tolstikhin et al. 2021): MLPs over patches and over channels.

The image is divided into $S$ patches, each embedded as a row of $C$ channels. A block maps this
table $X$ to $Y$ by

$$U = X + W_2\, \mathrm{GELU}(W_1\, \mathrm{LN}(X)), \qquad Y = U + \mathrm{GELU}(\mathrm{LN}(U)\,
W_3)\, W_4 :$$

The first MLP mixes patches and is shared by all channels; the second mixes channels and is shared
by all patches. The readout is a linear map of the mean over patches.
"""

from functools import partial

import equinox as eqx
import jax
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ...core import expect_shape
from ...layers import Convolution, Initialiser, LayerNorm, Linear, Stacked, gelu, glorot, lecun
from ..mlp import MLP


class MixerBlock(eqx.Module):
    r"""$X \mapsto U \mapsto Y$: an MLP over the patches, then an MLP over the channels.

    >>> import jax.numpy as jnp
    >>> block = MixerBlock.init(4, 3, hidden=(5, 6), key=jr.key(0))
    >>> block(jnp.ones((4, 3))).shape
    (4, 3)
    """

    norm_tokens: LayerNorm
    tokens: MLP
    norm_channels: LayerNorm
    channels: MLP

    @classmethod
    def init(
        cls,
        s: int,
        c: int,
        *,
        hidden: tuple[int, int],
        initialiser: Initialiser = glorot,
        key: PRNGKeyArray,
    ) -> "MixerBlock":
        """Initialises a block for `s` patches and `c` channels with two hidden widths."""
        key_tokens, key_channels = jr.split(key)
        tokens = MLP.init(s, hidden[0], s, activation=gelu, initialiser=initialiser, key=key_tokens)
        channels = MLP.init(
            c, hidden[1], c, activation=gelu, initialiser=initialiser, key=key_channels
        )
        return cls(LayerNorm.init(c, eps=1e-6), tokens, LayerNorm.init(c, eps=1e-6), channels)

    def __call__(self, X: Float[Array, "s c"]) -> Float[Array, "s c"]:
        U = X + jax.vmap(self.tokens, in_axes=1, out_axes=1)(jax.vmap(self.norm_tokens)(X))
        return U + jax.vmap(self.channels)(jax.vmap(self.norm_channels)(U))


class Mixer(eqx.Module):
    r"""Patch embedding, mixer blocks, a norm, and a linear readout of the mean over patches.

    `Mixer.init(classes=1000, key=key)` is Mixer-B/16. The blocks are `Stacked`.

    >>> import jax.numpy as jnp
    >>> net = Mixer.init(
    ...     2,
    ...     classes=10,
    ...     image_size=(8, 8),
    ...     channels=1,
    ...     patch_size=4,
    ...     width=6,
    ...     hidden=(5, 7),
    ...     key=jr.key(0),
    ... )
    >>> net(jnp.ones((1, 8, 8))).shape, net.blocks.layers.tokens.body.layers[0].W.shape
    ((10,), (2, 5, 4))
    """

    stem: Convolution
    blocks: Stacked
    last: LayerNorm
    head: Linear
    image_size: tuple[int, int] = eqx.field(static=True)

    @classmethod
    def init(
        cls,
        depth: int = 12,
        *,
        classes: int,
        image_size: tuple[int, int] = (224, 224),
        channels: int = 3,
        patch_size: int = 16,
        width: int = 768,
        hidden: tuple[int, int] = (384, 3072),
        initialiser: Initialiser = glorot,
        key: PRNGKeyArray,
    ) -> "Mixer":
        """Initialises a network of `depth` blocks; each patch is embedded in `width` channels."""
        if depth < 1 or patch_size < 1 or image_size[0] % patch_size or image_size[1] % patch_size:
            raise ValueError(
                "Mixer: depth must be >= 1, and patch_size must divide the image_size; got "
                f"depth={depth}, patch_size={patch_size}, image_size={image_size}."
            )
        if min(classes, channels, width, *image_size, *hidden) < 1:
            raise ValueError(
                f"Mixer: all sizes must be >= 1; got classes={classes}, image_size={image_size}, "
                f"channels={channels}, width={width}, hidden={hidden}."
            )
        key_stem, key_blocks, key_head = jr.split(key, 3)
        stem = Convolution.init(
            channels,
            width,
            (patch_size, patch_size),
            boundary="valid",
            stride=patch_size,
            initialiser=lecun,
            key=key_stem,
        )
        s = (image_size[0] // patch_size) * (image_size[1] // patch_size)
        blocks = Stacked.init(
            partial(MixerBlock.init, s, width, hidden=hidden, initialiser=initialiser),
            depth,
            key=key_blocks,
        )
        head = Linear.init(width, classes, initialiser=lecun, key=key_head)
        return cls(stem, blocks, LayerNorm.init(width, eps=1e-6), head, image_size)

    def __call__(self, x: Float[Array, "c h w"]) -> Float[Array, " k"]:
        expect_shape("Mixer", x, (self.stem.W.shape[1], *self.image_size))
        patches = self.stem(x)
        X = self.blocks(patches.reshape(len(patches), -1).T)
        return self.head(jax.vmap(self.last)(X).mean(axis=0))
