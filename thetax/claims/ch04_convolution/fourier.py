"""§4.1, lecture 10 A.4: convolutions and spectra, and why there is no other linear map that
commutes with shifts.
"""

import jax.numpy as jnp
import numpy as np
from scipy.linalg import null_space

from ... import layers
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_most, close, equal, falls, refuted
from ..engine.claim import Verdict, claim, erratum
from .signals import DT, T, bump, by_fft, convolved, correlated, on_grid, transform


@claim(
    "4.1-conv-theorem",
    "L10-A4-conv-theorem",
    title="The convolution theorem",
    kind="theorem",
    of=("layers.fft_convolve", "layers.convolve", "layers.correlate"),
)
def convolution_theorem(key):
    r"""$\mathcal{F}(f * h) = \mathcal{F}f \cdot \mathcal{F}h$, so
    $f * h = \mathcal{F}^{-1}(\mathcal{F}f \cdot \mathcal{F}h)$: on the line, and on a ring for the
    discrete transform. Of a correlation with a real kernel the spectrum is
    $\overline{\mathcal{F}w} \cdot \mathcal{F}x$. On sequences with ends, zeros keep the ends apart.
    """
    rng = chance(key)
    u = np.linspace(-1, 1, 9)
    f = bump(rng.normal(), 0.6)
    h = bump(rng.normal(), 0.9)
    both = DT * np.exp(-2j * np.pi * np.outer(u, T)) @ on_grid(h, f)
    product = np.array([transform(f, v) * transform(h, v) for v in u])
    n = 12
    w, x = rng.normal(size=(2, n))
    F, G = np.fft.fft, np.fft.ifft
    back = lambda y: np.roll(
        y, (n - 1) // 2
    )  # the library lays the middle of a kernel on every place
    ring = back(convolved(w, x, boundary="circular"))
    turned = np.roll(correlated(w, x, boundary="circular"), -(n // 2))
    return Verdict(
        close("on the line: the transform of the library's f ∗ h", both, product, tolerance=1e-7),
        close(
            "on a ring: the transform of the library's w ∗ x", F(ring), F(w) * F(x), tolerance=1e-12
        ),
        close(
            "the library's transforms",
            back(by_fft(w, x, boundary="circular")),
            G(F(w) * F(x)).real,
            tolerance=1e-12,
        ),
        close("of a correlation", F(turned), np.conj(F(w)) * F(x), tolerance=1e-12),
        refuted(
            close("of a correlation without the conjugate", F(turned), F(w) * F(x), tolerance=1e-3)
        ),
        close(
            "with zeros, full convolution",
            convolved(w, x),
            G(F(w, 2 * n - 1) * F(x, 2 * n - 1)).real,
            tolerance=1e-12,
        ),
        refuted(close("without", np.pad(ring, (0, n - 1)), convolved(w, x), tolerance=1e-3)),
    )


def radix_two(x: np.ndarray) -> tuple[np.ndarray, int]:
    r"""The discrete Fourier transform of $2^k$ numbers from those of its even and odd ones; and how
    many butterflies $(a, b) \mapsto (a + \omega b,\ a - \omega b)$ were made.
    """
    n = len(x)
    if n == 1:
        return np.asarray(x, complex), 0
    (even, one), (odd, other) = radix_two(x[::2]), radix_two(x[1::2])
    turned = np.exp(-2j * np.pi * np.arange(n // 2) / n) * odd
    return np.concatenate([even + turned, even - turned]), one + other + n // 2


def by_hand(h: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, int]:
    """The full convolution by three of these transforms, with zeros up to a power of two, and their
    butterflies.
    """
    size = 1 << (len(h) + len(x) - 2).bit_length()
    padded = (np.pad(a, (0, size - len(a))) for a in (h, x))
    (H, one), (X, other) = (radix_two(a) for a in padded)
    y, last = radix_two(np.conj(H * X))
    return np.real(y)[: len(h) + len(x) - 1] / size, one + other + last


@claim(
    "4.1-fft-conv",
    title="Convolution in n log n",
    kind="algorithm",
    of=("layers.fft_convolve",),
    cites="Cooley & Tukey 1965",
)
def fast(key):
    r"""A discrete convolution takes $O(n \log n)$ steps: fill both with zeros up to at least
    $n + m - 1$, transform, multiply, transform back. A transform of $n = 2^k$ numbers is
    $\frac{n}{2} \log_2 n$ butterflies. Without the zeros the convolution is that on a ring. (A sum
    over the kernel takes $nm$ products.)
    """
    rng = chance(key)
    sizes = [(5, 3), (64, 64), (700, 1300), (2000, 2000)]
    pairs = [(rng.normal(size=m), rng.normal(size=n)) for n, m in sizes]
    gap = lambda f: [np.abs(f(h, x) - np.convolve(h, x)).max() for h, x in pairs]
    lengths = 2 ** np.arange(1, 11)
    made = [radix_two(rng.normal(size=n)) for n in lengths]
    z = rng.normal(size=256)
    h, x = pairs[1]
    ring = np.roll(by_fft(h, x, boundary="circular"), (64 - 1) // 2)
    counts = [by_hand(rng.normal(size=n), rng.normal(size=n))[1] for n in lengths]
    return Verdict(
        equal(
            "butterflies of 2 to 1024 numbers",
            [count for _, count in made],
            [n * k // 2 for k, n in enumerate(lengths, start=1)],
        ),
        close(
            "the transform by hand, against numpy", radix_two(z)[0], np.fft.fft(z), tolerance=1e-10
        ),
        close("the library, against sums, up to 2000", gap(by_fft), np.zeros(4), tolerance=1e-10),
        close(
            "by hand, against sums",
            gap(lambda h, x: by_hand(h, x)[0]),
            np.zeros(4),
            tolerance=1e-10,
        ),
        close(
            "without zeros: on a ring",
            ring,
            np.fft.ifft(np.fft.fft(h) * np.fft.fft(x)).real,
            tolerance=1e-10,
        ),
        refuted(
            close(
                "which is not the convolution",
                np.pad(ring, (0, 63)),
                np.convolve(h, x),
                tolerance=1e-3,
            )
        ),
        figure=Chart(
            Panel(
                "length of both",
                "products",
                log="xy",
                lines={"by sums": (lengths, lengths**2), "by three transforms": (lengths, counts)},
            )
        ),
    )


def commuting(n: int) -> np.ndarray:
    r"""A basis of the matrices with $TS = ST$, $S$ the turn of a ring by one place: `dim n n`."""
    S = np.roll(np.eye(n), 1, axis=0)
    return null_space(np.kron(np.eye(n), S) - np.kron(S.T, np.eye(n))).T.reshape(-1, n, n)


@claim(
    "4.1-linear-shift-is-conv",
    title="Linear and shift-equivariant: a convolution",
    kind="theorem",
    of=("layers.circulant", "layers.convolve", "layers.matrix_of", "layers.Convolution"),
)
def only_convolutions(key):
    r"""Every linear $T$ that commutes with shifts is the convolution with its impulse response,
    $Tf = f * T\delta$, and every convolution is linear and commutes with shifts. On a ring of $n$
    places the matrices with $TS = ST$ have dimension $n$: they are the circulant ones.
    """
    rng = chance(key)
    n = 6
    basis = commuting(n)
    T_ = np.tensordot(rng.normal(size=len(basis)), basis, axes=1)
    x, impulse = rng.normal(size=n), T_[:, 0]  # T e₀
    ring = lambda h, x: np.roll(convolved(h, x, boundary="circular"), (n - 1) // 2)
    S = np.roll(np.eye(n), 1, axis=0)
    layer = layers.Convolution(jnp.asarray(rng.normal(size=(1, 1, 3))), boundary="circular")
    A = np.asarray(layers.matrix_of(layer, (1, n)))
    spanned = np.linalg.matrix_rank(np.concatenate([basis.reshape(len(basis), -1), _units(n)]))
    other = rng.normal(size=(n, n))
    return Verdict(
        equal("dimension of the matrices that commute", len(basis), n),
        equal("and with the library's circulant matrices added", spanned, n),
        close(
            "Tx, against x convolved with the response", T_ @ x, ring(impulse, x), tolerance=1e-12
        ),
        close(
            "T, against the circulant of the response",
            T_,
            layers.circulant(jnp.asarray(impulse), n),
            tolerance=1e-12,
        ),
        close("the matrix of a layer on a ring commutes", A @ S, S @ A, tolerance=1e-14),
        refuted(close("any matrix commutes", other @ S, S @ other, tolerance=1e-3)),
        refuted(
            close(
                "any matrix convolves with its response",
                other @ x,
                ring(other[:, 0], x),
                tolerance=1e-3,
            )
        ),
        assumed=("on the line: that T is continuous",),
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
def kernel_is_a_distribution(key):
    r"""The identity is linear and commutes with shifts, and no function is its kernel: the spectrum
    of an integrable $h$ tends to 0 at high frequencies, by the Riemann-Lebesgue lemma, and that of
    the identity is 1. Bumps of unit mass change a given function less and less as they get
    narrower, their limit being $\delta$; each of them erases waves that are as short as it is
    wide."""
    step = 0.01
    widths = (0.4, 0.2, 0.1)
    phase = 2 * np.pi * chance(key).random()
    t = step * np.arange(-600, 601)
    inner = slice(400, 801)
    near = step * np.arange(-300, 301)
    wave = lambda length: np.sin(2 * np.pi * t / length + phase)

    def change(width, f):
        return np.abs(step * by_fft(bump(0, width)(near), f, boundary="same") - f)[inner].max()

    slow = [change(width, wave(5.0)) for width in widths]
    return Verdict(
        falls(
            "a wave of length 5: the change by bumps of widths 0.4, 0.2, 0.1",
            slow,
            method="brute force",
        ),
        at_most("the last", slow[-1], 0.01),
        printed=[
            at_most(f"a wave of length {w}: the change by a bump as wide", change(w, wave(w)), 0.01)
            for w in widths
        ],
    )
