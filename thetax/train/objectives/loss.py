r"""What training makes small: a loss judges one prediction, an objective is its mean over a batch.

`average(loss)` makes the objective of a loss $l(\hat y, y)$, and so does every metric here:
$\mathrm{objective}(f, \{(x_i, y_i)\}) = \frac1n \sum_i l(f(x_i), y_i)$. Losses take logits and
compute in float32 at least. Labels are integers $y \in \{0, \dots, k-1\}$ or probabilities
$y \in \Delta^{k-1}$.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from ...core import Batch, Model, Objective, Scalar, predict, wide

Loss = Callable[
    [Float[Array, "..."], Shaped[Array, "..."]], Scalar
]  # l(prediction, y) of one example


def squared_loss(prediction: Float[Array, "..."], y: Float[Array, "..."]) -> Scalar:
    r"""$\tfrac12 \|f(x) - y\|^2$ (§2.2); its gradient in the prediction is $f(x) - y$.

    >>> float(squared_loss(jnp.array([1.0, 2.0]), jnp.array([0.0, 0.0])))
    2.5
    """
    prediction = wide(prediction)
    if y.shape != prediction.shape and not y.size == prediction.size == 1:
        raise ValueError(
            f"squared_loss: expected a target of shape {prediction.shape}, got {y.shape}."
        )
    return jnp.square(prediction - y.reshape(prediction.shape)).sum() / 2


def _check_label(name: str, logits: Array, y: Array) -> None:
    if logits.ndim != 1:
        raise ValueError(
            f"{name}: expected the logits of one example, (k,), got {logits.shape}; map it over "
            "the rest."
        )
    if len(logits) == 1:
        raise ValueError(
            f"{name}: one logit has no classes to choose from; take the binary loss for two "
            "classes."
        )
    if y.shape != (() if jnp.issubdtype(y.dtype, jnp.integer) else logits.shape):
        raise ValueError(
            f"{name}: expected an integer or {len(logits)} probabilities, got {y.dtype}{y.shape}."
        )


def log_loss(logits: Float[Array, " k"], y: Shaped[Array, "..."]) -> Scalar:
    r"""$-\sum_j y_j \log \mathrm{softmax}_j(z)$; for an integer label $-z_y + \log \sum_j e^{z_j}$
    (§2.2).

    >>> float(log_loss(jnp.zeros(4), jnp.array(2))) == float(jnp.log(4.0))
    True
    >>> float(log_loss(jnp.array([1e4, 0.0]), jnp.array(1)))
    10000.0
    """
    _check_label("log_loss", logits, y)
    z = wide(logits)
    if jnp.issubdtype(y.dtype, jnp.integer):
        mine = jax.lax.iota(y.dtype, len(z)) == y  # a gather would scatter on the way back
        return jnp.where(mine.any(), jax.nn.logsumexp(z) - jnp.where(mine, z, 0).sum(), jnp.nan)
    return -jnp.vdot(y.astype(z.dtype), jax.nn.log_softmax(z))


def binary_log_loss(logit: Float[Array, "..."], y: Shaped[Array, ""]) -> Scalar:
    r"""$-y \log \sigma(z) - (1 - y) \log \sigma(-z) = \log(1 + e^z) - yz$ for $y \in [0, 1]$
    (§2.1).

    >>> float(binary_log_loss(jnp.array([800.0]), jnp.array(0)))
    800.0
    """
    if logit.size != 1:
        raise ValueError(
            f"binary_log_loss: expected one logit, got {logit.shape}; take log_loss for classes."
        )
    z = wide(logit).reshape(())
    return jax.nn.softplus(z) - y.astype(z.dtype) * z


def mistake(logits: Float[Array, " k"], y: Shaped[Array, "..."]) -> Scalar:
    r"""$1\{\arg\max_j z_j \ne y\}$; a soft label counts as its most probable class.

    >>> float(mistake(jnp.array([0.1, 0.9]), jnp.array(0)))
    1.0
    """
    _check_label("mistake", logits, y)
    truth = y if jnp.issubdtype(y.dtype, jnp.integer) else jnp.argmax(y)
    return (jnp.argmax(logits) != truth).astype(jnp.float32)


def binary_mistake(logit: Float[Array, "..."], y: Shaped[Array, ""]) -> Scalar:
    r"""$1\{1\{z > 0\} \ne y\}$.

    >>> float(binary_mistake(jnp.array([0.3]), jnp.array(1)))
    0.0
    """
    return ((logit.reshape(()) > 0) != (y.astype(jnp.float32) > 0.5)).astype(jnp.float32)


def average(loss: Loss) -> Objective:
    r"""The objective $\frac1n \sum_i l(f(x_i), y_i)$ over a batch `(xs, ys)`: the empirical risk
    (§2.2).

    >>> import jax.random as jr
    >>> from thetax.layers import Linear
    >>> absolute = average(lambda prediction, y: jnp.abs(prediction - y).sum())
    >>> batch = jnp.ones((5, 3)), jnp.zeros(5)
    >>> absolute(Linear(jnp.ones((1, 3)), jnp.zeros(1)), batch).item()
    3.0
    """

    def objective(model: Model, batch: Batch, *, key: PRNGKeyArray | None = None) -> Scalar:
        if not (isinstance(batch, tuple) and len(batch) == 2):
            raise ValueError(f"{name}: expected a batch (xs, ys), got {type(batch).__name__}.")
        xs, ys = batch
        return jax.vmap(loss)(predict(model, xs, key=key), ys).mean()

    name = getattr(loss, "__name__", "loss")
    objective.__doc__ = (
        f"The mean of `{name}` over a batch `(xs, ys)`: "
        f"{(loss.__doc__ or '').partition('>>>')[0].strip()}"
    )
    return objective


squared_error = average(squared_loss)
cross_entropy = average(log_loss)
binary_cross_entropy = average(binary_log_loss)
error_rate = average(mistake)
binary_error_rate = average(binary_mistake)
