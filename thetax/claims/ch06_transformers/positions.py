"""§6.3, lecture 10 A.25: permutation equivariance of attention, and positional encodings."""

from itertools import permutations

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import layers, models, train
from ...core import predict
from ...layers import Attention, LearnedPositions, SinusoidalPositions, position_frequencies
from ...plot import Heatmap, Panel
from ..engine.check import at_least, at_most, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian
from ..engine.numpy_rng import numpy_rng
from .by_loop import EXACT, perturbed

ORDERS = np.array(list(permutations(range(5))))


def encoders(key):
    """One head, three heads, and two blocks without positions."""
    one, three, trunk = jr.split(key, 3)
    return {
        "one head": Attention.init(6, 1, key=one),
        "three heads": Attention.init(6, 3, key=three),
        "two blocks": perturbed(models.Trunk.init(2, 6, 3, 12, key=trunk), trunk, 0.3),
    }


def in_all_orders(f, X):
    """The outputs of `f` for each of the 120 orders of the tokens."""
    return np.asarray(jax.jit(jax.vmap(lambda X: f(X)))(jnp.asarray(np.asarray(X)[ORDERS])))


@claim(
    "6.3-permutation-equivariance",
    "L10-A25-attn-equivariance",
    title="Attention is permutation equivariant",
    kind="theorem",
    of=("layers.Attention", "models.Trunk"),
    cites="Vaswani et al. 2017",
)
def equivariance(key):
    r"""$f(PX) = P f(X)$ for attention with one head or several, and for an encoder without
    positions: the outputs are permuted with the tokens. Their mean does not change, nor does
    cross-attention when keys and values are permuted together.
    """
    X = numpy_rng(key).normal(size=(5, 6))
    checks = []
    for name, f in encoders(key).items():
        result = in_all_orders(f, X)
        plain = np.asarray(f(jnp.asarray(X)))
        checks += [
            close(f"{name}: f(PX) = P f(X), all 120 orders", result, plain[ORDERS], **EXACT),
            close(
                f"{name}: the mean of f(PX)",
                result.mean(axis=1),
                np.tile(plain.mean(axis=0), (120, 1)),
                **EXACT,
            ),
            refuted(
                close(f"{name}: f(PX) = f(X)", result, np.tile(plain, (120, 1, 1)), tolerance=1e-2)
            ),
        ]
    cross = Attention.init(6, 2, key=key)
    asking = jnp.asarray(numpy_rng(key).normal(size=(3, 6)))
    memory = in_all_orders(lambda X: cross(asking, X), X)
    return Verdict(
        *checks,
        close("keys and values in all orders", memory, np.tile(memory[0], (120, 1, 1)), **EXACT),
    )


@erratum(
    "6.3-permutation-equivariance",
    "L10-A25-attn-equivariance",
    title="Equivariant, not invariant",
    printed=r"f(PX) = f(X)",
    corrected=r"f(PX) = P f(X)",
    of=("layers.Attention", "models.Trunk"),
    slip=True,
)
def not_invariant(key, rng):
    r"""The notes call attention equivariant, and explain that the order of the tokens does not
    influence the output; the lecture calls it invariant. The order does influence the output: it is
    the order of the outputs. Only their mean is invariant.
    """
    X = rng.normal(size=(5, 6))
    every = [
        (name, in_all_orders(f, X), np.asarray(f(jnp.asarray(X))))
        for name, f in encoders(key).items()
    ]
    return Verdict(
        *[
            close(f"{name}: f(PX) and P f(X)", result, plain[ORDERS], tolerance=1e-9)
            for name, result, plain in every
        ],
        printed=[
            close(f"{name}: f(PX) and f(X)", result, np.tile(plain, (120, 1, 1)), tolerance=1e-9)
            for name, result, plain in every
        ],
    )


