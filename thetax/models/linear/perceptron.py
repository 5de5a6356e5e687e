r"""The perceptron algorithm (§1.2, Algorithm 1): on each mistake $w \leftarrow w + yx$ and
$b \leftarrow b + y$.

With the signed rows $z_i = y_i (x_i, 1)$ and $v = (w, b)$ the update is $v \leftarrow v + z_i$ if
$z_i^\top v \le 0$; the algorithm stops after an epoch without a mistake. `fit_perceptron` runs
epochs over the data; `perceptron_path` goes from mistake to mistake and records every $v_t$.
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

from ...check import expect_count
from .infeasibility import separate_in_float64, signed_rows
from .neuron import Perceptron
from .separator import NotSeparable, as_perceptron, as_signed_integers, check_signed_labels

BLOCK_ROWS = 32  # rows that are tested for mistakes at once
MAX_SEQUENTIAL_ROW_BYTES = 160  # up to this row size, one row at a time is as fast


class PerceptronFit(NamedTuple):
    """Result of the perceptron algorithm."""

    model: Perceptron
    mistakes: Int[Array, ""]  # number of updates
    epochs: Int[Array, ""]  # number of epochs, including the last one without mistakes
    separated: Bool[Array, ""]  # whether the last epoch had no mistakes


class PerceptronPath(NamedTuple):
    r"""The iterates $v_t$ of the perceptron algorithm from $t = 0$ on; constant after the last of
    `n_updates` updates.
    """

    model: Perceptron  # stacked: w of shape (max_updates + 1, d)
    indices: Int[Array, " max_updates"]  # the example of each update; -1 after the last one
    n_updates: Int[Array, ""]
    separated: Bool[Array, ""]


def fit_perceptron(
    xs: Num[Any, "n d"],
    ys: Num[Any, " n"],
    *,
    epochs: int = 1000,
    bias: bool = True,
    key: PRNGKeyArray | None = None,
) -> PerceptronFit:
    r"""Perceptron algorithm: passes over the data until no example is misclassified, at most
    `epochs` times (§1.2, Algorithm 1; Rosenblatt 1958).

    The examples are visited in order or, with a key, shuffled in each epoch. Integer inputs give
    exact integer weights, int32 or wider; raises ValueError if they might overflow. Map over data
    sets with `jax.vmap`; on a CPU each data set stops independently. If the data are not separable
    and not traced, raises `NotSeparable` with a certificate; if they are separable but `epochs` is
    too small, warns with Novikoff's bound. Under `jit` or `vmap`, `separated` is False in both
    cases.

    >>> fit = fit_perceptron(np.array([[2, 0], [0, 1], [-1, -1]]), np.array([1, 1, -1]))
    >>> fit.model.w.tolist(), fit.model.b.item(), fit.mistakes.item(), fit.epochs.item()
    ([2, 0], 1, 1, 2)
    """
    check_signed_labels(xs, ys)
    xs = as_signed_integers(xs, "fit_perceptron")
    ys = jnp.asarray(ys)
    expect_count("fit_perceptron", epochs=epochs)
    fit = _fit(xs, ys, jnp.asarray(epochs, jnp.int32), key, bias)
    if not isinstance(fit.separated, Tracer):
        _check_outcome(fit, xs, ys, bias)
    return fit


def _check_outcome(fit: PerceptronFit, xs: Any, ys: Any, bias: bool) -> None:
    """Raises if integers may have overflowed, by Lemma 1.2: |zᵀv| ≤ R²√t; raises or warns if the
    data were not separated.
    """
    if jnp.issubdtype(fit.model.w.dtype, jnp.integer):
        radius_squared = np.square(np.asarray(xs, float)).sum(axis=1).max() + bias
        if radius_squared * np.sqrt(int(fit.mistakes)) > jnp.iinfo(fit.model.w.dtype).max:
            raise ValueError(
                f"fit_perceptron: the {fit.model.w.dtype} weights may have overflowed; "
                "divide xs by a common factor, enable x64, or pass floats."
            )
    if not bool(fit.separated):
        _explain_failure(fit, np.asarray(xs, float), np.asarray(ys, float), bias)


def _explain_failure(fit: PerceptronFit, xs: np.ndarray, ys: np.ndarray, bias: bool) -> None:
    """Raises if the data are not separable; warns if there were too few epochs."""
    v, certificate = separate_in_float64(xs, ys, bias)
    if v is None:
        used = np.flatnonzero(certificate := np.asarray(certificate))
        raise NotSeparable(
            "fit_perceptron: no hyperplane separates the data: weighted by .certificate, which is "
            f"positive on {len(used)} of the {len(certificate)} examples (such as row {used[0]}), "
            "the signed examples y(x, 1) sum to 0. Add features, or minimise a loss instead.",
            certificate,
        )
    zs = signed_rows(xs, ys, bias)
    bound = np.square(zs).sum(axis=1).max() / ((zs @ v).min() / np.linalg.norm(v)) ** 2
    warnings.warn(
        "fit_perceptron: the data are separable, but not separated after "
        f"epochs={int(fit.epochs)} and {int(fit.mistakes)} updates; Novikoff's bound is "
        f"{bound:.3g} updates. Allow more epochs, centre and scale the features, or use "
        "max_margin.",
        RuntimeWarning,
        stacklevel=4,
    )


@partial(jax.jit, static_argnums=4)
def _fit(xs, ys, epochs, key, bias):
    v, mistakes, sweeps, wrong = _sweep_until_clean(signed_rows(xs, ys, bias), epochs, key)
    return PerceptronFit(as_perceptron(v, bias), mistakes, sweeps, wrong == 0)


def _update(carry, z):
    v, wrong = carry
    mistake = ~(jnp.sum(v * z) > 0)  # negated so that NaN counts as a mistake
    return (jnp.where(mistake, v + z, v), wrong + mistake.astype(jnp.int32)), None


def _try_block(carry, zs):
    """Updates with a block of rows one at a time; skipped if the block has no mistake."""
    clean = (jnp.matmul(zs, carry[0], precision="highest") > 0).all()
    return jax.lax.cond(clean, lambda c: c, lambda c: jax.lax.scan(_update, c, zs)[0], carry), None


def _sweep(v, zs):
    carry = (v, jnp.zeros((), jnp.int32))
    whole = 0
    if zs.shape[1] * zs.dtype.itemsize > MAX_SEQUENTIAL_ROW_BYTES:
        whole = len(zs) - len(zs) % BLOCK_ROWS
        carry, _ = jax.lax.scan(_try_block, carry, zs[:whole].reshape(-1, BLOCK_ROWS, zs.shape[1]))
    return jax.lax.scan(_update, carry, zs[whole:])[0]


@jax.custom_batching.custom_vmap
def _sweep_until_clean(zs, epochs, key):
    def body(state):
        v, mistakes, sweeps, _ = state
        rows = zs if key is None else jr.permutation(jr.fold_in(key, sweeps), zs)
        v, wrong = _sweep(v, rows)
        return v, mistakes + wrong, sweeps + 1, wrong

    def unfinished(state):
        _, mistakes, sweeps, wrong = state
        countable = mistakes <= jnp.iinfo(jnp.int32).max - len(zs)
        return (wrong > 0) & (sweeps < epochs) & countable

    none = jnp.zeros((), jnp.int32)
    return jax.lax.while_loop(unfinished, body, (jnp.zeros_like(zs[0]), none, none, none + 1))


@_sweep_until_clean.def_vmap
def _sequential_on_cpu(size, mapped, *arguments):
    """Batching rule: on a CPU data sets run one after another, each until it is done; elsewhere
    they run in parallel until the last is done.
    """
    spread = lambda is_mapped, a: a if is_mapped else jnp.broadcast_to(a, (size, *a.shape))
    batch = jax.tree.map(spread, tuple(mapped), arguments)
    one = lambda each: _sweep_until_clean.fun(*each)
    results = jax.lax.platform_dependent(
        batch, cpu=lambda b: jax.lax.map(one, b), default=jax.vmap(one)
    )
    return results, jax.tree.map(lambda _: True, results)


def perceptron_path(
    xs: Num[Any, "n d"],
    ys: Num[Any, " n"],
    *,
    max_updates: int,
    bias: bool = True,
    start: Perceptron | None = None,
) -> PerceptronPath:
    r"""The first `max_updates` iterates of the perceptron algorithm, from the origin or `start`.

    Correctly classified examples change nothing, so each step finds the next mistake: in cyclic
    order, the first $i$ with $z_i^\top v \le 0$.

    >>> path = perceptron_path(jnp.eye(2), jnp.ones(2), max_updates=3, bias=False)
    >>> path.model.w.tolist(), path.indices.tolist(), path.n_updates.item()
    ([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [1.0, 1.0]], [0, 1, -1], 2)
    """
    check_signed_labels(xs, ys)
    zs = signed_rows(as_signed_integers(xs, "perceptron_path"), jnp.asarray(ys), bias)
    n = len(zs)
    first = jnp.zeros_like(zs[0]) if start is None else start.v
    if first.shape != zs[0].shape:
        raise ValueError(
            f"perceptron_path: start must have a bias iff bias is True; got {start} and "
            f"bias={bias}."
        )

    def update(state, _):
        v, position = state
        wrong = ~((zs * v[None]).sum(axis=1) > 0)
        steps_ahead = jnp.where(wrong, (jnp.arange(n) - position) % n, n)
        i = steps_ahead.argmin()  # the next mistake in cyclic order
        v = jnp.where(wrong.any(), v + zs[i], v)
        position = jnp.where(wrong.any(), (i + 1) % n, position)
        return (v, position), (v, jnp.where(wrong.any(), i, -1))

    (v, _), (vs, indices) = jax.lax.scan(update, (first, jnp.zeros((), int)), length=max_updates)
    vs = jnp.concatenate([first[None], vs])
    model = jax.vmap(lambda v: as_perceptron(v, bias))(vs)
    separated = ((zs * v[None]).sum(axis=1) > 0).all()
    return PerceptronPath(model, indices, (indices >= 0).sum(), separated)
