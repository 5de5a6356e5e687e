"""`python -m bench [NAME ...] [--json FILE]`: all subjects, or those named."""

import difflib
import importlib
import json as jsonlib
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import cyclopts
from rich.console import Console

from . import SUBJECTS, machine, table
from .row import Result, Row, compare

app = cyclopts.App(name="bench", help="Measure thetax against its peers, side by side.")


@app.default
def main(*names: str, json: Path | None = None, pairs: int | None = None) -> int:
    """Measure the named subjects, or all.

    Parameters
    ----------
    names
        Subjects: mlp, start, resume, claims, restarts, tune, recurrent, conv, encoder, language,
        gp, infinite, ntk, attack.
    json
        Where to write the machine and the rows.
    pairs
        How many turns each side takes, instead of the row's own number.
    """
    if unknown := [name for name in names if name not in SUBJECTS]:
        for name in unknown:
            print(f"bench: there is no {name!r}; {nearest(name)}.", file=sys.stderr)
        return 2
    chosen = [importlib.import_module(f"bench.{name}") for name in dict.fromkeys(names or SUBJECTS)]
    described, results = run(chosen, console(), Console(stderr=True), pairs=pairs)
    if json is not None:
        json.write_text(jsonlib.dumps(report(described, results), indent=1) + "\n")
    return 1 if any(result.failed for result in results) else 0


def console() -> Console:
    """Standard output, wide enough for the table where it is a file."""
    return Console() if sys.stdout.isatty() else Console(width=130)


def nearest(name: str) -> str:
    """What the user may have meant.

    >>> nearest("mpl")
    'nearest: mlp'
    """
    close = difflib.get_close_matches(name, SUBJECTS, n=3, cutoff=0.4)
    return f"nearest: {', '.join(close)}" if close else f"choose from {', '.join(SUBJECTS)}"


def run(
    subjects: list[ModuleType], out: Console, err: Console, *, pairs: int | None = None
) -> tuple[dict[str, Any], list[Result]]:
    """Measures every row of every subject; one that fails does not stop the others."""
    described = machine.describe()
    limits = machine.measure()
    results = []
    table.show_machine(out, described)
    for subject in subjects:
        rows = [replace(row, pairs=pairs or row.pairs) for row in subject.rows()]
        table.show_work(out, subject.__name__.rpartition(".")[-1], subject.count(), rows, limits)
        measured = [_watched(row, err) for row in rows]
        table.show_results(out, measured, limits)
        results += measured
    limit = {
        "matmul GFLOP/s": round(limits.operations / 1e9, 1),
        "copy GB/s": round(limits.bytes / 1e9, 1),
    }
    return {**described, "limits": limit}, results


def report(described: dict[str, Any], results: list[Result]) -> dict[str, Any]:
    """The content of the JSON file."""
    return {"machine": described, "rows": [result.as_json() for result in results]}


def _watched(row: Row, err: Console) -> Result:
    """Compares, says on a terminal what is going on, and anywhere what came of it."""
    title = f"{row.name} against {row.peer}"
    with err.status(title) as status:
        result = compare(row, say=lambda text: status.update(f"{title}: {text}"))
    err.print(f"{title}: {table.summary(result)}", highlight=False, markup=False, soft_wrap=True)
    return result


if __name__ == "__main__":
    app()
