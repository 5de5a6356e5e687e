"""The works that claims cite: one bibliography for reports and documentation."""

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class Citation(NamedTuple):
    """A work, the place in it, and its title and venue; the last is empty for an unknown work."""

    reference: str
    place: str
    work: str


@cache
def bibliography() -> dict[str, str]:
    """Title and venue of every work by its reference.

    >>> bibliography()["Vaswani et al. 2017"]
    'Attention is all you need. NeurIPS'
    """
    text = files("thetax.claims.engine").joinpath("bibliography.csv").read_text("utf-8")
    return {row["reference"]: row["work"] for row in csv.DictReader(text.splitlines())}


def citations(cites: str) -> list[Citation]:
    """The works of a claim's `cites`, which separates them by semicolons.

    >>> citations("Barron 1993; Nesterov 2004, §2.2")[1]
    Citation(reference='Nesterov 2004', place='§2.2', work='Introductory lectures on ...')
    """
    return [_citation(part.strip()) for part in cites.split(";") if part.strip()]


def _citation(text: str) -> Citation:
    known = [r for r in bibliography() if text == r or text.startswith((r + ",", r + " ("))]
    reference = max(known, key=len, default=text)
    return Citation(
        reference, text[len(reference) :].strip(" ,"), bibliography().get(reference, "")
    )
