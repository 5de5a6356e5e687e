"""Pages that are written from the claims."""

from thetax.claims import find_claims
from thetax.claims.engine.bibliography import bibliography, citations
from thetax.claims.engine.pages import references


def test_every_work_that_a_claim_cites_is_in_the_bibliography():
    cited = {c for claim in find_claims() for c in citations(claim.cites)}
    assert not sorted(c.reference for c in cited if not c.work)
    assert not sorted(set(bibliography()) - {c.reference for c in cited})


def test_the_place_in_a_work_is_told_from_its_reference():
    assert [tuple(c) for c in citations("Nesterov 2004, §2.2; Nobody 1900; Kidger 2021 (x)")] == [
        ("Nesterov 2004", "§2.2", "Introductory lectures on convex optimization. Kluwer"),
        ("Nobody 1900", "", ""),
        (
            "Kidger 2021",
            "(x)",
            "On neural differential equations. PhD thesis, University of Oxford",
        ),
    ]


def test_the_bibliography_lists_the_claims_of_a_work():
    line = next(line for line in references(find_claims("1")).splitlines() if "Cover 1965" in line)
    assert line.startswith("- Cover 1965. Geometrical and statistical properties")
    assert "`1.2-cover`" in line
