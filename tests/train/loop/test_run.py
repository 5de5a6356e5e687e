"""A run's folder: begun once, taken by one process, never another's, and at once done where it is
done.
"""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from contracts import normal, same_bits

from thetax import files as disk
from thetax.core import Iteration
from thetax.layers import Linear
from thetax.train import Run, descend, fit, load_weights, squared_error
from thetax.train.loop.checkpoint import Checkpoints

descent = descend(squared_error, optax.sgd(0.05))
REQUEST = {"recipe": "line", "arguments": {"rate": 0.05, "widths": (3, 1)}, "seed": 7}


def model():
    return Linear(jnp.zeros((1, 3)), jnp.zeros(1))


def data():
    return normal(0, 24, 3), normal(1, 24)


def train(run, silent, iteration=descent, **settings):
    asked = {"epochs": 2, "batch_size": 8, "key": jr.key(0), **settings}
    return fit(iteration, model(), data(), run=run, progress=silent, **asked)


@pytest.fixture
def run(tmp_path) -> Run:
    return Run.begin(tmp_path / "run", **REQUEST)


def test_begin_writes_what_was_asked(run):
    """Recipe, arguments as JSON has them, seed, versions of what computes, and the device."""
    there = json.loads((run.folder / "run.json").read_text())
    assert there["recipe"] == "line"
    assert there["arguments"] == {"rate": 0.05, "widths": [3, 1]}
    assert there["seed"] == 7
    assert there["versions"]["jax"] == jax.__version__
    assert Run.open(run.folder).description == there


def test_the_same_run_may_begin_again(run):
    """Tuples and numpy numbers are the same arguments as their JSON."""
    same = {**REQUEST, "arguments": {"rate": np.float64(0.05), "widths": [3, 1]}}
    before = (run.folder / "run.json").read_bytes()
    assert Run.begin(run.folder, **same).folder == run.folder
    assert (run.folder / "run.json").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"recipe": "other"}, "its recipe is line, not other"),
        ({"arguments": {"rate": 0.1, "widths": (3, 1)}}, r"rate is 0\.05, not 0\.1"),
        ({"arguments": {"rate": 0.05}}, "widths is"),
        ({"seed": 8}, "its seed is 7, not 8"),
    ],
    ids=["recipe", "argument", "argument left out", "seed"],
)
def test_another_run_is_refused(run, change, message):
    """The message names what differs, what is there and what was asked."""
    run.write("fit.json", {})
    with pytest.raises(ValueError, match=f"holds another run: .*{message}"):
        Run.begin(run.folder, **{**REQUEST, **change})


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("do not touch")
    with pytest.raises(ValueError, match="not empty and holds no run"):
        Run.begin(tmp_path, **REQUEST)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    (tmp_path / "empty").mkdir()
    assert Run.begin(tmp_path / "empty", **REQUEST).description["seed"] == 7


def test_open_needs_a_run(tmp_path):
    with pytest.raises(ValueError, match=r"no run\.json"):
        Run.open(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[1]", "\x00"])
def test_a_damaged_description_is_a_value_error(run, content):
    run.write("fit.json", {})
    (run.folder / "run.json").write_text(content)
    with pytest.raises(ValueError, match=r"run\.json"):
        Run.begin(run.folder, **REQUEST)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"arguments": {"rate": 5.0, "widths": [3, 1]}},
            r"was edited: its --rate is 5\.0, but the run began with 0\.05",
        ),
        ({"arguments": {"rate": 0.05}}, r"its --widths is None, but the run began with \[3, 1\]"),
        ({"arguments": {"rate": "fast", "widths": [3, 1]}}, "its --rate is 'fast'"),
        ({"recipe": "other"}, "its recipe is 'other'"),
        ({"seed": 8}, "its seed is 8, but the run began with 7"),
        ({"seed": "7"}, "seed must be an integer; got '7'"),
        ({"arguments": [0.05]}, r"arguments must be an object; got \[0\.05\]"),
        ({"recipe": ["line"]}, r"recipe must be text; got \['line'\]"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value),
)
def test_an_edited_description_is_refused(run, change, message):
    """Else it would be resumed with other settings than it began with, and end in other weights."""
    run.write("run.json", {**run.description, **change})
    with pytest.raises(ValueError, match=message):
        Run.open(run.folder)
    run.write("fit.json", {})
    with pytest.raises(ValueError, match=message):
        Run.begin(run.folder, **REQUEST)


def test_a_fit_leaves_a_whole_folder(run, silent):
    """Weights, metrics and the end; no temporary files; the weights are those returned."""
    found = train(run, silent)
    names = {path.name for path in run.folder.iterdir()}
    assert {"run.json", "fit.json", "metrics.jsonl", "model.safetensors", "done.json"} <= names
    assert not [name for name in names if name.endswith(".tmp")]
    assert same_bits(load_weights(run.folder / "model.safetensors", model()), found.model)
    rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert np.allclose([row["train loss"] for row in rows], found.history["train loss"])
    assert (
        json.loads((run.folder / "done.json").read_text())["reason"]
        == found.reason
        == "all 2 epochs done"
    )


