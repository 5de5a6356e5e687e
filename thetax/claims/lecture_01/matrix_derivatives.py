"""Lecture 1: derivatives of scalars with respect to matrices, the building blocks of every gradient
in the course.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import train, tree
from ...layers import Chain, Linear
from ..engine.check import close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian


class Row(NamedTuple):
    """A scalar function of an array, as sums over indices and by the library; its gradient; and a
    wrong gradient.
    """

    name: str
    sums: Callable[[Any], Any]
    parts: Callable[[Any], Any]
    at: np.ndarray
    gradient: np.ndarray
    wrong: np.ndarray | None = None


def _checks(row):
    at = jnp.asarray(row.at)
    numeric = jacobian(row.sums, row.at)
    result = np.asarray(jax.grad(row.parts)(at))
    fd = {"tolerance": 1e-8, "method": "finite differences"}
    checks = [
        close(
            f"{row.name}: the scalar, by the library and by sums",
            row.parts(at),
            row.sums(at),
            tolerance=1e-11,
        ),
        equal(f"{row.name}: shape of the gradient", result.shape, row.at.shape),
        close(f"{row.name}: differentiated", result, row.gradient, tolerance=1e-11),
        close(f"{row.name}: by finite differences", numeric, row.gradient, **fd),
    ]
    wrong = (
        []
        if row.wrong is None
        else [refuted(close(f"{row.name}, wrongly", numeric, row.wrong, **fd))]
    )
    return checks + wrong


def of(W, x):
    """Wx by the library's layer."""
    return Linear(jnp.asarray(W))(jnp.asarray(x))


@claim(
    "L1-d-frobenius",
    "L1-d-trace-AX",
    "L1-d-trace-AXt",
    "L1-d-bilinear",
    title="Derivatives of traces and norms",
    kind="identity",
    of=("tree.dot", "train.weight_decay", "layers.Linear"),
)
def traces(rng):
    r"""$\nabla_X \|X\|_F^2 = 2X$, $\nabla_X \mathrm{tr}(AX) = A^\top$,
    $\nabla_X \mathrm{tr}(AX^\top) = A$ and $\frac{\partial}{\partial X} a^\top X b = ab^\top$.
    """
    X = rng.normal(size=(3, 4))
    A = rng.normal(size=(4, 3))
    B = rng.normal(size=(3, 4))
    a = rng.normal(size=3)
    b = rng.normal(size=4)
    decay = train.weight_decay(lambda model, batch, key: jnp.zeros(()), strength=2.0)
    rows = [
        Row("‖X‖²", lambda X: jnp.einsum("ij,ij->", X, X), lambda X: decay(X, None), X, 2 * X, X),
        Row(
            "tr(AX)",
            lambda X: jnp.einsum("ij,ji->", A, X),
            lambda X: tree.dot(jnp.asarray(A.T), X),
            X,
            A.T,
        ),
        Row(
            "tr(AXᵀ)",
            lambda X: jnp.einsum("ij,ij->", B, X),
            lambda X: tree.dot(jnp.asarray(B), X),
            X,
            B,
            -B,
        ),
        Row(
            "aᵀXb",
            lambda X: jnp.einsum("i,ij,j->", a, X, b),
            lambda X: tree.dot(jnp.asarray(a), of(X, b)),
            X,
            np.outer(a, b),
            -np.outer(a, b),
        ),
    ]
    square = rng.normal(size=(3, 3))
    trace = jacobian(lambda X: jnp.einsum("ij,ji->", square, X), np.zeros((3, 3)))
    return Verdict(
        *[check for row in rows for check in _checks(row)],
        refuted(close("tr(AX), A square: A without the transpose", trace, square, tolerance=1e-3)),
    )


