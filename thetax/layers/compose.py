r"""How layers make a network (§2.2, §2.4): one after another, added to the input, or appended to
it.

`Chain`      $x \mapsto F_L(\dots F_1(x))$
`Residual`   $x \mapsto Sx + F(x)$, with the identity for $S$ where the widths agree
`Concat`     $x \mapsto [x, F(x)]$; a chain of these is a densely connected network
`Stacked`    $x \mapsto F_L(\dots F_1(x))$ with layers of one shape, compiled once
`Ensemble`   $x \mapsto$ the pooled predictions of several networks of one shape

Each passes a key on to those of its parts that draw.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

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
    r"""$F_L \circ \dots \circ F_1$ (§2.2). Plain functions are taken as layers without parameters.

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
    r"""$x \mapsto S(x) + F(x)$ with a skip $S$ that is the identity unless given (§2.4; He et al.
    2016).

    Where the widths differ $S$ is a projection, $Sx = Vx$. With `centred` activations inside, zero
    weights give the identity exactly.

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
        """Adds a linear projection where the widths differ."""
        return cls(
            inner,
            None if n == m else Linear.init(n, m, initialiser=initialiser, bias=False, key=key),
        )

    def __call__(
        self, x: Float[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "..."]:
        straight = x if self.skip is None else self.skip(x)
        bent = apply(self.inner, x, key=key)
        if straight.shape != bent.shape:
            raise ValueError(
                f"Residual: the inner part makes {bent.shape} of {x.shape}; Residual.init adds a "
                "projection."
            )
        return straight + bent


class Concat(eqx.Module):
    r"""$x \mapsto [x, F(x)]$ along the leading axis: what follows reads all that came before (§2.4;
    Huang et al. 2017).

    >>> Concat(Pointwise(jnp.tanh))(jnp.zeros(3)).shape
    (6,)
    """

    inner: Any

    def __call__(
        self, x: Float[Array, "n *s"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "m *s"]:
        return jnp.concatenate([x, apply(self.inner, x, key=key)])


class Stacked(eqx.Module):
    r"""$F_L \circ \dots \circ F_1$ with layers of equal structure (§2.2).

    Each leaf of `layers` has a leading axis, one entry a layer. On a CPU more than
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

    heard_whole: ClassVar[bool] = True

    layers: Any
    remat: bool = eqx.field(static=True, default=False)

    @classmethod
    def init(
        cls, make: Callable[..., Model], depth: int, *, remat: bool = False, key: PRNGKeyArray
    ) -> "Stacked":
        """Draws `depth` layers by `make(key=...)`."""
        if depth < 1:
            raise ValueError(f"Stacked: depth counts layers and must be at least 1; got {depth}.")
        return cls(jax.vmap(lambda key: make(key=key))(jr.split(key, depth)), remat)

    def __len__(self) -> int:
        return len(jax.tree.leaves(self.layers)[0])

    def through(
        self, step: Callable[[Any, Any, Any], tuple[Any, Any]], x: Any, items: Any = None
    ) -> tuple[Any, Any]:
        """`x, out = step(layer, x, item)` from layer to layer: the last `x`, and all that was put
        out.
        """
        step = jax.checkpoint(step) if self.remat else step
        if jax.default_backend() == "cpu" and len(self) > MAX_UNROLLED_LAYERS:
            return jax.lax.scan(lambda x, both: step(both[0], x, both[1]), x, (self.layers, items))
        outs = []
        for at in range(len(self)):
            layer, item = jax.tree.map(lambda a, at=at: a[at], (self.layers, items))
            x, out = step(layer, x, item)
            outs.append(out)
        return x, jax.tree.map(lambda *out: jnp.stack(out), *outs)

    def __call__(self, x: Any, *, key: PRNGKeyArray | None = None) -> Any:
        keys = None if key is None else jr.split(key, len(self))
        return self.through(lambda layer, x, key: (apply(layer, x, key=key), None), x, keys)[0]


def mean(outputs: Float[Array, "members *s"]) -> Float[Array, "*s"]:
    """The average of the members' outputs."""
    return outputs.mean(axis=0)


def mixture(logits: Float[Array, "members k"]) -> Float[Array, " k"]:
    r"""The logits of the averaged class probabilities, $\log \frac1M \sum_j \mathrm{softmax}(z_j)$.

    >>> jnp.exp(mixture(jnp.log(jnp.array([[0.8, 0.2], [0.4, 0.6]])))).round(3).tolist()
    [0.6..., 0.4...]
    """
    log_p = jax.nn.log_softmax(logits, axis=-1)
    return jax.nn.logsumexp(log_p, axis=0) - jnp.log(len(logits))


class Ensemble(eqx.Module):
    r"""Several networks of one shape, stacked along a leading axis of every leaf, and their pooled
    prediction.

    >>> from functools import partial
    >>> from thetax.layers import Linear
    >>> net = Ensemble.init(partial(Linear.init, 3, 2), 5, key=jr.key(0))
    >>> net.members.W.shape, net(jnp.ones(3)).shape
    ((5, 2, 3), (2,))
    """

    heard_whole: ClassVar[bool] = True

    members: Any
    pool: Callable[[Float[Array, "..."]], Float[Array, "..."]] = eqx.field(
        static=True, default=mean
    )

    @classmethod
    def init(
        cls, make: Callable[..., Model], size: int, *, pool: Callable = mean, key: PRNGKeyArray
    ) -> "Ensemble":
        """Draws `size` members by `make(key=...)`."""
        return cls(jax.vmap(lambda key: make(key=key))(jr.split(key, size)), pool)

    def __call__(self, x: Any, *, key: PRNGKeyArray | None = None) -> Any:
        if key is None:
            return self.pool(jax.vmap(lambda member: apply(member, x))(self.members))
        keys = jr.split(key, len(jax.tree.leaves(self.members)[0]))
        return self.pool(
            jax.vmap(lambda member, key: apply(member, x, key=key))(self.members, keys)
        )
