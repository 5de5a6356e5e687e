"""§2.4: residual connections: the identity at zero weights, and signals that survive depth."""

from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from scipy import special

from ... import data, layers, train, tree
from ...core import run
from ...layers import Chain, Concat, Linear, Residual, centred
from ...models import MLP
from ...plot import Chart, Panel
from ..engine import differences
from ..engine.check import at_least, at_most, between, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim

ACTIVATIONS = {
    "identity": (layers.identity, lambda z: z),
    "sigmoid": (layers.sigmoid, special.expit),
    "tanh": (layers.tanh, np.tanh),
    "rectifier": (layers.relu, lambda z: np.maximum(0.0, z)),
    "exponential": (jnp.exp, np.exp),
}


def _block(W, b, phi, V=None):
    r"""$x \mapsto Vx + \varphi(Wx + b) - \varphi(0)$."""
    inner = Chain(Linear(jnp.asarray(W), jnp.asarray(b)), centred(phi))
    return Residual(inner, None if V is None else Linear(jnp.asarray(V)))


def _by_differences(name, make, arrays):
    """Checks the gradient of a linear functional of the block by each of its arguments against
    finite differences.
    """
    u = jnp.cos(jnp.arange(1.0, 1 + len(arrays["b"])))
    functional = lambda arrays: jnp.vdot(
        u, make(**{k: v for k, v in arrays.items() if k != "x"})(arrays["x"])
    )
    checks = []
    for part, gradient in jax.grad(functional)(arrays).items():
        numeric = differences.jacobian(
            lambda a, part=part: functional({**arrays, part: a}), arrays[part]
        )
        checks += [close_derivative(f"{name}, by {part}", gradient, numeric)]
    return checks


@claim(
    "2.4-residual",
    "2.4-residual-projection",
    title="Residual layers",
    kind="layer",
    of=("layers.Residual", "layers.centred"),
    cites="He et al. 2016",
)
def residual_layers(rng):
    r"""A residual layer adds its input, $F[W, b](x) = x + \varphi(Wx + b) - \varphi(0)$; where the
    widths differ a projection does, $F[V, W, b](x) = Vx + \varphi(Wx + b) - \varphi(0)$ with
    $V, W \in \mathbb{R}^{m \times n}$, and $F[V, 0, 0] = V$.
    """
    draw = lambda *shape: rng.normal(size=shape)
    checks = []
    for name in ("sigmoid", "tanh", "exponential"):
        phi, scalar = ACTIVATIONS[name]
        W = draw(3, 3)
        b = draw(3)
        x = draw(3)
        loop = [
            x[i] + scalar(sum(W[i, j] * x[j] for j in range(3)) + b[i]) - scalar(0.0)
            for i in range(3)
        ]
        same = _block(W, b, phi, np.eye(3))(jnp.asarray(x))
        checks += [
            close(f"{name}, unit by unit", _block(W, b, phi)(jnp.asarray(x)), loop),
            close(f"{name}, with V = I", same, loop),
        ]
        V = draw(4, 3)
        W = draw(4, 3)
        b = draw(4)
        loop = [sum(V[i] * x) + scalar(sum(W[i] * x) + b[i]) - scalar(0.0) for i in range(4)]
        zero_output = _block(np.zeros((4, 3)), np.zeros(4), phi, V)(jnp.asarray(x))
        checks += [
            close(f"{name}, from 3 to 4", _block(W, b, phi, V)(jnp.asarray(x)), loop),
            equal(
                f"{name}, F[V, 0, 0] and Vx", zero_output, Linear(jnp.asarray(V))(jnp.asarray(x))
            ),
        ]
    arrays = {name: jnp.asarray(a) for name, a in {"V": V, "W": W, "b": b, "x": x}.items()}
    checks += _by_differences("projected", lambda V, W, b: _block(W, b, layers.sigmoid, V), arrays)
    square = {"W": jnp.asarray(draw(3, 3)), "b": jnp.asarray(draw(3)), "x": arrays["x"]}
    checks += _by_differences("square", lambda W, b: _block(W, b, layers.sigmoid), square)
    uncentred = Residual(Chain(Linear(square["W"], square["b"]), layers.sigmoid))(square["x"])
    block_output = _block(square["W"], square["b"], layers.sigmoid)(square["x"])
    checks += [
        close("effect of subtracting φ(0), sigmoid", uncentred - block_output, np.full(3, 0.5)),
        refuted(close("without −φ(0), sigmoid", uncentred, block_output, tolerance=1e-3)),
    ]
    return Verdict(*checks)


