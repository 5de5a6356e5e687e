r"""The perceptron algorithm (§1.2, Algorithm 1): on each mistake $w \leftarrow w + yx$ and
$b \leftarrow b + y$.

With the signed rows $z_i = y_i (x_i, 1)$ and $v = (w, b)$ it is one line, $v \leftarrow v + z_i$
where $z_i^\top v \le 0$, and it stops after a sweep without a mistake. `fit_perceptron` sweeps;
`perceptron_path` jumps from mistake to mistake and keeps every $v_t$.
"""

import warnings
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Int, Num, PRNGKeyArray

from .infeasibility import decide, signed_rows
from .neuron import Perceptron
from .separator import NotSeparable, as_signed, as_unit, check_signs

BLOCK = 32  # rows that are tried at once
SHORT = 160  # bytes of a row up to which one at a time is as fast


class PerceptronFit(NamedTuple):
    """Where the algorithm stopped. `separated` is whether its last sweep was clean."""

    model: Perceptron
    mistakes: Int[Array, ""]  # updates made
    epochs: Int[Array, ""]  # sweeps made, the clean one included
    separated: Bool[Array, ""]


class PerceptronPath(NamedTuple):
    r"""Every $v_t$ from $t = 0$ on; after the last of the `count` updates it stands still."""

    model: Perceptron  # stacked: w of shape (limit + 1, d)
    index: Int[Array, " limit"]  # the example of each update; -1 once there is none
    count: Int[Array, ""]
    separated: Bool[Array, ""]


def fit_perceptron(
    xs: Num[Any, "n d"],
    ys: Num[Any, " n"],
    *,
    epochs: int = 1000,
    bias: bool = True,
    key: PRNGKeyArray | None = None,
) -> PerceptronFit:
    r"""Sweeps the data until none is misclassified, at most `epochs` times (§1.2, Algorithm 1;
    Rosenblatt 1958).

    The examples come in their order or, with a key, in a new order each sweep. Integers stay
    integers, of int32 or wider: the weights are then exact, and if they might not fit a ValueError
    says so. Map over data sets with `jax.vmap`; on a CPU each of them stops by itself. If the data
    are not separable and not traced, raises `NotSeparable` with the multipliers that show it; if
    they are and the epochs do not suffice, warns with Novikoff's bound. Under `jit` or `vmap`,
    `separated` is False in both cases.

    >>> fit = fit_perceptron(np.array([[2, 0], [0, 1], [-1, -1]]), np.array([1, 1, -1]))
    >>> fit.model.w.tolist(), fit.model.b.item(), fit.mistakes.item(), fit.epochs.item()
    ([2, 0], 1, 1, 2)
    """
    check_signs(xs, ys)
    xs = as_signed(xs, "fit_perceptron")
    ys = jnp.asarray(ys)
    if epochs < 1:
        raise ValueError(f"fit_perceptron: epochs must be at least 1; got {epochs}.")
    found = _fit(xs, ys, jnp.asarray(epochs, jnp.int32), key, bias)
    if not isinstance(found.separated, Tracer):
        _account(found, xs, ys, bias)
    return found


def _account(found: PerceptronFit, xs: Any, ys: Any, bias: bool) -> None:
    """Nothing overflowed, by Lemma 1.2: |zᵀv| ≤ R²√t; and what was not separated is explained."""
    if jnp.issubdtype(found.model.w.dtype, jnp.integer):
        radius = np.square(np.asarray(xs, float)).sum(axis=1).max() + bias
        if radius * np.sqrt(int(found.mistakes)) > jnp.iinfo(found.model.w.dtype).max:
            raise ValueError(
                f"fit_perceptron: the integers of {found.model.w.dtype} may have overflowed; "
                "divide xs by a common factor, enable x64, or pass floats."
            )
    if not bool(found.separated):
        _explain(found, np.asarray(xs, float), np.asarray(ys, float), bias)


def _explain(found: PerceptronFit, xs: np.ndarray, ys: np.ndarray, bias: bool) -> None:
    """Why the data were not separated: they cannot be, or there were too few epochs."""
    v, certificate = decide(xs, ys, bias)
    if v is None:
        used = np.flatnonzero(certificate := np.asarray(certificate))
        raise NotSeparable(
            "fit_perceptron: no hyperplane separates the data: with weights in .certificate on "
            f"{len(used)} of the {len(certificate)} examples (such as row {used[0]}), the signed "
            "examples y(x, 1) add up to 0. Map the inputs to more features, or descend a loss.",
            certificate,
        )
    zs = signed_rows(xs, ys, bias)
    bound = np.square(zs).sum(axis=1).max() / ((zs @ v).min() / np.linalg.norm(v)) ** 2
    warnings.warn(
        "fit_perceptron: the data are separable, but not yet separated: "
        f"epochs={int(found.epochs)}, updates made {int(found.mistakes)}, updates that Novikoff's "
        f"bound allows {bound:.3g}. Allow more epochs, centre and scale the features, or ask "
        "max_margin for a separator.",
        RuntimeWarning,
        stacklevel=4,
    )


