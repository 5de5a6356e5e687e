"""The report as one HTML file that needs no network: everything it shows is inside."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from .figure import css_variables

RESULTS_NOTE = (
    "The sections below are about the model of the last row; if that row is a mean over several "
    "runs, about the first of them."
)
MIN_TEXT_LENGTH = 60  # characters from which a table cell is set as wrapped text


@dataclass(frozen=True)
class Section:
    """A section of the page; `figure` is SVG, everything else is plain text, `slug` its anchor."""

    slug: str
    title: str
    description: str
    metrics: Mapping[str, str] = field(default_factory=dict)
    rows: Sequence[Mapping[str, str]] = ()
    figure: str = ""
    error: str = ""


def page(
    *,
    title: str,
    summary: Mapping[str, str],
    table: Mapping[str, Mapping[str, float]],
    facts: Mapping[str, Any],
    sections: Sequence[Section],
) -> str:
    """The HTML document. All text is escaped here."""
    light, dark = css_variables()
    css = files("thetax.report").joinpath("page.css").read_text("utf-8")
    contents = "".join(f'<li><a href="#{s.slug}">{escape(s.title)}</a></li>' for s in sections)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}</title>",
            f"<style>:root{{{light}}}@media "
            f"(prefers-color-scheme:dark){{:root{{{dark}}}}}\n{css}</style></head><body>",
            f"<header><h1>{escape(title)}</h1>{_definition_list(summary, 'summary')}</header>",
            f'<nav aria-label="Contents"><ul>{contents}</ul></nav><main>',
            _results(table),
            *map(_section, sections),
            _facts(facts),
            "</main></body></html>\n",
        ]
    )


def _definition_list(values: Mapping[str, str], css_class: str) -> str:
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{_no_break(escape(value))}</dd></div>"
        for name, value in values.items()
    )
    return f'<dl class="{css_class}">{items}</dl>' if items else ""


def _no_break(text: str) -> str:
    """Prevents line breaks within numbers such as 1e-05."""
    return re.sub(r"(?<=\de)-(?=\d)", "\N{NON-BREAKING HYPHEN}", text)


def _results(table: Mapping[str, Mapping[str, float]]) -> str:
    if not table:
        return ""
    rows = [
        {"": method} | {name: format_number(value) for name, value in row.items()}
        for method, row in table.items()
    ]
    below = f"<p>{RESULTS_NOTE}</p>" if len(rows) > 1 else ""
    return f'<section id="results"><h2>Results</h2>{below}{_table(rows)}</section>'


def format_number(value: Any) -> str:
    """Formats a number to four significant digits, keeping trailing zeros so that columns line up;
    integers as they are.

    >>> format_number(4.49), format_number(87.5), format_number(1234.0), format_number(np.int64(12))
    ('4.490', '87.50', '1234', '12')
    """
    is_integer = not np.issubdtype(getattr(value, "dtype", type(value)), np.inexact)
    return str(value) if is_integer else f"{float(value):#.4g}".rstrip(".")


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    is_text = lambda value: "\n" in value or len(value) > MIN_TEXT_LENGTH
    text_columns = {name for row in rows for name, value in row.items() if is_text(str(value))}
    css_class = {name: ' class="text"' if name in text_columns else "" for name in columns}
    head = "".join(f"<th{css_class[name]}>{escape(name)}</th>" for name in columns)
    line = lambda row: "".join(
        f"<td{css_class[name]}>{escape(str(row.get(name, '–')))}</td>" for name in columns
    )
    body = "".join(f"<tr>{line(row)}</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _section(section: Section) -> str:
    error = ""
    if section.error:
        error = f'<p class="error">This section could not be computed: {escape(section.error)}</p>'
    figure = f"<figure>{section.figure}</figure>" if section.figure else ""
    rows = _table(section.rows) if section.rows else ""
    if len(section.rows) > 12:
        rows = f"<details><summary>All {len(section.rows)} rows</summary>{rows}</details>"
    metrics = _definition_list(section.metrics, "metrics")
    layout = "both" if metrics and figure else "alone"
    return (
        f'<section id="{section.slug}"><h2>{escape(section.title)}</h2>'
        f'<p class="description">{escape(section.description)}</p>{error}'
        f'<div class="{layout}">{metrics}{figure}</div>{rows}</section>'
    )


def _facts(facts: Mapping[str, Any]) -> str:
    if not facts:
        return ""
    nested = {name: value for name, value in facts.items() if isinstance(value, Mapping)}
    plain = {
        name: _fact(value)
        for name, value in facts.items()
        if name not in nested and value is not None
    }
    parts = [_definition_list(plain, "facts")]
    for name, values in nested.items():
        parts.append(
            f"<h3>{escape(name)}</h3>"
            + _definition_list({str(k): _fact(v) for k, v in values.items()}, "facts")
        )
    return f'<section id="facts"><h2>Settings and environment</h2>{"".join(parts)}</section>'


def _fact(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
