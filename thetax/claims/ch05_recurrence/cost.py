"""§5.2: what a token costs a recurrent network, and what it costs attention."""

import jax
import jax.random as jr
import numpy as np

from ... import layers
from ...explain import operations
from ...jaxpr import inner_programs
from ...plot import Chart, Panel
from ..engine.check import between, close, equal, refuted
from ..engine.claim import Verdict, claim

TIMES = 2 ** np.arange(4, 10)


def products(f, *args):
    """Multiply-adds in matrix products."""
    return operations(f, *args)["dot_general"] // 2


def attend(q, K, V):
    """One query over keys and values that are kept."""
    return jax.nn.softmax(K @ q / np.sqrt(len(q))) @ V


def attend_all(X):
    """Every time over the times before it, made anew."""
    return jax.nn.dot_product_attention(*[X[:, None]] * 3, is_causal=True)[:, 0]


def depth(f, *args):
    """The longest chain of operations each of which needs the one before; a scan is as long as its
    steps are many.
    """
    return _depth(jax.make_jaxpr(f)(*args).jaxpr)


def _depth(program):
    known = {}
    for equation in program.eqns:
        inner = [_depth(program.jaxpr) for program in inner_programs(equation)]
        own = max(inner, default=1) * equation.params.get("length", 1) if inner else 1
        before = max((known.get(v, 0) for v in equation.invars if not hasattr(v, "val")), default=0)
        known |= dict.fromkeys(equation.outvars, before + own)
    return max(known.values())


def power(x, y):
    """The slope on logarithmic axes."""
    return np.polyfit(np.log(x), np.log(y), 1)[0]


@claim(
    "5.2-rnn-vs-transformer-cost",
    title="The cost of a token",
    kind="experiment",
    of=("layers.Elman", "layers.prefix_scan", "explain.operations"),
)
def per_token(key):
    r"""For one more token a recurrent network takes $O(m^2)$, wherever it stands; attention takes
    $O(td)$ at position $t$ if it keeps its keys and values, and $O(t^2 d)$ if it makes them all
    anew. In training attention and scans do all times at once, in $O(1)$ and $O(\log T)$ rounds;
    Elman's network takes $T$, one after another.
    """
    m = 16
    widths = 2 ** np.arange(4, 10)
    shape = lambda *s: jax.ShapeDtypeStruct(s, float)
    cell = lambda m: jax.eval_shape(lambda: layers.Elman.init(int(m), int(m), key=key))
    step = lambda cell, z, x: cell(z, x)
    after = lambda t: jax.eval_shape(
        lambda cell, xs: layers.unroll(cell, xs)[0], cell(m), shape(t, m)
    )
    position = [products(step, cell(m), after(t), shape(m)) for t in TIMES]
    size = np.array([products(step, cell(m), shape(m), shape(m)) for m in widths])
    kept = np.array([products(attend, shape(m), shape(t, m), shape(t, m)) for t in TIMES])
    anew = np.array([products(attend_all, shape(t, m)) for t in TIMES])
    X = jr.normal(key, (9, m))
    ways = {
        "Elman": [depth(layers.unroll, cell(m), shape(t, m)) for t in TIMES],
        "scan": [depth(layers.prefix_scan, shape(t, m), shape(t, m)) for t in TIMES],
        "attention": [depth(attend_all, shape(t, m)) for t in TIMES],
    }
    return Verdict(
        close(
            "kept or made anew, the same", attend(X[-1], X, X), attend_all(X)[-1], tolerance=1e-6
        ),
        equal(
            "recurrent: multiply-adds at t = 16 to 512", position, np.full(len(TIMES), 2 * m * m)
        ),
        between("recurrent: power of m", power(widths, size), 1.95, 2.05),
        between("attention, kept: power of t", power(TIMES, kept), 0.95, 1.05),
        between("attention, made anew: power of t", power(TIMES, anew), 1.95, 2.05),
        refuted(between("attention, kept: quadratic", power(TIMES, kept), 1.95, 2.05)),
        between(
            "Elman's in training: power of T in the depth", power(TIMES, ways["Elman"]), 0.95, 1.05
        ),
        equal(
            "scan in training: more depth for twice the length, each time the same",
            np.diff(ways["scan"], 2),
            np.zeros(len(TIMES) - 2, int),
        ),
        equal(
            "attention in training: depth",
            ways["attention"],
            np.full(len(TIMES), ways["attention"][0]),
        ),
        figure=Chart(
            Panel(
                "position of the token",
                "multiply-adds",
                log="xy",
                lines={
                    "recurrent": (TIMES, np.full(len(TIMES), 2 * m * m)),
                    "attention, kept": (TIMES, kept),
                    "attention, made anew": (TIMES, anew),
                },
            ),
            Panel(
                "length in training",
                "operations one after another",
                log="xy",
                lines={name: (TIMES, way) for name, way in ways.items()},
            ),
        ),
    )
