"""`thetax verify`: statements of the course, checked on every core there is."""

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
    """Check statements of the course: all of them, or those named by row, section or chapter
    (1.2-novikoff, 2.6, 3).

    Parameters
    ----------
    claims
        Rows (1.2-cover), or else how they begin; `thetax list claims 1.2` names those of a section.
    full
        At full scale, where a claim has one.
    json
        Where to write the findings, as a list.
    html
        Where to write them as one page with formulas and figures.
    seed
        The one source of chance.
    jobs
        How many claims at once; by default as many as there are cores.
    """
    from .. import claims as course  # brings every library a claim compares with

    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be at least 1; got {jobs}.")
    chosen = course.find_claims(*claims)
    _writable(json, html)
    began = time.monotonic()
    found = []
    page = None
    scale = "full" if full else "quick"
    if html is not None:
        from ..report import ClaimsPage

        page = ClaimsPage()
    try:
        with _Watch(len(chosen)) as watch:
            for finding in course.verify(chosen, seed=seed, scale=scale, jobs=jobs):
                found.append(finding)
                watch.saw(finding)
                if page is not None:
                    page.add(finding)
    except KeyboardInterrupt:
        interrupts.acknowledge()
        err.print(f"interrupted after {len(found)} of {len(chosen)} claims; this is what was found")
    found.sort(key=lambda finding: finding.claim.place)
    seconds = time.monotonic() - began
    _show(found, seconds)
    if json is not None:
        disk.write(json, jsonlib.dumps([finding.as_json() for finding in found], indent=1) + "\n")
    if page is not None and html is not None:
        page.write(
            html,
            facts={"scale": scale, "seed": str(seed), "seconds": f"{seconds:.0f}"} | versions(),
        )
    for path in filter(None, (json, html)):
        out.print(f"written: {path}", soft_wrap=True)
    if len(found) < len(chosen):
        return INTERRUPTED
    return FAILED if any(finding.fails for finding in found) else 0


def _writable(*paths: Path | None) -> None:
    """A name that cannot be written is refused before anything is run."""
    if paths[0] is not None and paths[0] == paths[1]:
        raise ValueError(f"{paths[0]} cannot be both the JSON and the page; name two files.")
    for path in filter(None, paths):
        folder = path.absolute().parent
        if path.is_dir():
            raise ValueError(f"{path} is a folder; name a file.")
        if not folder.is_dir():
            raise ValueError(
                f"There is no folder {folder} to write {path.name} into; make it first."
            )
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as trouble:
            raise ValueError(
                f"{path.name} cannot be written into {folder}: {trouble.strerror}."
            ) from None


class _Watch:
    """A bar on a terminal; a line a claim elsewhere."""

    def __init__(self, total: int):
        self.total, self.seen, self.failed, self.bar = total, 0, 0, None
        if err.is_terminal:
            words = TextColumn("{task.description}")
            self.bar = Progress(
                MofNCompleteColumn(), BarColumn(), TimeElapsedColumn(), words, console=err
            )
            self.task = self.bar.add_task("starting", total=total)

    def __enter__(self) -> "_Watch":
        if self.bar:
            self.bar.start()
        return self

    def saw(self, finding) -> None:
        """One more claim has its verdict."""
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

    def __exit__(self, *trouble) -> None:
        if self.bar:
            self.bar.stop()


def _show(found: Sequence, seconds: float) -> None:
    """The table of all, then what a failure has to say."""
    if not found:
        return
    table = Table("", Column("claim", overflow="fold"), "what", "how it was checked", "s")
    for finding in found:
        mark = (
            "[bold red]✗[/]" if finding.fails else "[green]✓[/]" if finding.holds else "[dim]–[/]"
        )
        claim = finding.claim
        title = escape(claim.title) + (" [dim](erratum)[/]" if claim.kind == "erratum" else "")
        table.add_row(
            mark, escape(" ".join(claim.ids)), title, finding.method, f"{finding.seconds:.1f}"
        )
    (out if out.is_terminal or "COLUMNS" in os.environ else Console(width=130)).print(table)
    failed = [f for f in found if f.fails]
    missing = [f for f in found if f.missing]
    for finding in missing:
        first = finding.missing.partition("\n")[0]
        out.print(
            f"[dim]–[/] [bold]{escape(finding.claim.name)}[/]: {escape(first)}", soft_wrap=True
        )
    for finding in failed:
        _tell(finding)
    rows = len({row for finding in found for row in finding.claim.ids})
    word = (
        f"[bold red]{len(failed)} do{'es' * (len(failed) == 1)} not hold[/]"
        if failed
        else "all hold"
    )
    if missing:
        hold = sum(f.holds for f in found)
        word = (
            f"{word}, " if failed else f"{hold} hold, "
        ) + f"{len(missing)} not checked for want of data"
    count = lambda number, name: f"{number} {name}{'s' * (number != 1)}"
    out.print(
        f"{count(len(found), 'claim')} on {count(rows, 'statement')}: {word}; {seconds:.1f} s"
    )


def _tell(finding) -> None:
    out.print(
        f"[bold red]✗[/] [bold]{escape(finding.claim.name)}[/]: {escape(finding.claim.title)}"
    )
    if finding.trouble:
        out.print(finding.trouble, markup=False, highlight=False)
        return
    named = finding.named()
    for name in finding.as_json()["failed"]:
        check = named[name]
        tail = "" if check.tolerance is None else f", tolerance {check.tolerance:.3g}"
        text = f"  {name}: measured {check.measured}, expected {check.expected}{tail}"
        out.print(text, markup=False, highlight=False, soft_wrap=True)
