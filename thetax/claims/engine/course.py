"""The rows of the course, each a statement to claim, and how many of them have claims."""

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

# The titles of the chapters by number.
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
    """The chapter of a row; "own" for a name that is no row of the course.

    >>> chapter_of("10.2-any"), chapter_of("L1-any"), chapter_of("my-claim")
    ('10', 'L1', 'own')
    """
    found = re.match(r"(\d+|L\d+)[.-]", row)
    return found.group(1) if found and found.group(1) in CHAPTERS else OWN


def heading(chapter: str) -> str:
    """The number and title of a chapter.

    >>> heading("2")
    '2. Feed-forward networks'
    """
    title = CHAPTERS.get(chapter, "Your own claims")
    return f"{chapter}. {title}" if chapter.isdigit() else title


@dataclass(frozen=True)
class Row:
    """A statement of the course; `erratum` says whether the course misprints it."""

    id: str
    kind: str
    erratum: bool


@dataclass(frozen=True)
class Coverage:
    """For one chapter: its rows and errata, how many of each have a claim, and its claims."""

    chapter: str
    title: str
    rows: int
    claimed: int
    errata: int
    claimed_errata: int
    claims: int


@cache
def rows() -> dict[str, Row]:
    """Every row of the course, in order.

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
def _positions() -> dict[str, int]:
    return {row: i for i, row in enumerate(rows())}


def position(row: str) -> int:
    """The position of a row in the course; a row that is not in the course comes last."""
    return _positions().get(row, len(_positions()))


def coverage(claims: Iterable[Any]) -> list[Coverage]:
    """How much of each chapter of the course the given claims cover.

    >>> from thetax.claims import find_claims
    >>> coverage(find_claims("1.2-novikoff"))[0].claimed
    1
    """
    claims = list(claims)
    claimed = {row for claim in claims if claim.kind != "erratum" for row in claim.ids}
    corrected = {row for claim in claims if claim.kind == "erratum" for row in claim.ids}
    chapters = []
    for chapter, title in CHAPTERS.items():
        own = [row for row in rows().values() if chapter_of(row.id) == chapter]
        errata = [row.id for row in own if row.erratum]
        chapters.append(
            Coverage(
                chapter,
                title,
                rows=len(own),
                claimed=sum(row.id in claimed for row in own),
                errata=len(errata),
                claimed_errata=sum(row in corrected for row in errata),
                claims=sum(claim.chapter == chapter for claim in claims),
            )
        )
    return chapters
