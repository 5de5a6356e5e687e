r"""What remembers, and how it recalls (§1.4): memories of signs, and the dynamics of any of them.

`asynchronous` site after site, $x_i \leftarrow \mathrm{spin}(H_i(x))$, until a sweep changes
nothing `visit` the same along a given sequence of sites, with the energy after each `synchronous`
all sites at once, which may end in a cycle of two states

A memory is an energy $H$ of states $x \in \{-1, +1\}^d$ and its field
$H_i(x) = \tfrac12 (H(x_i = -1) - H(x_i = +1))$, so that no update raises the energy.
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

from ...core import Scalar, expect_shape, floats
from ...layers import spin

State: TypeAlias = Num[Array, " d"] | Num[np.ndarray, " d"]
Patterns: TypeAlias = Num[Array, "n d"] | Num[np.ndarray, "n d"]
Kept: TypeAlias = tuple[
    Float[Array, " n"], Float[Array, "d n"]
]  # overlaps, and the patterns by site


def signs(name: str, x: Any) -> Float[Array, "..."]:
    """The argument as floats, once it is known to be of -1 and +1 only; inside `jit` values are not
    looked at.

    >>> signs("patterns", jnp.array([[0, 1], [1, 1]]))
    Traceback (most recent call last):
    ValueError: patterns: expected only -1 and +1, but 1 of 4 values are others, such as 0. ...
    """
    x = floats(name, x)
    if isinstance(x, Tracer) or bool(_all_signs(x)):
        return x
    values = np.asarray(x, np.float64)
    others = values[np.abs(values) != 1]
    few = ", ".join(f"{value:.4g}" for value in np.unique(others)[:4])
    raise ValueError(
        f"{name}: expected only -1 and +1, but {others.size} of {values.size} values are others, "
        f"such as {few}. "
        "Binarise first, for instance jnp.where(x > t, 1.0, -1.0) with a threshold t."
    )


@jax.jit
def _all_signs(x):
    return (jnp.abs(x) == 1).all()


def as_patterns(name: str, patterns: Any) -> Float[Array, "n d"]:
    """Patterns as rows of signs: at least one pattern and one site."""
    if jnp.ndim(patterns) != 2 or 0 in jnp.shape(patterns):
        raise ValueError(
            f"{name}: patterns are rows, (n, d) with at least one of each; got "
            f"{jnp.shape(patterns)}. Ravel pictures first: images.reshape(len(images), -1)."
        )
    return signs(name, patterns)


class Memory(eqx.Module):
    """What a dynamics needs of a memory: its energy, and the field at a site without starting
    afresh each time.

    `begin` sums up a state, `pull` is the field at one site, `turn` follows a change of that site.
    Called on a state, a memory recalls: it answers with the state at rest.
    """

    @property
    @abc.abstractmethod
    def sites(self) -> int:
        """$d$."""

    @abc.abstractmethod
    def energy(self, x: Float[Array, " d"]) -> Scalar:
        """$H(x)$."""

    @abc.abstractmethod
    def field(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """$H_i(x)$ at every site."""

    @abc.abstractmethod
    def begin(self, x: Float[Array, " d"]) -> Any:
        """What is kept of a state."""

    @abc.abstractmethod
    def pull(self, kept: Any, i: Int[Array, ""], x_i: Scalar) -> Scalar:
        """$H_i(x)$ at one site."""

    @abc.abstractmethod
    def turn(self, kept: Any, i: Int[Array, ""], change: Scalar) -> Any:
        """What is kept once $x_i$ has changed."""

    def __call__(self, x: State) -> Float[Array, " d"]:
        return asynchronous(self, x).x


class Overlaps(Memory):
    r"""A memory whose energy is a function of the overlaps $m_t = x_t^\top x$ with its patterns:
    $m$ is what it keeps.

    A flip of site $i$ moves every $m_t$ by $2 x_{t,i}$, so a visit costs $O(n)$ and no $d \times d$
    matrix is formed.
    """

    patterns: eqx.AbstractVar[Float[Array, "n d"]]

    @abc.abstractmethod
    def force(
        self, m: Float[Array, " n"], columns: Float[Array, "n *k"], x: Float[Array, "*k"]
    ) -> Float[Array, "*k"]:
        """The field at sites with these columns of the patterns and these states."""

    @property
    def sites(self) -> int:
        return self.patterns.shape[1]

    def overlaps(self, x: Float[Array, " d"]) -> Float[Array, " n"]:
        r"""$m_t = x_t^\top x$."""
        expect_shape(type(self).__name__, x, (self.sites,))
        return self.patterns @ x

    def field(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return self.force(self.overlaps(x), self.patterns, x)

    def begin(self, x: Float[Array, " d"]) -> Kept:
        return self.overlaps(x), self.patterns.T  # site by site in a row, which reads faster

    def pull(self, kept: Kept, i: Int[Array, ""], x_i: Scalar) -> Scalar:
        m, columns = kept
        return self.force(m, columns[i], x_i)

    def turn(self, kept: Kept, i: Int[Array, ""], change: Scalar) -> Kept:
        m, columns = kept
        return m + change * columns[i], columns


class AsynchronousRecall(NamedTuple):
    """Where the asynchronous dynamics came to rest."""

    x: Float[Array, " d"]
    sweeps: Int[Array, ""]  # over all sites, counting the last one, which changed nothing
    flips: Int[Array, ""]
    settled: Bool[Array, ""]  # False if the limit came first


def asynchronous(
    memory: Memory,
    x: State,
    *,
    order: Int[Array, " d"] | None = None,
    key: PRNGKeyArray | None = None,
    max_sweeps: int = 100,
) -> AsynchronousRecall:
    r"""Visits site after site, $x_i \leftarrow \mathrm{spin}(H_i)$, until a sweep changes
    nothing (§1.4).

    The sites come in the order given (0 to $d - 1$ without one), or with a key in a new random
    order every sweep. The energy never rises and its values are finitely many, so it settles;
    `max_sweeps` sweeps are for what rounding blurs.

    >>> from thetax.models import hebb
    >>> rest = asynchronous(
    ...     hebb(jnp.array([[1, 1, 1, -1, -1, -1]])), jnp.array([1, 1, -1, -1, -1, -1])
    ... )
    >>> rest.x.tolist(), rest.flips.item(), bool(rest.settled)
    ([1.0, 1.0, 1.0, -1.0, -1.0, -1.0], 1, True)
    """
    if order is not None and (key is not None or not _permutes(order, memory.sites)):
        raise ValueError(
            f"asynchronous: order names each of the {memory.sites} sites once, from 0, and leaves "
            f"nothing to a key; got {jnp.shape(order)} and {'no' if key is None else 'a'} key."
        )
    return _settle(memory, _state(memory, x), order, key, max_sweeps)


def _permutes(order: Any, d: int) -> bool:
    return jnp.shape(order) == (d,) and (
        isinstance(order, Tracer) or np.array_equal(np.sort(order), np.arange(d))
    )


@jax.jit
def _settle(memory, x, order, key, limit):
    sites = jnp.arange(memory.sites) if order is None else order

    def sweep(carry):
        rest, kept = carry
        now = sites if key is None else jr.permutation(jr.fold_in(key, rest.sweeps), sites)
        old = rest.x[now]
        kept, (_, new) = jax.lax.scan(lambda kept, at: _update(memory, kept, *at), kept, (now, old))
        flips = (new != old).sum(dtype=jnp.int32)
        return AsynchronousRecall(
            rest.x.at[now].set(new), rest.sweeps + 1, rest.flips + flips, flips == 0
        ), kept

    none = jnp.zeros((), jnp.int32)
    start = AsynchronousRecall(x, none, none, jnp.zeros((), bool)), memory.begin(x)
    return jax.lax.while_loop(
        lambda carry: ~carry[0].settled & (carry[0].sweeps < limit), sweep, start
    )[0]


def _update(memory, kept, i, old):
    """One visit: what is kept of the state after it, the field felt, and the new sign."""
    field = memory.pull(kept, i, old)
    new = spin(field)
    return memory.turn(kept, i, new - old), (field, new)


class VisitTrace(NamedTuple):
    """What happened at each site visited."""

    x: Float[Array, " d"]  # in the end
    energies: Float[Array, " visits"]  # after each visit
    fields: Float[Array, " visits"]  # felt there
    flipped: Bool[Array, " visits"]


def visit(memory: Memory, x: State, sites: Int[Array, " visits"]) -> VisitTrace:
    r"""Updates the sites named, one after another, and records the energy, evaluated in full after
    each.

    >>> from thetax.models import hebb
    >>> net = hebb(jnp.array([[1, 1, -1, -1]]))
    >>> seen = visit(net, jnp.array([-1, 1, -1, -1]), jnp.array([0, 1, 2]))
    >>> seen.energies.tolist(), seen.flipped.tolist()
    ([-1.5, -1.5, -1.5], [True, False, False])
    """
    return _walk(memory, _state(memory, x), sites)


@jax.jit
def _walk(memory, x, sites):
    def step(at, i):
        x, kept = at
        kept, (field, new) = _update(memory, kept, i, x[i])
        after = x.at[i].set(new)
        return (after, kept), (memory.energy(after), field, new != x[i])

    (x, _), (energies, fields, flipped) = jax.lax.scan(step, (x, memory.begin(x)), sites)
    return VisitTrace(x, energies, fields, flipped)


class SynchronousRecall(NamedTuple):
    """Where the parallel dynamics ended."""

    x: Float[Array, " d"]
    period: Int[
        Array, ""
    ]  # 1 at a fixed point, 2 in a cycle of two states, 0 if the limit came first
    steps: Int[Array, ""]  # taken until it was known


def synchronous(memory: Memory, x: State, *, max_steps: int = 100) -> SynchronousRecall:
    r"""Updates all sites at once, $x \leftarrow \mathrm{spin}(H(x))$, until a state or the one
    before it returns.

    The energy may rise. With symmetric couplings it ends in a fixed point or a cycle of two (Goles
    & Olivos 1981).

    >>> from thetax.models import Hopfield
    >>> synchronous(Hopfield(jnp.array([[0.0, 1.0], [1.0, 0.0]])), jnp.array([1, -1])).period.item()
    2
    """
    return _march(memory, _state(memory, x), max_steps)


@jax.jit
def _march(memory, x, limit):
    def step(carry):
        before, now, _, steps = carry
        after = spin(memory.field(now))
        fixed = (after == now).all()
        back = (after == before).all()
        return now, after, jnp.where(fixed, 1, jnp.where(back, 2, 0)), steps + 1

    none = jnp.zeros((), jnp.where(True, 1, 2).dtype)
    start = x, x, none, none
    _, x, period, steps = jax.lax.while_loop(
        lambda carry: (carry[2] == 0) & (carry[3] < limit), step, start
    )
    return SynchronousRecall(x, period, steps)


def _state(memory: Memory, x: Any) -> Float[Array, " d"]:
    expect_shape(type(memory).__name__, jnp.asarray(x), (memory.sites,))
    kind = jax.tree.leaves(memory)[0].dtype
    return signs("state", x).astype(kind)
