"""Tests of the lenses on convolutional networks and sequence models."""

import re
from functools import partial

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import explain
from thetax.layers import LRU, BatchNorm, Chain, Elman, Ensemble, Linear, Recurrent, fold_batch_norm
from thetax.models import CNN, MLP, EncoderDecoder, NGram, SequenceClassifier
from thetax.recipes.engine.outcome import Outcome
from thetax.report import LENSES, look
from thetax.report.lenses.basic import curvature_examples
from thetax.report.lenses.images import has_convolutions, is_image_classifier
from thetax.report.lenses.time import has_cross_attention, is_recurrent
from thetax.report.registry import MAX_CURVATURE_EXAMPLES, MIN_EXAMPLES, LensUnavailable
from thetax.train import cross_entropy, squared_error

IMAGES = ["Convolution filters", "Feature maps", "Saliency maps", "Translation equivariance"]
TIME = ["Gradients through time", "Eigenvalues of the recurrence"]


@pytest.fixture
def lenses():
    before = list(LENSES)
    LENSES[:] = [
        shown for shown in LENSES if shown.title in (*IMAGES, *TIME, "Attention alignment")
    ]
    yield LENSES
    LENSES[:] = before


def headings(text):
    return re.findall(r"<h2>(.*?)</h2>", text)


def images(channels=1):
    xs = np.asarray(jr.normal(jr.key(0), (12, channels, 8, 8)))
    net = CNN.init(
        (2, 3), classes=3, channels=channels, pool_size=2, normalise=BatchNorm.init, key=jr.key(1)
    )
    data = xs, np.arange(12) % 3
    return Outcome(net, data, data, cross_entropy, classes=("a", "b", "c"))


@pytest.mark.slow
def test_a_convolutional_network_has_all_four_sections(lenses, tmp_path):
    given = images()
    text = look(given, tmp_path).read_text()
    assert headings(text) == IMAGES
    assert "This section could not be computed" not in text
    assert "2 of 3 × 3" in text
    assert (tmp_path / "figures" / "translation-equivariance.png").exists()
    net = fold_batch_norm(given.model, jnp.asarray(given.train[0]))
    found = explain.equivariance(net, jnp.asarray(given.test[0]), shifts=range(1, 8))
    assert found.stride.max() == 4
    assert "<dd>4 pixels</dd>" in text
    assert f"<dd>{100 * found.output[0]:.2f} %</dd>" in text


def sequences():
    xs = np.asarray(jr.normal(jr.key(0), (5, 6, 2)))
    net = SequenceClassifier.init(4, 3, width=2, cell=Elman.init, key=jr.key(1))
    data = xs, np.arange(5) % 3
    return Outcome(net, data, data, cross_entropy, classes=("a", "b", "c"))


@pytest.mark.slow
def test_a_recurrent_network_has_both_sections(lenses, tmp_path):
    given = sequences()
    text = look(given, tmp_path).read_text()
    assert headings(text) == TIME
    assert "This section could not be computed" not in text
    found = explain.gradients_through_time(given.model, jnp.asarray(given.test[0][[0, 1, 2, 4]]))
    assert (
        f"<dt>Jacobian norm after 6 steps</dt><dd>{found.norms.mean(axis=0)[-1]:.3g}</dd>" in text
    )
    assert "<dt>upper bound per step</dt><dd>1</dd>" in text
    assert "the matrix U" in text


@pytest.mark.slow
def test_a_translator_has_attention_alignment(lenses, tmp_path):
    pairs = jnp.array([[1, 3, 2], [2, 2, -1]]), jnp.array([[0, 4], [0, 1]])
    data = pairs, jnp.array([[4, 1], [1, 2]])
    net = EncoderDecoder.init(4, 5, 2, 3, attention_width=2, key=jr.key(0))
    given = Outcome(net, data, data, squared_error, tokens=tuple("abcd"), classes=tuple("vwxyz"))
    text = look(given, tmp_path).read_text()
    assert headings(text) == [*TIME, "Attention alignment"]
    assert "This section could not be computed" not in text
    assert all(f">{word}</text>" in text or f">{word}<" in text for word in "bdcz")
    assert not has_cross_attention(
        Outcome(EncoderDecoder.init(4, 5, 2, 3, key=jr.key(0)), data, data, squared_error)
    )


