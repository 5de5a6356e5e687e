r"""The nearest wrong input of an affine classifier, exactly (§13.1), and so a certificate.

Of $f(x) = Wx + b$ the class $j$ overtakes $y$ where
$\langle w_y - w_j, \eta \rangle \le -(f_y(x) - f_j(x))$, a half space, and the least shift that
reaches it has

$$\|\eta\|_p = \frac{f_y(x) - f_j(x)}{\|w_y - w_j\|_q}, \qquad
\eta = -\|\eta\|_p \arg\max_{\|v\|_p \le 1} \langle w_y - w_j, v \rangle, \qquad 1/p + 1/q = 1$$

The class of least $\|\eta\|_p$ is the nearest, and no shift that is shorter changes the class. A
norm is named by its ball: `L1`, `L2`, `Linf`. There is no box here: with one the closed form does
not hold.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from ...core import Model, Scalar
from ...threat.ball import L1, L2, Ball, Linf, Shift
from ...threat.inputs import check_input


class AffineAttack(eqx.Module):
    r"""The nearest wrong input of an affine classifier in the norm of a ball, the tie, and
    `overshoot` past it (§13.1).

    $x + (1 + o)\,\eta$ with the least $\eta$ at which two classes tie; at the tie itself rounding
    decides. An input that is wrong already stays as it is, and so does one that no shift makes
    wrong.

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
        far, slopes = _against("AffineAttack", model, x, y, self.norm)
        eta = (1 + self.overshoot) * nearest_tie(far, slopes, self.norm)
        return jnp.where(far.min() > 0, x + eta, x).astype(jnp.result_type(x))


def affine_distance(model: Model, x: Any, y: Any, norm: type[Ball] = L2) -> Float[Array, " k"]:
    r"""$(f_y(x) - f_j(x)) / \|w_y - w_j\|_q$ for every class j of an affine classifier (§13.1).

    How far x is from where class j overtakes y: infinite where it never does, as for y itself;
    negative where it has.

    >>> from thetax.layers import Linear
    >>> plane = Linear(jnp.array([[3.0, 0.0], [0.0, 4.0], [-1.0, 0.0]]), jnp.zeros(3))
    >>> affine_distance(plane, jnp.array([1.0, 0.0]), jnp.array(0)).round(3).tolist()
    [inf, 0.600..., 1.0]
    """
    check_norm("affine_distance", norm)
    return _against("affine_distance", model, x, y, norm)[0]


def affine_radius(model: Model, x: Any, y: Any, norm: type[Ball] = L2) -> Scalar:
    r"""The largest radius of a ball around x in which an affine classifier says y throughout; 0 if
    it does not at x.

    It is the distance to the nearest class, so it can be neither exceeded nor improved (§13.1).

    >>> from thetax.layers import Linear
    >>> plane = Linear(jnp.array([[3.0, 0.0], [0.0, 4.0], [-1.0, 0.0]]), jnp.zeros(3))
    >>> round(affine_radius(plane, jnp.array([1.0, 0.0]), jnp.array(0)).item(), 3)
    0.6
    """
    return jnp.maximum(affine_distance(model, x, y, norm).min(), 0.0)


def distances(
    gaps: Float[Array, " k"], slopes: Float[Array, "k *s"], norm: type[Ball]
) -> Float[Array, " k"]:
    r"""$g_j / \|s_j\|_q$, infinite where the slope is 0 and the gap is not."""
    steep = jax.vmap(norm(1.0).dual)(slopes)
    flat = jnp.where(gaps == 0, 0.0, jnp.sign(gaps) * jnp.inf)
    return jnp.where(steep > 0, gaps / jnp.where(steep > 0, steep, 1.0), flat)


def nearest_tie(far: Float[Array, " k"], slopes: Float[Array, "k *s"], norm: type[Ball]) -> Shift:
    r"""The least $\eta$ that makes up for one of the gaps, by the distances and the slopes; 0 if
    none does.
    """
    j = jnp.argmin(far)
    return -jnp.where(jnp.isfinite(far[j]), far[j], 0.0) * norm(1.0).steepest(slopes[j])


def check_norm(name: str, norm: Any) -> None:
    """Refuses what has no dual norm to divide by."""
    if norm not in (L1, L2, Linf):
        came = getattr(norm, "__name__", norm)
        raise ValueError(f"{name}: norm is the ball that has it, L1, L2 or Linf; got {came}.")


def check_overshoot(name: str, overshoot: Any) -> None:
    """Refuses to stop short of the tie."""
    if isinstance(overshoot, float | int) and not 0 <= overshoot < float("inf"):
        raise ValueError(
            f"{name}: overshoot is how far past the tie to go, relatively, and not negative; got "
            f"{overshoot}."
        )


def _against(name: str, model: Model, x: Any, y: Any, norm: type[Ball]) -> tuple[Array, Array]:
    """How far it is to where each class overtakes y, and the slope of the lead that y has."""
    check_input(name, model, x, y, None)
    x = jnp.asarray(x)
    z = model(x)
    W = jax.jacrev(lambda x: model(x))(x)
    _check_affine(name, model, x, z, W)
    slopes = W[y][None] - W
    return jnp.where(jnp.arange(len(z)) == y, jnp.inf, distances(z[y] - z, slopes, norm)), slopes


def _check_affine(name: str, model: Model, x: Array, z: Array, W: Array) -> None:
    """A certificate for a curved model would be a lie; of what is only traced nothing can be
    said.
    """
    if isinstance(z, Tracer):
        return

    def curve(v):
        said = z + jnp.tensordot(W, v, axes=v.ndim)
        return jnp.abs(model(x + v) - said).max() / (1 + jnp.abs(said).max())

    far = (1 + jnp.abs(x).max()) * jr.normal(jr.key(0), (4, *x.shape), x.dtype)
    if jax.vmap(curve)(far).max() > jnp.sqrt(jnp.finfo(z.dtype).eps):
        raise ValueError(f"{name}: the model is not affine in its input; DeepFool takes any model.")
