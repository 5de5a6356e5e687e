"""`python -m bench [NAME ...] [--json FILE]`: runs all subjects, or the named ones."""

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

app = cyclopts.App(name="bench", help="Benchmark thetax against other libraries.")


@app.default
def main(*names: str, json: Path | None = None, pairs: int | None = None) -> int:
    """Run the named subjects, or all.

    Parameters
    ----------
    names
        Subjects: mlp, start, resume, claims, restarts, tune, recurrent, conv, encoder, language,
        gp, infinite, ntk, graph, attack.
    json
        File to write the machine and the results to.
    pairs
        Timed runs of each side, instead of the number of the row.
    """
    if unknown := [name for name in names if name not in SUBJECTS]:
        for name in unknown:
            print(f"bench: there is no {name!r}; {nearest(name)}.", file=sys.stderr)
        return 2
    subjects = [
        importlib.import_module(f"bench.{name}") for name in dict.fromkeys(names or SUBJECTS)
    ]
    described, results = run(subjects, console(), Console(stderr=True), pairs=pairs)
    if json is not None:
        json.write_text(jsonlib.dumps(report(described, results), indent=1) + "\n")
    return 1 if any(result.failed for result in results) else 0


def console() -> Console:
    """Standard output, wide enough for the table if it is a file."""
    return Console() if sys.stdout.isatty() else Console(width=130)


def nearest(name: str) -> str:
    """Subjects with a similar name.

    >>> nearest("mpl")
    'nearest: mlp'
    """
    close = difflib.get_close_matches(name, SUBJECTS, n=3, cutoff=0.4)
    return f"nearest: {', '.join(close)}" if close else f"choose from {', '.join(SUBJECTS)}"


def run(
    subjects: list[ModuleType], out: Console, err: Console, *, pairs: int | None = None
) -> tuple[dict[str, Any], list[Result]]:
    """Runs every comparison of every subject; a failure does not stop the others."""
    described = machine.describe()
    limits = machine.measure()
    results = []
    table.show_machine(out, described)
    for subject in subjects:
        rows = [replace(row, pairs=pairs or row.pairs) for row in subject.rows()]
        table.show_work(out, subject.__name__.rpartition(".")[-1], subject.describe(), rows, limits)
        subject_results = [_compare_with_status(row, err) for row in rows]
        table.show_results(out, subject_results, limits)
        results += subject_results
    rates = {
        "matmul GFLOP/s": round(limits.operations / 1e9, 1),
        "copy GB/s": round(limits.bytes / 1e9, 1),
    }
    return {**described, "limits": rates}, results


def report(described: dict[str, Any], results: list[Result]) -> dict[str, Any]:
    """The content of the JSON file."""
    return {"machine": described, "rows": [result.as_json() for result in results]}


def _compare_with_status(row: Row, err: Console) -> Result:
    """Runs a comparison, with a status line on a terminal, and prints a summary."""
    title = f"{row.name} against {row.peer}"
    with err.status(title) as status:
        result = compare(row, say=lambda text: status.update(f"{title}: {text}"))
    err.print(f"{title}: {table.summary(result)}", highlight=False, markup=False, soft_wrap=True)
    return result


if __name__ == "__main__":
    app()
