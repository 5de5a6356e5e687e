r"""The multi-layer perceptron (§2.2 to §2.5), optionally normalised, residual or dense."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..core import Model
from ..layers import Activation, Chain, Concat, Dropout, Initialiser, Linear, Residual, centred, he


class MLP(eqx.Module):
    r"""$f = A_L \circ \varphi A_{L-1} \circ \dots \circ \varphi A_1$ with affine $A_\ell$ (§2.2).

    The input is flattened. Options: `dropout` after each hidden layer (one probability, or one per
    layer); `normalise`, which initialises a norm before each activation, such as `LayerNorm.init`
    or `BatchNorm.init`; `connect`, `Residual` or `Concat`; `affine`, `Linear.init` or
    `WeightNorm.init`.

    >>> net = MLP.init(784, 256, 128, 10, dropout=(0.4, 0.3), key=jr.key(0))
    >>> net(jnp.ones((28, 28))).shape
    (10,)
    >>> from thetax.layers import LayerNorm
    >>> deep = MLP.init(2, *[16] * 20, 1, normalise=LayerNorm.init, connect=Residual, key=jr.key(0))
    >>> deep(jnp.ones(2)).shape
    (1,)
    """

    body: Chain

    @classmethod
    def init(
        cls,
        *sizes: int,
        activation: Activation = jax.nn.relu,
        dropout: float | Sequence[float] = 0.0,
        normalise: Callable[[int], Model] | None = None,
        connect: type[Residual] | type[Concat] | None = None,
        affine: Callable[..., Model] = Linear.init,
        initialiser: Initialiser = he,
        key: PRNGKeyArray,
    ) -> "MLP":
        """Initialises a network with the given widths, from input to output."""
        if len(sizes) < 2 or min(sizes) < 1:
            raise ValueError(
                "MLP: expected an input and an output width, all positive, as in init(784, 256, "
                f"10, key=key); got {sizes}."
            )
        if connect not in (None, Residual, Concat):
            raise ValueError(f"MLP: connect must be Residual, Concat or None; got {connect!r}.")
        if not callable(activation):
            raise ValueError(
                f"MLP: activation must be a function such as jax.nn.relu; got {activation!r}."
            )
        hidden = len(sizes) - 2
        rates = [dropout] * hidden if isinstance(dropout, int | float) else list(dropout)
        if len(rates) != hidden:
            raise ValueError(
                f"MLP: dropout must be one probability or one per hidden layer; got {len(rates)} "
                f"for {hidden} hidden layers."
            )
        *keys, key_last = jr.split(key, hidden + 1)
        blocks = []
        width = sizes[0]
        for m, rate, key in zip(sizes[1:-1], rates, keys):
            key_affine, key_connect = jr.split(key)
            block = [affine(width, m, initialiser=initialiser, key=key_affine)]
            block += [normalise(m)] if normalise else []
            block += [centred(activation) if connect is Residual else activation]
            block += [Dropout(rate)] if rate else []  # not on the shortcut
            if connect is None:
                blocks += block
            elif connect is Residual:
                blocks += [
                    Residual.init(Chain(*block), width, m, initialiser=initialiser, key=key_connect)
                ]
            else:
                blocks += [Concat(Chain(*block))]
            width = width + m if connect is Concat else m
        return cls(Chain(*blocks, affine(width, sizes[-1], initialiser=initialiser, key=key_last)))

    def __call__(
        self, x: Float[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " m"]:
        return self.body(jnp.ravel(x), key=key)
