"""`thetax verify`: check statements of the course on all cores."""

import json as jsonlib
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from .. import files as disk
from ..train import versions
from .app import FAILED, INTERRUPTED, app, err, out
from .interrupt import interrupts


@app.command
def verify(
    *claims: str,
    full: bool = False,
    json: Path | None = None,
    html: Path | None = None,
    seed: int = 0,
    jobs: int | None = None,
) -> int:
    """Check statements of the course: all, or those of a row, section or chapter.

    Examples: `thetax verify 1.2-novikoff`, `thetax verify 2.6 3`.

    Parameters
    ----------
    claims
        Rows (1.2-cover) or their beginnings; `thetax list claims 1.2` lists those of a section.
    full
        Run claims at full scale, if they have one.
    json
        Write the findings to this JSON file.
    html
        Write one HTML page with formulas and figures.
    seed
        Random seed.
    jobs
        Number of processes; by default one per core.
    """
    from .. import claims as course  # imports all libraries that claims compare with

    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be an integer >= 1; got {jobs}.")
    selected = course.find_claims(*claims)
    _writable(json, html)
    began = time.monotonic()
    findings = []
    page = None
    scale = "full" if full else "quick"
    if html is not None:
        from ..report import ClaimsPage

        page = ClaimsPage()
    try:
        with _ProgressDisplay(len(selected)) as display:
            for finding in course.verify(selected, seed=seed, scale=scale, jobs=jobs):
                findings.append(finding)
                display.update(finding)
                if page is not None:
                    page.add(finding)
    except KeyboardInterrupt:
        interrupts.acknowledge()
        err.print(f"interrupted after {len(findings)} of {len(selected)} claims; results so far:")
    findings.sort(key=lambda finding: finding.claim.position)
    seconds = time.monotonic() - began
    _show(findings, seconds)
    if json is not None:
        disk.write(
            json, jsonlib.dumps([finding.as_json() for finding in findings], indent=1) + "\n"
        )
    if page is not None and html is not None:
        page.write(
            html,
            facts={"scale": scale, "seed": str(seed), "seconds": f"{seconds:.0f}"} | versions(),
        )
    for path in filter(None, (json, html)):
        out.print(f"written: {path}", soft_wrap=True)
    if len(findings) < len(selected):
        return INTERRUPTED
    return FAILED if any(finding.fails for finding in findings) else 0


def _writable(*paths: Path | None) -> None:
    """Checks that the output files can be written, before anything runs."""
    if paths[0] is not None and paths[0] == paths[1]:
        raise ValueError(f"--json and --html are both {paths[0]}; give two files.")
    for path in filter(None, paths):
        folder = path.absolute().parent
        if path.is_dir():
            raise ValueError(f"{path} is a folder; give a file.")
        if not folder.is_dir():
            raise ValueError(
                f"There is no folder {folder} to write {path.name} into; make it first."
            )
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise ValueError(
                f"{path.name} cannot be written into {folder}: {error.strerror}."
            ) from None


class _ProgressDisplay:
    """A progress bar on a terminal; one line per claim elsewhere."""

    def __init__(self, total: int):
        self.total, self.seen, self.failed, self.bar = total, 0, 0, None
        if err.is_terminal:
            words = TextColumn("{task.description}")
            self.bar = Progress(
                MofNCompleteColumn(), BarColumn(), TimeElapsedColumn(), words, console=err
            )
            self.task = self.bar.add_task("starting", total=total)

    def __enter__(self) -> "_ProgressDisplay":
        if self.bar:
            self.bar.start()
        return self

    def update(self, finding) -> None:
        """Reports one finished claim."""
        self.seen, self.failed = self.seen + 1, self.failed + finding.fails
        word = "FAILED" if finding.fails else "checked" if finding.holds else "no data"
        if self.bar:
            tail = f"  [bold red]{self.failed} failed[/]" if self.failed else ""
            self.bar.update(self.task, advance=1, description=escape(finding.claim.name) + tail)
        else:
            line = (
                f"{self.seen}/{self.total}  {word}  {finding.claim.name}  {finding.seconds:.1f} s"
            )
            err.print(line, highlight=False, markup=False, soft_wrap=True)

    def __exit__(self, *error) -> None:
        if self.bar:
            self.bar.stop()


def _show(findings: Sequence, seconds: float) -> None:
    """Prints the table of findings, then the details of the failures."""
    if not findings:
        return
    table = Table("", Column("claim", overflow="fold"), "title", "method", "seconds")
    for finding in findings:
        mark = (
            "[bold red]✗[/]" if finding.fails else "[green]✓[/]" if finding.holds else "[dim]–[/]"
        )
        claim = finding.claim
        title = escape(claim.title) + (" [dim](erratum)[/]" if claim.kind == "erratum" else "")
        table.add_row(
            mark, escape(" ".join(claim.ids)), title, finding.method, f"{finding.seconds:.1f}"
        )
    (out if out.is_terminal or "COLUMNS" in os.environ else Console(width=130)).print(table)
    failed = [f for f in findings if f.fails]
    missing = [f for f in findings if f.missing]
    for finding in missing:
        first = finding.missing.partition("\n")[0]
        out.print(
            f"[dim]–[/] [bold]{escape(finding.claim.name)}[/]: {escape(first)}", soft_wrap=True
        )
    for finding in failed:
        _show_failure(finding)
    rows = len({row for finding in findings for row in finding.claim.ids})
    word = (
        f"[bold red]{len(failed)} do{'es' * (len(failed) == 1)} not hold[/]"
        if failed
        else "all hold"
    )
    if missing:
        hold = sum(f.holds for f in findings)
        word = (
            f"{word}, " if failed else f"{hold} hold, "
        ) + f"{len(missing)} not checked: data missing"
    count = lambda number, name: f"{number} {name}{'s' * (number != 1)}"
    out.print(
        f"{count(len(findings), 'claim')} on {count(rows, 'statement')}: {word}; {seconds:.1f} s"
    )


def _show_failure(finding) -> None:
    out.print(
        f"[bold red]✗[/] [bold]{escape(finding.claim.name)}[/]: {escape(finding.claim.title)}"
    )
    if finding.error:
        out.print(finding.error, markup=False, highlight=False)
        return
    named = finding.named()
    for name in finding.as_json()["failed"]:
        check = named[name]
        tail = "" if check.tolerance is None else f", tolerance {check.tolerance:.3g}"
        text = f"  {name}: measured {check.measured}, expected {check.expected}{tail}"
        out.print(text, markup=False, highlight=False, soft_wrap=True)
