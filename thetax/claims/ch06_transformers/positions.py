"""§6.3, lecture 10 A.25: attention does not know the order, and how it is told."""

from itertools import permutations

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import layers, models, train
from ...core import predict
from ...layers import Attention, Learned, Sinusoidal, frequencies
from ...plot import Chart, Heatmap, Panel
from ..engine.chance import chance
from ..engine.check import at_least, at_most, close, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian
from .by_loop import EXACT, FD, spread

VASWANI = "Vaswani et al. 2017"
ORDERS = np.array(list(permutations(range(5))))


def encoders(key):
    """One head, three heads, and two blocks without places."""
    one, three, trunk = jr.split(key, 3)
    return {
        "one head": Attention.init(6, 1, key=one),
        "three heads": Attention.init(6, 3, key=three),
        "two blocks": spread(models.Trunk.init(2, 6, 3, 12, key=trunk), trunk, 0.3),
    }


def in_all_orders(f, X):
    """What it makes of the tokens in each of the 120 orders."""
    return np.asarray(jax.jit(jax.vmap(lambda X: f(X)))(jnp.asarray(np.asarray(X)[ORDERS])))


@claim(
    "6.3-permutation-equivariance",
    "L10-A25-attn-equivariance",
    title="Attention does not know the order",
    kind="theorem",
    of=("layers.Attention", "models.Trunk"),
    cites=VASWANI,
)
def equivariance(key):
    r"""$f(PX) = P f(X)$ for attention with one head or several, and for an encoder without places:
    the outputs go with their tokens. Their mean does not change, nor what queries find when keys
    and values change places together.
    """
    X = chance(key).normal(size=(5, 6))
    checks = []
    for name, f in encoders(key).items():
        found = in_all_orders(f, X)
        plain = np.asarray(f(jnp.asarray(X)))
        checks += [
            close(f"{name}: f(PX) = P f(X), all 120 orders", found, plain[ORDERS], **EXACT),
            close(
                f"{name}: the mean of f(PX)",
                found.mean(axis=1),
                np.tile(plain.mean(axis=0), (120, 1)),
                **EXACT,
            ),
            refuted(
                close(f"{name}: f(PX) = f(X)", found, np.tile(plain, (120, 1, 1)), tolerance=1e-2)
            ),
        ]
    cross = Attention.init(6, 2, key=key)
    asking = jnp.asarray(chance(key).normal(size=(3, 6)))
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
def not_invariant(key):
    r"""The notes call attention equivariant, and explain that the order of the tokens does not
    influence the output; the lecture calls it invariant. The order does influence the output: it is
    the order of the outputs. What is invariant is their mean."""
    X = chance(key).normal(size=(5, 6))
    every = [
        (name, in_all_orders(f, X), np.asarray(f(jnp.asarray(X))))
        for name, f in encoders(key).items()
    ]
    return Verdict(
        *[
            close(f"{name}: f(PX) and P f(X)", found, plain[ORDERS], tolerance=1e-9)
            for name, found, plain in every
        ],
        printed=[
            close(f"{name}: f(PX) and f(X)", found, np.tile(plain, (120, 1, 1)), tolerance=1e-9)
            for name, found, plain in every
        ],
    )


@claim(
    "6.3-positional-add",
    title="Places are added",
    kind="layer",
    of=("layers.Learned", "layers.Sinusoidal"),
    cites=VASWANI,
)
def added(key):
    r"""With $X + P$ for $X$ the order counts. A table $P$ that is learned has the sum over the
    batch of the slopes in $X$ for its own.
    """
    rng, (T, d, n) = chance(key), (5, 6, 4)
    attend = Attention.init(d, 2, key=key)
    places = Learned(jnp.asarray(rng.normal(size=(T + 2, d))))
    X = rng.normal(size=(T, d))
    Xs = jnp.asarray(rng.normal(size=(n, T, d)))
    ys = jnp.asarray(rng.normal(size=(n, T, d)))
    broken = {}
    for name, place in {"learned": places, "sinusoidal": Sinusoidal()}.items():
        f = lambda X, place=place: attend(place(X))
        broken[name] = np.abs(in_all_orders(f, X) - np.asarray(f(jnp.asarray(X)))[ORDERS]).max(
            axis=(1, 2)
        )[1:]
    loss = lambda P, Xs: train.squared_error(layers.Chain(Learned(P), attend), (Xs, ys))
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
            at_least(f"{name}: f(PX) and P f(X) differ, the least of 119 orders", off.min(), 1e-3)
            for name, off in broken.items()
        ],
        close("slope of the table: the sum of those in X", slope, summed, **EXACT),
        refuted(
            close("slope of the table: that of one example", slope[:T], through[0], tolerance=1e-6)
        ),
        close(
            "slope of the table, by differences",
            slope,
            jacobian(lambda P: loss(P, Xs), places.P),
            **FD,
        ),
    )


