"""Two pages of the documentation, written from the registry: the syllabus and the errata."""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from .claim import Claim
from .course import chapter_of, heading, rows

NOTE = "<!-- Written by `make docs` from the claims; edit those instead. -->"


def syllabus(claims: Sequence[Claim]) -> str:
    """Each row of the chapters that have claims: where it is in the library, and the claim that
    checks it.
    """
    settled = {row: claim for claim in claims if claim.kind != "erratum" for row in claim.ids}
    done = {chapter_of(row) for row in settled}
    parts = [NOTE, "# The course in the library", ""]
    parts += [
        "Every row runs: `thetax verify ROW`. The errata of the notes are on [their own "
        "page](errata.md).",
        "",
    ]
    for chapter, own in groupby(rows().values(), lambda row: chapter_of(row.id)):
        if chapter not in done:
            continue
        parts += [
            f"## {heading(chapter)}",
            "",
            "| row | kind | in the library | claim |",
            "|---|---|---|---|",
        ]
        for row in own:
            claim = settled.get(row.id)
            names = ", ".join(f"`{name}`" for name in claim.of) if claim else ""
            parts.append(
                f"| `{row.id}` | {row.kind} | {names} | {_link(claim) if claim else 'not yet'} |"
            )
        parts.append("")
    return "\n".join(parts)


def errata(claims: Sequence[Claim]) -> str:
    """Each erratum: what is printed, what is right, and why; first the mistakes, then the slips."""
    wrong = [claim for claim in claims if claim.kind == "erratum"]
    mistakes = [claim for claim in wrong if not claim.slip]
    slips = [claim for claim in wrong if claim.slip]
    parts = [NOTE, "# Errata of the notes", ""]
    parts += [
        "Of each, a claim shows that the printed form fails and the corrected one holds, by the "
        "same check: `thetax verify ROW`. The library computes the corrected form. Each is counted "
        "once; where it is printed in several places, its text says so.",
        "",
        f"- [Mistakes](#mistakes), {len(mistakes)}: a formula or statement that does not hold as "
        "printed.",
        f"- [Slips](#slips), {len(slips)}: of wording, an index or a symbol. What is meant is "
        "clear, since the lines around it are right.",
        "",
    ]
    return "\n".join([*parts, *_listed("Mistakes", mistakes), *_listed("Slips", slips)])


def _listed(title: str, wrong: Sequence[Claim]) -> list[str]:
    parts = [f"## {title}", ""]
    for chapter, own in groupby(wrong, lambda claim: claim.chapter):
        parts += [f"### {heading(chapter)}", ""]
        for claim in own:
            parts += [
                f"#### {claim.title}",
                "",
                f"`{'`, `'.join(claim.ids)}`, {_link(claim)}",
                "",
                claim.statement,
                "",
            ]
            parts += [f"- printed: ${claim.printed}$", f"- corrected: ${claim.corrected}$", ""]
    return parts


PAGES: dict[str, Callable[[Sequence[Claim]], str]] = {"syllabus.md": syllabus, "errata.md": errata}


def _link(claim: Claim) -> str:
    """The claim's title, linked to its source."""
    path = "../" + claim.function.__module__.replace(".", "/") + ".py"
    return f"[{_cell(claim.title)}]({path})"


def _cell(text: str) -> str:
    """Text that does not end a cell of a table."""
    return re.sub(r"\|", r"\\|", text)


def resolve(names: Iterable[str]) -> list[object]:
    """The objects behind public names, as in "models.MLP"; an `AttributeError` where one does not
    exist.

    >>> resolve(["layers.relu"])[0].__name__
    'relu'
    """
    import thetax

    found = []
    for name in names:
        thing: object = thetax
        for part in name.split("."):
            thing = getattr(thing, part)
        found.append(thing)
    return found
