r"""Continuous-time linear systems $\dot h = Ah + Bu$ (§5): the HiPPO matrix, and discretisation by
the bilinear method.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float


def hippo(n: int) -> tuple[Float[Array, "n n"], Float[Array, "n 1"]]:
    r"""The HiPPO-LegS matrices $A$ and $B$: the state holds the Legendre coefficients of the whole
    input so far (Gu et al. 2020).

    $A_{ij} = -\sqrt{(2i+1)(2j+1)}$ below the diagonal and $-(i + 1)$ on it; its eigenvalues are
    $-1, \dots, -n$.

    >>> hippo(2)[0].round(1).tolist()
    [[-1.0, 0.0], [-1.7..., -2.0]]
    """
    root = jnp.sqrt(2 * jnp.arange(n) + 1.0)
    return jnp.tril(-jnp.outer(root, root), -1) - jnp.diag(jnp.arange(1.0, n + 1)), root[:, None]


def discretise_bilinear(
    A: Float[Array, "m m"], B: Float[Array, "m n"], *, step: float
) -> tuple[Float[Array, "m m"], Float[Array, "m n"]]:
    r"""Discretises the system $\dot h = Ah + Bu$ with the time step $\Delta$ by the bilinear
    (Tustin) method, which preserves stability:
    $\bar A = (I - \frac\Delta2 A)^{-1}(I + \frac\Delta2 A)$ and
    $\bar B = (I - \frac\Delta2 A)^{-1} \Delta B$.

    >>> A, B = discretise_bilinear(-jnp.eye(1), jnp.eye(1), step=2.0)
    >>> A.item(), B.item()
    (0.0, 1.0)
    """
    eye = jnp.eye(len(A), dtype=A.dtype)
    right = jnp.concatenate([eye + step / 2 * A, step * B], axis=1)
    solution = jnp.linalg.solve(eye - step / 2 * A, right)
    return solution[:, : len(A)], solution[:, len(A) :]
