r"""Eigenvalues of a recurrence (§5.2): $\lambda^t$ decays, is constant or grows if $|\lambda|$ is
below, equal to or above 1.

Along an eigenvector the state decays to $1/e$ after $\tau = -1/\log |\lambda|$ steps, and each step
rotates it by the angle of $\lambda$. For a linear recurrence this describes the dynamics
completely, for other recurrences its linear part.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Complex, Float

from ...core import Batch
from ...layers import Elman
from .recurrence import as_vector, capture_recurrence, recurrent_cells


@dataclass(frozen=True)
class RecurrenceEigenvalues:
    """The eigenvalues, the largest first, and the name of the map that they belong to."""

    values: Complex[np.ndarray, " m"]
    source: str
    tolerance: float = 0.0  # absolute values this close to 1 are 1 up to rounding

    @property
    def spectral_radius(self) -> float:
        """The largest absolute value."""
        return float(np.abs(self.values).max())

    @property
    def is_unstable(self) -> Bool[np.ndarray, " m"]:
        r"""Whether $|\lambda| > 1$, beyond rounding."""
        return np.abs(self.values) > 1 + max(self.tolerance, 1e-6)

    @property
    def time_constants(self) -> Float[np.ndarray, " m"]:
        r"""$\tau = -1/\log|\lambda|$, the number of steps until $1/e$ is left; infinite where
        $|\lambda| \ge 1$, up to rounding.
        """
        size = np.abs(self.values)
        with np.errstate(divide="ignore"):
            return np.where(size < 1 - self.tolerance, -1 / np.log(np.minimum(size, 1)), np.inf)


def recurrence_eigenvalues(model: Any, xs: Batch | None = None) -> RecurrenceEigenvalues:
    r"""The eigenvalues of a cell, or of the cells of a model (§5.2).

    For `LRU` and `DiagonalSSM` they are those of the linear recurrence, the same at all times; for
    an `Elman` cell, those of its matrix $U$. For other cells they are those of the Jacobian of the
    first step on the first example of `xs`, which is required then.

    >>> import jax.numpy as jnp
    >>> turn = Elman(0.5 * jnp.array([[0.0, -1.0], [1.0, 0.0]]), jnp.ones((2, 1)), jnp.zeros(2))
    >>> result = recurrence_eigenvalues(turn)
    >>> result.values.imag.round(6).tolist(), round(result.spectral_radius, 6)
    ([0.5, -0.5], 0.5)
    >>> round(float(result.time_constants[0]), 3)
    1.443
    """
    has_eigenvalues = lambda node: hasattr(type(node), "eigenvalues")
    leaves = jax.tree.leaves(model, is_leaf=has_eigenvalues)
    linear_cells = [node for node in leaves if has_eigenvalues(node)]
    if linear_cells:
        values = np.concatenate([np.asarray(cell.eigenvalues) for cell in linear_cells])
        return _sort(values, "the linear recurrence", _rounding_error(values, 1))
    cells = recurrent_cells(model)
    elman_cells = [cell for cell in cells if isinstance(cell, Elman)]
    if elman_cells:
        values = [np.linalg.eigvals(np.asarray(cell.U, np.float64)) for cell in elman_cells]
        tolerance = max(_rounding_error(cell.U, len(cell.U)) for cell in elman_cells)
        return _sort(np.concatenate(values), "the matrix U", tolerance)
    if not cells:
        raise ValueError("recurrence_eigenvalues: the model has no recurrent cell.")
    if xs is None:
        raise ValueError(
            "recurrence_eigenvalues: the Jacobian of a nonlinear cell depends on its inputs; give "
            "xs."
        )
    recurrence = capture_recurrence(model, jax.tree.map(lambda a: a[:1], xs))
    start = jax.tree.map(lambda a: a[0], recurrence.start)
    x = jax.tree.map(lambda a: a[0, 0], recurrence.inputs)
    z, from_vector = as_vector(start)
    J = jax.jacfwd(lambda z: as_vector(recurrence.cell(from_vector(z), x)[0])[0])(z)
    values = np.linalg.eigvals(np.asarray(J, np.float64))
    return _sort(values, "the first step", _rounding_error(J, len(J)))


def _rounding_error(array: Any, m: int) -> float:
    r"""The distance from the unit circle of the eigenvalues of an orthogonal $m \times m$ matrix,
    due to rounding in the dtype of the array.
    """
    return 4 * np.sqrt(m) * float(jnp.finfo(array.dtype).eps)


def _sort(values: np.ndarray, source: str, tolerance: float) -> RecurrenceEigenvalues:
    values = values.astype(np.complex128)
    order = np.argsort(-np.abs(values), kind="stable")
    return RecurrenceEigenvalues(values[order], source, tolerance)
