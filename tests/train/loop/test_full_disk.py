"""A disk that fills up stops the fit with a clear error, loses nothing, and lets it go on later."""

import errno
import re

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from thetax import files as disk
from thetax.models import MLP
from thetax.train import Run, Silent, cross_entropy, descend, fit
from thetax.train.loop import compiled as loop

XS = jr.normal(jr.key(0), (64, 3))
DATA = XS, (XS[:, 0] > 0).astype(jnp.int32)
DESCENT = descend(cross_entropy, optax.adam(1e-2))
MODEL = MLP.init(3, 4, 2, key=jr.key(1))


def train(run: Run | None, epochs: int = 400):
    return fit(
        DESCENT, MODEL, DATA, epochs=epochs, batch_size=8, key=jr.key(2), run=run, progress=Silent()
    )


def same(a, b) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["manifest.json", "position.json"])
def test_a_full_disk_stops_cleanly_and_the_run_goes_on(tmp_path, monkeypatch, name):
    whole = train(None)
    write = disk.write
    written = []

    def full_after_two(path, content):
        if path.name == name:
            written.append(path)
            if len(written) > 2:
                raise OSError(errno.ENOSPC, "No space left on device")
        write(path, content)

    monkeypatch.setattr(loop, "CHUNK_SECONDS", 0.01)
    run = Run(tmp_path / "run", checkpoint_time=1.0)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "write", full_after_two)
        with pytest.raises(OSError, match=r"No space left on device.*is complete; free some space"):
            train(run)
    assert len(list((run.folder / "checkpoints").glob("[0-9]*"))) == 2
    assert same(train(Run(tmp_path / "run")).model, whole.model)


def test_a_full_disk_at_the_start_spends_no_compute(tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk, "write", full)
    monkeypatch.setattr(loop, "_advance", None)  # a step would raise TypeError
    with pytest.raises(OSError, match=r"Cannot write to .*No space left"):
        train(Run(tmp_path / "run"))


def test_a_full_disk_at_the_end_names_the_file_and_the_run_goes_on(tmp_path, monkeypatch):
    """What the weights take and what is free is said; no part of them stays; the same call ends
    with the same bits.
    """
    write = disk.write
    run = Run(tmp_path / "run")

    def full_for_weights(path, content):
        if path.name == "model.safetensors":
            with monkeypatch.context() as patch:
                patch.setattr(disk.os, "fsync", no_room)
                write(path, content)
        write(path, content)

    def no_room(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write", full_for_weights)
        with pytest.raises(
            OSError, match=r"the weights to .*model\.safetensors: .*No space left.* take 104 bytes"
        ) as full:
            train(run, epochs=2)
    assert re.search(r"the disk has [\d,]+ free\. Free some space and resume", str(full.value))
    assert not [path for path in run.folder.iterdir() if "model" in path.name]
    assert same(train(Run(tmp_path / "run"), epochs=2).model, train(None, epochs=2).model)
