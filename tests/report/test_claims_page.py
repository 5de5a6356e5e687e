"""Tests of the page of claims: well-formed, escaped, self-contained, robust to failing figures."""

import re
from html.parser import HTMLParser

import pytest

from thetax.certify import cover_count
from thetax.claims import Verdict, at_most, equal, run_claim
from thetax.claims.engine.claim import Claim
from thetax.layers import softmax
from thetax.plot import Chart, Panel
from thetax.report import ClaimsPage


def _bound(key):
    figure = Chart(
        Panel("t", "mistakes", lines={"seen": ([1, 2], [1, 2])}, bounds={"bound": ([1, 2], [2, 4])})
    )
    return Verdict(
        at_most("mistakes", [3, 4], [4, 8]), assumed=("no bias & <no noise>",), figure=figure
    )


def _slip(key):
    return Verdict(equal("count", cover_count(3, 2), 6), printed=[equal("count", 4, 6)])


def _broken(key):
    raise RuntimeError("a < b")


def _strange(key):
    return Verdict(equal("count", 1, 2), figure=softmax)


CLAIMS = [
    Claim(("3.2-gd",), "It broke", "algorithm", "It is so.", _broken),
    Claim(
        ("2.2-softmax",), "A strange figure", "layer", "It is so.", _strange, ("layers.softmax",)
    ),
    Claim(
        ("1.2-novikoff", "1.2-lemma1.1"),
        "A bound & more",
        "theorem",
        r"At most $R^2$.",
        _bound,
        (),
        "A 62",
    ),
    Claim(
        ("1.2-cover",),
        "A slip",
        "erratum",
        "So.",
        _slip,
        ("certify.cover_count",),
        "",
        r"C(n + 1)",
        r"C(n)",
    ),
]


@pytest.fixture(scope="module")
def page():
    verdicts, (first, strange, *others) = ClaimsPage(), map(run_claim, CLAIMS)
    with pytest.warns(RuntimeWarning, match=r"the figure of 2\.2-softmax failed"):
        verdicts.add(strange)
    for finding in (first, *others):
        verdicts.add(finding)
    return verdicts.page({"seed": "0"})


class Tags(HTMLParser):
    """Records tags that are opened and not closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "input", "br", "path", "use", "image"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            assert self.open.pop() == tag


def test_the_page_is_well_formed_and_in_the_order_of_the_course(page):
    tags = Tags(page)
    assert tags.open == []
    ids = [attrs["id"] for tag, attrs in tags.seen if tag == "article"]
    assert ids == ["1.2-novikoff", "1.2-cover-erratum", "2.2-softmax", "3.2-gd"]
    every = [attrs["id"] for _, attrs in tags.seen if "id" in attrs]
    assert len(every) == len(set(every))
    links = [attrs["href"] for tag, attrs in tags.seen if tag == "a"]
    assert {f"#{name}" for name in ids} <= set(links)


def test_the_page_needs_no_network(page):
    outside = re.findall(r'(?:src|href|url)\s*[=(]\s*["\']?(https?:[^"\' )]*)', page)
    assert outside == []


def test_the_page_contains_claims_and_errors(page):
    assert "2 of 4" in page
    assert "A bound &amp; more" in page
    assert "no bias &amp; &lt;no noise&gt;" in page
    assert "RuntimeError: a &lt; b" in page
    assert "printed form, must fail: count" in page
    assert "This figure could not be drawn" in page
    assert page.count("<figure>") == 2
    assert 'data-kind="erratum" data-holds="true"' in page
    assert 'data-kind="layer" data-holds="false"' in page


def test_the_page_is_written_to_one_file(tmp_path):
    verdicts = ClaimsPage()
    verdicts.add(run_claim(CLAIMS[2]))
    path = verdicts.write(tmp_path / "new" / "page.html", facts={"jax": "<0>"})
    assert "&lt;0&gt;" in path.read_text("utf-8")
    assert [p.name for p in path.parent.iterdir()] == ["page.html"]
