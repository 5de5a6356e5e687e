"""The set abstraction layer has the numbers of PyTorch Geometric's `PointNetConv`, values and
gradients, on copied weights and the same neighbours.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.layers import SetAbstraction, ball_query, farthest_points

torch = pytest.importorskip("torch")
torch_geometric = pytest.importorskip("torch_geometric")
pytestmark = pytest.mark.peer
FEATURES, WIDTHS = 2, (7, 5)


def conv_of(layer):
    """The layer as theirs; weights are copied last, as the constructor draws them anew."""
    linears = [torch.nn.Linear(ours.W.shape[1], ours.W.shape[0]) for ours in layer.mlp.layers]
    network = torch.nn.Sequential(*[f for linear in linears for f in (linear, torch.nn.ReLU())])
    conv = torch_geometric.nn.PointNetConv(network, add_self_loops=False)
    for ours, theirs in zip(layer.mlp.layers, linears):
        theirs.weight.data = torch.tensor(np.array(ours.W))
        theirs.bias.data = torch.tensor(np.array(ours.b))
    return conv


@pytest.mark.parametrize("seed", range(20))
def test_set_abstraction_is_point_net_conv(seed):
    n, n_centres, k = 12 + seed, 4, 3 + seed % 4
    layer = SetAbstraction.init(
        3 + FEATURES, *WIDTHS, n_centres=n_centres, radius=1.5, k=k, key=jr.key(seed)
    )
    rng = np.random.default_rng(seed)
    layer = jax.tree.map(lambda a: a + 0.1 * rng.normal(size=a.shape).astype(a.dtype), layer)
    x = rng.normal(size=(n, 3 + FEATURES)).astype(np.float32)
    x[1] = x[0]  # doubled points
    positions = jnp.asarray(x[:, :3])
    centres = np.array(farthest_points(positions, n_centres))
    neighbours, found = ball_query(positions, positions[centres], radius=1.5, k=k)
    targets, columns = np.nonzero(np.asarray(found))
    edges = torch.tensor(np.stack([np.asarray(neighbours)[targets, columns], targets]))
    conv = conv_of(layer)
    features = torch.tensor(x[:, 3:], requires_grad=True)
    all_positions = torch.tensor(x[:, :3], requires_grad=True)
    theirs = conv((features, None), (all_positions, all_positions[centres]), edges)
    weights = rng.normal(size=theirs.shape).astype(np.float32)
    (theirs * torch.tensor(weights)).sum().backward()

    def value(layer, x):
        y = layer(x)[:, 3:]
        return jnp.vdot(weights, y), y

    (_, ours), (slope, slope_x) = jax.value_and_grad(lambda both: value(*both), has_aux=True)(
        (layer, jnp.asarray(x))
    )
    same = lambda a, b: np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-5, atol=1e-5)
    same(ours, theirs)
    # of two equal points ours share the gradient of the maximum, theirs give it to one
    merge = lambda a: np.concatenate([a[:1] + a[1:2], a[2:]])
    theirs_x = torch.cat([all_positions.grad, features.grad], dim=1).numpy()
    np.testing.assert_allclose(merge(np.asarray(slope_x)), merge(theirs_x), rtol=1e-5, atol=1e-5)
    linears = [module for module in conv.local_nn if isinstance(module, torch.nn.Linear)]
    for a, b in zip(slope.mlp.layers, linears):
        same(a.W, b.weight.grad)
        same(a.b, b.bias.grad)
