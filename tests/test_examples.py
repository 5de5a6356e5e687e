"""Every example runs."""

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_one_model():
    assert runpy.run_path(str(EXAMPLES / "one_model.py"))["main"](epochs=15) < 0.1
