"""Bad input to `fit` is a ValueError that names the argument, before any compute is spent."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from thetax.core import Iteration
from thetax.layers import Linear, Pointwise
from thetax.train import cross_entropy, descend, error_rate, fit, squared_error
from thetax.train.loop.settings import check_arrays

pytestmark = pytest.mark.usefixtures("unchecked")
descent = descend(cross_entropy, optax.sgd(0.1))
xs = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
ys = np.arange(20, dtype=np.int32) % 2
metrics = {"error": error_rate}


def never(state, batch, *, key):
    raise AssertionError("a step was traced")


def spoiled(value, dtype=np.float32):
    bad = xs.astype(dtype)
    bad[3, 1] = value
    return bad


def with_label(value):
    bad = ys.copy()
    bad[7] = value
    return bad


def model():
    return Linear(jnp.ones((2, 3)), jnp.zeros(2))


BAD_DATA = [
    (
        "empty",
        (xs[:0], ys[:0]),
        r"data\[0\]: expected at least one example, but the shape is \(0, 3\)",
    ),
    ("no arrays", (), "contains no arrays"),
    (
        "unequal lengths",
        (xs, ys[:-1]),
        r"data: all arrays must have the same length; got \[20, 19\]",
    ),
    ("object", (xs.astype(object), ys), r"data\[0\]: expected numbers, but the dtype is object"),
    ("strings", (xs, ys.astype(str)), r"data\[1\]: expected numbers, but the dtype is <U"),
    ("a list of lists", ([[1.0, 2.0, 3.0]], [0]), "data: expected arrays; got lists"),
    (
        "NaN",
        (spoiled(np.nan), ys),
        r"data\[0\]: expected finite numbers, but row 3, column 1 is nan",
    ),
    (
        "infinity",
        (spoiled(-np.inf), ys),
        r"data\[0\]: expected finite numbers, but row 3, column 1 is -inf",
    ),
    (
        "too large for float32",
        (spoiled(1e300, np.float64), ys),
        r"data\[0\]: .* row 3, column 1 is 1e\+300",
    ),
    (
        "NaN in soft labels",
        (xs, np.full((20, 2), np.nan, np.float32)),
        r"data\[1\]: .* row 0, column 0 is nan",
    ),
    (
        "label too large",
        (xs, with_label(2)),
        r"data\[1\]: expected labels from 0 to 1, but row 7 is 2. Use 3 classes",
    ),
    (
        "label negative",
        (xs, with_label(-1)),
        r"data\[1\]: expected labels from 0 to 1, but row 7 is -1. Renumber",
    ),
    (
        "labels as floats",
        (xs, ys.astype(np.float32)),
        "expected an integer label or 2 probabilities",
    ),
    ("labels as booleans", (xs, ys.astype(bool)), "expected an integer label or 2 probabilities"),
    ("wrong width", (xs[:, :2], ys), r"expected one example of shape \(3,\), got \(2,\)"),
    (
        "wrong rank",
        (xs[:, :, None], ys.astype(np.float32)),
        r"expected one example of shape \(3,\), got \(3, 1\)",
    ),
]


def test_the_default_batch_size_is_at_most_the_number_of_examples(silent):
    result = fit(descent, model(), (xs, ys), epochs=2, key=jr.key(0), progress=silent)
    whole = fit(
        descent, model(), (xs, ys), epochs=2, batch_size=len(xs), key=jr.key(0), progress=silent
    )
    assert result.steps == whole.steps == 2
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), result.model, whole.model))


@pytest.mark.parametrize(
    ("data", "message"), [row[1:] for row in BAD_DATA], ids=[row[0] for row in BAD_DATA]
)
def test_bad_data(silent, data, message):
    with pytest.raises(ValueError, match=message):
        fit(descent, model(), data, epochs=1, batch_size=5, key=jr.key(0), progress=silent)


BAD_VALIDATION = [
    (name, data, text.replace("data", "validation")) for name, data, text in BAD_DATA[:12]
]


@pytest.mark.parametrize(
    ("data", "message"), [row[1:] for row in BAD_VALIDATION], ids=[row[0] for row in BAD_VALIDATION]
)
def test_bad_validation_data(silent, data, message):
    """The validation set is held to the same, under its own name."""
    with pytest.raises(ValueError, match=message):
        fit(
            descent,
            model(),
            (xs, ys),
            epochs=1,
            batch_size=5,
            validation=data,
            metrics=metrics,
            key=jr.key(0),
            progress=silent,
        )


BAD_SETTINGS = [
    ({"epochs": 0}, "epochs must be an integer >= 1; got 0"),
    ({"batch_size": 0}, "batch_size must be an integer >= 1; got 0"),
    ({"batch_size": 21}, "batch_size=21 is larger than the 20 examples"),
    (
        {"patience": 0, "validation": 0.2, "metrics": metrics},
        "patience must be an integer >= 1; got 0",
    ),
    ({"patience": 2}, "patience needs a validation set and a metric"),
    ({"patience": 2, "validation": 0.2}, "validation and metrics need each other"),
    ({"patience": 2, "metrics": metrics}, "validation and metrics need each other"),
    ({"validation": 0.0, "metrics": metrics}, r"validation as a fraction must be in \(0, 1\)"),
    ({"validation": 1.0, "metrics": metrics}, r"validation as a fraction must be in \(0, 1\)"),
    ({"validation": -0.5, "metrics": metrics}, r"validation as a fraction must be in \(0, 1\)"),
    ({"validation": 10, "metrics": metrics}, r"validation as a fraction must be in \(0, 1\)"),
    ({"key": 0}, r"such as jax\.random\.key\(0\); got 0"),
    ({"metrics": [error_rate], "validation": 0.2}, "metrics must be a dict"),
    ({"epochs": "3"}, "epochs must be an integer >= 1; got '3'"),
    (
        {"validation": 0.9, "metrics": metrics},
        "the 2 training examples left after holding out 18 are fewer than batch_size=5",
    ),
]


@pytest.mark.parametrize(
    ("settings", "message"), BAD_SETTINGS, ids=[row[1] for row in BAD_SETTINGS]
)
def test_bad_settings(silent, settings, message):
    """Refused before a step is so much as traced."""
    untouched = Iteration(lambda model: model, never)
    with pytest.raises(ValueError, match=message):
        fit(
            untouched,
            model(),
            (xs, ys),
            progress=silent,
            **{"epochs": 1, "batch_size": 5, "key": jr.key(0), **settings},
        )


def stream(*batches):
    return lambda epoch: iter(batches)


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        (stream(), {}, r"stream\(0\) gave no batch"),
        (
            stream((xs, ys)),
            {"validation": 0.2, "metrics": metrics},
            "with a stream, validation must be a data set, not a fraction",
        ),
        (
            stream((spoiled(np.nan), ys)),
            {},
            r"stream\(0\)\[0\]: expected finite numbers, but row 3, column 1 is nan",
        ),
        (
            stream((xs, with_label(5))),
            {},
            r"stream\(0\)\[1\]: expected labels from 0 to 1, but row 7 is 5",
        ),
        (lambda epoch: iter([(xs, ys)][epoch:]), {"epochs": 2}, r"stream\(1\) gave no batch"),
    ],
    ids=["empty", "fraction", "NaN", "label", "empty later"],
)
def test_bad_streams(silent, data, settings, message):
    with pytest.raises(ValueError, match=message):
        fit(descent, model(), data, progress=silent, **{"epochs": 1, "key": jr.key(0), **settings})


def test_wrong_targets_are_refused(silent):
    with pytest.raises(ValueError, match=r"expected a target of shape \(2,\); got \(3,\)"):
        fit(
            descend(squared_error, optax.sgd(0.1)),
            model(),
            (xs, xs),
            epochs=1,
            batch_size=5,
            key=jr.key(0),
            progress=silent,
        )


def test_what_is_not_wrong_is_let_through(silent):
    """64-bit labels, double-precision inputs, a batch of all the data, the largest label: all
    fine.
    """
    batch = xs.astype(np.float64), ys.astype(np.int64)
    assert (
        fit(descent, model(), batch, epochs=1, batch_size=20, key=jr.key(0), progress=silent).steps
        == 1
    )


@pytest.mark.parametrize("bad", [4, -2])
def test_a_sequence_target_out_of_range(bad):
    logits = Pointwise(lambda xs: jnp.zeros((3, 4)) + xs.sum())
    targets = np.array([[0, 1, -1], [2, bad, 0]], np.int32)
    with pytest.raises(ValueError, match=f"expected targets from 0 to 3, .*; got {bad}"):
        check_arrays("data", (np.zeros((2, 3), np.float32), targets), logits)