def test_a_run_changes_no_bit(run, silent):
    """With or without a folder, the same weights."""
    assert same_bits(train(run, silent).model, train(None, silent).model)


def test_a_done_run_returns_at_once(run, silent):
    """Nothing is trained: an iteration that would fail is never called."""
    found = train(run, silent)

    def never(*args, **kwargs):
        raise AssertionError("trained again")

    again = train(run, silent, Iteration(never, never))
    assert same_bits(again.model, found.model)
    assert np.allclose(again.history["train loss"], found.history["train loss"])
    assert (again.reason, again.steps) == (found.reason, found.steps)


@pytest.mark.parametrize(("name", "value"), [("epochs", 3), ("batch_size", 4)])
def test_another_fit_in_the_folder_is_refused(run, silent, name, value):
    train(run, silent)
    (run.folder / "done.json").unlink()
    with pytest.raises(ValueError, match=f"holds a fit with {name}=.* not {value}"):
        train(run, silent, **{name: value})


def test_a_second_process_is_refused(run, silent):
    """While another process holds the folder a fit is a ValueError; when it ends, however it does,
    all is well.
    """
    code = (
        "import fcntl, os, sys; f = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR); fcntl.flock(f, "
        "fcntl.LOCK_EX)"
    )
    wait = "print('locked', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", f"{code}; {wait}", str(run.folder / ".lock")],
        stdin=-1,
        stdout=-1,
        text=True,
    )
    with holder:
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(ValueError, match="Another process is training"):
            train(run, silent)
        holder.kill()
    assert train(run, silent).reason == "all 2 epochs done"


def test_the_folder_is_given_back_after_a_failure(run, silent):
    """A step that raises leaves no lock behind."""

    def fail(state, batch, *, key):
        raise RuntimeError("by design")

    with pytest.raises(RuntimeError, match="by design"):
        train(run, silent, Iteration(descent.init, fail))
    assert train(run, silent).reason == "all 2 epochs done"


def test_the_folder_is_given_back_when_a_checkpoint_is_refused(run, silent):
    checkpoints = Checkpoints(run.folder / "checkpoints")
    checkpoints.save(1, {"w": jnp.ones(3)}, {"epoch": 0})
    checkpoints.wait()
    for _ in range(2):
        with pytest.raises(ValueError, match="is of another model or optimiser"):
            train(run, silent)


def test_a_refused_option_does_not_spoil_the_folder(run):
    """Nothing was fitted yet, so other options may be asked for."""
    changed = {**REQUEST, "seed": 8}
    assert Run.begin(run.folder, **changed).description["seed"] == 8


def test_a_finished_folder_refuses_other_settings(run, silent):
    train(run, silent)
    with pytest.raises(ValueError, match="holds a fit with epochs="):
        train(run, silent, epochs=77)


def test_damaged_final_weights_are_noticed(run, silent):
    """One bit of the weights flipped: the fit says so, and gives the same weights again."""
    whole = train(run, silent)
    path = run.folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    assert same_bits(train(run, silent).model, whole.model)


def test_the_folder_may_be_a_string(tmp_path, silent):
    assert train(Run(str(tmp_path / "text")), silent).steps > 0


def test_an_optimiser_with_a_key_is_resumed(tmp_path):
    """Typed random keys in the state survive the disk."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"key": jr.key(5), "w": jnp.ones(2)}, {})
    checkpoints.wait()
    arrays = checkpoints.restore(like={"key": jr.key(0), "w": jnp.zeros(2)}).arrays
    assert jr.key_data(arrays["key"]).tolist() == jr.key_data(jr.key(5)).tolist()


def test_the_same_step_again_never_loses_the_first(tmp_path, monkeypatch):
    """A second checkpoint of one step that fails leaves the first whole."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(7, {"w": jnp.ones(2)}, {})
    checkpoints.wait()

    def full(path, content):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write", full)
        checkpoints.save(7, {"w": jnp.zeros(2)}, {})
        with pytest.raises(OSError, match="checkpoint of step 7 is complete"):
            checkpoints.wait()
    assert checkpoints.restore(like={"w": jnp.zeros(2)}).arrays["w"].tolist() == [1.0, 1.0]
    checkpoints.save(7, {"w": 2 * jnp.ones(2)}, {})
    checkpoints.wait()
    assert checkpoints.restore(like={"w": jnp.zeros(2)}).arrays["w"].tolist() == [2.0, 2.0]


def test_several_fits_have_folders_of_their_own(run, silent):
    teacher = train(run / "teacher", silent)
    student = train(run / "student", silent, epochs=1)
    assert (run / "teacher").is_finished
    assert not run.is_finished
    assert teacher.steps != student.steps
