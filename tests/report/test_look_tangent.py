"""Tests of the lenses on the tangent kernel: when they apply, their numbers and their cost."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import explain
from thetax.layers import BatchNorm, Chain, Linear, fold_batch_norm
from thetax.models import CNN, GPT, MLP, SequenceClassifier
from thetax.recipes.engine.outcome import Outcome
from thetax.report import LENSES, look
from thetax.report.lenses import tangent_kernel as tangent
from thetax.report.registry import LensUnavailable
from thetax.train import cross_entropy, squared_error

EASY = "Neural tangent kernel: eigenvalues and target alignment"
MAP = "Neural tangent kernel by class"
LAZY = "Lazy training or feature learning"
RACE = "Linearised against full training"
xs = np.asarray(jr.normal(jr.key(1), (40, 4)))
ys = np.arange(40) % 3
moved = lambda model: jax.tree.map(lambda a: 1.1 * a + 0.01, model)


@pytest.fixture
def only():
    """Restricts the registry to the lenses of these titles."""
    before = list(LENSES)
    yield lambda *titles: LENSES.__setitem__(
        slice(None), [shown for shown in before if shown.title in titles]
    )
    LENSES[:] = before


def judged(net, xs=xs, ys=ys, classes=("a", "b", "c"), **parts):
    data = jnp.asarray(xs), jnp.asarray(ys)
    return Outcome(net, data, data, cross_entropy, classes=classes, **parts)


def seen(outcome):
    return {
        shown.title
        for shown in LENSES
        if shown.compute.__module__ == tangent.__name__ and shown.applies(outcome)
    }


def find(title):
    return next(shown for shown in LENSES if shown.title == title)


def test_kernel_lenses_apply_to_models_with_a_vector_output():
    dense = MLP.init(4, 5, 3, key=jr.key(0))
    assert seen(judged(dense)) == {EASY, MAP}
    assert seen(judged(dense, start=dense)) == {EASY, MAP, LAZY, RACE}
    assert seen(judged(dense, start=MLP.init(4, 6, 3, key=jr.key(0)))) == {EASY, MAP}
    line = MLP.init(4, 5, 1, key=jr.key(0))
    assert seen(judged(line, ys=xs[:, 0], classes=(), start=line)) == {EASY, LAZY, RACE}
    pictures = np.zeros((40, 1, 8, 8), np.float32)
    assert seen(judged(CNN.init((2,), classes=3, key=jr.key(0)), pictures)) == {EASY, MAP}
    words = np.arange(200).reshape(40, 5) % 7
    assert seen(
        judged(SequenceClassifier.init(4, 3, vocab_size=7, width=3, key=jr.key(0)), words)
    ) == {
        EASY,
        MAP,
    }
    gpt = GPT.init(7, d=4, depth=1, heads=1, max_length=5, key=jr.key(0))
    assert seen(judged(gpt, words, words, tuple("abcdefg"), tokens=tuple("abcdefg"))) == set()
    assert seen(Outcome(MLP.init(4, 5, 3, key=jr.key(0)), (), (), squared_error)) == set()


@pytest.mark.slow
def test_the_sections_show_the_numbers_of_the_library(tmp_path, only):
    only(EASY, MAP, LAZY, RACE)
    end = MLP.init(4, 5, 3, key=jr.key(0))
    given = judged(end, start=moved(end), decay=0.01)
    text = look(given, tmp_path).read_text()
    train = jax.tree.map(jnp.asarray, given.train)
    found = explain.tangent_spectrum(end, train, weight_decay=0.01)
    drift = explain.kernel_drift([given.start, end], train)
    table = explain.kernel_map(end, train, classes=given.classes)
    assert f"<dd>{found.alignment:.3f}</dd>" in text
    assert f"<dd>{float(found.effective_dimension(0.01)):.1f} of 40</dd>" in text
    assert f"<dd>{drift.verdict}</dd>" in text
    assert f"from {drift.alignment[0]:.3f} to {drift.alignment[1]:.3f}" in text
    assert f"<dt>mean cosine within a class</dt><dd>{table.within:.3f}</dd>" in text
    race = explain.compare_linearised(given.start, train, train, steps=tangent.MAX_STEPS)
    assert f"<dt>test error, full network</dt><dd>{100 * race.errors[1, -1]:.2f} %</dd>" in text
    assert "could not be computed" not in text


def test_batch_norms_of_the_initial_model_are_folded_too(tmp_path, only, monkeypatch):
    net = MLP.init(4, 5, 3, normalise=BatchNorm.init, key=jr.key(0))
    caught = []
    monkeypatch.setattr(
        explain, "kernel_drift", lambda models, data: caught.extend(models) or 1 / 0
    )
    only(LAZY)
    with pytest.warns(RuntimeWarning, match="ZeroDivisionError"):
        look(judged(moved(net), start=net), tmp_path)
    for folded, whole in zip(caught, (net, moved(net))):
        assert jnp.allclose(
            folded(jnp.asarray(xs[0])),
            fold_batch_norm(whole, jnp.asarray(xs))(jnp.asarray(xs[0])),
            atol=1e-5,
        )


def test_the_number_of_examples_fits_the_budget(monkeypatch):
    given = judged(MLP.init(4, 5, 3, key=jr.key(0)))
    count = lambda: len(tangent.examples(given, given.train)[1])
    assert count() == 40
    kernel = explain.ntk(given.model, form="trace")
    each = sum(
        explain.count_flops(lambda m, x: jax.vmap(m)(x), given.model, jnp.asarray(xs[:1])).values()
    )
    cost = lambda n: kernel.plan(jnp.asarray(xs[:n])).multiplications + n * each * 7
    monkeypatch.setattr(tangent, "MAX_KERNEL_OPERATIONS", float(cost(26)))
    assert 16 <= count() <= 26
    monkeypatch.setattr(tangent, "MAX_KERNEL_OPERATIONS", float(cost(15)))
    with pytest.raises(LensUnavailable, match="the kernel of 16 examples would take too long"):
        count()


def test_unavailable_lenses_give_the_reason_without_a_warning(tmp_path, only, monkeypatch):
    sign = Chain(Linear.init(4, 3, key=jr.key(0)), jnp.sign)
    only(EASY)
    text = look(judged(sign), tmp_path).read_text()
    assert (
        "<dt>not shown</dt><dd>the gradient of the outputs with respect to the parameters is zero"
        in text
    )
    assert "could not be computed" not in text
    monkeypatch.setattr(tangent, "MAX_TRAINING_OPERATIONS", 1.0)
    only(RACE)
    net = MLP.init(4, 5, 3, key=jr.key(0))
    with pytest.raises(LensUnavailable, match="150 steps on 16 examples"):
        find(RACE).compute(judged(net, start=net))


def test_results_of_recipes_have_their_sections():
    given = judged(MLP.init(4, 5, 3, key=jr.key(0)))
    widths = explain.WidthScaling(
        *np.geomspace(1, 0.01, 18).reshape(3, 3, 2), np.array([8, 32, 128])
    )
    beside = explain.InfiniteWidthComparison(
        np.linspace(-1, 1, 60).reshape(2, 10, 3), np.linspace(1, 2, 20).reshape(2, 10)
    )
    assert seen(replace(given, measured=widths)) - seen(given) == {
        "Neural tangent kernel against width"
    }
    assert seen(replace(given, measured=beside)) - seen(given) == {
        "Trained networks against the infinite-width limit"
    }
    assert (
        find("Neural tangent kernel against width")
        .metrics(widths)["parameter change"]
        .startswith("width to the power −")
    )
    assert find("Trained networks against the infinite-width limit").metrics(beside) == {
        "correlation of means": "1.000",
        "correlation of standard deviations": "1.000",
    }
