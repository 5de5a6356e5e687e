r"""Attention masks (§6.1, §6.4): which keys $j$ each query $i$ may attend to.

A `Mask` stores a few numbers (a window, a sequence length) from which any block of the
$t \times s$ Boolean table can be computed, so the kernels do not need the whole table. `CAUSAL`
hides later positions, `FULL` hides nothing.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class Mask(eqx.Module):
    r"""Attention mask: query $i$ may attend to key $j$ if
    $i - \text{before} \le j \le i + \text{after}$, $j < \text{length}$ and
    $\text{allowed}_{(i)j}$; a condition that is None does not apply.

    - `after=0` is causal; `before=w` limits attention to a sliding window.
    - `length` is the number of keys that are not padding.
    - `allowed` is a Boolean array, (s,) for all queries or (t, s).
    - `slopes` adds the bias $-\text{slopes}_h |i - j|$ to the scores of head $h$ (`ALiBi`).
    - `offset` is the position of the first query among the keys, 0 by default; with a KV cache it
      is the number of cached tokens.

    >>> mask = Mask(after=0, length=jnp.array(2))
    >>> mask.table(3, 3).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 0]]
    """

    before: int | None = eqx.field(static=True, default=None)
    after: int | None = eqx.field(static=True, default=None)
    length: Int[Array, ""] | None = None
    allowed: Bool[Array, "..."] | None = None
    slopes: Float[Array, " h"] | None = None
    offset: Int[Array, ""] | None = None

    def __check_init__(self):
        if min(self.before or 0, self.after or 0) < 0:
            raise ValueError(
                "Mask: before and after are numbers of positions and must not be negative; got "
                f"{self.before} and {self.after}."
            )
        if self.allowed is not None and (
            self.allowed.ndim not in (1, 2) or self.allowed.dtype != bool
        ):
            raise ValueError(
                "Mask: allowed must be a bool array of shape (s,) or (t, s); got "
                f"{self.allowed.dtype}{self.allowed.shape}."
            )

    @property
    def allows_all(self) -> bool:
        """Whether every query may attend to every key."""
        return (
            self.before is None
            and self.after is None
            and self.length is None
            and self.allowed is None
        )

    def check_shape(self, name: str, t: int, s: int) -> None:
        """Raises `ValueError` if `allowed` does not fit `t` queries and `s` keys."""
        if self.allowed is not None and self.allowed.shape not in ((s,), (t, s)):
            raise ValueError(
                f"{name}: mask.allowed must have shape ({s},), one entry per key, or ({t}, {s}), "
                f"one per pair; got {self.allowed.shape}."
            )

    def position(self, i: Int[Array, "..."]) -> Int[Array, "..."]:
        """The positions of the queries `i` among the keys."""
        return i if self.offset is None else i + self.offset.astype(i.dtype)

    def allows(self, i: Int[Array, "..."], j: Int[Array, "..."]) -> Bool[Array, "..."]:
        """Whether query `i` may attend to key `j`, for index arrays whose shapes broadcast.

        Queries are counted from 0; `offset` is added here.
        """
        position = self.position(i)
        conditions: list[Any] = []
        if self.before is not None:
            conditions.append(j >= position - self.before)
        if self.after is not None:
            conditions.append(j <= position + self.after)
        if self.length is not None:
            conditions.append(j < self.length.astype(j.dtype))
        if self.allowed is not None:
            conditions.append(self.allowed[j] if self.allowed.ndim == 1 else self.allowed[i, j])
        result = jnp.ones(jnp.broadcast_shapes(i.shape, j.shape), bool)
        for condition in conditions:
            result = result & condition
        return result

    def table(self, t: int, s: int) -> Bool[Array, "t s"]:
        """The mask as a Boolean array for `t` queries and `s` keys."""
        return self.allows(jnp.arange(t)[:, None], jnp.arange(s)[None])

    def bias(self, i: Int[Array, "..."], j: Int[Array, "..."]) -> Float[Array, "..."] | None:
        """The bias added to the scores of each head (ALiBi); None without `slopes`."""
        if self.slopes is None:
            return None
        distance = jnp.abs(self.position(i) - j).astype(self.slopes.dtype)
        return -self.slopes.reshape(-1, *[1] * distance.ndim) * distance[None]


FULL = Mask()  # Every token attends to every token.
CAUSAL = Mask(after=0)  # A token attends to itself and earlier tokens.


def sequence_length(tokens: Int[Array, " t"]) -> Int[Array, ""]:
    """The number of tokens before the padding, -1.

    >>> int(sequence_length(jnp.array([4, 0, 7, -1, -1])))
    3
    """
    return (tokens >= 0).sum(dtype=jnp.int32)
