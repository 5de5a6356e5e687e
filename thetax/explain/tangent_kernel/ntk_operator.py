r"""The tangent kernel of very many examples (§9.1), seen only through its products with vectors.

$Kv = J (J^\top v)$, where $J^\top v = \nabla_\theta \sum_i \langle v_i, f(x_i) \rangle$ is one pass
back over the set and $J u$ one pass forward: no $n \times n$ matrix and no $n \times p$ one.
Eigenvalues come by Lanczos' iteration, solutions by conjugate gradients.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ...check import check_examples
from ...core import Model, floats
from ...progress import counted
from .ntk import expect_parameters


class TangentOperator(eqx.Module):
    """`operator(v)` is $Kv$; see `ntk_operator`."""

    model: Any
    xs: Any
    form: Literal["full", "trace"] = eqx.field(static=True, default="full")
    batch: int = eqx.field(static=True, default=256)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the vectors: `n`, and for the full kernel the outputs of an example."""
        n = len(jax.tree.leaves(self.xs)[0])
        return (n,) if self.form == "trace" else (n, *_output(self).shape)

    def __call__(self, v: Any) -> Float[Array, "n *o"]:
        v = floats("ntk_operator: v", v).astype(_output(self).dtype)
        if v.shape != self.shape:
            raise ValueError(
                f"ntk_operator: expected a vector of shape {self.shape}; got {v.shape}."
            )
        return _trace(self, v) if self.form == "trace" else _product(self, v)


def ntk_operator(
    model: Model, xs: Any, *, form: Literal["full", "trace"] = "full", batch: int = 256
) -> TangentOperator:
    r"""$v \mapsto Kv$ for the tangent kernel of a model on stacked examples; `batch` of them are
    computed at once.

    In the full form $v$ is `n o`; in the form `trace` it is `n`, and $K = \sum_o J_o J_o^\top$
    takes the gradients of all outputs at once.

    >>> from thetax.explain import ntk
    >>> from thetax.models import MLP
    >>> model, xs = MLP.init(3, 8, 2, key=jr.key(0)), jr.normal(jr.key(1), (5, 3))
    >>> Kv = ntk_operator(model, xs, form="trace", batch=2)(jnp.ones(5))
    >>> bool(jnp.allclose(Kv, ntk(model, form="trace")(xs).sum(1), rtol=1e-4))
    True
    """
    if form not in ("full", "trace"):
        raise ValueError(f"ntk_operator: form is full or trace; got {form!r}.")
    if not isinstance(batch, int) or batch < 1:
        raise ValueError(
            f"ntk_operator: batch counts examples and must be at least 1; got {batch}."
        )
    expect_parameters("ntk_operator", model)
    check_examples(xs, name="ntk_operator: xs")
    return TangentOperator(model, xs, form, batch)


def _output(operator: TangentOperator) -> Any:
    first = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), operator.xs)
    return jax.eval_shape(operator.model, first)


@jax.jit
def _product(operator: TangentOperator, v: Array) -> Array:
    """Both passes, a batch at a time; the last one is filled up with the first examples, which get
    a zero.
    """
    n = len(v)
    model = operator.model
    size = min(operator.batch, n)
    fill = -n % size
    parted = lambda a: jnp.concatenate([a, a[:fill]]).reshape(-1, size, *a.shape[1:])
    xs = jax.tree.map(parted, operator.xs)
    vs = parted(v)
    there = (jnp.arange(n + fill) < n).reshape(-1, size)
    vs = jnp.where(there.reshape(there.shape + (1,) * (v.ndim - 1)), vs, 0)

    def back(total, item):
        xs, vs = item
        slope = jax.vjp(lambda model: jax.vmap(model)(xs), model)[1](vs)[0]
        return jax.tree.map(jnp.add, total, slope), None

    u, _ = jax.lax.scan(back, jax.tree.map(jnp.zeros_like, model), (xs, vs))
    push = lambda xs: jax.jvp(lambda model: jax.vmap(model)(xs), (model,), (u,))[1]
    return jax.lax.map(push, xs).reshape(n + fill, *v.shape[1:])[:n]


@jax.jit
def _trace(operator: TangentOperator, v: Array) -> Array:
    """The products of all outputs, each with its own vector."""
    out = _output(operator)
    full = TangentOperator(operator.model, operator.xs, "full", operator.batch)
    along = jnp.eye(out.size, dtype=v.dtype).reshape(out.size, *out.shape)
    place = lambda e: v.reshape(-1, *[1] * len(out.shape)) * e[None]
    found = jax.vmap(lambda e: (_product(full, place(e)) * e[None]).reshape(len(v), -1).sum(1))(
        along
    )
    return found.sum(0)


