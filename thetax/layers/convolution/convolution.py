r"""Convolution (§4): linear maps that commute with shifts, so a pattern is detected at every
position.

A signal $x$ has the shape (channels, length) or (channels, height, width); a kernel $W$ has output
channels, input channels, and then as many spatial axes. With stride $s$ and dilation $d$

$$(W \star x)_l[i] = \sum_k \sum_j W_{lk}[j]\, x_k[s i + d j], \qquad
(W * x)_l[i] = \sum_k \sum_j W_{lk}[j]\, x_k[s i - d j]$$

are cross-correlation, which convolutional networks use, and convolution, which is correlation with
the flipped kernel. `boundary` is the padding mode:

| boundary | padding | output length, for input length $n$ and kernel size $m$ |
|---|---|---|
| `valid` | none | $n - m + 1$ |
| `same` | zeros, so that the kernel is centred at every position | $n$ |
| `circular` | the opposite edge | $n$ |
| `full` | zeros, so that every overlap of kernel and signal counts | $n + m - 1$ |

A stride $s$ keeps every $s$-th position of the output.
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
from ..linear import broadcast_channels
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
    r"""Cross-correlation $W \star x$ for $x$ with $c$ channels and $W$ of shape
    `(m, c / groups, *window)` (§4.1, §4.2).

    >>> W, x = jnp.array([[[1.0, 10.0]]]), jnp.array([[1.0, 2.0, 3.0]])
    >>> [correlate(W, x, boundary=b).tolist()[0] for b in ("valid", "full", "circular")]
    [[21.0, 32.0], [10.0, 21.0, 32.0, 3.0], [13.0, 21.0, 32.0]]
    """
    space = x.ndim - 1
    stride = per_axis("stride", stride, space)
    dilation = per_axis("dilation", dilation, space)
    check_kernel(W, x, boundary, dilation=dilation, groups=groups)
    reach = [d * (k - 1) for d, k in zip(dilation, W.shape[2:])]
    padding = [padding_sizes(boundary, r) for r in reach]
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
    W: Float[Array, "m g *k"], x: Float[Array, "c *s"], **options: Any
) -> Float[Array, "m *t"]:
    r"""Convolution $W * x = \bar W \star x$ with the flipped kernel $\bar W[j] = W[-j]$ (§4.1).

    The options are those of `correlate`.

    >>> W, x = jnp.array([[[1.0, 10.0]]]), jnp.array([[1.0, 2.0, 3.0]])
    >>> convolve(W, x, boundary="full").tolist()[0], jnp.convolve(W[0, 0], x[0]).tolist()
    ([1.0, 12.0, 23.0, 30.0], [1.0, 12.0, 23.0, 30.0])
    """
    return correlate(jnp.flip(W, axis=tuple(range(2, W.ndim))), x, **options)


def check_window(name: str, window: Any) -> None:
    """Raises `ValueError` if the window is one number: the number of axes would be unknown."""
    if isinstance(window, int | np.integer):
        raise ValueError(
            f"{name}: window must be a tuple with one size per spatial axis, such as (3, 3); got "
            f"{window}."
        )


def per_axis(name: str, sizes: Sizes, space: int) -> tuple[int, ...]:
    """The sizes as a tuple with one integer for each of the `space` spatial axes."""
    result = (sizes,) * space if isinstance(sizes, int) else tuple(sizes)
    if len(result) != space or any(not isinstance(size, int) or size < 1 for size in result):
        raise ValueError(
            f"convolution: {name} must be an integer >= 1, or a tuple of {space} of them; got "
            f"{sizes!r}."
        )
    return result


def padding_sizes(boundary: Boundary, reach: int) -> tuple[int, int]:
    """The padding before and after an axis, for a kernel of `reach` + 1 positions."""
    if boundary == "valid":
        return 0, 0
    if boundary == "full":
        return reach, reach
    before = (reach + 1) // 2
    return before, reach - before


def check_kernel(
    W: Any, x: Any, boundary: str, *, dilation: tuple[int, ...], groups: int = 1
) -> None:
    """Raises `ValueError` unless the shapes of kernel and signal fit together."""
    if boundary not in BOUNDARIES:
        raise ValueError(
            f"convolution: boundary must be one of {', '.join(BOUNDARIES)}; got {boundary!r}."
        )
    if W.ndim != x.ndim + 1 or x.ndim - 1 not in AXES:
        raise ValueError(
            "convolution: expected one signal (c, h) or image (c, h, w) with a kernel of one axis "
            f"more, got {x.shape} and W {W.shape}; map over a batch with jax.vmap."
        )
    if groups < 1 or W.shape[1] * groups != x.shape[0] or W.shape[0] % groups:
        raise ValueError(
            f"convolution: W {W.shape} with groups={groups} expects {W.shape[1] * groups} input "
            f"channels, got {x.shape[0]} in {x.shape}; input and output channels must be divisible "
            "by groups."
        )
    needed = tuple(d * (k - 1) + 1 for d, k in zip(dilation, W.shape[2:]))
    if boundary in ("valid", "circular") and any(n < k for n, k in zip(x.shape[1:], needed)):
        raise ValueError(
            f"convolution: a window of {needed} does not fit into an input of {x.shape[1:]}; use "
            "a smaller kernel or boundary='same'."
        )


class Convolution(eqx.Module):
    r"""Convolutional layer $x \mapsto s_W W \star x + s_b b$ with a kernel $W_l$ for each of $m$
    output channels (§4.2; LeCun et al. 1989).

    It has $m\,c\,|k| + m$ parameters for every image size. As in other libraries it computes a
    cross-correlation; `flip=True` makes it a convolution. With `boundary` `same` or `circular` the
    window sizes must be odd, so that a window has a centre. The scales $s_W$ and $s_b$ are 1,
    except with `ntk_parametrisation`.

    Departs: the notes print $W \in \mathbb{R}^{C_{in} \times C_{out} \times K \times K}$; here the
    output channels come first.

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
        """Initialises a layer with `c` input channels, `m` output channels and a window with one or
        two axes.
        """
        check_window("Convolution", window)
        if min(c, m, *window) < 1:
            raise ValueError(
                f"Convolution: all sizes must be >= 1; got c={c}, m={m} and window={window}."
            )
        if groups < 1 or c % groups or m % groups:
            raise ValueError(
                f"Convolution: input and output channels must be divisible by groups; got {c} and "
                f"{m} channels and groups={groups}."
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
                f"Convolution: boundary must be one of {', '.join(BOUNDARIES)}; got "
                f"{self.boundary!r}."
            )
        per_axis("stride", self.stride, space)
        dilation = per_axis("dilation", self.dilation, space)
        even = any(d * (k - 1) % 2 for d, k in zip(dilation, self.W.shape[2:]))
        if self.boundary in ("same", "circular") and even:
            raise ValueError(
                f"Convolution: a window of {self.W.shape[2:]} has no centre, which "
                f"boundary={self.boundary!r} needs; use odd sizes, or boundary='valid'."
            )

    def __call__(self, x: Float[Array, "c *s"]) -> Float[Array, "m *t"]:
        expect_shape("Convolution", x, (self.W.shape[1] * self.groups, *"hw"[: self.W.ndim - 2]))
        expect_floats("Convolution", x)
        options = {
            "boundary": self.boundary,
            "stride": self.stride,
            "dilation": self.dilation,
            "groups": self.groups,
        }
        y = (convolve if self.flip else correlate)(self.W, x, **options)
        if self.scale_W != 1:
            y = self.scale_W * y
        if self.b is None:
            return y
        return y + broadcast_channels(self.b if self.scale_b == 1 else self.scale_b * self.b, y)
