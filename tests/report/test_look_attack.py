"""Tests of the lenses on attacks: when they apply, their numbers, and that attacks run once."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import attack as attacks
from thetax import certify, threat
from thetax.core import predict
from thetax.layers import Chain, Linear
from thetax.models import CNN, GPT, MLP, SequenceClassifier
from thetax.recipes.engine.outcome import Outcome
from thetax.recipes.robustness.attack import binary_logits
from thetax.report import LENSES, look
from thetax.report.lenses import attacks as attack
from thetax.report.registry import LensUnavailable
from thetax.train import cross_entropy, squared_error

CURVES, NEAR, FRAGILE, AROUND = found = (
    "Adversarial attacks: robust accuracy",
    "Adversarial attacks: distance to the decision boundary",
    "Adversarial attacks: least robust examples",
    "Adversarial attacks: loss surface and gradient masking",
)
xs = np.asarray(jr.uniform(jr.key(1), (24, 4)))
net = MLP.init(4, 8, 3, key=jr.key(0))
ys = np.asarray(jnp.argmax(predict(net, jnp.asarray(xs)), axis=1)).copy()
ys[3] = (ys[3] + 1) % 3


def judged(net, xs=xs, ys=ys, classes=("a", "b", "c"), **parts):
    data = jnp.asarray(xs), jnp.asarray(ys)
    return Outcome(net, data, data, cross_entropy, classes=classes, **parts)


def seen(outcome):
    return {
        shown.title
        for shown in LENSES
        if shown.compute.__module__ == attack.__name__ and shown.applies(outcome)
    }


def find(title):
    return next(shown for shown in LENSES if shown.title == title)


def test_attack_lenses_apply_to_classifiers_of_float_inputs():
    every = set(found)
    assert seen(judged(net)) == every
    assert seen(judged(MLP.init(4, 5, 1, key=jr.key(0)), ys=ys % 2, classes=("no", "yes"))) == every
    assert (
        seen(judged(CNN.init((2,), classes=3, key=jr.key(0)), np.zeros((24, 1, 8, 8), np.float32)))
        == every
    )
    assert seen(judged(net, ys=xs[:, 0], classes=())) == set()
    assert seen(judged(net, ys=ys - 1)) == set()  # classes are not counted from 0
    assert seen(judged(net, classes=("a", "b", "c", "d"))) == set()
    words = np.arange(120).reshape(24, 5) % 7
    assert (
        seen(judged(SequenceClassifier.init(4, 3, vocab_size=7, width=3, key=jr.key(0)), words))
        == set()
    )
    gpt = GPT.init(7, d=4, depth=1, heads=1, max_length=5, key=jr.key(0))
    assert seen(judged(gpt, words, words, tuple("abcdefg"), tokens=tuple("abcdefg"))) == set()
    assert seen(Outcome(net, (), (), squared_error)) == set()


@pytest.mark.slow
def test_the_sections_show_the_numbers_of_the_library(tmp_path, monkeypatch):
    searches = []
    own = attacks.boundary_distance
    monkeypatch.setattr(
        attack, "boundary_distance", lambda *a, **k: searches.append(a[2].__name__) or own(*a, **k)
    )
    given = judged(net, features=("p", "q", "r", "s"))
    text = look(given, tmp_path, only=["attacks"]).read_text()
    assert "could not be computed" not in text
    assert text.count("<svg") == 4
    assert searches == ["Linf", "L2"]  # once for all
    box = float(xs.min()), float(xs.max())
    direct = own(net, given.test, threat.L2, box=box)
    right = direct.distances[direct.distances > 0]
    assert f"median {np.median(right):.3g}, smallest {right.min():.2g}" in text
    assert "23 classified correctly, of 24" in text
    assert f"after a change of L2 norm {right.min():.2g}" in text
    assert f"{100 * 23 / 24:.2f} % classified correctly without an attack" in text
    assert "linear bounds (CROWN)" in text
    assert ">p<" in text


@pytest.mark.slow
def test_binary_classifiers_and_the_input_range():
    one = Linear(jnp.array([[3.0, -4.0, 0.0, 0.0]]), jnp.zeros(1))
    pair = Chain(one, binary_logits)
    x = jnp.asarray(xs)
    assert jnp.argmax(predict(pair, x), axis=1).tolist() == (x @ one.W[0] > 0).astype(int).tolist()
    inside = x.at[0, 0].set(0.0).at[0, 1].set(1.0)
    given = judged(one, inside, (inside @ one.W[0] > 0).astype(int), ("no", "yes"))
    assert attack.attack_examples(given).box == (0.0, 1.0)
    curves = find(CURVES).compute(given)
    for norm in ("Linf", "L2"):
        assert (curves.radii[norm] <= curves.distances[norm] * (1 + 1e-5)).all()
    dual = np.abs(np.asarray(inside @ one.W[0])) / 7  # without the range: over the sum of |w|
    clear = np.isfinite(curves.distances["Linf"])
    assert (curves.distances["Linf"][clear] >= dual[clear] * 0.999).all()


@pytest.mark.slow
def test_a_model_without_bounds_is_still_attacked():
    sorts = Chain(net, lambda z: z + 0.01 * jnp.sort(z))
    given = judged(sorts, ys=np.asarray(jnp.argmax(predict(sorts, jnp.asarray(xs)), axis=1)))
    curves = find(CURVES).compute(given)
    reported = find(CURVES).metrics(curves)
    assert not curves.radii
    assert "sort" in reported["no certificate"]
    assert "certified" not in " ".join(reported.values())


def test_unavailable_lenses_give_the_reason(monkeypatch):
    sure = Chain(net, lambda z: jnp.exp(z) / jnp.exp(z).sum())
    with pytest.raises(LensUnavailable, match="the model returns probabilities"):
        attack.attack_examples(judged(sure))
    with pytest.raises(LensUnavailable, match="all inputs have the same value"):
        attack.attack_examples(judged(net, np.zeros_like(xs)))
    wrong = judged(net, ys=(np.asarray(jnp.argmax(predict(net, jnp.asarray(xs)), axis=1)) + 1) % 3)
    with pytest.raises(
        LensUnavailable, match="no attack on a correctly classified example succeeded"
    ):
        find(AROUND).compute(wrong)
    assert (
        find(FRAGILE)
        .metrics(find(FRAGILE).compute(wrong))["least robust examples"]
        .startswith("none")
    )
    monkeypatch.setattr(attack, "MAX_ATTACK_OPERATIONS", 1.0)
    with pytest.raises(LensUnavailable, match="attacking 16 examples would take too long"):
        attack.attack_examples(judged(net))


def test_gradient_norms_are_unavailable_for_adversarial_objectives():
    data = jnp.asarray(xs), jnp.asarray(ys)
    step = attacks.PGD(cross_entropy, threat.Linf(0.1), step_size=0.1, steps=1)
    for objective in (
        attacks.adversarial_objective(cross_entropy, step),
        certify.interval_cross_entropy(threat.Linf(0.1)),
    ):
        with pytest.raises(
            LensUnavailable,
            match=r"the layers cannot be probed: .* one array.*",
        ):
            find("Gradient norms by layer").compute(
                Outcome(net, data, data, objective, classes=("a", "b", "c"))
            )
