r"""Recurrences that are linear in their state (§5.2): a filter's memory, with what a network reads
and puts out.

$$\zeta_t = \Lambda_t \odot \zeta_{t-1} + u_t,$$

with $\Lambda$ diagonal, so that all times can be had by one `linear_scan`. In `MinGRU` and
`SelectiveSSM` the input decides what is kept; in `LRU` and `DiagonalSSM` $\Lambda$ is the same at
all times and complex, which is no restriction: almost every real matrix is diagonal in some complex
basis. A complex weight is kept as its real and its imaginary part, along the first axis.
"""

import math
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Complex, Float, Inexact, PRNGKeyArray

from ...core import expect_shape
from ..initialise import Initialiser, lecun
from ..linear import dense
from .scan import linear_scan


class MinGRU(eqx.Module):
    r"""A `GRU` whose gates see the input alone (§5.2; Feng et al. 2024): with
    $s_t = \sigma(G x_t + g)$, $z_t = s_t \odot z_{t-1} + (1 - s_t) \odot (V x_t + v)$.

    Departs: the notes call it LRU, which is another unit.

    >>> cell = MinGRU.init(3, 5, key=jr.key(0))
    >>> cell(cell.start, jnp.ones(3))[1].shape
    (5,)
    """

    G: Float[Array, "m n"]
    V: Float[Array, "m n"]
    g: Float[Array, " m"]
    v: Float[Array, " m"]

    @classmethod
    def init(
        cls,
        n: int,
        m: int,
        *,
        keep: float = 0.0,
        initialiser: Initialiser = lecun,
        key: PRNGKeyArray,
    ) -> "MinGRU":
        """Draws both matrices from the law; the gate's offset begins at `keep`."""
        key_G, key_V = jr.split(key)
        return cls(
            initialiser(key_G, (m, n)), initialiser(key_V, (m, n)), jnp.full(m, keep), jnp.zeros(m)
        )

    @property
    def start(self) -> Float[Array, " m"]:
        """Zero."""
        return jnp.zeros_like(self.v)

    def read(self, x: Float[Array, " n"]) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """What is kept, and what is added."""
        expect_shape("MinGRU", x, self.V.shape[1:])
        keep = jax.nn.sigmoid(dense(self.G, x) + self.g)
        return keep, (1 - keep) * (dense(self.V, x) + self.v)

    def __call__(self, state: Float[Array, " m"], x: Float[Array, " n"]) -> tuple[Array, Array]:
        keep, new = self.read(x)
        z = keep * state + new
        return z, z

    def along(
        self, state: Float[Array, " m"], xs: Float[Array, "t n"], mask: Bool[Array, " t"] | None
    ) -> Any:
        """All times at once."""
        zs = _filter(*jax.vmap(self.read)(xs), state, mask)
        return zs[-1], _shown(zs, mask)


class LRU(eqx.Module):
    r"""The linear recurrent unit $\zeta_t = \lambda \odot \zeta_{t-1} + C x_t$,
    $y_t = \mathrm{Re}(G \zeta_t)$ with $\lambda = \exp(-e^{\nu} + i\varphi)$, which cannot leave
    the unit disk (§5.2; Orvieto et al. 2023).

    >>> cell = LRU.init(3, 8, 2, key=jr.key(0))
    >>> cell(cell.start, jnp.ones(3))[1].shape
    (2,)
    >>> bool((jnp.abs(cell.eigenvalues) < 1).all())
    True
    """

    nu: Float[Array, " m"]
    phi: Float[Array, " m"]
    C: Float[Array, "2 m n"]
    G: Float[Array, "2 k m"]

    @classmethod
    def init(
        cls,
        n: int,
        m: int,
        k: int,
        *,
        radius: tuple[float, float] = (0.9, 0.999),
        key: PRNGKeyArray,
    ) -> "LRU":
        r"""$|\lambda|$ uniform between the radii, $\varphi$ between 0 and $2\pi$; the rows of $C$
        are scaled by $\sqrt{1 - |\lambda|^2}$, so that white noise gives a state of variance 1.
        """
        if not 0 < radius[0] < radius[1] < 1:
            raise ValueError(
                f"LRU: the radii must lie between 0 and 1, the lower first; got {radius}."
            )
        key_r, key_phi, key_C, key_G = jr.split(key, 4)
        r = jr.uniform(key_r, (m,), minval=radius[0], maxval=radius[1])
        phi = jr.uniform(key_phi, (m,), maxval=2 * math.pi)
        C = jnp.sqrt(1 - r**2)[None, :, None] * jr.normal(key_C, (2, m, n)) / math.sqrt(2 * n)
        return cls(jnp.log(-jnp.log(r)), phi, C, jr.normal(key_G, (2, k, m)) / math.sqrt(m))

    @property
    def eigenvalues(self) -> Complex[Array, " m"]:
        r"""$\lambda$."""
        return jnp.exp(jax.lax.complex(-jnp.exp(self.nu), self.phi))

    @property
    def start(self) -> Complex[Array, " m"]:
        """Zero."""
        return jnp.zeros_like(self.eigenvalues)

    def read(self, x: Float[Array, " n"]) -> Complex[Array, " m"]:
        """$Cx$."""
        expect_shape("LRU", x, self.C.shape[2:])
        return jax.lax.complex(dense(self.C[0], x), dense(self.C[1], x))

    def show(self, state: Complex[Array, " m"]) -> Float[Array, " k"]:
        r"""$\mathrm{Re}(G\zeta)$."""
        return dense(self.G[0], state.real) - dense(self.G[1], state.imag)

    def __call__(self, state: Complex[Array, " m"], x: Float[Array, " n"]) -> tuple[Array, Array]:
        state = self.eigenvalues * state + self.read(x)
        return state, self.show(state)

    def along(
        self, state: Complex[Array, " m"], xs: Float[Array, "t n"], mask: Bool[Array, " t"] | None
    ) -> Any:
        """All times at once."""
        states = _filter(self.eigenvalues, jax.vmap(self.read)(xs), state, mask)
        return states[-1], _shown(jax.vmap(self.show)(states), mask)


