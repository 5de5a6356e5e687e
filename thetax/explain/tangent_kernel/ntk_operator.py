r"""Matrix-free tangent kernel for many examples (§9.1): matrix-vector products, eigenvalues by
Lanczos iteration, linear systems by conjugate gradients.

$Kv = J (J^\top v)$, where $J^\top v = \nabla_\theta \sum_i \langle v_i, f(x_i) \rangle$ is one
reverse-mode pass (VJP) over the examples and $J u$ one forward-mode pass (JVP): neither the
$n \times n$ kernel nor the $n \times p$ Jacobian is stored.
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

from ...check import check_examples, expect_count
from ...core import Model, as_floats
from ...progress import count_progress
from .ntk import check_differentiable


class TangentOperator(eqx.Module):
    """`operator(v)` is $Kv$; see `ntk_operator`."""

    model: Any
    xs: Any
    form: Literal["full", "trace"] = eqx.field(static=True, default="full")
    batch_size: int = eqx.field(static=True, default=256)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the vectors: `n`, followed by the output shape for the full kernel."""
        n = len(jax.tree.leaves(self.xs)[0])
        return (n,) if self.form == "trace" else (n, *_output_struct(self).shape)

    def __call__(self, v: Any) -> Float[Array, "n *o"]:
        v = as_floats("ntk_operator: v", v).astype(_output_struct(self).dtype)
        if v.shape != self.shape:
            raise ValueError(f"ntk_operator: v must have shape {self.shape}; got {v.shape}.")
        return _trace_product(self, v) if self.form == "trace" else _product(self, v)


def ntk_operator(
    model: Model, xs: Any, *, form: Literal["full", "trace"] = "full", batch_size: int = 256
) -> TangentOperator:
    r"""Matrix-vector product $v \mapsto Kv$ with the tangent kernel of a model on stacked examples,
    computed in batches of `batch_size` examples.

    For `form="full"` $v$ has shape `n o`; for `form="trace"` it has shape `n`, and the kernel is
    summed over the outputs, $K = \sum_o J_o J_o^\top$.

    >>> from thetax.explain import ntk
    >>> from thetax.models import MLP
    >>> model, xs = MLP.init(3, 8, 2, key=jr.key(0)), jr.normal(jr.key(1), (5, 3))
    >>> Kv = ntk_operator(model, xs, form="trace", batch_size=2)(jnp.ones(5))
    >>> bool(jnp.allclose(Kv, ntk(model, form="trace")(xs).sum(1), rtol=1e-4))
    True
    """
    if form not in ("full", "trace"):
        raise ValueError(f"ntk_operator: form must be full or trace; got {form!r}.")
    expect_count("ntk_operator", batch_size=batch_size)
    check_differentiable("ntk_operator", model)
    check_examples(xs, name="ntk_operator: xs")
    return TangentOperator(model, xs, form, batch_size)


def _output_struct(operator: TangentOperator) -> Any:
    first = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), operator.xs)
    return jax.eval_shape(operator.model, first)


@jax.jit
def _product(operator: TangentOperator, v: Array) -> Array:
    r"""$J (J^\top v)$ in batches; the last batch is padded with the first examples, whose entries
    of $v$ are set to 0.
    """
    n = len(v)
    model = operator.model
    batch_size = min(operator.batch_size, n)
    padding = -n % batch_size
    batched = lambda a: jnp.concatenate([a, a[:padding]]).reshape(-1, batch_size, *a.shape[1:])
    xs = jax.tree.map(batched, operator.xs)
    vs = batched(v)
    real = (jnp.arange(n + padding) < n).reshape(-1, batch_size)
    vs = jnp.where(real.reshape(real.shape + (1,) * (v.ndim - 1)), vs, 0)

    def add_vjp(total, batch):
        xs, vs = batch
        gradient = jax.vjp(lambda model: jax.vmap(model)(xs), model)[1](vs)[0]
        return jax.tree.map(jnp.add, total, gradient), None

    u, _ = jax.lax.scan(add_vjp, jax.tree.map(jnp.zeros_like, model), (xs, vs))
    jvp = lambda xs: jax.jvp(lambda model: jax.vmap(model)(xs), (model,), (u,))[1]
    return jax.lax.map(jvp, xs).reshape(n + padding, *v.shape[1:])[:n]


@jax.jit
def _trace_product(operator: TangentOperator, v: Array) -> Array:
    r"""$\sum_o J_o J_o^\top v$: the full product with $v$ in each output, summed over outputs."""
    out = _output_struct(operator)
    full = TangentOperator(operator.model, operator.xs, "full", operator.batch_size)
    basis = jnp.eye(out.size, dtype=v.dtype).reshape(out.size, *out.shape)
    in_output = lambda e: v.reshape(-1, *[1] * len(out.shape)) * e[None]
    product = lambda e: (_product(full, in_output(e)) * e[None]).reshape(len(v), -1).sum(1)
    return jax.vmap(product)(basis).sum(0)


