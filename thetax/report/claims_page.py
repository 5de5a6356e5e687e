"""The claims of the course as one HTML file that can be read offline: statements, formulas,
results, figures and filters.
"""

import warnings
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

from .. import files as disk
from ..claims import PRINTED, Check, Finding, heading
from ..claims.engine.bibliography import citations
from .figure import css_variables, render
from .formula import font, formula, typeset

MAX_OPEN_COMPARISONS = 4  # longer tables of comparisons are folded if the claim holds
MARKS = {True: "✓", False: "✗"}


class ClaimsPage:
    """Collects the findings of claims; `write` writes the page, in the order of the course."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self._figures: dict[str, str] = {}

    def add(self, finding: Finding) -> None:
        """Adds a finding, and draws its figure."""
        self.findings.append(finding)
        if finding.verdict is None or finding.verdict.figure is None:
            return
        name = finding.claim.name
        try:
            self._figures[name] = render(
                finding.verdict.figure, _slug(name), escape(finding.claim.title)
            )[0]
        except Exception as error:  # the rest of the page is still written
            self._figures[name] = (
                f'<p class="error">This figure could not be drawn: {escape(str(error))}</p>'
            )
            warnings.warn(
                f"verify: the figure of {name} failed: {error}", RuntimeWarning, stacklevel=2
            )

    def write(self, path: str | Path, *, facts: dict[str, str]) -> Path:
        """Writes the page; `facts` describe the software and the machine."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        disk.write(path, self.page(facts))
        return path

    def page(self, facts: dict[str, str]) -> str:
        """The HTML document. All text is escaped here."""
        light, dark = css_variables()
        style, script = (_file(name) for name in ("claims_page.css", "claims_page.js"))
        base = _file("page.css")
        ordered = sorted(self.findings, key=lambda f: f.claim.position)
        return "\n".join(
            [
                "<!doctype html>",
                '<html lang="en"><head><meta charset="utf-8">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                '<meta name="color-scheme" content="light dark">',
                "<title>The claims of the course</title>",
                f"<style>:root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}",
                f"{base}\n{font()}\n{style}</style>",
                "</head><body>",
                f"<header><h1>The claims of the course</h1>{_headline(ordered)}</header>",
                _filters(ordered),
                "<main>",
                *(
                    self._chapter(key, list(own))
                    for key, own in groupby(ordered, lambda f: f.claim.chapter)
                ),
                '<p id="none" hidden>No claim matches these filters.</p></main>',
                _facts(facts),
                f"<script>{script}</script></body></html>\n",
            ]
        )

    def _chapter(self, chapter: str, findings: Sequence[Finding]) -> str:
        title = heading(chapter)
        claims = "\n".join(self._claim(finding) for finding in findings)
        return (
            '<section class="chapter" '
            f'data-chapter="{chapter}"><h2>{escape(title)}</h2>{claims}</section>'
        )

    def _claim(self, finding: Finding) -> str:
        claim = finding.claim
        text = [_ids(claim.name, claim.ids), f"<h3>{_verdict(finding)} {escape(claim.title)}</h3>"]
        text += [f'<div class="statement">{typeset(claim.statement)}</div>']
        if claim.kind == "erratum":
            text.append(
                '<div class="forms"><div '
                f'class="wrong"><span>printed</span>{formula(claim.printed, block=True)}</div>'
                '<div class="right"><span>corrected</span>'
                f"{formula(claim.corrected, block=True)}</div></div>"
            )
        text.append(_checks(finding))
        figure = self._figures.get(claim.name, "")
        body = f'<div class="words">{"".join(text)}</div>' + (
            f"<figure>{figure}</figure>" if figure else ""
        )
        attributes = f'data-kind="{claim.kind}" data-holds="{str(not finding.fails).lower()}"'
        return (
            f'<article id="{claim.name}" {attributes}><div '
            f'class="{"both" if figure else "alone"}">{body}</div>'
            f"{_notes(finding)}</article>"
        )


def _file(name: str) -> str:
    return files("thetax.report").joinpath(name).read_text("utf-8")


def _slug(name: str) -> str:
    return name.replace(".", "-")


def _headline(findings: Sequence[Finding]) -> str:
    failed = [f for f in findings if f.fails]
    missing = [f for f in findings if f.missing]
    rows = {row for f in findings for row in f.claim.ids}
    summary = {
        "claims that hold": f"{len(findings) - len(failed) - len(missing)} of {len(findings)}",
        "statements of the course": f"{len(rows)}",
        "errata shown": str(sum(f.claim.kind == "erratum" for f in findings)),
        "comparisons": str(sum(len(f.checks) for f in findings)),
    }
    items = "".join(
        f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in summary.items()
    )
    error = f'<p class="error">Failed: {_links(failed)}</p>' if failed else ""
    if missing:
        error += f'<p class="error">Not checked, because data is missing: {_links(missing)}</p>'
    return f'<dl class="summary">{items}</dl>{error}'