@claim(
    "L1-d-quadratic-sym",
    "L1-d-quadratic",
    "L1-d-quadratic-A",
    "L1-d-gram",
    "L1-d-lsq-A",
    "L1-d-sandwich",
    title="Derivatives of quadratic forms",
    kind="identity",
    of=("tree.dot", "layers.Linear", "train.squared_loss"),
)
def quadratics(rng):
    r"""$\nabla_x (x^\top A x) = (A + A^\top) x$, which is $2Ax$ if $A = A^\top$;
    $\nabla_A (x^\top A x) = xx^\top$; $\nabla_x (x^\top A^\top A x) = 2A^\top A x$ for any shape of
    $A$; $\frac{\partial}{\partial A} \|y - Ax\|^2 = -2(y - Ax)x^\top$; and
    $\frac{\partial}{\partial X} a^\top X^\top D X b = D^\top X ab^\top + DX ba^\top$.
    """
    A = rng.normal(size=(4, 4))
    x = rng.normal(size=4)
    S = A + A.T
    T = rng.normal(size=(5, 3))
    y = rng.normal(size=5)
    z, X, D, (a, b) = (
        rng.normal(size=3),
        rng.normal(size=(5, 3)),
        rng.normal(size=(5, 5)),
        rng.normal(size=(2, 3)),
    )
    form = lambda M: lambda x: jnp.einsum("i,ij,j->", x, M, x)
    dot = lambda u, v: tree.dot(jnp.asarray(u), jnp.asarray(v))
    rest = y - T @ z
    rows = [
        Row("xᵀAx, A symmetric", form(S), lambda x: dot(x, of(S, x)), x, 2 * S @ x),
        Row("xᵀAx", form(A), lambda x: dot(x, of(A, x)), x, (A + A.T) @ x, 2 * A @ x),
        Row(
            "xᵀAx, by A",
            lambda A: jnp.einsum("i,ij,j->", x, A, x),
            lambda A: dot(x, of(A, x)),
            A,
            np.outer(x, x),
            -np.outer(x, x),
        ),
        Row(
            "xᵀAᵀAx, A 5 × 3",
            lambda z: jnp.einsum("i,ki,kj,j->", z, T, T, z),
            lambda z: dot(of(T, z), of(T, z)),
            z,
            2 * T.T @ T @ z,
            T.T @ T @ z,
        ),
        Row(
            "‖y − Ax‖², by A",
            lambda T: jnp.square(y - jnp.einsum("ij,j->i", T, z)).sum(),
            lambda T: 2 * train.squared_loss(of(T, z), jnp.asarray(y)),
            T,
            -2 * np.outer(rest, z),
            2 * np.outer(rest, z),
        ),
        Row(
            "aᵀXᵀDXb",
            lambda X: jnp.einsum("i,ki,kl,lj,j->", a, X, D, X, b),
            lambda X: dot(of(X, a), of(D, of(X, b))),
            X,
            D.T @ X @ np.outer(a, b) + D @ X @ np.outer(b, a),
            D @ X @ (np.outer(a, b) + np.outer(b, a)),
        ),
    ]
    return Verdict(*[check for row in rows for check in _checks(row)])


def _terms(rng, k, m, d):
    A = rng.normal(size=(m, d))
    B = rng.normal(size=(k, m))
    x = rng.normal(size=d)
    y = rng.normal(size=k)
    net = lambda A: Chain(Linear(A), Linear(jnp.asarray(B)))(jnp.asarray(x))
    return A, B, x, y, net


def _linear_terms(rng, k, m, d):
    """yᵀBAx and xᵀAᵀBᵀy, which are equal."""
    A, B, x, y, net = _terms(rng, k, m, d)
    gradient = B.T @ np.outer(y, x)
    dot = lambda A: tree.dot(jnp.asarray(y), net(A))
    name = f"k = {k}, m = {m}: "
    first = Row(
        f"{name}yᵀBAx", lambda A: jnp.einsum("k,km,md,d->", y, B, A, x), dot, A, gradient, -gradient
    )
    second = Row(
        f"{name}xᵀAᵀBᵀy", lambda A: jnp.einsum("d,md,km,k->", x, A, B, y), dot, A, gradient
    )
    return first, second


