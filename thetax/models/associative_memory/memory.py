r"""Associative memories with binary states, and their recall dynamics (§1.4).

- `asynchronous_recall`: one site after another, $x_i \leftarrow \mathrm{spin}(H_i(x))$, until a
  sweep changes nothing (Hopfield recall)
- `update_sites`: asynchronous updates of a given sequence of sites, with the energy after each
- `synchronous_recall`: all sites at once, which may end in a cycle of two states

A memory is an energy $H$ of states $x \in \{-1, +1\}^d$ with the local field
$H_i(x) = \tfrac12 (H(x_i = -1) - H(x_i = +1))$, so that no asynchronous update raises the energy.
"""

import abc
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray

from ...core import Scalar, as_floats, expect_shape
from ...layers import spin

State: TypeAlias = Num[Array, " d"] | Num[np.ndarray, " d"]
Patterns: TypeAlias = Num[Array, "n d"] | Num[np.ndarray, "n d"]
OverlapCache: TypeAlias = tuple[
    Float[Array, " n"], Float[Array, "d n"]
]  # overlaps, and the patterns by site


def as_signs(name: str, x: Any) -> Float[Array, "..."]:
    """Converts the argument to floats; raises if it has other values than -1 and +1 (not checked
    inside `jit`).

    >>> as_signs("patterns", jnp.array([[0, 1], [1, 1]]))
    Traceback (most recent call last):
    ValueError: patterns: expected only -1 and +1, but 1 of 4 are other values, such as 0. ...
    """
    x = as_floats(name, x)
    if isinstance(x, Tracer) or bool(_all_signs(x)):
        return x
    values = np.asarray(x, np.float64)
    others = values[np.abs(values) != 1]
    examples = ", ".join(f"{value:.4g}" for value in np.unique(others)[:4])
    raise ValueError(
        f"{name}: expected only -1 and +1, but {others.size} of {values.size} are other values, "
        f"such as {examples}. "
        "Binarise first, for instance jnp.where(x > t, 1.0, -1.0) with a threshold t."
    )


@jax.jit
def _all_signs(x):
    return (jnp.abs(x) == 1).all()


def as_patterns(name: str, patterns: Any) -> Float[Array, "n d"]:
    """Converts patterns to rows of signs (n, d); raises if there is no pattern or no site."""
    if jnp.ndim(patterns) != 2 or 0 in jnp.shape(patterns):
        raise ValueError(
            f"{name}: patterns must have shape (n, d) with n, d >= 1; got "
            f"{jnp.shape(patterns)}. Flatten images first: images.reshape(len(images), -1)."
        )
    return as_signs(name, patterns)