@partial(jax.jit, static_argnums=4)
def _fit(xs, ys, epochs, key, bias):
    v, mistakes, sweeps, wrong = _sweep_until_clean(signed_rows(xs, ys, bias), epochs, key)
    return PerceptronFit(as_unit(v, bias), mistakes, sweeps, wrong == 0)


def _rosenblatt(carry, z):
    v, wrong = carry
    mistake = ~(jnp.sum(v * z) > 0)  # so that NaN is a mistake
    return (jnp.where(mistake, v + z, v), wrong + mistake.astype(jnp.int32)), None


def _try_block(carry, zs):
    """The same updates as one row at a time, which is not even tried where the whole block is
    right.
    """
    clean = (jnp.matmul(zs, carry[0], precision="highest") > 0).all()
    return jax.lax.cond(
        clean, lambda c: c, lambda c: jax.lax.scan(_rosenblatt, c, zs)[0], carry
    ), None


def _sweep(v, zs):
    carry = (v, jnp.zeros((), jnp.int32))
    whole = 0
    if zs.shape[1] * zs.dtype.itemsize > SHORT:
        whole = len(zs) - len(zs) % BLOCK
        carry, _ = jax.lax.scan(_try_block, carry, zs[:whole].reshape(-1, BLOCK, zs.shape[1]))
    return jax.lax.scan(_rosenblatt, carry, zs[whole:])[0]


@jax.custom_batching.custom_vmap
def _sweep_until_clean(zs, epochs, key):
    def body(state):
        v, mistakes, sweeps, _ = state
        rows = zs if key is None else jr.permutation(jr.fold_in(key, sweeps), zs)
        v, wrong = _sweep(v, rows)
        return v, mistakes + wrong, sweeps + 1, wrong

    def going(state):
        _, mistakes, sweeps, wrong = state
        countable = mistakes <= jnp.iinfo(jnp.int32).max - len(zs)
        return (wrong > 0) & (sweeps < epochs) & countable

    none = jnp.zeros((), jnp.int32)
    return jax.lax.while_loop(going, body, (jnp.zeros_like(zs[0]), none, none, none + 1))


@_sweep_until_clean.def_vmap
def _one_after_another(size, mapped, *arguments):
    """On a CPU each data set runs until it is done; elsewhere they run side by side until the last
    is.
    """
    spread = lambda is_mapped, a: a if is_mapped else jnp.broadcast_to(a, (size, *a.shape))
    batch = jax.tree.map(spread, tuple(mapped), arguments)
    one = lambda each: _sweep_until_clean.fun(*each)
    found = jax.lax.platform_dependent(
        batch, cpu=lambda b: jax.lax.map(one, b), default=jax.vmap(one)
    )
    return found, jax.tree.map(lambda _: True, found)


def perceptron_path(
    xs: Num[Any, "n d"],
    ys: Num[Any, " n"],
    *,
    limit: int,
    bias: bool = True,
    start: Perceptron | None = None,
) -> PerceptronPath:
    r"""The first `limit` updates of the algorithm, one by one, from the origin or from `start`.

    A sample that is right changes nothing, so it is enough to go from each mistake to the next: in
    cyclic order, the first $i$ with $z_i^\top v \le 0$.

    >>> path = perceptron_path(jnp.eye(2), jnp.ones(2), limit=3, bias=False)
    >>> path.model.w.tolist(), path.index.tolist(), path.count.item()
    ([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [1.0, 1.0]], [0, 1, -1], 2)
    """
    check_signs(xs, ys)
    zs = signed_rows(as_signed(xs, "perceptron_path"), jnp.asarray(ys), bias)
    n = len(zs)
    first = jnp.zeros_like(zs[0]) if start is None else start.v
    if first.shape != zs[0].shape:
        raise ValueError(
            f"perceptron_path: start must have a bias iff bias is True; got {start} and "
            f"bias={bias}."
        )

    def update(state, _):
        v, place = state
        wrong = ~((zs * v[None]).sum(axis=1) > 0)
        ahead = jnp.where(wrong, (jnp.arange(n) - place) % n, n)
        i = ahead.argmin()
        after = jnp.where(wrong.any(), v + zs[i], v), jnp.where(wrong.any(), (i + 1) % n, place)
        return after, (after[0], jnp.where(wrong.any(), i, -1))

    (v, _), (vs, index) = jax.lax.scan(update, (first, jnp.zeros((), int)), length=limit)
    vs = jnp.concatenate([first[None], vs])
    model = jax.vmap(lambda v: as_unit(v, bias))(vs)
    return PerceptronPath(model, index, (index >= 0).sum(), ((zs * v[None]).sum(axis=1) > 0).all())
