"""Every claim of the course as a test, and checks that the registry is complete."""

from pathlib import Path

import pytest

from thetax.claims import find_claims, rows, run_claim
from thetax.claims.engine.pages import PAGES, resolve
from thetax.report.formula import formula, typeset

CLAIMS = find_claims()
LECTURE_10 = tuple(f"L10-{section}" for section in ("1.", "2.", "3.", "4.", "5.", "6.", "ex"))
IMAGES = tuple(f"L10-A{n}-" for n in (1, *range(3, 14)))  # appendix A.1 to A.13
SEQUENCES = tuple(f"L10-A{n}-" for n in range(14, 20))  # appendix A.14 to A.19
TRANSFORMERS = ("6.", "L10-A2-", *(f"L10-A{n}-" for n in range(21, 27)))
CHAPTERS = ("1.", "2.", "3.", "4.", "5.", "7.", "8.", "9.", "10.2", "13.")
DONE = (*CHAPTERS, "L1-", *LECTURE_10, *IMAGES, *SEQUENCES, *TRANSFORMERS)  # prefixes of claim ids
DOCS = Path(__file__).parents[2] / "docs"


def run(number, claim):
    """A parameter for the claim. Errata and every fortieth other claim run by default; the rest and
    all experiments are marked slow, and claims that may download data are marked network.
    `thetax verify` runs all claims.
    """
    slow = claim.kind == "experiment" or (claim.kind != "erratum" and number % 40 != 0)
    marks = [pytest.mark.network] * bool(claim.data) + [pytest.mark.slow] * slow
    return pytest.param(claim, id=claim.name, marks=marks)


@pytest.mark.parametrize("claim", [run(*item) for item in enumerate(CLAIMS)])
def test_it_holds(claim):
    finding = run_claim(claim)
    if finding.missing:
        pytest.skip(finding.missing)
    failed = [
        check
        for check in finding.checks
        if not check.holds and check not in finding.verdict.printed
    ]
    assert finding.holds, finding.error or failed or "the printed form passes too"


@pytest.mark.parametrize("start", DONE)
def test_all_statements_are_claimed(start):
    statements = {name: row.erratum for name, row in rows().items() if name.startswith(start)}
    claimed = lambda wrong: {
        name for claim in CLAIMS if (claim.kind == "erratum") == wrong for name in claim.ids
    }
    assert statements.keys() <= claimed(False)
    assert {name for name, wrong in statements.items() if wrong} <= claimed(True)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_it_is_well_formed(claim):
    course = rows()
    assert all(row in course for row in claim.ids)
    assert claim.of, "`of=` must name the parts of the library that the claim is about"
    resolve(claim.of)
    if claim.kind == "erratum":
        assert all(course[row].erratum for row in claim.ids)
        assert claim.printed != claim.corrected
    formulas = [formula(latex) for latex in (claim.printed, claim.corrected) if latex]
    for text in (typeset(claim.statement), *formulas):
        assert "\\" not in text, "unknown LaTeX command"


@pytest.mark.parametrize("name", PAGES)
def test_the_documentation_is_not_stale(name):
    assert (DOCS / name).read_text("utf-8") == PAGES[name](CLAIMS), "run make docs"
