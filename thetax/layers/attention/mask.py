r"""Who sees whom (§6.1, §6.4): which keys $j$ the query $i$ may look at, told without a table of
all pairs.

A mask is a few numbers from which any part of the table can be made: a window around the query, a
length after which there is nothing, and what an arbitrary table says. Kernels that know these
numbers need no table.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class Mask(eqx.Module):
    r"""The pairs $(i, j)$ with $i - \text{before} \le j \le i + \text{after}$, $j < \text{length}$
    and $\text{there}_{(i)j}$; what is not given forbids nothing.

    `after=0` is causal: no query sees what comes later. The queries stand at `first`, `first` + 1,
    ... among the keys, from 0 on unless given. With `fade` head $h$ sees less of what is far:
    $-\text{fade}_h |i - j|$ is added to its scores (`ALiBi`).

    >>> mask = Mask(after=0, length=jnp.array(2))
    >>> mask.table(3, 3).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 0]]
    """

    before: int | None = eqx.field(static=True, default=None)
    after: int | None = eqx.field(static=True, default=None)
    length: Int[Array, ""] | None = None
    there: Bool[Array, "..."] | None = None
    fade: Float[Array, " h"] | None = None
    first: Int[Array, ""] | None = None

    def __check_init__(self):
        if min(self.before or 0, self.after or 0) < 0:
            raise ValueError(
                f"Mask: before and after count places and are not negative; got {self.before} and "
                f"{self.after}."
            )
        if self.there is not None and (self.there.ndim not in (1, 2) or self.there.dtype != bool):
            raise ValueError(
                "Mask: there must be bool, (s,) for all queries or (t, s); got "
                f"{self.there.dtype}{self.there.shape}."
            )

    @property
    def open(self) -> bool:
        """Whether every query sees every key."""
        return (
            self.before is None
            and self.after is None
            and self.length is None
            and self.there is None
        )

    def expect(self, name: str, t: int, s: int) -> None:
        """Refuses to be used for other sequences than `there` was made for."""
        if self.there is not None and self.there.shape not in ((s,), (t, s)):
            raise ValueError(
                f"{name}: the mask must have one entry for each of the {s} keys, ({s},), or for "
                f"each pair, ({t}, {s}); got {self.there.shape}."
            )

    def place(self, i: Int[Array, "..."]) -> Int[Array, "..."]:
        """Where among the keys the queries stand."""
        return i if self.first is None else i + self.first.astype(i.dtype)

    def allows(self, i: Int[Array, "..."], j: Int[Array, "..."]) -> Bool[Array, "..."]:
        """For queries and keys by their places, of shapes that broadcast; a query's place counts
        from 0.
        """
        at = self.place(i)
        parts: list[Any] = []
        if self.before is not None:
            parts.append(j >= at - self.before)
        if self.after is not None:
            parts.append(j <= at + self.after)
        if self.length is not None:
            parts.append(j < self.length.astype(j.dtype))
        if self.there is not None:
            parts.append(self.there[j] if self.there.ndim == 1 else self.there[i, j])
        found = jnp.ones(jnp.broadcast_shapes(i.shape, j.shape), bool)
        for part in parts:
            found = found & part
        return found

    def table(self, t: int, s: int) -> Bool[Array, "t s"]:
        """All pairs."""
        return self.allows(jnp.arange(t)[:, None], jnp.arange(s)[None])

    def bias(self, i: Int[Array, "..."], j: Int[Array, "..."]) -> Float[Array, "..."] | None:
        """What is added to the scores, head by head; nothing without `fade`."""
        if self.fade is None:
            return None
        away = jnp.abs(self.place(i) - j).astype(self.fade.dtype)
        return -self.fade.reshape(-1, *[1] * away.ndim) * away[None]


ALL = Mask()
CAUSAL = Mask(after=0)


def written(tokens: Int[Array, " t"]) -> Int[Array, ""]:
    """How many tokens there are before the filling, -1, begins.

    >>> int(written(jnp.array([4, 0, 7, -1, -1])))
    3
    """
    return (tokens >= 0).sum(dtype=jnp.int32)
