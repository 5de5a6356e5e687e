"""What each layer does to an affine function on a cell: against the model itself, and what is
refused.
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.explain import (
    NotPiecewiseLinear,
    activation_patterns,
    breakpoints_1d,
    count_regions,
    enumerate_regions,
    input_plane,
    is_piecewise_linear,
)
from thetax.layers import (
    Affine,
    BatchNorm,
    Chain,
    Concat,
    Convolution,
    Dropout,
    Ensemble,
    LayerNorm,
    Linear,
    Residual,
    WeightNorm,
    centred,
    fold_batch_norm,
    leaky_relu,
    mean_output,
    mean_probabilities,
    ntk_parametrisation,
    relu,
    sign,
)
from thetax.models import MLP

pytestmark = pytest.mark.usefixtures("x64")


def moved(net, key):
    """The network with every leaf moved, so that no bias is zero."""
    leaves, structure = jax.tree.flatten(net)
    keys = jr.split(key, len(leaves))
    return jax.tree.unflatten(
        structure, [a + 0.5 * jr.normal(k, a.shape, a.dtype) for a, k in zip(leaves, keys)]
    )


def folded(key):
    net = MLP.init(2, 6, 6, 2, normalise=BatchNorm.init, connect=Residual, key=key)
    return fold_batch_norm(net, jr.normal(jr.key(7), (50, 2), float))


def nested(key):
    k, l = jr.split(key)
    inner = Residual(Chain(Linear.init(2, 2, key=k), centred(relu)))
    return Residual(Concat(inner), Linear.init(2, 4, key=l))


def kinked_skip(key):
    k, l = jr.split(key)
    return Residual(Chain(Linear.init(2, 3, key=k), relu), Chain(Linear.init(2, 3, key=l), jnp.abs))


def affine(key):
    return Chain(
        Affine(jnp.array([2.0, -1.0]), jnp.ones(2)), relu, Linear.init(2, 3, bias=False, key=key)
    )


def ensemble(key, pool=mean_output):
    return Ensemble.init(lambda key: MLP.init(2, 4, 4, 2, key=key), 3, pool=pool, key=key)


NETS = {
    "mlp": partial(MLP.init, 2, 7, 5, 3),
    "leaky": partial(MLP.init, 2, 7, 5, 1, activation=leaky_relu),
    "leaky by hand": partial(MLP.init, 2, 7, 1, activation=partial(leaky_relu, negative_slope=0.3)),
    "abs": partial(MLP.init, 2, 5, 5, 1, activation=jnp.abs),
    "relu6": partial(MLP.init, 2, 8, 5, 1, activation=jax.nn.relu6),
    "hard tanh": partial(MLP.init, 2, 6, 6, 1, activation=jax.nn.hard_tanh),
    "dropout": partial(MLP.init, 2, 7, 5, 3, dropout=0.5),
    "weight norm": partial(MLP.init, 2, 7, 5, 3, affine=WeightNorm.init),
    "residual": partial(MLP.init, 2, 6, 6, 6, 2, connect=Residual),
    "dense": partial(MLP.init, 2, 5, 5, 2, connect=Concat),
    "tangent": partial(MLP.init, 2, 7, 5, 1, initialiser=ntk_parametrisation()),
    "folded": folded,
    "nested": nested,
    "kinked skip": kinked_skip,
    "affine": affine,
    "ensemble": ensemble,
    "affine only": partial(Linear.init, 2, 3),
}


@pytest.mark.sampled(9)
@pytest.mark.parametrize("kind", NETS)
def test_every_cell_has_its_affine_map(kind):
    net = moved(NETS[kind](key=jr.key(0)), jr.key(5))
    found = enumerate_regions(net, input_plane(-2.0, 2.0))
    assert found.areas.sum() == pytest.approx(16, abs=1e-9)
    assert (found.areas > 0).all()
    share = np.random.default_rng(0).dirichlet(np.ones(3), len(found.corners))
    inside = np.einsum(
        "pk,pkd->pd", share, found.corners[:, :3]
    )  # in the triangle of three corners
    for places in (found.centres, inside):
        expected = np.asarray(jax.vmap(net)(jnp.asarray(places))).reshape(len(places), -1)
        assert np.allclose(np.einsum("pmd,pd->pm", found.A, places) + found.c, expected, atol=1e-9)
        assert (activation_patterns(net, places) == found.patterns).all()
    assert len(np.unique(found.patterns, axis=0)) == found.n_regions
    assert found.n_affine_maps <= found.n_regions
    slopes = jax.vmap(jax.jacfwd(lambda x: net(x).reshape(-1)))(jnp.asarray(found.centres))
    assert np.allclose(slopes, found.A, atol=1e-9)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", NETS)
def test_no_point_is_in_a_cell_that_was_not_found(kind):
    net = moved(NETS[kind](key=jr.key(2)), jr.key(6))
    found = enumerate_regions(net, input_plane(-2.0, 2.0))
    xs = np.random.default_rng(1).uniform(-2, 2, (3000, 2))
    known = {row.tobytes() for row in found.patterns}
    assert all(row.tobytes() in known for row in activation_patterns(net, xs))


def test_patterns_by_hand():
    net = MLP.init(3, 4, 5, 2, dropout=0.2, key=jr.key(0))
    xs = np.random.default_rng(0).normal(size=(20, 3))
    first, _, _, second, *_ = net.body.layers
    z = xs @ np.asarray(first.W).T + np.asarray(first.b)
    y = np.maximum(z, 0) @ np.asarray(second.W).T + np.asarray(second.b)
    assert (activation_patterns(net, xs) == np.concatenate([z > 0, y > 0], axis=1)).all()
    assert activation_patterns(
        jax.nn.hard_tanh, np.array([[-2.0, -1.0, 0.0, 1.0, 2.0]])
    ).tolist() == [[0, 0, 1, 1, 2]]


def test_images_are_flattened():
    net = MLP.init(4, 5, 1, key=jr.key(0))
    xs = np.random.default_rng(0).normal(size=(6, 2, 2))
    assert (activation_patterns(net, xs) == activation_patterns(net, xs.reshape(6, 4))).all()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            partial(MLP.init, 2, 3, 3, 1, activation=jnp.tanh),
            "regions: tanh is not piecewise linear",
        ),
        (
            partial(MLP.init, 2, 3, 1, activation=lambda z: z * z),
            r"lambda at body.layers.1 is not known to be piecewise linear.*PIECEWISE_LINEAR\[f\]",
        ),
        (
            partial(MLP.init, 2, 3, 1, normalise=LayerNorm.init),
            "LayerNorm 1 is a LayerNorm, which is not piecewise",
        ),
        (
            partial(MLP.init, 2, 3, 1, normalise=BatchNorm.init),
            "BatchNorm 1 depends on the batch; .*layers.fold_batch_norm",
        ),
        (lambda key: Chain(Linear(jnp.eye(2)), jax.nn.softmax), "softmax is not piecewise"),
        (
            lambda key: Chain(Linear(jnp.eye(2)), sign),
            "sign is a step function: the network is piecewise constant",
        ),
        (
            partial(ensemble, pool=mean_probabilities),
            "Ensemble 1 does not pool its members by their mean, so it is not piecewise linear",
        ),
        (lambda key: Chain(relu, Residual(Chain(jax.nn.gelu))), "gelu is not piecewise"),
    ],
)
def test_refusals_name_the_layer(make, said):
    net = make(key=jr.key(0))
    with pytest.raises(NotPiecewiseLinear, match=said):
        enumerate_regions(net, input_plane(-1.0, 1.0))
    assert not is_piecewise_linear(net, np.zeros(2))


def test_error_names_the_calling_function():
    net = MLP.init(1, 3, 1, activation=jnp.tanh, key=jr.key(0))
    with pytest.raises(NotPiecewiseLinear, match=r"^breakpoints_1d: tanh is not piecewise linear"):
        breakpoints_1d(net)
    with pytest.raises(NotPiecewiseLinear, match=r"^count_regions: tanh"):
        count_regions(net, -1.0, 1.0)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: enumerate_regions(MLP.init(3, 4, 1, key=jr.key(0)), input_plane(-1.0, 1.0)),
        lambda: breakpoints_1d(MLP.init(3, 4, 1, key=jr.key(0))),
        lambda: count_regions(MLP.init(3, 4, 1, key=jr.key(0)), np.zeros(2), np.ones(2)),
    ],
)
def test_inputs_of_another_size(ask):
    with pytest.raises(
        ValueError, match=r"Linear 1 expects 3 inputs, but gets [12]. .*input_plane_through"
    ):
        ask()


def test_unsupported_models_are_rejected_before_any_computation(monkeypatch):
    from thetax.explain.linear_regions.polygons import Polygons

    monkeypatch.setattr(Polygons, "split", lambda *args: pytest.fail("a cell was cut"))
    with pytest.raises(NotPiecewiseLinear):
        enumerate_regions(
            MLP.init(2, 9, 9, 1, key=jr.key(0)).body.__class__(Linear(jnp.eye(2)), relu, jnp.tanh),
            input_plane(-1.0, 1.0),
        )


def test_dropout_is_the_identity():
    with_it = Chain(Linear(jnp.eye(2)), Dropout(0.5), relu)
    assert enumerate_regions(with_it, input_plane(-1.0, 1.0)).n_regions == 4


def test_unsupported_layers_are_not_called_smooth():
    """A convolution with a relu has linear regions; that they are not found is no reason to deny
    them.
    """
    net = Chain(Convolution.init(1, 2, (3, 3), key=jr.key(0)), relu, jnp.ravel)
    with pytest.raises(
        NotPiecewiseLinear,
        match=r"Convolution 1 is a Convolution, a layer .* Supported are Linear",
    ):
        activation_patterns(net, np.zeros((1, 1, 4, 4)))
    assert is_piecewise_linear(net, np.zeros((1, 4, 4))) is None
    assert is_piecewise_linear(lambda x: x, np.zeros(2)) is None
    assert is_piecewise_linear(jnp.tanh, np.zeros(2)) is False
