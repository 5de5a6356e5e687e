r"""The minimal adversarial perturbation of an affine classifier in closed form (§13.1), which is
also a certificate.

For $f(x) = Wx + b$ the class $j$ overtakes $y$ where
$\langle w_y - w_j, \eta \rangle \le -(f_y(x) - f_j(x))$, a half-space, and the smallest
perturbation that reaches it has

$$\|\eta\|_p = \frac{f_y(x) - f_j(x)}{\|w_y - w_j\|_q}, \qquad
\eta = -\|\eta\|_p \arg\max_{\|v\|_p \le 1} \langle w_y - w_j, v \rangle, \qquad 1/p + 1/q = 1$$

The class of smallest $\|\eta\|_p$ is the nearest, and no smaller perturbation changes the class.
The norm is given as the class of its ball: `L1`, `L2`, `Linf`. There is no `box`: with one the
closed form does not hold.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from ...core import Model, Scalar
from ...threat.ball import L1, L2, Ball, Linf, Perturbation
from ...threat.inputs import check_input


class AffineAttack(eqx.Module):
    r"""Minimum-norm attack on an affine classifier, exact: the nearest decision boundary, and
    `overshoot` beyond it (§13.1).

    Returns $x + (1 + o)\,\eta$ with the smallest $\eta$ at which two classes tie; at the tie itself
    rounding decides the class, so use a small overshoot. An input that is already misclassified, or
    that no perturbation can get misclassified, is returned unchanged.

    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[1.0, -2.0], [0.0, 0.0]]), jnp.zeros(2))
    >>> AffineAttack(Linf)(line, jnp.array([3.0, 0.0]), jnp.array(0)).tolist()
    [2.0, 1.0]
    >>> AffineAttack(L1)(line, jnp.array([3.0, 0.0]), jnp.array(0)).tolist()
    [3.0, 1.5]
    """

    norm: type[Ball] = eqx.field(static=True, default=L2)
    overshoot: float | Scalar = 0.0

    def __check_init__(self):
        check_norm("AffineAttack", self.norm)
        check_overshoot("AffineAttack", self.overshoot)

    def __call__(
        self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*s"]:
        distance, slopes = _distances_and_slopes("AffineAttack", model, x, y, self.norm)
        eta = (1 + self.overshoot) * nearest_boundary(distance, slopes, self.norm)
        return jnp.where(distance.min() > 0, x + eta, x).astype(jnp.result_type(x))


def affine_distance(model: Model, x: Any, y: Any, norm: type[Ball] = L2) -> Float[Array, " k"]:
    r"""Distance of x from the decision boundary with each class j of an affine classifier,
    $(f_y(x) - f_j(x)) / \|w_y - w_j\|_q$ (§13.1).

    It is infinite where class j never overtakes y, as for y itself, and negative where it already
    has.

    >>> from thetax.layers import Linear
    >>> plane = Linear(jnp.array([[3.0, 0.0], [0.0, 4.0], [-1.0, 0.0]]), jnp.zeros(3))
    >>> affine_distance(plane, jnp.array([1.0, 0.0]), jnp.array(0)).round(3).tolist()
    [inf, 0.600..., 1.0]
    """
    check_norm("affine_distance", norm)
    return _distances_and_slopes("affine_distance", model, x, y, norm)[0]


def affine_radius(model: Model, x: Any, y: Any, norm: type[Ball] = L2) -> Scalar:
    r"""Certified radius of an affine classifier: the largest radius of a ball around x in which it
    predicts y everywhere; 0 if it does not predict y at x.

    It is the distance to the nearest decision boundary, so the certificate is tight (§13.1).

    >>> from thetax.layers import Linear
    >>> plane = Linear(jnp.array([[3.0, 0.0], [0.0, 4.0], [-1.0, 0.0]]), jnp.zeros(3))
    >>> round(affine_radius(plane, jnp.array([1.0, 0.0]), jnp.array(0)).item(), 3)
    0.6
    """
    return jnp.maximum(affine_distance(model, x, y, norm).min(), 0.0)


def distances(
    gaps: Float[Array, " k"], slopes: Float[Array, "k *s"], norm: type[Ball]
) -> Float[Array, " k"]:
    r"""$g_j / \|s_j\|_q$: how far away a gap $g_j$ closes along the slope $s_j$; infinite where the
    slope is 0 and the gap is not.
    """
    slope_norms = jax.vmap(norm(1.0).dual_norm)(slopes)
    if_flat = jnp.where(gaps == 0, 0.0, jnp.sign(gaps) * jnp.inf)
    return jnp.where(slope_norms > 0, gaps / jnp.where(slope_norms > 0, slope_norms, 1.0), if_flat)


def nearest_boundary(
    distance: Float[Array, " k"], slopes: Float[Array, "k *s"], norm: type[Ball]
) -> Perturbation:
    r"""The smallest $\eta$ that closes one of the gaps, from the distances and the slopes; 0 if
    none can be closed.
    """
    j = jnp.argmin(distance)
    length = jnp.where(jnp.isfinite(distance[j]), distance[j], 0.0)
    return -length * norm(1.0).steepest(slopes[j])


def check_norm(name: str, norm: Any) -> None:
    """Raises `ValueError` unless `norm` is L1, L2 or Linf, which have a dual norm."""
    if norm not in (L1, L2, Linf):
        given = getattr(norm, "__name__", norm)
        raise ValueError(f"{name}: norm must be L1, L2 or Linf; got {given}.")


def check_overshoot(name: str, overshoot: Any) -> None:
    """Raises `ValueError` unless the overshoot, a fraction of the distance, is finite and >= 0."""
    if isinstance(overshoot, float | int) and not 0 <= overshoot < float("inf"):
        raise ValueError(
            f"{name}: overshoot, a fraction of the distance to the boundary, must be finite and "
            f">= 0; got {overshoot}."
        )


def _distances_and_slopes(
    name: str, model: Model, x: Any, y: Any, norm: type[Ball]
) -> tuple[Array, Array]:
    """The distance to the boundary with each class, and the gradient of $f_y - f_j$."""
    check_input(name, model, x, y, None)
    x = jnp.asarray(x)
    z = model(x)
    W = jax.jacrev(lambda x: model(x))(x)
    _check_affine(name, model, x, z, W)
    slopes = W[y][None] - W
    return jnp.where(jnp.arange(len(z)) == y, jnp.inf, distances(z[y] - z, slopes, norm)), slopes


def _check_affine(name: str, model: Model, x: Array, z: Array, W: Array) -> None:
    """Raises `ValueError` if the model is not affine, as a certificate would then be false; traced
    values cannot be checked.
    """
    if isinstance(z, Tracer):
        return

    def nonlinearity(v):
        linear = z + jnp.tensordot(W, v, axes=v.ndim)
        return jnp.abs(model(x + v) - linear).max() / (1 + jnp.abs(linear).max())

    # compare with the linearisation at four random points far from x
    offsets = (1 + jnp.abs(x).max()) * jr.normal(jr.key(0), (4, *x.shape), x.dtype)
    if jax.vmap(nonlinearity)(offsets).max() > jnp.sqrt(jnp.finfo(z.dtype).eps):
        raise ValueError(
            f"{name}: the model is not affine in its input. Use DeepFool, which takes any model."
        )
