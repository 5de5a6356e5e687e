"""The report of a fit whose model is not available: started from Python code, or unfinished."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from .. import explain
from .. import files as disk
from ..train import Run
from ..train.io.safetensors_io import read_file
from ..train.loop.fit import history_columns
from .figure import render
from .page import Section, format_number, page
from .registry import LENSES

CURVES = "Learning curves"
# What a report without a model says.
NO_MODEL_NOTE = (
    "This run was started from Python code, so its model and data are not available here. For all "
    "other sections call "
    "thetax.report.look(thetax.recipes.Outcome(model, train, test, objective, history), folder)."
)


def look_at_fit(run: Run, *, note: str = NO_MODEL_NOTE) -> Path:
    """Writes `report.html` with the learning curves, weights and settings of the fit in a run
    folder; `note` explains on the page why no other section is shown.

    >>> import tempfile
    >>> run = Run(tempfile.mkdtemp())
    >>> run.write("fit.json", {"epochs": 2})
    >>> run.write_metrics(
    ...     [
    ...         {"epoch": 1, "train loss": 1.0, "seconds": 1.0},
    ...         {"epoch": 2, "train loss": 0.5, "seconds": 1.0},
    ...     ]
    ... )
    >>> look_at_fit(run).name
    'report.html'
    """
    if not (run.folder / "fit.json").is_file():
        fits = sorted(path.parent.name for path in run.folder.glob("*/fit.json"))
        hint = (
            f"give one of its subfolders: {', '.join(fits)}" if fits else "give the folder of a run"
        )
        raise ValueError(f"look_at_fit: {run.folder} contains no fit.json; {hint}.")
    rows = run.metrics()
    path = run.folder / "report.html"
    facts: dict[str, Any] = {"settings": run.read("fit.json")}
    if run.is_finished:
        facts |= {name: value for name, value in run.read("done.json").items() if name != "rows"}
    if (run.folder / "run.json").is_file():
        facts |= run.description
    sections = [*_curves(run.folder, rows), *_weights(run.folder / "model.safetensors")]
    sections.append(Section("other-sections", "Other sections", note))
    last = {name: values[-1] for name, values in history_columns(rows).items()}
    summary = {name: format_number(value) for name, value in last.items()} | {
        "epochs": str(len(rows))
    }
    disk.write(
        path, page(title=run.folder.name, summary=summary, table={}, facts=facts, sections=sections)
    )
    return path


def _curves(folder: Path, rows: list[dict[str, Any]]) -> list[Section]:
    result = explain.training_curves(history_columns(rows))
    if not result.panels:
        return []
    (lens,) = [lens for lens in LENSES if lens.title == CURVES]
    (folder / "figures").mkdir(exist_ok=True)
    svg, png = render(result, "learning-curves", CURVES)
    disk.write(folder / "figures" / "learning-curves.png", png)
    return [
        Section(
            "learning-curves", CURVES, lens.description, metrics=lens.metrics(result), figure=svg
        )
    ]


def _weights(path: Path) -> list[Section]:
    """A table with a row per parameter array; empty if the fit has not finished."""
    if not path.is_file():
        return []
    rows = [_row(name, np.asarray(tensor)) for name, tensor in read_file(path).items()]
    description = (
        "The parameter arrays of the model: shape, mean, standard deviation and largest absolute "
        "value."
    )
    return [Section("weights", "Weights", description, rows=rows)]


def _row(name: str, tensor: np.ndarray) -> Mapping[str, str]:
    row = {"parameter": name, "shape": " x ".join(map(str, tensor.shape)) or "scalar"}
    if not tensor.size or not jnp.issubdtype(tensor.dtype, jnp.floating):
        return row
    w = tensor.astype(np.float64)
    return row | {
        "mean": format_number(w.mean()),
        "std": format_number(w.std()),
        "largest": format_number(np.abs(w).max()),
    }
