"""§4.1, lecture 10 A.3 and A.9: convolution and correlation of sequences, and their matrices."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import scipy.linalg

from ... import layers
from ...plot import Panel
from ..engine.check import at_least, at_most, close, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from .signals import (
    convolve_channel,
    convolve_fft,
    correlate_channel,
    random_integers,
    sequence,
    sum_over,
    values,
)


@claim(
    "4.1-discrete-conv",
    "L10-A3-conv-discrete",
    title="Convolution of sequences",
    kind="definition",
    of=("layers.convolve", "layers.fft_convolve"),
)
def discrete(key):
    r"""$(f * h)[u] = \sum_t f[t]\, h[u - t]$: its first index is the sum of the first indices; it
    is commutative, associative and bilinear.
    """
    a, b, c, d = (random_integers(k, n) for k, n in zip(jr.split(key, 4), (6, 4, 5, 6)))
    f = sequence(a, -2)
    h = sequence(b, 3)
    loop = sum_over(f, h, lambda t, s: t + s)
    return Verdict(
        equal("against a double loop", convolve_channel(b, a), values(loop)),
        equal("against numpy", convolve_channel(b, a), np.convolve(a, b)),
        close("by FFT, against a double loop", convolve_fft(b, a), values(loop), tolerance=1e-10),
        equal("the first index", min(loop), -2 + 3),
        equal("commutative", convolve_channel(b, a), convolve_channel(a, b)),
        equal(
            "associative",
            convolve_channel(convolve_channel(c, b), a),
            convolve_channel(c, convolve_channel(b, a)),
        ),
        equal(
            "bilinear",
            convolve_channel(b, 2 * a - 3 * d),
            2 * convolve_channel(b, a) - 3 * convolve_channel(b, d),
        ),
    )


@claim(
    "4.1-truncated",
    title="Convolution with a kernel of bounded support",
    kind="identity",
    of=("layers.convolve",),
)
def truncated(key):
    r"""Where $h$ is zero outside $[t_{\min}, t_{\max}]$,
    $(f * h)[u] = \sum_{t = t_{\min}}^{t_{\max}} h[t]\, f[u - t]$, which is
    $\sum_{t = u - t_{\max}}^{u - t_{\min}} f[t]\, h[u - t]$.
    """
    f, h, indices, full = _with_negative_indices(key)
    low = min(h)
    high = max(h)
    over_h = [sum(h[t] * f.get(u - t, 0.0) for t in range(low, high + 1)) for u in indices]
    over_f = [sum(f.get(t, 0.0) * h[u - t] for t in range(u - high, u - low + 1)) for u in indices]
    return Verdict(
        equal("the sum over the kernel", over_h, full),
        equal("the sum over the signal", over_f, full),
        equal("the sum over all indices", values(sum_over(f, h, lambda t, s: t + s)), full),
    )


@erratum(
    "4.1-truncated",
    title="The limits of the truncated sum",
    printed=r"(f * h)[u] = \sum_{t = t_{\min}}^{t_{\max}} f[t]\, h[u - t]",
    corrected=r"(f * h)[u] = \sum_{t = t_{\min}}^{t_{\max}} h[t]\, f[u - t]",
    of=("layers.convolve",),
)
def truncated_limits(key):
    r"""The window is the support of $h$, so its limits belong to the argument of $h$; in print they
    limit the argument of $f$.
    """
    f, h, indices, full = _with_negative_indices(key)
    window = range(min(h), max(h) + 1)
    return Verdict(
        equal(
            "the window on h",
            [sum(h[t] * f.get(u - t, 0.0) for t in window) for u in indices],
            full,
        ),
        printed=[
            equal(
                "the window on f",
                [sum(f.get(t, 0.0) * h.get(u - t, 0.0) for t in window) for u in indices],
                full,
            )
        ],
    )


def _with_negative_indices(key):
    """A signal, a kernel on [-1, 2], all indices of their convolution, and its values there."""
    key_f, key_h = jr.split(key)
    f = sequence(1 + np.abs(random_integers(key_f, 7)), -4)
    h = sequence(1 + np.abs(random_integers(key_h, 4)), -1)
    indices = range(min(f) + min(h), max(f) + max(h) + 1)
    return f, h, indices, convolve_channel(values(h), values(f))


@claim(
    "4.1-cross-correlation",
    "L10-A3-crosscorr",
    title="Cross-correlation",
    kind="definition",
    of=("layers.correlate", "layers.convolve"),
)
def cross_correlation(key):
    r"""$(f \star h)[u] = \sum_t f[t]\, h[u + t]$, what networks call convolution: the product of
    $h$ with $f$ shifted to every position. It is convolution with $f$ reversed; it does not
    commute, $(f \star h)[u] = (h \star f)[-u]$.
    """
    key_f, key_h = jr.split(key)
    a = random_integers(key_f, 3)
    b = random_integers(key_h, 7)
    f = sequence(a, -1)
    h = sequence(b, 2)
    place = lambda t, s: s - t
    f_with_h = sum_over(f, h, place)
    h_with_f = sum_over(h, f, place)
    full = correlate_channel(a, b, boundary="full")
    return Verdict(
        equal("against a double loop", full, values(f_with_h)),
        equal("its first index: the first of h minus the last of f", min(f_with_h), 2 - 1),
        equal("against numpy, which names the signal first", full, np.correlate(b, a, mode="full")),
        equal("convolution with f reversed", full, convolve_channel(a[::-1], b)),
        equal(
            "h ⋆ f at the negative indices",
            values({-u: value for u, value in h_with_f.items()}),
            values(f_with_h),
        ),
        equal(
            "layers.correlate with h and f exchanged, reversed",
            correlate_channel(b, a, boundary="full")[::-1],
            full,
        ),
        refuted(equal("commutative", correlate_channel(b, a, boundary="full"), full)),
    )


@claim(
    "4.1-corr-as-conv",
    title="Correlation is convolution with the first argument reversed",
    kind="identity",
    of=("layers.correlate", "layers.convolve"),
)
def correlation_as_convolution(key):
    r"""$f \star h = \bar f * h$ with $\bar f[t] = f[-t]$; and $f * \bar h = h \star f$."""
    f, h, flip, total, difference = _two_sequences(key)
    correlation = sum_over(f, h, difference)
    by_library = correlate_channel(values(f), values(h), boundary="full")
    return Verdict(
        equal(
            "f ⋆ h, against the flipped f", values(correlation), values(sum_over(flip(f), h, total))
        ),
        equal("the first index", min(correlation), min(sum_over(flip(f), h, total))),
        equal("layers.correlate", by_library, values(correlation)),
        equal(
            "layers.convolve of the flipped f",
            convolve_channel(values(flip(f)), values(h)),
            values(correlation),
        ),
        equal(
            "f ∗ the flipped h, against h ⋆ f",
            values(sum_over(f, flip(h), total)),
            values(sum_over(h, f, difference)),
        ),
    )


@erratum(
    "4.1-corr-as-conv",
    title="The first argument is reversed, not the second",
    printed=r"f \star h = f * \bar h",
    corrected=r"f \star h = \bar f * h",
    of=("layers.correlate", "layers.convolve"),
)
def which_is_flipped(key):
    r"""With $(f \star h)[u] = \sum_t f[t]\, h[u + t]$ it is $f$ that is reversed; $f * \bar h$ is
    $h \star f$.
    """
    f, h, *_ = _two_sequences(key)
    a = values(f)
    b = values(h)
    full = correlate_channel(a, b, boundary="full")
    return Verdict(
        equal("first argument reversed", convolve_channel(a[::-1], b), full),
        printed=[equal("second argument reversed", convolve_channel(a, b[::-1]), full)],
    )


def _two_sequences(key):
    """Two sequences, a function that reverses one, and the output indices of convolution and of
    correlation.
    """
    key_f, key_h = jr.split(key)
    f = sequence(random_integers(key_f, 4), -2)
    h = sequence(random_integers(key_h, 6), 1)
    flip = lambda f: {-t: value for t, value in reversed(f.items())}
    return f, h, flip, lambda t, s: t + s, lambda t, s: s - t


@claim(
    "4.1-toeplitz",
    title="Convolution is a matrix with constant diagonals",
    kind="identity",
    of=("layers.toeplitz", "layers.convolve", "layers.correlate", "layers.matrix_of"),
)
def toeplitz(rng):
    r"""For $f \in \mathbb{R}^n$ and $h \in \mathbb{R}^m$: $f * h = Hf$ with
    $H \in \mathbb{R}^{(n+m-1) \times n}$, $H_{ij} = h_{i-j+1}$. Column $j$ is $h$ shifted down
    by $j - 1$; there are $m$ free numbers; the transpose is a correlation.
    """
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
        equal("the columns", H, columns),
        equal("number of distinct non-zero entries", len(np.unique(H[H != 0])), m),
        close("Hf, against numpy", H @ f, np.convolve(f, h), tolerance=1e-14),
        close("Hf, against layers.convolve", H @ f, convolve_channel(h, f), tolerance=1e-14),
        close("the matrix of the layer", layers.matrix_of(layer, (1, n)), H, tolerance=1e-14),
        close(
            "the transpose, against layers.correlate",
            H.T @ y,
            correlate_channel(h, y),
            tolerance=1e-14,
        ),
    )


@erratum(
    "4.1-toeplitz",
    title="The length of the kernel",
    printed=r"h : [n] \to \mathbb{R},\ H \in \mathbb{R}^{(n+m-1) \times n}",
    corrected=r"h : [m] \to \mathbb{R},\ H \in \mathbb{R}^{(n+m-1) \times n}",
    of=("layers.toeplitz", "layers.convolve"),
    slip=True,
)
def kernel_length(key):
    r"""The signal has $n$ entries and the kernel $m$; with a kernel on $[n]$ the convolution has
    $2n - 1$ entries, but the printed matrix has $n + m - 1$ rows.
    """
    n = 7
    m = 3
    lengths = random_integers(key, 7)
    rows = lambda entries: len(convolve_channel(np.ones(entries), lengths))
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
def weight_sharing(rng):
    r"""A convolution is a linear layer with shared weights: 3 numbers instead of $32^2 = 1024$.
    From 4 noisy examples of a convolution, least squares estimates the kernel to a test error below
    $10^{-4}$, but not the matrix.
    """
    n = 32
    noise = 0.01
    max_examples = 64
    w = rng.normal(size=(1, 1, 3))
    target = layers.Convolution(jnp.asarray(w / np.linalg.norm(w)), boundary="circular")
    H = np.asarray(layers.matrix_of(target, (1, n)))
    kernel_layer = layers.Convolution(jnp.ones((1, 1, 3)), boundary="circular")
    X, test = rng.normal(size=(2, max_examples, n))
    Y = X @ H.T + noise * rng.normal(size=(max_examples, n))
    tap_matrices = np.stack(
        [np.asarray(layers.matrix_of(_unit(k), (1, n))) for k in range(3)]
    )  # H is linear in the kernel
    counts = np.array([1, 2, 4, 8, 16, 32, 48, 64])
    errors = {"kernel": [], "matrix": []}
    for count in counts:
        design = (
            np.concatenate([X[:count] @ tap_matrix.T for tap_matrix in tap_matrices])
            .reshape(3, -1)
            .T
        )
        w = np.linalg.lstsq(design, Y[:count].ravel(), rcond=None)[0]
        kernel_matrix = layers.matrix_of(
            layers.Convolution(jnp.asarray(w)[None, None], boundary="circular"), (1, n)
        )
        dense = np.linalg.lstsq(X[:count], Y[:count], rcond=None)[0].T
        for name, M in {"kernel": np.asarray(kernel_matrix), "matrix": dense}.items():
            errors[name].append(np.mean((test @ M.T - test @ H.T) ** 2))
    return Verdict(
        at_most("test error of the kernel from 4 examples", errors["kernel"][2], 1e-4),
        at_least("test error of the matrix from 4 examples", errors["matrix"][2], 0.1),
        at_most("test error of the matrix from 64 examples", errors["matrix"][-1], 1e-2),
        equal(
            "number of parameters of the kernel and of the matrix",
            [kernel_layer.W.size, layers.Linear(jnp.asarray(H)).W.size],
            [3, 1024],
        ),
        figure=Panel(
            "examples",
            "test error",
            log="xy",
            lines={name: (counts, e) for name, e in errors.items()},
        ),
    )


def _unit(k: int) -> layers.Convolution:
    """The layer whose kernel is a unit vector."""
    return layers.Convolution(jnp.eye(3)[k][None, None], boundary="circular")


@claim(
    "L10-A9-circulant",
    title="On a ring, convolution is a circulant matrix",
    kind="identity",
    of=("layers.circulant", "layers.Convolution", "layers.matrix_of"),
)
def circulant(rng):
    r"""A filter of length 3 on a ring of 5 positions is the matrix whose rows are the cyclic shifts
    of $(w_0, w_1, w_2, 0, 0)$: 3 free numbers instead of 25, and constant diagonals. The discrete
    Fourier modes are its eigenvectors; its eigenvalues are the conjugate transform of the
    zero-padded $w$.
    """
    n = 5
    w = rng.normal(size=3)
    x = rng.normal(size=n)
    rows = np.array([np.roll(np.pad(w, (0, 2)), k) for k in range(n)])
    C = np.asarray(layers.circulant(jnp.asarray(w), n)).T  # a filter is a correlation
    layer = layers.Convolution(
        jnp.asarray(w)[None, None], boundary="circular"
    )  # centred at every position
    sums = [sum(w[i] * x[(k + i) % n] for i in range(3)) for k in range(n)]
    waves = np.exp(2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n)
    diagonals = [np.ptp(np.diag(C, k)) for k in range(1 - n, n)]
    return Verdict(
        equal("the rows", C, rows),
        close("Cx, against sums", C @ x, sums, tolerance=1e-14),
        close(
            "the layer's matrix, with rows shifted by one",
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
        equal(
            "number of distinct non-zero entries, and of entries",
            [len(np.unique(C[C != 0])), C.size],
            [3, 25],
        ),
    )
