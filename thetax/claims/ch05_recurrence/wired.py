"""§5: cells both ways, on top of one another, and with deeper steps."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import layers, models
from ..engine.chance import chance
from ..engine.check import at_most, close, equal, refuted
from ..engine.claim import Verdict, claim
from .by_loop import FD, elman, outputs, random_elman, slopes
from .unrolled import SLACK, blocks, later


@claim(
    "5.0-bidirectional",
    title="Both ways",
    kind="model",
    of=("layers.Bidirectional", "layers.Recurrent"),
    cites="Schuster & Paliwal 1997",
)
def both_ways(key):
    r"""One network runs along the sequence and another against it; at each time their states are
    joined, $[z_t^\to, z_t^\leftarrow]$. So every output depends on the whole sequence, where that
    of the one depends on what was before.
    """
    rng = chance(key)
    T = 7
    (U, V, onward), (A, B, back) = random_elman(rng, 3, 4), random_elman(rng, 3, 4)
    xs = 0.5 * rng.normal(size=(T, 3))
    net = layers.Bidirectional(onward, back)
    found = np.asarray(jax.jit(lambda net, xs: net(xs))(net, xs))
    turned = layers.Recurrent(back)(jnp.asarray(xs[::-1]))[::-1]
    (meet, off), (one, _) = blocks(net, xs), blocks(layers.Recurrent(onward), xs)
    return Verdict(
        close("onward half, by the loop", found[:, :4], elman(U, V, xs)[1:], tolerance=1e-14),
        close(
            "backward half, by the loop",
            found[:, 4:],
            elman(A, B, xs[::-1])[:0:-1],
            tolerance=1e-14,
        ),
        close(
            "backward half: the sequence turned, and turned back",
            found[:, 4:],
            turned,
            tolerance=1e-14,
        ),
        refuted(
            close("backward half, not turned back", found[:, 4:], turned[::-1], tolerance=1e-3)
        ),
        equal("both ways: how many of 49 pairs of times meet", np.count_nonzero(meet), T * T),
        equal("one way: pairs that meet", one > 0, ~later(T)),
        at_most("slopes, against differences", off, **SLACK),
    )


@claim(
    "5.0-stacked",
    title="On top of one another",
    kind="model",
    of=("layers.Stack", "layers.Elman"),
    cites="Joulin & Mikolov 2015",
)
def stacked(key):
    r"""$z_{t,\ell} = \phi(U_\ell z_{t-1,\ell} + V_\ell z_{t,\ell-1})$ with $z_{t,0} = x_t$. All
    layers at one time first, or all times of one layer first, gives the same.
    """
    rng = chance(key)
    T = 6
    parts = [random_elman(rng, n, m) for n, m in ((2, 3), (3, 4), (4, 3))]
    xs = rng.normal(size=(T, 2))
    c = rng.normal(size=(T, 3))
    stack = layers.Stack(*[cell for *_, cell in parts])
    by_layer = xs
    by_time = []
    state = [np.zeros(len(U)) for U, *_ in parts]
    for U, V, _ in parts:
        by_layer = elman(U, V, by_layer)[1:]
    for x in xs:
        for ell, (U, V, _) in enumerate(parts):
            x = state[ell] = np.tanh(U @ state[ell] + V @ x)
        by_time.append(x)
    states, found = layers.unroll(stack, jnp.asarray(xs))
    z = stack.start
    steps = []
    for x in jnp.asarray(xs):
        z, y = stack(z, x)
        steps.append(y)
    gradient, numeric = slopes(stack, xs, c)
    single = outputs(layers.Stack(parts[0][2]), xs)
    return Verdict(
        equal("in NumPy, both orders", by_layer, np.array(by_time)),
        close("layer after layer, by the library", found, by_layer, tolerance=1e-14),
        close("time after time, by the library", jnp.stack(steps), found, tolerance=1e-14),
        close(
            "the last states of all layers",
            np.concatenate(states),
            np.concatenate(state),
            tolerance=1e-14,
        ),
        equal("one layer is Elman's", single, outputs(parts[0][2], xs)),
        close(f"all {len(gradient)} derivatives", gradient, numeric, **FD),
    )


@claim(
    "5.0-deep-transition",
    title="A deeper step",
    kind="model",
    of=("layers.Transition", "models.MLP"),
    cites="Pascanu et al. 2014",
)
def deeper(key):
    r"""The step may be a deep network of $[z_{t-1}, x_t]$; with one layer $\phi([U, V][z, x])$ it
    is Elman's.
    """
    rng = chance(key)
    T = 5
    U, V, cell = random_elman(rng, 2, 3)
    xs = rng.normal(size=(T, 2))
    c = rng.normal(size=(T, 3))
    joined = layers.Chain(layers.Linear(jnp.asarray(np.hstack([U, V]))), layers.tanh)
    one = outputs(layers.Transition(joined, 3), xs)
    key_draw, key_bias = jr.split(key)
    net = models.MLP.init(5, 6, 4, 3, activation=layers.tanh, key=key_draw)
    net = jax.tree.map(lambda a: a + 0.1 * jr.normal(key_bias, a.shape), net)
    deep = layers.Transition(net, 3)
    z = np.zeros(3)
    expected = []
    for x in xs:
        z = np.asarray(net(jnp.asarray(np.concatenate([z, x]))))
        expected.append(z)
    gradient, numeric = slopes(deep, xs, c)
    swapped = layers.Transition(
        layers.Chain(layers.Linear(jnp.asarray(np.hstack([V, U]))), layers.tanh), 3
    )
    return Verdict(
        close("one layer: Elman's", one, outputs(cell, xs), tolerance=1e-14),
        close("one layer, by the loop", one, elman(U, V, xs)[1:], tolerance=1e-14),
        refuted(close("[x, z] in place of [z, x]", outputs(swapped, xs), one, tolerance=1e-3)),
        close(
            "three layers, the network called at every time",
            outputs(deep, xs),
            np.array(expected),
            tolerance=1e-14,
        ),
        close(f"all {len(gradient)} derivatives", gradient, numeric, **FD),
    )
