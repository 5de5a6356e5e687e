"""§4.1, lecture 10 A.3 and A.9: convolution and correlation of sequences, and the matrices they
are.
"""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import scipy.linalg

from ... import layers
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_least, at_most, close, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from .signals import by_fft, convolved, correlated, sequence, sum_over, values, whole


@claim(
    "4.1-discrete-conv",
    "L10-A3-conv-discrete",
    title="Convolution of sequences",
    kind="definition",
    of=("layers.convolve", "layers.fft_convolve"),
)
def discrete(key):
    r"""$(f * h)[u] = \sum_t f[t]\, h[u - t]$: it begins where the first indices add up to, and is
    commutative, associative and bilinear.
    """
    a, b, c, d = (whole(k, n) for k, n in zip(jr.split(key, 4), (6, 4, 5, 6)))
    f = sequence(a, -2)
    h = sequence(b, 3)
    loop = sum_over(f, h, lambda t, s: t + s)
    return Verdict(
        equal("against a double loop", convolved(b, a), values(loop)),
        equal("against numpy", convolved(b, a), np.convolve(a, b)),
        close(
            "by way of spectra, against a double loop", by_fft(b, a), values(loop), tolerance=1e-10
        ),
        equal("the first index", min(loop), -2 + 3),
        equal("commutative", convolved(b, a), convolved(a, b)),
        equal("associative", convolved(convolved(c, b), a), convolved(c, convolved(b, a))),
        equal("bilinear", convolved(b, 2 * a - 3 * d), 2 * convolved(b, a) - 3 * convolved(b, d)),
    )


@claim("4.1-truncated", title="A kernel with ends", kind="identity", of=("layers.convolve",))
def truncated(key):
    r"""Where $h$ is zero outside $[t_{\min}, t_{\max}]$,
    $(f * h)[u] = \sum_{t = t_{\min}}^{t_{\max}} h[t]\, f[u - t]$, which is
    $\sum_{t = u - t_{\max}}^{u - t_{\min}} f[t]\, h[u - t]$.
    """
    f, h, places, full = _with_negative_indices(key)
    low = min(h)
    high = max(h)
    over_h = [sum(h[t] * f.get(u - t, 0.0) for t in range(low, high + 1)) for u in places]
    over_f = [sum(f.get(t, 0.0) * h[u - t] for t in range(u - high, u - low + 1)) for u in places]
    return Verdict(
        equal("the sum over the kernel", over_h, full),
        equal("the sum over the signal", over_f, full),
        equal("by sums without ends", values(sum_over(f, h, lambda t, s: t + s)), full),
    )


@erratum(
    "4.1-truncated",
    title="The limits of the truncated sum",
    printed=r"(f * h)[u] = \sum_{t = t_{\min}}^{t_{\max}} f[t]\, h[u - t]",
    corrected=r"(f * h)[u] = \sum_{t = t_{\min}}^{t_{\max}} h[t]\, f[u - t]",
    of=("layers.convolve",),
)
def truncated_limits(key):
    r"""The window is that of $h$, so its limits belong to the argument of $h$; printed, they are
    put on $f$.
    """
    f, h, places, full = _with_negative_indices(key)
    window = range(min(h), max(h) + 1)
    return Verdict(
        equal(
            "the window on h", [sum(h[t] * f.get(u - t, 0.0) for t in window) for u in places], full
        ),
        printed=[
            equal(
                "the window on f",
                [sum(f.get(t, 0.0) * h.get(u - t, 0.0) for t in window) for u in places],
                full,
            )
        ],
    )


def _with_negative_indices(key):
    """A signal, a kernel on [-1, 2], all places where they meet, and the library's convolution
    there.
    """
    key_f, key_h = jr.split(key)
    f = sequence(1 + np.abs(whole(key_f, 7)), -4)
    h = sequence(1 + np.abs(whole(key_h, 4)), -1)
    places = range(min(f) + min(h), max(f) + max(h) + 1)
    return f, h, places, convolved(values(h), values(f))


@claim(
    "4.1-cross-correlation",
    "L10-A3-crosscorr",
    title="Cross-correlation",
    kind="definition",
    of=("layers.correlate", "layers.convolve"),
)
def cross_correlation(key):
    r"""$(f \star h)[u] = \sum_t f[t]\, h[u + t]$, what networks call convolution: $f$ is laid on
    $h$ at every place. It is convolution with $f$ turned round; it does not commute,
    $(f \star h)[u] = (h \star f)[-u]$.
    """
    key_f, key_h = jr.split(key)
    a = whole(key_f, 3)
    b = whole(key_h, 7)
    f = sequence(a, -1)
    h = sequence(b, 2)
    place = lambda t, s: s - t
    one = sum_over(f, h, place)
    other = sum_over(h, f, place)
    full = correlated(a, b, boundary="full")
    return Verdict(
        equal("against a double loop", full, values(one)),
        equal("its first place: that of h less the last of f", min(one), 2 - 1),
        equal("against numpy, which names the signal first", full, np.correlate(b, a, mode="full")),
        equal("f turned round, convolved", full, convolved(a[::-1], b)),
        equal(
            "h with f, at the mirrored places",
            values({-u: value for u, value in other.items()}),
            values(one),
        ),
        equal("by the library", correlated(b, a, boundary="full")[::-1], full),
        refuted(equal("commutative", correlated(b, a, boundary="full"), full)),
    )


