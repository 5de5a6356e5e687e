"""§4.1: operators on functions, by quadrature and by the library's convolutions on a grid."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import layers
from ...plot import Chart, Panel
from ..engine.check import at_least, at_most, between, close, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from .signals import (
    DT,
    T,
    bump,
    convolve_channel,
    convolve_fft,
    convolve_on_grid,
    integral,
    random_integers,
    sequence,
    shift_sequence,
    sum_over,
    transform,
    values,
)


def linearity_defect(operator: Any, rng: np.random.Generator, shape: tuple[int, ...]) -> float:
    r"""The largest entry of $T(\alpha f + \beta g) - \alpha Tf - \beta Tg$ over 5 draws."""
    f, g = rng.normal(size=(2, 5, *shape))
    alpha, beta = rng.normal(size=(2, 5, 1, 1))
    T_ = lambda xs: np.asarray(jax.jit(jax.vmap(lambda x: operator(x)))(jnp.asarray(xs)))
    return float(np.abs(T_(alpha * f + beta * g) - alpha * T_(f) - beta * T_(g)).max())


def has_matrix(operator: Any, shape: tuple[int, ...]) -> bool:
    """Whether `layers.matrix_of` accepts the operator."""
    try:
        layers.matrix_of(operator, shape)
    except ValueError:
        return False
    return True


@claim(
    "4.1-operator",
    title="Operators and linear operators",
    kind="definition",
    of=("layers.Convolution", "layers.matrix_of", "layers.AveragePool", "layers.MaxPool"),
)
def operator(rng):
    r"""An operator maps functions to functions. It is linear if
    $T(\alpha f + \beta g) = \alpha Tf + \beta Tg$, and then, on finitely many points, a matrix. A
    convolution and a mean over windows are linear; a rectifier and a maximum are not, nor is a
    convolution with a bias, which is affine.
    """
    shape = (1, 8)
    W = jnp.asarray(rng.normal(size=(1, 1, 3)))
    conv = layers.Convolution(W)
    offset = layers.Convolution(W, jnp.ones(1))
    mean = layers.AveragePool((2,))
    largest = layers.MaxPool((2,))
    x = jnp.asarray(rng.normal(size=shape))
    A = layers.matrix_of(conv, shape)
    return Verdict(
        at_most(
            "linearity defect of a convolution and a mean",
            [linearity_defect(f, rng, shape) for f in (conv, mean)],
            1e-13,
        ),
        at_least(
            "linearity defect of a biased convolution, a rectifier, a maximum",
            [linearity_defect(f, rng, shape) for f in (offset, layers.relu, largest)],
            0.1,
        ),
        close(
            "the convolution, against its matrix",
            conv(x).ravel(),
            np.asarray(A) @ np.asarray(x).ravel(),
            tolerance=1e-14,
        ),
        equal(
            "accepted by matrix_of: convolution, mean, rectifier, maximum",
            [has_matrix(f, shape) for f in (conv, mean, layers.relu, largest)],
            [True, True, False, False],
        ),
        close(
            "matrix of the convolution with a bias",
            layers.matrix_of(offset, shape),
            A,
            tolerance=1e-14,
        ),
    )


@claim(
    "4.1-integral-operator", title="Integral operators", kind="definition", of=("layers.Linear",)
)
def integral_operator(rng):
    r"""$(Tf)(u) = \int_{t_1}^{t_2} H(u, t) f(t)\,dt$ is linear in $f$. On the nodes of a quadrature
    it is a linear layer, $W_{ij} = H(u_i, t_j)\,\omega_j$. With $H = e^{-ut}$ on $[0, \infty)$,
    Laplace's, $f = e^{-t}$ becomes $\frac{1}{1 + u}$ and $g = t e^{-t}$ becomes
    $\frac{1}{(1 + u)^2}$.
    """
    u = np.linspace(0, 2, 9)
    t, omega = np.polynomial.laguerre.laggauss(40)  # weight e⁻ᵗ
    layer = layers.Linear(jnp.asarray(np.exp(-np.outer(u, t)) * omega * np.exp(t)))
    f = lambda t: np.exp(-t)
    g = lambda t: t * np.exp(-t)
    by_quad = lambda f: np.array(
        [integral(lambda t, v=v: np.exp(-v * t) * f(t), 0, np.inf) for v in u]
    )
    by_layer = lambda f: np.asarray(layer(jnp.asarray(f(t))))
    alpha, beta = rng.normal(size=2)
    return Verdict(
        close("Tf by the layer", by_layer(f), 1 / (1 + u), tolerance=1e-8),
        close(
            "Tf by the layer, against adaptive quadrature", by_layer(f), by_quad(f), tolerance=1e-8
        ),
        close("Tg by the layer", by_layer(g), 1 / (1 + u) ** 2, tolerance=1e-8),
        close(
            "Tg by the layer, against adaptive quadrature", by_layer(g), by_quad(g), tolerance=1e-8
        ),
        close(
            "T of a combination by the layer",
            by_layer(lambda t: alpha * f(t) + beta * g(t)),
            alpha / (1 + u) + beta / (1 + u) ** 2,
            tolerance=1e-8,
        ),
        refuted(
            close(
                "T of the product, against the product",
                by_layer(lambda t: f(t) * g(t)),
                1 / (1 + u) ** 3,
                tolerance=1e-3,
            )
        ),
    )


@erratum(
    "4.1-integral-operator",
    title="The kernel of a Fourier transform is not real",
    printed=r"G : \mathbb{R}^2 \to \mathbb{R}",
    corrected=r"H : \mathbb{R}^2 \to \mathbb{C}",
    of=("layers.Linear",),
    slip=True,
)
def complex_kernel(rng):
    r"""The kernel of an integral operator is introduced as a real $G$ and used as $H$; the next
    definition takes $H = e^{-2\pi i t u}$. With any real kernel the transform of a real function
    would be real; that of a shifted bump is not. A complex kernel is two linear layers, for the
    real and the imaginary part.
    """
    mean = 0.4 + rng.random()
    spread = 0.6
    u = np.linspace(-1, 1, 9)
    f = jnp.asarray(bump(mean, spread)(T))
    real, imaginary = (
        layers.Linear(jnp.asarray(DT * wave(2 * np.pi * np.outer(u, T))))
        for wave in (np.cos, np.sin)
    )
    exact = np.exp(-2j * np.pi * u * mean - 2 * (np.pi * spread * u) ** 2)
    transform_values = np.asarray(real(f)) - 1j * np.asarray(imaginary(f))
    return Verdict(
        close("with real and imaginary part", transform_values, exact, tolerance=1e-8),
        printed=[
            close("with the real part alone", np.asarray(real(f)) + 0j, exact, tolerance=1e-8)
        ],
    )


@claim("4.1-fourier", title="The Fourier transform", kind="definition", of=("layers.circulant",))
def fourier(rng):
    r"""$(\mathcal{F}f)(u) = \int e^{-2\pi i t u} f(t)\,dt$. The bell $e^{-\pi t^2}$ is its own
    transform, a box becomes $\frac{\sin \pi u}{\pi u}$, a shift by $\mu$ the factor
    $e^{-2\pi i u \mu}$, and the inverse has the opposite sign. Waves are eigenfunctions of
    convolution: $f * e^{2\pi i u t} = (\mathcal{F}f)(u)\, e^{2\pi i u t}$.
    """
    u = np.linspace(-1.5, 1.5, 7)
    mean = rng.normal()
    spread = 0.7
    bell = lambda t: np.exp(-np.pi * t**2)
    box = lambda t: 1.0 * (abs(t) < 0.5)
    by_quad = lambda f, breaks=None: np.array([transform(f, v, breaks) for v in u])
    points = np.array([-1.0, 0.0, 0.7])
    inverse = [
        transform(lambda v: np.exp(-2j * np.pi * v * mean - 2 * (np.pi * spread * v) ** 2), -t)
        for t in points
    ]
    n, k = (
        128,
        np.arange(-24, 25),
    )  # a ring of length 16: its waves have frequencies k / 16
    t = DT * ((np.arange(n) + n // 2) % n - n // 2)
    C = np.asarray(layers.circulant(jnp.asarray(DT * bump(0.3, spread)(t)), n))
    waves = np.exp(2j * np.pi * np.outer(t, k) / (n * DT))
    exact = lambda v, m: np.exp(-2j * np.pi * v * m - 2 * (np.pi * spread * v) ** 2)
    return Verdict(
        close("the bell", by_quad(bell), bell(u) + 0j, tolerance=1e-8),
        close("the box", by_quad(box, [-0.5, 0.5]), np.sinc(u) + 0j, tolerance=1e-8),
        close("a shifted bump", by_quad(bump(mean, spread)), exact(u, mean), tolerance=1e-8),
        close(
            "the inverse recovers the bump",
            np.array(inverse),
            bump(mean, spread)(points) + 0j,
            tolerance=1e-8,
        ),
        close(
            "convolution of waves by layers.circulant",
            C @ waves,
            exact(k / (n * DT), 0.3)[None] * waves,
            tolerance=1e-8,
        ),
        figure=Panel(
            "u",
            "modulus of the transform",
            lines={
                "a bump of spread 0.7": (v := np.linspace(0, 3, 151), np.abs(exact(v, 0))),
                "a box": (v, np.abs(np.sinc(v))),
            },
            points={
                "factors on waves, by layers.circulant": (
                    k[24:] / (n * DT),
                    np.abs((C @ waves)[0] / waves[0])[24:],
                )
            },
        ),
    )


def triangle(u: Any) -> Any:
    """The convolution of two boxes on [0, 1]."""
    return np.maximum(1 - np.abs(u - 1), 0)


@claim(
    "4.1-convolution",
    "L10-A3-conv-continuous",
    title="Convolution",
    kind="definition",
    of=("layers.fft_convolve", "layers.convolve"),
)
def convolution(rng):
    r"""$(f * h)(u) = \int h(u - t) f(t)\,dt$, the integral operator of $H(u, t) = h(u - t)$;
    bilinear and commutative. The densities of $\mathcal{N}(0, a)$ and $\mathcal{N}(0, b)$ give that
    of $\mathcal{N}(0, a + b)$; two boxes give a triangle. The library's convolution on a grid,
    times the step, is the integral.
    """
    a, b = 0.5 + rng.random(2)
    f = bump(0, np.sqrt(a))
    g = bump(0.5, 0.8)
    h = bump(0, np.sqrt(b))
    u = np.linspace(-3, 3, 7)
    by_quad = [integral(lambda t, v=v: h(v - t) * f(t), -15, 15) for v in u]
    boxes = [
        integral(lambda t, v=v: 1.0 * (0 < v - t < 1), 0, 1, [v - 1, v])
        for v in np.linspace(0.1, 1.9, 7)
    ]
    n = 20
    alpha, beta = rng.normal(size=2)
    of_combination = convolve_on_grid(h, lambda t: alpha * f(t) + beta * g(t))
    sums = convolve_channel(np.ones(n), np.ones(n)) / n
    return Verdict(
        close(
            "normal densities, by quadrature",
            by_quad,
            bump(0, np.sqrt(a + b))(u),
            tolerance=1e-8,
        ),
        close(
            "normal densities, by fft_convolve on a grid",
            convolve_on_grid(h, f),
            bump(0, np.sqrt(a + b))(T),
            tolerance=1e-8,
        ),
        refuted(
            close(
                "normal densities, with standard deviations added",
                convolve_on_grid(h, f),
                bump(0, np.sqrt(a) + np.sqrt(b))(T),
                tolerance=1e-3,
            )
        ),
        close("boxes, by quadrature", boxes, triangle(np.linspace(0.1, 1.9, 7)), tolerance=1e-8),
        close(
            "boxes, by layers.convolve", sums, triangle(np.arange(1, 2 * n) / n), tolerance=1e-14
        ),
        close("commutative", convolve_on_grid(f, h), convolve_on_grid(h, f), tolerance=1e-13),
        close(
            "linear",
            of_combination,
            alpha * convolve_on_grid(h, f) + beta * convolve_on_grid(h, g),
            tolerance=1e-13,
        ),
        figure=Chart(
            Panel(
                "t",
                "density",
                lines={
                    name: (T[56:-56], y[56:-56])
                    for name, y in {"f": f(T), "h": h(T), "f ∗ h": convolve_on_grid(h, f)}.items()
                },
            ),
            Panel("t", "", lines={"a box with itself": (np.arange(1, 2 * n) / n, sums)}),
        ),
    )


@claim(
    "4.1-commutative",
    title="Convolution is commutative",
    kind="theorem",
    of=("layers.convolve", "layers.circulant"),
)
def commutative(key):
    r"""$f * h = h * f$, by the substitution $v = u - t$; checked for $f = e^{-t}$ on $t > 0$ and a
    box $h$ on $[0, 1]$, and for sequences. Products of matrices in general do not commute, products
    of circulant matrices do.
    """
    f = lambda t: np.exp(-t) * (t > 0)
    h = lambda t: 1.0 * (0 < t < 1)
    u = np.array([-0.5, 0.3, 0.8, 1.4, 3.0])
    f_h = [integral(lambda t, v=v: h(v - t) * f(t), -2, 5, [0, v - 1, v]) for v in u]
    h_f = [integral(lambda t, v=v: f(v - t) * h(t), -2, 5, [0, 1, v]) for v in u]
    exact = np.select([u < 0, u < 1], [0 * u, 1 - np.exp(-u)], np.exp(-u) * (np.e - 1))
    key_a, key_b, key_c = jr.split(key, 3)
    a = random_integers(key_a, 5)
    b = random_integers(key_b, 8)
    A, B = random_integers(key_c, 2, 4, 4)
    on_ring = [np.asarray(layers.circulant(jnp.asarray(part), 8)) for part in (a, b)]
    return Verdict(
        close("f ∗ h by quadrature", f_h, exact, tolerance=1e-8),
        close("h ∗ f by quadrature", h_f, exact, tolerance=1e-8),
        equal(
            "sequences, with either one as the kernel",
            convolve_channel(a, b),
            convolve_channel(b, a),
        ),
        equal("sequences, against numpy", convolve_channel(a, b), np.convolve(b, a)),
        equal("circulant matrices", on_ring[0] @ on_ring[1], on_ring[1] @ on_ring[0]),
        refuted(equal("general matrices", A @ B, B @ A)),
    )


@erratum(
    "4.1-commutative",
    title="The proof exchanges the names of the two convolutions",
    printed=r"(h * f)(u) = \int h(u - t) f(t)\,dt",
    corrected=r"(f * h)(u) = \int h(u - t) f(t)\,dt",
    of=("layers.convolve",),
    slip=True,
)
def names_exchanged(key):
    r"""By the definition above it the integral is $f * h$, with $h$ the kernel; the proof calls it
    $h * f$, and its last line, $\int h(v) f(u - v)\,dv$, $f * h$. For numbers the two are equal, as
    the proof shows. They are not equal if the values are matrices, as for a kernel with several
    channels; then the order matters."""
    key_f, key_h = jr.split(key)
    f = random_integers(key_f, 6, 2, 2)
    h = random_integers(key_h, 4, 2, 2)
    line = np.zeros((9, 2, 2))
    for t, s in np.ndindex(6, 4):
        line[t + s] += h[s] @ f[t]  # h(u - t) f(t)

    def convolve(signal, kernel):
        """`layers.convolve` of each column of the signal with the kernel."""
        W = jnp.asarray(kernel.transpose(1, 2, 0))
        columns = [
            layers.convolve(W, jnp.asarray(signal[:, :, k].T), boundary="full") for k in range(2)
        ]
        return np.stack([np.asarray(y).T for y in columns], axis=2)

    return Verdict(
        equal("the first line, against f with the kernel h", line, convolve(f, h)),
        printed=[equal("the first line, against h with the kernel f", line, convolve(h, f))],
    )


@claim(
    "4.1-shift",
    "4.1-shift-equivariance",
    title="Convolution commutes with shifts",
    kind="theorem",
    of=("layers.convolve", "layers.circulant"),
)
def shift(key):
    r"""With $f_\Delta(t) = f(t + \Delta)$, whose peak is at $-\Delta$ if that of $f$ is at 0,
    $f_\Delta * h = (f * h)_\Delta$: exactly for sequences, by quadrature on the line.
    Multiplication by $t$, for example, does not commute with shifts.
    """
    key_f, key_h = jr.split(key)
    delta, (f, h) = (
        3,
        (sequence(random_integers(key_f, 6), -2), sequence(random_integers(key_h, 4), 1)),
    )
    convolve_f = lambda f: sum_over(f, h, lambda t, s: t + s)
    by_library = sequence(
        convolve_channel(values(h), values(shift_sequence(f, delta))),
        min(shift_sequence(f, delta)) + min(h),
    )
    times = lambda f: {t: t * value for t, value in f.items()}
    bell = bump(0, 0.5)
    kernel = bump(0.3, 0.9)
    u = np.linspace(-2, 2, 5)
    left = [integral(lambda t, v=v: kernel(v - t) * bell(t + 1.5), -15, 15) for v in u]
    right = [integral(lambda t, v=v: kernel(v + 1.5 - t) * bell(t), -15, 15) for v in u]
    unit = np.eye(len(T))[-12 % len(T)]  # a shift of the ring is a convolution
    shifted = np.asarray(layers.circulant(jnp.asarray(unit), len(T))) @ bell(T)
    return Verdict(
        equal("the peak of f shifted by 1.5", T[shifted.argmax()], -1.5),
        close("f shifted, by a convolution", shifted, bell(T + 1.5), tolerance=1e-14),
        equal(
            "sequences, by sums",
            values(convolve_f(shift_sequence(f, delta))),
            values(shift_sequence(convolve_f(f), delta)),
        ),
        equal(
            "first indices",
            min(convolve_f(shift_sequence(f, delta))),
            min(shift_sequence(convolve_f(f), delta)),
        ),
        equal(
            "sequences, by layers.convolve",
            values(by_library),
            values(shift_sequence(convolve_f(f), delta)),
        ),
        close("on the line, by quadrature", left, right, tolerance=1e-8),
        close(
            "on the line, against the closed form",
            left,
            bump(0.3 - 1.5, np.sqrt(0.25 + 0.81))(u),
            tolerance=1e-8,
        ),
        refuted(
            equal(
                "multiplication by t",
                values(times(shift_sequence(f, delta))),
                values(shift_sequence(times(f), delta)),
            )
        ),
    )


@erratum(
    "4.1-shift-equivariance",
    title="The sign of the shift in the proof",
    printed=r"(f_\Delta * h)(u) = \int h(u - t) f(t - \Delta)\,dt",
    corrected=r"(f_\Delta * h)(u) = \int h(u - t) f(t + \Delta)\,dt",
    of=("layers.convolve",),
)
def shift_sign(key):
    r"""The proof inserts $f(t - \Delta)$ where $f_\Delta(t) = f(t + \Delta)$; with the
    latter, the substitution is $v = t + \Delta$ and the result is $(f * h)(u + \Delta)$.
    """
    key_f, key_h = jr.split(key)
    f = random_integers(key_f, 6)
    h = random_integers(key_h, 4)
    full = np.pad(convolve_channel(h, f), 8)  # f * h from index -8
    at = lambda delta: convolve_channel(h, np.roll(np.pad(f, 8), -delta))[
        : len(full)
    ]  # with f[t + delta]
    expected = np.roll(full, -3)  # (f * h)[u + 3]
    return Verdict(
        equal("with f(t + Δ)", at(3), expected), printed=[equal("with f(t - Δ)", at(-3), expected)]
    )


@claim(
    "4.1-delta",
    title="Functions as sums of deltas",
    kind="identity",
    of=("layers.convolve", "layers.fft_convolve"),
)
def delta(key):
    r"""$f(u) = \int f(t)\, \delta(t - u)\,dt$ with $\int \delta = 1$: on the integers
    $f = \sum_t f[t]\, e_t$, and convolution with $e_0$ is the identity. A bump of unit mass
    and width $\varepsilon$ instead of $\delta$ has the error $\frac{\varepsilon^2}{2} f''$.
    """
    x = random_integers(key, 9)
    step = 0.01
    widths = np.array([0.4, 0.2, 0.1, 0.05])
    t = step * np.arange(-600, 601)
    near = step * np.arange(-300, 301)
    f = lambda t: np.sin(t) + np.cos(2 * t) / 2
    inner = slice(400, 801)
    errors = [
        np.abs(step * convolve_fft(bump(0, w)(near), f(t), boundary="same") - f(t))[inner].max()
        for w in widths
    ]
    masses = [integral(bump(0, w), -15, 15, [0]) for w in widths]
    point = [
        abs(integral(lambda s, w=w: f(s) * bump(0.3, w)(s), -8, 8, [0.3]) - f(0.3))
        for w in widths[2:]
    ]
    slope = np.polyfit(np.log(widths), np.log(errors), 1)[0]
    return Verdict(
        equal("a sequence as a sum of deltas", sum(x[s] * np.eye(9)[s] for s in range(9)), x),
        equal(
            "a sequence, convolved with a delta", convolve_channel([0, 1, 0], x, boundary="same"), x
        ),
        close("masses of the bumps", masses, np.ones(4), tolerance=1e-10),
        between("power of ε in the error", slope, 1.9, 2.1),
        between(
            "power of ε in the error at one point, by quadrature",
            np.log2(point[0] / point[1]),
            1.9,
            2.1,
        ),
        figure=Panel(
            "width ε",
            "largest error",
            log="xy",
            lines={"measured": (widths, errors)},
            bounds={
                "ε² / 2 · max |f″|": (
                    widths,
                    widths**2 / 2 * np.abs(np.sin(t[inner]) + 2 * np.cos(2 * t[inner])).max(),
                )
            },
        ),
    )
