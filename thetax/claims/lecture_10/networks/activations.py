"""Lecture 10, §1.4: the activation functions, their slopes, and vanishing gradients."""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from scipy.special import expit
from scipy.stats import norm

from .... import layers, models, train
from ....core import iterate
from ....layers import Chain, Linear
from ....plot import Chart, Panel
from ...engine.check import at_least, at_most, between, close, close_derivative, equal, refuted
from ...engine.claim import Verdict, claim

GRID = np.linspace(-6, 6, 241) + 0.0123  # avoids 0, where ReLU has a kink


def on_grid(f, z):
    """The library's function on a grid."""
    return np.asarray(f(jnp.asarray(z, float)))


def slope(f, z):
    """Its derivative by automatic differentiation."""
    return np.asarray(jax.vmap(jax.grad(f))(jnp.asarray(z, float)))


def differences(f, z, step=1e-3):
    """Its derivative by the five-point rule."""
    at = lambda k: on_grid(f, z + k * step)
    return (at(-2) - 8 * at(-1) + 8 * at(1) - at(2)) / (12 * step)


@claim("L10-1.4-sigmoid", title="The sigmoid", kind="layer", of=("layers.sigmoid",))
def sigmoid(key):
    r"""$\sigma(z) = \frac{1}{1 + e^{-z}} \in (0, 1)$ with
    $\sigma' = \sigma(1 - \sigma) \le \frac14$: far from 0 it saturates, and its slope is nearly 0.
    """
    f = layers.sigmoid
    far = np.array([-800.0, 800.0])
    z = np.linspace(-30, 30, 1201)
    return Verdict(
        close("against SciPy's", on_grid(f, z), expit(z), tolerance=1e-15),
        close("σ(−z) and 1 − σ(z)", on_grid(f, -z), 1 - on_grid(f, z), tolerance=1e-15),
        close_derivative(
            "its slope, by differences", slope(f, GRID), differences(f, GRID), tolerance=1e-9
        ),
        close("its slope, as σ(1 − σ)", slope(f, z), expit(z) * expit(-z), tolerance=1e-15),
        at_most("its slope", slope(f, z), 0.25),
        close("its slope at 0", slope(f, [0.0])[0], 0.25, tolerance=1e-15),
        at_most("its slope at ±20", slope(f, [-20.0, 20.0]), 1e-8),
        at_least("its smallest value on [−30, 30]", on_grid(f, z).min(), 1e-300),
        at_most("its largest value", on_grid(f, z).max(), 1 - 1e-16),
        close("σ(±800)", on_grid(f, far), [0.0, 1.0], tolerance=1e-300),
        close("and the slopes at both ends", slope(f, far), [0.0, 0.0], tolerance=1e-300),
    )


@claim(
    "L10-1.4-tanh",
    title="The hyperbolic tangent",
    kind="layer",
    of=("layers.tanh", "layers.sigmoid"),
)
def tanh(key):
    r"""$\tanh z = 2\sigma(2z) - 1 \in (-1, 1)$ with $\tanh' = 1 - \tanh^2 \le 1$; it saturates
    too.
    """
    f = layers.tanh
    z = np.linspace(-30, 30, 1201)
    return Verdict(
        close("2σ(2z) − 1", on_grid(f, z), 2 * on_grid(layers.sigmoid, 2 * z) - 1, tolerance=2e-15),
        close("against NumPy's", on_grid(f, z), np.tanh(z), tolerance=2e-15),
        close_derivative(
            "its slope, by differences", slope(f, GRID), differences(f, GRID), tolerance=1e-9
        ),
        close("its slope, as 1 − tanh²", slope(f, z), 1 - np.tanh(z) ** 2, tolerance=4e-15),
        at_most("its slope", slope(f, z), 1.0),
        at_most("its slope at ±20", np.abs(slope(f, [-20.0, 20.0])), 1e-15),
        at_most("its size on [−15, 15]", np.abs(on_grid(f, np.linspace(-15, 15, 301))), 1 - 1e-14),
    )


def dead_unit(activation, key, steps=300):
    """A network whose first unit is negative on every example: the gradients of that unit for each
    example, the losses during gradient descent, and the change of its weights.
    """
    key_x, key_net = jr.split(key)
    xs = jr.uniform(key_x, (40, 2), minval=-1.0)
    ys = xs[:, 0] + xs[:, 1] ** 2
    net = models.MLP.init(2, 4, 1, activation=activation, key=key_net)
    first, phi, last = net.body.layers
    first = Linear(first.W, first.b.at[0].set(-2 * jnp.abs(first.W[0]).sum() - 1))
    net = models.MLP(Chain(first, phi, Linear(last.W.at[0, 0].set(1.0), last.b)))

    return [np.asarray(a) for a in _study(net, xs, ys, steps)]


