"""Confusions against scikit-learn, the worst mistakes against a search by hand."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from thetax.explain import confusion, curves, worst
from thetax.models import MLP

model = MLP.init(6, 16, 3, key=jr.key(0))
xs = jr.normal(jr.key(1), (300, 6))
ys = jr.randint(jr.key(2), (300,), 0, 3)
p = np.asarray(jax.nn.softmax(jax.vmap(model)(xs)))


def test_confusion_is_scikit_learns():
    found = confusion(model, (xs, ys), ("a", "b", "c"))
    assert (found.counts == confusion_matrix(ys, p.argmax(axis=1))).all()
    assert found.error == pytest.approx((p.argmax(axis=1) != np.asarray(ys)).mean())
    assert found.errors[1] == pytest.approx((p.argmax(axis=1) != 1)[np.asarray(ys) == 1].mean())


def test_a_class_without_examples_has_no_error():
    found = confusion(model, (xs[:5], jnp.zeros(5, int)))
    assert found.classes == ("0", "1", "2")
    assert np.isnan(found.errors).tolist() == [False, True, True]


def test_worst_by_hand():
    found = worst(model, (xs, ys), count=10)
    wrong = [(-p[i].max(), i) for i in range(300) if p[i].argmax() != ys[i]]
    assert found.index.tolist() == [i for _, i in sorted(wrong)[:10]]
    assert found.mistakes == len(wrong)
    assert np.allclose(found.confidence, [-c for c, _ in sorted(wrong)[:10]], atol=1e-6)
    assert np.allclose(found.chance, [p[i, ys[i]] for i in found.index], atol=1e-6)
    assert (found.x == np.asarray(xs)[found.index]).all()
    assert (found.guess != found.truth).all()


def test_soft_labels_count_as_their_most_probable_class():
    soft = 0.9 * jax.nn.one_hot(ys, 3) + 0.1 / 3
    assert (confusion(model, (xs, soft)).counts == confusion(model, (xs, ys)).counts).all()


def test_wrong_names_are_refused():
    with pytest.raises(ValueError, match="3 classes apart, but 2 names"):
        confusion(model, (xs, ys), ("a", "b"))
    with pytest.raises(ValueError, match="count must be at least 1"):
        worst(model, (xs, ys), count=0)


def test_no_mistakes():
    found = worst(model, (xs, jnp.asarray(p.argmax(axis=1))))
    assert found.mistakes == 0
    assert found.x.shape == (0, 6)


def test_curves_leave_out_what_is_not_finite():
    found = curves(
        {
            "train loss": np.array([1.0, 2.0]),
            "valid error": np.array([np.nan, np.nan]),
            "train": np.ones(2),
        }
    )
    assert {name: list(lines) for name, lines in found.panels.items()} == {
        "loss": ["train"],
        "train": [""],
    }
    assert found.epochs == 2
    assert curves({}).epochs == 0
