"""Checks that several tests of recipes share."""

from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest

from thetax.recipes import Outcome
from thetax.recipes.engine.outcome import load_outcome, save_outcome


@pytest.fixture
def check_reread(tmp_path: Path) -> Callable[[Callable[[], Outcome], Outcome], None]:
    """Checks that an outcome can be saved and loaded, and that a second call of the recipe, which
    reads the finished fits of the run, has the same table.
    """

    def check(call: Callable[[], Outcome], outcome: Outcome) -> None:
        folder = tmp_path / "outcome"
        folder.mkdir()
        save_outcome(folder, outcome)
        loaded = load_outcome(folder)
        assert loaded.table == outcome.table
        assert jax.tree.structure(loaded.model) == jax.tree.structure(outcome.model)
        for a, b in zip(*map(jax.tree.leaves, (loaded.model, outcome.model)), strict=True):
            np.testing.assert_array_equal(a, b)
        assert call().table == outcome.table

    return check
