r"""Combining layers into networks (§2.2, §2.4).

`Chain`      $x \mapsto F_L(\dots F_1(x))$
`Residual`   $x \mapsto Sx + F(x)$, where $S$ is the identity if the widths are equal
`Concat`     $x \mapsto [x, F(x)]$; a chain of these is a densely connected network
`Stacked`    $x \mapsto F_L(\dots F_1(x))$ with layers of equal structure, in one pytree
`Ensemble`   $x \mapsto$ the pooled predictions of several networks of equal structure

Each passes a key on to its parts that are random, such as `Dropout`.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..check import expect_count
from ..core import Model, apply
from .activation import Activation
from .initialise import Initialiser, lecun
from .linear import Linear

MAX_UNROLLED_LAYERS = 4  # on a CPU; deeper stacks run as a scan


class Pointwise(eqx.Module):
    r"""A function without parameters as a layer, $x \mapsto \varphi(x)$.

    >>> Pointwise(jnp.tanh)(jnp.zeros(2)).tolist()
    [0.0, 0.0]
    """

    activation: Activation = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*s"]) -> Float[Array, "..."]:
        return self.activation(x)


class Chain(eqx.Module):
    r"""Layers applied one after another, $F_L \circ \dots \circ F_1$ (§2.2).

    A plain function becomes a `Pointwise` layer without parameters.

    >>> from thetax.layers import Linear
    >>> k1, k2 = jr.split(jr.key(0))
    >>> net = Chain(Linear.init(3, 8, key=k1), jax.nn.relu, Linear.init(8, 2, key=k2))
    >>> net(jnp.ones(3)).shape
    (2,)
    """

    layers: tuple[Any, ...]

    def __init__(self, *layers: Callable[..., Any]):
        self.layers = tuple(f if isinstance(f, eqx.Module) else Pointwise(f) for f in layers)

    def __call__(self, x: Any, *, key: PRNGKeyArray | None = None) -> Any:
        keys = [None] * len(self.layers) if key is None else jr.split(key, len(self.layers))
        for layer, key in zip(self.layers, keys):
            x = apply(layer, x, key=key)
        return x


class Residual(eqx.Module):
    r"""A residual layer, $x \mapsto S(x) + F(x)$, with the skip connection $S$, by default the
    identity (§2.4; He et al. 2016).

    If the widths differ, $S$ is a projection, $Sx = Vx$. With `centred` activations inside, zero
    weights give exactly the identity.

    >>> from thetax.layers import Linear, centred
    >>> zero = Linear(jnp.zeros((2, 2)), jnp.zeros(2))
    >>> Residual(Chain(zero, centred(jax.nn.sigmoid)))(jnp.array([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """

    inner: Any
    skip: Any = None

    @classmethod
    def init(
        cls, inner: Model, n: int, m: int, *, initialiser: Initialiser = lecun, key: PRNGKeyArray
    ) -> "Residual":
        """Initialises the skip connection: a linear projection if `n` and `m` differ."""
        return cls(
            inner,
            None if n == m else Linear.init(n, m, initialiser=initialiser, bias=False, key=key),
        )

    def __call__(
        self, x: Float[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "..."]:
        skipped = x if self.skip is None else self.skip(x)
        residual = apply(self.inner, x, key=key)
        if skipped.shape != residual.shape:
            raise ValueError(
                f"Residual: the inner layer maps shape {x.shape} to {residual.shape}, but the skip "
                f"connection gives {skipped.shape}. Build the layer with Residual.init, which adds "
                "a projection."
            )
        return skipped + residual


class Concat(eqx.Module):
    r"""Concatenates input and output, $x \mapsto [x, F(x)]$, along the leading axis, so later
    layers see the outputs of all earlier ones (§2.4; Huang et al. 2017).

    >>> Concat(Pointwise(jnp.tanh))(jnp.zeros(3)).shape
    (6,)
    """

    inner: Any

    def __call__(
        self, x: Float[Array, "n *s"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "m *s"]:
        return jnp.concatenate([x, apply(self.inner, x, key=key)])


class Stacked(eqx.Module):
    r"""Layers of equal structure applied one after another, $F_L \circ \dots \circ F_1$ (§2.2).

    Each leaf of `layers` has a leading axis with one entry per layer. On a CPU more than
    `MAX_UNROLLED_LAYERS` layers run as a `lax.scan`: one layer is compiled, so compile time does
    not depend on the depth. Up to that number, and on accelerators at any depth, the layers are
    unrolled, and compile time grows with the depth: a scan would copy the stored activations.

    `remat=True` turns on gradient checkpointing (rematerialisation): only the input of each layer
    is stored, and the backward pass recomputes the rest (Chen et al. 2016).

    >>> from functools import partial
    >>> from thetax.layers import Linear
    >>> net = Stacked.init(partial(Linear.init, 3, 3), 5, key=jr.key(0))
    >>> net.layers.W.shape, net(jnp.ones(3)).shape
    ((5, 3, 3), (3,))
    """

    is_leaf_module: ClassVar[bool] = True

    layers: Any
    remat: bool = eqx.field(static=True, default=False)

    @classmethod
    def init(
        cls, make: Callable[..., Model], depth: int, *, remat: bool = False, key: PRNGKeyArray
    ) -> "Stacked":
        """Initialises `depth` layers by `make(key=...)`."""
        expect_count("Stacked", depth=depth)
        return cls(jax.vmap(lambda key: make(key=key))(jr.split(key, depth)), remat)

    def __len__(self) -> int:
        return len(jax.tree.leaves(self.layers)[0])

    def scan(
        self, step: Callable[[Any, Any, Any], tuple[Any, Any]], x: Any, items: Any = None
    ) -> tuple[Any, Any]:
        """Calls `x, out = step(layer, x, item)` for each layer and its entry of `items`.

        Returns the last `x` and the stacked `out`.
        """
        step = jax.checkpoint(step) if self.remat else step
        if jax.default_backend() == "cpu" and len(self) > MAX_UNROLLED_LAYERS:
            return jax.lax.scan(lambda x, pair: step(pair[0], x, pair[1]), x, (self.layers, items))
        outs = []
        for index in range(len(self)):
            layer, item = jax.tree.map(lambda a, i=index: a[i], (self.layers, items))
            x, out = step(layer, x, item)
            outs.append(out)
        return x, jax.tree.map(lambda *out: jnp.stack(out), *outs)

    def __call__(self, x: Any, *, key: PRNGKeyArray | None = None) -> Any:
        keys = None if key is None else jr.split(key, len(self))
        return self.scan(lambda layer, x, key: (apply(layer, x, key=key), None), x, keys)[0]


def mean_output(outputs: Float[Array, "members *s"]) -> Float[Array, "*s"]:
    """The mean of the outputs of the members."""
    return outputs.mean(axis=0)


def mean_probabilities(logits: Float[Array, "members k"]) -> Float[Array, " k"]:
    r"""The logits of the mean class probabilities,
    $\log \frac1M \sum_j \mathrm{softmax}(z_j)$.

    >>> jnp.exp(mean_probabilities(jnp.log(jnp.array([[0.8, 0.2], [0.4, 0.6]])))).round(3).tolist()
    [0.6..., 0.4...]
    """
    log_p = jax.nn.log_softmax(logits, axis=-1)
    return jax.nn.logsumexp(log_p, axis=0) - jnp.log(len(logits))


class Ensemble(eqx.Module):
    r"""An ensemble: networks of equal structure, stacked along a leading axis of every leaf, whose
    outputs are pooled. `pool` is `mean_output` or `mean_probabilities`.

    >>> from functools import partial
    >>> from thetax.layers import Linear
    >>> net = Ensemble.init(partial(Linear.init, 3, 2), 5, key=jr.key(0))
    >>> net.members.W.shape, net(jnp.ones(3)).shape
    ((5, 2, 3), (2,))
    """

    is_leaf_module: ClassVar[bool] = True

    members: Any
    pool: Callable[[Float[Array, "..."]], Float[Array, "..."]] = eqx.field(
        static=True, default=mean_output
    )

    @classmethod
    def init(
        cls,
        make: Callable[..., Model],
        size: int,
        *,
        pool: Callable = mean_output,
        key: PRNGKeyArray,
    ) -> "Ensemble":
        """Initialises `size` members by `make(key=...)`."""
        return cls(jax.vmap(lambda key: make(key=key))(jr.split(key, size)), pool)

    def __call__(self, x: Any, *, key: PRNGKeyArray | None = None) -> Any:
        if key is None:
            return self.pool(jax.vmap(lambda member: apply(member, x))(self.members))
        keys = jr.split(key, len(jax.tree.leaves(self.members)[0]))
        return self.pool(
            jax.vmap(lambda member, key: apply(member, x, key=key))(self.members, keys)
        )