def _links(findings: Sequence[Finding]) -> str:
    return ", ".join(f'<a href="#{f.claim.name}">{escape(f.claim.title)}</a>' for f in findings)


def _filters(findings: Sequence[Finding]) -> str:
    chapters = list(dict.fromkeys(f.claim.chapter for f in findings))
    kinds = sorted({f.claim.kind for f in findings} - {"erratum"})
    named = {chapter: heading(chapter) for chapter in chapters}
    options = lambda values: "".join(
        f'<option value="{v}">{escape(w)}</option>' for v, w in values.items()
    )
    return (
        '<nav class="filters" aria-label="Filters">'
        '<label>Chapter <select id="chapter"><option '
        f'value="">all</option>{options(named)}</select></label>'
        '<label>Kind <select id="kind"><option '
        f'value="">all</option>{options({k: k for k in kinds})}</select></label>'
        '<label>Errata <select id="errata"><option value="">with</option><option '
        'value="only">only</option>'
        '<option value="none">without</option></select></label>'
        '<label class="find">Find <input id="find" type="search" placeholder="margin, 1.2, Adam '
        '…"></label>'
        '<label class="tick"><input id="failed" type="checkbox"> failed</label>'
        f'<output id="count">{len(findings)} claims</output></nav>'
    )


def _verdict(finding: Finding) -> str:
    if finding.missing:
        return '<span class="mark" title="not checked, because data is missing">–</span>'
    label = "holds" if finding.holds else "does not hold" if finding.verdict else "raised an error"
    return (
        f'<span class="mark {"good" if finding.holds else "bad"}" '
        f'title="{label}">{MARKS[finding.holds]}</span>'
    )


def _ids(name: str, ids: Sequence[str]) -> str:
    link = (
        f'<a class="anchor" href="#{name}" aria-label="Link to this '
        f'claim">{escape(" · ".join(ids))}</a>'
    )
    return f'<div class="ids">{link}</div>'


def _checks(finding: Finding) -> str:
    if finding.verdict is None:
        return f'<pre class="error">{escape(finding.error or finding.missing)}</pre>'
    named = finding.named()
    rows = "".join(_row(name, check) for name, check in named.items())
    head = "".join(
        f"<th>{word}</th>" for word in ("", "quantity", "measured", "expected", "method")
    )
    table = f'<table class="checks"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    unfolded = "" if finding.holds and len(named) > MAX_OPEN_COMPARISONS else " open"
    count = f"{len(named)} comparison{'s' * (len(named) > 1)}: {finding.method}"
    return f"<details{unfolded}><summary>{escape(count)}</summary>{table}</details>"


def _row(name: str, check: Check) -> str:
    printed = name.startswith(PRINTED)
    passed = check.holds != printed
    alarm = (
        f", false alarm rate {check.false_alarm:.0e}".replace("e-0", "e-")
        if check.false_alarm
        else ""
    )
    tolerance = "" if check.tolerance is None else f" ± {format_value(check.tolerance)}"
    expected = ("not " if printed else "") + format_value(check.expected) + tolerance
    cells = [name, format_value(check.measured), expected, check.method + alarm]
    mark = f'<td class="mark {"good" if passed else "bad"}">{MARKS[passed]}</td>'
    # 1e-12 must not be broken at its hyphen
    no_break = lambda cell: escape(cell).replace("e-", "e\N{NON-BREAKING HYPHEN}")
    return f"<tr>{mark}{''.join(f'<td>{no_break(cell)}</td>' for cell in cells)}</tr>"


def format_value(value: Any) -> str:
    """A number to four significant digits, or a list of them.

    >>> format_value(0.0312501), format_value(12), format_value([1.0, 2.5]), format_value(1e-17)
    ('0.03125', '12', '1, 2.5', '1e-17')
    """
    if isinstance(value, list):
        return ", ".join(map(format_value, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _notes(finding: Finding) -> str:
    claim = finding.claim
    parts = []
    if finding.verdict and finding.verdict.assumed:
        parts.append("Assumed without check: " + "; ".join(finding.verdict.assumed) + ".")
    if claim.cites:
        parts += [". ".join(filter(None, citation)) + "." for citation in citations(claim.cites)]
    names = ", ".join(f"<code>{escape(name)}</code>" for name in claim.of)
    tail = f"{claim.kind}; seed {finding.seed}; {finding.seconds:.2g} s"
    return f'<p class="notes">{escape(" ".join(parts))} {names} <span>{escape(tail)}</span></p>'


def _facts(facts: dict[str, str]) -> str:
    items = "".join(
        f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts.items()
    )
    return f'<footer><dl class="facts">{items}</dl></footer>'
