r"""The nearest wrong input, as if the classifier were affine, again and again (§13.1).

At $x_t$ the classifier is nearly $f(x_t) + \langle \nabla f(x_t), \eta \rangle$, and of an affine
one the nearest tie is known: for the class j of least distance, with
$\Delta w = \nabla f_y(x_t) - \nabla f_j(x_t)$,

$$\delta = -\frac{f_y(x_t) - f_j(x_t)}{\|\Delta w\|_q} \arg\max_{\|v\|_p \le 1} \langle \Delta w, v
\rangle, \qquad
\eta \leftarrow \eta + \delta, \qquad x_{t+1} = x + (1 + o)\,\eta$$

until the class changes. Of an affine classifier the first step is the last.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...core import Model, Scalar
from ...threat.ball import L1, L2, Ball, Shift, limits_of
from ...threat.inputs import Range, check_box, check_input
from ..base import clip_to_box
from ..continuous_batching import AttackLoop
from ..goal import margin_loss
from .affine import check_norm, check_overshoot, distances, nearest_tie
from .pgd import feasible_gradient

# late steps are short, and so is their overshoot: they go this part of the first one further
FIRM = 1e-3


class DeepFool(eqx.Module):
    r"""A near input of another class, by steps to the nearest tie of the linearised classifier
    (§13.1).

    `norm` is named by its ball, `L2`, `Linf` or `L1`. At most `steps` are made; each `overshoot`
    past the tie, relatively, for at a tie nothing has changed. Of the `classes` most likely at x,
    the right one among them, it takes at each step the easiest. `box` is the range of valid inputs,
    which is kept to exactly. An input that is wrong already stays as it is, and so does one for
    which nothing is found. (Moosavi-Dezfooli, Fawzi & Frossard 2016)

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
    box: Range | None = eqx.field(static=True, kw_only=True, default=None)

    def __check_init__(self):
        check_norm("DeepFool", self.norm)
        check_overshoot("DeepFool", self.overshoot)
        if self.steps < 1:
            raise ValueError(f"DeepFool: steps must be at least 1; got {self.steps}.")
        if self.classes < 2:
            raise ValueError(
                f"DeepFool: classes counts the right one too, so at least 2; got {self.classes}."
            )
        if self.box is not None:
            check_box("DeepFool", self.box)

    def __call__(
        self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*s"]:
        check_input("DeepFool", model, x, y, self.box)
        return self.search(model, x, y).run()

    def search(
        self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None
    ) -> AttackLoop:
        """Step by step; chance is not in it."""
        x = jnp.asarray(x)

        def at(eta):
            return clip_to_box(x, ((1 + self.overshoot) * eta).astype(x.dtype), self.box)

        def begin():
            z = model(x)
            between = jax.vmap(lambda j: _one(y, z) - _one(j, z))(_rivals(z, y, self.classes))
            sure = jnp.where(
                self.overshoot > 0, 64 * jnp.finfo(z.dtype).eps * jnp.abs(z).max(), 0.0
            )  # of rounding
            past = (FIRM * self.overshoot * (between @ z) + sure).astype(z.dtype)
            return Way(
                jnp.zeros_like(x), z, between, past, jnp.where(jnp.argmax(z) == y, 0, self.steps)
            )

        def passable(slope, here):
            """The slope without what is no number; in L1, where one number is moved, of those that
            still can be.
            """
            return -feasible_gradient(
                -slope, here - x, limits_of(x, self.box) if self.norm is L1 else None
            )

        def unfinished(way):
            firm = jnp.where(
                self.overshoot > 0, 32 * jnp.finfo(way.z.dtype).eps, 0.0
            )  # or rounding could undo it
            return (margin_loss(way.z, y) <= firm * jnp.abs(way.z).max()) & (way.step < self.steps)

        def move(way):
            here = at(way.eta)
            z, pull = jax.vjp(lambda x: model(x), here)
            slopes = jax.lax.map(lambda one: passable(pull(one)[0], here), way.between)
            far = distances(way.between @ z + way.past, slopes, self.norm)
            eta = (way.eta + nearest_tie(far, slopes, self.norm)).astype(x.dtype)
            return way._replace(eta=eta, z=model(at(eta)), step=way.step + 1)

        def answer(way):
            z = way.z
            tied = (
                margin_loss(z, y) >= -8 * jnp.finfo(z.dtype).eps * jnp.abs(z).max()
            )  # where rounding decides
            found = (jnp.argmax(z) != y) | (tied & (self.overshoot == 0))
            return jnp.where(found & ~jnp.isnan(z).any(), at(way.eta), x)

        return AttackLoop(begin, unfinished, move, answer)


class Way(NamedTuple):
    """How far it has gone and the logits there; the classes it may go to, and how far past a tie
    with each.
    """

    eta: Shift
    z: Float[Array, " k"]
    between: Float[Array, "m k"]
    past: Float[Array, " m"]
    step: Any


def _rivals(z: Float[Array, " k"], y: Any, classes: int) -> Array:
    """The most likely classes but y."""
    others = jnp.where(jnp.arange(len(z)) == y, -jnp.inf, z)
    return jax.lax.top_k(others, min(classes, len(z)) - 1)[1]


def _one(j: Any, z: Float[Array, " k"]) -> Float[Array, " k"]:
    return jax.nn.one_hot(j, len(z), dtype=z.dtype)