@claim(
    "2.4-residual-identity",
    title="Zero weights are the identity",
    kind="identity",
    of=("layers.Residual", "layers.centred"),
)
def residual_identity(key):
    r"""$F[0, 0] = \mathrm{Id}$ for every activation, exactly, because of the term $-\varphi(0)$. A
    stack of a hundred such layers is still the identity.
    """
    x = jr.normal(key, (5,))
    zero = np.zeros((5, 5)), np.zeros(5)
    outputs = {name: _block(*zero, phi)(x) for name, (phi, _) in ACTIVATIONS.items()}
    stack_output = Chain(*[_block(*zero, layers.sigmoid)] * 100)(x)
    uncentred = lambda phi: Residual(Chain(Linear(jnp.zeros((5, 5)), jnp.zeros(5)), phi))(x)
    return Verdict(
        *[equal(f"{name}: F[0, 0](x) and x", y, x) for name, y in outputs.items()],
        equal("a hundred layers of the sigmoid", stack_output, x),
        refuted(equal("sigmoid, without −φ(0)", uncentred(layers.sigmoid), x)),
        refuted(equal("exponential, without −φ(0)", uncentred(jnp.exp), x)),
    )


def _learner(key, residual, initialiser, depth=10, width=8):
    keys = jr.split(key, depth)
    maps = [Linear.init(width, width, initialiser=initialiser, key=k) for k in keys]
    if residual:
        return Chain(*[Residual(Chain(a, centred(layers.tanh))) for a in maps])
    return Chain(*[part for a in maps for part in (a, layers.tanh)])


def _loss_curve(descent, batches):
    """A function from a model to its losses; it takes the batches as an argument, so that it is
    compiled once for all seeds.
    """
    compiled = jax.jit(
        lambda model, batches: run(descent, model, batches, key=jr.key(0))[1][1].loss
    )
    return lambda model: compiled(model, batches)


@claim(
    "2.4-identity-learning",
    title="Learning the identity",
    kind="experiment",
    of=("layers.Residual", "train.descend"),
    cites="He et al. 2016",
)
def identity_learning(key):
    r"""A plain deep network learns the identity badly; a residual network is the identity at zero
    weights, and learns it from other initial weights. (Ten layers of width 8, 500 steps of gradient
    descent on 64 points; means of four networks.)
    """
    xs = jr.normal(jr.fold_in(key, 1), (64, 8))
    batches = jnp.broadcast_to(xs, (500, 64, 8)), jnp.broadcast_to(xs, (500, 64, 8))
    descent = train.descend(train.squared_error, optax.sgd(0.05))
    loss_curve = _loss_curve(descent, batches)
    zero_net = tree.zeros_like(_learner(key, True, layers.lecun))
    mean = lambda *kind: np.mean([loss_curve(_learner(k, *kind)) for k in jr.split(key, 4)], axis=0)
    losses = {
        "plain": mean(False, layers.lecun),
        "residual, same initialiser": mean(True, layers.lecun),
        "residual, small weights": mean(True, layers.gaussian(0.1)),
    }
    final = {name: float(loss[-1]) for name, loss in losses.items()}
    steps = np.arange(1, 501)
    return Verdict(
        equal(
            "loss of the residual network with zero weights",
            train.squared_error(zero_net, (xs, xs)).item(),
            0.0,
        ),
        at_least(
            "plain loss over residual loss, small weights",
            final["plain"] / final["residual, small weights"],
            10.0,
        ),
        at_least(
            "plain loss over residual loss, same initialiser",
            final["plain"] / final["residual, same initialiser"],
            10.0,
        ),
        at_most("residual loss, small weights", final["residual, small weights"], 0.01),
        figure=Panel(
            "step",
            "loss",
            lines={n: (steps, np.asarray(v)) for n, v in losses.items()},
            log="y",
        ),
    )


class Deep(eqx.Module):
    """A linear layer, blocks of one structure with stacked leaves, and a linear layer."""

    first: Linear
    blocks: Any
    last: Linear

    def __call__(self, x):
        return self.last(self.through(self.first(x)))

    def through(self, h):
        """Applies all blocks in order."""
        return jax.lax.scan(lambda h, block: (block(h), None), h, self.blocks)[0]


def _deep(key, residual, initialiser, *, width, depth):
    key_first, key_blocks, key_last = jr.split(key, 3)

    def block(key):
        inner = Linear.init(width, width, initialiser=initialiser, key=key)
        return (
            Residual(Chain(inner, centred(layers.tanh))) if residual else Chain(inner, layers.tanh)
        )

    first = Linear.init(2, width, initialiser=layers.lecun, key=key_first)
    blocks = jax.vmap(block)(jr.split(key_blocks, depth))
    return Deep(first, blocks, Linear.init(width, 1, initialiser=layers.lecun, key=key_last))


def _norms_through(W, x, *, residual):
    """Spectral norm of the Jacobian after each layer, as a product of the layers' Jacobians."""
    J = np.eye(len(x))
    norms = []
    for w in W:
        z = w @ x
        J = (residual * np.eye(len(x)) + (1 - np.tanh(z) ** 2)[:, None] * w) @ J
        x = residual * x + np.tanh(z)
        norms.append(np.linalg.norm(J, 2))
    return np.array(norms)