class DiagonalSSM(eqx.Module):
    r"""The system $\dot\zeta = \lambda \odot \zeta + Bx$, $y = \mathrm{Re}(C\zeta) + Dx$ in steps
    of $\Delta$ (§5).

    $\lambda = -e^{\alpha} + i\omega$, and each state has its own $\Delta$. `exact` holds the input
    through a step, $\bar\lambda = e^{\lambda\Delta}$ and
    $\bar B = \frac{\bar\lambda - 1}{\lambda} B$; `bilinear` has
    $\bar\lambda = \frac{1 + \lambda\Delta/2}{1 - \lambda\Delta/2}$ and
    $\bar B = \frac{\Delta}{1 - \lambda\Delta/2} B$. Both stay in the unit disk. Gu et al. 2022;
    Smith et al. 2023.

    >>> cell = DiagonalSSM.init(3, 8, 2, key=jr.key(0))
    >>> cell(cell.start, jnp.ones(3))[1].shape
    (2,)
    """

    alpha: Float[Array, " m"]
    omega: Float[Array, " m"]
    log_step: Float[Array, " m"]
    B: Float[Array, "2 m n"]
    C: Float[Array, "2 k m"]
    D: Float[Array, "k n"]
    steps: Literal["exact", "bilinear"] = eqx.field(static=True, default="exact")

    @classmethod
    def init(
        cls,
        n: int,
        m: int,
        k: int,
        *,
        step: tuple[float, float] = (1e-3, 1e-1),
        steps: Literal["exact", "bilinear"] = "exact",
        key: PRNGKeyArray,
    ) -> "DiagonalSSM":
        r"""$\lambda_j = -\frac12 + i\pi j$, steps drawn evenly on a logarithmic scale, $D = 0$."""
        key_step, key_B, key_C = jr.split(key, 3)
        low, high = map(math.log, step)
        log_step = jr.uniform(key_step, (m,), minval=low, maxval=high)
        B = jr.normal(key_B, (2, m, n)) / math.sqrt(2 * n)
        C = jr.normal(key_C, (2, k, m)) / math.sqrt(m)
        return cls(
            jnp.full(m, math.log(0.5)),
            math.pi * jnp.arange(float(m)),
            log_step,
            B,
            C,
            jnp.zeros((k, n)),
            steps,
        )

    @property
    def discrete(self) -> tuple[Complex[Array, " m"], Complex[Array, "m n"]]:
        r"""$\bar\lambda$ and $\bar B$."""
        lam = jax.lax.complex(-jnp.exp(self.alpha), self.omega)
        B = jax.lax.complex(self.B[0], self.B[1])
        step = jnp.exp(self.log_step).astype(lam.dtype)
        if self.steps == "exact":
            held = jnp.exp(lam * step)
            return held, ((held - 1) / lam)[:, None] * B
        half = lam * step / 2
        return (1 + half) / (1 - half), (step / (1 - half))[:, None] * B

    @property
    def eigenvalues(self) -> Complex[Array, " m"]:
        r"""$\bar\lambda$."""
        return self.discrete[0]

    @property
    def start(self) -> Complex[Array, " m"]:
        """Zero."""
        return jnp.zeros_like(self.eigenvalues)

    def kernel(self, times: int) -> Float[Array, "t k n"]:
        r"""$K_j = \mathrm{Re}(C \bar\Lambda^j \bar B)$, and $D$ at 0: its convolution with the
        inputs is put out.
        """
        lam, B = self.discrete
        powers = lam[None] ** jnp.arange(times)[:, None].astype(lam.dtype)
        C = jax.lax.complex(self.C[0], self.C[1])
        return jnp.einsum("km,tm,mn->tkn", C, powers, B).real.at[0].add(self.D)

    def show(self, state: Complex[Array, " m"], x: Float[Array, " n"]) -> Float[Array, " k"]:
        r"""$\mathrm{Re}(C\zeta) + Dx$."""
        return dense(self.C[0], state.real) - dense(self.C[1], state.imag) + dense(self.D, x)

    def __call__(self, state: Complex[Array, " m"], x: Float[Array, " n"]) -> tuple[Array, Array]:
        expect_shape("DiagonalSSM", x, self.D.shape[1:])
        lam, B = self.discrete
        state = lam * state + _read(B, x)
        return state, self.show(state, x)

    def along(
        self, state: Complex[Array, " m"], xs: Float[Array, "t n"], mask: Bool[Array, " t"] | None
    ) -> Any:
        """All times at once."""
        expect_shape("DiagonalSSM", xs[0], self.D.shape[1:])
        lam, B = self.discrete
        states = _filter(lam, jax.vmap(lambda x: _read(B, x))(xs), state, mask)
        return states[-1], _shown(jax.vmap(self.show)(states, xs), mask)


