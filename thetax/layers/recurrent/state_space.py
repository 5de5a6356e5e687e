r"""State-space models (§5.2): recurrent cells that are linear in their state, with learned input
and output maps.

$$h_t = \Lambda_t \odot h_{t-1} + u_t,$$

with $\Lambda$ diagonal, so that `linear_scan` computes all time steps in parallel. In `MinGRU` and
`SelectiveSSM` (Mamba) $\Lambda_t$ depends on the input; in `LRU` and `DiagonalSSM` (S4D, S5) it is
constant and complex, which is no restriction: almost every real matrix is diagonal in some complex
basis. A complex weight is stored as its real and its imaginary part, along the first axis.
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
from ..linear import matvec
from .scan import linear_scan


class MinGRU(eqx.Module):
    r"""The minimal GRU, whose gates depend on the input only (§5.2; Feng et al. 2024): with
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
        update_bias: float = 0.0,
        initialiser: Initialiser = lecun,
        key: PRNGKeyArray,
    ) -> "MinGRU":
        """Draws both matrices with the initialiser; the bias of the gate is `update_bias`."""
        key_G, key_V = jr.split(key)
        return cls(
            initialiser(key_G, (m, n)),
            initialiser(key_V, (m, n)),
            jnp.full(m, update_bias),
            jnp.zeros(m),
        )

    @property
    def start(self) -> Float[Array, " m"]:
        """The initial state, zero."""
        return jnp.zeros_like(self.v)

    def recurrence_terms(
        self, x: Float[Array, " n"]
    ) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """The factor $a_t$ and the term $b_t$ of $z_t = a_t \\odot z_{t-1} + b_t$."""
        expect_shape("MinGRU", x, self.V.shape[1:])
        gate = jax.nn.sigmoid(matvec(self.G, x) + self.g)
        return gate, (1 - gate) * (matvec(self.V, x) + self.v)

    def __call__(self, state: Float[Array, " m"], x: Float[Array, " n"]) -> tuple[Array, Array]:
        a, b = self.recurrence_terms(x)
        z = a * state + b
        return z, z

    def scan(
        self, state: Float[Array, " m"], xs: Float[Array, "t n"], mask: Bool[Array, " t"] | None
    ) -> Any:
        """Runs all time steps in parallel."""
        zs = _filter(*jax.vmap(self.recurrence_terms)(xs), state, mask)
        return zs[-1], _mask_outputs(zs, mask)