@claim(
    "4.1-corr-as-conv",
    title="Correlation is convolution with the first argument turned round",
    kind="identity",
    of=("layers.correlate", "layers.convolve"),
)
def correlation_as_convolution(key):
    r"""$f \star h = \bar f * h$ with $\bar f[t] = f[-t]$; and $f * \bar h = h \star f$."""
    f, h, flip, add, apart = _two_sequences(key)
    both = sum_over(f, h, apart)
    by_library = correlated(values(f), values(h), boundary="full")
    return Verdict(
        equal("f ⋆ h, against the flipped f", values(both), values(sum_over(flip(f), h, add))),
        equal("the first place", min(both), min(sum_over(flip(f), h, add))),
        equal("by the library: ⋆", by_library, values(both)),
        equal(
            "by the library: ∗ of the flipped", convolved(values(flip(f)), values(h)), values(both)
        ),
        equal(
            "f ∗ the flipped h, against h ⋆ f",
            values(sum_over(f, flip(h), add)),
            values(sum_over(h, f, apart)),
        ),
    )


@erratum(
    "4.1-corr-as-conv",
    title="Which argument is turned round",
    printed=r"f \star h = f * \bar h",
    corrected=r"f \star h = \bar f * h",
    of=("layers.correlate", "layers.convolve"),
)
def which_is_flipped(key):
    r"""With $(f \star h)[u] = \sum_t f[t]\, h[u + t]$ it is $f$ that is turned round; $f * \bar h$
    is $h \star f$.
    """
    f, h, *_ = _two_sequences(key)
    a = values(f)
    b = values(h)
    full = correlated(a, b, boundary="full")
    return Verdict(
        equal("the first turned round", convolved(a[::-1], b), full),
        printed=[equal("the second turned round", convolved(a, b[::-1]), full)],
    )


def _two_sequences(key):
    """Two sequences, how one is turned round, and the places that convolution and correlation add
    up to.
    """
    key_f, key_h = jr.split(key)
    f = sequence(whole(key_f, 4), -2)
    h = sequence(whole(key_h, 6), 1)
    flip = lambda f: {-t: value for t, value in reversed(f.items())}
    return f, h, flip, lambda t, s: t + s, lambda t, s: s - t


@claim(
    "4.1-toeplitz",
    title="Convolution is a matrix with constant diagonals",
    kind="identity",
    of=("layers.toeplitz", "layers.convolve", "layers.correlate", "layers.matrix_of"),
)
def toeplitz(key):
    r"""For $f \in \mathbb{R}^n$ and $h \in \mathbb{R}^m$: $f * h = Hf$ with
    $H \in \mathbb{R}^{(n+m-1) \times n}$, $H_{ij} = h_{i-j+1}$. Column $j$ is $h$, $j - 1$ places
    further down; there are $m$ free numbers; the transpose correlates.
    """
    rng = chance(key)
    n = 7
    m = 3
    f = rng.normal(size=n)
    h = rng.normal(size=m)
    y = rng.normal(size=n + m - 1)
    H = np.asarray(layers.toeplitz(jnp.asarray(h), n))
    layer = layers.Convolution(jnp.asarray(h)[None, None], boundary="full", flip=True)
    columns = np.array([np.concatenate([np.zeros(j), h, np.zeros(n - 1 - j)]) for j in range(n)]).T
    return Verdict(
        equal(
            "against scipy",
            H,
            scipy.linalg.toeplitz(np.pad(h, (0, n - 1)), np.pad(h[:1], (0, n - 1))),
        ),
        equal("its columns", H, columns),
        equal("distinct numbers but 0", len(np.unique(H[H != 0])), m),
        close("Hf, against numpy", H @ f, np.convolve(f, h), tolerance=1e-14),
        close("Hf, against the library's sum", H @ f, convolved(h, f), tolerance=1e-14),
        close("the matrix of the layer", layers.matrix_of(layer, (1, n)), H, tolerance=1e-14),
        close("the transpose correlates", H.T @ y, correlated(h, y), tolerance=1e-14),
    )


@erratum(
    "4.1-toeplitz",
    title="How long the kernel is",
    printed=r"h : [n] \to \mathbb{R},\ H \in \mathbb{R}^{(n+m-1) \times n}",
    corrected=r"h : [m] \to \mathbb{R},\ H \in \mathbb{R}^{(n+m-1) \times n}",
    of=("layers.toeplitz", "layers.convolve"),
    slip=True,
)
def kernel_length(key):
    r"""The signal has $n$ entries and the kernel $m$; with a kernel on $[n]$ the convolution has
    $2n - 1$ entries, and the matrix that is printed $n + m - 1$ rows.
    """
    n = 7
    m = 3
    lengths = whole(key, 7)
    rows = lambda entries: len(convolved(np.ones(entries), lengths))
    return Verdict(
        equal("entries with h on [m]", rows(m), n + m - 1),
        equal("rows of the matrix", len(layers.toeplitz(jnp.ones(m), n)), n + m - 1),
        printed=[equal("entries with h on [n]", rows(n), n + m - 1)],
    )


