"""The benchmark harness on trivial rows: ratio, missing peers, failures, output."""

import importlib
import json
from types import SimpleNamespace

import pytest
from rich.console import Console

from bench import SUBJECTS, machine, row, table
from bench.__main__ import main, nearest, report, run
from bench.row import Missing, Result, Row, Work, compare

LIMITS = machine.Limits(1e11, 1e10)


def fake(*, ours=lambda: 2.0, theirs=lambda: 6.0, check=lambda: None, **settings):
    return Row(
        "fake", "nobody", ours, theirs, "ms/step", check, pairs=settings.pop("pairs", 3), **settings
    )


def absent():
    raise Missing("not installed")


def disagree():
    raise AssertionError("the two differ\nby much")


def test_ratio_above_one_means_that_we_are_better():
    result = compare(fake())
    assert (result.ours, result.theirs, result.ratio, result.spread) == (2.0, 6.0, 3.0, 0.0)
    assert compare(fake(ours=lambda: 6.0, theirs=lambda: 2.0)).ratio == pytest.approx(1 / 3)


def test_sides_take_turns_after_check_and_warm_up():
    order = []

    def side(name, costs):
        return lambda: order.append(name) or next(costs)

    ours = side("a", iter([99.0, 1.0, 2.0, 4.0]))
    theirs = side("b", iter([99.0, 2.0, 2.0, 12.0]))
    result = compare(fake(ours=ours, theirs=theirs, check=lambda: order.append("check")))
    assert "".join(order) == "check" + "ab" * 4
    assert (result.ours, result.theirs, result.ratio, result.spread) == (
        2.0,
        2.0,
        2.0,
        1.0,
    )  # pairs: 2, 1, 3


@pytest.mark.parametrize("where", ["check", "theirs"])
def test_ours_is_timed_without_a_missing_peer(where):
    result = compare(fake(**{where: absent}))
    assert (result.ours, result.theirs, result.ratio, result.failed) == (2.0, None, None, False)
    assert result.as_json()["peer"] == "nobody (not installed)"


def test_a_peer_that_is_not_installed_is_missing():
    with pytest.raises(Missing, match="not installed"):
        row.library("a_library_nobody_wrote")


@pytest.mark.parametrize("broken", [{"check": disagree}, {"ours": disagree}, {"theirs": disagree}])
def test_nothing_is_timed_after_a_failed_check(broken):
    result = compare(fake(**broken))
    assert result.failed
    assert (result.ours, result.theirs, result.ratio) == (None, None, None)
    assert result.error == "failed: AssertionError: the two differ"


def test_nothing_is_timed_before_the_check_has_passed():
    calls = []
    compare(fake(ours=lambda: calls.append(1) or 1.0, check=disagree))
    assert calls == []


def test_the_json_format():
    results = [compare(fake()), compare(fake(check=absent)), compare(fake(check=disagree))]
    content = json.loads(json.dumps(report(machine.describe(), results)))
    assert content.keys() == {"machine", "rows"}
    for found in content["rows"]:
        assert list(found) == ["name", "peer", "ours", "theirs", "unit", "ratio", "spread"]
    assert content["machine"].keys() >= {"cpu", "cores", "memory GiB", "os", "python", "versions"}
    assert content["machine"]["versions"]["jax"]


@pytest.fixture(autouse=True)
def restless(monkeypatch):
    monkeypatch.setattr(row, "PAUSE", 0)


@pytest.fixture
def harmless(monkeypatch):
    """The harness with two made-up subjects, one of which has a row that fails."""
    good = SimpleNamespace(__name__="bench.mlp", describe=lambda: "nothing", rows=lambda: [fake()])
    bad = SimpleNamespace(
        __name__="bench.start", describe=lambda: "", rows=lambda: [fake(check=disagree), fake()]
    )
    subjects = {"bench.mlp": good, "bench.start": bad}
    monkeypatch.setattr(importlib, "import_module", lambda name: subjects[name])
    monkeypatch.setattr(machine, "measure", lambda: LIMITS)
    return list(subjects.values())


def test_one_failure_does_not_stop_the_others_and_sets_the_exit_code(harmless, tmp_path, capsys):
    path = tmp_path / "out.json"
    assert main("start", "mlp", json=path) == 1
    assert [found["ratio"] for found in json.loads(path.read_text())["rows"]] == [None, 3.0, 3.0]
    assert main("mlp") == 0
    assert "the two differ" in capsys.readouterr().out


def test_an_unknown_name_is_refused_with_similar_names(capsys):
    assert main("mlp", "resum") == 2
    assert "nearest: resume" in capsys.readouterr().err
    assert nearest("xyzzy") == f"choose from {', '.join(SUBJECTS)}"


def test_the_table_has_target_limit_remark_and_error(harmless):
    work = Work(operations=1e8, bytes=1e6)  # at least 1 ms
    rows = [
        fake(target=2, work=work, remark=lambda result: "so be it"),
        fake(target=4),
        fake(check=absent, target=1),
    ]
    console = Console(record=True, width=130)
    table.show_work(console, "fake", "little", rows, LIMITS)
    table.show_results(console, [compare(r) for r in rows], LIMITS)
    text = console.export_text()
    for said in (
        "no less than 1 ms/step",
        "2 met",
        "4 missed",
        "50 %",
        "so be it",
        "not installed",
        "100 GFLOP/s",
    ):
        assert said in text


def test_the_bound_of_work_is_the_slower_of_operations_and_traffic():
    assert Work(1e9, 1e6).floor(1e11, 1e10) == pytest.approx(1e-2)
    assert Work(1e6, 1e9).floor(1e11, 1e10) == pytest.approx(1e-1)


def test_limits_are_measured_and_positive(monkeypatch):
    monkeypatch.setattr(machine, "_fastest", lambda work, tries: work() is None or 1e-3)
    assert min(machine.measure()) > 0


def test_progress_is_shown(harmless):
    console = Console(record=True, width=130)
    err = Console(record=True, width=130)
    _, results = run(harmless[:1], console, err)
    assert isinstance(results[0], Result)
    assert "fake against nobody: 2 to 6 ms/step, ratio 3" in err.export_text()
