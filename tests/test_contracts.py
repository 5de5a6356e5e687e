"""Every layer, model, objective, iteration and attack of the tables keeps the contracts of the
library.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import (
    ATTACKS,
    ITERATIONS,
    MODELS,
    OBJECTIVES,
    classes,
    close,
    counted,
    derivative_errors,
    generic,
    normal,
    same_bits,
)

from thetax import tree
from thetax.core import apply, predict, run
from thetax.layers import Linear, fold_batch_norm
from thetax.train import load_weights, save_weights

models = pytest.mark.parametrize("row", MODELS, ids=lambda row: row.name)
objectives = pytest.mark.parametrize("row", OBJECTIVES, ids=lambda row: row.name)
iterations = pytest.mark.parametrize("row", ITERATIONS, ids=lambda row: row.name)
attacks = pytest.mark.parametrize("row", ATTACKS, ids=lambda row: row.name)
strict = pytest.mark.usefixtures("strict")


def examples(row, n=5, seed=1):
    return normal(seed, n, *row.shape)


# Layers and models


@models
def test_leaves_are_parameters(row):
    """Every leaf is a float array, and two initialisations differ only in the values."""
    model = row.make(key=jr.key(0))
    other = row.make(key=jr.key(1))
    assert all(eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(model))
    assert jax.tree.structure(model) == jax.tree.structure(other)
    assert tree.size(model) == sum(np.size(leaf) for leaf in jax.tree.leaves(other))


@pytest.mark.sampled(2)
@models
@strict
def test_compiled_model_contract(row):
    """In one compilation: a batch equals its examples, each with its own key; the same key gives
    the same bits, and another key another result if the model is random; gradients are finite, at
    zero and for large inputs too; another model of the same structure is not traced again.
    """

    def laws(model, xs, key):
        alone = lambda item: apply(model, item[0], key=item[1])
        drawn = predict(model, xs, key=key)
        slopes = jax.grad(lambda both: jnp.square(predict(*both)).sum())((model, xs))
        return {
            "batch": predict(model, xs),
            "drawn": drawn,
            "in turn": drawn if row.batch else jax.lax.map(alone, (xs, jr.split(key, len(xs)))),
            "finite": jnp.stack([jnp.isfinite(slope).all() for slope in jax.tree.leaves(slopes)]),
        }

    f, traces = counted(laws)
    compiled = jax.jit(f)
    model = generic(row)
    xs = examples(row)
    once = compiled(model, xs, jr.key(0))
    again = compiled(model, xs, jr.key(0))
    other = compiled(model, xs, jr.key(1))
    on_cpu = (
        jax.default_backend() == "cpu"
    )  # a GPU adds the terms of a scattered sum in no fixed order
    assert same_bits(once, again) if on_cpu else close(once, again)
    assert close(once["drawn"], other["drawn"], rtol=1e-6) is not row.draws
    assert close(once["drawn"], once["in turn"])
    assert close(once["drawn"], once["batch"]) is not row.draws
    for draw, scale in ((0, 0.0), (1, 1.0), (0, 100.0)):
        assert bool(compiled(generic(row, draw), scale * xs, jr.key(2))["finite"].all())
    assert len(traces) == 1


@pytest.mark.sampled(10)
@models
@strict
def test_jit_is_eager(row):
    """The compiled batch is the eager loop over examples."""
    model = generic(row)
    xs = examples(row)
    expected = predict(model, xs) if row.batch else jnp.stack([apply(model, x) for x in xs])
    assert close(jax.jit(predict)(model, xs), expected)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("row", [row for row in MODELS if row.batch], ids=lambda row: row.name)
@strict
def test_batch_norm_sees_the_batch(row):
    """A model with batch norm raises for one example and depends on the batch; folded, it does
    neither.
    """
    model = generic(row)
    xs = examples(row, 6)
    whole = predict(model, xs)
    with pytest.raises(ValueError, match="fold"):
        model(xs[0])
    assert not close(whole[:3], predict(model, xs[:3]), rtol=1e-3, atol=1e-3)
    fixed = fold_batch_norm(model, xs)
    assert close(whole, predict(fixed, xs), rtol=1e-5, atol=1e-5)
    assert close(whole[0], fixed(xs[0]), rtol=1e-5, atol=1e-5)


@models
def test_weights_round_trip(row, tmp_path):
    """Saved, and loaded into an abstract model of the same structure: the same bits."""
    model = generic(row)
    save_weights(tmp_path / "w.safetensors", model)
    like = jax.eval_shape(lambda: row.make(key=jr.key(5)))
    assert same_bits(load_weights(tmp_path / "w.safetensors", like), model)


@pytest.mark.parametrize("row", [row for row in MODELS if row.wrong], ids=lambda row: row.name)
@pytest.mark.usefixtures("unchecked")
def test_wrong_shape_raises(row):
    """An example of another size raises a ValueError with the expected and the given shape."""
    with pytest.raises(ValueError, match=r"expected .*got "):
        predict(generic(row), jnp.ones((4, *row.wrong)))


@pytest.mark.sampled(12)
@models
@pytest.mark.usefixtures("x64", "strict")
def test_derivatives_of_models(row):
    """First and second derivatives in parameters and inputs agree with finite differences in
    float64.
    """
    model = generic(row)
    xs = examples(row, 4)
    point, back = tree.ravel((model, xs))
    assert point.dtype == jnp.float64
    key = jr.key(3) if row.draws else None
    weights = normal(4, *jax.eval_shape(predict, model, xs).shape)

    def value(vector):
        model, xs = back(vector)
        return jnp.vdot(weights, predict(model, xs, key=key))

    errors = derivative_errors(value, point)
    assert errors["length"] > 1e-2
    assert errors["gradient"] < 1e-6
    assert errors["curvature"] < 1e-4


# Objectives


@objectives
@strict
def test_objective_is_a_scalar_and_jit_is_eager(row):
    """A float32 scalar, the same compiled; another model of the same structure is not traced
    again.
    """
    objective = row.make()
    batch = row.batch()
    f, traces = counted(objective)
    compiled = jax.jit(f)
    for seed in (0, 1):
        model = generic(row, seed)
        found = compiled(model, batch)
        assert found.shape == ()
        assert found.dtype == jnp.float32
        assert close(
            found, objective(model, batch), rtol=1e-2 if row.name == "mixed_precision" else 1e-5
        )
    assert len(traces) == 1


@objectives
@strict
def test_objective_is_a_mean_over_examples(row):
    """The order of the examples is irrelevant, and the mean of two halves is the value of the
    whole.
    """
    objective, (xs, ys), model = jax.jit(row.make()), row.batch(), row.model(key=jr.key(0))
    whole = objective(model, (xs, ys))
    halves = [objective(model, (xs[part], ys[part])) for part in (slice(0, 3), slice(3, 6))]
    tolerance = {"rtol": 1e-2} if row.name == "mixed_precision" else {}
    assert close(whole, objective(model, (xs[::-1], ys[::-1])), **tolerance)
    assert close(whole, sum(halves) / 2, **tolerance)


@objectives
@strict
def test_objective_and_key(row):
    """The same key gives the same bits; another key changes only random objectives."""
    objective = row.make()
    batch = row.batch()
    model = row.model(key=jr.key(0))
    f = jax.jit(lambda key: objective(model, batch, key=key))
    assert same_bits(f(jr.key(0)), f(jr.key(0)))
    assert same_bits(f(jr.key(0)), f(jr.key(1))) is not row.draws
    assert (abs(f(jr.key(0)) - objective(model, batch)) > 1e-3) == row.draws


@objectives
@strict
def test_objective_gradients_are_finite(row):
    """With logits of 1000 too, where exp would overflow."""
    batch = row.batch()
    gradient = jax.jit(jax.grad(row.make()))
    for scale in (0.0, 1.0, 1e3):
        model = tree.axpy(scale, generic(row), tree.zeros_like(generic(row)))
        assert all(
            bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(gradient(model, batch))
        )


@pytest.mark.sampled(7)
@pytest.mark.parametrize("row", [row for row in OBJECTIVES if row.smooth], ids=lambda row: row.name)
@pytest.mark.usefixtures("x64", "strict")
def test_derivatives_of_objectives(row):
    """First and second derivatives in parameters and inputs agree with finite differences in
    float64.
    """
    objective, (xs, ys) = row.make(), row.batch()
    point, back = tree.ravel((generic(row), xs))
    key = jr.key(3) if row.draws else None

    def value(vector):
        model, xs = back(vector)
        return objective(model, (xs, ys), key=key)

    errors = derivative_errors(value, point)
    assert errors["length"] > 1e-2
    assert errors["gradient"] < 1e-6
    assert errors["curvature"] < 1e-4


# Iterations


@iterations
def test_state_keeps_its_structure(row):
    """A step changes no structure, shape or dtype of the state; the result has the structure of the
    model.
    """
    model = row.model(key=jr.key(0))
    form = lambda t: jax.tree.map(lambda a: (a.shape, a.dtype), t)
    before = jax.eval_shape(row.iteration.init, model)
    after, info = jax.eval_shape(partial(row.iteration.step, key=jr.key(1)), before, classes())
    assert jax.tree.structure(before) == jax.tree.structure(after)
    assert form(before) == form(after)
    assert form(after.model) == form(jax.eval_shape(lambda: model))
    assert info.loss.dtype == info.gradient.dtype == jnp.float32


@pytest.mark.sampled(6)
@iterations
def test_run_is_a_loop_of_steps(row):
    """The scan of `run` equals a loop over compiled steps, and these the eager ones; same key, same
    bits.
    """
    model, (xs, ys) = generic(row), classes()
    batches = jnp.stack([xs, xs + 0.1, xs]), jnp.stack([ys] * 3)
    scan = jax.jit(lambda model, key: run(row.iteration, model, batches, key=key))
    state, (_, info) = scan(model, jr.key(1))
    f, traces = counted(lambda state, batch, key: row.iteration.step(state, batch, key=key))
    step = jax.jit(f)
    start = row.iteration.init(model)
    losses = []
    by_hand = start
    keys = [jr.fold_in(jr.key(1), i) for i in range(3)]
    for x, y, key in zip(*batches, keys):
        by_hand, seen = step(by_hand, (x, y), key)
        losses.append(seen.loss)
    assert len(traces) == 1
    assert close(state.model, by_hand.model, rtol=1e-4, atol=1e-5)
    assert close(info.loss, jnp.stack(losses), rtol=1e-4, atol=1e-5)
    assert bool(jnp.isfinite(info.loss).all() and (info.gradient > 0).all())
    eager, _ = f(start, (xs, ys), keys[0])
    assert close(eager.model, step(start, (xs, ys), keys[0])[0].model, rtol=1e-4, atol=1e-5)
    assert same_bits(scan(model, jr.key(1))[0].model, state.model)
    assert not same_bits(scan(model, jr.key(2))[0].model, state.model)


# Attacks


class Attacked(NamedTuple):
    """An affine classifier, inputs from 0 to 1, what it says of them, and keys."""

    model: Any
    xs: Any
    ys: Any
    keys: Any


@pytest.fixture(scope="module")
def attacked():
    W = normal(20, 3, 4)
    xs = jr.uniform(jr.key(21), (5, 4))
    model = Linear(W, -W @ jnp.full(4, 0.5))  # so that classes meet in the middle
    return Attacked(model, xs, jnp.argmax(jax.vmap(model)(xs), axis=-1), jr.split(jr.key(22), 5))


@pytest.mark.sampled(3)
@attacks
def test_attack_contract(row, attacked):
    """The compiled batch equals the loop, in one trace; the same key gives the same bits; the input
    stays in its box and ball; no misclassified input becomes correct.
    """
    model, xs, ys, keys = attacked
    call = lambda x, y, key: row.attack(model, x, y, key=key if row.draws else None)
    f, traces = counted(jax.vmap(call))
    compiled = jax.jit(f)
    found = compiled(xs, ys, keys)
    assert same_bits(found, compiled(xs, ys, keys))
    assert len(traces) == 1
    one = jax.jit(call)
    assert close(found, jnp.stack([one(*each) for each in zip(xs, ys, keys)]), rtol=1e-4, atol=1e-5)
    assert found.shape == xs.shape
    assert found.dtype == xs.dtype
    if row.name != "AffineAttack":  # which has no range
        assert float(found.min()) >= 0
        assert float(found.max()) <= 1
    if row.bounded:
        assert float(jnp.abs(found - xs).max()) <= 0.2 * (1 + 1e-5)
    if row.draws:
        assert not same_bits(found, compiled(xs, ys, keys[::-1]))
    others = (ys + 1) % 3
    said = jnp.argmax(jax.vmap(model)(compiled(xs, others, keys)), axis=-1)
    assert not bool((said == others).any())


@attacks
def test_leaves_of_an_attack_are_scalars(row):
    """So another radius needs no new compilation."""
    assert all(jnp.ndim(leaf) == 0 for leaf in jax.tree.leaves(row.attack))


@attacks
def test_attack_checks_its_input(row, attacked, unchecked):
    name = type(row.attack).__name__
    key = attacked.keys[0]
    with pytest.raises(ValueError, match=r"images are floats; divide pixels by 255; got int32"):
        row.attack(attacked.model, jnp.ones(4, jnp.int32), attacked.ys[0], key=key)
    with pytest.raises(ValueError, match=r"expected a label from 0 to 2, got 7"):
        row.attack(attacked.model, attacked.xs[0], jnp.array(7), key=key)
    if name != "AffineAttack":
        with pytest.raises(
            ValueError, match=r"expected inputs from 0.0 to 1.0, but they go from 2 to 2"
        ):
            row.attack(attacked.model, jnp.full(4, 2.0), attacked.ys[0], key=key)
    if row.draws and name != "PGD":
        with pytest.raises(ValueError, match=r"Pass key="):
            row.attack(attacked.model, attacked.xs[0], attacked.ys[0])
