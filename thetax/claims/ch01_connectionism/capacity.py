"""§1.4, capacity: how many patterns a network stores, and recall from noisy patterns."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy import stats

from ... import data, explain, layers, models
from ...plot import Panel
from ..engine.check import at_least, at_most, close, decreasing, equal, increasing
from ..engine.claim import Verdict, claim, erratum
from .crosstalk import one_step
from .hopfield import each, random_patterns


@claim(
    "1.4-capacity-transition",
    title="Retrieval collapses at 0.138 patterns per site",
    kind="experiment",
    of=("explain.memory_capacity",),
    cites="Amit, Gutfreund & Sompolinsky 1985",
)
def transition(key, scale):
    r"""Started at one of $n$ stored random patterns, the network settles close to it if $n/d$ is
    below about 0.138 and far from it if above. The overlap drops abruptly, more sharply for larger
    $d$.
    """
    sizes = (500, 2000)
    loads = np.linspace(0.1, 0.18, 5)
    if scale == "full":
        sizes = (500, 1000, 2000, 4000)
        loads = np.linspace(0.08, 0.2, 13)
    curves = {
        d: explain.memory_capacity(d, loads, n_tested=12, key=jr.fold_in(key, d)) for d in sizes
    }
    small, large = (np.interp([0.12, 0.18], loads, curves[d].overlap) for d in (500, 2000))
    return Verdict(
        at_least("overlap at n/d = 0.12, d = 2,000", large[0], 0.97, method="trend"),
        at_most("overlap at n/d = 0.18, d = 2,000", large[1], 0.6, method="trend"),
        at_most(
            "the drop at d = 500, against d = 2,000",
            small[0] - small[1],
            large[0] - large[1],
            method="trend",
        ),
        figure=Panel(
            "patterns per site, n / d",
            "overlap with the stored pattern",
            lines={f"d = {d:,}": (curve.loads, curve.overlap) for d, curve in curves.items()},
            vertical_lines={"0.138": 0.138},
        ),
    )


@erratum(
    "1.4-capacity-transition",
    title="The transition is at n/d, not d/n",
    of=("explain.memory_capacity",),
    printed=r"d/n \approx 0.138",
    corrected=r"n/d \approx 0.138",
    cites="Amit, Gutfreund & Sompolinsky 1985",
)
def transition_erratum(key):
    r"""The ratio that controls retrieval is $n/d$, patterns per site. At $d/n \approx 0.138$ there
    are seven patterns per site, and nothing is retrieved on either side of it.
    """
    corrected = explain.memory_capacity(1000, [0.1, 0.2], n_tested=12, key=key)
    printed = explain.memory_capacity(100, [1 / 0.1, 1 / 0.2], n_tested=12, key=key)
    return Verdict(
        at_least("overlap at n/d = 0.1", corrected.overlap[0], 0.97, method="trend"),
        at_most("overlap at n/d = 0.2", corrected.overlap[1], 0.6, method="trend"),
        printed=[
            at_least(f"overlap at d/n = {ratio}", overlap, 0.97, method="trend")
            for ratio, overlap in zip((0.1, 0.2), printed.overlap)
        ],
    )


SITES = np.array([1e3, 1e4, 1e6])
MANY = np.geomspace(1e3, 1e15, 13)


def expected_flips(n, d):
    """Expected number of sites of one pattern that flip."""
    return d * explain.flip_probability(n, d)


@claim(
    "1.4-capacity-bound",
    title="Perfect recall needs n below d / (2 ln d)",
    kind="theorem",
    of=("explain.flip_probability", "models.Hebbian"),
    cites="McEliece, Posner, Rodemich & Venkatesh 1987",
)
def bound(key):
    r"""A given pattern is stable at all $d$ sites with probability tending to 1 if
    $n \le \frac{d}{2 \ln d}$, and all patterns are if $n \le \frac{d}{4 \ln d}$; beyond, the
    expected number of flips grows without bound. The notes' $\frac{d}{2 \log_2 d}$ is stricter:
    sufficient, not the threshold.
    """
    log2 = expected_flips(SITES / (2 * np.log2(SITES)), SITES)
    ln = expected_flips(SITES / (2 * np.log(SITES)), SITES)
    tails = SITES * stats.norm.sf(np.sqrt(2 * np.log(SITES)))
    shares = []
    for n in (50, 138):
        pattern_sets = [random_patterns(jr.fold_in(key, 10 * n + k), n, 1000) for k in range(5)]
        shares.append(
            np.mean([(one_step(X) == np.asarray(X)).all(axis=1).mean() for X in pattern_sets])
        )
    flips_in_all = lambda c: (
        MANY / (c * np.log(MANY)) * expected_flips(MANY / (c * np.log(MANY)), MANY)
    )
    return Verdict(
        equal(
            "flips at d/(2 log₂ d), d = 1e3, 1e4, 1e6, to two digits",
            [float(f"{flips:.1e}") for flips in log2],
            [4.0e-3, 1.3e-3, 1.4e-4],
        ),
        close("logarithms of the flips at d/(2 ln d)", np.log(ln), np.log(tails), tolerance=1e-9),
        close("flips at d/(2 ln d)", ln, [0.101, 0.089, 0.073], tolerance=5e-4),
        decreasing("these flips decrease with d", ln),
        increasing(
            "flips at d/(1.5 ln d), d up to 1e15", expected_flips(MANY / (1.5 * np.log(MANY)), MANY)
        ),
        decreasing("flips in all patterns at d/(4 ln d)", flips_in_all(4)),
        increasing("flips in all patterns at d/(3 ln d)", flips_in_all(3)),
        at_least("d = 1,000: patterns stable, n = 50", shares[0], 0.97, method="trend"),
        at_most("d = 1,000: patterns stable, n = 138", shares[1], 0.2, method="trend"),
        assumed=("signs independent and fair",),
        figure=Panel(
            "sites d",
            "expected flips in a pattern",
            lines={
                f"n = d / ({c} ln d)": (MANY, expected_flips(MANY / (c * np.log(MANY)), MANY))
                for c in (1.5, 2, 2.5)
            },
            bounds={"n = d / (2 log₂ d)": (MANY, expected_flips(MANY / (2 * np.log2(MANY)), MANY))},
            log="xy",
        ),
    )


@erratum(
    "1.4-capacity-bound",
    title="The bound is on the number of patterns",
    of=("explain.flip_probability",),
    printed=r"s \le \frac{d}{2 \log_2 d}",
    corrected=r"n \le \frac{d}{2 \log_2 d}",
    cites="McEliece, Posner, Rodemich & Venkatesh 1987",
    slip=True,
)
def bound_erratum(key):
    r"""The symbol $s$ is not defined; the number of patterns is called $n$. With this many patterns
    the expected flips in a pattern vanish as $d$ grows. A bound that leaves $n$ free also allows
    $n = d$, where they grow."""
    return Verdict(
        decreasing(
            "flips, n = d/(2 log₂ d), d up to 1e15",
            expected_flips(MANY / (2 * np.log2(MANY)), MANY),
        ),
        printed=[decreasing("flips, n = d, d up to 1e15", expected_flips(MANY, MANY))],
    )


def digits():
    """One handwritten digit of each class, 8 x 8 pixels of -1 or 1."""
    xs, ys = data.load("digits").train
    first = [np.flatnonzero(ys == k)[1] for k in range(10)]
    return jnp.where(jnp.asarray(xs[first], float).reshape(10, -1) > 0.5, 1.0, -1.0)


@claim(
    "1.4-retrieval",
    title="Recall of a stored pattern from a noisy copy",
    kind="experiment",
    of=(
        "explain.memory_recall",
        "explain.flip_signs",
        "models.hebb",
        "models.pseudo_inverse",
        "layers.ModernHopfield",
    ),
    cites="Hopfield 1982; Personnaz, Guyon & Dreyfus 1986; Ramsauer et al. 2021",
)
def retrieval(key):
    r"""Shown a stored pattern of $\pm 1$ with some signs flipped, the network settles in the
    pattern; with half of them flipped no information about it is left. Ten digits are too similar
    for Hebb's rule, which keeps none of them stable; the projection rule and the modern Hopfield
    layer recall them.
    """
    key_draw, key_noise, key_digits, key_shown = jr.split(key, 4)
    exact = {}
    for share in (0.15, 0.5):
        trials = [random_patterns(jr.fold_in(key_draw, k), 20, 400) for k in range(5)]
        noisy = [
            explain.flip_signs(X, fraction=share, key=jr.fold_in(key_noise, k))
            for k, X in enumerate(trials)
        ]
        recalled = [
            explain.memory_recall({"Hebb": models.Hebbian(X)}, X, x).exact[0]
            for X, x in zip(trials, noisy)
        ]
        exact[share] = float(np.mean(recalled))
    X = digits()
    memories = {
        "Hebb": models.hebb(X),
        "projection": models.pseudo_inverse(X),
        "modern": layers.ModernHopfield(X, beta=1.0),
    }
    copies = jnp.tile(X, (10, 1))
    recall = explain.memory_recall(
        memories, copies, explain.flip_signs(copies, fraction=0.1, key=key_digits)
    )
    hebb, projection, modern = recall.exact
    stable = each(
        lambda x: models.synchronous_recall(memories["Hebb"], x, max_steps=1).x, X
    ) == np.asarray(X)
    return Verdict(
        at_least(
            "random patterns, 15 % flipped: recalled exactly", exact[0.15], 0.95, method="trend"
        ),
        at_most("random patterns, 50 % flipped: recalled exactly", exact[0.5], 0.1, method="trend"),
        equal(
            "digits stable under Hebb's rule, of 10",
            int(stable.all(axis=1).sum()),
            0,
            method="brute force",
        ),
        at_most("digits, 10 % flipped: Hebb recalls", hebb, 0.1, method="trend"),
        at_most(
            "digits: mean overlap left by Hebb", recall.overlaps[0].mean(), 0.7, method="trend"
        ),
        at_least("digits: the projection rule recalls", projection, 0.9, method="trend"),
        at_least("digits: the modern layer recalls", modern, 0.95, method="trend"),
        figure=explain.memory_recall(
            memories, X, explain.flip_signs(X, fraction=0.15, key=key_shown)
        ),
    )
