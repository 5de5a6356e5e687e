r"""Monte-Carlo dropout (MC dropout): a network with dropout as an ensemble of sub-networks, one for
every mask $b$ (§8.4).

$p(y \mid x) = \sum_b p(b)\, p[b](y \mid x)$, $p(b) = \prod_i \pi_i^{b_i} (1 - \pi_i)^{1 - b_i}$,
with $b_i = 1$ if unit (or weight) $i$ is kept. A network called without a key replaces the average
by the mean mask; `dropout_average` averages over all masks, `mc_dropout` over sampled masks, and
`dropout_penalty` is the regularisation effect of dropout on an objective. `Dropout` and
`DropConnect` are treated alike.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.special import entr, rel_entr
from jaxtyping import Array, Float, PRNGKeyArray

from ... import tree
from ...core import Batch, Model, Objective, apply, takes_key
from ...layers import DropConnect, Dropout, Ensemble, Stacked, has_batch_norm, identity, tap
from ...layers.dropout import apply_mask
from ..class_probabilities import MAX_BATCH_SIZE
from ..modules import named_modules

MAX_MASKED_UNITS = 16  # 65,536 masks are enumerated


def _has_dropout(node: Any) -> bool:
    return isinstance(node, Dropout | DropConnect) and node.p > 0


def _check_dropout(name: str, model: Any) -> None:
    if not any(_has_dropout(module) for _, module in named_modules(model)):
        raise ValueError(
            f"{name}: the model has no dropout; add a Dropout or DropConnect layer with p > 0."
        )
    if not takes_key(model):
        raise ValueError(
            f"{name}: the model takes no key, so dropout is never active; give its call a "
            "key argument and pass it on to the layers."
        )


def _check_independent(name: str, model: Any) -> None:
    if has_batch_norm(model):
        raise ValueError(
            f"{name}: batch norm makes the examples depend on one another's masks; fold the model "
            "first."
        )


def dropout_average(
    model: Model, xs: Batch, *, of: Callable[[Array], Array] = identity
) -> Float[Array, "n ..."]:
    r"""Exact average $\sum_b p(b)\, g(f[b](x_i))$ over all dropout masks, for at most 16 units or
    weights with dropout (§8.4).

    `of` is $g$: `jax.nn.softmax` averages class probabilities, `jax.nn.log_softmax` their
    logarithms, which gives the unnormalised geometric mean. Srivastava et al. 2014.

    >>> from thetax.layers import Chain, Linear
    >>> net = Chain(Dropout(0.5), Linear(jnp.array([[1.0, 2.0]]), jnp.zeros(1)))
    >>> xs = jnp.array([[3.0, 1.0]])
    >>> dropout_average(net, xs).tolist(), jax.vmap(net)(xs).tolist()
    ([[5.0]], [[5.0]])
    >>> dropout_average(net, xs, of=jnp.square).tolist()  # 5² plus the variance over masks
    [[38.0]]
    """
    _check_dropout("dropout_average", model)
    _check_independent("dropout_average", model)
    if any(
        isinstance(node, Ensemble) and any(_has_dropout(part) for _, part in named_modules(node))
        for _, node in named_modules(model)
    ):
        raise ValueError(
            "dropout_average: the members of an Ensemble have separate masks; pass one member at a "
            "time."
        )
    keep = _keep_probabilities(model, jax.tree.map(lambda a: a[0], xs))
    if (units := tree.size(keep)) > MAX_MASKED_UNITS:
        raise ValueError(
            f"dropout_average: {units} units have dropout, and 2^{units} masks are too many to "
            f"enumerate (at most {MAX_MASKED_UNITS} units); sample masks with mc_dropout."
        )
    return _average(model, xs, keep, of)


def _keep_probabilities(model: Any, x: Any) -> dict[str, list[np.ndarray]]:
    """The probability of being kept, $\\pi_i$, of each unit or weight with dropout, by the path of
    its layer.
    """
    keep: dict[str, list[np.ndarray]] = {}

    def visit(name, layer, call, x):
        if name in keep:
            raise ValueError(
                f"dropout_average: the dropout layer at {name} is used twice; use separate layers."
            )
        masked = [x] if isinstance(layer, Dropout) else jax.tree.leaves(layer.inner)
        keep[name] = [np.full(a.shape, 1 - layer.p) for a in masked]
        return call(x)

    jax.eval_shape(lambda x: tap(model, select=_has_dropout, visit=visit)(x), x)
    return keep


def _sub_network(model: Any, masks: dict[str, list[Any]]) -> Any:
    """The sub-network $f[b]$ of given masks."""

    def visit(name, layer, call, x):
        if isinstance(layer, Dropout):
            return apply_mask(x, masks[name][0], p=layer.p)
        weights, structure = jax.tree.flatten(layer.inner)
        kept = [apply_mask(w, mask, p=layer.p) for w, mask in zip(weights, masks[name])]
        return apply(jax.tree.unflatten(structure, kept), x)

    return tap(model, select=_has_dropout, visit=visit)


@partial(jax.jit, static_argnames="of")
def _average(
    model: Any, xs: Batch, keep: dict[str, list[Any]], of: Callable[[Array], Array]
) -> Any:
    pi, _ = ravel_pytree(keep)
    _, unravel = ravel_pytree(jax.tree.map(lambda a: jnp.ones(a.shape, bool), keep))

    def add(total, number):
        b = number >> jnp.arange(len(pi)) & 1 == 1  # mask number in binary
        outputs = jax.vmap(lambda x: of(_sub_network(model, unravel(b))(x)))(xs)
        return total + jnp.prod(jnp.where(b, pi, 1 - pi)).astype(outputs.dtype) * outputs, None

    output = jax.eval_shape(jax.vmap(lambda x: of(apply(model, x))), xs)
    return jax.lax.scan(add, jnp.zeros(output.shape, output.dtype), jnp.arange(2 ** len(pi)))[0]


@dataclass(frozen=True)
class MCDropout:
    r"""Class probabilities by Monte-Carlo dropout, their uncertainty, and how much of it is
    disagreement between the sub-networks (epistemic uncertainty).

    $H(\bar p) = \frac1S \sum_s H(p_s) + I$: total entropy is mean entropy plus mutual information.
    """

    probability: Float[np.ndarray, "n k"]  # p̄, the mean over samples
    std: Float[np.ndarray, "n k"]  # over samples
    entropy: Float[np.ndarray, " n"]  # H(p̄) in nats: total uncertainty
    # I, between label and mask: epistemic uncertainty
    mutual_information: Float[np.ndarray, " n"]
    mutual_information_error: Float[np.ndarray, " n"]
    n_samples: int

    @property
    def error(self) -> Float[np.ndarray, "n k"]:
        r"""Monte-Carlo standard error of the probabilities, std $/\sqrt S$."""
        return self.std / np.sqrt(self.n_samples)


def mc_dropout(model: Model, xs: Batch, *, n_samples: int = 100, key: PRNGKeyArray) -> MCDropout:
    r"""Monte-Carlo dropout: class probabilities $\bar p = \frac1S \sum_s p[b_s](\cdot \mid x)$
    averaged over $S$ sampled masks, and their uncertainty (§8.4).

    $I = \frac1S \sum_s \mathrm{KL}(p_s \| \bar p)$ is the mutual information between label and mask
    (BALD): high where the sub-networks are confident but disagree. Its estimate is too small by
    about one part in $S$. Examples are processed in batches, so memory does not grow with their
    number. Gal & Ghahramani 2016; Houlsby et al. 2011.

    >>> from thetax.layers import Chain, Linear
    >>> net = Chain(Dropout(0.5), Linear(jnp.array([[4.0], [-4.0]]), jnp.zeros(2)))
    >>> result = mc_dropout(net, jnp.array([[0.0], [1.0]]), n_samples=1000, key=jr.key(0))
    >>> result.probability.round(1).tolist(), result.mutual_information.round(1).tolist()
    ([[0.5, 0.5], [0.8, 0.2]], [0.0, 0.2])
    """
    _check_dropout("mc_dropout", model)
    _check_independent("mc_dropout", model)
    _check_samples("mc_dropout", n_samples)
    logits = jax.eval_shape(lambda x: apply(model, x), jax.tree.map(lambda a: a[0], xs))
    if logits.ndim > 1:
        raise ValueError(
            f"mc_dropout: expected logits (k,) for each example, got {logits.shape}; is it a "
            "classifier?"
        )
    mean, std, entropy, information, error = (
        np.asarray(a, np.float64) for a in _sample_moments(model, xs, key, n_samples)
    )
    return MCDropout(mean, std, entropy, information, error, n_samples)


@partial(jax.jit, static_argnames="n_samples")
def _sample_moments(model: Any, xs: Batch, key: PRNGKeyArray, n_samples: int) -> tuple[Array, ...]:
    def one(pair):
        x, key = pair
        p = jax.lax.map(lambda key: _probabilities(model(x, key=key)), jr.split(key, n_samples))
        mean = p.mean(axis=0)
        divergence = rel_entr(p, jnp.broadcast_to(mean, p.shape)).sum(axis=1)  # KL(p_s ‖ p̄)
        return (
            mean,
            p.std(axis=0, ddof=1),
            entr(mean).sum(),
            divergence.mean(),
            divergence.std(ddof=1) / jnp.sqrt(n_samples),
        )

    keys = jr.split(key, len(jax.tree.leaves(xs)[0]))
    return jax.lax.map(one, (xs, keys), batch_size=MAX_BATCH_SIZE)


def _probabilities(output: Array) -> Array:
    """Softmax of $k$ logits, or of $(0, z)$ for a single output $z$."""
    z = output.astype(jnp.promote_types(output.dtype, jnp.float32)).ravel()
    return jax.nn.softmax(z if len(z) > 1 else jnp.concatenate([jnp.zeros_like(z), z]))


def _check_samples(name: str, n_samples: int) -> None:
    if not isinstance(n_samples, int) or n_samples < 2:
        raise ValueError(f"{name}: n_samples must be an integer >= 2; got {n_samples!r}.")


@dataclass(frozen=True)
class DropoutPenalty:
    r"""The dropout penalty $R = \mathbb{E}_b\, \ell(f[b]) - \ell(f)$ with its Monte-Carlo error,
    and its second-order approximation.
    """

    value: float
    error: float
    quadratic: float
    quadratic_error: float
    objective: float  # ℓ(f), without dropout
    n_samples: int


class _InterpolatedDropout(eqx.Module):
    """A dropout layer with its mask interpolated: 1 at `t` = 0, $b/\\pi$ at `t` = 1."""

    layer: Any
    t: Array

    def __call__(self, x: Any, *, key: PRNGKeyArray | None = None) -> Any:
        if key is None:
            return apply(self.layer, x)
        interpolate = lambda a, b: a + self.t.astype(a.dtype) * (b - a)
        if isinstance(self.layer, Dropout):
            return interpolate(x, self.layer(x, key=key))
        key_mask, key = jr.split(key)
        inner = jax.tree.map(interpolate, self.layer.inner, self.layer.drop_weights(key_mask))
        return apply(inner, x, key=key)


def _interpolate_dropout(model: Any, t: Array) -> Any:
    """The model with the masks of all dropout layers interpolated; `t` is broadcast over stacked
    layers.
    """

    def replaced(node):
        if isinstance(node, Stacked):
            return Stacked(
                _interpolate_dropout(node.layers, jnp.broadcast_to(t, (len(node), *t.shape))),
                node.remat,
            )
        return _InterpolatedDropout(node, t) if _has_dropout(node) else node

    return jax.tree.map(
        replaced, model, is_leaf=lambda node: _has_dropout(node) or isinstance(node, Stacked)
    )


def dropout_penalty(
    objective: Objective, model: Model, batch: Batch, *, n_samples: int = 100, key: PRNGKeyArray
) -> DropoutPenalty:
    r"""Dropout as a regulariser: $R = \mathbb{E}_b\, \ell(f[b]) - \ell(f)$, the penalty that
    dropout adds to an objective.

    Let $\ell(t)$ be the objective with masks interpolated from 1 at $t = 0$ to $b/\pi$ at $t = 1$.
    Then $R = \mathbb{E}_b[\ell(1) - \ell(0) - \ell'(0)]$, as $\mathbb{E}_b\, \ell'(0) = 0$;
    subtracting this control variate reduces the variance. And $\frac12 \mathbb{E}_b\, \ell''(0)$ is
    the quadratic approximation. For dropout of units $h$ with probability $1 - \pi = \phi$ it is
    $\frac{\phi}{1 - \phi} \frac12 \sum_j h_j^2\, \partial^2 \ell / \partial h_j^2$: a
    data-dependent weight decay, which for a linear model with squared error equals $R$. Wager, Wang
    & Liang 2013.

    >>> from thetax.layers import Chain, Linear
    >>> from thetax.train import squared_error
    >>> net = Chain(Dropout(0.5), Linear(jnp.array([[1.0, 2.0]]), jnp.zeros(1)))
    >>> batch = jnp.array([[3.0, 1.0]]), jnp.zeros(1)
    >>> result = dropout_penalty(squared_error, net, batch, n_samples=1000, key=jr.key(0))
    >>> abs(result.value - 6.5) < 4 * result.error, result.objective  # (3² + 2²) / 2
    (True, 12.5)
    """
    _check_dropout("dropout_penalty", model)
    _check_samples("dropout_penalty", n_samples)
    plain, R, quadratic = (
        np.asarray(a, np.float64) for a in _penalties(objective, model, batch, key, n_samples)
    )
    error = lambda values: float(values.std(ddof=1) / np.sqrt(n_samples))
    return DropoutPenalty(
        value=float(R.mean()),
        error=error(R),
        quadratic=float(quadratic.mean()),
        quadratic_error=error(quadratic),
        objective=float(plain),
        n_samples=n_samples,
    )


@partial(jax.jit, static_argnames=("objective", "n_samples"))
def _penalties(
    objective: Objective, model: Any, batch: Batch, key: PRNGKeyArray, n_samples: int
) -> tuple[Any, ...]:
    def one(key):
        def value(t):
            return objective(_interpolate_dropout(model, t), batch, key=key)

        derivative = lambda t: jax.jvp(value, (t,), (jnp.ones_like(t),))
        zero = jnp.zeros(())
        # ℓ(0), ℓ'(0) and ℓ''(0), by forward mode over forward mode
        (start, first), (_, second) = jax.jvp(derivative, (zero,), (jnp.ones(()),))
        return value(jnp.ones(())) - start - first, second / 2

    return objective(model, batch), *jax.lax.map(one, jr.split(key, n_samples))