@claim(
    "6.3-positional-add",
    title="Positional encodings are added",
    kind="layer",
    of=("layers.LearnedPositions", "layers.SinusoidalPositions"),
    cites="Vaswani et al. 2017",
)
def added(key, rng):
    r"""With $X + P$ in place of $X$ the order matters. The gradient of a learned table $P$ is the
    sum over the batch of the gradients in $X$.
    """
    T, d, n = 5, 6, 4
    attend = Attention.init(d, 2, key=key)
    places = LearnedPositions(jnp.asarray(rng.normal(size=(T + 2, d))))
    X = rng.normal(size=(T, d))
    Xs = jnp.asarray(rng.normal(size=(n, T, d)))
    ys = jnp.asarray(rng.normal(size=(n, T, d)))
    broken = {}
    for name, place in {"learned": places, "sinusoidal": SinusoidalPositions()}.items():
        f = lambda X, place=place: attend(place(X))
        broken[name] = np.abs(in_all_orders(f, X) - np.asarray(f(jnp.asarray(X)))[ORDERS]).max(
            axis=(1, 2)
        )[1:]
    loss = lambda P, Xs: train.squared_error(layers.Chain(LearnedPositions(P), attend), (Xs, ys))
    slope, through = jax.jit(jax.grad(loss, (0, 1)))(places.P, Xs)
    summed = np.zeros((T + 2, d))
    summed[:T] = sum(np.asarray(one) for one in through)
    return Verdict(
        close(
            "X + P, learned",
            predict(places, Xs),
            np.asarray(Xs) + np.asarray(places.P)[:T],
            **EXACT,
        ),
        *[
            at_least(
                f"{name}: smallest difference of f(PX) and P f(X), 119 orders", off.min(), 1e-3
            )
            for name, off in broken.items()
        ],
        close("gradient of the table: the sum of those in X", slope, summed, **EXACT),
        refuted(
            close(
                "gradient of the table: that of one example", slope[:T], through[0], tolerance=1e-6
            )
        ),
        close_derivative(
            "gradient of the table, by finite differences",
            slope,
            jacobian(lambda P: loss(P, Xs), places.P),
            tolerance=1e-7,
        ),
    )


def sines_and_cosines(t, omega):
    """Alternating sines and cosines, in a loop."""
    return np.array([f(t * w) for w in omega for f in (np.sin, np.cos)])


