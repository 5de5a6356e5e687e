"""§8.1: the effect of the initialisation on a deep network."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ... import explain, layers, train
from ...core import run
from ...plot import Chart, Panel
from ..engine.check import at_least, at_most, between, close, equal
from ..engine.claim import Verdict, claim

DEPTH, WIDTH = 20, 256
INITIALISERS = {
    "σ = 0.01": lambda: layers.gaussian(0.01),
    "σ = 1": lambda: layers.gaussian(1.0),
    "LeCun": lambda: layers.lecun,
    "Glorot": lambda: layers.glorot,
    "He": lambda: layers.he,
    "orthogonal": lambda: layers.orthogonal,
}
AGAINST = train.batch_mean(lambda prediction, delta: jnp.vdot(prediction, delta))  # with gradient δ
ACTIVATIONS = {
    "linear": lambda h: layers.identity(h),
    "tanh": lambda h: layers.tanh(h),
    "ReLU": lambda h: layers.relu(h),
}


def _moments(laws, keys, xs):
    """The second moments of activations and of backpropagated signals, by initialiser and
    activation, `seeds depth`.
    """
    names = [(initialiser, phi) for initialiser in laws for phi in ACTIVATIONS]

    def step(hs, item):
        key, probes = item
        linear_layers = {
            name: layers.Linear.init(WIDTH, WIDTH, initialiser=initialiser, key=key)
            for name, initialiser in laws.items()
        }
        hs = {
            (initialiser, phi): ACTIVATIONS[phi](
                jax.vmap(linear_layers[initialiser])(hs[initialiser, phi])
                + probes[initialiser, phi]
            )
            for initialiser, phi in names
        }
        return hs, {name: jnp.mean(h**2) for name, h in hs.items()}

    def one(key, xs):
        probes = {name: jnp.zeros((DEPTH, *xs.shape)) for name in names}
        forward = lambda probes: jax.lax.scan(
            step, dict.fromkeys(names, xs), (jr.split(key, DEPTH), probes)
        )
        hs, back, activations = jax.vjp(forward, probes, has_aux=True)
        delta = jr.normal(jr.fold_in(key, 1), xs.shape)
        (through,) = back(dict.fromkeys(hs, delta))
        return activations, {name: jnp.mean(d**2, axis=(1, 2)) for name, d in through.items()}

    forward, backward = jax.jit(lambda keys, xs: jax.lax.map(lambda key: one(key, xs), keys))(
        keys, xs
    )
    return {name: (np.asarray(forward[name]), np.asarray(backward[name])) for name in names}


class Deep(eqx.Module):
    """Equal layers in one scan, and a linear output layer."""

    hidden: layers.Linear  # stacked along a first axis
    last: layers.Linear

    @classmethod
    def init(cls, width, k, *, initialiser, key):
        """All layers drawn by one initialiser."""
        make = lambda key: layers.Linear.init(width, width, initialiser=initialiser, key=key)
        key_last, key = jr.split(key)
        return cls(
            jax.vmap(make)(jr.split(key, DEPTH)),
            layers.Linear.init(width, k, initialiser=initialiser, key=key_last),
        )

    def __call__(self, x):
        return self.last(
            jax.lax.scan(lambda h, layer: (layers.relu(layer(h)), None), x, self.hidden)[0]
        )


def _trained(laws, keys, *, width):
    """The losses over 200 steps on two classes of 32 examples, `initialisers seeds steps`."""
    iteration = train.descend(train.cross_entropy, optax.sgd(0.05))

    def one(net, key):
        ys = jnp.arange(32) % 2
        xs = jr.normal(key, (32, width)) + jnp.where(ys == 0, 0.5, -0.5)[:, None]
        batches = jax.tree.map(lambda a: jnp.broadcast_to(a, (200, *a.shape)), (xs, ys))
        return run(iteration, net, batches, key=key)[1][1].loss

    def all_laws(keys):
        nets = [
            jax.vmap(
                lambda key, initialiser=initialiser: Deep.init(
                    width, 2, initialiser=initialiser, key=key
                )
            )(keys)
            for initialiser in laws
        ]
        return jax.vmap(jax.vmap(one), (0, None))(
            jax.tree.map(lambda *a: jnp.stack(a), *nets), keys
        )

    return np.asarray(jax.jit(all_laws)(keys))


def _by_library(key, xs):
    """Second moments in the He-initialised network of the key: by the library, and by NumPy."""
    parts = [
        layers.Linear.init(WIDTH, WIDTH, initialiser=layers.he, key=k) for k in jr.split(key, DEPTH)
    ]
    chain = layers.Chain(*[part for layer in parts for part in (layer, layers.relu)])
    statistics = explain.activation_statistics(chain, xs)
    back = explain.gradient_norms(AGAINST, chain, (xs, jr.normal(jr.fold_in(key, 1), xs.shape)))
    h = np.asarray(xs)
    by_hand = []
    for layer in parts:
        h = np.maximum(h @ np.asarray(layer.W).T, 0)
        by_hand.append(np.mean(h**2))
    return (statistics.mean**2 + statistics.std**2)[1::2], back.outputs[::2] ** 2 / WIDTH, by_hand


@claim(
    "8.1-init-depth",
    title="Initialisation decides whether a deep network can learn",
    kind="experiment",
    of=(
        "layers.he",
        "layers.lecun",
        "layers.glorot",
        "layers.orthogonal",
        "layers.gaussian",
        "explain.activation_statistics",
        "explain.gradient_norms",
    ),
    cites="Glorot & Bengio 2010; He et al. 2015",
)
def depth(key, scale):
    r"""Through $L$ ReLU layers the second moment is multiplied by $( rac{n\sigma^2}{2})^L$: He
    initialisation preserves it, LeCun's loses the factor $2^L$, and a fixed $\sigma$ makes it
    vanish or explode, forward and backward; with vanishing signals the network does not learn.
    """
    key_x, key_nets, key_train = jr.split(key, 3)
    xs = jr.normal(key_x, (4, WIDTH))
    keys = jr.split(key_nets, 10)
    laws = {name: initialiser() for name, initialiser in INITIALISERS.items()}
    orthogonal = {"orthogonal": laws.pop("orthogonal")}
    seen = _moments(laws, keys, xs) | _moments(orthogonal, keys[: 10 if scale == "full" else 2], xs)
    before = float(jnp.mean(xs**2))
    mean = lambda moments: float(np.exp(np.log(moments).mean()))  # geometric mean over the seeds
    there = {name: mean(forward[:, -1] / before) for name, (forward, _) in seen.items()}
    back = {name: mean(backward[:, 0] / backward[:, -1]) for name, (_, backward) in seen.items()}
    lens, lens_back, by_hand = _by_library(keys[0], xs)
    width = WIDTH if scale == "full" else 32
    fixed, he = _trained([laws["σ = 0.01"], laws["He"]], jr.split(key_train, 5), width=width)
    return Verdict(
        between("ReLU, He: E h² after 20 layers over before", there["He", "ReLU"], 0.3, 3.0),
        between("ReLU, He: the signal back through 19 layers", back["He", "ReLU"], 0.3, 3.0),
        between("ReLU, LeCun, × 2²⁰", there["LeCun", "ReLU"] * 2**DEPTH, 1 / 3, 3.0),
        between(
            "ReLU, LeCun, backward, × 2¹⁹", back["LeCun", "ReLU"] * 2 ** (DEPTH - 1), 1 / 3, 3.0
        ),
        at_most(
            "ReLU, σ = 0.01: forward and backward",
            [there["σ = 0.01", "ReLU"], back["σ = 0.01", "ReLU"]],
            1e-10,
        ),
        at_least(
            "ReLU, σ = 1: forward and backward",
            [there["σ = 1", "ReLU"], back["σ = 1", "ReLU"]],
            1e10,
        ),
        between("linear, LeCun", there["LeCun", "linear"], 1 / 3, 3.0),
        close(
            "linear, orthogonal: forward and backward",
            [there["orthogonal", "linear"], back["orthogonal", "linear"]],
            [1.0, 1.0],
            tolerance=1e-10,
        ),
        between("tanh, σ = 1 saturates: E h²", there["σ = 1", "tanh"] * before, 0.8, 1.0),
        at_least("and its backward signal explodes", back["σ = 1", "tanh"], 1e10),
        equal(
            "Glorot initialisation is LeCun's in a square layer",
            there["Glorot", "ReLU"],
            there["LeCun", "ReLU"],
        ),
        close(
            "He, one seed: E h² of each layer, by NumPy",
            seen["He", "ReLU"][0][0],
            by_hand,
            tolerance=1e-10,
        ),
        close("E h² by explain.activation_statistics", lens, by_hand, tolerance=1e-10),
        close(
            "the signal by explain.gradient_norms",
            lens_back,
            seen["He", "ReLU"][1][0],
            tolerance=1e-10,
        ),
        at_least(
            "seeds of 5 in which 200 steps from He initialisation reach a lower loss",
            np.sum(he[:, -1] < fixed[:, -1]),
            5,
        ),
        figure=_figure(seen, before, he, fixed, width),
    )


def _figure(seen, before, he, fixed, width):
    ell = np.arange(1, DEPTH + 1)
    t = np.arange(1, he.shape[1] + 1)
    names = ("He", "LeCun", "σ = 0.01", "σ = 1")
    moments = {name: np.exp(np.log(seen[name, "ReLU"][0] / before).mean(axis=0)) for name in names}
    promised = np.concatenate(
        [0.5**ell, [np.nan], (0.01**2 * WIDTH / 2.0) ** ell, [np.nan], (WIDTH / 2.0) ** ell]
    )
    places = np.concatenate([ell, [np.nan], ell, [np.nan], ell])
    return Chart(
        Panel(
            "layer",
            "second moment of the activations",
            lines={name: (ell, m) for name, m in moments.items()},
            bounds={"(nσ²/2)ˡ": (places, promised)},
            log="y",
            title="ReLU",
        ),
        Panel(
            "step",
            "training loss",
            lines={"He": (t, np.median(he, axis=0)), "σ = 0.01": (t, fixed.mean(axis=0))},
            title=f"20 layers of {width}",
        ),
    )
