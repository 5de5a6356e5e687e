r"""The eigenvalues of a recurrence on the unit disk (§5.2): $\lambda^t$ fades, stays or grows as
$|\lambda|$ is below, at or above 1.

What was read is down to $1/e$ after $\tau = -1/\log |\lambda|$ steps, and turned round by the angle
of $\lambda$ at each. Of a linear recurrence this is the whole story; of another it is that of its
linear part.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Complex, Float

from ...core import Batch
from ...layers import Elman
from .recurrence import as_vector, cells, recurrence


@dataclass(frozen=True)
class Eigenvalues:
    """The eigenvalues, the largest first, and of what they are."""

    values: Complex[np.ndarray, " m"]
    of: str
    rounding: float = 0.0  # how far an absolute value may lie from 1 and be 1 but for rounding

    @property
    def radius(self) -> float:
        """The largest absolute value."""
        return float(np.abs(self.values).max())

    @property
    def outside(self) -> Bool[np.ndarray, " m"]:
        r"""Whether $|\lambda| > 1$, by more than rounding."""
        return np.abs(self.values) > 1 + max(self.rounding, 1e-6)

    @property
    def times(self) -> Float[np.ndarray, " m"]:
        r"""$\tau = -1/\log|\lambda|$, the steps until $1/e$ is left; infinite from 1 on, up to
        rounding.
        """
        size = np.abs(self.values)
        with np.errstate(divide="ignore"):
            return np.where(size < 1 - self.rounding, -1 / np.log(np.minimum(size, 1)), np.inf)


def eigenvalues(model: Any, xs: Batch | None = None) -> Eigenvalues:
    r"""The eigenvalues of a cell, or of the cells of a model (§5.2).

    Those of `LRU` and `DiagonalSSM` are exact and the same at all times, those of an `Elman` cell
    are of its $U$. Of any other cell they are of the Jacobian of its first step on the first
    example of `xs`, which is then needed.

    >>> import jax.numpy as jnp
    >>> turn = Elman(0.5 * jnp.array([[0.0, -1.0], [1.0, 0.0]]), jnp.ones((2, 1)), jnp.zeros(2))
    >>> found = eigenvalues(turn)
    >>> (
    ...     sorted(found.values.imag.round(6).tolist()),
    ...     round(found.radius, 6),
    ...     float(found.times[0].round(3)),
    ... )
    ([-0.5, 0.5], 0.5, 1.443)
    """
    held = jax.tree.leaves(model, is_leaf=lambda node: hasattr(type(node), "eigenvalues"))
    linear = [node for node in held if hasattr(type(node), "eigenvalues")]
    if linear:
        values = np.concatenate([np.asarray(cell.eigenvalues) for cell in linear])
        return _sorted(values, "the linear recurrence", _rounding(values, 1))
    plain = [cell for cell in cells(model) if isinstance(cell, Elman)]
    if plain:
        U = [np.linalg.eigvals(np.asarray(cell.U, np.float64)) for cell in plain]
        return _sorted(
            np.concatenate(U), "the matrix U", max(_rounding(cell.U, len(cell.U)) for cell in plain)
        )
    if not cells(model):
        raise ValueError(
            "eigenvalues: the model runs no cell along a sequence; this lens is for recurrent "
            "models."
        )
    if xs is None:
        raise ValueError(
            "eigenvalues: a recurrence that is not linear has them at an input only; give xs."
        )
    found = recurrence(model, jax.tree.map(lambda a: a[:1], xs))
    start = jax.tree.map(lambda a: a[0], found.start)
    x = jax.tree.map(lambda a: a[0, 0], found.inputs)
    z, back = as_vector(start)
    J = jax.jacfwd(lambda z: as_vector(found.cell(back(z), x)[0])[0])(z)
    return _sorted(
        np.linalg.eigvals(np.asarray(J, np.float64)), "the first step", _rounding(J, len(J))
    )


def _rounding(given: Any, m: int) -> float:
    r"""How far from the unit circle the eigenvalues of an orthogonal matrix of size $m$ lie, in
    these numbers.
    """
    return 4 * np.sqrt(m) * float(jnp.finfo(given.dtype).eps)


def _sorted(values: np.ndarray, of: str, rounding: float) -> Eigenvalues:
    values = values.astype(np.complex128)
    return Eigenvalues(values[np.argsort(-np.abs(values), kind="stable")], of, rounding)
