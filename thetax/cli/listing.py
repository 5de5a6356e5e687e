"""`thetax list` and `thetax data`: what there is."""

import inspect
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import cyclopts
from rich.markup import escape
from rich.table import Column, Table

from .. import data
from ..recipes import RECIPES
from .app import app, out, print_json

data_app = cyclopts.App(name="data", help="The datasets, and fetching one.")
app.command(data_app)


@app.command(name="list")
def list_(
    what: Literal["recipes", "data", "claims"] = "recipes", /, *which: str, json: bool = False
) -> int:
    """List the recipes, the datasets, or how much of the course is claimed (`list claims 1.2` names
    the claims).

    Parameters
    ----------
    what
        What to list.
    which
        Of the claims: rows, or how they begin.
    json
        One JSON object instead of a table.
    """
    if which and what != "claims":
        raise ValueError(f"Only claims are listed by name; leave out {which[0]!r}.")
    if what == "data":
        return list_data(json=json)
    if what == "claims":
        return name_claims(*which, json=json) if which else list_claims(json=json)
    rows = {
        name: (inspect.getdoc(function) or "").split("\n")[0]
        for name, function in sorted(RECIPES.items())
    }
    if json:
        print_json(rows)
        return 0
    table = Table("recipe", "what it does")
    for name, what_it_does in rows.items():
        table.add_row(name, what_it_does)
    out.print(table)
    return 0


@data_app.default
def list_data(*, json: bool = False) -> int:
    """List the datasets, their licences, and which are here already.

    Parameters
    ----------
    json
        One JSON object instead of a table.
    """
    rows = [
        {
            "name": d.name,
            "what": d.about,
            "licence": d.licence,
            "here": d.embedded is not None or data.cached(d) is not None,
        }
        for d in data.datasets()
    ]
    if json:
        print_json(rows)
        return 0
    table = Table("dataset", "what it is", "licence", "here")
    for row in rows:
        table.add_row(row["name"], row["what"], row["licence"], "yes" if row["here"] else "")
    out.print(table)
    return 0


@data_app.command(name="fetch")
def fetch(name: str, /, *, folder: Path | None = None) -> int:
    """Fetch a dataset into the cache.

    Parameters
    ----------
    name
        One of `thetax list data`.
    folder
        A folder of yours that already has its files.
    """
    data.fetch(name, folder=folder)
    out.print(f"{name} is here.")
    return 0


def list_claims(*, json: bool = False) -> int:
    """The chapters of the course, and how many of their statements are claims that run."""
    from ..claims import coverage, find_claims  # brings every library a claim compares with

    chapters = coverage(find_claims())
    if json:
        print_json([asdict(chapter) for chapter in chapters])
        return 0
    table = Table("", "chapter", "statements claimed", "errata shown", "claims")
    for c in chapters:
        table.add_row(
            c.chapter,
            c.title,
            f"{c.settled} of {c.rows}",
            f"{c.errata_settled} of {c.errata}",
            str(c.claims),
        )
    rows, settled, errata, shown = (
        sum(getattr(c, n) for c in chapters)
        for n in ("rows", "settled", "errata", "errata_settled")
    )
    table.add_section()
    table.add_row(
        "",
        "the course",
        f"{settled} of {rows}",
        f"{shown} of {errata}",
        str(sum(c.claims for c in chapters)),
    )
    out.print(table)
    out.print("name them with: thetax list claims 1.2; check them with: thetax verify 1.2")
    return 0


def name_claims(*which: str, json: bool = False) -> int:
    """The claims of these rows, chapters or sections, with their rows, kinds and titles."""
    from ..claims import find_claims

    claims = find_claims(*which)
    if json:
        print_json(
            [{"name": c.name, "ids": list(c.ids), "kind": c.kind, "title": c.title} for c in claims]
        )
        return 0
    table = Table(Column("rows", overflow="fold"), "kind", "what")
    for claim in claims:
        table.add_row(escape(" ".join(claim.ids)), claim.kind, escape(claim.title))
    out.print(table)
    return 0
