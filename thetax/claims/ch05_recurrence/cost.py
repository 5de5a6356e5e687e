"""§5.2: the cost of a token for a recurrent network and for attention."""

import jax
import jax.random as jr
import numpy as np

from ... import layers
from ...explain import count_flops
from ...jaxpr import inner_programs
from ...plot import Chart, Panel
from ..engine.check import between, close, equal, refuted
from ..engine.claim import Verdict, claim

TIMES = 2 ** np.arange(4, 10)


def multiply_adds(f, *args):
    """The number of multiply-adds in matrix products."""
    return count_flops(f, *args)["dot_general"] // 2


def attend(q, K, V):
    """Attention of one query over cached keys and values."""
    return jax.nn.softmax(K @ q / np.sqrt(len(q))) @ V


def attend_all(X):
    """Causal self-attention of all positions, without a cache."""
    return jax.nn.dot_product_attention(*[X[:, None]] * 3, is_causal=True)[:, 0]


def critical_path(f, *args):
    """The length of the longest chain of dependent operations; a scan counts once per step."""
    return _critical_path(jax.make_jaxpr(f)(*args).jaxpr)


def _critical_path(program):
    depths = {}
    for equation in program.eqns:
        inner = [_critical_path(program.jaxpr) for program in inner_programs(equation)]
        length = max(inner, default=1) * equation.params.get("length", 1) if inner else 1
        start = max((depths.get(v, 0) for v in equation.invars if not hasattr(v, "val")), default=0)
        depths |= dict.fromkeys(equation.outvars, start + length)
    return max(depths.values())


def log_slope(x, y):
    """The slope of a log-log fit."""
    return np.polyfit(np.log(x), np.log(y), 1)[0]


@claim(
    "5.2-rnn-vs-transformer-cost",
    title="The cost of a token",
    kind="experiment",
    of=("layers.Elman", "layers.prefix_scan", "explain.count_flops"),
)
def per_token(key):
    r"""For the next token a recurrent network takes $O(m^2)$ at every position; attention takes
    $O(td)$ at position $t$ with a KV cache, and $O(t^2 d)$ if it recomputes all keys and values. In
    training attention and scans process all positions in parallel, in $O(1)$ and $O(\log T)$
    rounds; Elman's network takes $T$ sequential steps.
    """
    m = 16
    widths = 2 ** np.arange(4, 10)
    shape = lambda *s: jax.ShapeDtypeStruct(s, float)
    cell = lambda m: jax.eval_shape(lambda: layers.Elman.init(int(m), int(m), key=key))
    step = lambda cell, z, x: cell(z, x)
    state_shape = lambda t: jax.eval_shape(
        lambda cell, xs: layers.unroll(cell, xs)[0], cell(m), shape(t, m)
    )
    by_position = [multiply_adds(step, cell(m), state_shape(t), shape(m)) for t in TIMES]
    by_width = np.array([multiply_adds(step, cell(m), shape(m), shape(m)) for m in widths])
    cached = np.array([multiply_adds(attend, shape(m), shape(t, m), shape(t, m)) for t in TIMES])
    recomputed = np.array([multiply_adds(attend_all, shape(t, m)) for t in TIMES])
    X = jr.normal(key, (9, m))
    depths = {
        "Elman": [critical_path(layers.unroll, cell(m), shape(t, m)) for t in TIMES],
        "scan": [critical_path(layers.prefix_scan, shape(t, m), shape(t, m)) for t in TIMES],
        "attention": [critical_path(attend_all, shape(t, m)) for t in TIMES],
    }
    return Verdict(
        close(
            "outputs with a KV cache and recomputed",
            attend(X[-1], X, X),
            attend_all(X)[-1],
            tolerance=1e-6,
        ),
        equal(
            "recurrent: multiply-adds at t = 16 to 512", by_position, np.full(len(TIMES), 2 * m * m)
        ),
        between("recurrent: power of m", log_slope(widths, by_width), 1.95, 2.05),
        between("attention, KV cache: power of t", log_slope(TIMES, cached), 0.95, 1.05),
        between("attention, recomputed: power of t", log_slope(TIMES, recomputed), 1.95, 2.05),
        refuted(between("attention, KV cache: quadratic", log_slope(TIMES, cached), 1.95, 2.05)),
        between(
            "Elman's network in training: power of T in the depth",
            log_slope(TIMES, depths["Elman"]),
            0.95,
            1.05,
        ),
        equal(
            "scan in training: second differences of the depth, when the length doubles",
            np.diff(depths["scan"], 2),
            np.zeros(len(TIMES) - 2, int),
        ),
        equal(
            "attention in training: depth",
            depths["attention"],
            np.full(len(TIMES), depths["attention"][0]),
        ),
        figure=Chart(
            Panel(
                "position of the token",
                "multiply-adds",
                log="xy",
                lines={
                    "recurrent": (TIMES, np.full(len(TIMES), 2 * m * m)),
                    "attention, KV cache": (TIMES, cached),
                    "attention, recomputed": (TIMES, recomputed),
                },
            ),
            Panel(
                "length in training",
                "sequential operations",
                log="xy",
                lines={name: (TIMES, way) for name, way in depths.items()},
            ),
        ),
    )
