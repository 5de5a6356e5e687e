"""A run that is killed at any moment and resumed ends with the very bits of the run that was
not.
"""

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from resume_child import Watcher, train

from thetax.train.loop import compiled as loop

CHILD = Path(__file__).parents[2] / "resume_child.py"
KILLED = -9
RANDOM_STEPS = sorted(random.Random(0).sample(range(2, 70), 6))


def child(folder: Path, *kill: object) -> subprocess.CompletedProcess:
    command = [sys.executable, str(CHILD), str(folder), *map(str, kill)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory) -> str:
    done = child(tmp_path_factory.mktemp("whole") / "run")
    assert done.returncode == 0, done.stderr
    return done.stdout


def finishes_alike(folder: Path, uninterrupted: str) -> str:
    done = child(folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == uninterrupted
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4, 5, 6]
    return done.stderr


def test_killed_and_resumed_here(tmp_path, monkeypatch):
    """The quick one: only the run that is killed is another process, which compiles with the
    settings of this one.
    """
    monkeypatch.setattr(loop, "CHUNK_SECONDS", 1e-9)
    for name in ("jax_disable_most_optimizations", "jax_default_matmul_precision"):
        monkeypatch.setenv(name.upper(), str(jax.config.values[name]))
    step = random.Random(1).randrange(13, 24)  # of 24, in the second epoch
    assert child(tmp_path / "run", "saved", step, 2).returncode == KILLED
    whole = train(tmp_path / "whole", Watcher(0), 2)
    notes = Watcher(0)
    said = []
    monkeypatch.setattr(notes, "note", said.append)
    assert train(tmp_path / "run", notes, 2) == whole
    assert any("resumed at" in text for text in said)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 31))
def test_killed_at_every_file_boundary(tmp_path, uninterrupted, number):
    """Before each of the first thirty changes on disk: the claim of the folder and the whole first
    save.
    """
    assert child(tmp_path / "run", "event", number).returncode == KILLED
    finishes_alike(tmp_path / "run", uninterrupted)


@pytest.mark.slow
@pytest.mark.parametrize("number", RANDOM_STEPS)
def test_killed_at_random_steps(tmp_path, uninterrupted, number):
    assert child(tmp_path / "run", "update", number).returncode == KILLED
    finishes_alike(tmp_path / "run", uninterrupted)


@pytest.mark.slow
def test_killed_again_and_again(tmp_path, uninterrupted):
    """One run killed a dozen times, each time further into a save that also removes an old
    checkpoint.
    """
    folder = tmp_path / "run"
    assert child(folder, "update", 40).returncode == KILLED
    codes = [child(folder, "event", number).returncode for number in range(2, 50, 4)]
    assert set(codes) <= {KILLED, 0}
    assert codes.count(KILLED) >= 8
    finishes_alike(folder, uninterrupted)


def checkpoints_after(tmp_path: Path) -> tuple[Path, list[Path]]:
    folder = tmp_path / "run"
    assert child(folder, "update", 60).returncode == KILLED
    found = sorted((folder / "checkpoints").glob("[0-9]*"), key=lambda path: int(path.name))
    assert len(found) == 2
    return folder, found


def largest(folder: Path) -> Path:
    return max(
        (path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size
    )


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [
        lambda newest: largest(newest).write_bytes(largest(newest).read_bytes()[:-7]),
        lambda newest: flip_a_bit(largest(newest)),
        lambda newest: largest(newest).unlink(),
        lambda newest: (newest / "manifest.json").write_text("{"),
        lambda newest: (newest / "position.json").unlink(),
    ],
    ids=["truncated", "one bit flipped", "file missing", "manifest broken", "place missing"],
)
def test_damaged_checkpoint_falls_back(tmp_path, uninterrupted, damage):
    """The newest valid checkpoint is taken, and the user is told."""
    folder, (older, newest) = checkpoints_after(tmp_path)
    damage(newest)
    said = finishes_alike(folder, uninterrupted)
    assert f"checkpoint {newest.name} is damaged" in said
    assert "resumed at" in said
    assert int(older.name) < int(newest.name)


@pytest.mark.slow
def test_all_checkpoints_lost_begins_anew(tmp_path, uninterrupted):
    folder, found = checkpoints_after(tmp_path)
    flip_a_bit(largest(found[0]))
    shutil.rmtree(found[1])
    said = finishes_alike(folder, uninterrupted)
    assert "is damaged" in said
    assert "resumed at" not in said
