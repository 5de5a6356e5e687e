"""The multi-layer perceptron and its options (§2.2 to §2.5)."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import normal

from thetax import tree
from thetax.layers import (
    BatchNorm,
    Chain,
    Concat,
    Dropout,
    LayerNorm,
    Linear,
    Residual,
    WeightNorm,
    glorot,
    has_batch_norm,
    sigmoid,
    tanh,
)
from thetax.models import MLP

pytestmark = pytest.mark.usefixtures("strict")


def kinds(net):
    return [type(layer).__name__ for layer in net.body.layers]


def test_plain_network_is_the_loop():
    """A₃ φ A₂ φ A₁ by hand; an image is flattened in row order."""
    net = MLP.init(6, 5, 4, 3, activation=tanh, key=jr.key(0))
    first, _, second, _, last = net.body.layers
    x = normal(0, 2, 3)
    h = np.tanh(np.asarray(first.W) @ np.asarray(x).ravel())
    h = np.tanh(np.asarray(second.W) @ h)
    assert jnp.allclose(net(x), np.asarray(last.W) @ h, atol=1e-6)
    assert jnp.array_equal(net(x), net(x.ravel()))
    assert tree.size(net) == 6 * 5 + 5 + 5 * 4 + 4 + 4 * 3 + 3


def test_no_hidden_layer_is_linear():
    net = MLP.init(3, 2, key=jr.key(0))
    x = normal(0, 3)
    assert kinds(net) == ["Linear"]
    assert jnp.array_equal(net(x), net.body.layers[0](x))


def test_options_choose_the_layers():
    """Each option adds its layer where it says, and nothing else."""
    make = lambda **options: kinds(MLP.init(3, 4, 4, 2, key=jr.key(0), **options))
    assert make() == ["Linear", "Pointwise"] * 2 + ["Linear"]
    assert make(dropout=0.5) == ["Linear", "Pointwise", "Dropout"] * 2 + ["Linear"]
    assert make(dropout=(0.0, 0.5)) == [
        "Linear",
        "Pointwise",
        "Linear",
        "Pointwise",
        "Dropout",
        "Linear",
    ]
    assert make(normalise=LayerNorm.init) == ["Linear", "LayerNorm", "Pointwise"] * 2 + ["Linear"]
    assert make(affine=WeightNorm.init) == ["WeightNorm", "Pointwise"] * 2 + ["WeightNorm"]
    assert make(connect=Residual) == ["Residual"] * 2 + ["Linear"]
    assert make(connect=Concat) == ["Concat"] * 2 + ["Linear"]
    assert has_batch_norm(MLP.init(3, 4, 2, normalise=BatchNorm.init, key=jr.key(0)))


def test_dropout_rates_are_those_given():
    net = MLP.init(3, 4, 5, 2, dropout=(0.1, 0.7), key=jr.key(0))
    assert [layer.p for layer in net.body.layers if isinstance(layer, Dropout)] == [0.1, 0.7]


def test_residual_network_with_zero_weights_is_linear():
    """Blocks of equal width are the identity at zero weights, so the network is its last layer."""
    net = MLP.init(4, 4, 4, 2, activation=sigmoid, connect=Residual, key=jr.key(0))
    *blocks, last = net.body.layers
    still = MLP(Chain(*map(tree.zeros_like, blocks), last))
    x = normal(0, 4)
    assert jnp.allclose(still(x), last(x), atol=1e-6)
    assert MLP.init(3, 4, 2, connect=Residual, key=jr.key(0)).body.layers[0].skip.W.shape == (4, 3)


def test_law_and_key_are_heeded():
    """The weights are the law's; layers are drawn apart; another key draws another network."""
    net = MLP.init(200, 300, 300, 2, initialiser=glorot, key=jr.key(0))
    first, second = net.body.layers[0].W, net.body.layers[2].W
    assert abs(first.var() * (200 + 300) / 2 - 1) < 4 * np.sqrt(2 / first.size)
    assert abs(second.var() * 300 - 1) < 4 * np.sqrt(2 / second.size)
    square = MLP.init(5, 5, 5, 5, key=jr.key(0)).body.layers
    assert not jnp.array_equal(square[0].W, square[2].W)
    assert not jnp.array_equal(MLP.init(5, 5, key=jr.key(1)).body.layers[0].W, square[0].W)


@pytest.mark.parametrize("sizes", [(), (3,), (3, 0, 2), (3, -1, 2)])
def test_bad_widths_are_refused(sizes):
    with pytest.raises(ValueError, match="all positive"):
        MLP.init(*sizes, key=jr.key(0))


@pytest.mark.parametrize("rates", [(0.5,), (0.5, 0.5, 0.5), ()])
def test_dropout_rates_must_match_the_hidden_layers(rates):
    with pytest.raises(ValueError, match=f"got {len(rates)} for 2 hidden layers"):
        MLP.init(3, 4, 4, 2, dropout=rates, key=jr.key(0))


def test_a_bad_dropout_rate_is_refused():
    with pytest.raises(ValueError, match=r"in \[0, 1\)"):
        MLP.init(3, 4, 2, dropout=1.0, key=jr.key(0))


def test_tanh_network_is_a_sigmoid_network():
    """2.5-tanh-equivalence: vᵀtanh(Wx + b) = 2vᵀσ(2Wx + 2b) − 1ᵀv."""
    net = MLP.init(3, 6, 1, activation=tanh, key=jr.key(0))
    x = normal(1, 3)
    first, _, last = net.body.layers
    twin = Chain(
        Linear(2 * first.W, 2 * first.b), sigmoid, Linear(2 * last.W, last.b - last.W.sum(axis=1))
    )
    assert jnp.allclose(twin(x), net(x), atol=1e-5)


def test_networks_of_one_make_form_a_vector_space():
    """Two draws can be added leaf by leaf, whatever the options: functions are shared, not made
    anew.
    """
    make = lambda seed: MLP.init(
        3, 4, 4, 2, connect=Residual, normalise=LayerNorm.init, key=jr.key(seed)
    )
    middle = tree.axpy(0.5, make(0), jax.tree.map(lambda leaf: 0.5 * leaf, make(1)))
    assert middle(jnp.ones(3)).shape == (2,)


def test_dropout_spares_the_straight_way():
    """Blocks of zero weights are the identity with dropout too: only the bent way is dropped."""
    net = MLP.init(6, *[6] * 5, 2, connect=Residual, dropout=0.5, key=jr.key(0))
    still = Chain(*jax.tree.map(jnp.zeros_like, net.body.layers[:-1]))
    x = jnp.arange(6.0)
    assert jnp.array_equal(still(x, key=jr.key(1)), x)