def test_other_models_have_none_of_these_sections():
    """Tables, flat images and ensembles get none of these sections."""
    ys = jnp.array([0, 1, 2, 0])
    many = Ensemble.init(partial(CNN.init, (2,), classes=3), 2, key=jr.key(0))
    judged = lambda net, xs: Outcome(net, (xs, ys), (xs, ys), cross_entropy, classes=tuple("abc"))
    flat = judged(MLP.init(25, 4, 3, key=jr.key(0)), jnp.ones((4, 5, 5)))
    plain = judged(MLP.init(3, 4, 3, key=jr.key(0)), jnp.ones((4, 3)))
    group = judged(many, jnp.ones((4, 1, 8, 8)))
    for outcome in (flat, plain, group):
        assert not any(
            applies(outcome)
            for applies in (
                has_convolutions,
                is_image_classifier,
                is_recurrent,
                has_cross_attention,
            )
        )
    assert has_convolutions(images())
    assert is_image_classifier(images())
    assert not is_image_classifier(images(channels=2))  # no pictures
    assert is_recurrent(sequences())
    assert not is_recurrent(
        Outcome(Recurrent(NGram.fit([0, 1, 0], vocab_size=2, order=1)), (), (), squared_error)
    )
    line = Recurrent(LRU.init(2, 3, 2, key=jr.key(0)))
    assert is_recurrent(
        Outcome(Chain(line, Linear.init(2, 2, key=jr.key(1))), (), (), squared_error)
    )


def test_curvature_of_convolutions_on_a_cpu_uses_fewer_examples(monkeypatch):
    """The work is nearly that of the one convolution: 2·9 operations at each of 28² places, eight
    times over.
    """
    counted = lambda net, xs: len(
        curvature_examples(Outcome(net, (xs, np.zeros(len(xs))), (), cross_entropy))[0]
    )
    xs = np.zeros((1200, 1, 28, 28), np.float32)
    net = CNN.init((8,), classes=2, pool_size=1, key=jr.key(0))
    monkeypatch.setattr("jax.default_backend", lambda: "cpu")
    assert 0.7 * 30e6 < counted(net, xs) * 2 * 9 * 8 * 28**2 < 30e6
    assert counted(MLP.init(784, 2, key=jr.key(0)), xs) == MAX_CURVATURE_EXAMPLES
    monkeypatch.setattr("thetax.report.lenses.basic.MAX_CPU_OPERATIONS", 1)
    assert counted(net, xs) == MIN_EXAMPLES
    monkeypatch.setattr("thetax.report.lenses.basic.CPU_REFUSAL_OPERATIONS", 1)
    with pytest.raises(
        LensUnavailable, match="it would take many minutes for a network of this size"
    ):
        counted(net, xs)
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    assert counted(net, xs) == MAX_CURVATURE_EXAMPLES


def test_a_failed_lens_shows_one_line(lenses, tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("it broke " + 100 * "and broke " + "\nat line 1\nat line 2")

    monkeypatch.setattr(explain, "recurrence_eigenvalues", fail)
    with pytest.warns(RuntimeWarning, match="it broke") as caught:
        text = look(sequences(), tmp_path).read_text()
    (said,) = re.findall(r'<p class="error">(.*?)</p>', text, re.DOTALL)
    assert said.startswith("This section could not be computed: RuntimeError: it broke and broke")
    assert said.endswith("…")
    assert len(said) < 360
    assert "at line" not in str(caught[0].message)
