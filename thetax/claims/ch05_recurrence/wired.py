"""§5: bidirectional, stacked and deep-transition recurrent networks."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import layers, models
from ..engine.check import at_most, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim
from .by_loop import elman, outputs, random_elman, weight_gradients
from .unrolled import SLACK, future_pairs, jacobian_blocks


@claim(
    "5.0-bidirectional",
    title="Bidirectional recurrent networks",
    kind="model",
    of=("layers.Bidirectional", "layers.Recurrent"),
    cites="Schuster & Paliwal 1997",
)
def both_ways(rng):
    r"""One network reads the sequence forwards and another backwards; at each time their states
    are concatenated, $[z_t^\to, z_t^\leftarrow]$. So every output depends on the whole sequence,
    whereas that of the forward network depends only on earlier inputs.
    """
    T = 7
    (U, V, forward), (A, B, backward) = random_elman(rng, 3, 4), random_elman(rng, 3, 4)
    xs = 0.5 * rng.normal(size=(T, 3))
    net = layers.Bidirectional(forward, backward)
    states = np.asarray(jax.jit(lambda net, xs: net(xs))(net, xs))
    reversed_states = layers.Recurrent(backward)(jnp.asarray(xs[::-1]))[::-1]
    (influence, error), (one_way, _) = (
        jacobian_blocks(net, xs),
        jacobian_blocks(layers.Recurrent(forward), xs),
    )
    return Verdict(
        close(
            "forward half, against the loop", states[:, :4], elman(U, V, xs)[1:], tolerance=1e-14
        ),
        close(
            "backward half, against the loop",
            states[:, 4:],
            elman(A, B, xs[::-1])[:0:-1],
            tolerance=1e-14,
        ),
        close(
            "backward half: reversed input, reversed output",
            states[:, 4:],
            reversed_states,
            tolerance=1e-14,
        ),
        refuted(
            close(
                "backward half, output not reversed",
                states[:, 4:],
                reversed_states[::-1],
                tolerance=1e-3,
            )
        ),
        equal(
            "bidirectional: number of 49 pairs with ∂y_t/∂x_s ≠ 0",
            np.count_nonzero(influence),
            T * T,
        ),
        equal("forward only: pairs with ∂y_t/∂x_s ≠ 0", one_way > 0, ~future_pairs(T)),
        at_most("Jacobian, against finite differences", error, **SLACK),
    )


@claim(
    "5.0-stacked",
    title="Stacked recurrent networks",
    kind="model",
    of=("layers.StackedCells", "layers.Elman"),
    cites="Joulin & Mikolov 2015",
)
def stacked(rng):
    r"""$z_{t,\ell} = \phi(U_\ell z_{t-1,\ell} + V_\ell z_{t,\ell-1})$ with $z_{t,0} = x_t$.
    Iterating over layers first or over time first gives the same.
    """
    T = 6
    parts = [random_elman(rng, n, m) for n, m in ((2, 3), (3, 4), (4, 3))]
    xs = rng.normal(size=(T, 2))
    c = rng.normal(size=(T, 3))
    stack = layers.StackedCells(*[cell for *_, cell in parts])
    by_layer = xs
    by_time = []
    state = [np.zeros(len(U)) for U, *_ in parts]
    for U, V, _ in parts:
        by_layer = elman(U, V, by_layer)[1:]
    for x in xs:
        for ell, (U, V, _) in enumerate(parts):
            x = state[ell] = np.tanh(U @ state[ell] + V @ x)
        by_time.append(x)
    states, ys = layers.unroll(stack, jnp.asarray(xs))
    z = stack.start
    steps = []
    for x in jnp.asarray(xs):
        z, y = stack(z, x)
        steps.append(y)
    gradient, numeric = weight_gradients(stack, xs, c)
    single = outputs(layers.StackedCells(parts[0][2]), xs)
    return Verdict(
        equal("both orders, in NumPy", by_layer, np.array(by_time)),
        close("layers.unroll, against layer by layer", ys, by_layer, tolerance=1e-14),
        close(
            "the cell called step by step, against layers.unroll",
            jnp.stack(steps),
            ys,
            tolerance=1e-14,
        ),
        close(
            "the last states of all layers",
            np.concatenate(states),
            np.concatenate(state),
            tolerance=1e-14,
        ),
        equal("one layer, against an Elman cell", single, outputs(parts[0][2], xs)),
        close_derivative(f"all {len(gradient)} derivatives", gradient, numeric),
    )


@claim(
    "5.0-deep-transition",
    title="Recurrent networks with a deep transition",
    kind="model",
    of=("layers.DeepTransition", "models.MLP"),
    cites="Pascanu et al. 2014",
)
def deeper(key, rng):
    r"""The step may be a deep network of $[z_{t-1}, x_t]$; with one layer $\phi([U, V][z, x])$ it
    is Elman's.
    """
    T = 5
    U, V, cell = random_elman(rng, 2, 3)
    xs = rng.normal(size=(T, 2))
    c = rng.normal(size=(T, 3))
    joined = layers.Chain(layers.Linear(jnp.asarray(np.hstack([U, V]))), layers.tanh)
    one_layer = outputs(layers.DeepTransition(joined, 3), xs)
    key_draw, key_bias = jr.split(key)
    net = models.MLP.init(5, 6, 4, 3, activation=layers.tanh, key=key_draw)
    net = jax.tree.map(lambda a: a + 0.1 * jr.normal(key_bias, a.shape), net)
    deep = layers.DeepTransition(net, 3)
    z = np.zeros(3)
    expected = []
    for x in xs:
        z = np.asarray(net(jnp.asarray(np.concatenate([z, x]))))
        expected.append(z)
    gradient, numeric = weight_gradients(deep, xs, c)
    swapped = layers.DeepTransition(
        layers.Chain(layers.Linear(jnp.asarray(np.hstack([V, U]))), layers.tanh), 3
    )
    return Verdict(
        close("one layer, against an Elman cell", one_layer, outputs(cell, xs), tolerance=1e-14),
        close("one layer, against the loop", one_layer, elman(U, V, xs)[1:], tolerance=1e-14),
        refuted(close("[x, z] instead of [z, x]", outputs(swapped, xs), one_layer, tolerance=1e-3)),
        close(
            "three layers, against the network called step by step",
            outputs(deep, xs),
            np.array(expected),
            tolerance=1e-14,
        ),
        close_derivative(f"all {len(gradient)} derivatives", gradient, numeric),
    )
