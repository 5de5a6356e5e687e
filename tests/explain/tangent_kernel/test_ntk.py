"""The tangent kernel three ways: by factors, by gradients written down, by products with
vectors.
"""

import os
import subprocess
import sys
from functools import partial
from importlib import import_module
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import MODELS, generic, normal

from thetax.explain import ntk
from thetax.explain.tangent_kernel.ntk_features import PAIR_AXES, TracedModel, contract, features
from thetax.layers import (
    Attention,
    Chain,
    Convolution,
    Elman,
    Embedding,
    LayerNorm,
    Linear,
    Pointwise,
    Recurrent,
    Residual,
    Stacked,
    ntk_parametrisation,
    tanh,
)
from thetax.models import GPT, MLP

pytestmark = [pytest.mark.versions, pytest.mark.usefixtures("x64")]


def gradients(model, xs):
    """`n o p`, one example after another."""

    def one(x):
        slopes = jax.jacrev(lambda model: model(x).ravel())(model)
        return jnp.concatenate(
            [leaf.reshape(model(x).size, -1) for leaf in jax.tree.leaves(slopes)], axis=1
        )

    return jnp.stack([one(x) for x in xs])


def written_down(model, xs, ys):
    return jnp.einsum("nop,mqp->nmoq", gradients(model, xs), gradients(model, ys))


def by_products(model, x, y):
    """The block of two examples: each row of the gradient at y, pushed through the derivative at
    x.
    """
    out, back = jax.vjp(lambda model: model(y).ravel(), model)
    rows = jax.vmap(back)(jnp.eye(len(out)))
    push = lambda d: jax.jvp(lambda model: model(x).ravel(), (model,), (d,))[1]
    return jax.vmap(push)(*rows).T


def factored(model, xs, ys):
    """Every leaf that can be factored is, at any cost."""
    kinds = TracedModel.of(model, jax.ShapeDtypeStruct(xs.shape[1:], xs.dtype)).kinds()
    return contract(
        features(model, xs, frozenset()), features(model, ys, frozenset()), PAIR_AXES["full"], kinds
    )


def wide(model):
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float64), model)


def tokens(seed, n, t=4, size=5):
    return jnp.asarray(np.random.default_rng(seed).integers(size, size=(n, t)), jnp.int32)


DRAWN = {
    "dense": (lambda k: MLP.init(3, 4, 5, 2, key=k), (3,)),
    "tangent parametrisation": (
        lambda k: MLP.init(3, 4, 2, initialiser=ntk_parametrisation(bias=0.3), key=k),
        (3,),
    ),
    "convolution": (
        lambda k: Chain(Convolution.init(2, 3, (3, 3), key=k), Pointwise(tanh)),
        (2, 4, 3),
    ),
    "recurrent": (lambda k: Recurrent(Elman.init(3, 4, key=k)), (5, 3)),
    "normalised": (
        lambda k: Chain(Linear.init(3, 4, key=k), LayerNorm.init(4), Pointwise(tanh)),
        (3,),
    ),
    "attention": (lambda k: Residual(Attention.init(4, 2, key=k)), (3, 4)),
    "stacked": (lambda k: Stacked.init(partial(Linear.init, 3, 3), 3, key=k), (3,)),
    "scanned": (lambda k: Stacked.init(partial(Linear.init, 3, 3), 6, key=k), (3,)),
}
MADE = pytest.mark.parametrize("name", DRAWN)


def drawn(name):
    make, shape = DRAWN[name]
    return wide(make(jr.key(0))), normal(1, 2, *shape), normal(2, 3, *shape)


