"""The report as one HTML file that needs no network: everything it shows is inside."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from .figure import variables

RESULTS_NOTE = (
    "What follows looks at the network of the last row; where a row is a mean over several, at "
    "the first of them."
)
MIN_TEXT_LETTERS = 60  # letters of a cell, from which on it is a text that has lines


@dataclass(frozen=True)
class Section:
    """What one lens has to say; `figure` is SVG, everything else is plain text."""

    name: str
    title: str
    says: str
    told: Mapping[str, str] = field(default_factory=dict)
    rows: Sequence[Mapping[str, str]] = ()
    figure: str = ""
    trouble: str = ""


def page(
    *,
    title: str,
    summary: Mapping[str, str],
    table: Mapping[str, Mapping[str, float]],
    facts: Mapping[str, Any],
    sections: Sequence[Section],
) -> str:
    """The whole document; every piece of text is escaped here."""
    light, dark = variables()
    css = files("thetax.report").joinpath("page.css").read_text("utf-8")
    contents = "".join(f'<li><a href="#{s.name}">{escape(s.title)}</a></li>' for s in sections)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}</title>",
            f"<style>:root{{{light}}}@media "
            f"(prefers-color-scheme:dark){{:root{{{dark}}}}}\n{css}</style></head><body>",
            f"<header><h1>{escape(title)}</h1>{_numbers(summary, 'summary')}</header>",
            f'<nav aria-label="Contents"><ul>{contents}</ul></nav><main>',
            _results(table),
            *map(_section, sections),
            _facts(facts),
            "</main></body></html>\n",
        ]
    )


def _numbers(told: Mapping[str, str], kind: str) -> str:
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in told.items()
    )
    return f'<dl class="{kind}">{items}</dl>' if items else ""


def _results(table: Mapping[str, Mapping[str, float]]) -> str:
    if not table:
        return ""
    rows = [
        {"": method} | {name: number(value) for name, value in row.items()}
        for method, row in table.items()
    ]
    below = f"<p>{RESULTS_NOTE}</p>" if len(rows) > 1 else ""
    return f'<section id="results"><h2>Results</h2>{below}{_table(rows)}</section>'


def number(value: Any) -> str:
    """A number of a table to four digits, noughts among them, so that columns line up; a count is
    whole.

    >>> number(4.49), number(87.5), number(1234.0), number(np.int64(12))
    ('4.490', '87.50', '1234', '12')
    """
    whole = not np.issubdtype(getattr(value, "dtype", type(value)), np.inexact)
    return str(value) if whole else f"{float(value):#.4g}".rstrip(".")


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    written = lambda value: "\n" in value or len(value) > MIN_TEXT_LETTERS
    prose = {
        name for row in rows for name, value in row.items() if written(str(value))
    }  # set as it was written
    kind = {name: ' class="text"' if name in prose else "" for name in columns}
    head = "".join(f"<th{kind[name]}>{escape(name)}</th>" for name in columns)
    line = lambda row: "".join(
        f"<td{kind[name]}>{escape(str(row.get(name, '–')))}</td>" for name in columns
    )
    body = "".join(f"<tr>{line(row)}</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _section(section: Section) -> str:
    trouble = (
        f'<p class="trouble">This lens failed: {escape(section.trouble)}</p>'
        if section.trouble
        else ""
    )
    figure = f"<figure>{section.figure}</figure>" if section.figure else ""
    rows = _table(section.rows) if section.rows else ""
    if len(section.rows) > 12:
        rows = f"<details><summary>All {len(section.rows)} rows</summary>{rows}</details>"
    return (
        f'<section id="{section.name}"><h2>{escape(section.title)}</h2><div class="lens">'
        f'<div class="words"><p>{escape(section.says)}</p>{trouble}'
        f"{_numbers(section.told, 'told')}</div>"
        f"{figure}</div>{rows}</section>"
    )


def _facts(facts: Mapping[str, Any]) -> str:
    if not facts:
        return ""
    inside = {name: value for name, value in facts.items() if isinstance(value, Mapping)}
    plain = {
        name: _fact(value)
        for name, value in facts.items()
        if name not in inside and value is not None
    }
    parts = [_numbers(plain, "facts")]
    for name, values in inside.items():
        parts.append(
            f"<h3>{escape(name)}</h3>"
            + _numbers({str(k): _fact(v) for k, v in values.items()}, "facts")
        )
    return f'<section id="facts"><h2>How it was made</h2>{"".join(parts)}</section>'


def _fact(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
