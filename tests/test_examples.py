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
    ends = runpy.run_path(str(EXAMPLES / "chapter_3.py"))["main"](steps=100, folder=str(tmp_path))
    assert ends["heavy ball"] < ends["descent"] / 2
    assert {path.name for path in tmp_path.iterdir()} == {"rates.png", "way.png"}


@pytest.mark.slow
def test_chapter_1(tmp_path):
    found = runpy.run_path(str(EXAMPLES / "chapter_1.py"))["main"](str(tmp_path))
    assert found["perceptron"] == 0
    assert found["Hebb"] == 0
    assert found["modern"] == 1
    assert found["overlap"] > 0.99
    assert [path.name for path in tmp_path.iterdir()] == ["recall.png"]


@pytest.mark.slow
def test_chapter_2(tmp_path, capsys):
    found = runpy.run_path(str(EXAMPLES / "chapter_2.py"))["main"](folder=str(tmp_path))
    assert max(found["staircase"], found["polygon"], found["random units"]) < 0.05 < found["cubic"]
    assert found["twin"] < 1e-4
    assert found["greedy"] < 0.5
    assert found["plain"] < 1e-6 * found["residual"]
    assert {path.name for path in tmp_path.iterdir()} == {"cubic.png", "regions.png"}
    said = capsys.readouterr().out
    assert "staircase, 200 units" in said
    assert f"drawn in {tmp_path}" in said


@pytest.mark.slow
def test_lecture_1(tmp_path):
    found = runpy.run_path(str(EXAMPLES / "lecture_1.py"))["main"](folder=str(tmp_path))
    assert max(found["gradient"], found["correlations"]) < 1e-5
    assert found["sine"] < 5e-3
    assert found["kept"] > 0.9
    assert found["modes"] < 1e-3
    assert {path.name for path in tmp_path.iterdir()} == {"sine.png", "modes.png"}


@pytest.mark.slow
def test_chapter_8(tmp_path, capsys):
    found = runpy.run_path(str(EXAMPLES / "chapter_8.py"))["main"](folder=str(tmp_path))
    assert found["LeCun"] < 1e-4 * found["He"]
    assert found["dropout"] < found["plain"]
    assert found["ranking"] > 0.8
    assert found["folded"] < 1e-4
    assert found["teacher"] < found["distilled"] < found["student"] - 1
    assert {path.name for path in tmp_path.iterdir()} == {"shrinkage.png", "doubt.png"}
    assert f"drawn in {tmp_path}" in capsys.readouterr().out


@pytest.mark.slow
def test_chapter_4(tmp_path):
    found = runpy.run_path(str(EXAMPLES / "chapter_4.py"))["main"](folder=str(tmp_path))
    assert found["forms"] < 1e-5
    assert found["convolutions 2"] < found["convolutions 0"] + 3 < 13
    assert found["perceptron 2"] > 50
    assert found["inside"] < 1e-5
    assert found["parameters"] == 25_557_032
    assert {path.name for path in tmp_path.iterdir()} == {"filters.png", "saliency.png"}


@pytest.mark.slow
def test_chapter_5(tmp_path):
    found = runpy.run_path(str(EXAMPLES / "chapter_5.py"))["main"](folder=str(tmp_path))
    assert found["Elman"] <= found["bound"] < 1e-4
    assert min(found["LSTM"], found["LRU"]) > 0.1
    assert found["network"] < found["3-gram"] < 0.5
    assert found["wrong"] < 0.05
    assert {path.name for path in tmp_path.iterdir()} == {"eigenvalues.png", "alignment.png"}


@pytest.mark.slow
def test_chapter_6(tmp_path):
    found = runpy.run_path(str(EXAMPLES / "chapter_6.py"))["main"](folder=str(tmp_path))
    assert found["order"] < 1e-5
    assert found["translated"] > 0.9
    assert found["by heart"] > 0.9
    assert found["without places"] < 1e-6 < 1e-4 < found["with places"]
    assert {path.name for path in tmp_path.iterdir()} == {"alignment.png", "attention.png"}


@pytest.mark.slow
def test_chapter_9(tmp_path):
    found = runpy.run_path(str(EXAMPLES / "chapter_9.py"))["main"](folder=str(tmp_path))
    assert found["kernel 16"] > 1.5 * found["kernel 128"] > 2 * found["kernel 1024"]
    assert found["gap 16"] > 1.5 * found["gap 128"] > 2 * found["gap 1024"]
    assert max(found["linearised"], found["trained"], found["infinite"]) < 20
    assert {path.name for path in tmp_path.iterdir()} == {"paths.png", "widths.png"}


@pytest.mark.slow
def test_chapter_10(tmp_path):
    found = runpy.run_path(str(EXAMPLES / "chapter_10.py"))["main"](folder=str(tmp_path))
    assert 0.5 < found["length"] < 1.0
    assert 0.02 < found["noise"] < 0.08
    assert 0 <= found["lost"] < 1
    assert found["error"] < 0.9 * found["spread"]
    assert found["off"] < 0.05
    assert {path.name for path in tmp_path.iterdir()} == {"belief.png", "intervals.png"}


@pytest.mark.slow
def test_chapter_13(tmp_path):
    found = runpy.run_path(str(EXAMPLES / "chapter_13.py"))["main"](folder=str(tmp_path), epochs=12)
    assert found["hardened robust"] > found["plain robust"] + 0.2
    assert found["hardened clean"] > 0.85
    assert found["hardened distance"] > found["plain distance"]
    assert found["hardened certified"] <= found["hardened clean"]
    assert (tmp_path / "robust.png").stat().st_size > 10_000