@claim(
    "6.3-sinusoidal",
    "L10-A25-posenc",
    title="Sinusoidal positional encodings",
    kind="definition",
    of=("layers.SinusoidalPositions", "layers.position_frequencies"),
    cites="Vaswani et al. 2017",
)
def sinusoidal(key, rng):
    r"""$p_{t,2i} = \sin(t\omega_i)$ and $p_{t,2i+1} = \cos(t\omega_i)$ with $\omega_i = C^{-2i/d}$
    and $C = 10^4$. So $\|p_t\|^2 = d/2$, and $p_t^\top p_s = \sum_i \cos((t - s)\omega_i)$ depends
    only on the distance.
    """
    d, T = 16, 60
    P = np.asarray(SinusoidalPositions().table(T, d))
    omega = np.array([10_000 ** (-2 * i / d) for i in range(d // 2)])
    t = np.arange(T)
    gram = np.cos((t[:, None] - t)[..., None] * omega).sum(axis=2)
    many = np.asarray(SinusoidalPositions().table(10_000, d))
    gaps = np.linalg.norm(np.diff(np.unique(many.round(9), axis=0), axis=0), axis=1)
    attend = Attention.init(d, 2, key=key)
    X = rng.normal(size=(5, d))
    f = lambda X: attend(SinusoidalPositions()(X))
    broken = np.abs(in_all_orders(f, X)[1:] - np.asarray(f(jnp.asarray(X)))[ORDERS[1:]]).max(
        axis=(1, 2)
    )
    return Verdict(
        close("ω_i = 10⁴ to the power −2i / d", position_frequencies(d), omega, **EXACT),
        close("P, by loops", P, [sines_and_cosines(t, omega) for t in range(T)], **EXACT),
        close("‖p_t‖²", (P**2).sum(axis=1), d / 2, **EXACT),
        close("p_t·p_s, by its formula", P @ P.T, gram, **EXACT),
        close("p_t·p_s along the diagonals", (P @ P.T)[1:, 1:], (P @ P.T)[:-1, :-1], **EXACT),
        equal("distinct positions, of the first 10,000", len(gaps) + 1, 10_000),
        at_least(
            "smallest difference of f(PX) and P f(X) with positions, 119 orders", broken.min(), 1e-3
        ),
        close("added to the tokens", SinusoidalPositions()(jnp.asarray(X)), X + P[:5], **EXACT),
        figure=Panel("t − s", "p_t · p_s", lines={"d = 16": (t, P[0] @ P.T)}),
    )


@erratum(
    "6.3-sinusoidal",
    title="Frequencies decrease, and come in pairs",
    printed=r"p_{t,2i} = \sin(t \omega_{2i}),\ p_{t,2i+1} = \cos(t \omega_{2i+1}),\quad \omega_k "
    r"= C^{k/d}",
    corrected=r"p_{t,2i} = \sin(t \omega_i),\ p_{t,2i+1} = \cos(t \omega_i),\quad \omega_i = "
    r"C^{-2i/d}",
    of=("layers.position_frequencies", "layers.SinusoidalPositions"),
)
def pairs_that_fall(key):
    r"""With $C^{k/d}$ for $C = 10^4$ and $d = 16$ the frequencies reach 5623: far more than $\pi$,
    so that neighbouring positions look random. And a sine and a cosine of different frequencies are
    not a pair: norms differ between positions, and no single map shifts all positions.
    """
    d, T = 16, 64
    right = np.asarray(SinusoidalPositions().table(T, d))
    omega = 1e4 ** (np.arange(d) / d)
    wrong = np.array([[(np.sin, np.cos)[k % 2](t * omega[k]) for k in range(d)] for t in range(T)])
    checks = {
        "the largest frequency": lambda P, w: at_most(
            "the largest frequency", w.max(), np.pi, method="closed form"
        ),
        "lengths": lambda P, w: close("‖p_t‖²", (P**2).sum(axis=1), d / 2, tolerance=1e-9),
        "shift": lambda P, w: at_most("p_{t+3} = M p_t, least squares", misfit(P, 3), 1e-9),
    }
    return Verdict(
        *[check(right, position_frequencies(d)) for check in checks.values()],
        printed=[check(wrong, omega) for check in checks.values()],
    )


def misfit(P, s):
    r"""The error of $p_{t+s} = M p_t$ for the best $M$ and all $t$."""
    M, *_ = np.linalg.lstsq(P[:-s], P[s:], rcond=None)
    return np.abs(P[:-s] @ M - P[s:]).max()


@claim(
    "6.3-sinusoidal-shift",
    title="A shift is a rotation",
    kind="identity",
    of=("layers.SinusoidalPositions",),
    cites="Vaswani et al. 2017",
)
def shift(key):
    r"""For each $s$ there is one matrix $M_s$, a rotation by $s\omega_i$ in each pair of
    coordinates, with $p_{t+s} = M_s p_t$ for all $t$.
    """
    d, T = 8, 50
    P = np.asarray(SinusoidalPositions().table(T, d))
    omega = position_frequencies(d)
    rotations = []
    for s in (1, 7, 20):
        M = np.zeros((d, d))
        for i, w in enumerate(omega):
            M[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [
                [np.cos(s * w), np.sin(s * w)],
                [-np.sin(s * w), np.cos(s * w)],
            ]
        rotations.append((s, M))
    return Verdict(
        *[
            close(f"s = {s}: p_t rotated, against p_t+s", P[:-s] @ M.T, P[s:], **EXACT)
            for s, M in rotations
        ],
        *[close(f"s = {s}: M is a rotation", M @ M.T, np.eye(d), **EXACT) for s, M in rotations],
        close(
            "M_7 M_20 = M_27", (P[:-27] @ (rotations[1][1] @ rotations[2][1]).T), P[27:], **EXACT
        ),
        refuted(close("rotated the other way", P[:-1] @ rotations[0][1], P[1:], tolerance=1e-2)),
        at_most("s = 3: fitted by least squares", misfit(P, 3), 1e-11),
        close(
            "from position 1000 on",
            np.asarray(SinusoidalPositions().table(3, d, offset=1000)) @ rotations[0][1].T,
            np.asarray(SinusoidalPositions().table(3, d, offset=1001)),
            tolerance=1e-11,
        ),
    )


@claim(
    "6.3-fig6.2",
    title="The matrix of positional encodings",
    kind="figure",
    of=("layers.SinusoidalPositions", "plot.Heatmap"),
    cites="Vaswani et al. 2017",
)
def picture(key):
    r"""$P$ as an image: a row for each position, high frequencies on the left and low ones on the
    right. The frequency of a column, the peak of its spectrum, is $\omega_i$.
    """
    T, d = 512, 32
    P = np.asarray(SinusoidalPositions().table(T, d))
    omega = position_frequencies(d)
    heatmap = Heatmap(P[:64], "coordinate k", "position t", title="p_tk, d = 32")
    spectrum = np.abs(np.fft.rfft(P * np.hanning(T)[:, None], axis=0))
    spectrum[:3] = 0  # fewer than three periods in the window are not resolved
    peaks = 2 * np.pi * spectrum.argmax(axis=0) / T
    fast = omega > 2 * np.pi * 5 / T
    return Verdict(
        close(
            "the drawn matrix, by loops",
            heatmap.values,
            [sines_and_cosines(t, omega) for t in range(64)],
            **EXACT,
        ),
        equal("columns fast enough to be resolved", 2 * fast.sum(), 10),
        close(
            "peak of the sines, against ω_i",
            peaks[0::2][fast],
            omega[fast],
            tolerance=2 * np.pi / T,
        ),
        close(
            "peak of the cosines, against ω_i",
            peaks[1::2][fast],
            omega[fast],
            tolerance=2 * np.pi / T,
        ),
        refuted(
            close(
                "peaks, against C^(2i/d)",
                peaks[0::2][fast],
                1 / omega[fast],
                tolerance=2 * np.pi / T,
            )
        ),
        figure=heatmap,
    )
