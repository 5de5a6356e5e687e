"""Every example runs."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.slow
def test_one_model():
    assert runpy.run_path(str(EXAMPLES / "one_model.py"))["main"](epochs=15) < 0.1


@pytest.mark.slow
def test_chapter_3(tmp_path):
    gaps = runpy.run_path(str(EXAMPLES / "chapter_3.py"))["main"](steps=100, folder=str(tmp_path))
    assert gaps["heavy ball"] < gaps["gradient descent"] / 2
    assert {path.name for path in tmp_path.iterdir()} == {"rates.png", "trajectory.png"}


@pytest.mark.slow
def test_chapter_1(tmp_path):
    results = runpy.run_path(str(EXAMPLES / "chapter_1.py"))["main"](str(tmp_path))
    assert results["perceptron"] == 0
    assert results["Hebb"] == 0
    assert results["modern"] == 1
    assert results["overlap"] > 0.99
    assert [path.name for path in tmp_path.iterdir()] == ["recall.png"]


@pytest.mark.slow
def test_chapter_2(tmp_path, capsys):
    results = runpy.run_path(str(EXAMPLES / "chapter_2.py"))["main"](folder=str(tmp_path))
    assert (
        max(results["step"], results["interpolating"], results["random features"])
        < 0.05
        < results["cubic"]
    )
    assert results["equivalent"] < 1e-4
    assert results["greedy"] < 0.5
    assert results["plain"] < 1e-6 * results["residual"]
    assert {path.name for path in tmp_path.iterdir()} == {"cubic.png", "regions.png"}
    text = capsys.readouterr().out
    assert "step network, 200 units" in text
    assert f"figures in {tmp_path}" in text


@pytest.mark.slow
def test_lecture_1(tmp_path):
    results = runpy.run_path(str(EXAMPLES / "lecture_1.py"))["main"](folder=str(tmp_path))
    assert max(results["gradient"], results["correlations"]) < 1e-5
    assert results["sine"] < 5e-3
    assert results["explained"] > 0.9
    assert results["modes"] < 1e-3
    assert {path.name for path in tmp_path.iterdir()} == {"sine.png", "modes.png"}


@pytest.mark.slow
def test_chapter_8(tmp_path, capsys):
    results = runpy.run_path(str(EXAMPLES / "chapter_8.py"))["main"](folder=str(tmp_path))
    assert results["LeCun"] < 1e-4 * results["He"]
    assert results["dropout"] < results["weight decay"]
    assert results["AUROC"] > 0.8
    assert results["folded"] < 1e-4
    assert results["teacher"] < results["distilled"] < results["student"] - 1
    assert {path.name for path in tmp_path.iterdir()} == {"shrinkage.png", "uncertainty.png"}
    assert f"figures in {tmp_path}" in capsys.readouterr().out


@pytest.mark.slow
def test_chapter_4(tmp_path):
    results = runpy.run_path(str(EXAMPLES / "chapter_4.py"))["main"](folder=str(tmp_path))
    assert results["forms"] < 1e-5
    assert results["CNN 2"] < results["CNN 0"] + 3 < 13
    assert results["perceptron 2"] > 50
    assert results["equivariance"] < 1e-5
    assert results["parameters"] == 25_557_032
    assert {path.name for path in tmp_path.iterdir()} == {"filters.png", "saliency.png"}


@pytest.mark.slow
def test_chapter_5(tmp_path):
    results = runpy.run_path(str(EXAMPLES / "chapter_5.py"))["main"](folder=str(tmp_path))
    assert results["Elman"] <= results["bound"] < 1e-4
    assert min(results["LSTM"], results["LRU"]) > 0.1
    assert results["network"] < results["3-gram"] < 0.5
    assert results["sequence error"] < 0.05
    assert {path.name for path in tmp_path.iterdir()} == {"eigenvalues.png", "alignment.png"}


@pytest.mark.slow
def test_chapter_6(tmp_path):
    results = runpy.run_path(str(EXAMPLES / "chapter_6.py"))["main"](folder=str(tmp_path))
    assert results["order"] < 1e-5
    assert results["translated"] > 0.9
    assert results["memorised"] > 0.9
    assert results["without positions"] < 1e-6 < 1e-4 < results["with positions"]
    assert {path.name for path in tmp_path.iterdir()} == {"alignment.png", "attention.png"}


@pytest.mark.slow
def test_chapter_9(tmp_path):
    results = runpy.run_path(str(EXAMPLES / "chapter_9.py"))["main"](folder=str(tmp_path))
    assert results["kernel 16"] > 1.5 * results["kernel 128"] > 2 * results["kernel 1024"]
    assert results["gap 16"] > 1.5 * results["gap 128"] > 2 * results["gap 1024"]
    assert max(results["linearised"], results["trained"], results["infinite"]) < 20
    assert {path.name for path in tmp_path.iterdir()} == {"outputs.png", "widths.png"}


@pytest.mark.slow
def test_chapter_10(tmp_path):
    results = runpy.run_path(str(EXAMPLES / "chapter_10.py"))["main"](folder=str(tmp_path))
    assert 0.5 < results["length"] < 1.0
    assert 0.02 < results["noise"] < 0.08
    assert 0 <= results["loss"] < 1
    assert results["error"] < 0.9 * results["spread"]
    assert results["calibration"] < 0.05
    assert {path.name for path in tmp_path.iterdir()} == {"posterior.png", "intervals.png"}


@pytest.mark.slow
def test_chapter_13(tmp_path):
    results = runpy.run_path(str(EXAMPLES / "chapter_13.py"))["main"](
        folder=str(tmp_path), epochs=12
    )
    assert results["robust under attack"] > results["standard under attack"] + 0.2
    assert results["robust clean"] > 0.85
    assert results["robust distance"] > results["standard distance"]
    assert results["robust certified"] <= results["robust clean"]
    assert (tmp_path / "robust.png").stat().st_size > 10_000