@dataclass(frozen=True)
class Eigenpairs:
    """The largest eigenvalues, the largest first, and their vectors of length 1, one a row."""

    values: Float[np.ndarray, " k"]
    vectors: Float[np.ndarray, "k ..."]

    def preconditioner(self, ridge: float = 0.0) -> Callable[[Array], Array]:
        r"""Makes the $k$ largest eigenvalues of $K + rI$ equal to the last of them, so that `solve`
        takes fewer steps:
        $v + \sum_i (\frac{\lambda_k + r}{\lambda_i + r} - 1)\, u_i \langle u_i, v \rangle$.
        """
        U = jnp.asarray(self.vectors.reshape(len(self.values), -1))
        factors = jnp.asarray((self.values[-1] + ridge) / (self.values + ridge) - 1, U.dtype)
        return lambda v: v + (U.T @ (factors * (U @ v.ravel()))).reshape(v.shape).astype(v.dtype)


def eigenpairs(operator: TangentOperator, *, count: int = 20, key: PRNGKeyArray) -> Eigenpairs:
    """The largest eigenvalues of a symmetric operator with a `shape`, by implicitly restarted
    Lanczos (ARPACK).

    >>> from thetax.models import MLP
    >>> model, xs = MLP.init(3, 8, 1, key=jr.key(0)), jr.normal(jr.key(1), (9, 3))
    >>> found = eigenpairs(ntk_operator(model, xs), count=2, key=jr.key(2))
    >>> found.vectors.shape, bool(found.values[0] > found.values[1] > 0)
    ((2, 9, 1), True)
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    shape = operator.shape
    size = int(np.prod(operator.shape))
    if not isinstance(count, int) or not 0 < count < size:
        raise ValueError(
            f"eigenpairs: count must be a whole number from 1 to {size - 1}, fewer than the "
            f"matrix has; got {count}."
        )
    first = np.asarray(jr.normal(key, (size,)))
    with counted("products with the tangent kernel") as tell:
        done = itertools.count(1)

        def apply(v):
            product = np.asarray(operator(jnp.asarray(v, first.dtype).reshape(shape))).ravel()
            tell(next(done))
            return product

        matrix = LinearOperator((size, size), matvec=apply, dtype=first.dtype)  # pyright: ignore[reportCallIssue]
        values, vectors = eigsh(matrix, k=count, v0=first)
    order = np.argsort(values)[::-1]
    return Eigenpairs(values[order], vectors.T[order].reshape(count, *shape))


@dataclass(frozen=True)
class Solution:
    r"""$x$ with $(K + \lambda I) x = b$, and the length of what is left of $b$, as a share of its
    own.
    """

    x: Float[Array, "n *o"]
    residual: float


def solve(
    operator: Callable[[Array], Array],
    b: Float[Array, "n *o"],
    *,
    ridge: float = 0.0,
    preconditioner: Callable[[Array], Array] | None = None,
    tolerance: float = 1e-5,
    steps: int = 1000,
) -> Solution:
    r"""$(K + \lambda I)^{-1} b$ by conjugate gradients (Hestenes & Stiefel 1952).

    A preconditioner is a map near a multiple of the inverse, such as
    `eigenpairs(...).preconditioner(ridge)`. The residual says how far it came in so many steps.

    >>> A = jnp.diag(jnp.array([1.0, 2.0, 4.0]))
    >>> solve(lambda v: A @ v, jnp.ones(3), ridge=1.0).x.round(3).tolist()
    [0.5, 0.333..., 0.2...]
    """
    if not 0 <= ridge < np.inf:
        raise ValueError(f"solve: ridge must be finite and not negative; got {ridge}.")
    if not tolerance > 0 or steps < 1:
        raise ValueError(
            f"solve: tolerance and steps must be positive; got tolerance={tolerance}, "
            f"steps={steps}."
        )
    check_examples(b, name="solve: b")
    b = floats("solve: b", b)
    whole = lambda v: operator(v) + ridge * v
    x, _ = jax.scipy.sparse.linalg.cg(whole, b, tol=tolerance, maxiter=steps, M=preconditioner)
    return Solution(x, float(jnp.linalg.norm(whole(x) - b) / (jnp.linalg.norm(b) or 1.0)))
