r"""The interface that every attack implements, and the best perturbation found so far.

An attack is `attack(model, x, y, *, key=None) -> x'`, an input near x, for one example. It is a
frozen module whose leaves are its numbers (a radius, a step size), so that changing them does not
recompile. It is stochastic only if it is given a key.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from ..core import Model, Scalar
from ..threat.ball import Perturbation
from ..threat.inputs import Box


@runtime_checkable
class Attack(Protocol):
    """`attack(model, x, y, *, key=None)` returns an input near x; it is deterministic without a
    key.
    """

    def __call__(self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None) -> Any: ...


class Candidate(NamedTuple):
    """A perturbation of the input, its gain, and whether it reached the goal."""

    eta: Perturbation
    gain: Scalar
    reached: Any

    def better_of(self, other: "Candidate") -> "Candidate":
        """The better of the two: reaching the goal comes first, then the larger gain."""
        prefer_other = (other.reached & ~self.reached) | (
            (other.reached == self.reached) & (other.gain > self.gain)
        )
        return jax.tree.map(lambda a, b: jnp.where(prefer_other, b, a), self, other)

    def best(self) -> "Candidate":
        """The best of candidates that are stacked along the first axis."""
        # if any candidate reached the goal, the others are not eligible
        eligible = self.reached == self.reached.any()
        index = jnp.argmax(jnp.where(eligible, self.gain, -jnp.inf))
        return jax.tree.map(lambda a: a[index], self)


def no_candidate(eta: Perturbation) -> Candidate:
    """The initial candidate, with gain -inf: any other is better."""
    return Candidate(eta, jnp.full((), -jnp.inf, eta.dtype), jnp.zeros((), bool))


def clip_to_box(x: Any, eta: Perturbation, box: Box | None) -> Any:
    """x + eta clipped to the box exactly; components of x already outside are not moved further
    out.
    """
    return (
        x + eta
        if box is None
        else jnp.clip(x + eta, jnp.minimum(x, box[0]), jnp.maximum(x, box[1]))
    )