@claim(
    "4.1-weight-sharing",
    title="Shared weights need fewer examples",
    kind="experiment",
    of=("layers.Convolution", "layers.matrix_of", "layers.Linear"),
)
def weight_sharing(key):
    r"""A convolution is a linear layer with shared weights: 3 numbers instead of $32^2 = 1024$.
    From 4 noisy examples of a convolution, least squares finds the kernel to within $10^{-4}$ of
    test error, but not the matrix.
    """
    rng = chance(key)
    n = 32
    noise = 0.01
    most = 64
    w = rng.normal(size=(1, 1, 3))
    true = layers.Convolution(jnp.asarray(w / np.linalg.norm(w)), boundary="circular")
    H = np.asarray(layers.matrix_of(true, (1, n)))
    shape = layers.Convolution(jnp.ones((1, 1, 3)), boundary="circular")
    X, test = rng.normal(size=(2, most, n))
    Y = X @ H.T + noise * rng.normal(size=(most, n))
    taps = np.stack(
        [np.asarray(layers.matrix_of(_unit(k), (1, n))) for k in range(3)]
    )  # H is linear in the kernel
    counts = np.array([1, 2, 4, 8, 16, 32, 48, 64])
    errors = {"kernel": [], "matrix": []}
    for count in counts:
        design = np.concatenate([X[:count] @ tap.T for tap in taps]).reshape(3, -1).T
        w = np.linalg.lstsq(design, Y[:count].ravel(), rcond=None)[0]
        fitted = layers.matrix_of(
            layers.Convolution(jnp.asarray(w)[None, None], boundary="circular"), (1, n)
        )
        dense = np.linalg.lstsq(X[:count], Y[:count], rcond=None)[0].T
        for name, M in {"kernel": np.asarray(fitted), "matrix": dense}.items():
            errors[name].append(np.mean((test @ M.T - test @ H.T) ** 2))
    return Verdict(
        at_most("test error of the kernel from 4 examples", errors["kernel"][2], 1e-4),
        at_least("of the matrix", errors["matrix"][2], 0.1),
        at_most("of the matrix from 64", errors["matrix"][-1], 1e-2),
        equal(
            "numbers of a kernel, and of a matrix",
            [shape.W.size, layers.Linear(jnp.asarray(H)).W.size],
            [3, 1024],
        ),
        figure=Chart(
            Panel(
                "examples",
                "test error",
                log="xy",
                lines={name: (counts, e) for name, e in errors.items()},
            )
        ),
    )


def _unit(k: int) -> layers.Convolution:
    """The layer whose kernel is a unit vector."""
    return layers.Convolution(jnp.eye(3)[k][None, None], boundary="circular")


@claim(
    "L10-A9-circulant",
    title="On a ring, a circulant matrix",
    kind="identity",
    of=("layers.circulant", "layers.Convolution", "layers.matrix_of"),
)
def circulant(key):
    r"""A filter of length 3 on a ring of 5 places is the matrix whose rows are
    $(w_0, w_1, w_2, 0, 0)$ turned: 3 free numbers instead of 25, and constant diagonals. The
    discrete waves are its eigenvectors; its eigenvalues are the conjugate of the transform of $w$
    with zeros.
    """
    rng = chance(key)
    n = 5
    w = rng.normal(size=3)
    x = rng.normal(size=n)
    rows = np.array([np.roll(np.pad(w, (0, 2)), k) for k in range(n)])
    C = np.asarray(layers.circulant(jnp.asarray(w), n)).T  # a filter correlates
    layer = layers.Convolution(
        jnp.asarray(w)[None, None], boundary="circular"
    )  # the middle on every place
    sums = [sum(w[i] * x[(k + i) % n] for i in range(3)) for k in range(n)]
    waves = np.exp(2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n)
    diagonals = [np.ptp(np.diag(C, k)) for k in range(1 - n, n)]
    return Verdict(
        equal("its rows", C, rows),
        close("Cx, against sums", C @ x, sums, tolerance=1e-14),
        close(
            "the layer's matrix, its rows one place on",
            np.roll(layers.matrix_of(layer, (1, n)), -1, axis=0),
            C,
            tolerance=1e-14,
        ),
        equal("spread along the diagonals", diagonals, np.zeros(2 * n - 1)),
        close(
            "eigenvectors and eigenvalues",
            C @ waves,
            waves * np.conj(np.fft.fft(w, n))[None],
            tolerance=1e-13,
        ),
        equal("free numbers, and entries", [len(np.unique(C[C != 0])), C.size], [3, 25]),
    )
