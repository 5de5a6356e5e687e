"""`thetax list` and `thetax data`: list recipes, datasets and claims."""

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

data_app = cyclopts.App(name="data", help="List and download datasets.")
app.command(data_app)


@app.command(name="list")
def list_(
    what: Literal["recipes", "data", "claims"] = "recipes", /, *ids: str, json: bool = False
) -> int:
    """List the recipes, the datasets, or the claims per chapter of the course.

    `thetax list claims 1.2` lists the claims of section 1.2.

    Parameters
    ----------
    what
        What to list.
    ids
        Ids of statements, or their beginnings (claims only).
    json
        Print JSON instead of a table.
    """
    if ids and what != "claims":
        raise ValueError(f"list {what}: only claims are selected by id. Leave out {ids[0]!r}.")
    if what == "data":
        return list_data(json=json)
    if what == "claims":
        return list_claims(*ids, json=json) if ids else list_chapters(json=json)
    rows = {
        name: (inspect.getdoc(function) or "").split("\n")[0]
        for name, function in sorted(RECIPES.items())
    }
    if json:
        print_json(rows)
        return 0
    table = Table("recipe", "description")
    for name, description in rows.items():
        table.add_row(name, description)
    out.print(table)
    return 0


@data_app.default
def list_data(*, json: bool = False) -> int:
    """List the datasets with their licences, and whether they are cached.

    Parameters
    ----------
    json
        Print JSON instead of a table.
    """
    rows = [
        {
            "name": d.name,
            "description": d.about,
            "licence": d.licence,
            "cached": d.embedded is not None or data.cached_path(d) is not None,
        }
        for d in data.datasets()
    ]
    if json:
        print_json(rows)
        return 0
    table = Table("dataset", "description", "licence", "cached")
    for row in rows:
        table.add_row(
            row["name"], row["description"], row["licence"], "yes" if row["cached"] else ""
        )
    out.print(table)
    return 0


@data_app.command(name="fetch")
def fetch(name: str, /, *, folder: Path | None = None) -> int:
    """Download a dataset into the cache.

    Parameters
    ----------
    name
        Name of a dataset; see `thetax list data`.
    folder
        Folder that already contains its files.
    """
    data.fetch(name, folder=folder)
    out.print(f"{name} is in the cache.")
    return 0


def list_chapters(*, json: bool = False) -> int:
    """The chapters of the course, with the number of statements that have claims."""
    from ..claims import coverage, find_claims  # imports all libraries that claims compare with

    chapters = coverage(find_claims())
    if json:
        print_json([asdict(chapter) for chapter in chapters])
        return 0
    table = Table("", "chapter", "statements claimed", "errata shown", "claims")
    for c in chapters:
        table.add_row(
            c.chapter,
            c.title,
            f"{c.claimed} of {c.rows}",
            f"{c.claimed_errata} of {c.errata}",
            str(c.claims),
        )
    total = lambda name: sum(getattr(c, name) for c in chapters)
    table.add_section()
    table.add_row(
        "",
        "the course",
        f"{total('claimed')} of {total('rows')}",
        f"{total('claimed_errata')} of {total('errata')}",
        str(total("claims")),
    )
    out.print(table)
    out.print(
        "list the claims of a section: thetax list claims 1.2; verify them: thetax verify 1.2"
    )
    return 0


def list_claims(*ids: str, json: bool = False) -> int:
    """The claims of statements, sections or chapters, with their ids, kinds and titles."""
    from ..claims import find_claims

    claims = find_claims(*ids)
    if json:
        print_json(
            [{"name": c.name, "ids": list(c.ids), "kind": c.kind, "title": c.title} for c in claims]
        )
        return 0
    table = Table(Column("ids", overflow="fold"), "kind", "title")
    for claim in claims:
        table.add_row(escape(" ".join(claim.ids)), claim.kind, escape(claim.title))
    out.print(table)
    return 0
