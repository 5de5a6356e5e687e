r"""DeepFool (§13.1): minimum-norm attack that repeatedly linearises the classifier and steps to the
nearest decision boundary of the linearisation.

Near $x_t$ the classifier is about $f(x_t) + \langle \nabla f(x_t), \eta \rangle$. The nearest
boundary of an affine classifier is known: for the class j of smallest distance, with
$\Delta w = \nabla f_y(x_t) - \nabla f_j(x_t)$,

$$\delta = -\frac{f_y(x_t) - f_j(x_t)}{\|\Delta w\|_q} \arg\max_{\|v\|_p \le 1} \langle \Delta w, v
\rangle, \qquad
\eta \leftarrow \eta + \delta, \qquad x_{t+1} = x + (1 + o)\,\eta$$

until the predicted class changes. For an affine classifier one step suffices.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...check import expect_count
from ...core import Model, Scalar
from ...threat.ball import L1, L2, Ball, Perturbation, perturbation_bounds
from ...threat.inputs import Box, check_box, check_input
from ..base import clip_to_box
from ..continuous_batching import AttackLoop
from ..goal import margin_loss
from .affine import check_norm, check_overshoot, distances, nearest_boundary
from .pgd import feasible_gradient

# An overshoot relative to the current step vanishes as the steps get shorter, so every step also
# goes this fraction of `overshoot` times the logit gap at x beyond the boundary.
MIN_OVERSHOOT = 1e-3


class DeepFool(eqx.Module):
    r"""DeepFool: a nearby misclassified input, by steps to the nearest decision boundary of the
    linearised classifier (§13.1; Moosavi-Dezfooli, Fawzi & Frossard 2016).

    `norm` is given as the class of its ball, `L2`, `Linf` or `L1`. At most `steps` steps are made.
    Each goes `overshoot` beyond the boundary, as a fraction of the perturbation, because at the
    boundary itself the class has not changed. Candidates are the `classes` most likely classes at
    x, the true one included; each step moves to the one whose boundary is nearest. `box` is the
    valid range of inputs; it is never left. An input that is already misclassified is returned
    unchanged, and so is one for which nothing is found.

    Departs: the notes print the program at $x$; the current iterate $x_t$ is meant.

    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[1.0, -2.0], [0.0, 0.0]]), jnp.zeros(2))
    >>> DeepFool(overshoot=0.5)(line, jnp.array([5.0, 0.0]), jnp.array(0)).round(2).tolist()
    [3.5, 3.0]
    """

    norm: type[Ball] = eqx.field(static=True, default=L2)
    steps: int = eqx.field(static=True, kw_only=True, default=50)
    classes: int = eqx.field(static=True, kw_only=True, default=10)
    overshoot: float | Scalar = eqx.field(kw_only=True, default=0.02)
    box: Box | None = eqx.field(static=True, kw_only=True, default=None)

    def __check_init__(self):
        check_norm("DeepFool", self.norm)
        check_overshoot("DeepFool", self.overshoot)
        expect_count("DeepFool", steps=self.steps)
        if self.classes < 2:
            raise ValueError(
                f"DeepFool: classes must be at least 2, the true one included; got {self.classes}."
            )
        if self.box is not None:
            check_box("DeepFool", self.box)

    def __call__(
        self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*s"]:
        check_input("DeepFool", model, x, y, self.box)
        return self.loop(model, x, y).run()

    def loop(self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None) -> AttackLoop:
        """The attack as a loop; it is deterministic."""
        x = jnp.asarray(x)
        has_overshoot = self.overshoot > 0

        def point_at(eta):
            return clip_to_box(x, ((1 + self.overshoot) * eta).astype(x.dtype), self.box)

        def rounding(z, ulps):
            """An error bound of the logits, in units of their last digit."""
            return ulps * jnp.finfo(z.dtype).eps * jnp.abs(z).max()

        def init():
            z = model(x)
            # row j maps logits to z_y - z_j, for the rival classes j
            gap_rows = jax.vmap(lambda j: _one_hot(y, z) - _one_hot(j, z))(
                _rivals(z, y, self.classes)
            )
            margin = MIN_OVERSHOOT * self.overshoot * (gap_rows @ z) + jnp.where(
                has_overshoot, rounding(z, 64), 0.0
            )
            # an input that is already wrong takes no step
            step = jnp.where(jnp.argmax(z) == y, 0, self.steps)
            return DeepFoolState(jnp.zeros_like(x), z, gap_rows, margin.astype(z.dtype), step)

        def feasible_slope(slope, point):
            """The slope without NaNs; in L1, where a step moves a single component, also without
            the components that are at the end of their range.
            """
            limits = perturbation_bounds(x, self.box) if self.norm is L1 else None
            return -feasible_gradient(-slope, point - x, limits)

        def unfinished(state):
            # a margin below the rounding error could vanish when the model is evaluated again
            min_margin = jnp.where(has_overshoot, rounding(state.z, 32), 0.0)
            return (margin_loss(state.z, y) <= min_margin) & (state.step < self.steps)

        def step(state):
            point = point_at(state.eta)
            z, pull_back = jax.vjp(lambda x: model(x), point)
            slopes = jax.lax.map(
                lambda row: feasible_slope(pull_back(row)[0], point), state.gap_rows
            )
            distance = distances(state.gap_rows @ z + state.margin, slopes, self.norm)
            eta = (state.eta + nearest_boundary(distance, slopes, self.norm)).astype(x.dtype)
            return state._replace(eta=eta, z=model(point_at(eta)), step=state.step + 1)

        def result(state):
            z = state.z
            # without overshoot the attack ends at the boundary, where rounding decides the class
            is_tie = margin_loss(z, y) >= -rounding(z, 8)
            success = (jnp.argmax(z) != y) | (is_tie & (self.overshoot == 0))
            return jnp.where(success & ~jnp.isnan(z).any(), point_at(state.eta), x)

        return AttackLoop(init, unfinished, step, result)


class DeepFoolState(NamedTuple):
    """State of DeepFool."""

    eta: Perturbation  # the perturbation, without overshoot
    z: Float[Array, " k"]  # logits at the current point
    gap_rows: Float[Array, "m k"]  # maps logits to z_y - z_j for the rival classes j
    margin: Float[Array, " m"]  # how far beyond each boundary to aim, in logits
    step: Any


def _rivals(z: Float[Array, " k"], y: Any, classes: int) -> Array:
    """The most likely classes other than y."""
    others = jnp.where(jnp.arange(len(z)) == y, -jnp.inf, z)
    return jax.lax.top_k(others, min(classes, len(z)) - 1)[1]


def _one_hot(j: Any, z: Float[Array, " k"]) -> Float[Array, " k"]:
    return jax.nn.one_hot(j, len(z), dtype=z.dtype)