class SelectiveSSM(eqx.Module):
    r"""A state space whose step, reading and showing depend on the input (§5; Gu & Dao 2023).

    For channel $i$ of $d$ and state $j$ of $N$, with $\Delta_t = \mathrm{softplus}(S x_t + s)$,
    $B_t = B x_t$ and $C_t = C x_t$,

    $$h_t[i,j] = e^{-\Delta_t[i]\, e^{A[i,j]}}\, h_{t-1}[i,j] + \Delta_t[i]\, B_t[j]\, x_t[i],
    \qquad
    y_t[i] = \sum_j C_t[j]\, h_t[i,j] + D[i]\, x_t[i].$$

    >>> cell = SelectiveSSM.init(3, 4, key=jr.key(0))
    >>> cell(cell.start, jnp.ones(3))[1].shape
    (3,)
    """

    A: Float[Array, "d m"]
    S: Float[Array, "d d"]
    s: Float[Array, " d"]
    B: Float[Array, "m d"]
    C: Float[Array, "m d"]
    D: Float[Array, " d"]

    @classmethod
    def init(
        cls,
        d: int,
        m: int,
        *,
        step: tuple[float, float] = (1e-3, 1e-1),
        initialiser: Initialiser = lecun,
        key: PRNGKeyArray,
    ) -> "SelectiveSSM":
        r"""States that decay at rates $1, \dots, N$; steps drawn evenly on a logarithmic scale;
        $D = 1$.
        """
        key_S, key_s, key_B, key_C = jr.split(key, 4)
        steps = jnp.exp(jr.uniform(key_s, (d,), minval=math.log(step[0]), maxval=math.log(step[1])))
        A = jnp.tile(jnp.log(jnp.arange(1.0, m + 1)), (d, 1))
        offset = steps + jnp.log(-jnp.expm1(-steps))  # softplus of it is the step
        return cls(
            A,
            0.1 * initialiser(key_S, (d, d)),
            offset,
            initialiser(key_B, (m, d)),
            initialiser(key_C, (m, d)),
            jnp.ones(d),
        )

    @property
    def start(self) -> Float[Array, "d m"]:
        """Zero."""
        return jnp.zeros_like(self.A)

    def read(self, x: Float[Array, " d"]) -> tuple[Float[Array, "d m"], Float[Array, "d m"]]:
        """What is kept, and what is added."""
        expect_shape("SelectiveSSM", x, self.D.shape)
        step = jax.nn.softplus(dense(self.S, x) + self.s)
        return jnp.exp(-step[:, None] * jnp.exp(self.A)), (step * x)[:, None] * dense(self.B, x)[
            None
        ]

    def show(self, state: Float[Array, "d m"], x: Float[Array, " d"]) -> Float[Array, " d"]:
        """What is put out."""
        return state @ dense(self.C, x) + self.D * x

    def __call__(self, state: Float[Array, "d m"], x: Float[Array, " d"]) -> tuple[Array, Array]:
        keep, new = self.read(x)
        state = keep * state + new
        return state, self.show(state, x)

    def along(
        self, state: Float[Array, "d m"], xs: Float[Array, "t d"], mask: Bool[Array, " t"] | None
    ) -> Any:
        """All times at once."""
        states = _filter(*jax.vmap(self.read)(xs), state, mask)
        return states[-1], _shown(jax.vmap(self.show)(states, xs), mask)


def _read(B: Complex[Array, "m n"], x: Float[Array, " n"]) -> Complex[Array, " m"]:
    return jax.lax.complex(dense(B.real, x), dense(B.imag, x))


def _filter(
    a: Inexact[Array, "..."], b: Inexact[Array, "t *s"], state: Inexact[Array, "*s"], mask: Any
) -> Any:
    """The states at all times; where the mask is false the state is kept."""
    if mask is None:
        return linear_scan(a, b, state)
    there = mask.reshape(mask.shape + (1,) * (b.ndim - 1))
    return linear_scan(jnp.where(there, a, 1), jnp.where(there, b, 0), state)


def _shown(ys: Float[Array, "t k"], mask: Any) -> Float[Array, "t k"]:
    return ys if mask is None else jnp.where(mask[:, None], ys, 0)