@partial(jax.jit, static_argnames="steps")
def _study(net, xs, ys, steps):
    each = jax.vmap(lambda x, y: jax.grad(lambda net: train.squared_loss(net(x), y))(net))(xs, ys)
    step = train.descend(
        lambda net, batch, key: train.squared_error(net, (xs, ys)), optax.sgd(0.05)
    )
    state, (_, info) = iterate(step, net, steps)
    own = lambda net: jnp.concatenate(
        [net.body.layers[0].W[..., 0, :], net.body.layers[0].b[..., :1]], axis=-1
    )
    return (
        own(each),
        info.loss,
        own(state.model) - own(net),
        jax.vmap(net.body.layers[0])(xs)[:, 0].max(),
    )


@claim(
    "L10-1.4-relu",
    "L10-1.4-leaky-relu",
    title="ReLU, dead units, and leaky ReLU",
    kind="layer",
    of=("layers.relu", "layers.leaky_relu"),
    cites="Maas, Hannun & Ng 2013",
)
def relu(key):
    r"""$\max(0, z)$ has slope 1 for $z > 0$ and 0 for $z < 0$; at 0 the library takes 0. A unit
    that is negative on every example has gradient 0 and stays so. With $\max(z, az)$, $0 < a < 1$,
    its gradient is not 0 and it learns again.
    """
    grads, losses, change, high = dead_unit(layers.relu, key)
    leak, wake, move, low = dead_unit(layers.leaky_relu, key)
    below = GRID[GRID < 0]
    above = GRID[GRID > 0]
    return Verdict(
        close("ReLU", on_grid(layers.relu, GRID), np.where(GRID > 0, GRID, 0), tolerance=0.0),
        close_derivative(
            "its slope, by differences",
            slope(layers.relu, GRID),
            differences(layers.relu, GRID),
            tolerance=1e-9,
        ),
        equal("its slope at −1, 0 and 1", slope(layers.relu, [-1.0, 0.0, 1.0]), [0.0, 0.0, 1.0]),
        close(
            "leaky ReLU, a = 0.01",
            on_grid(layers.leaky_relu, GRID),
            np.maximum(GRID, 0.01 * GRID),
            tolerance=1e-17,
        ),
        close(
            "its slopes",
            np.r_[slope(layers.leaky_relu, below), slope(layers.leaky_relu, above)],
            np.r_[np.full(len(below), 0.01), np.ones(len(above))],
            tolerance=1e-15,
        ),
        equal("dead unit: its gradient from each of 40 examples", grads, np.zeros((40, 3))),
        equal("dead unit: change of its weights in 300 steps", change, np.zeros(3)),
        at_most(
            "while the others learn: the final loss over the initial one",
            losses[-1] / losses[0],
            0.9,
        ),
        at_least(
            "the same unit with a leak: ‖gradient‖ from each example",
            np.linalg.norm(leak, axis=1),
            1e-6,
        ),
        at_least("change of its weights in 300 steps", np.linalg.norm(move), 1e-4),
        at_most("the loss, step by step", np.diff(wake), 0.0),
        assumptions=[
            at_most("the unit, before the activation, on all examples", max(high, low), -1.0)
        ],
        figure=Chart(
            Panel(
                "z",
                "φ(z)",
                lines={
                    "ReLU": (GRID, on_grid(layers.relu, GRID)),
                    "leaky, a = 0.01": (GRID, on_grid(layers.leaky_relu, GRID)),
                },
            ),
            Panel(
                "step",
                "loss",
                lines={
                    "ReLU, one unit dead": (np.arange(300), losses),
                    "leaky": (np.arange(300), wake),
                },
                log="y",
            ),
        ),
    )


