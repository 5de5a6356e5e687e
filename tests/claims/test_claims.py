"""Every claim of the course, each a test of its own; and the registry is whole."""

from pathlib import Path

import pytest

from thetax.claims import find_claims, rows, settle
from thetax.claims.engine.pages import PAGES, resolve
from thetax.report.formula import formula, typeset

CLAIMS = find_claims()
LECTURE_10 = tuple(f"L10-{section}" for section in ("1.", "2.", "3.", "4.", "5.", "6.", "ex"))
IMAGES = tuple(f"L10-A{n}-" for n in (1, *range(3, 14)))  # appendix A.1 to A.13
SEQUENCES = tuple(f"L10-A{n}-" for n in range(14, 20))  # appendix A.14 to A.19
TRANSFORMERS = ("6.", "L10-A2-", *(f"L10-A{n}-" for n in range(21, 27)))
CHAPTERS = ("1.", "2.", "3.", "4.", "5.", "8.", "9.", "10.2", "13.")
DONE = (*CHAPTERS, "L1-", *LECTURE_10, *IMAGES, *SEQUENCES, *TRANSFORMERS)  # all that begin so
DOCS = Path(__file__).parents[2] / "docs"


def run(number, claim):
    """The errata and every fortieth of the others are quick; the others, and experiments, are slow.

    One whose data may have to be fetched is run with the network. `thetax verify` runs them all.
    """
    slow = claim.kind == "experiment" or (claim.kind != "erratum" and number % 40 != 0)
    marks = [pytest.mark.network] * bool(claim.data) + [pytest.mark.slow] * slow
    return pytest.param(claim, id=claim.name, marks=marks)


@pytest.mark.parametrize("claim", [run(*item) for item in enumerate(CLAIMS)])
def test_it_holds(claim):
    finding = settle(claim)
    if finding.missing:
        pytest.skip(finding.missing)
    failed = [
        check
        for check in finding.checks
        if not check.holds and check not in finding.verdict.printed
    ]
    assert finding.holds, finding.trouble or failed or "the printed form passes too"


@pytest.mark.parametrize("start", DONE)
def test_it_is_claimed_in_full(start):
    asked = {name: row.erratum for name, row in rows().items() if name.startswith(start)}
    settled = lambda wrong: {
        name for claim in CLAIMS if (claim.kind == "erratum") == wrong for name in claim.ids
    }
    assert asked.keys() <= settled(False)
    assert {name for name, wrong in asked.items() if wrong} <= settled(True)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_it_is_well_formed(claim):
    course = rows()
    assert all(row in course for row in claim.ids)
    assert claim.of, "name what of the library it is about"
    resolve(claim.of)
    if claim.kind == "erratum":
        assert all(course[row].erratum for row in claim.ids)
        assert claim.printed != claim.corrected
    formulas = [formula(latex) for latex in (claim.printed, claim.corrected) if latex]
    for text in (typeset(claim.statement), *formulas):
        assert "\\" not in text, "a LaTeX command was not understood"


@pytest.mark.parametrize("name", PAGES)
def test_the_documentation_is_not_stale(name):
    assert (DOCS / name).read_text("utf-8") == PAGES[name](CLAIMS), "run make docs"
