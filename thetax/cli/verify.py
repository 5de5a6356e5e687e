"""`thetax verify`: statements of the course, checked on every core there is."""

import json as jsonlib
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..train import disk, versions
from .app import FAILED, app, err, out


@app.command
def verify(
    *claims: str,
    full: bool = False,
    json: Path | None = None,
    html: Path | None = None,
    seed: int = 0,
    jobs: int | None = None,
) -> int:
    """Check statements of the course: all of them, or those named by row, section or chapter (1.2-novikoff, 2.6, 3).

    Parameters
    ----------
    claims
        Rows, or how they begin; `thetax list claims` says what there is.
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
    began, found, page = time.monotonic(), [], None
    if html is not None:
        from ..report import Verdicts

        page = Verdicts()
    with _Watch(len(chosen)) as watch:
        for finding in course.verify(chosen, seed=seed, scale="full" if full else "quick", jobs=jobs):
            found.append(finding)
            watch.saw(finding)
            if page is not None:
                page.add(finding)
    found.sort(key=lambda finding: finding.claim.place)
    seconds = time.monotonic() - began
    if json is not None:
        disk.write(json, jsonlib.dumps([finding.as_json() for finding in found], indent=1) + "\n")
    if page is not None and html is not None:
        facts = {"scale": "full" if full else "quick", "seed": str(seed), "seconds": f"{seconds:.0f}"}
        page.write(html, facts=facts | versions())
    _show(found, seconds)
    for path in filter(None, (json, html)):
        out.print(f"written: {path}", soft_wrap=True)
    return 0 if all(finding.holds for finding in found) else FAILED


def _writable(*paths: Path | None) -> None:
    """A name that cannot be written is refused before anything is run."""
    for path in filter(None, paths):
        if path.is_dir():
            raise ValueError(f"{path} is a folder; name a file.")
        if not path.absolute().parent.is_dir():
            raise ValueError(f"There is no folder {path.absolute().parent} to write {path.name} into; make it first.")


class _Watch:
    """A bar on a terminal; a line a claim elsewhere."""

    def __init__(self, total: int):
        self.total, self.seen, self.failed, self.bar = total, 0, 0, None
        if err.is_terminal:
            words = TextColumn("{task.description}")
            self.bar = Progress(MofNCompleteColumn(), BarColumn(), TimeElapsedColumn(), words, console=err)
            self.task = self.bar.add_task("starting", total=total)

    def __enter__(self) -> "_Watch":
        if self.bar:
            self.bar.start()
        return self

    def saw(self, finding) -> None:
        """One more claim has its verdict."""
        self.seen, self.failed = self.seen + 1, self.failed + (not finding.holds)
        word = "checked" if finding.holds else "FAILED"
        if self.bar:
            tail = f"  [bold red]{self.failed} failed[/]" if self.failed else ""
            self.bar.update(self.task, advance=1, description=escape(finding.claim.name) + tail)
        else:
            line = f"{self.seen}/{self.total}  {word}  {finding.claim.name}  {finding.seconds:.1f} s"
            err.print(line, highlight=False, markup=False, soft_wrap=True)

    def __exit__(self, *trouble) -> None:
        if self.bar:
            self.bar.stop()


def _show(found: Sequence, seconds: float) -> None:
    """The table of all, then what a failure has to say."""
    table = Table("", "claim", "what", "how it was checked", "s")
    for finding in found:
        mark = "[green]✓[/]" if finding.holds else "[bold red]✗[/]"
        claim = finding.claim
        title = escape(claim.title) + (" [dim](erratum)[/]" if claim.kind == "erratum" else "")
        table.add_row(mark, escape(" ".join(claim.ids)), title, finding.method, f"{finding.seconds:.1f}")
    (out if out.is_terminal else Console(width=130)).print(table)
    failed = [finding for finding in found if not finding.holds]
    for finding in failed:
        _tell(finding)
    rows = len({row for finding in found for row in finding.claim.ids})
    word = "all hold" if not failed else f"[bold red]{len(failed)} do not hold[/]"
    out.print(f"{len(found)} claims on {rows} statements: {word}; {seconds:.1f} s")


def _tell(finding) -> None:
    out.print(f"[bold red]✗[/] [bold]{escape(finding.claim.name)}[/]: {escape(finding.claim.title)}")
    if finding.trouble:
        out.print(finding.trouble, markup=False, highlight=False)
        return
    printed = set(map(id, finding.verdict.printed))
    for check in finding.checks:
        if check.holds == (id(check) in printed):
            role = "the printed form passes: " if id(check) in printed else ""
            text = f"  {role}{check.name}: measured {check.measured}, expected {check.expected}"
            tail = "" if check.tolerance is None else f", tolerance {check.tolerance:.3g}"
            out.print(text + tail, markup=False, highlight=False, soft_wrap=True)
