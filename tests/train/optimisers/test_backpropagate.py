"""Backpropagation written out, against `jax.grad`, differences and hand counts."""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import MODELS, close, differences, generic, normal
from hypothesis import given, settings
from hypothesis import strategies as st

from thetax import tree
from thetax.layers import Chain, Concat, Ensemble, LayerNorm, Linear, Residual, softplus
from thetax.models import MLP
from thetax.train import backpropagate, log_loss, squared_loss

WHOLE = [row for row in MODELS if not row.batch and not row.draws]


def wide(key):
    """Every kind of joint, no two widths equal."""
    keys = iter(jr.split(key, 6))
    return Chain(
        Linear.init(3, 4, key=next(keys)),
        Residual.init(Chain(Linear.init(4, 5, key=next(keys)), jnp.tanh), 4, 5, key=next(keys)),
        LayerNorm.init(5),
        Concat(Chain(Linear.init(5, 2, key=next(keys)), softplus)),
        Ensemble.init(partial(Linear.init, 7, 6), 3, key=next(keys)),
        jax.nn.softmax,
    )


@pytest.mark.slow
@pytest.mark.parametrize("loss", [squared_loss, log_loss])
@pytest.mark.usefixtures("x64")
def test_gradient_is_jax_grad(loss):
    chain = jax.tree.map(lambda a: a.astype(float), wide(jr.key(0)))
    x = normal(1, 3)
    y = jax.nn.softmax(normal(2, 6))
    found = backpropagate(chain, loss, x, y)
    assert close(
        found.gradient, jax.grad(lambda chain: loss(chain(x), y))(chain), rtol=1e-12, atol=1e-14
    )
    assert close(found.deltas[0], jax.grad(lambda x: loss(chain(x), y))(x), rtol=1e-12, atol=1e-14)
    assert found.loss == loss(chain(x), y)
    assert jax.tree.structure(found.gradient) == jax.tree.structure(chain)


@pytest.mark.usefixtures("x64")
def test_every_delta_by_differences():
    """δ_ℓ is the derivative of the loss when h_ℓ is moved and the rest runs on."""
    chain = jax.tree.map(lambda a: a.astype(float), wide(jr.key(0)))
    x = normal(1, 3)
    y = normal(2, 6)
    found = backpropagate(chain, squared_loss, x, y)
    assert len(found.activations) == len(found.deltas) == 7
    for ell, (h, delta) in enumerate(zip(found.activations, found.deltas)):
        after = lambda h, ell=ell: (
            squared_loss(Chain(*chain.layers[ell:])(h), y) if ell < 6 else squared_loss(h, y)
        )
        direction = normal(ell + 3, *h.shape)
        assert float(delta @ direction) == pytest.approx(
            float(differences(after, h, direction)), abs=1e-9
        )


@pytest.mark.sampled(19)
@pytest.mark.parametrize("row", WHOLE, ids=lambda row: row.name)
def test_any_layer_of_the_library(row):
    """A chain of one, of any layer or model there is."""
    chain = Chain(generic(row))
    x = normal(0, *row.shape)
    y = jnp.zeros_like(chain(x))
    loss = lambda prediction, y: jnp.square(prediction - y).sum()
    found = backpropagate(chain, loss, x, y)
    assert close(
        found.gradient, jax.grad(lambda chain: loss(chain(x), y))(chain), rtol=1e-4, atol=1e-5
    )
    assert close(
        found.activations[1], chain(x), rtol=1e-6, atol=1e-6
    )  # two programs may round in another order


@settings(max_examples=8)
@given(sizes=st.lists(st.integers(1, 5), min_size=2, max_size=6), seed=st.integers(0, 1000))
def test_random_widths(sizes, seed):
    chain = MLP.init(*sizes, activation=jnp.tanh, key=jr.key(seed)).body
    x = normal(seed, sizes[0])
    y = normal(seed + 1, sizes[-1])
    found = backpropagate(chain, squared_loss, x, y)
    exact = jax.grad(lambda chain: squared_loss(chain(x), y))(chain)
    assert float(tree.norm(tree.axpy(-1.0, exact, found.gradient))) < 1e-5 * (
        1 + float(tree.norm(exact))
    )


@pytest.mark.parametrize("depth", [1, 5, 12])
def test_each_layer_once(depth):
    """Each layer is called once forwards and pulled back through once."""
    counts = np.zeros((2, depth), int)

    def counting(i):
        f = jax.custom_vjp(lambda x: jnp.sin(x))

        def forward(x):
            counts[0, i] += 1
            return jnp.sin(x), x

        def back(x, delta):
            counts[1, i] += 1
            return (jnp.cos(x) * delta,)

        f.defvjp(forward, back)
        return f

    x = normal(0, 3)
    backpropagate(Chain(*map(counting, range(depth))), squared_loss, x, x)
    assert (counts == 1).all()


@pytest.mark.slow
def test_jit_and_vmap():
    """One compiled program over a batch, and the mean is the objective's gradient."""
    chain = wide(jr.key(0))
    xs = normal(1, 5, 3)
    ys = normal(2, 5, 6)
    each = jax.jit(jax.vmap(lambda x, y: backpropagate(chain, squared_loss, x, y).gradient))(xs, ys)
    whole = jax.grad(lambda chain: jax.vmap(lambda x, y: squared_loss(chain(x), y))(xs, ys).mean())(
        chain
    )
    assert close(jax.tree.map(lambda a: a.mean(axis=0), each), whole, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("unchecked")
def test_other_models_are_refused():
    with pytest.raises(
        ValueError, match=r"expected a Chain of layers; got MLP. Use model.body of an MLP"
    ):
        backpropagate(MLP.init(3, 2, key=jr.key(0)), squared_loss, jnp.ones(3), jnp.ones(2))
