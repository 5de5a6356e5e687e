"""§4.1, lecture 10 A.4: the convolution theorem, and why every linear map that commutes with shifts
is a convolution.
"""

import jax.numpy as jnp
import numpy as np
from scipy.linalg import null_space

from ... import layers
from ...plot import Panel
from ..engine.check import at_most, close, decreasing, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from .signals import (
    DT,
    T,
    bump,
    convolve_channel,
    convolve_fft,
    convolve_on_grid,
    correlate_channel,
    transform,
)


@claim(
    "4.1-conv-theorem",
    "L10-A4-conv-theorem",
    title="The convolution theorem",
    kind="theorem",
    of=("layers.fft_convolve", "layers.convolve", "layers.correlate"),
)
def convolution_theorem(rng):
    r"""$\mathcal{F}(f * h) = \mathcal{F}f \cdot \mathcal{F}h$, so
    $f * h = \mathcal{F}^{-1}(\mathcal{F}f \cdot \mathcal{F}h)$: on the line, and on a ring for the
    discrete transform. The spectrum of a correlation with a real kernel is
    $\overline{\mathcal{F}w} \cdot \mathcal{F}x$. For finite sequences, zero padding prevents
    wrap-around.
    """
    u = np.linspace(-1, 1, 9)
    f = bump(rng.normal(), 0.6)
    h = bump(rng.normal(), 0.9)
    transform_of_convolution = DT * np.exp(-2j * np.pi * np.outer(u, T)) @ convolve_on_grid(h, f)
    product = np.array([transform(f, v) * transform(h, v) for v in u])
    n = 12
    w, x = rng.normal(size=(2, n))
    F, G = np.fft.fft, np.fft.ifft
    recentre = lambda y: np.roll(y, (n - 1) // 2)  # the library centres the kernel
    ring = recentre(convolve_channel(w, x, boundary="circular"))
    correlation = np.roll(correlate_channel(w, x, boundary="circular"), -(n // 2))
    return Verdict(
        close(
            "on the line: the transform of f ∗ h", transform_of_convolution, product, tolerance=1e-7
        ),
        close("on a ring: the transform of w ∗ x", F(ring), F(w) * F(x)),
        close(
            "fft_convolve on a ring",
            recentre(convolve_fft(w, x, boundary="circular")),
            G(F(w) * F(x)).real,
        ),
        close("the transform of a correlation", F(correlation), np.conj(F(w)) * F(x)),
        refuted(
            close(
                "the transform of a correlation, without the conjugate",
                F(correlation),
                F(w) * F(x),
                tolerance=1e-3,
            )
        ),
        close(
            "full convolution, with zero padding",
            convolve_channel(w, x),
            G(F(w, 2 * n - 1) * F(x, 2 * n - 1)).real,
        ),
        refuted(
            close(
                "full convolution, without zero padding",
                np.pad(ring, (0, n - 1)),
                convolve_channel(w, x),
                tolerance=1e-3,
            )
        ),
    )


def radix_two(x: np.ndarray) -> tuple[np.ndarray, int]:
    r"""The discrete Fourier transform of $2^k$ numbers from those of its even and odd entries, and
    the number of butterflies $(a, b) \mapsto (a + \omega b,\ a - \omega b)$.
    """
    n = len(x)
    if n == 1:
        return np.asarray(x, complex), 0
    (even, even_count), (odd, odd_count) = radix_two(x[::2]), radix_two(x[1::2])
    rotated_odd = np.exp(-2j * np.pi * np.arange(n // 2) / n) * odd
    return np.concatenate([even + rotated_odd, even - rotated_odd]), even_count + odd_count + n // 2


def convolve_radix_two(h: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, int]:
    """The full convolution by three radix-2 transforms, zero-padded to a power of two, and the
    number of butterflies.
    """
    size = 1 << (len(h) + len(x) - 2).bit_length()
    padded = (np.pad(a, (0, size - len(a))) for a in (h, x))
    (H, count_h), (X, count_x) = (radix_two(a) for a in padded)
    y, count_y = radix_two(np.conj(H * X))
    return np.real(y)[: len(h) + len(x) - 1] / size, count_h + count_x + count_y


@claim(
    "4.1-fft-conv",
    title="Convolution in n log n",
    kind="algorithm",
    of=("layers.fft_convolve",),
    cites="Cooley & Tukey 1965",
)
def fast(rng):
    r"""A discrete convolution takes $O(n \log n)$ steps: zero-pad both to length at least
    $n + m - 1$, transform, multiply, transform back. A transform of $n = 2^k$ numbers takes
    $\frac{n}{2} \log_2 n$ butterflies. Without padding the result is the circular convolution. (The
    direct sum takes $nm$ products.)
    """
    sizes = [(5, 3), (64, 64), (700, 1300), (2000, 2000)]
    pairs = [(rng.normal(size=m), rng.normal(size=n)) for n, m in sizes]
    errors = lambda f: [np.abs(f(h, x) - np.convolve(h, x)).max() for h, x in pairs]
    lengths = 2 ** np.arange(1, 11)
    transforms = [radix_two(rng.normal(size=n)) for n in lengths]
    z = rng.normal(size=256)
    h, x = pairs[1]
    ring = np.roll(convolve_fft(h, x, boundary="circular"), (64 - 1) // 2)
    counts = [convolve_radix_two(rng.normal(size=n), rng.normal(size=n))[1] for n in lengths]
    return Verdict(
        equal(
            "butterflies of 2 to 1024 numbers",
            [count for _, count in transforms],
            [n * k // 2 for k, n in enumerate(lengths, start=1)],
        ),
        close(
            "the radix-2 transform, against numpy", radix_two(z)[0], np.fft.fft(z), tolerance=1e-10
        ),
        close(
            "fft_convolve, against sums, lengths up to 2000",
            errors(convolve_fft),
            np.zeros(4),
            tolerance=1e-10,
        ),
        close(
            "convolution by radix-2 transforms, against sums",
            errors(lambda h, x: convolve_radix_two(h, x)[0]),
            np.zeros(4),
            tolerance=1e-10,
        ),
        close(
            "without zero padding: the circular convolution",
            ring,
            np.fft.ifft(np.fft.fft(h) * np.fft.fft(x)).real,
            tolerance=1e-10,
        ),
        refuted(
            close(
                "the circular convolution, against the full one",
                np.pad(ring, (0, 63)),
                np.convolve(h, x),
                tolerance=1e-3,
            )
        ),
        figure=Panel(
            "length of both",
            "products",
            log="xy",
            lines={"by sums": (lengths, lengths**2), "by three transforms": (lengths, counts)},
        ),
    )


def commuting_matrices(n: int) -> np.ndarray:
    r"""A basis of the matrices with $TS = ST$, $S$ the cyclic shift by one: shape `dim n n`."""
    S = np.roll(np.eye(n), 1, axis=0)
    return null_space(np.kron(np.eye(n), S) - np.kron(S.T, np.eye(n))).T.reshape(-1, n, n)


@claim(
    "4.1-linear-shift-is-conv",
    title="Linear shift-equivariant maps are convolutions",
    kind="theorem",
    of=("layers.circulant", "layers.convolve", "layers.matrix_of", "layers.Convolution"),
)
def only_convolutions(rng):
    r"""Every linear $T$ that commutes with shifts is the convolution with its impulse response,
    $Tf = f * T\delta$, and every convolution is linear and commutes with shifts. On a ring of $n$
    positions the matrices with $TS = ST$ form a space of dimension $n$: the circulant matrices.
    """
    n = 6
    basis = commuting_matrices(n)
    T_ = np.tensordot(rng.normal(size=len(basis)), basis, axes=1)
    x, impulse = rng.normal(size=n), T_[:, 0]  # T e₀
    ring = lambda h, x: np.roll(convolve_channel(h, x, boundary="circular"), (n - 1) // 2)
    S = np.roll(np.eye(n), 1, axis=0)
    layer = layers.Convolution(jnp.asarray(rng.normal(size=(1, 1, 3))), boundary="circular")
    A = np.asarray(layers.matrix_of(layer, (1, n)))
    joint_rank = np.linalg.matrix_rank(np.concatenate([basis.reshape(len(basis), -1), _units(n)]))
    random_matrix = rng.normal(size=(n, n))
    return Verdict(
        equal("dimension of the matrices that commute", len(basis), n),
        equal("dimension of their span with the library's circulant matrices", joint_rank, n),
        close("Tx, against x convolved with the response", T_ @ x, ring(impulse, x)),
        close(
            "T, against the circulant of the response",
            T_,
            layers.circulant(jnp.asarray(impulse), n),
        ),
        close("the matrix of a layer on a ring commutes", A @ S, S @ A, tolerance=1e-14),
        refuted(
            close("a random matrix commutes", random_matrix @ S, S @ random_matrix, tolerance=1e-3)
        ),
        refuted(
            close(
                "a random matrix is convolution with its response",
                random_matrix @ x,
                ring(random_matrix[:, 0], x),
                tolerance=1e-3,
            )
        ),
        assumed=("T is continuous, for functions on the line",),
    )


def _units(n: int) -> np.ndarray:
    """The circulant matrices of the unit vectors, flattened."""
    return np.stack([np.asarray(layers.circulant(jnp.eye(n)[k], n)).ravel() for k in range(n)])


@erratum(
    "4.1-linear-shift-is-conv",
    title="The kernel may be a distribution",
    printed=r"\text{a kernel } h : \mathbb{R} \to \mathbb{R} \text{ exists with } Tf = f * h",
    corrected=r"\text{a distribution } h \text{ exists with } Tf = f * h",
    of=("layers.fft_convolve",),
)
def kernel_is_a_distribution(rng):
    r"""The identity is linear and commutes with shifts, but no function is its kernel: the spectrum
    of an integrable $h$ tends to 0 at high frequencies, by the Riemann-Lebesgue lemma, and that of
    the identity is 1. Bumps of unit mass change a given function less as they get narrower, with
    limit $\delta$; each of them removes waves whose length equals its width."""
    step = 0.01
    widths = (0.4, 0.2, 0.1)
    phase = 2 * np.pi * rng.random()
    t = step * np.arange(-600, 601)
    inner = slice(400, 801)
    near = step * np.arange(-300, 301)
    wave = lambda length: np.sin(2 * np.pi * t / length + phase)

    def change(width, f):
        return np.abs(step * convolve_fft(bump(0, width)(near), f, boundary="same") - f)[
            inner
        ].max()

    changes = [change(width, wave(5.0)) for width in widths]
    return Verdict(
        decreasing(
            "a wave of length 5: change by bumps of widths 0.4, 0.2, 0.1",
            changes,
            method="brute force",
        ),
        at_most("a wave of length 5: change by the bump of width 0.1", changes[-1], 0.01),
        printed=[
            at_most(
                f"a wave of length {w}: change by a bump of that width", change(w, wave(w)), 0.01
            )
            for w in widths
        ],
    )
