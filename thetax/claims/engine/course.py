"""The course as a list of rows: what there is to claim, and how much of it is claimed."""

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

CHAPTERS = {
    "1": "Connectionism",
    "2": "Feed-forward networks",
    "3": "Gradient-based learning",
    "4": "Convolutional networks",
    "5": "Recurrent networks",
    "6": "Transformers",
    "7": "Sets and graphs",
    "8": "Tricks of the trade",
    "9": "Tangent kernels",
    "10": "Bayesian learning",
    "11": "Learning theory",
    "12": "Generative models",
    "13": "Adversarial examples",
    "L1": "Lecture: introduction",
    "L10": "Lecture: fundamentals",
}


OWN = "own"


def chapter_of(row: str) -> str:
    """The chapter of a row; what is not named like a row of the course is one's own.

    >>> chapter_of("10.2-any"), chapter_of("L1-any"), chapter_of("my-claim")
    ('10', 'L1', 'own')
    """
    found = re.match(r"(\d+|L\d+)[.-]", row)
    return found.group(1) if found and found.group(1) in CHAPTERS else OWN


def heading(chapter: str) -> str:
    """A chapter's number and title, as on a page.

    >>> heading("2")
    '2. Feed-forward networks'
    """
    title = CHAPTERS.get(chapter, "Claims of one's own")
    return f"{chapter}. {title}" if chapter.isdigit() else title


@dataclass(frozen=True)
class Row:
    """A statement of the course by its name; `erratum` if the course prints it wrongly."""

    id: str
    kind: str
    erratum: bool


@dataclass(frozen=True)
class Coverage:
    """How many rows of a chapter are claimed, how many of its errata, and by how many claims."""

    chapter: str
    title: str
    rows: int
    settled: int
    errata: int
    errata_settled: int
    claims: int


@cache
def rows() -> dict[str, Row]:
    """Every row of the course, in its order.

    >>> rows()["1.2-novikoff"]
    Row(id='1.2-novikoff', kind='theorem', erratum=True)
    """
    text = files("thetax.claims.engine").joinpath("course.csv").read_text("utf-8")
    table = (
        Row(row["id"], row["kind"], row["erratum"] == "yes")
        for row in csv.DictReader(text.splitlines())
    )
    ordered = sorted(table, key=lambda row: list(CHAPTERS).index(chapter_of(row.id)))
    return {row.id: row for row in ordered}


@cache
def _places() -> dict[str, int]:
    return {row: place for place, row in enumerate(rows())}


def place(row: str) -> int:
    """Where a row stands in the course; one that is not in it comes last."""
    return _places().get(row, len(_places()))


def coverage(claims: Iterable[Any]) -> list[Coverage]:
    """The chapters of the course, and how much of each these claims settle.

    >>> from thetax.claims import find_claims
    >>> coverage(find_claims("1.2-novikoff"))[0].settled
    1
    """
    claims = list(claims)
    right = {row for claim in claims if claim.kind != "erratum" for row in claim.ids}
    wrong = {row for claim in claims if claim.kind == "erratum" for row in claim.ids}
    found = []
    for chapter, title in CHAPTERS.items():
        own = [row for row in rows().values() if chapter_of(row.id) == chapter]
        misprinted = [row.id for row in own if row.erratum]
        count = sum(claim.chapter == chapter for claim in claims)
        settled = sum(row.id in right for row in own)
        corrected = sum(row in wrong for row in misprinted)
        found.append(Coverage(chapter, title, len(own), settled, len(misprinted), corrected, count))
    return found