def _square_term(rng, k, m, d):
    """xᵀAᵀBᵀBAx, the squared length of the network's output."""
    A, B, x, _, net = _terms(rng, k, m, d)
    sums = lambda A: jnp.einsum("d,md,km,kn,ne,e->", x, A, B, B, A, x)
    gradient = 2 * B.T @ B @ A @ np.outer(x, x)
    parts = lambda A: 2 * train.squared_loss(net(A), jnp.zeros(k))
    return Row(f"k = {k}, m = {m}: xᵀAᵀBᵀBAx", sums, parts, A, gradient, gradient / 2), B


@claim(
    "L1-d-linear-term",
    "L1-d-quadratic-term",
    title="The two terms of the deep linear loss, differentiated",
    kind="identity",
    of=("layers.Chain", "train.squared_loss", "tree.dot"),
)
def terms(rng):
    r"""$\frac{\partial}{\partial A} y^\top B A x = \frac{\partial}{\partial A} x^\top A^\top B^\top
    y = B^\top y x^\top$
    and $\frac{\partial}{\partial A} x^\top A^\top B^\top B A x = 2 B^\top B A x x^\top$, of the
    shape of $A$.
    """
    rows = [
        *_linear_terms(rng, 4, 3, 5),
        _square_term(rng, 4, 3, 5)[0],
        _square_term(rng, 3, 3, 5)[0],
    ]
    return Verdict(*[check for row in rows for check in _checks(row)])


@erratum(
    "L1-d-linear-term",
    title="A gradient has the shape of its matrix",
    printed=r"\frac{\partial}{\partial A} x^\top A^\top B^\top y = x y^\top B",
    corrected=r"\frac{\partial}{\partial A} x^\top A^\top B^\top y = B^\top y x^\top",
    of=("layers.Chain",),
)
def linear_term_printed(rng):
    r"""Of two equal numbers $y^\top B A x = x^\top A^\top B^\top y$ the second derivative is
    printed as the transpose of the first: $d \times m$ where $A$ is $m \times d$, and a different
    matrix where $m = d$.
    """
    checks = []
    printed = []
    for m, d in ((3, 5), (4, 4)):
        A, B, x, y, _ = _terms(rng, 2, m, d)
        numeric = jacobian(lambda A, B=B, x=x, y=y: jnp.einsum("d,md,km,k->", x, A, B, y), A)
        right = B.T @ np.outer(y, x)
        wrong = np.outer(x, y) @ B
        shape = lambda name, G, A=A: equal(f"{name}: rows, {len(A)} in A", len(G), len(A))
        value = lambda name, G, numeric=numeric: close_derivative(
            f"{name}, m = d", G, numeric, tolerance=1e-6
        )
        same = shape if m != d else value
        checks.append(same("Bᵀyxᵀ", right))
        printed.append(same("xyᵀB", wrong))
    return Verdict(*checks, printed=printed)


@erratum(
    "L1-d-quadratic-term",
    title="The inner product of B's columns",
    printed=r"\frac{\partial}{\partial A} x^\top A^\top B^\top B A x = 2 B B^\top A x x^\top",
    corrected=r"\frac{\partial}{\partial A} x^\top A^\top B^\top B A x = 2 B^\top B A x x^\top",
    of=("train.squared_loss", "layers.Chain"),
)
def quadratic_term_printed(rng):
    r"""$BB^\top$ is $k \times k$ and does not fit the $m$ rows of $A$ unless $k = m$; then its
    value is different.
    """
    _, B = _square_term(rng, 4, 3, 5)
    square, S = _square_term(rng, 3, 3, 5)
    numeric = jacobian(square.sums, square.at)
    outer = np.linalg.pinv(S.T @ S) @ square.gradient  # 2 A x xᵀ
    meets = lambda name, M: equal(
        f"{name} A, k = 4 and m = 3: columns on the left, rows on the right", M.shape[1], 3
    )
    value = lambda name, M: close_derivative(
        f"{name}, k = m = 3", M @ outer, numeric, tolerance=1e-6
    )
    return Verdict(
        meets("BᵀB", B.T @ B),
        value("2BᵀBAxxᵀ", S.T @ S),
        printed=[meets("BBᵀ", B @ B.T), value("2BBᵀAxxᵀ", S @ S.T)],
    )
