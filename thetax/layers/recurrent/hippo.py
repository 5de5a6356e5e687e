r"""Linear systems $\dot h = Ah + Bu$ with a full matrix (§5): one that remembers best, and any of
them in steps.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float


def hippo(n: int) -> tuple[Float[Array, "n n"], Float[Array, "n 1"]]:
    r"""$A$ and $B$ of the system that keeps the Legendre coefficients of all it has read (Gu et al.
    2020): $A_{ij} = -\sqrt{(2i+1)(2j+1)}$ below the diagonal and $-(i + 1)$ on it; its eigenvalues
    are $-1, \dots, -n$.

    >>> hippo(2)[0].round(1).tolist()
    [[-1.0, 0.0], [-1.7..., -2.0]]
    """
    root = jnp.sqrt(2 * jnp.arange(n) + 1.0)
    return jnp.tril(-jnp.outer(root, root), -1) - jnp.diag(jnp.arange(1.0, n + 1)), root[:, None]


def bilinear(
    A: Float[Array, "m m"], B: Float[Array, "m n"], *, step: float
) -> tuple[Float[Array, "m m"], Float[Array, "m n"]]:
    r"""The system $\dot h = Ah + Bu$ in steps of $\Delta$, which are stable if the system is:
    $\bar A = (I - \frac\Delta2 A)^{-1}(I + \frac\Delta2 A)$ and
    $\bar B = (I - \frac\Delta2 A)^{-1} \Delta B$.

    >>> A, B = bilinear(-jnp.eye(1), jnp.eye(1), step=2.0)
    >>> A.item(), B.item()
    (0.0, 1.0)
    """
    eye = jnp.eye(len(A), dtype=A.dtype)
    both = jnp.linalg.solve(
        eye - step / 2 * A, jnp.concatenate([eye + step / 2 * A, step * B], axis=1)
    )
    return both[:, : len(A)], both[:, len(A) :]
