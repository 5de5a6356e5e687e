"""A fit whose model is not known, as that of a run which Python made: what its folder alone can
show.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from .. import explain
from .. import files as disk
from ..train import Run
from ..train.io.safetensors_io import read_file
from ..train.loop.fit import columns
from .figure import render
from .page import Section, number, page
from .registry import LENSES

CURVES = "Learning curves"
MORE = (
    "The run was made from Python, so that its model and its data are not known here. For all "
    "other lenses call "
    "thetax.report.look(thetax.recipes.Outcome(model, train, test, objective, history), folder)."
)


def look_at_fit(run: Run) -> Path:
    """Writes `report.html` with the learning curves, the weights and the settings of the fit in a
    run's folder.

    >>> import tempfile
    >>> run = Run(tempfile.mkdtemp())
    >>> run.write("fit.json", {"epochs": 2})
    >>> run.record(
    ...     [
    ...         {"epoch": 1, "train loss": 1.0, "seconds": 1.0},
    ...         {"epoch": 2, "train loss": 0.5, "seconds": 1.0},
    ...     ]
    ... )
    >>> look_at_fit(run).name
    'report.html'
    """
    if not (run.folder / "fit.json").is_file():
        inside = sorted(path.parent.name for path in run.folder.glob("*/fit.json"))
        hint = (
            f"look at one of its fits: {', '.join(inside)}"
            if inside
            else "give the folder of a run"
        )
        raise ValueError(f"{run.folder} holds no fit (no fit.json); {hint}.")
    rows = run.recorded()
    path = run.folder / "report.html"
    facts: dict[str, Any] = {"settings": run.read("fit.json")}
    if run.done:
        facts |= {name: value for name, value in run.read("done.json").items() if name != "rows"}
    if (run.folder / "run.json").is_file():
        facts |= run.described
    sections = [*_curves(run.folder, rows), *_weights(run.folder / "model.safetensors")]
    sections.append(Section("other-lenses", "Other lenses", MORE))
    last = {name: values[-1] for name, values in columns(rows).items()}
    summary = {name: number(value) for name, value in last.items()} | {"epochs": str(len(rows))}
    disk.write(
        path, page(title=run.folder.name, summary=summary, table={}, facts=facts, sections=sections)
    )
    return path


def _curves(folder: Path, rows: list[dict[str, Any]]) -> list[Section]:
    found = explain.curves(columns(rows))
    if not found.panels:
        return []
    (lens,) = [lens for lens in LENSES if lens.title == CURVES]
    (folder / "figures").mkdir(exist_ok=True)
    svg, png = render(found, "learning-curves", CURVES)
    disk.write(folder / "figures" / "learning-curves.png", png)
    return [Section("learning-curves", CURVES, lens.says, told=lens.tells(found), figure=svg)]


def _weights(path: Path) -> list[Section]:
    """A row for each leaf of the model; none where the fit has not ended."""
    if not path.is_file():
        return []
    rows = [_row(name, np.asarray(tensor)) for name, tensor in read_file(path).items()]
    says = (
        "The leaves of the model: their shapes, and the mean, the deviation and the largest size "
        "of their numbers."
    )
    return [Section("weights", "Weights", says, rows=rows)]


def _row(name: str, tensor: np.ndarray) -> Mapping[str, str]:
    row = {"leaf": name, "shape": " x ".join(map(str, tensor.shape)) or "one number"}
    if not tensor.size or not jnp.issubdtype(tensor.dtype, jnp.floating):
        return row
    w = tensor.astype(np.float64)
    return row | {
        "mean": number(w.mean()),
        "deviation": number(w.std()),
        "largest": number(np.abs(w).max()),
    }