@pytest.mark.slow
@MADE
def test_it_is_the_product_of_gradients(name):
    model, xs, ys = drawn(name)
    exact = written_down(model, xs, ys)
    np.testing.assert_allclose(ntk(model)(xs, ys), exact, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(factored(model, xs, ys), exact, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(by_products(model, xs[0], ys[1]), exact[0, 1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("row", [row for row in MODELS if not row.batch], ids=lambda row: row.name)
@pytest.mark.slow
def test_any_model_of_the_library(row):
    model = wide(generic(row))
    xs = normal(1, 2, *row.shape)
    ys = normal(2, 3, *row.shape)
    if not jax.tree.leaves(model):
        return
    exact = written_down(model, xs, ys)
    size = max(1.0, float(jnp.abs(exact).max()))
    for found in (ntk(model)(xs, ys).reshape(exact.shape), factored(model, xs, ys)):
        np.testing.assert_allclose(found / size, exact / size, atol=1e-9)


class Scaled(eqx.Module):
    """A model with a parameter outside of linear maps."""

    linear: Linear
    log_scale: jax.Array

    def __call__(self, x):
        return jnp.exp(self.log_scale) * self.linear(x)


def test_a_parameter_outside_of_linear_maps_adds_its_gradients():
    model = Scaled(wide(Linear.init(3, 2, key=jr.key(0))), jnp.array([0.3, -0.2]))
    xs = normal(1, 2, 3)
    ys = normal(2, 3, 3)
    assert [way.factored for way in ntk(model).plan(xs, ys).leaves] == [True, True, False]
    np.testing.assert_allclose(
        factored(model, xs, ys), written_down(model, xs, ys), rtol=1e-9, atol=1e-9
    )


def test_rows_of_a_table():
    model = wide(Embedding.init(5, 3, key=jr.key(0)))
    xs = tokens(0, 2)
    ys = tokens(1, 3)
    np.testing.assert_allclose(factored(model, xs, ys), written_down(model, xs, ys), atol=1e-12)
    same = (xs[:, None] == ys[None]).sum(2)  # at the same place, for the trace is over places too
    np.testing.assert_allclose(ntk(model, form="trace")(xs, ys), 3 * same, atol=1e-12)


@pytest.mark.slow
def test_tied_embedding_is_not_factored():
    model = wide(GPT.init(5, 4, depth=1, heads=2, max_length=4, key=jr.key(0)))
    xs = tokens(0, 2)
    ys = tokens(1, 2)
    np.testing.assert_allclose(
        ntk(model)(xs, ys), written_down(model, xs, ys), rtol=1e-9, atol=1e-9
    )
    factored = {way.leaf: way.factored for way in ntk(model).plan(xs, ys).leaves}
    assert not factored[".embed.E"]


@pytest.mark.sampled(8)
@MADE
def test_forms(name):
    model, xs, ys = drawn(name)
    exact = written_down(model, xs, ys)
    np.testing.assert_allclose(
        ntk(model, form="outputs")(xs, ys), jnp.einsum("nmoo->nmo", exact), atol=1e-9
    )
    np.testing.assert_allclose(
        ntk(model, form="trace")(xs, ys), jnp.einsum("nmoo->nm", exact), atol=1e-9
    )


@pytest.mark.slow
def test_tiles_and_the_diagonal():
    model, xs, _ = drawn("scanned")
    xs = normal(3, 5, *xs.shape[1:])
    whole = ntk(model)(xs)
    np.testing.assert_allclose(ntk(model, batch_size=2)(xs), whole, atol=1e-12)
    np.testing.assert_allclose(ntk(model, batch_size=3)(xs, xs[:4]), whole[:, :4], atol=1e-12)
    outputs = ntk(model, form="outputs")(xs, xs)
    np.testing.assert_allclose(ntk(model, form="outputs", batch_size=2)(xs), outputs, atol=1e-12)
    for form, axes in (("full", "nnoq->noq"), ("outputs", "nnoo->no"), ("trace", "nnoo->n")):
        np.testing.assert_allclose(
            ntk(model, form=form, batch_size=2).diagonal(xs), jnp.einsum(axes, whole), atol=1e-12
        )


def test_it_is_symmetric_and_no_eigenvalue_is_negative():
    model, xs, _ = drawn("dense")
    xs = normal(3, 20, *xs.shape[1:])
    K = ntk(model)(xs)
    n, _, o, _ = K.shape
    K = np.asarray(K).transpose(0, 2, 1, 3).reshape(n * o, n * o)
    np.testing.assert_allclose(K, K.T, atol=1e-12)
    assert np.linalg.eigvalsh(K)[0] > -1e-10
    assert np.linalg.matrix_rank(K) <= sum(leaf.size for leaf in jax.tree.leaves(model))


def test_scalar_output_has_no_axes():
    net = wide(MLP.init(3, 4, 1, key=jr.key(0)))

    class One(type(net)):
        def __call__(self, x, *, key=None):
            return super().__call__(x)[0]

    one = One(net.body)
    xs = normal(0, 3, 3)
    assert ntk(one)(xs).shape == (3, 3)
    assert ntk(one, form="outputs")(xs, xs[:2]).shape == (3, 2)
    assert ntk(one).diagonal(xs).shape == (3,)
    np.testing.assert_allclose(ntk(one)(xs), ntk(net)(xs)[:, :, 0, 0])


def test_plan_of_the_kernel():
    factored = lambda model, xs: {way.leaf: way.factored for way in ntk(model).plan(xs).leaves}
    net = MLP.init(7, 5, 3, key=jr.key(0))
    assert all(factored(net, jnp.ones((4, 7))).values())
    image = Chain(Convolution.init(1, 2, (3, 3), key=jr.key(0)), lambda x: x.mean((1, 2)))
    assert not factored(image, jnp.ones((4, 1, 28, 28)))[".layers[0].W"]  # 784 places, 18 weights
    plan = ntk(net).plan(jnp.ones((4, 7)))
    assert plan.multiplications == 16 * (7 + 9 * 5 + 5 + 9 * 3)
    assert plan.batch_size == 4


@pytest.mark.slow
def test_it_works_inside_a_transformation():
    model, xs, ys = drawn("dense")
    found = jax.jit(lambda model, xs, ys: ntk(model, form="trace")(xs, ys))(model, xs, ys)
    np.testing.assert_allclose(found, ntk(model, form="trace")(xs, ys), rtol=1e-10)
    slope = jax.grad(lambda model: ntk(model, form="trace")(xs).sum())(model)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))


class Medley(eqx.Module):
    """All ways in which a parameter is combined with data, in a small model."""

    tied: Any
    cut: Any
    scaled: Any
    bias: Any
    own: Any  # one for each iteration of a scan
    every: Any  # the same in each iteration
    shift: Any  # likewise
    mixed: Any
    offset: Any
    table: Any

    @classmethod
    def init(cls, *, key):
        tied = (3, 3)
        cut = (4, 3)
        scaled = (3, 3)
        own = (2, 3, 3)
        every = (3, 3)
        shapes = tied, cut, scaled, (3,), own, every, (3,), (2, 3), (2,), (4, 3)
        return cls(*[jr.normal(jr.fold_in(key, at), shape) for at, shape in enumerate(shapes)])

    def __call__(self, x):
        h = jnp.tanh(self.tied @ jnp.tanh(self.tied @ x))
        h = h + (self.cut[3:] @ h) * (self.cut.T[:, 3:].T @ h) + self.cut[:3] @ h
        h = 0.5 * ((0.7 * self.scaled) @ h) + 0.3 * self.bias
        h = h + jax.nn.sigmoid(self.table[(10 * jnp.abs(x[:2])).astype(int) % 4]).sum(0)
        h, _ = jax.lax.scan(
            lambda h, W: (jnp.tanh((W @ h + self.shift) + self.every @ h), None), h, self.own
        )
        pair = jnp.stack([h, 2 * h]) @ self.mixed.T
        return (pair + self.offset[:, None]).ravel()


@pytest.mark.slow
def test_model_with_all_kinds_of_weight_uses():
    """Leaves that are tied, sliced, scaled, scanned over or constant in a scan, and a bias that is
    not one of the rows.
    """
    model = wide(Medley.init(key=jr.key(0)))
    xs = normal(1, 3, 3)
    ys = normal(2, 2, 3)
    np.testing.assert_allclose(
        factored(model, xs, ys), written_down(model, xs, ys), rtol=1e-9, atol=1e-9
    )


def test_bias_in_the_ntk_parametrisation():
    layer = wide(
        Linear.init(3, 2, initialiser=ntk_parametrisation(weight=1.5, bias=0.3), key=jr.key(0))
    )
    xs = normal(1, 3, 3)
    ys = normal(2, 2, 3)
    np.testing.assert_allclose(factored(layer, xs, ys), written_down(layer, xs, ys), rtol=1e-9)


@pytest.mark.slow
def test_symmetric_kernel_is_computed_from_one_triangle():
    model = wide(MLP.init(3, 4, 4, 2, key=jr.key(0)))
    xs = normal(0, 5, 3)
    for form in ("full", "outputs", "trace"):
        whole = ntk(model, form=form)(xs, xs)
        np.testing.assert_allclose(ntk(model, form=form, batch_size=2)(xs), whole, atol=1e-12)
        np.testing.assert_allclose(ntk(model, form=form, batch_size=2)(xs, xs), whole, atol=1e-12)
    assert (
        ntk(model, batch_size=2).plan(xs).multiplications
        < ntk(model, batch_size=2).plan(xs, xs).multiplications
    )


@pytest.mark.slow
def test_too_large(monkeypatch):
    monkeypatch.setattr(
        import_module("thetax.explain.tangent_kernel.ntk"), "free_memory", lambda: 200_000
    )
    model = wide(MLP.init(3, 4, 2, key=jr.key(0)))
    xs = normal(0, 40, 3)
    assert ntk(model).plan(xs).batch_size < 40
    np.testing.assert_allclose(
        ntk(model)(xs)[:3, -2:], written_down(model, xs[:3], xs[-2:]), rtol=1e-9
    )
    with pytest.raises(
        ValueError,
        match=r"batch_size=40 needs .* kB, but only 100\.0 kB may be used; batch_size=\d+ fits",
    ):
        ntk(model, batch_size=40)(xs)
    assert ntk(model).diagonal(jnp.ones((2000, 3))).shape == (2000, 2, 2)
    assert (
        ntk(model).plan(jnp.ones((4000, 3))).peak_bytes > 4000**2 * 4 * 8
    )  # a plan raises no error
    with pytest.raises(
        ValueError, match=r"the kernel of 4,000 examples needs .* matrix-free ntk_operator"
    ):
        ntk(model)(jnp.ones((4000, 3)))


def test_rows_are_sharded_over_devices(tmp_path):
    """On four devices, in a new process: the same kernel, a quarter of the rows on each."""
    script = tmp_path / "shared.py"
    script.write_text(
        """
import jax, numpy as np, jax.random as jr
from thetax.explain import ntk
from thetax.models import MLP
model = MLP.init(3, 8, 2, key=jr.key(0))
xs, ys = jr.normal(jr.key(1), (16, 3)), jr.normal(jr.key(2), (5, 3))
for form, batch_size in (("full", None), ("trace", 3)):
    for n in (16, 14):
        K = ntk(model, form=form, batch_size=batch_size, devices=jax.devices())(xs[:n], ys)
        np.testing.assert_allclose(K, ntk(model, form=form)(xs[:n], ys), rtol=1e-5, atol=1e-5)
        if n == 16:
            assert {part.data.shape[0] for part in K.addressable_shards} == {4}
            assert len({part.device for part in K.addressable_shards}) == 4
"""
    )
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, script],
        env=os.environ | flags,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_bad_input(unchecked):
    net = MLP.init(3, 4, 2, key=jr.key(0))
    with pytest.raises(ValueError, match="form must be one of full, outputs, trace; got 'half'"):
        ntk(net, form="half")
    with pytest.raises(ValueError, match="batch_size must be an integer >= 1; got 0"):
        ntk(net, batch_size=0)
    with pytest.raises(ValueError, match="xs: expected finite numbers, but row 0, column 1 is nan"):
        ntk(net)(jnp.array([[1.0, jnp.nan, 0.0]]))
    with pytest.raises(
        ValueError, match=r"xs: expected at least one example, but the shape is \(\)"
    ):
        ntk(net)(jnp.array(1.0))
    with pytest.raises(ValueError, match="expected one example of shape"):
        ntk(net)(jnp.ones((2, 5)))
    with pytest.raises(ValueError, match="the model has no parameters"):
        ntk(Pointwise(tanh))
    with pytest.raises(
        ValueError,
        match="all parameters of the model must be floating-point arrays; got a leaf of int32",
    ):
        ntk(Linear(jnp.ones((2, 3), jnp.int32)))
    with pytest.raises(
        ValueError,
        match="all parameters of the model must be floating-point arrays; got a leaf of str",
    ):
        ntk("relu")
    with pytest.raises(
        ValueError, match="ys: expected an array, or a tree of arrays, got a float in a list"
    ):
        ntk(net)(jnp.ones((2, 3)), [[1.0, 2.0, 3.0]])
    with pytest.raises(
        ValueError, match="xs: arrays of 2 and 4 examples; all must have the same number"
    ):
        ntk(Chain(lambda pair: pair[0] + pair[1], net))((jnp.ones((2, 3)), jnp.ones((4, 3))))
    with pytest.raises(
        ValueError,
        match=r"xs and ys must have the same structure; got PyTreeDef\(\*\) and"
        r" PyTreeDef\(\(\*, \*\)\)",
    ):
        ntk(net)(jnp.ones((2, 3)), (jnp.ones((2, 3)), jnp.ones((2, 3))))
    with pytest.raises(
        ValueError, match="the output of the model must be one floating-point array"
    ):
        ntk(Chain(Linear.init(3, 2, key=jr.key(0)), lambda x: x > 0))(jnp.ones((2, 3)))
