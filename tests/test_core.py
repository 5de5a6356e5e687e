"""`thetax.core`: running iterations, random keys, batches, and the check of input shapes."""

import subprocess
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest
from contracts import normal

import thetax
from thetax.core import BATCH_AXIS, Iteration, apply, expect_shape, predict, run, takes_key

pytestmark = pytest.mark.usefixtures("strict")


class State(NamedTuple):
    model: jax.Array


def random_walk_step(state, batch, *, key):
    noise = jr.normal(key)
    return State(state.model + batch.mean() + noise), noise


def test_run_folds_the_step_into_the_key():
    """Step i uses fold_in(key, i): noise, records and last state equal those of a loop."""
    batches = normal(0, 5, 4)
    key = jr.key(7)
    state, (kept, info) = run(
        Iteration(State, random_walk_step),
        jnp.zeros(()),
        batches,
        key=key,
        record=lambda s: s.model,
    )
    model = jnp.zeros(())
    models = []
    for i, batch in enumerate(batches):
        noise = jr.normal(jr.fold_in(key, i))
        assert info[i] == noise
        model = model + batch.mean() + noise
        models.append(model)
    assert jnp.allclose(kept, jnp.stack(models), atol=1e-6)
    assert kept[-1] == state.model


def test_run_records_nothing_by_default():
    _, (kept, info) = run(
        Iteration(State, random_walk_step), jnp.zeros(()), jnp.ones((3, 2)), key=jr.key(0)
    )
    assert kept is None
    assert info.shape == (3,)


@pytest.mark.parametrize(
    ("got", "cure"),
    [((2, 3), "jax.vmap"), ((4,), "sizes given to init"), ((3, 2), "reshape"), ((), "reshape")],
)
def test_expect_shape_says_what_to_do(got, cure):
    """A batch in place of one example is distinguished from a wrong size."""
    with pytest.raises(
        ValueError, match=rf"Layer: expected one example of shape \(3,\), got .*{cure}"
    ):
        expect_shape("Layer", jnp.zeros(got), (3,))


def test_expect_shape_accepts_the_right_shape():
    expect_shape("Layer", jnp.zeros((3, 2)), (3, 2))
    expect_shape("Layer", jnp.zeros((3, 2, 5)), (3, "h", "w"))


@pytest.mark.parametrize(
    ("got", "shape", "cure"),
    [
        ((8, 3, 28, 28), (3, "h", "w"), r"map over a batch with jax\.vmap"),
        ((8, 28, 28, 3), (3, "h", "w"), r"map over a batch with jax\.vmap"),
        ((28, 28), (1, "h", "w"), r"add the channel axis: x\[None\]"),
        ((28, 28), (3, "h", "w"), "add the axis of the 3 channels, which come first"),
        ((28, 28, 3), (3, "h", "w"), r"channels come first: jnp\.moveaxis\(x, -1, 0\)"),
        ((3, 0, 0), (3, "h", "w"), "the input is empty"),
        ((4, 28, 28), (3, "h", "w"), "check the sizes given to init"),
        ((28, 28), (1, 28, 28), r"add the channel axis: x\[None\]"),
        ((4, 2), (2, "h"), "channels come first"),
    ],
)
def test_expect_shape_of_images(got, shape, cure):
    """A letter is any size; a missing, additional or misplaced axis is recognised."""
    form = r"\(" + ", ".join(map(str, shape)) + r"\)"
    with pytest.raises(
        ValueError, match=rf"Layer: expected one example of shape {form}, got .*; {cure}"
    ):
        expect_shape("Layer", jnp.zeros(got), shape)


def test_key_is_passed_only_to_functions_that_take_one():
    """A function without a `key` parameter is called without one; others get the key unchanged."""
    assert not takes_key(jnp.sin)
    assert takes_key(lambda x, *, key=None: x)
    assert apply(lambda x: x + 1, 1, key=jr.key(0)) == 2
    assert apply(lambda x, key: jr.normal(key), 1, key=jr.key(3)) == jr.normal(jr.key(3))
    assert apply(lambda x, key=None: key is None, 1) is True


def test_predict_splits_the_key_and_names_the_batch_axis():
    """The keys are those of `jr.split`; the mean over the named axis is the mean over the batch."""
    xs = normal(1, 4, 3)
    noisy = lambda x, *, key=None: x if key is None else x + jr.normal(key, x.shape)
    expected = xs + jnp.stack([jr.normal(key, (3,)) for key in jr.split(jr.key(2), 4)])
    assert jnp.array_equal(predict(noisy, xs, key=jr.key(2)), expected)
    assert jnp.array_equal(predict(noisy, xs), xs)
    centred = predict(lambda x: x - jax.lax.pmean(x, BATCH_AXIS), xs)
    assert jnp.allclose(centred, xs - xs.mean(axis=0, keepdims=True), atol=1e-6)


def test_predict_maps_trees_of_inputs():
    """An example may be a pair of arrays."""
    pair = normal(2, 4, 3), normal(3, 4, 3)
    assert jnp.allclose(
        predict(lambda both: both[0] @ both[1], pair), (pair[0] * pair[1]).sum(axis=1), atol=1e-6
    )


def test_subpackages_are_imported_on_access():
    """`import thetax; thetax.attack`, in a new process."""
    program = (
        "import thetax; print(*[name for name in dir(thetax) if getattr(thetax, name) is None])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
    assert {
        "attack",
        "bayes",
        "certify",
        "data",
        "explain",
        "models",
        "train",
        "__version__",
    } <= set(dir(thetax))
    with pytest.raises(AttributeError, match=r"has no part 'trian'; it has .*train"):
        thetax.trian  # noqa: B018
