r"""Deep Sets (§7.2; Zaheer et al. 2017): functions of sets from a sum over the elements.

$$f(\{x_1, \dots, x_M\}) = \rho\Big(\sum_m \varphi(x_m)\Big), \qquad
y_m = \rho\Big(x_m, \sum_k \varphi(x_k)\Big)$$

The first is permutation invariant, the second equivariant. Both take sets of any size. With a
latent dimension of at least $M$ the first form can represent every continuous invariant function of
$M$ numbers; with a smaller one and continuous $\varphi$ it cannot (Wagstaff et al. 2019).
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ...core import Model, apply, takes_key
from ...data.sets import PointSet
from ...layers import Activation, aggregate_set, relu
from ...layers.sets.aggregation import check_aggregation
from ...layers.sets.inputs import Elements, expect_no_batch_norm, join_set, split_set
from ..mlp import MLP

Aggregation = str | tuple[str, ...]


def _n_aggregations(aggregation: Aggregation) -> int:
    return 1 if isinstance(aggregation, str) else len(aggregation)


def _for_each(f: Model, points: Float[Array, "n d"], key: PRNGKeyArray | None) -> Array:
    """$f$ of every element, each with its own key."""
    if key is None or not takes_key(f):
        return jax.vmap(lambda x: f(x))(points)
    return jax.vmap(lambda x, key: f(x, key=key))(points, jr.split(key, len(points)))


def _keys(key: PRNGKeyArray | None) -> Any:
    return (None, None) if key is None else jr.split(key)


class DeepSets(eqx.Module):
    r"""The invariant network $f(X) = \rho(\bigoplus_m \varphi(x_m))$ (§7.2).

    $\varphi$ maps an element to the latent space, $\rho$ the aggregated latent vector to the
    output; both are networks, by default MLPs. $\bigoplus$ is `aggregate_set`: the sum, or "mean",
    "max", "min", "logsumexp" or several of them. An empty set has the output $\rho(0)$.

    >>> model = DeepSets.init(1, 2, latent=8, hidden=(16,), key=jr.key(0))
    >>> model(jnp.ones((3, 1))).shape, model(jnp.ones((50, 1))).shape
    ((2,), (2,))
    >>> x = jnp.array([[1.0], [2.0], [5.0]])
    >>> bool(jnp.allclose(model(x), model(x[::-1]), atol=1e-6))
    True
    """

    phi: Any
    rho: Any
    aggregation: Aggregation = eqx.field(static=True, default="sum")

    @classmethod
    def init(
        cls,
        d: int,
        m: int,
        *,
        latent: int = 64,
        hidden: Sequence[int] = (64, 64),
        rho_hidden: Sequence[int] | None = None,
        aggregation: str | Sequence[str] = "sum",
        activation: Activation = relu,
        normalise: Callable[[int], Model] | None = None,
        dropout: float = 0.0,
        key: PRNGKeyArray,
    ) -> "DeepSets":
        r"""Initialises networks for elements of `d` features and `m` outputs.

        `latent` is the dimension of the sum, `hidden` the widths of the hidden layers of $\varphi$
        and, unless `rho_hidden` is given, of $\rho$; `dropout` is that of $\rho$.
        """
        aggregation = aggregation if isinstance(aggregation, str) else tuple(aggregation)
        key_phi, key_rho = jr.split(key)
        options = {"activation": activation, "normalise": normalise}
        phi = MLP.init(d, *hidden, latent, **options, key=key_phi)
        rho_hidden = hidden if rho_hidden is None else rho_hidden
        width = _n_aggregations(aggregation) * latent
        rho = MLP.init(width, *rho_hidden, m, dropout=dropout, **options, key=key_rho)
        return cls(phi, rho, aggregation)

    def __check_init__(self):
        check_aggregation("DeepSets", self.aggregation)
        expect_no_batch_norm("DeepSets: phi", self.phi)

    def latent(self, x: Elements, *, key: PRNGKeyArray | None = None) -> Float[Array, " h"]:
        r"""The aggregated latent vector $\bigoplus_m \varphi(x_m)$."""
        points, _ = split_set("DeepSets", x)
        if not len(points):
            latent = jax.eval_shape(lambda row: apply(self.phi, row), points.sum(axis=0))
            return aggregate_set(jnp.zeros((0, *latent.shape), latent.dtype), self.aggregation)
        return aggregate_set(join_set(x, _for_each(self.phi, points, key)), self.aggregation)

    def __call__(self, x: Elements, *, key: PRNGKeyArray | None = None) -> Float[Array, " m"]:
        key_phi, key_rho = _keys(key)
        return apply(self.rho, self.latent(x, key=key_phi), key=key_rho)


class EquivariantDeepSets(eqx.Module):
    r"""The equivariant network $y_m = \rho(x_m, \bigoplus_k \varphi(x_k))$: an output for every
    element, which depends on all (§7.2).

    An array gives an array, a `PointSet` a `PointSet`.

    >>> model = EquivariantDeepSets.init(2, 3, latent=8, hidden=(16,), key=jr.key(0))
    >>> x = jr.normal(jr.key(1), (4, 2))
    >>> bool(jnp.allclose(model(x[::-1]), model(x)[::-1], atol=1e-6))
    True
    """

    phi: Any
    rho: Any
    aggregation: Aggregation = eqx.field(static=True, default="sum")

    @classmethod
    def init(
        cls,
        d: int,
        m: int,
        *,
        latent: int = 64,
        hidden: Sequence[int] = (64, 64),
        aggregation: str | Sequence[str] = "sum",
        activation: Activation = relu,
        key: PRNGKeyArray,
    ) -> "EquivariantDeepSets":
        """Initialises networks for elements of `d` features and `m` outputs for each."""
        aggregation = aggregation if isinstance(aggregation, str) else tuple(aggregation)
        key_phi, key_rho = jr.split(key)
        phi = MLP.init(d, *hidden, latent, activation=activation, key=key_phi)
        width = d + _n_aggregations(aggregation) * latent
        rho = MLP.init(width, *hidden, m, activation=activation, key=key_rho)
        return cls(phi, rho, aggregation)

    def __check_init__(self):
        check_aggregation("EquivariantDeepSets", self.aggregation)
        for network in (self.phi, self.rho):
            expect_no_batch_norm("EquivariantDeepSets", network)

    def __call__(self, x: Elements, *, key: PRNGKeyArray | None = None) -> Any:
        points, mask = split_set("EquivariantDeepSets", x)
        key_phi, key_rho = _keys(key)
        latent = _for_each(self.phi, points, key_phi)
        context = aggregate_set(
            latent if mask is None else PointSet(latent, mask), self.aggregation
        )
        context = jnp.broadcast_to(context[None], (len(points), len(context)))
        return join_set(x, _for_each(self.rho, jnp.concatenate([points, context], axis=1), key_rho))
