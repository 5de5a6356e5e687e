"""Confusion matrices against scikit-learn, the most confident mistakes against a search."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from sklearn.metrics import confusion_matrix as sklearn_confusion_matrix

from thetax.explain import confident_mistakes, confusion_matrix, training_curves
from thetax.models import MLP

model = MLP.init(6, 16, 3, key=jr.key(0))
xs = jr.normal(jr.key(1), (300, 6))
ys = jr.randint(jr.key(2), (300,), 0, 3)
p = np.asarray(jax.nn.softmax(jax.vmap(model)(xs)))


def test_confusion_is_scikit_learns():
    found = confusion_matrix(model, (xs, ys), ("a", "b", "c"))
    assert (found.counts == sklearn_confusion_matrix(ys, p.argmax(axis=1))).all()
    assert found.error == pytest.approx((p.argmax(axis=1) != np.asarray(ys)).mean())
    assert found.errors[1] == pytest.approx((p.argmax(axis=1) != 1)[np.asarray(ys) == 1].mean())


def test_a_class_without_examples_has_no_error():
    found = confusion_matrix(model, (xs[:5], jnp.zeros(5, int)))
    assert found.classes == ("0", "1", "2")
    assert np.isnan(found.errors).tolist() == [False, True, True]


def test_worst_by_hand():
    found = confident_mistakes(model, (xs, ys), n_examples=10)
    wrong = [(-p[i].max(), i) for i in range(300) if p[i].argmax() != ys[i]]
    assert found.indices.tolist() == [i for _, i in sorted(wrong)[:10]]
    assert found.n_mistakes == len(wrong)
    assert np.allclose(found.confidence, [-c for c, _ in sorted(wrong)[:10]], atol=1e-6)
    assert np.allclose(found.truth_probability, [p[i, ys[i]] for i in found.indices], atol=1e-6)
    assert (found.x == np.asarray(xs)[found.indices]).all()
    assert (found.predicted != found.truth).all()


def test_soft_labels_count_as_their_most_probable_class():
    soft = 0.9 * jax.nn.one_hot(ys, 3) + 0.1 / 3
    assert (
        confusion_matrix(model, (xs, soft)).counts == confusion_matrix(model, (xs, ys)).counts
    ).all()


def test_wrong_names_are_rejected():
    with pytest.raises(
        ValueError,
        match=r"the model has 3 classes, but 2 names were given\. Give one name for each class",
    ):
        confusion_matrix(model, (xs, ys), ("a", "b"))
    with pytest.raises(ValueError, match="n_examples must be an integer >= 1; got 0"):
        confident_mistakes(model, (xs, ys), n_examples=0)


def test_no_mistakes():
    found = confident_mistakes(model, (xs, jnp.asarray(p.argmax(axis=1))))
    assert found.n_mistakes == 0
    assert found.x.shape == (0, 6)


def test_curves_skip_values_that_are_not_finite():
    found = training_curves(
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
    assert training_curves({}).epochs == 0
