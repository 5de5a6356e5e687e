r"""The networks inside a network with dropout (§8.4): one for every mask $b$, and what their crowd
says.

$p(y \mid x) = \sum_b p(b)\, p[b](y \mid x)$, $p(b) = \prod_i \pi_i^{b_i} (1 - \pi_i)^{1 - b_i}$,
with $b_i = 1$ where unit (or weight) $i$ stays. A network called without a key replaces the average
by the mean mask; `dropout_average` takes it over all masks, `dropout_belief` over draws, and
`dropout_penalty` says what training under the masks costs. `Dropout` and `DropConnect` are seen
alike.
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
from ...layers.dropout import thin
from ..class_probabilities import BLOCK
from ..modules import modules

MOST = 16  # units whose masks are counted out: 65,536 networks


def _thins(node: Any) -> bool:
    return isinstance(node, Dropout | DropConnect) and node.p > 0


def _check_thins(name: str, model: Any) -> None:
    if not any(_thins(module) for _, module in modules(model)):
        raise ValueError(
            f"{name}: the model drops nothing; give it a Dropout or a DropConnect layer with p > 0."
        )
    if not takes_key(model):
        raise ValueError(
            f"{name}: the model takes no key, so it never drops; let its call take one and pass "
            "it on."
        )


def _check_alone(name: str, model: Any) -> None:
    if has_batch_norm(model):
        raise ValueError(
            f"{name}: through a batch norm one example's mask reaches the others; fold the model "
            "first."
        )


def dropout_average(
    model: Model, xs: Batch, *, of: Callable[[Array], Array] = identity
) -> Float[Array, "n ..."]:
    r"""$\sum_b p(b)\, g(f[b](x_i))$ over all masks, exactly, for up to 16 units or weights that may
    be dropped (§8.4).

    `of` is $g$: with `jax.nn.softmax` it is the class probabilities that are averaged, with
    `jax.nn.log_softmax` their logarithms, which gives the geometric mean, not yet normalised.
    Srivastava et al. 2014.

    >>> from thetax.layers import Chain, Linear
    >>> net = Chain(Dropout(0.5), Linear(jnp.array([[1.0, 2.0]]), jnp.zeros(1)))
    >>> xs = jnp.array([[3.0, 1.0]])
    >>> dropout_average(net, xs).tolist(), jax.vmap(net)(xs).tolist()
    ([[5.0]], [[5.0]])
    >>> dropout_average(net, xs, of=jnp.square).tolist()  # 5², and what the masks add
    [[38.0]]
    """
    _check_thins("dropout_average", model)
    _check_alone("dropout_average", model)
    if any(
        isinstance(node, Ensemble) and any(_thins(part) for _, part in modules(node))
        for _, node in modules(model)
    ):
        raise ValueError(
            "dropout_average: the members of an Ensemble have masks of their own; take one at a "
            "time."
        )
    keep = _keep(model, jax.tree.map(lambda a: a[0], xs))
    if (units := tree.size(keep)) > MOST:
        raise ValueError(
            f"dropout_average: {units} units may be dropped, and 2^{units} masks are too many to "
            f"go through (at most {MOST} units); draw some of them with dropout_belief."
        )
    return _average(model, xs, keep, of)


def _keep(model: Any, x: Any) -> dict[str, list[np.ndarray]]:
    """The probability of staying of each unit or weight that may be dropped, by the name of its
    layer.
    """
    keep: dict[str, list[np.ndarray]] = {}

    def visit(name, layer, call, x):
        if name in keep:
            raise ValueError(
                f"dropout_average: the layer at {name} is used twice; give each use one of its own."
            )
        thinned = [x] if isinstance(layer, Dropout) else jax.tree.leaves(layer.inner)
        keep[name] = [np.full(a.shape, 1 - layer.p) for a in thinned]
        return call(x)

    jax.eval_shape(lambda x: tap(model, select=_thins, visit=visit)(x), x)
    return keep


def _thinned(model: Any, stays: dict[str, list[Any]]) -> Any:
    """The one network of the crowd that a mask leaves."""

    def visit(name, layer, call, x):
        if isinstance(layer, Dropout):
            return thin(x, stays[name][0], p=layer.p)
        weights, structure = jax.tree.flatten(layer.inner)
        left = [thin(w, stay, p=layer.p) for w, stay in zip(weights, stays[name])]
        return apply(jax.tree.unflatten(structure, left), x)

    return tap(model, select=_thins, visit=visit)


@partial(jax.jit, static_argnames="of")
def _average(
    model: Any, xs: Batch, keep: dict[str, list[Any]], of: Callable[[Array], Array]
) -> Any:
    pi, _ = ravel_pytree(keep)
    _, back = ravel_pytree(jax.tree.map(lambda a: jnp.ones(a.shape, bool), keep))

    def add(total, number):
        b = number >> jnp.arange(len(pi)) & 1 == 1  # the binary digits of the mask's number
        outputs = jax.vmap(lambda x: of(_thinned(model, back(b))(x)))(xs)
        return total + jnp.prod(jnp.where(b, pi, 1 - pi)).astype(outputs.dtype) * outputs, None

    form = jax.eval_shape(jax.vmap(lambda x: of(apply(model, x))), xs)
    return jax.lax.scan(add, jnp.zeros(form.shape, form.dtype), jnp.arange(2 ** len(pi)))[0]


@dataclass(frozen=True)
class DropoutBelief:
    r"""What the crowd of thinned networks believes, and how far its members disagree, example by
    example.

    The entropy of the mean is that of the members, on average, and their disagreement:
    $H(\bar p) = \frac1S \sum_s H(p_s) + I$.
    """

    probability: Float[np.ndarray, "n k"]  # p̄, the mean over the draws
    spread: Float[np.ndarray, "n k"]  # the standard deviation over the draws
    entropy: Float[np.ndarray, " n"]  # H(p̄), in nats: all the doubt there is
    information: Float[
        np.ndarray, " n"
    ]  # I, of the label and the mask: the part the members disagree on
    information_error: Float[np.ndarray, " n"]
    draws: int

    @property
    def error(self) -> Float[np.ndarray, "n k"]:
        r"""The Monte-Carlo error of the probabilities, spread $/\sqrt S$."""
        return self.spread / np.sqrt(self.draws)


def dropout_belief(
    model: Model, xs: Batch, *, draws: int = 100, key: PRNGKeyArray
) -> DropoutBelief:
    r"""Monte-Carlo dropout: $\bar p = \frac1S \sum_s p[b_s](\cdot \mid x)$ over $S$ masks, and what
    they doubt (§8.4).

    $I = \frac1S \sum_s \mathrm{KL}(p_s \| \bar p)$ is the information between the label and the
    mask: high where the thinned networks are sure, each of something else. It comes out too small
    by about one part in $S$. The memory is that of a block of examples, whatever their number. Gal
    & Ghahramani 2016; Houlsby et al. 2011.

    >>> from thetax.layers import Chain, Linear
    >>> net = Chain(Dropout(0.5), Linear(jnp.array([[4.0], [-4.0]]), jnp.zeros(2)))
    >>> found = dropout_belief(net, jnp.array([[0.0], [1.0]]), draws=1000, key=jr.key(0))
    >>> found.probability.round(1).tolist(), found.information.round(1).tolist()
    ([[0.5, 0.5], [0.8, 0.2]], [0.0, 0.2])
    """
    _check_thins("dropout_belief", model)
    _check_alone("dropout_belief", model)
    _check_draws("dropout_belief", draws)
    form = jax.eval_shape(lambda x: apply(model, x), jax.tree.map(lambda a: a[0], xs))
    if form.ndim > 1:
        raise ValueError(
            f"dropout_belief: expected logits (k,) for each example, got {form.shape}; is it a "
            "classifier?"
        )
    mean, spread, entropy, information, error = (
        np.asarray(a, np.float64) for a in _beliefs(model, xs, key, draws)
    )
    return DropoutBelief(mean, spread, entropy, information, error, draws)


@partial(jax.jit, static_argnames="draws")
def _beliefs(model: Any, xs: Batch, key: PRNGKeyArray, draws: int) -> tuple[Array, ...]:
    def one(pair):
        x, key = pair
        p = jax.lax.map(lambda key: _probabilities(model(x, key=key)), jr.split(key, draws))
        mean = p.mean(axis=0)
        apart = rel_entr(p, jnp.broadcast_to(mean, p.shape)).sum(axis=1)  # KL(p_s ‖ p̄)
        return (
            mean,
            p.std(axis=0, ddof=1),
            entr(mean).sum(),
            apart.mean(),
            apart.std(ddof=1) / jnp.sqrt(draws),
        )

    keys = jr.split(key, len(jax.tree.leaves(xs)[0]))
    return jax.lax.map(one, (xs, keys), batch_size=BLOCK)


def _probabilities(output: Array) -> Array:
    """Of $k$ logits, or of one, which stands for two: 0 and itself."""
    z = output.astype(jnp.promote_types(output.dtype, jnp.float32)).ravel()
    return jax.nn.softmax(z if len(z) > 1 else jnp.concatenate([jnp.zeros_like(z), z]))


def _check_draws(name: str, draws: int) -> None:
    if not isinstance(draws, int) or draws < 2:
        raise ValueError(f"{name}: draws must be a whole number of at least 2; got {draws!r}.")


@dataclass(frozen=True)
class DropoutPenalty:
    r"""$R = \mathbb{E}_b\, \ell(f[b]) - \ell(f)$ with its Monte-Carlo error, and its second-order
    approximation.
    """

    value: float
    error: float
    quadratic: float
    quadratic_error: float
    objective: float  # ℓ(f), without dropout
    draws: int


class _Partly(eqx.Module):
    """A layer that drops, a share of the way from its mean to a draw."""

    layer: Any
    share: Array

    def __call__(self, x: Any, *, key: PRNGKeyArray | None = None) -> Any:
        if key is None:
            return apply(self.layer, x)
        towards = lambda a, b: a + self.share.astype(a.dtype) * (b - a)
        if isinstance(self.layer, Dropout):
            return towards(x, self.layer(x, key=key))
        key_thin, key = jr.split(key)
        inner = jax.tree.map(towards, self.layer.inner, self.layer.thinned(key_thin))
        return apply(inner, x, key=key)


def _partly(model: Any, share: Array) -> Any:
    """The model with every layer that drops a share of the way; of stacked layers each has the
    share of its own.
    """

    def replaced(node):
        if isinstance(node, Stacked):
            return Stacked(
                _partly(node.layers, jnp.broadcast_to(share, (len(node), *share.shape))),
                node.remat,
            )
        return _Partly(node, share) if _thins(node) else node

    return jax.tree.map(
        replaced, model, is_leaf=lambda node: _thins(node) or isinstance(node, Stacked)
    )


def dropout_penalty(
    objective: Objective, model: Model, batch: Batch, *, draws: int = 100, key: PRNGKeyArray
) -> DropoutPenalty:
    r"""What dropout adds to an objective, $R = \mathbb{E}_b\, \ell(f[b]) - \ell(f)$: the penalty it
    amounts to.

    Let $\ell(t)$ be the objective with the masks a share $t$ of the way from 1 to $b/\pi$. Then
    $R = \mathbb{E}_b[\ell(1) - \ell(0) - \ell'(0)]$, for $\mathbb{E}_b\, \ell'(0) = 0$ and taking
    it off takes off noise; and $\frac12 \mathbb{E}_b\, \ell''(0)$ is the quadratic approximation.
    For dropout with $1 - \pi = \phi$ of units $h$ it is
    $\frac{\phi}{1 - \phi} \frac12 \sum_j h_j^2\, \partial^2 \ell / \partial h_j^2$: a weight decay
    that adapts to the data, which for a linear model and squared errors is all of $R$. Wager, Wang
    & Liang 2013.

    >>> from thetax.layers import Chain, Linear
    >>> from thetax.train import squared_error
    >>> net = Chain(Dropout(0.5), Linear(jnp.array([[1.0, 2.0]]), jnp.zeros(1)))
    >>> found = dropout_penalty(
    ...     squared_error, net, (jnp.array([[3.0, 1.0]]), jnp.zeros(1)), draws=1000, key=jr.key(0)
    ... )
    >>> abs(found.value - 6.5) < 4 * found.error, found.objective  # (3² + 2²) / 2
    (True, 12.5)
    """
    _check_thins("dropout_penalty", model)
    _check_draws("dropout_penalty", draws)
    plain, R, quadratic = (
        np.asarray(a, np.float64) for a in _penalties(objective, model, batch, key, draws)
    )
    error = lambda values: float(values.std(ddof=1) / np.sqrt(draws))
    return DropoutPenalty(
        float(R.mean()), error(R), float(quadratic.mean()), error(quadratic), float(plain), draws
    )


@partial(jax.jit, static_argnames=("objective", "draws"))
def _penalties(
    objective: Objective, model: Any, batch: Batch, key: PRNGKeyArray, draws: int
) -> tuple[Any, ...]:
    def one(key):
        def value(share):
            return objective(_partly(model, share), batch, key=key)

        slope = lambda share: jax.jvp(value, (share,), (jnp.ones_like(share),))
        none = jnp.zeros(())
        (start, first), (_, second) = jax.jvp(slope, (none,), (jnp.ones(()),))
        return value(jnp.ones(())) - start - first, second / 2

    return objective(model, batch), *jax.lax.map(one, jr.split(key, draws))
