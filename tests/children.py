"""Processes that a test starts, directly or by way of the library, as strict as the test itself."""

import os

HOOK = """
from jaxtyping import install_import_hook

install_import_hook("thetax", "beartype.beartype")
"""


def check_annotations(folder, monkeypatch):
    """Python processes started from now on check shapes and types at every call, and never promote
    ranks.

    Python imports a `sitecustomize` from its path as it starts; the library knows nothing of it.
    """
    (folder / "hook").mkdir()
    (folder / "hook" / "sitecustomize.py").write_text(HOOK)
    before = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder / "hook"), *before]))
    monkeypatch.setenv("JAX_NUMPY_RANK_PROMOTION", "raise")
