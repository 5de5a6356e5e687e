"""§2.5: networks with one hidden layer, and the classes of functions they form."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy import special

from ... import layers, models, tree
from ...core import predict
from ...layers import Chain, Linear
from ...models import MLP
from ..engine import differences
from ..engine.check import close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim


def _net(key, *sizes, activation=layers.sigmoid):
    """A network with random weights and biases, hence without symmetry."""
    net = MLP.init(*sizes, activation=activation, key=key)
    return tree.axpy(0.5, tree.normal_like(jr.fold_in(key, 1), net), net)


def _weights(net):
    first, _, last = net.body.layers
    return tuple(np.asarray(a) for a in (first.W, first.b, last.W, last.b))


def _unit_by_unit(net, xs):
    """The network as a sum over its units, first to last; a term of 0 does not change it at all."""
    W, b, v, c = _weights(net)
    hidden = [
        special.expit(sum(np.asarray(xs)[:, j] * W[i, j] for j in range(W.shape[1])) + b[i])
        for i in range(len(b))
    ]
    return sum(v[0, i] * h for i, h in enumerate(hidden)) + c[0]


@claim("2.5-mlp", title="One hidden layer", kind="model", of=("models.MLP",))
def one_hidden_layer(key):
    r"""A network with one hidden layer is $g(x) = v^\top \sigma(Wx + b)$ with
    $v, b \in \mathbb{R}^m$ and $W \in \mathbb{R}^{m \times n}$; `models.MLP` adds an output bias.
    """
    net = _net(key, 3, 5, 1)
    x = jr.normal(jr.fold_in(key, 2), (3,))
    W, b, v, c = _weights(net)
    units = [special.expit(sum(W[i, j] * float(x[j]) for j in range(3)) + b[i]) for i in range(5)]
    theta, back = tree.ravel(net)
    value = lambda theta: back(theta)(x)[0]
    numeric = differences.jacobian(value, theta)
    slopes = jax.grad(value)(theta)
    return Verdict(
        close("unit by unit", net(x).item(), sum(v[0, i] * units[i] for i in range(5)) + c[0]),
        close_derivative("gradient by all 26 parameters", slopes, numeric),
        close("gradient by v: the hidden units", back(slopes).body.layers[-1].W[0], units),
        refuted(
            close("without the constant", net(x).item(), v[0] @ np.array(units), tolerance=1e-6)
        ),
    )


@claim(
    "2.5-tanh-sigmoid",
    "2.5-tanh-equivalence",
    title="Tanh networks are sigmoid networks",
    kind="identity",
    of=("models.as_sigmoid", "models.as_tanh", "layers.tanh", "layers.sigmoid"),
)
def tanh_and_sigmoid(key):
    r"""$\tanh z = 2\sigma(2z) - 1$ and $\sigma(z) = \frac12 (1 + \tanh \frac z2)$. So a tanh
    network is a sigmoid network plus a constant,
    $v^\top \tanh(Wx + b) = 2 v^\top \sigma(2Wx + 2b) - 1^\top v$, and conversely; the constant is
    necessary.
    """
    z = np.linspace(-50, 50, 2001)
    tanh = np.asarray(layers.tanh(jnp.asarray(z)))
    sigmoid = np.asarray(layers.sigmoid(jnp.asarray(z)))
    net = _net(key, 3, 6, 2, activation=layers.tanh)
    other = _net(key, 3, 6, 4, 2)
    xs = jr.normal(jr.fold_in(key, 2), (40, 3))
    outputs = lambda model: np.asarray(predict(model, xs))
    W, b, v, c = _weights(net)
    hidden = np.asarray(xs) @ W.T + b
    formula = 2 * special.expit(2 * hidden) @ v.T - v.sum(axis=1) + c
    sigmoid_net = models.as_sigmoid(net)
    tanh_net = models.as_tanh(other)
    names = lambda net: [part.activation.__name__ for part in net.body.layers[1::2]]
    without_constant = MLP(
        Chain(
            *sigmoid_net.body.layers[:-1],
            Linear(sigmoid_net.body.layers[-1].W, net.body.layers[-1].b),
        )
    )
    return Verdict(
        close("tanh z and 2σ(2z) − 1", tanh, 2 * special.expit(2 * z) - 1, tolerance=1e-15),
        close("σ(z) and (1 + tanh(z/2)) / 2", sigmoid, (1 + np.tanh(z / 2)) / 2, tolerance=1e-15),
        close("tanh network as sigmoid network", outputs(sigmoid_net), outputs(net)),
        close("sigmoid network, against the formula", outputs(sigmoid_net), formula),
        close(
            "sigmoid network of two hidden layers as tanh network",
            outputs(tanh_net),
            outputs(other),
        ),
        close(
            "converted to sigmoid and back to tanh",
            outputs(models.as_tanh(sigmoid_net)),
            outputs(net),
        ),
        equal("activations", names(sigmoid_net) + names(tanh_net), ["sigmoid", "tanh", "tanh"]),
        refuted(
            close("without the constant", outputs(without_constant), outputs(net), tolerance=1e-3)
        ),
    )


@claim(
    "2.5-function-class",
    "2.5-class-span",
    title="The class of networks with one hidden layer",
    kind="definition",
    of=("models.widen", "models.add_networks", "models.scale_network"),
)
def function_class(key):
    r"""$G_{n,m} = \{v^\top \sigma(Wx + b)\}$ grows with the width, $G_{n,m} \subset G_{n,m+1}$, and
    the union $G_n = \bigcup_m G_{n,m}$ is the span of its units $\sigma(w^\top x + b)$: sums and
    multiples of networks are networks, of width $m_1 + m_2$ and $m$.
    """
    f = _net(jr.fold_in(key, 3), 3, 4, 1)
    g = _net(jr.fold_in(key, 4), 3, 7, 1)
    xs = jr.normal(jr.fold_in(key, 2), (40, 3))
    outputs = lambda model: np.asarray(predict(model, xs))
    unit = Linear.init(3, 1, key=key)
    widened = models.widen(f, 0, unit)
    total = models.add_networks(f, g)
    by_units = _unit_by_unit(total, xs)
    widths = [
        len(_weights(model)[1]) for model in (f, g, widened, total, models.scale_network(f, -2.5))
    ]
    last = widened.body.layers[-1]
    weight_one = MLP(Chain(*widened.body.layers[:-1], Linear(last.W.at[0, -1].set(1.0), last.b)))
    return Verdict(
        equal(
            "with an extra unit of weight 0, unit by unit",
            _unit_by_unit(widened, xs),
            _unit_by_unit(f, xs),
        ),
        close(
            "with an extra unit of weight 0, called as models (another order of summation)",
            outputs(widened),
            outputs(f),
            tolerance=1e-14,
        ),
        close("f + g", outputs(total), outputs(f) + outputs(g)),
        close("f + g, unit by unit", outputs(total)[:, 0], by_units),
        close("−2.5 f", outputs(models.scale_network(f, -2.5)), -2.5 * outputs(f)),
        equal("widths of f, g, f with an extra unit, f + g, −2.5 f", widths, [4, 7, 5, 11, 4]),
        refuted(
            close("with an extra unit of weight 1", outputs(weight_one), outputs(f), tolerance=1e-3)
        ),
    )
