r"""What every attack is, and what it has found so far.

An attack is `attack(model, x, y, *, key=None) -> x'`, an input near x, for one example: a frozen module whose leaves
are its numbers (a radius, a rate), so that another radius is no new program. Chance is in it only with a key.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import PRNGKeyArray

from ..core import Model, Scalar, expect_floats
from .ball import Shift

Range = tuple[float, float]  # the least and the largest value of an input


@runtime_checkable
class Attack(Protocol):
    """`attack(model, x, y, *, key=None)` is an input near x; chance is in it only with a key."""

    def __call__(self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None) -> Any: ...


class Attempt(NamedTuple):
    """A shift of the input, what it gained, and whether it reached the goal."""

    eta: Shift
    gain: Scalar
    reached: Any

    def beside(self, other: "Attempt") -> "Attempt":
        """The better of the two: one that reached the goal before one that did not, then that of more gain."""
        more = (other.reached & ~self.reached) | ((other.reached == self.reached) & (other.gain > self.gain))
        return jax.tree.map(lambda a, b: jnp.where(more, b, a), self, other)

    def best(self) -> "Attempt":
        """Of attempts stacked along the first axis the best."""
        at = jnp.argmax(jnp.where(self.reached == self.reached.any(), self.gain, -jnp.inf))
        return jax.tree.map(lambda a: a[at], self)


def nothing(eta: Shift) -> Attempt:
    """Before the first attempt: any other is better."""
    return Attempt(eta, jnp.full((), -jnp.inf, eta.dtype), jnp.zeros((), bool))


def check_one_array(name: str, xs: Any) -> None:
    """Refuses examples of several parts, which are not moved in one ball.

    >>> check_one_array("robust", (jnp.zeros(3), jnp.zeros(2)))
    Traceback (most recent call last):
    ValueError: robust: inputs are moved as one array, but those that came are a tuple.
    """
    if isinstance(xs, tuple | dict):
        raise ValueError(f"{name}: inputs are moved as one array, but those that came are a {type(xs).__name__}.")


def check_input(name: str, model: Model, x: Any, y: Any, box: Range | None) -> None:
    """Refuses what no attack can begin with; of what is only traced the shapes and kinds are looked at.

    >>> check_input("PGD", lambda x: x, jnp.array([0.2, 1.5]), jnp.array(0), (0.0, 1.0))
    Traceback (most recent call last):
    ValueError: PGD: expected inputs from 0.0 to 1.0, but they go from 0.2 to 1.5. Scale them, or give their own box.
    """
    expect_floats(f"{name}: x", x)
    if box is not None:
        check_box(name, box)
        low, high = box if isinstance(x, Tracer) else (np.asarray(x).min(), np.asarray(x).max())
        if not box[0] <= low <= high <= box[1]:
            raise ValueError(
                f"{name}: expected inputs from {box[0]} to {box[1]}, but they go from {low:.4g} to {high:.4g}. "
                "Scale them, or give their own box."
            )
    if not isinstance(y, Tracer) and np.ndim(y) == 0 and jnp.issubdtype(jnp.asarray(y).dtype, jnp.integer):
        classes = jax.eval_shape(lambda x: model(x), x).shape[-1]
        if not 0 <= int(y) < classes:
            raise ValueError(f"{name}: expected a label from 0 to {classes - 1}, got {int(y)}.")


def check_box(name: str, box: Range) -> None:
    """Refuses a range that is none.

    >>> check_box("PGD", (1.0, 0.0))
    Traceback (most recent call last):
    ValueError: PGD: box is the least and the largest value of an input, such as (0.0, 1.0); got (1.0, 0.0).
    """
    if not (len(box) == 2 and -np.inf < box[0] < box[1] < np.inf):
        raise ValueError(f"{name}: box is the least and the largest value of an input, such as (0.0, 1.0); got {box}.")


def placed(x: Any, eta: Shift, box: Range | None) -> Any:
    """The input with the shift, in the range to the last bit, and nowhere else if it was not in it."""
    return x + eta if box is None else jnp.clip(x + eta, jnp.minimum(x, box[0]), jnp.maximum(x, box[1]))