@claim(
    "L10-1.4-softplus",
    title="Softplus, a smooth ReLU",
    kind="layer",
    of=("layers.softplus", "layers.relu"),
)
def softplus(key):
    r"""$\log(1 + e^z)$ has slope $\sigma(z)$. Sharpened,
    $\frac1\beta \mathrm{softplus}(\beta z) \to \max(0, z)$, where the distance is largest at 0,
    $\frac{\log 2}{\beta}$.
    """
    f = layers.softplus
    z = np.linspace(-30, 30, 1201)
    betas = np.array([1.0, 2.0, 8.0, 32.0])
    gap = np.stack([on_grid(f, b * z) / b - on_grid(layers.relu, z) for b in betas])
    return Verdict(
        close("against logaddexp(0, z)", on_grid(f, z), np.logaddexp(0, z), tolerance=1e-14),
        close(
            "at large z, where eᶻ overflows",
            on_grid(f, [-800.0, 800.0]),
            [0.0, 800.0],
            tolerance=1e-300,
        ),
        close_derivative(
            "its slope, by differences", slope(f, GRID), differences(f, GRID), tolerance=1e-9
        ),
        close("its slope, as σ(z)", slope(f, z), expit(z), tolerance=4e-15),
        close(
            "largest gap to ReLU, β = 1, 2, 8, 32",
            gap.max(axis=1),
            np.log(2) / betas,
            tolerance=1e-14,
        ),
        equal("where", z[gap.argmax(axis=1)], np.zeros(4)),
        at_least("softplus is larger", gap, 0.0, slack=1e-14),
    )


@claim(
    "L10-1.4-gelu", title="GELU", kind="layer", of=("layers.gelu",), cites="Hendrycks & Gimpel 2016"
)
def gelu(key):
    r"""$z\,\Phi(z) = \frac z2 \big(1 + \mathrm{erf}(z / \sqrt 2)\big)$; the formula with tanh,
    $\frac z2 \big(1 + \tanh(\sqrt{2/\pi}\,(z + 0.044715\, z^3))\big)$, is an approximation of it.
    """
    f = layers.gelu
    z = np.linspace(-6, 6, 1201)
    rough = z / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))
    return Verdict(
        close("against z Φ(z) of SciPy", on_grid(f, z), z * norm.cdf(z), tolerance=1e-14),
        close_derivative(
            "its slope, by differences", slope(f, GRID), differences(f, GRID), tolerance=1e-9
        ),
        close("its slope, as Φ + zφ", slope(f, z), norm.cdf(z) + z * norm.pdf(z), tolerance=1e-14),
        at_most("error of the approximation on [−6, 6]", np.abs(on_grid(f, z) - rough), 1e-3),
        refuted(close("the approximation equals GELU", on_grid(f, z), rough, tolerance=1e-5)),
    )


LOOKS = {
    "sigmoid": (layers.sigmoid, 0.0, 1.0),
    "tanh": (layers.tanh, -1.0, 1.0),
    "ReLU": (layers.relu, 0.0, 6.0),
    "leaky ReLU": (layers.leaky_relu, -0.06, 6.0),
    "softplus": (layers.softplus, 0.0, np.log1p(np.exp(6))),
    "GELU": (layers.gelu, -0.17, 6.0),
}


@claim(
    "L10-1.4-fig-activations",
    title="The graphs of the activations",
    kind="figure",
    of=tuple(
        f"layers.{name}" for name in ("sigmoid", "tanh", "relu", "leaky_relu", "softplus", "gelu")
    ),
)
def fig_activations(key):
    r"""The six activations on $[-6, 6]$: the sigmoids stay in $(0, 1)$ and $(-1, 1)$, the others
    follow $\max(0, z)$.
    """
    z = np.linspace(-6, 6, 601)
    curve = {name: (z, on_grid(f, z)) for name, (f, _, _) in LOOKS.items()}
    bound = {"sigmoid", "tanh"}
    chart = Chart(
        Panel("z", "φ(z)", lines={name: line for name, line in curve.items() if name in bound}),
        Panel("z", "φ(z)", lines={name: line for name, line in curve.items() if name not in bound}),
    )
    curves = {name: line for panel in chart.panels for name, line in panel.lines.items()}
    close_to = [
        np.abs(curves[name][1] - np.maximum(z, 0)).max() for name in curves if name not in bound
    ]
    return Verdict(
        equal("curves drawn", len(curves), len(LOOKS)),
        *[
            at_least(f"{name}: smallest", curves[name][1], low, slack=1e-12)
            for name, (_, low, _) in LOOKS.items()
        ],
        *[
            at_most(f"{name}: largest", curves[name][1], high, slack=1e-12)
            for name, (_, _, high) in LOOKS.items()
        ],
        at_most("the four on the right, against max(0, z)", close_to, np.log(2), slack=1e-12),
        figure=chart,
    )