class LRU(eqx.Module):
    r"""The linear recurrent unit (LRU) $h_t = \lambda \odot h_{t-1} + C x_t$,
    $y_t = \mathrm{Re}(G h_t)$ with $\lambda = \exp(-e^{\nu} + i\varphi)$, which stays in the
    unit disk (§5.2; Orvieto et al. 2023).

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
        r"""$|\lambda|$ is uniform between the two values of `radius`, $\varphi$ between 0 and
        $2\pi$; the rows of $C$ are scaled by $\sqrt{1 - |\lambda|^2}$, so that white noise as
        input gives a state of variance 1.
        """
        if not 0 < radius[0] < radius[1] < 1:
            raise ValueError(
                f"LRU: radius must be (low, high) with 0 < low < high < 1; got {radius}."
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
        """The initial state, zero."""
        return jnp.zeros_like(self.eigenvalues)

    def project_input(self, x: Float[Array, " n"]) -> Complex[Array, " m"]:
        """$Cx$."""
        expect_shape("LRU", x, self.C.shape[2:])
        return jax.lax.complex(matvec(self.C[0], x), matvec(self.C[1], x))

    def readout(self, state: Complex[Array, " m"]) -> Float[Array, " k"]:
        r"""$\mathrm{Re}(Gh)$."""
        return matvec(self.G[0], state.real) - matvec(self.G[1], state.imag)

    def __call__(self, state: Complex[Array, " m"], x: Float[Array, " n"]) -> tuple[Array, Array]:
        state = self.eigenvalues * state + self.project_input(x)
        return state, self.readout(state)

    def scan(
        self, state: Complex[Array, " m"], xs: Float[Array, "t n"], mask: Bool[Array, " t"] | None
    ) -> Any:
        """Runs all time steps in parallel."""
        states = _filter(self.eigenvalues, jax.vmap(self.project_input)(xs), state, mask)
        return states[-1], _mask_outputs(jax.vmap(self.readout)(states), mask)


class DiagonalSSM(eqx.Module):
    r"""Diagonal state-space model (S4D, S5): the system $\dot h = \lambda \odot h + Bx$,
    $y = \mathrm{Re}(Ch) + Dx$, discretised with the time step $\Delta$ (§5; Gu et al. 2022;
    Smith et al. 2023).

    $\lambda = -e^{\alpha} + i\omega$, and each state has its own $\Delta$. The discretisation `zoh`
    (zero-order hold) keeps the input constant during a step, $\bar\lambda = e^{\lambda\Delta}$ and
    $\bar B = \frac{\bar\lambda - 1}{\lambda} B$; `bilinear` has
    $\bar\lambda = \frac{1 + \lambda\Delta/2}{1 - \lambda\Delta/2}$ and
    $\bar B = \frac{\Delta}{1 - \lambda\Delta/2} B$. Both keep $\bar\lambda$ in the unit disk.

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
    discretisation: Literal["zoh", "bilinear"] = eqx.field(static=True, default="zoh")

    @classmethod
    def init(
        cls,
        n: int,
        m: int,
        k: int,
        *,
        step_range: tuple[float, float] = (1e-3, 1e-1),
        discretisation: Literal["zoh", "bilinear"] = "zoh",
        key: PRNGKeyArray,
    ) -> "DiagonalSSM":
        r"""$\lambda_j = -\frac12 + i\pi j$, $\Delta$ log-uniform in `step_range`, $D = 0$."""
        key_step, key_B, key_C = jr.split(key, 3)
        low, high = map(math.log, step_range)
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
            discretisation,
        )

    @property
    def discrete(self) -> tuple[Complex[Array, " m"], Complex[Array, "m n"]]:
        r"""The discretised system, $\bar\lambda$ and $\bar B$."""
        lam = jax.lax.complex(-jnp.exp(self.alpha), self.omega)
        B = jax.lax.complex(self.B[0], self.B[1])
        step = jnp.exp(self.log_step).astype(lam.dtype)
        if self.discretisation == "zoh":
            lam_bar = jnp.exp(lam * step)
            return lam_bar, ((lam_bar - 1) / lam)[:, None] * B
        half = lam * step / 2
        return (1 + half) / (1 - half), (step / (1 - half))[:, None] * B

    @property
    def eigenvalues(self) -> Complex[Array, " m"]:
        r"""$\bar\lambda$."""
        return self.discrete[0]

    @property
    def start(self) -> Complex[Array, " m"]:
        """The initial state, zero."""
        return jnp.zeros_like(self.eigenvalues)

    def kernel(self, length: int) -> Float[Array, "t k n"]:
        r"""The convolution kernel $K_j = \mathrm{Re}(C \bar\Lambda^j \bar B)$, plus $D$ at 0: its
        causal convolution with the inputs is the output.
        """
        lam, B = self.discrete
        powers = lam[None] ** jnp.arange(length)[:, None].astype(lam.dtype)
        C = jax.lax.complex(self.C[0], self.C[1])
        return jnp.einsum("km,tm,mn->tkn", C, powers, B).real.at[0].add(self.D)

    def readout(self, state: Complex[Array, " m"], x: Float[Array, " n"]) -> Float[Array, " k"]:
        r"""$\mathrm{Re}(Ch) + Dx$."""
        return matvec(self.C[0], state.real) - matvec(self.C[1], state.imag) + matvec(self.D, x)

    def __call__(self, state: Complex[Array, " m"], x: Float[Array, " n"]) -> tuple[Array, Array]:
        expect_shape("DiagonalSSM", x, self.D.shape[1:])
        lam, B = self.discrete
        state = lam * state + _complex_matvec(B, x)
        return state, self.readout(state, x)

    def scan(
        self, state: Complex[Array, " m"], xs: Float[Array, "t n"], mask: Bool[Array, " t"] | None
    ) -> Any:
        """Runs all time steps in parallel."""
        expect_shape("DiagonalSSM", xs[0], self.D.shape[1:])
        lam, B = self.discrete
        states = _filter(lam, jax.vmap(lambda x: _complex_matvec(B, x))(xs), state, mask)
        return states[-1], _mask_outputs(jax.vmap(self.readout)(states, xs), mask)


