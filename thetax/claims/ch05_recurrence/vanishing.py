"""§5 and lecture 10, A.18: vanishing and exploding gradients."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import layers
from ...plot import Panel
from ..engine.check import at_least, at_most, between, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian
from .by_loop import elman, elman_cell, final_state, random_elman

NILPOTENT = np.array([[0.0, 1.0], [0.0, 0.0]])
LENGTH = 40


@jax.jit
def jacobians(cell, xs, start):
    r"""$\partial z_j / \partial z_{j-1}$ along a sequence, for $j = 1, \dots, T$."""
    before = jnp.concatenate([start[None], layers.unroll(cell, xs, state=start)[1][:-1]])
    return jax.vmap(jax.jacfwd(lambda z, x: cell(z, x)[0]))(before, xs)


def cumulative_jacobians(steps):
    r"""$\partial z_i / \partial z_0$ for $i = 1, \dots, T$, with the latest step on the left."""
    products = [steps[0]]
    for J in steps[1:]:
        products.append(J @ products[-1])
    return np.array(products)


def jacobian_norms(cell, xs, start=None):
    r"""$\|\partial z_i / \partial z_0\|_2$ for $i = 1, \dots, T$."""
    start = cell.start if start is None else jnp.asarray(start)
    return np.linalg.norm(
        cumulative_jacobians(np.asarray(jacobians(cell, jnp.asarray(xs), start))), 2, axis=(1, 2)
    )


def linear_cell(U):
    """A cell without activation that ignores its input."""
    return elman_cell(U, np.zeros((len(U), 1)), phi=layers.identity)


def with_spectral_radius(rng, m, rho):
    """A random matrix with spectral radius `rho`."""
    U = rng.normal(size=(m, m))
    return U * rho / np.abs(np.linalg.eigvals(U)).max()


@claim(
    "5.0-jacobian-stability",
    title="The Jacobian of one step",
    kind="identity",
    of=("layers.Elman", "layers.unroll"),
)
def one_step(key, rng):
    r"""$\partial z_j / \partial z_{j-1} = \dot\Phi_j U$. It preserves the norm of every gradient
    if and only if all its singular values are 1; a spectral norm of 1 implies only that no gradient
    grows.
    """
    U, V, cell = random_elman(rng, 3, 5)
    z = 0.5 * rng.normal(size=5)
    x = rng.normal(size=3)
    slope = (1 - np.tanh(U @ z + V @ x) ** 2)[:, None] * U
    Q = np.asarray(layers.orthogonal(key, (5, 5)))
    orthogonal_product = np.asarray(
        jax.jacfwd(lambda z: final_state(linear_cell(Q), np.zeros((200, 1)), z))(jnp.asarray(z))
    )
    uneven = np.diag([1.0, 0.5])
    nilpotent_product = np.asarray(
        jax.jacfwd(lambda z: final_state(linear_cell(NILPOTENT), np.zeros((2, 1)), z))(jnp.zeros(2))
    )
    norms_of = lambda U: jacobian_norms(linear_cell(U), np.zeros((3, 1)))
    return Verdict(
        close_derivative(
            "Φ̇U, against finite differences",
            jacobian(lambda z: cell(z, jnp.asarray(x))[0], z),
            slope,
        ),
        close(
            "orthogonal, linear: singular values after 200 steps",
            np.linalg.svd(orthogonal_product, compute_uv=False),
            1.0,
            tolerance=1e-10,
        ),
        close(
            "singular values 1 and ½: a vector that shrinks",
            final_state(linear_cell(uneven), np.zeros((3, 1)), jnp.array([0.0, 1.0])),
            [0.0, 0.125],
            tolerance=1e-15,
        ),
        equal("singular values 1 and ½: norms of the products", norms_of(uneven), np.ones(3)),
        equal("nilpotent: norm of one step", norms_of(NILPOTENT)[0], 1.0),
        equal("nilpotent: two steps", nilpotent_product, np.zeros((2, 2))),
        refuted(equal("nilpotent: norms stay 1", norms_of(NILPOTENT), np.ones(3))),
    )


@erratum(
    "5.0-jacobian-stability",
    title="The stability of a gradient depends on the product of the steps",
    printed=r"\text{stable only if } \|\dot\Phi_j U\|_2 = 1",
    corrected=r"\text{stable if and only if } \|\prod_j \dot\Phi_j U\|_2 \text{ stays away from } "
    r"0 "
    r"\text{ and } \infty",
    of=("layers.Elman", "layers.unroll"),
)
def stable_printed(key):
    r"""The norm of the product matters, and the norms of its factors do not determine it. With
    $\varphi$ linear and $U = \begin{pmatrix} 1 & 3 \\ 0 & -1 \end{pmatrix}$ the norm of one step is
    3.30; but $U^2 = I$, and the gradient stays between 1 and 3.31. So a norm of 1 is not necessary.
    (Nor is it sufficient: the nilpotent $\begin{pmatrix} 0 & 1 \\ 0 & 0 \end{pmatrix}$ has norm 1
    and square 0.)"""
    norms = jacobian_norms(linear_cell(np.array([[1.0, 3.0], [0.0, -1.0]])), np.zeros((100, 1)))
    nilpotent_norms = jacobian_norms(linear_cell(NILPOTENT), np.zeros((2, 1)))
    return Verdict(
        at_most("norm after 1 to 100 steps", norms, 3.31),
        at_least("norm after 1 to 100 steps", norms, 1.0, slack=1e-12),
        close("nilpotent: norm after one step and two", nilpotent_norms, [1.0, 0.0]),
        printed=[close("norm of one step", norms[0], 1.0, tolerance=1e-9)],
    )


def random_cells(key, phi, alpha, radius):
    """Fifty cells, half with σ₁(U) = 0.9/α, the others with random σ₁(U) up to radius/α; an input
    sequence for each; and the σ₁(U).
    """
    key_U, key_V, key_x, key_s = jr.split(key, 4)
    U = jr.normal(key_U, (50, 6, 6))
    sizes = jnp.concatenate(
        [jnp.full(25, 0.9 / alpha), jr.uniform(key_s, (25,), maxval=radius / alpha)]
    )
    U = U * (sizes / jnp.linalg.norm(U, 2, axis=(1, 2)))[:, None, None]
    make = jax.vmap(lambda U, V: elman_cell(U, V, phi=phi))
    return (
        make(U, 0.3 * jr.normal(key_V, (50, 6, 2))),
        jr.normal(key_x, (50, LENGTH, 2)),
        np.asarray(sizes),
    )


@claim(
    "5.0-vanishing",
    title="The gradient vanishes",
    kind="theorem",
    of=("layers.Elman", "layers.unroll"),
    cites="Hochreiter 1991; Bengio, Simard & Frasconi 1994; Pascanu, Mikolov & Bengio 2013",
)
def vanishing(key):
    r"""If $\|\dot\Phi_j\|_2 \le \alpha$ then
    $\left\|\frac{\partial z_i}{\partial z_t}\right\|_2 \le (\alpha\, \sigma_1(U))^{i-t}$; so the
    gradient vanishes if $\sigma_1(U) < 1/\alpha$.
    """
    checks = []
    lines = {}
    ages = np.arange(1, LENGTH + 1)
    for (name, phi, alpha), k in zip(
        [("σ", layers.sigmoid, 0.25), ("tanh", layers.tanh, 1.0)], jr.split(key)
    ):
        cells, xs, sizes = random_cells(k, phi, alpha, 1.5)
        steps = np.asarray(jax.vmap(jacobians)(cells, xs, jnp.zeros((50, 6))))
        norms = np.array([np.linalg.norm(cumulative_jacobians(J), 2, axis=(1, 2)) for J in steps])
        bound = (alpha * sizes[:, None]) ** ages
        first = jax.tree.map(lambda a: a[0], cells)
        numeric = jacobian(
            lambda z, first=first, xs=xs: final_state(first, xs[0, :5], z), np.zeros(6)
        )
        checks += [
            close_derivative(
                f"{name}: five steps, against finite differences",
                cumulative_jacobians(steps[0])[4],
                numeric,
            ),
            at_most(f"{name}: norm over (ασ₁)^(i−t), 50 networks", norms / bound, 1 + 1e-9),
            at_most(
                f"{name}: σ₁ = 0.9/α, after 40 steps", norms[:25, -1], 0.9**LENGTH * (1 + 1e-9)
            ),
            refuted(
                at_most(
                    f"{name}: the bound with 2α/3 instead of α",
                    norms / (2 / 3) ** ages / bound,
                    1 + 1e-9,
                )
            ),
        ]
        lines |= {f"{name}, network {i}": (ages, norms[i]) for i in range(2)}
    return Verdict(
        *checks,
        figure=Panel(
            "steps back",
            "norm of the gradient",
            lines=lines,
            log="y",
            bounds={"0.9^steps": (ages, 0.9**ages)},
        ),
    )


@erratum(
    "5.0-vanishing",
    title="At equality the gradient need not vanish",
    printed=r"\sigma_1(U) \le 1/\alpha \ \Rightarrow\ \left\|\frac{\partial z_i}{\partial "
    r"z_t}\right\|_2 \to 0",
    corrected=r"\sigma_1(U) < 1/\alpha \ \Rightarrow\ \left\|\frac{\partial z_i}{\partial "
    r"z_t}\right\|_2 \to 0",
    of=("layers.Elman", "layers.unroll"),
)
def strictly(key):
    r"""With $U = I$, $\sigma_1(U) = 1 = 1/\alpha$, and a state at 0, where $\tanh' = 1$, the
    gradient is 1 at every step.
    """
    xs = np.zeros((200, 1))
    after = lambda scale: jacobian_norms(elman_cell(scale * np.eye(3), np.ones((3, 1))), xs)[-1]
    return Verdict(
        at_most("σ₁ = 0.9/α: norm after 200 steps", after(0.9), 1e-6),
        printed=[at_most("σ₁ = 1/α: norm after 200 steps", after(1.0), 1e-6)],
    )


@claim(
    "5.0-alpha",
    title="The largest slopes of activations",
    kind="identity",
    of=("layers.sigmoid", "layers.tanh", "layers.relu"),
)
def steepest(key):
    r"""$\sup \sigma' = \frac14$ and $\sup \tanh' = 1$, both at 0, and $\sup \mathrm{ReLU}' = 1$:
    the factor $\alpha$ in the bound on the Jacobian of one step.
    """
    z = np.linspace(-8, 8, 4001)
    h = 1e-5
    checks = []
    for name, phi, alpha in (
        ("σ", layers.sigmoid, 0.25),
        ("tanh", layers.tanh, 1.0),
        ("ReLU", layers.relu, 1.0),
    ):
        slope = np.asarray(phi(jnp.asarray(z + h)) - phi(jnp.asarray(z - h))) / (2 * h)
        exact = np.asarray(jax.vmap(jax.grad(phi))(jnp.asarray(z)))
        checks += [
            at_most(
                f"{name}′ on a grid, by finite differences",
                slope,
                alpha,
                slack=1e-9,
                method="finite differences",
            ),
            close(f"{name}′: largest value", exact.max(), alpha, tolerance=1e-15),
            refuted(at_most(f"{name}′ and 0.99 α", exact, 0.99 * alpha)),
        ]
        if name != "ReLU":
            checks.append(equal(f"{name}′: argument of the largest value", z[exact.argmax()], 0.0))
    bound = jacobian_norms(
        elman_cell(2 * np.eye(3), np.ones((3, 1)), phi=layers.sigmoid),
        np.full((1, 1), 0.0),
        np.zeros(3),
    )
    return Verdict(
        *checks,
        close("norm of a step of Elman's network at 0, U = 2I, σ", bound[0], 0.5, tolerance=1e-15),
    )


@claim(
    "5.0-exploding",
    title="The gradient explodes",
    kind="experiment",
    of=("layers.Elman", "layers.unroll"),
    cites="Pascanu, Mikolov & Bengio 2013",
)
def exploding(rng):
    r"""For growth $\sigma_1(U) > 1/\alpha$ is necessary but not sufficient. Without an activation
    the spectral radius decides: $\frac1k \log \|U^k\| \to \log \rho(U)$.
    """
    steps = np.zeros((200, 1))
    ages = np.arange(1, 201)
    U = with_spectral_radius(rng, 6, 1.5)
    sheared = np.array([[0.5, 5.0], [0.0, 0.5]])
    growing_norms = jacobian_norms(linear_cell(U), steps)
    sheared_norms = jacobian_norms(linear_cell(sheared), steps)
    small = U * 0.99 / np.linalg.norm(U, 2)
    return Verdict(
        close(
            "log‖U²⁰⁰‖ / 200",
            np.log(growing_norms[-1]) / 200,
            np.log(1.5),
            tolerance=0.02,
            relative=True,
        ),
        close(
            "‖U²⁰⁰‖, against NumPy's matrix power",
            growing_norms[-1],
            np.linalg.norm(np.linalg.matrix_power(U, 200), 2),
            tolerance=1e-9,
            relative=True,
        ),
        at_most(
            "σ₁ = 0.99: norms", jacobian_norms(linear_cell(small), steps), 0.99**ages, slack=1e-12
        ),
        at_least("sheared matrix: σ₁", sheared_norms[0], 5.0),
        close("sheared matrix: ρ", np.abs(np.linalg.eigvals(sheared)).max(), 0.5),
        at_most("sheared matrix: norm after 200 steps", sheared_norms[-1], 1e-50),
        refuted(
            at_least(
                "sheared matrix: norm after 40 steps, against that after one",
                sheared_norms[39],
                sheared_norms[0],
            )
        ),
        figure=Panel(
            "steps back",
            "norm of the gradient",
            log="y",
            lines={
                "ρ = 1.5": (ages[:60], growing_norms[:60]),
                "σ₁ = 5, ρ = ½": (ages[:60], sheared_norms[:60]),
            },
            bounds={"1.5^steps": (ages[:60], 1.5 ** ages[:60])},
        ),
    )


@claim(
    "L10-A18-vanish-explode",
    title="Vanishing and exploding gradients",
    kind="theorem",
    of=("layers.Elman", "layers.unroll"),
    cites="Pascanu, Mikolov & Bengio 2013",
)
def vanish_or_explode(rng):
    r"""$\left\|\frac{\partial h_T}{\partial h_1}\right\| \le \prod_t \|\mathrm{diag}(\sigma')\, W\|
    \le (\gamma \|W\|)^{T-1}$,
    which vanishes if $\gamma\|W\| < 1$; a linear network grows as $\rho(W)^T$.
    """
    T = 60
    W, V, cell = random_elman(rng, 2, 5)
    xs = rng.normal(size=(T, 2))
    steps = np.asarray(jacobians(cell, jnp.asarray(xs), cell.start))[1:]
    norms = np.linalg.norm(cumulative_jacobians(steps), 2, axis=(1, 2))
    norm_products = np.cumprod(np.linalg.norm(steps, 2, axis=(1, 2)))
    by_hand = (1 - elman(W, V, xs)[2:] ** 2)[:, :, None] * W
    linear_product = np.asarray(
        jax.jacfwd(lambda h: final_state(linear_cell(W), np.zeros((9, 1)), h))(jnp.zeros(5))
    )
    growth = {}
    for rho in (0.5, 1.5):
        small_input = elman_cell(with_spectral_radius(rng, 5, rho), 1e-15 * V)
        growth[rho] = np.log(jacobian_norms(small_input, xs))
    rate = lambda rho: np.polyfit(np.arange(20, T), growth[rho][20:], 1)[0]
    return Verdict(
        close("tanh: Jacobians of the steps, against the formula", steps, by_hand),
        at_most("tanh: norm over the product of norms", norms / norm_products, 1 + 1e-12),
        at_most(
            "tanh: the product over (γ‖W‖)^(T−1)",
            norm_products / np.linalg.norm(W, 2) ** np.arange(1, T),
            1 + 1e-12,
        ),
        close(
            "linear: nine steps are W⁹",
            linear_product,
            np.linalg.matrix_power(W, 9),
            tolerance=1e-10,
        ),
        between(
            "tanh near 0, ρ = ½: slope of the log norm",
            rate(0.5),
            1.2 * np.log(0.5),
            0.8 * np.log(0.5),
        ),
        between(
            "tanh near 0, ρ = 1.5: slope of the log norm",
            rate(1.5),
            0.8 * np.log(1.5),
            1.2 * np.log(1.5),
        ),
        figure=Panel(
            "steps back",
            "log of the norm",
            lines={f"ρ = {rho}": (np.arange(1, T + 1), growth[rho]) for rho in growth},
        ),
    )