INITIALISERS = {  # an activation, and the initialiser of its weights
    "sigmoid": (layers.sigmoid, layers.glorot),
    "tanh": (layers.tanh, layers.uniform(1 / np.sqrt(3 * 32))),
    "ReLU": (layers.relu, layers.he),
}


@jax.jit
def gradient_norms(weights, share, x):
    r"""$\|\nabla_{W_\ell}\|$ and $\|\delta_\ell\|$ at the input of each affine map of a network,
    and $|\delta|$ at its output.

    `share` selects the activation, so that one compiled program serves all of them."""
    phi = lambda z: sum(share[i] * f(z) for i, (f, _) in enumerate(INITIALISERS.values()))
    parts = [part for W in weights[:-1] for part in (Linear(W), phi)]
    chain = Chain(*parts, Linear(weights[-1][:1]))
    results = train.backpropagate(chain, train.squared_loss, x, jnp.ones(1))
    length = lambda a: jnp.sqrt(jnp.square(a).sum())
    sizes = jnp.stack([length(layer.W) for layer in results.gradient.layers[::2]])
    return (
        sizes,
        jnp.stack([length(delta) for delta in results.deltas[:-1:2]]),
        jnp.abs(results.deltas[-1][0]),
    )


@claim(
    "L10-1.4-vanishing",
    title="Gradients that vanish with depth",
    kind="experiment",
    of=("train.backpropagate", "layers.sigmoid", "layers.tanh", "layers.relu", "layers.he"),
    cites="Hochreiter 1991; Glorot & Bengio 2010; He et al. 2015",
)
def vanishing(key):
    r"""In the backward pass each sigmoid layer multiplies by $\sigma' \le \frac14$, so that
    $\|\delta_0\| \le (\frac14)^L \prod_\ell \|W_\ell\|\, \|\delta_L\|$: through 20 layers the
    gradient of the first weights is negligible compared with that of the last. Tanh, whose slope is
    1 only at 0, loses less; ReLU with He initialisation preserves it.
    """
    L, runs, d = 20, 10, 32
    keys = jr.split(key, runs * (L + 1)).reshape(runs, L + 1)
    weights = {
        name: jax.vmap(jax.vmap(lambda key, initialiser=initialiser: initialiser(key, (d, d))))(
            keys
        )
        for name, (_, initialiser) in INITIALISERS.items()
    }
    x = jr.normal(jr.fold_in(key, 1), (runs, d))
    every = jax.vmap(jax.vmap(gradient_norms, in_axes=(0, None, 0)), in_axes=(0, 0, None))
    results = every(jnp.stack(list(weights.values())), jnp.eye(3), x)
    gradients = {name: [np.asarray(a[i]) for a in results] for i, name in enumerate(INITIALISERS)}
    ratio = {name: np.median(sizes[:, 0] / sizes[:, -1]) for name, (sizes, *_) in gradients.items()}
    tops = np.linalg.norm(np.asarray(weights["sigmoid"]), 2, axis=(2, 3))
    tops[:, -1] = np.linalg.norm(
        np.asarray(weights["sigmoid"])[:, -1, 0], axis=1
    )  # only one row of the last map is used
    after = np.cumprod(tops[:, ::-1], axis=1)[:, ::-1]  # ‖W_ℓ‖ … ‖W_L‖
    bound = 0.25 ** (L - np.arange(L + 1)) * after
    share = lambda name: gradients[name][1] / (bound * gradients[name][2][:, None])
    ell = np.arange(L + 1)
    back = {name: deltas for name, (_, deltas, _) in gradients.items()}
    decay = lambda name: np.median(back[name][:, 0] / back[name][:, -1])
    return Verdict(
        at_most("sigmoid: ‖∇W₀‖ / ‖∇W_L‖, median of 10", ratio["sigmoid"], 1e-6),
        at_most("tanh, weights uniform up to 1/√n: ‖δ₀‖ / ‖δ_L‖", decay("tanh"), 1e-3),
        between("ReLU with He's weights", ratio["ReLU"], 1e-2, 1e2),
        at_most("sigmoid: ‖δ_ℓ‖ over (¼)^(L−ℓ) ∏‖W‖ ‖δ_L‖", share("sigmoid"), 1.0, slack=1e-12),
        refuted(at_most("ReLU: the same", share("ReLU"), 1.0, slack=1e-12)),
        figure=Panel(
            "layer, from the input",
            "‖δ‖ there over ‖δ‖ at the last, median",
            log="y",
            lines={name: (ell, np.median(d / d[:, -1:], axis=0)) for name, d in back.items()},
        ),
    )
