r"""Linearisation of a network at its parameters (§9.1): first-order Taylor expansion in
$\beta = \theta - \theta_0$.

$$h[\beta](x) = f[\theta_0](x) + \nabla_\theta f[\theta_0](x)\, \beta$$

It is not linear in $x$. It is an ordinary model with leaves $\beta$: `fit` trains it, `ntk` and
every other lens accept it. For the squared error the optimal parameters are known in closed form:
with the rows $\nabla f(x_i)^\top$ of $\Phi$ and $K = \Phi\Phi^\top$,
$\beta^* = \Phi^\top (K + \lambda I)^{-1} (y - f)$ is the minimiser of least norm.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from ... import tree
from ...check import check_examples
from ...core import Batch, Model, apply, predict
from .kernel_eigenmodes import kernel_eigenmodes
from .ntk import check_differentiable, ntk


class ExpansionPoint:
    r"""$\theta_0$ as static data: it is not a parameter of the linearised model.

    Two expansion points are equal if they hold identical array objects, so that compiled functions
    are reused.
    """

    def __init__(self, model: Any):
        self.model = model
        leaves, self._structure = jax.tree.flatten(model)
        self._ids = tuple(map(id, leaves))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExpansionPoint) and (self._ids, self._structure) == (
            other._ids,
            other._structure,
        )

    def __hash__(self) -> int:
        return hash((self._ids, self._structure))


class Linearised(eqx.Module):
    r"""The linearised model $h[\beta]$; see `linearise`."""

    beta: Any
    origin: ExpansionPoint = eqx.field(static=True)

    def __call__(self, x: Any, *, key: PRNGKeyArray | None = None) -> Any:
        f, change = jax.jvp(
            lambda theta: apply(theta, x, key=key), (self.origin.model,), (self.beta,)
        )
        return jax.tree.map(jnp.add, f, change)

    def theta(self) -> Any:
        r"""The original model at $\theta_0 + \beta$."""
        return tree.axpy(1.0, self.beta, self.origin.model)

    def solve(self, xs: Batch, ys: Any, *, ridge: float = 0.0) -> "Linearised":
        r"""The linearised model that minimises
        $\sum_i \|h[\beta](x_i) - y_i\|^2 + \lambda \|\beta\|^2$ with $\lambda$ the `ridge`.

        Without a ridge it is the minimiser of least norm, the limit of gradient descent from
        $\beta = 0$. It interpolates the targets if $K$ is invertible; components along eigenvectors
        whose eigenvalue is 0 up to rounding are not fitted.

        Departs: the notes call it the unique solution; with more parameters than observations the
        minimisers are an affine space, and this is the unique one of least norm. And they print
        $h^*(x)$ without $f[\theta_0](x)$.

        >>> import jax.random as jr
        >>> from thetax.models import MLP
        >>> model = MLP.init(3, 16, 1, key=jr.key(0))
        >>> xs = jr.normal(jr.key(1), (5, 3))
        >>> ys = jnp.ones((5, 1))
        >>> bool(jnp.allclose(predict(linearise(model).solve(xs, ys), xs), ys, atol=1e-3))
        True
        """
        check_examples(xs, name="solve: xs")
        model = self.origin.model
        f, back = jax.vjp(lambda theta: predict(theta, xs), model)
        modes = kernel_eigenmodes(ntk(model)(xs), ys, f)
        a = modes.coefficients(modes.inverse(ridge))
        return Linearised(back(jnp.asarray(a, f.dtype))[0], self.origin)


def linearise(model: Model) -> Linearised:
    r"""Linearises a model at its parameters: first-order Taylor expansion with $\beta = 0$ (§9.1).

    $\theta_0$ is not a leaf: saved weights contain only $\beta$, and a compiled function may create
    and use a linearised model, but not return it. Fold batch norm first, since it depends on the
    batch.

    >>> import jax.random as jr
    >>> from thetax.models import MLP
    >>> model, x = MLP.init(3, 8, 2, key=jr.key(0)), jnp.ones(3)
    >>> h = linearise(model)
    >>> bool((h(x) == model(x)).all()), jax.tree.structure(h.beta) == jax.tree.structure(model)
    (True, True)
    """
    check_differentiable("linearise", model)
    return Linearised(tree.zeros_like(model), ExpansionPoint(model))
