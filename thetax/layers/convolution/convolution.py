r"""Convolution (§4): the linear maps that commute with shifts, so that a pattern is found wherever
it lies.

A signal $x$ has channels first, then one axis (a sequence) or two (an image); a kernel $W$ has
outputs, inputs, then as many axes. With stride $s$ and dilation $d$

$$(W \star x)_l[i] = \sum_k \sum_j W_{lk}[j]\, x_k[s i + d j], \qquad
(W * x)_l[i] = \sum_k \sum_j W_{lk}[j]\, x_k[s i - d j]$$

are correlation, which networks use, and convolution, which is correlation with the kernel turned
round. What lies beyond the edge is told by the boundary:

| boundary | beyond the edge | length, for $n$ and a kernel of $m$ |
|---|---|---|
| `valid` | never read | $n - m + 1$ |
| `same` | zero, the kernel's middle on every place | $n$ |
| `circular` | the other edge | $n$ |
| `full` | zero, wherever kernel and signal meet | $n + m - 1$ |

and a stride keeps every $s$-th place of these.
"""

from typing import Any, Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ...core import expect_floats, expect_shape
from ..initialise import Initialiser, he
from ..linear import along
from .channels_last import correlate_last

Boundary: TypeAlias = Literal["valid", "same", "circular", "full"]
Sizes: TypeAlias = int | tuple[int, ...]
BOUNDARIES = ("valid", "same", "circular", "full")
AXES = {1: ("NCH", "OIH", "NCH"), 2: ("NCHW", "OIHW", "NCHW")}


