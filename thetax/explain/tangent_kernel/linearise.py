r"""A network near its parameters (§9.1): the Taylor model, affine in $\beta = \theta - \theta_0$.

$$h[\beta](x) = f[\theta_0](x) + \nabla_\theta f[\theta_0](x)\, \beta$$

Still not linear in $x$. It is an ordinary model, whose leaves are $\beta$: `fit` trains it, `ntk`
and every other lens take it. For the squared error its best parameters are known: with the rows
$\nabla f(x_i)^\top$ of $\Phi$ and $K = \Phi\Phi^\top$,
$\beta^* = \Phi^\top (K + \lambda I)^{-1} (y - f)$, of all minimisers the shortest.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from ... import tree
from ...check import check_examples
from ...core import Batch, Model, apply, predict
from .kernel_eigenmodes import modes
from .ntk import expect_parameters, ntk


class Origin:
    r"""$\theta_0$, which is no parameter of the Taylor model. Two are equal if they hold the very
    same arrays.
    """

    def __init__(self, model: Any):
        self.model = model
        leaves, self._structure = jax.tree.flatten(model)
        self._names = tuple(map(id, leaves))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Origin) and (self._names, self._structure) == (
            other._names,
            other._structure,
        )

    def __hash__(self) -> int:
        return hash((self._names, self._structure))


class Linearised(eqx.Module):
    r"""$h[\beta](x)$ for one example; see `linearise`."""

    beta: Any
    origin: Origin = eqx.field(static=True)

    def __call__(self, x: Any, *, key: PRNGKeyArray | None = None) -> Any:
        f, slope = jax.jvp(
            lambda theta: apply(theta, x, key=key), (self.origin.model,), (self.beta,)
        )
        return jax.tree.map(jnp.add, f, slope)

    def theta(self) -> Any:
        r"""The model at $\theta_0 + \beta$, no longer linearised."""
        return tree.axpy(1.0, self.beta, self.origin.model)

    def solve(self, xs: Batch, ys: Any, *, ridge: float = 0.0) -> "Linearised":
        r"""That which makes $\sum_i \|h[\beta](x_i) - y_i\|^2 + \lambda \|\beta\|^2$ least, with
        $\lambda$ the `ridge`.

        With no ridge it is of all minimisers the one of least norm, the limit of gradient descent
        from $\beta = 0$. It goes through the observations if $K$ is invertible; of what lies along
        eigenvalues that rounding cannot tell from 0 nothing is learnt.

        Departs: the notes call it the unique solution; with more parameters than observations the
        minimisers are an affine space, and it is the unique shortest. And they print $h^*(x)$
        without $f[\theta_0](x)$.

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
        found = modes(ntk(model)(xs), ys, f)
        a = found.coefficients(found.inverse(ridge))
        return Linearised(back(jnp.asarray(a, f.dtype))[0], self.origin)


def linearise(model: Model) -> Linearised:
    r"""The Taylor model of a model at its parameters, with $\beta = 0$ (§9.1).

    $\theta_0$ is no leaf: saved weights are $\beta$ alone, and a compiled function may make and use
    a Taylor model, but not return it. What depends on a batch (batch norm) must be folded first.

    >>> import jax.random as jr
    >>> from thetax.models import MLP
    >>> model, x = MLP.init(3, 8, 2, key=jr.key(0)), jnp.ones(3)
    >>> h = linearise(model)
    >>> bool((h(x) == model(x)).all()), jax.tree.structure(h.beta) == jax.tree.structure(model)
    (True, True)
    """
    expect_parameters("linearise", model)
    return Linearised(tree.zeros_like(model), Origin(model))