def waves(t, omega):
    """Sines and cosines by turns, one after the other, in a loop."""
    return np.array([f(t * w) for w in omega for f in (np.sin, np.cos)])


@claim(
    "6.3-sinusoidal",
    "L10-A25-posenc",
    title="Places as waves",
    kind="definition",
    of=("layers.Sinusoidal", "layers.frequencies"),
    cites=VASWANI,
)
def sinusoidal(key):
    r"""$p_{t,2i} = \sin(t\omega_i)$ and $p_{t,2i+1} = \cos(t\omega_i)$ with $\omega_i = C^{-2i/d}$
    and $C = 10^4$. So $\|p_t\|^2 = d/2$, and $p_t^\top p_s = \sum_i \cos((t - s)\omega_i)$ depends
    on the distance alone.
    """
    d, T = 16, 60
    P = np.asarray(Sinusoidal().table(T, d))
    omega = np.array([10_000 ** (-2 * i / d) for i in range(d // 2)])
    t = np.arange(T)
    gram = np.cos((t[:, None] - t)[..., None] * omega).sum(axis=2)
    many = np.asarray(Sinusoidal().table(10_000, d))
    apart = np.linalg.norm(np.diff(np.unique(many.round(9), axis=0), axis=0), axis=1)
    attend = Attention.init(d, 2, key=key)
    X = chance(key).normal(size=(5, d))
    f = lambda X: attend(Sinusoidal()(X))
    broken = np.abs(in_all_orders(f, X)[1:] - np.asarray(f(jnp.asarray(X)))[ORDERS[1:]]).max(
        axis=(1, 2)
    )
    return Verdict(
        close("ω_i = 10⁴ to the power −2i / d", frequencies(d), omega, **EXACT),
        close("P, by loops", P, [waves(t, omega) for t in range(T)], **EXACT),
        close("‖p_t‖²", (P**2).sum(axis=1), d / 2, **EXACT),
        close("p_t·p_s, by its formula", P @ P.T, gram, **EXACT),
        close("p_t·p_s along the diagonals", (P @ P.T)[1:, 1:], (P @ P.T)[:-1, :-1], **EXACT),
        equal("places that differ, of the first 10,000", len(apart) + 1, 10_000),
        at_least("f(PX) and P f(X) differ with waves, the least of 119 orders", broken.min(), 1e-3),
        close("added to the tokens", Sinusoidal()(jnp.asarray(X)), X + P[:5], **EXACT),
        figure=Chart(Panel("t − s", "p_t · p_s", lines={"d = 16": (t, P[0] @ P.T)})),
    )


@erratum(
    "6.3-sinusoidal",
    title="Frequencies fall, and come in pairs",
    printed=r"p_{t,2i} = \sin(t \omega_{2i}),\ p_{t,2i+1} = \cos(t \omega_{2i+1}),\quad \omega_k "
    r"= C^{k/d}",
    corrected=r"p_{t,2i} = \sin(t \omega_i),\ p_{t,2i+1} = \cos(t \omega_i),\quad \omega_i = "
    r"C^{-2i/d}",
    of=("layers.frequencies", "layers.Sinusoidal"),
)
def pairs_that_fall(key):
    r"""With $C^{k/d}$ for $C = 10^4$ and $d = 16$ the frequencies reach 5623: far more than $\pi$,
    so that places one apart look like chance. And a sine and a cosine of unequal frequencies are no
    pair: lengths differ from place to place, and no one map shifts all places.
    """
    d, T = 16, 64
    right = np.asarray(Sinusoidal().table(T, d))
    omega = 1e4 ** (np.arange(d) / d)
    wrong = np.array([[(np.sin, np.cos)[k % 2](t * omega[k]) for k in range(d)] for t in range(T)])
    said = {
        "the largest frequency": lambda P, w: at_most(
            "the largest frequency", w.max(), np.pi, method="closed form"
        ),
        "lengths": lambda P, w: close("‖p_t‖²", (P**2).sum(axis=1), d / 2, tolerance=1e-9),
        "shift": lambda P, w: at_most("p_{t+3} = M p_t, least squares", misfit(P, 3), 1e-9),
    }
    return Verdict(
        *[check(right, frequencies(d)) for check in said.values()],
        printed=[check(wrong, omega) for check in said.values()],
    )


def misfit(P, s):
    r"""How far $p_{t+s} = M p_t$ is from holding for the best $M$ and all $t$."""
    M, *_ = np.linalg.lstsq(P[:-s], P[s:], rcond=None)
    return np.abs(P[:-s] @ M - P[s:]).max()


@claim(
    "6.3-sinusoidal-shift",
    title="A shift is a rotation",
    kind="identity",
    of=("layers.Sinusoidal",),
    cites=VASWANI,
)
def shift(key):
    r"""For each $s$ there is one matrix $M_s$, a rotation by $s\omega_i$ in each pair of
    coordinates, with $p_{t+s} = M_s p_t$ for all $t$.
    """
    d, T = 8, 50
    P = np.asarray(Sinusoidal().table(T, d))
    omega = frequencies(d)
    turned = []
    for s in (1, 7, 20):
        M = np.zeros((d, d))
        for i, w in enumerate(omega):
            M[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [
                [np.cos(s * w), np.sin(s * w)],
                [-np.sin(s * w), np.cos(s * w)],
            ]
        turned.append((s, M))
    return Verdict(
        *[
            close(f"s = {s}: p_t turned, against p_t+s", P[:-s] @ M.T, P[s:], **EXACT)
            for s, M in turned
        ],
        *[close(f"s = {s}: M is a rotation", M @ M.T, np.eye(d), **EXACT) for s, M in turned],
        close("M_7 M_20 = M_27", (P[:-27] @ (turned[1][1] @ turned[2][1]).T), P[27:], **EXACT),
        refuted(close("turned the other way", P[:-1] @ turned[0][1], P[1:], tolerance=1e-2)),
        at_most("s = 3: found by least squares", misfit(P, 3), 1e-11),
        close(
            "from place 1000 on",
            np.asarray(Sinusoidal().table(3, d, first=1000)) @ turned[0][1].T,
            np.asarray(Sinusoidal().table(3, d, first=1001)),
            tolerance=1e-11,
        ),
    )


@claim(
    "6.3-fig6.2",
    title="The table of places",
    kind="figure",
    of=("layers.Sinusoidal", "plot.Heatmap"),
    cites=VASWANI,
)
def picture(key):
    r"""$P$ as a picture: a row for each place, fast waves on the left and slow ones on the right.
    The frequency of a column, where its spectrum has its peak, is $\omega_i$.
    """
    T, d = 512, 32
    P = np.asarray(Sinusoidal().table(T, d))
    omega = frequencies(d)
    shown = Heatmap(P[:64], "number k of the vector", "place t", title="p_tk, d = 32")
    spectrum = np.abs(np.fft.rfft(P * np.hanning(T)[:, None], axis=0))
    spectrum[:3] = 0  # slower waves than three in the window are not resolved
    peaks = 2 * np.pi * spectrum.argmax(axis=0) / T
    fast = omega > 2 * np.pi * 5 / T
    return Verdict(
        close(
            "what is drawn, by loops", shown.values, [waves(t, omega) for t in range(64)], **EXACT
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
        figure=shown,
    )
