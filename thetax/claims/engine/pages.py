"""Pages of the documentation that are written from the claims: syllabus, errata, bibliography."""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from .bibliography import Citation, citations
from .claim import Claim
from .course import chapter_of, heading, rows

NOTE = "<!-- Written by `make docs` from the claims; edit those instead. -->"


def syllabus(claims: Sequence[Claim]) -> str:
    """The rows of the chapters that have claims: library names and the claim that checks each."""
    claimed = {row: claim for claim in claims if claim.kind != "erratum" for row in claim.ids}
    done = {chapter_of(row) for row in claimed}
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
            claim = claimed.get(row.id)
            names = ", ".join(f"`{name}`" for name in claim.of) if claim else ""
            parts.append(
                f"| `{row.id}` | {row.kind} | {names} | {_link(claim) if claim else 'not yet'} |"
            )
        parts.append("")
    return "\n".join(parts)


def errata(claims: Sequence[Claim]) -> str:
    """The errata: the printed form, the corrected form and why; mistakes first, then slips."""
    wrong = [claim for claim in claims if claim.kind == "erratum"]
    mistakes = [claim for claim in wrong if not claim.slip]
    slips = [claim for claim in wrong if claim.slip]
    parts = [NOTE, "# Errata of the notes", ""]
    parts += [
        "For each erratum a claim shows that the printed form fails and that the corrected form "
        "passes the same check: `thetax verify ROW`. The library computes the corrected form. An "
        "erratum that is printed in several places is counted once, and its text names the "
        "places.",
        "",
        f"- [Mistakes](#mistakes), {len(mistakes)}: a formula or statement that does not hold as "
        "printed.",
        f"- [Slips](#slips), {len(slips)}: a misprint in the wording, an index or a symbol; the "
        "lines around it are right and show what is meant.",
        "",
    ]
    return "\n".join([*parts, *_section("Mistakes", mistakes), *_section("Slips", slips)])


def _section(title: str, wrong: Sequence[Claim]) -> list[str]:
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


def references(claims: Sequence[Claim]) -> str:
    """The works that the claims cite, each with the claims that cite it."""
    cited: dict[Citation, list[Claim]] = {}
    for claim in claims:
        for citation in citations(claim.cites):
            cited.setdefault(citation._replace(place=""), []).append(claim)
    parts = [NOTE, "# Bibliography", "", "The works that claims cite, and the claims.", ""]
    for citation in sorted(cited, key=lambda citation: citation.reference.casefold()):
        names = dict.fromkeys(f"`{claim.name}`" for claim in cited[citation])
        parts.append(f"- {citation.reference}. {citation.work}. {', '.join(names)}")
    return "\n".join([*parts, ""])


PAGES: dict[str, Callable[[Sequence[Claim]], str]] = {
    "syllabus.md": syllabus,
    "errata.md": errata,
    "bibliography.md": references,
}


def _link(claim: Claim) -> str:
    """The claim's title, linked to its source."""
    path = "../" + claim.function.__module__.replace(".", "/") + ".py"
    return f"[{_cell(claim.title)}]({path})"


def _cell(text: str) -> str:
    """Text with | escaped, for a cell of a Markdown table."""
    return re.sub(r"\|", r"\\|", text)


def resolve(names: Iterable[str]) -> list[object]:
    """The objects of public names such as "models.MLP"; `AttributeError` if one does not exist.

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
