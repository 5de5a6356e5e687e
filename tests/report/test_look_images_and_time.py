"""The lenses on images and on time, through the reports of small networks."""

import re
from functools import partial

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import explain
from thetax.layers import LRU, BatchNorm, Chain, Elman, Ensemble, Linear, Recurrent, fold
from thetax.models import CNN, MLP, EncoderDecoder, NGram, SequenceClassifier
from thetax.recipes.engine.outcome import Outcome
from thetax.report import LENSES, look
from thetax.report.lenses.basic import bent
from thetax.report.lenses.images import convolves, sees
from thetax.report.lenses.time import attends, recurs
from thetax.report.registry import MAX_CURVATURE_EXAMPLES, MIN_EXAMPLES, LensUnavailable
from thetax.train import cross_entropy, squared_error

IMAGES = ["Filters", "Feature maps", "Saliency", "Shifted images"]
TIME = ["Signal through time", "Eigenvalues of the recurrence"]


@pytest.fixture
def lenses():
    before = list(LENSES)
    LENSES[:] = [shown for shown in LENSES if shown.title in (*IMAGES, *TIME, "Alignment")]
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
def test_a_convolutional_network_is_seen_through_all_four(lenses, tmp_path):
    given = images()
    text = look(given, tmp_path).read_text()
    assert headings(text) == IMAGES
    assert "This lens failed" not in text
    assert "2 of 3 × 3" in text
    assert (tmp_path / "figures" / "shifted-images.png").exists()
    net = fold(given.model, jnp.asarray(given.train[0]))
    found = explain.equivariance(net, jnp.asarray(given.test[0]), shifts=range(1, 8))
    assert found.stride.max() == 4
    assert "<dd>4 pixels</dd>" in text
    assert f"by {100 * found.output[0]:.2f} %" in text


def sequences():
    xs = np.asarray(jr.normal(jr.key(0), (5, 6, 2)))
    net = SequenceClassifier.init(4, 3, width=2, cell=Elman.init, key=jr.key(1))
    data = xs, np.arange(5) % 3
    return Outcome(net, data, data, cross_entropy, classes=("a", "b", "c"))


@pytest.mark.slow
def test_a_recurrent_network_is_seen_through_time(lenses, tmp_path):
    given = sequences()
    text = look(given, tmp_path).read_text()
    assert headings(text) == TIME
    assert "This lens failed" not in text
    found = explain.through_time(given.model, jnp.asarray(given.test[0][[0, 1, 2, 4]]))
    assert f"<dt>left after 6 steps</dt><dd>{found.norms.mean(axis=0)[-1]:.3g}</dd>" in text
    assert "<dt>at most a step, by the weights</dt><dd>1</dd>" in text
    assert "the matrix U" in text


@pytest.mark.slow
def test_a_translation_shows_where_it_looks(lenses, tmp_path):
    pairs = jnp.array([[1, 3, 2], [2, 2, -1]]), jnp.array([[0, 4], [0, 1]])
    data = pairs, jnp.array([[4, 1], [1, 2]])
    net = EncoderDecoder.init(4, 5, 2, 3, attention_width=2, key=jr.key(0))
    given = Outcome(net, data, data, squared_error, tokens=tuple("abcd"), classes=tuple("vwxyz"))
    text = look(given, tmp_path).read_text()
    assert headings(text) == [*TIME, "Alignment"]
    assert "This lens failed" not in text
    assert all(f">{word}</text>" in text or f">{word}<" in text for word in "bdcz")
    assert not attends(
        Outcome(EncoderDecoder.init(4, 5, 2, 3, key=jr.key(0)), data, data, squared_error)
    )


def test_others_are_left_alone():
    """Tables, flat images and ensembles get none of these sections."""
    ys = jnp.array([0, 1, 2, 0])
    many = Ensemble.init(partial(CNN.init, (2,), classes=3), 2, key=jr.key(0))
    judged = lambda net, xs: Outcome(net, (xs, ys), (xs, ys), cross_entropy, classes=tuple("abc"))
    flat = judged(MLP.init(25, 4, 3, key=jr.key(0)), jnp.ones((4, 5, 5)))
    plain = judged(MLP.init(3, 4, 3, key=jr.key(0)), jnp.ones((4, 3)))
    group = judged(many, jnp.ones((4, 1, 8, 8)))
    for outcome in (flat, plain, group):
        assert not any(applies(outcome) for applies in (convolves, sees, recurs, attends))
    assert convolves(images())
    assert sees(images())
    assert not sees(images(channels=2))  # no pictures
    assert recurs(sequences())
    assert not recurs(
        Outcome(Recurrent(NGram.fit([0, 1, 0], vocab_size=2, order=1)), (), (), squared_error)
    )
    line = Recurrent(LRU.init(2, 3, 2, key=jr.key(0)))
    assert recurs(Outcome(Chain(line, Linear.init(2, 2, key=jr.key(1))), (), (), squared_error))


def test_convolutions_on_a_cpu_are_bent_on_as_many_examples_as_are_afforded(monkeypatch):
    """The work is nearly that of the one convolution: 2·9 operations at each of 28² places, eight
    times over.
    """
    counted = lambda net, xs: len(bent(Outcome(net, (xs, np.zeros(len(xs))), (), cross_entropy))[0])
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


def test_a_lens_that_fails_says_so_in_a_line(lenses, tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("it broke " + 100 * "and broke " + "\nat line 1\nat line 2")

    monkeypatch.setattr(explain, "eigenvalues", fail)
    with pytest.warns(RuntimeWarning, match="it broke") as caught:
        text = look(sequences(), tmp_path).read_text()
    (said,) = re.findall(r'<p class="trouble">(.*?)</p>', text, re.DOTALL)
    assert said.startswith("This lens failed: RuntimeError: it broke and broke")
    assert said.endswith("…")
    assert len(said) < 330
    assert "at line" not in str(caught[0].message)
