r"""Saliency maps (§4.2): the input gradient $|\partial z_{\hat y} / \partial x|$ of the predicted
class's logit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...core import Model
from ...layers import has_batch_norm
from ..class_probabilities import log_probabilities
from ..predictions.mistakes import class_names


@dataclass(frozen=True)
class Saliency:
    """Input gradients for each example, with the examples."""

    gradients: Float[np.ndarray, "n *s"]  # signed, one for each input value
    x: Float[np.ndarray, "n *s"]
    predicted: Int[np.ndarray, " n"]
    classes: tuple[str, ...]

    @property
    def magnitude(self) -> Float[np.ndarray, "n ..."]:
        """$|\\partial z / \\partial x|$; for images `c h w` the maximum over channels, one value a
        pixel.
        """
        magnitude = np.abs(self.gradients)
        return magnitude.max(axis=1) if magnitude.ndim == 4 else magnitude


def saliency(
    model: Model, xs: Float[Array | np.ndarray, "n *s"], *, classes: Sequence[str] = ()
) -> Saliency:
    r"""Saliency map: gradient of the predicted class's logit with respect to the input (§4.2;
    Simonyan et al. 2014).

    Inputs may be vectors or images. For a network with one output, the log-odds, the logit is that
    of the predicted class.

    >>> from thetax.layers import Linear
    >>> model = Linear(jnp.array([[1.0, 0.0], [0.0, -3.0]]))
    >>> result = saliency(model, jnp.array([[2.0, 1.0], [0.0, -1.0]]))
    >>> result.predicted.tolist(), result.magnitude.tolist()
    ([0, 1], [[1.0, 0.0], [0.0, 3.0]])
    """
    xs = jnp.asarray(xs)
    if not len(xs):
        raise ValueError(f"saliency: xs must have at least one example; got shape {xs.shape}.")
    if not jnp.issubdtype(xs.dtype, jnp.floating):
        raise ValueError(
            f"saliency: xs must be floats, which have gradients; got {xs.dtype}. For tokens use "
            "token_saliency."
        )
    if has_batch_norm(model):
        raise ValueError(
            "saliency: the model has batch norms, which depend on the batch; fold the model first."
        )
    log_p = np.asarray(log_probabilities(model, xs))
    predicted = log_p.argmax(axis=1)
    return Saliency(
        np.asarray(_gradients(model, xs, predicted)),
        np.asarray(xs),
        predicted,
        class_names(classes, log_p.shape[1]),
    )


@jax.jit
def _gradients(model: Any, xs: Any, predicted: Any) -> Any:
    def logit(x, j):
        z = model(x).ravel()
        # One output is a log-odds: the logit of class 0 is its negative.
        return jnp.where(j == 0, -z[0], z[0]) if len(z) == 1 else z[j]

    return jax.vmap(jax.grad(logit))(xs, predicted)
