"""The same numbers as PyTorch: layers, losses and optimiser trajectories, on the same weights and
data.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from thetax.core import predict, run
from thetax.layers import (
    BatchNorm,
    LayerNorm,
    Linear,
    Residual,
    WeightNorm,
    gelu,
    leaky_relu,
    softplus,
)
from thetax.models import MLP
from thetax.train import binary_cross_entropy, cross_entropy, descend, smooth_labels, weight_decay

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.peer
F = torch.nn.functional


def rows(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def close(ours, theirs, tolerance=2e-5):
    np.testing.assert_allclose(
        np.asarray(ours), theirs.detach().numpy(), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (gelu, F.gelu),
        (leaky_relu, F.leaky_relu),
        (softplus, F.softplus),
        (jax.nn.sigmoid, torch.sigmoid),
    ],
)
def test_activations_and_their_slopes(ours, theirs):
    z = np.linspace(-8, 8, 100).astype(np.float32)
    tensor = torch.tensor(z, requires_grad=True)
    theirs(tensor).sum().backward()
    close(ours(jnp.asarray(z)), theirs(tensor))
    np.testing.assert_allclose(
        jax.vmap(jax.grad(ours))(jnp.asarray(z)), tensor.grad.numpy(), atol=1e-5
    )


def test_layer_norm():
    xs = rows(0, 6, 5)
    gamma = rows(1, 5)
    mu = rows(2, 5)
    theirs = F.layer_norm(torch.tensor(xs), (5,), torch.tensor(gamma), torch.tensor(mu), 1e-5)
    close(jax.vmap(LayerNorm(jnp.asarray(gamma), jnp.asarray(mu)))(jnp.asarray(xs)), theirs)


@pytest.mark.parametrize("shape", [(16, 5), (16, 5, 4, 3)], ids=["features", "images"])
def test_batch_norm(shape):
    xs = rows(0, *shape)
    gamma = rows(1, 5)
    mu = rows(2, 5)
    theirs = F.batch_norm(
        torch.tensor(xs), None, None, torch.tensor(gamma), torch.tensor(mu), training=True
    )
    close(predict(BatchNorm(jnp.asarray(gamma), jnp.asarray(mu)), jnp.asarray(xs)), theirs)


def test_weight_norm_and_its_gradients():
    V = rows(0, 4, 3)
    gamma = rows(1, 4)
    b = rows(2, 4)
    x = rows(3, 3)
    layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 4))
    with torch.no_grad():
        layer.parametrizations.weight.original0.copy_(torch.tensor(gamma[:, None]))
        layer.parametrizations.weight.original1.copy_(torch.tensor(V))
        layer.bias.copy_(torch.tensor(b))
    layer(torch.tensor(x)).square().sum().backward()
    ours = WeightNorm(jnp.asarray(V), jnp.asarray(gamma), jnp.asarray(b))
    grad = jax.grad(lambda f: jnp.square(f(jnp.asarray(x))).sum())(ours)
    close(ours(jnp.asarray(x)), layer(torch.tensor(x)))
    close(grad.V, layer.parametrizations.weight.original1.grad, 1e-4)
    close(grad.gamma, layer.parametrizations.weight.original0.grad[:, 0], 1e-4)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy(smoothing):
    logits = rows(0, 8, 5)
    ys = np.arange(8) % 5
    theirs = F.cross_entropy(torch.tensor(logits), torch.tensor(ys), label_smoothing=smoothing)
    objective = smooth_labels(cross_entropy, 5, strength=smoothing)
    close(objective(lambda z: z, (jnp.asarray(logits), jnp.asarray(ys, jnp.int32))), theirs)


def test_binary_cross_entropy():
    logits = 20 * rows(0, 9, 1)
    ys = (np.arange(9) % 2).astype(np.float32)
    theirs = F.binary_cross_entropy_with_logits(torch.tensor(logits[:, 0]), torch.tensor(ys))
    close(binary_cross_entropy(lambda z: z, (jnp.asarray(logits), jnp.asarray(ys))), theirs)


OPTIMISERS = {
    "sgd": (optax.sgd(0.1), lambda p: torch.optim.SGD(p, 0.1), 0.0),
    "heavy ball": (
        optax.sgd(0.05, momentum=0.9),
        lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
        0.0,
    ),
    "nesterov": (
        optax.sgd(0.05, momentum=0.9, nesterov=True),
        lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True),
        0.0,
    ),
    "adam": (optax.adam(0.01), lambda p: torch.optim.Adam(p, 0.01), 0.0),
    "adam, coupled decay": (
        optax.adam(0.01),
        lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1),
        0.1,
    ),
    "adamw": (
        optax.adamw(0.01, weight_decay=0.1),
        lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1),
        0.0,
    ),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_fifty_steps_of_a_network(name):
    """A 4-8-3 tanh network follows torch's trajectory for fifty steps."""
    optimiser, theirs, decay = OPTIMISERS[name]
    xs = rows(0, 50, 16, 4)
    ys = np.random.default_rng(1).integers(0, 3, (50, 16))
    model = MLP.init(4, 8, 3, activation=jnp.tanh, key=jr.key(0))
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    linears = [layer for layer in model.body.layers if isinstance(layer, Linear)]
    with torch.no_grad():
        for ours, copy in zip(linears, (net[0], net[2])):
            copy.weight.copy_(torch.tensor(np.asarray(ours.W)))
            copy.bias.copy_(torch.tensor(np.asarray(ours.b)))
    other = theirs(net.parameters())
    for x, y in zip(xs, ys):
        other.zero_grad()
        F.cross_entropy(net(torch.tensor(x)), torch.tensor(y)).backward()
        other.step()
    iteration = descend(weight_decay(cross_entropy, strength=decay), optimiser)
    state, _ = run(iteration, model, (jnp.asarray(xs), jnp.asarray(ys, jnp.int32)), key=jr.key(0))
    close(state.model.body.layers[0].W, net[0].weight, 2e-4)
    close(state.model.body.layers[2].b, net[2].bias, 2e-4)


def test_residual_network():
    """The library's residual block is torch's x + φ(Wx + b) − φ(0) with a projection."""
    model = MLP.init(3, 5, 2, activation=jax.nn.sigmoid, connect=Residual, key=jr.key(0))
    block, last = model.body.layers
    W, b, V = (
        torch.tensor(np.asarray(a))
        for a in (block.inner.layers[0].W, block.inner.layers[0].b, block.skip.W)
    )
    x = torch.tensor(rows(0, 3))
    hidden = V @ x + torch.sigmoid(W @ x + b) - 0.5
    close(
        model(jnp.asarray(x.numpy())),
        torch.tensor(np.asarray(last.W)) @ hidden + torch.tensor(np.asarray(last.b)),
    )
