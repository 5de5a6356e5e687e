r"""Losses and metrics: a loss is of one prediction, an objective is its mean over a batch.

`batch_mean(loss)` makes the objective of a loss $l(\hat y, y)$, and so it does of a metric:
$\mathrm{objective}(f, \{(x_i, y_i)\}) = \frac1n \sum_i l(f(x_i), y_i)$. Losses take logits and
compute in float32 at least. Labels are integers $y \in \{0, \dots, k-1\}$ or probabilities
$y \in \Delta^{k-1}$.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from ...core import Batch, Model, Objective, Scalar, predict, upcast
from ...serialise import recorded

Loss = Callable[
    [Float[Array, "..."], Shaped[Array, "..."]], Scalar
]  # l(prediction, y) of one example


def squared_loss(prediction: Float[Array, "..."], y: Float[Array, "..."]) -> Scalar:
    r"""Squared error loss $\tfrac12 \|f(x) - y\|^2$ (§2.2), with gradient $f(x) - y$.

    >>> float(squared_loss(jnp.array([1.0, 2.0]), jnp.array([0.0, 0.0])))
    2.5
    """
    prediction = upcast(prediction)
    if y.shape != prediction.shape and not y.size == prediction.size == 1:
        raise ValueError(
            f"squared_loss: expected a target of shape {prediction.shape}; got {y.shape}."
        )
    return jnp.square(prediction - y.reshape(prediction.shape)).sum() / 2


def _check_label(name: str, logits: Array, y: Array) -> None:
    if logits.ndim != 1:
        raise ValueError(
            f"{name}: expected the logits of one example, shape (k,); got {logits.shape}. Use "
            "jax.vmap over the other axes."
        )
    if len(logits) == 1:
        raise ValueError(
            f"{name}: expected two or more logits; got one. Use the binary loss for two classes."
        )
    if y.shape != (() if jnp.issubdtype(y.dtype, jnp.integer) else logits.shape):
        raise ValueError(
            f"{name}: expected an integer label or {len(logits)} probabilities; got "
            f"{y.dtype}{y.shape}."
        )


def log_loss(logits: Float[Array, " k"], y: Shaped[Array, "..."]) -> Scalar:
    r"""Cross-entropy loss of logits, $-\sum_j y_j \log \mathrm{softmax}_j(z)$; for an integer label
    $-z_y + \log \sum_j e^{z_j}$ (§2.2).

    >>> float(log_loss(jnp.zeros(4), jnp.array(2))) == float(jnp.log(4.0))
    True
    >>> float(log_loss(jnp.array([1e4, 0.0]), jnp.array(1)))
    10000.0
    """
    _check_label("log_loss", logits, y)
    z = upcast(logits)
    if jnp.issubdtype(y.dtype, jnp.integer):
        # A mask instead of z[y], whose gradient would be a (slow) scatter; NaN outside 0 .. k-1.
        is_label = jax.lax.iota(y.dtype, len(z)) == y
        loss = jax.nn.logsumexp(z) - jnp.where(is_label, z, 0).sum()
        return jnp.where(is_label.any(), loss, jnp.nan)
    return -jnp.vdot(y.astype(z.dtype), jax.nn.log_softmax(z))


def binary_log_loss(logit: Float[Array, "..."], y: Shaped[Array, ""]) -> Scalar:
    r"""Binary cross-entropy loss of a logit:
    $-y \log \sigma(z) - (1 - y) \log \sigma(-z) = \log(1 + e^z) - yz$ for $y \in [0, 1]$ (§2.1).

    >>> float(binary_log_loss(jnp.array([800.0]), jnp.array(0)))
    800.0
    """
    if logit.size != 1:
        raise ValueError(
            f"binary_log_loss: expected one logit; got shape {logit.shape}. Use log_loss for "
            "several classes."
        )
    z = upcast(logit).reshape(())
    return jax.nn.softplus(z) - y.astype(z.dtype) * z


def zero_one_loss(logits: Float[Array, " k"], y: Shaped[Array, "..."]) -> Scalar:
    r"""Zero-one loss $1\{\arg\max_j z_j \ne y\}$; a soft label counts as its most probable class.

    >>> float(zero_one_loss(jnp.array([0.1, 0.9]), jnp.array(0)))
    1.0
    """
    _check_label("zero_one_loss", logits, y)
    label = y if jnp.issubdtype(y.dtype, jnp.integer) else jnp.argmax(y)
    return (jnp.argmax(logits) != label).astype(jnp.float32)


def binary_zero_one_loss(logit: Float[Array, "..."], y: Shaped[Array, ""]) -> Scalar:
    r"""Zero-one loss of a logit, $1\{1\{z > 0\} \ne y\}$.

    >>> float(binary_zero_one_loss(jnp.array([0.3]), jnp.array(1)))
    0.0
    """
    return ((logit.reshape(()) > 0) != (y.astype(jnp.float32) > 0.5)).astype(jnp.float32)


@recorded
def batch_mean(loss: Loss) -> Objective:
    r"""The mean of a loss over a batch `(xs, ys)` as an objective, $\frac1n \sum_i l(f(x_i), y_i)$:
    the empirical risk (§2.2).

    >>> import jax.random as jr
    >>> from thetax.layers import Linear
    >>> absolute = batch_mean(lambda prediction, y: jnp.abs(prediction - y).sum())
    >>> batch = jnp.ones((5, 3)), jnp.zeros(5)
    >>> absolute(Linear(jnp.ones((1, 3)), jnp.zeros(1)), batch).item()
    3.0
    """

    def objective(model: Model, batch: Batch, *, key: PRNGKeyArray | None = None) -> Scalar:
        if not (isinstance(batch, tuple) and len(batch) == 2):
            raise ValueError(f"{name}: expected a batch (xs, ys); got {type(batch).__name__}.")
        xs, ys = batch
        return jax.vmap(loss)(predict(model, xs, key=key), ys).mean()

    name = getattr(loss, "__name__", "loss")
    objective.__doc__ = (
        f"Mean of `{name}` over a batch `(xs, ys)`: "
        f"{(loss.__doc__ or '').partition('>>>')[0].strip()}"
    )
    return objective


squared_error = batch_mean(squared_loss)  # Mean over the batch of `squared_loss`.
# Mean over the batch of `log_loss`: softmax cross-entropy of logits and class indices.
cross_entropy = batch_mean(log_loss)
# Mean over the batch of `binary_log_loss`, for one logit.
binary_cross_entropy = batch_mean(binary_log_loss)
error_rate = batch_mean(zero_one_loss)  # Fraction of examples whose predicted class is wrong.
# Fraction of examples whose predicted binary class is wrong.
binary_error_rate = batch_mean(binary_zero_one_loss)
