"""The same numbers as PyTorch: convolution, pooling and recurrence, values and gradients, on copied
weights.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thetax.layers import (
    GRU,
    LSTM,
    AdaptivePool,
    AveragePool,
    Bidirectional,
    Convolution,
    Elman,
    MaxPool,
    Recurrent,
    StackedCells,
    unroll,
)

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.peer
PRECISION = [(np.float32, 1e-5), (np.float64, 1e-10)]


@pytest.fixture(params=PRECISION, ids=["float32", "float64"])
def precision(request):
    dtype, tolerance = request.param
    with jax.enable_x64(dtype == np.float64):
        yield dtype, tolerance


def normal(seed, dtype, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def same(ours, theirs, tolerance):
    theirs = theirs.detach().numpy()
    np.testing.assert_allclose(
        ours, theirs, rtol=tolerance, atol=tolerance * max(1.0, np.abs(theirs).max())
    )


@pytest.mark.parametrize(
    ("space", "window", "how", "padding"),
    [
        ((9,), (3,), {"boundary": "same"}, 1),
        ((9,), (4,), {"boundary": "valid", "stride": 2}, 0),
        ((8, 9), (3, 3), {"boundary": "same", "stride": 2}, 1),
        ((8, 9), (7, 7), {"boundary": "same", "stride": 2}, 3),
        ((8, 9), (3, 2), {"boundary": "valid", "dilation": (2, 3)}, 0),
        ((8, 9), (3, 3), {"boundary": "same", "groups": 2}, 1),
        ((8, 9), (3, 3), {"boundary": "circular", "groups": 4}, 1),
    ],
    ids=str,
)
def test_convolution(space, window, how, padding, precision):
    dtype, tolerance = precision
    groups = how.get("groups", 1)
    kind = torch.nn.Conv1d if len(space) == 1 else torch.nn.Conv2d
    named = {name: how[name] for name in ("stride", "dilation", "groups") if name in how}
    mode = "circular" if how["boundary"] == "circular" else "zeros"
    theirs = kind(4, 8, window, padding=padding, padding_mode=mode, **named).to(
        torch.tensor(np.zeros(1, dtype)).dtype
    )
    W = normal(0, dtype, 8, 4 // groups, *window)
    b = normal(1, dtype, 8)
    xs = normal(2, dtype, 3, 4, *space)
    with torch.no_grad():
        theirs.weight.copy_(torch.tensor(W))
        theirs.bias.copy_(torch.tensor(b))
    tensor = torch.tensor(xs, requires_grad=True)
    out = theirs(tensor)
    weights = normal(3, dtype, *out.shape)
    (out * torch.tensor(weights)).sum().backward()
    layer = Convolution(jnp.asarray(W), jnp.asarray(b), **how)
    same(jax.vmap(layer)(jnp.asarray(xs)), out, tolerance)
    total = lambda layer, xs: jnp.vdot(jax.vmap(layer)(xs), weights)
    slope, dx = jax.grad(total, argnums=(0, 1))(layer, jnp.asarray(xs))
    same(slope.W, theirs.weight.grad, tolerance)
    same(slope.b, theirs.bias.grad, tolerance)
    same(dx, tensor.grad, tolerance)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (MaxPool((2, 2)), torch.nn.MaxPool2d(2)),
        (MaxPool((3, 3), (2, 2), "same"), torch.nn.MaxPool2d(3, stride=2, padding=1)),
        (AveragePool((2, 3), (1, 2)), torch.nn.AvgPool2d((2, 3), stride=(1, 2))),
        (AdaptivePool((3, 2)), torch.nn.AdaptiveAvgPool2d((3, 2))),
        (AdaptivePool((3, 2), jnp.max), torch.nn.AdaptiveMaxPool2d((3, 2))),
    ],
    ids=["max", "max same", "average", "adaptive mean", "adaptive max"],
)
def test_pools(ours, theirs, precision):
    dtype, tolerance = precision
    xs = normal(0, dtype, 3, 4, 7, 8)
    tensor = torch.tensor(xs, requires_grad=True)
    out = theirs(tensor)
    weights = normal(1, dtype, *out.shape)
    (out * torch.tensor(weights)).sum().backward()
    same(jax.vmap(ours)(jnp.asarray(xs)), out, tolerance)
    same(
        jax.grad(lambda xs: jnp.vdot(jax.vmap(ours)(xs), weights))(jnp.asarray(xs)),
        tensor.grad,
        tolerance,
    )


def copied(net, layer, direction=""):
    """Our cell with the weights of a layer of theirs."""
    part = lambda name: jnp.asarray(getattr(net, f"{name}_l{layer}{direction}").detach().numpy())
    U = part("weight_hh")
    V = part("weight_ih")
    b = part("bias_ih")
    c = part("bias_hh")
    if isinstance(net, torch.nn.GRU):
        m = U.shape[1]
        return GRU(U, V, b + c.at[2 * m :].set(0), c[2 * m :])
    return (LSTM if isinstance(net, torch.nn.LSTM) else Elman)(U, V, b + c)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_recurrence(kind, precision):
    """Two layers, in batches, and the gradients of every weight."""
    dtype, tolerance = precision
    torch.manual_seed(0)
    net = getattr(torch.nn, kind)(3, 5, num_layers=2, batch_first=True).to(
        torch.tensor(np.zeros(1, dtype)).dtype
    )
    xs = normal(0, dtype, 4, 7, 3)
    tensor = torch.tensor(xs, requires_grad=True)
    out, last = net(tensor)
    weights = normal(1, dtype, *out.shape)
    (out * torch.tensor(weights)).sum().backward()
    cells = StackedCells(copied(net, 0), copied(net, 1))
    states, ys = jax.vmap(lambda xs: unroll(cells, xs))(jnp.asarray(xs))
    same(ys, out, tolerance)
    shown = states[1].h if kind == "LSTM" else states[1]
    same(shown, (last[0] if kind == "LSTM" else last)[1], tolerance)
    total = lambda cells, xs: jnp.vdot(jax.vmap(Recurrent(cells))(xs), weights)
    slope, dx = jax.grad(total, argnums=(0, 1))(cells, jnp.asarray(xs))
    same(dx, tensor.grad, tolerance)
    for layer, cell in enumerate(slope.cells):
        same(cell.U, getattr(net, f"weight_hh_l{layer}").grad, tolerance)
        same(cell.V, getattr(net, f"weight_ih_l{layer}").grad, tolerance)
        same(cell.b, getattr(net, f"bias_ih_l{layer}").grad, tolerance)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_both_ways_with_lengths(kind, precision):
    """A packed batch of theirs is a mask of ours."""
    dtype, tolerance = precision
    torch.manual_seed(1)
    net = getattr(torch.nn, kind)(3, 4, bidirectional=True, batch_first=True).to(
        torch.tensor(np.zeros(1, dtype)).dtype
    )
    lengths = [6, 4, 1]
    xs = normal(0, dtype, 3, 6, 3)
    pack = torch.nn.utils.rnn.pack_padded_sequence(torch.tensor(xs), lengths, batch_first=True)
    out, _ = torch.nn.utils.rnn.pad_packed_sequence(net(pack)[0], batch_first=True)
    layer = Bidirectional(copied(net, 0), copied(net, 0, "_reverse"))
    masks = jnp.arange(6)[None] < jnp.array(lengths)[:, None]
    same(jax.vmap(lambda xs, mask: layer(xs, mask=mask))(jnp.asarray(xs), masks), out, tolerance)
