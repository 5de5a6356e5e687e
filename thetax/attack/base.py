r"""What every attack is, and what it has found so far.

An attack is `attack(model, x, y, *, key=None) -> x'`, an input near x, for one example: a frozen
module whose leaves are its numbers (a radius, a rate), so that another radius is no new program.
Chance is in it only with a key.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from ..core import Model, Scalar
from ..threat.ball import Shift
from ..threat.inputs import Range


@runtime_checkable
class Attack(Protocol):
    """`attack(model, x, y, *, key=None)` is an input near x; chance is in it only with a key."""

    def __call__(self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None) -> Any: ...


class Candidate(NamedTuple):
    """A shift of the input, what it gained, and whether it reached the goal."""

    eta: Shift
    gain: Scalar
    reached: Any

    def beside(self, other: "Candidate") -> "Candidate":
        """The better of the two: one that reached the goal before one that did not, then that of
        more gain.
        """
        more = (other.reached & ~self.reached) | (
            (other.reached == self.reached) & (other.gain > self.gain)
        )
        return jax.tree.map(lambda a, b: jnp.where(more, b, a), self, other)

    def best(self) -> "Candidate":
        """Of attempts stacked along the first axis the best."""
        at = jnp.argmax(jnp.where(self.reached == self.reached.any(), self.gain, -jnp.inf))
        return jax.tree.map(lambda a: a[at], self)


def no_candidate(eta: Shift) -> Candidate:
    """Before the first attempt: any other is better."""
    return Candidate(eta, jnp.full((), -jnp.inf, eta.dtype), jnp.zeros((), bool))


def clip_to_box(x: Any, eta: Shift, box: Range | None) -> Any:
    """The input with the shift, in the range to the last bit, and nowhere else if it was not in
    it.
    """
    return (
        x + eta
        if box is None
        else jnp.clip(x + eta, jnp.minimum(x, box[0]), jnp.maximum(x, box[1]))
    )
