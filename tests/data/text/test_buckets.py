"""Batches of similar length: the best lengths by trying all, every example once, and a fit over
several shapes.
"""

from itertools import combinations

import jax.random as jr
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thetax.data import batches_by_length, bucket_lengths, pad_rows
from thetax.layers import Embedding
from thetax.train import Silent, descend, fit, token_cross_entropy

LENGTHS = st.lists(st.integers(0, 30), min_size=1, max_size=20)


def places(lengths, steps):
    return sum(min(step for step in steps if step >= length) for length in lengths)


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 4), st.sampled_from([1, 4, 8]))
def test_lengths_are_the_best_there_are(lengths, count, multiple):
    found = bucket_lengths(np.array(lengths), n_buckets=count, multiple_of=multiple)
    top = max(-(-max(lengths) // multiple), 1) * multiple
    candidates = range(multiple, top, multiple)
    ways = (some for k in range(count) for some in combinations(candidates, k))
    if len(candidates) <= 12:
        assert places(lengths, found) == min(places(lengths, (*some, top)) for some in ways)
    assert len(found) <= count
    assert list(found) == sorted(set(found))
    assert found[-1] == top
    assert all(step % multiple == 0 for step in found)


def test_too_many_candidates_are_thinned():
    found = bucket_lengths(np.arange(1, 5000), n_buckets=3, multiple_of=1)
    assert len(found) == 3
    assert found[-1] >= 4999
    assert places([1, 2000, 4999], found) > 0


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 6), st.integers(0, 3))
def test_every_example_once_an_epoch(lengths, batch, epoch):
    xs = pad_rows([np.arange(length) for length in [*lengths, 9]])
    data = {"a": xs, "b": 2 * xs, "y": np.arange(len(xs))}
    stream = batches_by_length(data, batch_size=batch, n_buckets=3, multiple_of=4, key=jr.key(1))
    batches = list(stream(epoch))
    rows = np.concatenate([b["y"] for b in batches])
    assert sorted(rows.tolist()) == list(range(len(xs)))
    assert all(len(b["y"]) == batch for b in batches[: len(xs) // batch])
    assert len(batches) == -(-len(xs) // batch)
    assert len({b["a"].shape for b in batches}) <= 4
    for b in batches:
        np.testing.assert_array_equal(b["b"], 2 * b["a"])
        for row, y in zip(b["a"], b["y"]):
            length = np.count_nonzero(xs[y] >= 0)
            np.testing.assert_array_equal(row[:length], xs[y][:length])
            assert (row[length:] == -1).all()


def test_order_is_a_function_of_key_and_epoch():
    xs = pad_rows([np.arange(1 + i % 13) for i in range(60)])
    order = lambda seed, epoch: np.concatenate(
        [
            b[1]
            for b in batches_by_length((xs, np.arange(60)), batch_size=4, key=jr.key(seed))(epoch)
        ]
    ).tolist()
    assert order(0, 1) == order(0, 1)
    assert len({tuple(order(seed, epoch)) for seed in range(2) for epoch in range(2)}) == 4


def test_little_is_filled_up():
    lengths = np.random.default_rng(0).integers(4, 129, 600)
    xs = pad_rows([np.ones(length, int) for length in lengths])
    used = sum(b.size for b in batches_by_length(xs, batch_size=16, n_buckets=4, key=jr.key(0))(0))
    assert lengths.sum() <= used < 1.25 * lengths.sum() < xs.size / 1.4


def test_fit_takes_batches_of_several_shapes():
    """The loss of an epoch at rest is that of all examples, and each shape is traced once for all
    epochs.
    """
    rows = [[(3 * i + j) % 5 for j in range(2 + i % 6)] for i in range(12)]
    xs = pad_rows([row[:-1] for row in rows])
    ys = pad_rows([row[1:] for row in rows])
    stream = batches_by_length((xs, ys), batch_size=4, n_buckets=2, multiple_of=1, key=jr.key(0))
    model = Embedding.init(5, 5, key=jr.key(1))
    traced = []

    def objective(model, batch, *, key=None):
        traced.append(batch[0].shape)
        return token_cross_entropy(model, batch)

    found = fit(
        descend(objective, optax.sgd(0.0)),
        model,
        stream,
        epochs=3,
        key=jr.key(2),
        progress=Silent(),
    )
    shapes = {b[0].shape for b in stream(0)}
    assert len(shapes) == 2
    assert found.steps == 9
    E = np.asarray(model.E)  # the logits of the next token
    loss = np.log(np.exp(E).sum(axis=1))[:, None] - E
    per_batch = [loss[xs[xs >= 0], ys[ys >= 0]].mean() for xs, ys in stream(1)]
    assert np.allclose(found.history["train loss"][1], np.mean(per_batch), rtol=1e-5)
    assert set(traced) == shapes
    assert len(traced) <= len(shapes) + 1  # one more to learn the names of the readings


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: bucket_lengths(np.array([3]), n_buckets=0),
            "n_buckets must be an integer >= 1; got 0",
        ),
        (
            lambda: bucket_lengths(np.array([], int), n_buckets=2),
            "expected at least one length; got 0 lengths",
        ),
        (
            lambda: batches_by_length(np.ones((2, 3)), batch_size=1, key=jr.key(0)),
            "must be an integer matrix of tokens .* got float64",
        ),
        (lambda: batches_by_length((), batch_size=1, key=jr.key(0)), "got no array"),
        (
            lambda: batches_by_length(
                (np.ones((2, 3), int), np.ones(3)), batch_size=1, key=jr.key(0)
            ),
            r"the same number of examples; got \[2, 3\]",
        ),
        (
            lambda: batches_by_length(np.ones((2, 3), int), batch_size=0, key=jr.key(0)),
            "batch_size must be an integer >= 1; got 0",
        ),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