class SelectiveSSM(eqx.Module):
    r"""Selective state-space model (Mamba's S6): the time step, the input map and the output map
    depend on the input (§5; Gu & Dao 2023).

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
        step_range: tuple[float, float] = (1e-3, 1e-1),
        initialiser: Initialiser = lecun,
        key: PRNGKeyArray,
    ) -> "SelectiveSSM":
        r"""The decay rates of the states are $1, \dots, N$, $\Delta$ is log-uniform in
        `step_range`, and $D = 1$.
        """
        key_S, key_s, key_B, key_C = jr.split(key, 4)
        low, high = map(math.log, step_range)
        steps = jnp.exp(jr.uniform(key_s, (d,), minval=low, maxval=high))
        A = jnp.tile(jnp.log(jnp.arange(1.0, m + 1)), (d, 1))
        bias = steps + jnp.log(-jnp.expm1(-steps))  # inverse of softplus
        return cls(
            A,
            0.1 * initialiser(key_S, (d, d)),
            bias,
            initialiser(key_B, (m, d)),
            initialiser(key_C, (m, d)),
            jnp.ones(d),
        )

    @property
    def start(self) -> Float[Array, "d m"]:
        """The initial state, zero."""
        return jnp.zeros_like(self.A)

    def recurrence_terms(
        self, x: Float[Array, " d"]
    ) -> tuple[Float[Array, "d m"], Float[Array, "d m"]]:
        """The factor $a_t$ and the term $b_t$ of $h_t = a_t \\odot h_{t-1} + b_t$."""
        expect_shape("SelectiveSSM", x, self.D.shape)
        step = jax.nn.softplus(matvec(self.S, x) + self.s)
        a = jnp.exp(-step[:, None] * jnp.exp(self.A))
        b = (step * x)[:, None] * matvec(self.B, x)[None]
        return a, b

    def readout(self, state: Float[Array, "d m"], x: Float[Array, " d"]) -> Float[Array, " d"]:
        """The output."""
        return state @ matvec(self.C, x) + self.D * x

    def __call__(self, state: Float[Array, "d m"], x: Float[Array, " d"]) -> tuple[Array, Array]:
        a, b = self.recurrence_terms(x)
        state = a * state + b
        return state, self.readout(state, x)

    def scan(
        self, state: Float[Array, "d m"], xs: Float[Array, "t d"], mask: Bool[Array, " t"] | None
    ) -> Any:
        """Runs all time steps in parallel."""
        states = _filter(*jax.vmap(self.recurrence_terms)(xs), state, mask)
        return states[-1], _mask_outputs(jax.vmap(self.readout)(states, xs), mask)


def _complex_matvec(B: Complex[Array, "m n"], x: Float[Array, " n"]) -> Complex[Array, " m"]:
    return jax.lax.complex(matvec(B.real, x), matvec(B.imag, x))


def _filter(
    a: Inexact[Array, "..."], b: Inexact[Array, "t *s"], state: Inexact[Array, "*s"], mask: Any
) -> Any:
    """The states at all time steps; where the mask is false the state does not change."""
    if mask is None:
        return linear_scan(a, b, state)
    active = mask.reshape(mask.shape + (1,) * (b.ndim - 1))
    return linear_scan(jnp.where(active, a, 1), jnp.where(active, b, 0), state)


def _mask_outputs(ys: Float[Array, "t k"], mask: Any) -> Float[Array, "t k"]:
    return ys if mask is None else jnp.where(mask[:, None], ys, 0)