class Memory(eqx.Module):
    """Interface of an associative memory: the energy, the local field, and a cache for sequential
    updates.

    `init_cache` summarises a state, `field_at` computes the field at one site from the cache, and
    `update_cache` accounts for a change of that site. Calling a memory on a state runs
    `asynchronous_recall` and returns the fixed point.
    """

    @property
    @abc.abstractmethod
    def sites(self) -> int:
        """The number of sites, $d$."""

    @abc.abstractmethod
    def energy(self, x: Float[Array, " d"]) -> Scalar:
        """The energy $H(x)$."""

    @abc.abstractmethod
    def field(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """The local field $H_i(x)$ at every site."""

    @abc.abstractmethod
    def init_cache(self, x: Float[Array, " d"]) -> Any:
        """The cache of a state."""

    @abc.abstractmethod
    def field_at(self, cache: Any, i: Int[Array, ""], x_i: Scalar) -> Scalar:
        """The local field $H_i(x)$ at one site."""

    @abc.abstractmethod
    def update_cache(self, cache: Any, i: Int[Array, ""], change: Scalar) -> Any:
        """The cache after $x_i$ has changed by `change`."""

    def __call__(self, x: State) -> Float[Array, " d"]:
        return asynchronous_recall(self, x).x


class OverlapMemory(Memory):
    r"""A memory whose energy is a function of the overlaps $m_t = x_t^\top x$ with its patterns;
    the overlaps are the cache.

    A flip of site $i$ changes every $m_t$ by $\pm 2 x_{t,i}$, so the update of a site costs $O(n)$
    and no $d \times d$ matrix is formed.
    """

    patterns: eqx.AbstractVar[Float[Array, "n d"]]

    @abc.abstractmethod
    def field_from_overlaps(
        self, m: Float[Array, " n"], columns: Float[Array, "n *k"], x: Float[Array, "*k"]
    ) -> Float[Array, "*k"]:
        """The local field at sites with these columns of the patterns and these states."""

    @property
    def sites(self) -> int:
        return self.patterns.shape[1]

    def overlaps(self, x: Float[Array, " d"]) -> Float[Array, " n"]:
        r"""Overlap with each pattern, $m_t = x_t^\top x$."""
        expect_shape(type(self).__name__, x, (self.sites,))
        return self.patterns @ x

    def field(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return self.field_from_overlaps(self.overlaps(x), self.patterns, x)

    def init_cache(self, x: Float[Array, " d"]) -> OverlapCache:
        return self.overlaps(x), self.patterns.T  # transposed, so that a site is a contiguous row

    def field_at(self, cache: OverlapCache, i: Int[Array, ""], x_i: Scalar) -> Scalar:
        m, columns = cache
        return self.field_from_overlaps(m, columns[i], x_i)

    def update_cache(self, cache: OverlapCache, i: Int[Array, ""], change: Scalar) -> OverlapCache:
        m, columns = cache
        return m + change * columns[i], columns


class AsynchronousRecall(NamedTuple):
    """Result of asynchronous recall."""

    x: Float[Array, " d"]  # the final state
    sweeps: Int[Array, ""]  # number of sweeps, including the last one, which changed nothing
    flips: Int[Array, ""]  # number of sites changed
    settled: Bool[Array, ""]  # whether a fixed point was reached within max_sweeps


def asynchronous_recall(
    memory: Memory,
    x: State,
    *,
    order: Int[Array, " d"] | None = None,
    key: PRNGKeyArray | None = None,
    max_sweeps: int = 100,
) -> AsynchronousRecall:
    r"""Hopfield recall: updates one site after another, $x_i \leftarrow \mathrm{spin}(H_i)$, until
    a sweep changes nothing (§1.4).

    The sites are visited in the given `order` (0 to $d - 1$ by default) or, with a key, in a new
    random order every sweep. The energy never rises and has finitely many values, so the dynamics
    converge; `max_sweeps` guards against rounding errors.

    >>> from thetax.models import hebb
    >>> rest = asynchronous_recall(
    ...     hebb(jnp.array([[1, 1, 1, -1, -1, -1]])), jnp.array([1, 1, -1, -1, -1, -1])
    ... )
    >>> rest.x.tolist(), rest.flips.item(), bool(rest.settled)
    ([1.0, 1.0, 1.0, -1.0, -1.0, -1.0], 1, True)
    """
    if order is not None and (key is not None or not _is_permutation(order, memory.sites)):
        raise ValueError(
            f"asynchronous_recall: order must hold each of the {memory.sites} sites once, from 0, "
            f"and excludes a key; got shape {jnp.shape(order)} and "
            f"{'no' if key is None else 'a'} key."
        )
    return _asynchronous_recall(memory, _state(memory, x), order, key, max_sweeps)


def _is_permutation(order: Any, d: int) -> bool:
    return jnp.shape(order) == (d,) and (
        isinstance(order, Tracer) or np.array_equal(np.sort(order), np.arange(d))
    )


@jax.jit
def _asynchronous_recall(memory, x, order, key, max_sweeps):
    sites = jnp.arange(memory.sites) if order is None else order

    def sweep(carry):
        rest, cache = carry
        now = sites if key is None else jr.permutation(jr.fold_in(key, rest.sweeps), sites)
        old = rest.x[now]
        cache, (_, new) = jax.lax.scan(
            lambda cache, at: _update_site(memory, cache, *at), cache, (now, old)
        )
        flips = (new != old).sum(dtype=jnp.int32)
        return AsynchronousRecall(
            rest.x.at[now].set(new), rest.sweeps + 1, rest.flips + flips, flips == 0
        ), cache

    none = jnp.zeros((), jnp.int32)
    start = AsynchronousRecall(x, none, none, jnp.zeros((), bool)), memory.init_cache(x)
    return jax.lax.while_loop(
        lambda carry: ~carry[0].settled & (carry[0].sweeps < max_sweeps), sweep, start
    )[0]


def _update_site(memory, cache, i, old):
    """Updates one site: the new cache, the local field, and the new sign."""
    field = memory.field_at(cache, i, old)
    new = spin(field)
    return memory.update_cache(cache, i, new - old), (field, new)


class UpdateTrace(NamedTuple):
    """Trace of asynchronous updates of given sites."""

    x: Float[Array, " d"]  # the final state
    energies: Float[Array, " updates"]  # after each update
    fields: Float[Array, " updates"]  # the local field at the site
    flipped: Bool[Array, " updates"]  # whether the site changed


def update_sites(memory: Memory, x: State, sites: Int[Array, " updates"]) -> UpdateTrace:
    r"""Updates the given sites one after another and records the energy, recomputed after each
    update.

    >>> from thetax.models import hebb
    >>> net = hebb(jnp.array([[1, 1, -1, -1]]))
    >>> trace = update_sites(net, jnp.array([-1, 1, -1, -1]), jnp.array([0, 1, 2]))
    >>> trace.energies.tolist(), trace.flipped.tolist()
    ([-1.5, -1.5, -1.5], [True, False, False])
    """
    return _update_sites(memory, _state(memory, x), sites)


@jax.jit
def _update_sites(memory, x, sites):
    def step(at, i):
        x, cache = at
        cache, (field, new) = _update_site(memory, cache, i, x[i])
        after = x.at[i].set(new)
        return (after, cache), (memory.energy(after), field, new != x[i])

    (x, _), (energies, fields, flipped) = jax.lax.scan(step, (x, memory.init_cache(x)), sites)
    return UpdateTrace(x, energies, fields, flipped)


class SynchronousRecall(NamedTuple):
    """Result of synchronous recall."""

    x: Float[Array, " d"]  # the final state
    # 1 for a fixed point, 2 for a cycle of two states, 0 if max_steps was reached first
    period: Int[Array, ""]
    steps: Int[Array, ""]  # number of steps until the period was known


def synchronous_recall(memory: Memory, x: State, *, max_steps: int = 100) -> SynchronousRecall:
    r"""Synchronous recall: updates all sites at once, $x \leftarrow \mathrm{spin}(H(x))$, until a
    fixed point or a cycle of two states.

    The energy may rise. With symmetric couplings there are no other limits (Goles & Olivos 1981).

    >>> from thetax.models import Hopfield
    >>> memory = Hopfield(jnp.array([[0.0, 1.0], [1.0, 0.0]]))
    >>> synchronous_recall(memory, jnp.array([1, -1])).period.item()
    2
    """
    return _synchronous_recall(memory, _state(memory, x), max_steps)


@jax.jit
def _synchronous_recall(memory, x, max_steps):
    def step(carry):
        before, now, _, steps = carry
        after = spin(memory.field(now))
        fixed = (after == now).all()
        back = (after == before).all()
        return now, after, jnp.where(fixed, 1, jnp.where(back, 2, 0)), steps + 1

    none = jnp.zeros((), jnp.where(True, 1, 2).dtype)
    start = x, x, none, none
    _, x, period, steps = jax.lax.while_loop(
        lambda carry: (carry[2] == 0) & (carry[3] < max_steps), step, start
    )
    return SynchronousRecall(x, period, steps)


def _state(memory: Memory, x: Any) -> Float[Array, " d"]:
    expect_shape(type(memory).__name__, jnp.asarray(x), (memory.sites,))
    kind = jax.tree.leaves(memory)[0].dtype
    return as_signs("state", x).astype(kind)
