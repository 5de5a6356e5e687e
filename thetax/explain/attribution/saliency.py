r"""Which pixels a judgement hangs on (§4.2): $|\partial z_{\hat y} / \partial x|$, the slope of the
chosen logit.
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
from ..class_probabilities import belief
from ..predictions.mistakes import class_names


@dataclass(frozen=True)
class Saliency:
    """The slopes for each example, with the examples themselves."""

    slopes: Float[np.ndarray, "n *s"]  # one for each number of an input, with its sign
    x: Float[np.ndarray, "n *s"]
    guess: Int[np.ndarray, " n"]
    classes: tuple[str, ...]

    @property
    def size(self) -> Float[np.ndarray, "n ..."]:
        """$|\\partial z / \\partial x|$; of an image `c h w` the largest over its channels, so that
        a pixel has one.
        """
        size = np.abs(self.slopes)
        return size.max(axis=1) if size.ndim == 4 else size


def saliency(
    model: Model, xs: Float[Array | np.ndarray, "n *s"], *, classes: Sequence[str] = ()
) -> Saliency:
    r"""How the logit of the guessed class changes with each number of the input (§4.2; Simonyan et
    al. 2014).

    Inputs may be flat or images. Of a network with one output, which is a log-odds, it is that of
    the class it favours.

    >>> from thetax.layers import Linear
    >>> net = Linear(jnp.array([[1.0, 0.0], [0.0, -3.0]]))
    >>> found = saliency(net, jnp.array([[2.0, 1.0], [0.0, -1.0]]))
    >>> found.guess.tolist(), found.size.tolist()
    ([0, 1], [[1.0, 0.0], [0.0, 3.0]])
    """
    xs = jnp.asarray(xs)
    if not len(xs):
        raise ValueError(
            f"saliency: there are no examples, the inputs have shape {xs.shape}; give at least one."
        )
    if not jnp.issubdtype(xs.dtype, jnp.floating):
        raise ValueError(
            f"saliency: expected inputs of real numbers, which have slopes; got {xs.dtype}."
        )
    if has_batch_norm(model):
        raise ValueError(
            "saliency: the model has batch norms, which depend on the batch; fold(model, xs) it "
            "first."
        )
    log_p = np.asarray(belief(model, xs))
    guess = log_p.argmax(axis=1)
    return Saliency(
        np.asarray(_slopes(model, xs, guess)),
        np.asarray(xs),
        guess,
        class_names(classes, log_p.shape[1]),
    )


@jax.jit
def _slopes(model: Any, xs: Any, guess: Any) -> Any:
    def logit(x, j):
        z = model(x).ravel()
        return jnp.where(j == 0, -z[0], z[0]) if len(z) == 1 else z[j]

    return jax.vmap(jax.grad(logit))(xs, guess)