def correlate(
    W: Float[Array, "m g *k"],
    x: Float[Array, "c *s"],
    *,
    boundary: Boundary = "valid",
    stride: Sizes = 1,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Float[Array, "m *t"]:
    r"""$W \star x$, for $x$ of $c$ channels and $W$ of shape `(m, c / groups, *window)` (§4.1,
    §4.2).

    >>> W, x = jnp.array([[[1.0, 10.0]]]), jnp.array([[1.0, 2.0, 3.0]])
    >>> [correlate(W, x, boundary=b).tolist()[0] for b in ("valid", "full", "circular")]
    [[21.0, 32.0], [10.0, 21.0, 32.0, 3.0], [13.0, 21.0, 32.0]]
    """
    space = x.ndim - 1
    stride = each("stride", stride, space)
    dilation = each("dilation", dilation, space)
    check_kernel(W, x, boundary, dilation=dilation, groups=groups)
    reach = [d * (k - 1) for d, k in zip(dilation, W.shape[2:])]
    padding = [padded(boundary, r) for r in reach]
    if boundary == "circular":
        x = jnp.pad(x, [(0, 0), *padding], mode="wrap")
        padding = [(0, 0)] * space
    if groups == 1 and jax.default_backend() == "cpu":
        return correlate_last(W, x, stride, tuple(padding), dilation)
    y = jax.lax.conv_general_dilated(
        x[None],
        W,
        stride,
        padding,
        rhs_dilation=dilation,
        dimension_numbers=AXES[space],
        feature_group_count=groups,
    )
    return y[0]


def convolve(
    W: Float[Array, "m g *k"], x: Float[Array, "c *s"], **how: Any
) -> Float[Array, "m *t"]:
    r"""$W * x = \bar W \star x$ with $\bar W[j] = W[-j]$: correlation with the kernel turned round
    (§4.1).

    >>> W, x = jnp.array([[[1.0, 10.0]]]), jnp.array([[1.0, 2.0, 3.0]])
    >>> convolve(W, x, boundary="full").tolist()[0], jnp.convolve(W[0, 0], x[0]).tolist()
    ([1.0, 12.0, 23.0, 30.0], [1.0, 12.0, 23.0, 30.0])
    """
    return correlate(jnp.flip(W, axis=tuple(range(2, W.ndim))), x, **how)


def check_window(name: str, window: Any) -> None:
    """Refuses one number, which does not say how many axes there are."""
    if isinstance(window, int | np.integer):
        raise ValueError(
            f"{name}: window is a tuple such as (3, 3), a size for each axis of space; got "
            f"{window}."
        )


def each(name: str, sizes: Sizes, space: int) -> tuple[int, ...]:
    """A number for every axis of space."""
    found = (sizes,) * space if isinstance(sizes, int) else tuple(sizes)
    if len(found) != space or any(not isinstance(size, int) or size < 1 for size in found):
        raise ValueError(
            f"convolution: {name} is a whole number of at least 1, or {space} of them; got "
            f"{sizes!r}."
        )
    return found


def padded(boundary: Boundary, reach: int) -> tuple[int, int]:
    """How many places are put before and after an axis, for a kernel that reaches so far."""
    if boundary == "valid":
        return 0, 0
    if boundary == "full":
        return reach, reach
    before = (reach + 1) // 2
    return before, reach - before


def check_kernel(
    W: Any, x: Any, boundary: str, *, dilation: tuple[int, ...], groups: int = 1
) -> None:
    """Refuses a kernel and a signal that do not belong together."""
    if boundary not in BOUNDARIES:
        raise ValueError(
            f"convolution: boundary is one of {', '.join(BOUNDARIES)}; got {boundary!r}."
        )
    if W.ndim != x.ndim + 1 or x.ndim - 1 not in AXES:
        raise ValueError(
            "convolution: expected one signal (c, h) or image (c, h, w) with a kernel of one axis "
            f"more, got {x.shape} and W {W.shape}; map over a batch with jax.vmap."
        )
    if groups < 1 or W.shape[1] * groups != x.shape[0] or W.shape[0] % groups:
        raise ValueError(
            f"convolution: W {W.shape} with groups={groups} expected {W.shape[1] * groups} "
            "channels, got "
            f"{x.shape[0]} in {x.shape}; outputs and inputs are parted equally among the groups."
        )
    needed = tuple(d * (k - 1) + 1 for d, k in zip(dilation, W.shape[2:]))
    if boundary in ("valid", "circular") and any(n < k for n, k in zip(x.shape[1:], needed)):
        raise ValueError(
            f"convolution: a window of {needed} does not fit into an input of {x.shape[1:]}; take "
            "a smaller kernel or boundary='same'."
        )


class Convolution(eqx.Module):
    r"""The layer $x \mapsto s_W W \star x + s_b b$, a pattern $W_l$ for each of $m$ output channels
    (§4.2).

    It has $m\,c\,|k| + m$ parameters whatever the size of the image. `flip` makes it a convolution.
    With the boundary `same` or `circular` a window has a middle, so its sizes are odd. The scales
    are 1 but in the tangent parametrisation. LeCun et al. 1989.

    Departs: the notes print $W \in \mathbb{R}^{C_{in} \times C_{out} \times K \times K}$; the
    outputs come first.

    >>> layer = Convolution.init(3, 8, (3, 3), stride=2, key=jr.key(0))
    >>> layer(jnp.ones((3, 9, 9))).shape
    (8, 5, 5)
    """

    W: Float[Array, "m g *k"]
    b: Float[Array, " m"] | None = None
    boundary: Boundary = eqx.field(static=True, default="same")
    stride: tuple[int, ...] | int = eqx.field(static=True, default=1)
    dilation: tuple[int, ...] | int = eqx.field(static=True, default=1)
    groups: int = eqx.field(static=True, default=1)
    flip: bool = eqx.field(static=True, default=False)
    scale_W: float = eqx.field(static=True, default=1.0)
    scale_b: float = eqx.field(static=True, default=1.0)

    @classmethod
    def init(
        cls,
        c: int,
        m: int,
        window: tuple[int, ...],
        *,
        boundary: Boundary = "same",
        stride: Sizes = 1,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        flip: bool = False,
        initialiser: Initialiser = he,
        key: PRNGKeyArray,
    ) -> "Convolution":
        """Draws the kernel and the offset from the law, for `c` channels and windows of one axis or
        two.
        """
        check_window("Convolution", window)
        if min(c, m, *window) < 1:
            raise ValueError(
                f"Convolution: all sizes are at least 1; got c={c}, m={m} and window={window}."
            )
        if groups < 1 or c % groups or m % groups:
            raise ValueError(
                f"Convolution: {c} inputs and {m} outputs cannot be parted into groups={groups} "
                "alike."
            )
        key_W, key_b = jr.split(key)
        shape = (m, c // groups, *window)
        b = initialiser.bias(key_b, m) if bias else None
        scales = (initialiser.scale_W(shape), initialiser.scale_b)
        return cls(initialiser(key_W, shape), b, boundary, stride, dilation, groups, flip, *scales)

    def __check_init__(self):
        space = self.W.ndim - 2
        if space not in AXES or (self.b is not None and self.b.shape != self.W.shape[:1]):
            raise ValueError(
                "Convolution: W must be (m, c, k) or (m, c, k, l) and b (m,); got W "
                f"{self.W.shape} and b {None if self.b is None else self.b.shape}."
            )
        if self.boundary not in BOUNDARIES:
            raise ValueError(
                f"Convolution: boundary is one of {', '.join(BOUNDARIES)}; got {self.boundary!r}."
            )
        each("stride", self.stride, space)
        dilation = each("dilation", self.dilation, space)
        even = any(d * (k - 1) % 2 for d, k in zip(dilation, self.W.shape[2:]))
        if self.boundary in ("same", "circular") and even:
            raise ValueError(
                f"Convolution: a window of {self.W.shape[2:]} has no middle, which "
                f"boundary={self.boundary!r} lays on "
                "every place; take odd sizes, or boundary='valid'."
            )

    def __call__(self, x: Float[Array, "c *s"]) -> Float[Array, "m *t"]:
        expect_shape("Convolution", x, (self.W.shape[1] * self.groups, *"hw"[: self.W.ndim - 2]))
        expect_floats("Convolution", x)
        how = {
            "boundary": self.boundary,
            "stride": self.stride,
            "dilation": self.dilation,
            "groups": self.groups,
        }
        y = (convolve if self.flip else correlate)(self.W, x, **how)
        if self.scale_W != 1:
            y = self.scale_W * y
        if self.b is None:
            return y
        return y + along(self.b if self.scale_b == 1 else self.scale_b * self.b, y)