@dataclass(frozen=True)
class Eigenpairs:
    """Largest eigenvalues in decreasing order, and unit eigenvectors as rows."""

    eigenvalues: Float[np.ndarray, " k"]
    eigenvectors: Float[np.ndarray, "k ..."]

    def preconditioner(self, ridge: float = 0.0) -> Callable[[Array], Array]:
        r"""Preconditioner for `conjugate_gradients` that maps the $k$ largest eigenvalues of $K +
        rI$ to the smallest of them, so that fewer steps are needed: $v + \sum_i (\frac{\lambda_k +
        r}{\lambda_i + r} - 1)\, u_i \langle u_i, v \rangle$.
        """
        U = jnp.asarray(self.eigenvectors.reshape(len(self.eigenvalues), -1))
        scale = (self.eigenvalues[-1] + ridge) / (self.eigenvalues + ridge) - 1
        factors = jnp.asarray(scale, U.dtype)
        return lambda v: v + (U.T @ (factors * (U @ v.ravel()))).reshape(v.shape).astype(v.dtype)


def eigenpairs(
    operator: TangentOperator, *, n_eigenpairs: int = 20, key: PRNGKeyArray
) -> Eigenpairs:
    """The `n_eigenpairs` largest eigenvalues, with eigenvectors, of a symmetric operator with a
    `shape`, by implicitly restarted Lanczos (ARPACK). The `key` samples the starting vector.

    >>> from thetax.models import MLP
    >>> model, xs = MLP.init(3, 8, 1, key=jr.key(0)), jr.normal(jr.key(1), (9, 3))
    >>> pairs = eigenpairs(ntk_operator(model, xs), n_eigenpairs=2, key=jr.key(2))
    >>> pairs.eigenvectors.shape, bool(pairs.eigenvalues[0] > pairs.eigenvalues[1] > 0)
    ((2, 9, 1), True)
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    shape = operator.shape
    size = int(np.prod(operator.shape))
    if not isinstance(n_eigenpairs, int) or not 0 < n_eigenpairs < size:
        raise ValueError(
            f"eigenpairs: n_eigenpairs must be an integer from 1 to {size - 1}, fewer than the "
            f"size of the matrix; got {n_eigenpairs}."
        )
    start = np.asarray(jr.normal(key, (size,)))
    with count_progress("matrix-vector products with the tangent kernel") as update:
        done = itertools.count(1)

        def apply(v):
            product = np.asarray(operator(jnp.asarray(v, start.dtype).reshape(shape))).ravel()
            update(next(done))
            return product

        matrix = LinearOperator((size, size), matvec=apply, dtype=start.dtype)  # pyright: ignore[reportCallIssue]
        eigenvalues, eigenvectors = eigsh(matrix, k=n_eigenpairs, v0=start)
    order = np.argsort(eigenvalues)[::-1]
    return Eigenpairs(eigenvalues[order], eigenvectors.T[order].reshape(n_eigenpairs, *shape))


@dataclass(frozen=True)
class LinearSolution:
    r"""Solution $x$ of $(K + \lambda I) x = b$, and the relative residual
    $\|(K + \lambda I) x - b\| / \|b\|$.
    """

    x: Float[Array, "n *o"]
    residual: float


def conjugate_gradients(
    operator: Callable[[Array], Array],
    b: Float[Array, "n *o"],
    *,
    ridge: float = 0.0,
    preconditioner: Callable[[Array], Array] | None = None,
    tolerance: float = 1e-5,
    max_steps: int = 1000,
) -> LinearSolution:
    r"""$(K + \lambda I)^{-1} b$ by conjugate gradients (Hestenes & Stiefel 1952).

    `preconditioner` approximates the inverse up to a factor, for instance
    `eigenpairs(...).preconditioner(ridge)`. Stops at a relative residual of `tolerance` or after
    `max_steps`; check the `residual` of the result.

    >>> A = jnp.diag(jnp.array([1.0, 2.0, 4.0]))
    >>> conjugate_gradients(lambda v: A @ v, jnp.ones(3), ridge=1.0).x.round(3).tolist()
    [0.5, 0.333..., 0.2...]
    """
    if not 0 <= ridge < np.inf:
        raise ValueError(f"conjugate_gradients: ridge must be finite and >= 0; got {ridge}.")
    if not tolerance > 0:
        raise ValueError(f"conjugate_gradients: tolerance must be positive; got {tolerance}.")
    expect_count("conjugate_gradients", max_steps=max_steps)
    check_examples(b, name="conjugate_gradients: b")
    b = as_floats("conjugate_gradients: b", b)
    regularised = lambda v: operator(v) + ridge * v
    x, _ = jax.scipy.sparse.linalg.cg(
        regularised, b, tol=tolerance, maxiter=max_steps, M=preconditioner
    )
    return LinearSolution(
        x, float(jnp.linalg.norm(regularised(x) - b) / (jnp.linalg.norm(b) or 1.0))
    )
