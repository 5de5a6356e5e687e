r"""Scans for the linear recurrence $z_t = a_t \odot z_{t-1} + b_t$ (§5.2), sequential and parallel
(associative, prefix scan).

The composition of two steps is a step, $(a, b) \bullet (a', b') = (a'a, a'b + b')$, and $\bullet$
is associative, so a parallel machine computes all prefixes in $O(\log T)$ rounds. A machine with
little parallelism is faster with one step after another. The derivative is a recurrence with the
same $a$,

$$\dot z_t = a_t \odot \dot z_{t-1} + (\dot a_t \odot z_{t-1} + \dot b_t),$$

whose transpose runs backwards: a gradient needs $a$ and $z$ and nothing else.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Inexact


def linear_scan(
    a: Inexact[Array, "..."], b: Inexact[Array, "t *s"], start: Inexact[Array, "*s"] | None = None
) -> Inexact[Array, "t *s"]:
    r"""Solves the linear recurrence $z_t = a_t \odot z_{t-1} + b_t$ for $z_1, \dots, z_T$, from
    $z_0$ = `start` or 0 (§5.2).

    An $a$ without time axis is used at every step. The scan is sequential on a CPU and a parallel
    prefix scan on an accelerator; both use memory linear in $T$. Blelloch 1990; Martin & Cundy
    2018.

    >>> linear_scan(jnp.array([2.0, 2.0, 0.5]), jnp.array([1.0, 1.0, 1.0])).tolist()
    [1.0, 3.0, 2.5]
    >>> linear_scan(jnp.array(2.0), jnp.array([1.0, 1.0, 1.0])).tolist()
    [1.0, 3.0, 7.0]
    """
    if a.shape not in (b.shape, b.shape[1:]) or not b.ndim or not len(b):
        raise ValueError(
            "linear_scan: b must be (t, ...) with t >= 1, and a of the same shape, with or without "
            f"the time axis; got a {a.shape} and b {b.shape}."
        )
    if start is not None and start.shape != b.shape[1:]:
        raise ValueError(f"linear_scan: start must have shape {b.shape[1:]}; got {start.shape}.")
    dtype = jnp.result_type(a, b, *([] if start is None else [start]))
    a = a.astype(dtype)
    b = b.astype(dtype)
    if start is not None:
        b = b.at[0].add((a if a.ndim < b.ndim else a[0]) * start)
    return _scan(a, b)


def sequential_scan(a: Inexact[Array, "..."], b: Inexact[Array, "t *s"]) -> Inexact[Array, "t *s"]:
    """The linear recurrence from 0, one step after another.

    >>> sequential_scan(jnp.array([2.0, 2.0]), jnp.array([1.0, 1.0])).tolist()
    [1.0, 3.0]
    """

    def step(z, item):
        z = (a * z + item) if a.ndim < b.ndim else (item[0] * z + item[1])
        return z, z

    return jax.lax.scan(step, jnp.zeros_like(b[0]), b if a.ndim < b.ndim else (a, b))[1]


def prefix_scan(a: Inexact[Array, "..."], b: Inexact[Array, "t *s"]) -> Inexact[Array, "t *s"]:
    r"""The linear recurrence from 0 as a parallel prefix scan, in $O(\log T)$ rounds.

    >>> prefix_scan(jnp.array([2.0, 2.0]), jnp.array([1.0, 1.0])).tolist()
    [1.0, 3.0]
    """
    return jax.lax.associative_scan(combine, (jnp.broadcast_to(a, b.shape), b))[1]


def combine(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
    r"""The composition of two steps, $(a, b) \bullet (a', b') = (a'a, a'b + b')$.

    >>> combine((jnp.array(2.0), jnp.array(1.0)), (jnp.array(3.0), jnp.array(5.0)))[1].item()
    8.0
    """
    (a, b), (a_next, b_next) = first, second
    return a_next * a, a_next * b + b_next


@jax.custom_jvp
def _scan(a: Array, b: Array) -> Array:
    return jax.lax.platform_dependent(a, b, cpu=sequential_scan, default=prefix_scan)


@_scan.defjvp
def _scan_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (a, b), (d_a, d_b) = primals, tangents
    z = _scan(a, b)
    previous = jnp.concatenate([jnp.zeros_like(z[:1]), z[:-1]])
    return z, _scan(a, (d_a if a.ndim == b.ndim else d_a[None]) * previous + d_b)