@claim(
    "2.4-depth-100",
    title="Signals and gradients through a hundred layers",
    kind="experiment",
    of=("layers.Residual", "train.descend"),
    cites="He et al. 2016",
)
def depth_100(key, scale):
    r"""Through a hundred plain layers the signal vanishes, and so does its gradient; residual
    connections preserve both. With $W_{ij} \sim N(0, 0.25 / m)$ the Jacobian of a hundred tanh
    layers has norm below $10^{-20}$, and moderate norm with residual connections. Fifty residual
    layers learn two spirals; fifty plain layers do not.
    """
    initialiser = layers.gaussian(np.sqrt(0.25 / 32))
    x = jr.normal(jr.fold_in(key, 1), (32,))
    norms = {}
    errors = []
    for name, residual in (("plain", False), ("residual", True)):
        net = _deep(key, residual, initialiser, width=32, depth=100)
        J = np.asarray(jax.jit(jax.jacobian(Deep.through, argnums=1))(net, x))
        W = np.asarray(jax.tree.leaves(net.blocks)[0])
        norms[name] = _norms_through(W, np.asarray(x), residual=residual)
        errors.append(abs(np.linalg.norm(J, 2) / norms[name][-1] - 1))

    width, steps = (8, 200) if scale == "quick" else (32, 600)
    xs, ys = data.spirals(128, key=jr.fold_in(key, 2))
    batches = jax.tree.map(
        lambda a: jnp.broadcast_to(a, (steps, *a.shape)), (xs.astype(x.dtype), ys)
    )
    descent = train.descend(train.binary_cross_entropy, optax.adam(0.04 / width))
    loss_curve = _loss_curve(descent, batches)
    initialisers = {"plain": layers.lecun, "residual": layers.gaussian(np.sqrt(0.25 / width))}
    losses = {
        n: loss_curve(_deep(key, n == "residual", initialiser, width=width, depth=50))
        for n, initialiser in initialisers.items()
    }
    final = {name: float(loss[-1]) for name, loss in losses.items()}
    depth = np.arange(1, 101)
    step = np.arange(1, steps + 1)
    return Verdict(
        at_most("norm of the Jacobian, plain", norms["plain"][-1], 1e-20),
        between("norm of the Jacobian, residual", norms["residual"][-1], 1e-2, 1e6),
        at_most(
            "relative difference of the Jacobian from the product over layers", max(errors), 1e-8
        ),
        at_most(
            "loss of fifty residual layers, against half that of plain ones",
            final["residual"],
            final["plain"] / 2,
        ),
        figure=Chart(
            Panel(
                "layers",
                "norm of the Jacobian",
                lines={n: (depth, v) for n, v in norms.items()},
                log="y",
            ),
            Panel(
                "step",
                "loss on two spirals",
                lines={n: (step, np.asarray(v)) for n, v in losses.items()},
                log="y",
            ),
        ),
    )


@claim(
    "2.4-densenet",
    title="Densely connected layers",
    kind="layer",
    of=("layers.Concat", "models.MLP"),
    cites="Huang et al. 2017",
)
def dense_connections(key):
    r"""$x^{\ell+1} = F^{\ell+1}(x^\ell, \dots, x^1, x)$: each layer takes all earlier
    activations as input, $n + \sum_{j < \ell} m_j$ numbers. Every earlier activation has a direct
    influence; if the weights of those connections are set to 0 the network is a plain one.
    """
    n = 3
    widths = (4, 2, 5)
    net = MLP.init(n, *widths, 2, activation=layers.tanh, connect=Concat, key=key)
    parts = [*(part.inner for part in net.body.layers[:-1]), net.body.layers[-1]]
    blocks = [*(part.layers[0] for part in parts[:-1]), parts[-1]]
    n_inputs = [layer.W.shape[1] for layer in blocks]
    starts = np.cumsum([0, n, *widths])  # offset of each activation in the input of the last layer
    x = jr.normal(jr.fold_in(key, 1), (n,))
    sizes = []
    for i, part in enumerate(parts):  # output of layer i + 1 by each activation in its input
        J = differences.jacobian(part, Chain(*net.body.layers[:i])(x))
        sizes += [np.linalg.norm(J[:, a:b]) for a, b in pairwise(starts[: i + 2])]
    without_skips = [
        Linear(layer.W.at[:, : starts[i]].set(0.0), layer.b) for i, layer in enumerate(blocks)
    ]
    plain_net = MLP(
        Chain(
            *[Concat(Chain(layer, layers.tanh)) for layer in without_skips[:-1]], without_skips[-1]
        )
    )
    h = np.asarray(x)
    for i, layer in enumerate(blocks):
        z = np.asarray(layer.W)[:, starts[i] : starts[i + 1]] @ h + np.asarray(layer.b)
        h = z if i == len(widths) else np.tanh(z)
    return Verdict(
        equal("number of inputs of each layer", n_inputs, [n, n + 4, n + 4 + 2, n + 4 + 2 + 5]),
        at_least(
            "least influence of an earlier activation on a layer",
            np.min(sizes),
            0.01,
            method="finite differences",
        ),
        close("without skip connections, against a plain network", plain_net(x), h),
        refuted(close("with skip connections, against a plain network", net(x), h, tolerance=1e-3)),
    )
