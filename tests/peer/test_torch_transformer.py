"""The same numbers as PyTorch: attention, encoders and decoders, values and gradients, on copied
weights.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.layers import CAUSAL, FULL, Attention, Mask, dot_product_attention
from thetax.models import TransformerBlock, Trunk

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.peer
PRECISION = [(np.float32, 1e-5), (np.float64, 1e-10)]
KEPT = np.random.default_rng(9).random((5, 7)) < 0.6
KEPT[:, 0] = True


@pytest.fixture(params=PRECISION, ids=["float32", "float64"])
def precision(request):
    dtype, tolerance = request.param
    torch.manual_seed(0)
    with jax.enable_x64(dtype == np.float64):
        yield dtype, tolerance


def normal(seed, dtype, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def of_kind(net, dtype):
    """Theirs in this precision, with no weight at 0 or 1."""
    net = net.to(torch.tensor(np.zeros(1, dtype)).dtype)
    with torch.no_grad():
        for at, weight in enumerate(net.parameters()):
            weight.copy_(
                torch.tensor(
                    0.4 * normal(at, dtype, *weight.shape) + (0.3 if weight.ndim == 1 else 0)
                )
            )
    return net


def same(ours, theirs, tolerance):
    theirs = theirs.detach().numpy()
    np.testing.assert_allclose(
        ours, theirs, rtol=tolerance, atol=tolerance * max(1.0, np.abs(theirs).max())
    )


def of_attention(part, read):
    """Q, K, V and O of theirs, matrix and offset; `read` takes the weight or its gradient."""
    W = read(part.in_proj_weight).chunk(3)
    b = read(part.in_proj_bias).chunk(3)
    return [a for pair in zip(W, b) for a in pair] + [
        read(part.out_proj.weight),
        read(part.out_proj.bias),
    ]


def in_attention(part):
    return [a for layer in (part.Q, part.K, part.V, part.O) for a in (layer.W, layer.b)]


def of_layer(layer, read):
    pair = lambda part: [read(part.weight), read(part.bias)]
    found = [
        *of_attention(layer.self_attn, read),
        *pair(layer.norm1),
        *pair(layer.linear1),
        *pair(layer.linear2),
    ]
    if not hasattr(layer, "multihead_attn"):
        return [*found, *pair(layer.norm2)]
    return [
        *found,
        *pair(layer.norm3),
        *of_attention(layer.multihead_attn, read),
        *pair(layer.norm2),
    ]


def in_block(block):
    pair = lambda part: [part.gamma, part.mu]
    own = [*in_attention(block.attention), *pair(block.norm)]
    own += [
        block.feed.up.W,
        block.feed.up.b,
        block.feed.down.W,
        block.feed.down.b,
        *pair(block.feed_norm),
    ]
    return (
        own if block.cross is None else [*own, *in_attention(block.cross), *pair(block.cross_norm)]
    )


def value(weight):
    return weight.detach()


def slope(weight):
    return weight.grad


def with_weights(model, inside, weights):
    return eqx.tree_at(inside, model, [jnp.asarray(weight.numpy()) for weight in weights])


def stacked(layers, read):
    return [torch.stack(parts) for parts in zip(*(of_layer(layer, read) for layer in layers))]


MASKS = {
    "all": (FULL, {}),
    "causal": (CAUSAL, {"is_causal": True}),
    "pairs": (Mask(allowed=jnp.asarray(KEPT)), {"attn_mask": torch.tensor(KEPT)}),
    "length": (
        Mask(length=jnp.array(4, jnp.int32)),
        {"attn_mask": torch.arange(7)[None].expand(5, 7) < 4},
    ),
}


@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize("name", MASKS)
def test_scaled_dot_product_attention(name, groups, precision):
    dtype, tolerance = precision
    mask, named = MASKS[name]
    s = 5 if name == "causal" else 7  # theirs aligns a causal mask only for as many queries as keys
    q = normal(0, dtype, 5, 4, 3)
    k = normal(1, dtype, s, groups, 3)
    v = normal(2, dtype, s, groups, 6)
    theirs = [torch.tensor(a.swapaxes(0, 1)[None], requires_grad=True) for a in (q, k, v)]
    out = torch.nn.functional.scaled_dot_product_attention(*theirs, **named, enable_gqa=True)
    weights = normal(3, dtype, 5, 4, 6)
    (out[0].transpose(0, 1) * torch.tensor(weights)).sum().backward()
    parts = tuple(jnp.asarray(a) for a in (q, k, v))
    same(dot_product_attention(*parts, mask), out[0].transpose(0, 1), tolerance)
    slopes = jax.grad(lambda parts: jnp.vdot(dot_product_attention(*parts, mask), weights))(parts)
    for ours, tensor in zip(slopes, theirs):
        same(ours, tensor.grad[0].transpose(0, 1), tolerance)


@pytest.mark.parametrize("name", ["all", "pairs"])
def test_multihead_attention(name, precision):
    """Looking at a memory; the weights of each head too."""
    dtype, tolerance = precision
    net = of_kind(torch.nn.MultiheadAttention(8, 2, batch_first=True), dtype)
    x = normal(0, dtype, 5, 8)
    memory = normal(1, dtype, 7, 8)
    weights = normal(2, dtype, 5, 8)
    theirs = [torch.tensor(a[None], requires_grad=True) for a in (x, memory)]
    hidden = None if name == "all" else torch.tensor(~KEPT)
    out, A = net(theirs[0], theirs[1], theirs[1], attn_mask=hidden, average_attn_weights=False)
    (out[0] * torch.tensor(weights)).sum().backward()
    layer = with_weights(
        Attention.init(8, 2, key=jr.key(0)), in_attention, of_attention(net, value)
    )
    mask = MASKS[name][0]
    parts = (jnp.asarray(x), jnp.asarray(memory))
    same(layer(*parts, mask=mask), out[0], tolerance)
    same(layer.weights(*parts, mask=mask), A[0], tolerance)
    total = lambda layer, parts: jnp.vdot(layer(*parts, mask=mask), weights)
    by_weight, by_input = jax.grad(total, argnums=(0, 1))(layer, parts)
    for ours, tensor in zip(by_input, theirs):
        same(ours, tensor.grad[0], tolerance)
    for ours, tensor in zip(in_attention(by_weight), of_attention(net, slope)):
        same(ours, tensor, tolerance)


@pytest.mark.parametrize("norms", ["before", "after"])
def test_encoder_layer_in_batches(norms, precision):
    """A mask of padding, one length for each sentence."""
    dtype, tolerance = precision
    how = {"dropout": 0.0, "batch_first": True, "norm_first": norms == "before"}
    net = of_kind(torch.nn.TransformerEncoderLayer(8, 2, 12, **how), dtype)
    xs = normal(0, dtype, 3, 5, 8)
    lengths = [5, 3, 1]
    out = net(
        torch.tensor(xs),
        src_key_padding_mask=torch.arange(5)[None] >= torch.tensor(lengths)[:, None],
    )
    block = with_weights(
        TransformerBlock.init(8, 2, 12, norms=norms, key=jr.key(0)), in_block, of_layer(net, value)
    )
    ours = jax.vmap(lambda x, n: block(x, mask=Mask(length=n)))(
        jnp.asarray(xs), jnp.array(lengths, jnp.int32)
    )
    for at, n in enumerate(lengths):
        same(ours[at, :n], out[at, :n], tolerance)


@pytest.mark.parametrize("norms", ["before", "after"])
def test_encoder(norms, precision):
    dtype, tolerance = precision
    how = {"dropout": 0.0, "batch_first": True, "norm_first": norms == "before"}
    layer = torch.nn.TransformerEncoderLayer(8, 2, 12, **how)
    last = torch.nn.LayerNorm(8) if norms == "before" else None
    net = of_kind(
        torch.nn.TransformerEncoder(layer, 3, norm=last, enable_nested_tensor=False), dtype
    )
    check(net, Trunk.init(3, 8, 2, 12, norms=norms, key=jr.key(0)), dtype, tolerance)


@pytest.mark.parametrize("norms", ["before", "after"])
def test_decoder(norms, precision):
    dtype, tolerance = precision
    how = {"dropout": 0.0, "batch_first": True, "norm_first": norms == "before"}
    layer = torch.nn.TransformerDecoderLayer(8, 2, 12, **how)
    last = torch.nn.LayerNorm(8) if norms == "before" else None
    net = of_kind(torch.nn.TransformerDecoder(layer, 2, norm=last), dtype)
    trunk = Trunk.init(2, 8, 2, 12, norms=norms, memory_dim=8, key=jr.key(0))
    check(net, trunk, dtype, tolerance, memory=normal(5, dtype, 7, 8))


def check(net, trunk, dtype, tolerance, memory=None):
    """A causal pass of both; the gradients of the input, the memory and every weight."""
    inside = lambda trunk: in_block(trunk.blocks.layers)
    trunk = with_weights(trunk, inside, stacked(net.layers, value))
    if net.norm is not None:
        trunk = with_weights(
            trunk,
            lambda t: [t.last.gamma, t.last.mu],
            [value(net.norm.weight), value(net.norm.bias)],
        )
    x = normal(3, dtype, 5, 8)
    weights = normal(4, dtype, 5, 8)
    given = [a for a in (x, memory) if a is not None]
    theirs = [torch.tensor(a[None], requires_grad=True) for a in given]
    later = torch.triu(torch.ones(5, 5, dtype=torch.bool), diagonal=1)
    out = net(*theirs, **{"mask" if memory is None else "tgt_mask": later})
    (out[0] * torch.tensor(weights)).sum().backward()
    f = lambda trunk, x, memory=None: trunk(x, mask=CAUSAL, memory=memory)
    ours = [jnp.asarray(a) for a in given]
    same(f(trunk, *ours), out[0], tolerance)
    total = lambda trunk, ours: jnp.vdot(f(trunk, *ours), weights)
    by_weight, by_input = jax.grad(total, argnums=(0, 1))(trunk, ours)
    for found, tensor in zip(by_input, theirs):
        same(found, tensor.grad[0], tolerance)
    for found, tensor in zip(inside(by_weight), stacked(net.layers, slope)):
        same(found, tensor, tolerance)
    if net.norm is not None:
        same(by_weight.last.gamma, net.norm.weight.grad, tolerance)
        same(by_weight.last.mu, net.norm.bias.grad, tolerance)
