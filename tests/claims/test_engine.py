"""The claims engine: checks, the registry, running claims, findings."""

import itertools
import json
import os
import signal
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from children import check_annotations
from hypothesis import given
from hypothesis import strategies as st

from thetax import layers, models, train
from thetax.claims import (
    Verdict,
    at_least,
    at_most,
    between,
    close,
    close_derivative,
    coverage,
    decreasing,
    equal,
    erratum,
    find_claims,
    increasing,
    not_rejected,
    refuted,
    run_claim,
    verify,
    within,
)
from thetax.claims import claim as register
from thetax.claims.engine.claim import Claim
from thetax.claims.engine.numpy_rng import numpy_rng
from thetax.claims.engine.pages import errata
from thetax.claims.engine.uses import unused
from thetax.claims.engine.verify import Finding
from thetax.data import DatasetUnavailable
from thetax.layers import tanh

NAN = float("nan")


def made(function, *, kind="identity", name="1.0-notation", of=()):
    """A claim outside the registry."""
    return Claim((name,), "made for a test", kind, "It is so.", function, of)


FAILING = [
    equal("x", 1, 2),
    equal("x", np.arange(9), np.arange(9) % 8),
    close("x", 1.0, 1.1, tolerance=0.05),
    close("x", NAN, 1.0, tolerance=10.0),
    close("x", np.ones(3), np.array([1.0, 1.0, 2.0]), tolerance=0.4, relative=True),
    at_most("x", 2.0, 1.0),
    at_most("x", [0.0, NAN], 1.0),
    at_least("x", [3.0, 1.0], [1.0, 2.0]),
    at_least("x", NAN, 0.0),
    between("x", 3.0, 1.0, 2.0),
    between("x", NAN, 1.0, 2.0),
    decreasing("x", [3, 2, 2]),
    increasing("x", [1, NAN, 3]),
    within("x", 1.0, 0.0, error=0.1),
    within("x", NAN, 0.0, error=0.1),
    not_rejected("x", 1e-9),
    not_rejected("x", NAN),
    refuted(equal("x", 1, 1)),
]


@pytest.mark.parametrize("check", FAILING, ids=lambda check: f"{check.name} {check.method}")
def test_a_check_can_fail(check):
    assert not check.holds
    assert refuted(check).holds == (
        "nan" not in str(check.measured)
    )  # which refutes nothing either


PASSING = [
    equal("x", np.arange(9), np.arange(9)),
    close("x", 1.0, 1.04, tolerance=0.05),
    close("x", 1e6 * np.ones(3), 1e6 * np.ones(3) + 1, tolerance=1e-5, relative=True),
    at_most("x", [1.0, 2.0], [1.0, 3.0]),
    at_most("x", 1.0 + 1e-12, 1.0, slack=1e-9),
    at_least("x", 2, 1),
    between("x", 1.0, 1.0, 2.0),
    decreasing("x", [3, 2, 1]),
    increasing("x", [1, 2, 3]),
    within("x", 0.2, 0.0, error=0.1),
    not_rejected("x", 0.5),
]


@pytest.mark.parametrize("check", PASSING, ids=lambda check: f"{check.name} {check.method}")
def test_a_check_can_hold(check):
    assert check.holds


@pytest.mark.parametrize(
    "compare",
    [
        lambda: equal("x", [], []),
        lambda: close("x", np.zeros((0, 2)), np.zeros((0, 2)), tolerance=1.0),
        lambda: close("x", np.zeros((2, 1)), np.zeros(2), tolerance=1.0),
        lambda: at_most("x", [], 1.0),
        lambda: decreasing("x", [1.0]),
        lambda: within("x", 1.0, 1.0, error=0.0),
        lambda: within("x", 1.0, 1.0, error=float("inf")),
        lambda: close("x", 1.0, 1.0, tolerance=1.0, method="proved"),
        lambda: close("x", 1.0, 1.0, tolerance=1.0, method="statistical"),
        lambda: Verdict(),
        lambda: Verdict(equal("x", 1, 1), assumed="one sentence"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_comparison_that_could_not_fail_is_refused(compare):
    with pytest.raises(ValueError, match=r"."):
        compare()


@given(seed=st.integers(0, 10**6))
def test_the_rate_of_false_alarms_is_shared(seed):
    """With many numbers the allowed error of each grows, so that the rate of the whole stays."""
    alone = within("x", 0.0, 0.0, error=1.0, false_alarm=1e-3).tolerance
    many = within("x", np.zeros(100), np.zeros(100), error=1.0, false_alarm=1e-3).tolerance
    assert alone is not None
    assert many is not None
    assert many > alone
    draws = np.random.default_rng(seed).normal(size=100)
    assert within("x", draws, 0.0, error=1.0, false_alarm=1e-9).holds


def test_the_stated_rate_of_false_alarms_is_the_rate():
    draws = np.random.default_rng(0).normal(size=20_000)
    alarms = np.mean([not within("x", x, 0.0, error=1.0, false_alarm=0.05).holds for x in draws])
    assert abs(alarms - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 20_000)


def test_an_erratum_holds_only_if_the_printed_form_fails():
    right = equal("right", 1, 1)
    wrong = equal("wrong", 1, 2)
    assert Verdict(right, printed=[wrong]).holds
    assert not Verdict(right, printed=[wrong, right]).holds
    assert not Verdict(wrong, printed=[wrong]).holds


def test_an_erratum_is_not_shown_by_what_is_no_number():
    assert not Verdict(
        equal("right", 1, 1), printed=[close("printed", NAN, 1.0, tolerance=1.0)]
    ).holds


def test_assumptions_count():
    assert not Verdict(equal("x", 1, 1), assumptions=[equal("separable", False, True)]).holds


def test_a_claim_runs_in_double_precision_with_its_own_chance():
    keys = []

    def function(key, scale):
        keys.append((key, scale))
        return Verdict(equal("bits", jnp.zeros(1).dtype.name, "float64"))

    first = made(function)
    second = made(function, name="1.2-xor")
    assert run_claim(first).holds
    assert run_claim(second, scale="full").holds
    assert (keys[0][0] != keys[1][0]).all()
    assert [scale for _, scale in keys] == ["quick", "full"]
    assert jnp.zeros(1).dtype == jnp.float32


def test_data_that_cannot_be_had_leave_a_claim_unchecked():
    def offline(key):
        raise DatasetUnavailable("imdb is unavailable.")

    finding = run_claim(made(offline))
    assert (finding.holds, finding.fails, finding.missing) == (
        False,
        False,
        "imdb is unavailable.",
    )
    assert finding.method == "no data"
    assert finding.as_json()["missing"] == "imdb is unavailable."


TABLE = {"softplus": (layers.softplus,)}
MADE = layers.Convolution.init
DESCENT = train.descend(train.squared_error, optax.sgd(0.1))


def _helped(key):
    return _help(lambda x: layers.relu(x) + TABLE["softplus"][0](x))


def _help(f, law=layers.he):
    MADE, DESCENT, f, law  # noqa: B018
    return Verdict(equal("depth of a helper's helper", jax.jit(_last)(0.0), 0.0))


def _last(x):
    return tanh(x)


@pytest.mark.parametrize(
    "name",
    [
        "layers.relu",
        "layers.softplus",
        "layers.he",
        "layers.tanh",
        "layers.Convolution",
        "train.descend",
    ],
)
def test_what_a_claim_or_a_helper_refers_to_is_used(name):
    """By an attribute of a module, a global, a table, a default, a wrapped helper, and what was
    made at import.
    """
    assert unused(made(_helped, of=(name,))) == []


@pytest.mark.parametrize("name", ["layers.gelu", "layers.Linear", "models.MLP"])
def test_a_name_that_a_claim_does_not_use_is_refused(name):
    assert unused(made(_helped, of=("layers.relu", name))) == [name]
    finding = run_claim(made(_helped, of=("layers.relu", name)))
    assert not finding.holds
    assert f"of= names {name}, which" in finding.error
    assert run_claim(made(_helped, of=("layers.relu",))).holds


def test_what_the_library_uses_by_itself_does_not_count():
    """An MLP is made of linear layers; a claim about these must name them."""
    build = lambda key: models.MLP.init(2, 3, 1, key=key)
    assert unused(made(build, of=("models.MLP", "layers.Linear"))) == ["layers.Linear"]


def test_an_exception_becomes_the_error_of_the_finding():
    def broken(key):
        raise RuntimeError("the data are gone")

    finding = run_claim(made(broken))
    assert not finding.holds
    assert "the data are gone" in finding.error
    assert "broken" in finding.error
    assert json.dumps(finding.as_json())


def test_every_check_is_named_once_and_the_failed_are_named():
    def function(key):
        return Verdict(
            equal("count", 6, 6),
            equal("count", 7, 6),
            assumptions=[equal("separable", True, True)],
            printed=[equal("count", 4, 6), equal("other", 6, 6)],
        )

    told = run_claim(made(function, kind="erratum")).as_json()
    assert list(told["measured"]) == [
        "assumption: separable",
        "printed form, must fail: count",
        "printed form, must fail: other",
        "count",
        "count (2)",
    ]
    assert told["failed"] == ["printed form, must fail: other", "count (2)"]


@pytest.mark.parametrize("answer", [True, None])
def test_a_claim_that_returns_no_verdict_is_an_error(answer):
    finding = run_claim(made(lambda key: answer))
    assert not finding.holds
    assert "returns a Verdict" in finding.error


def test_a_claim_gets_its_arguments_by_name():
    def function(scale, rng, key):
        same = rng.integers(100) == numpy_rng(key).integers(100)
        return Verdict(
            equal("rng is seeded by key", bool(same), True), equal("scale", scale, "full")
        )

    assert run_claim(made(function), scale="full").holds
    assert run_claim(made(lambda: Verdict(equal("x", 1, 1)))).holds
    wrong = run_claim(made(lambda key, sample: Verdict(equal("x", 1, 1))))
    assert "this one takes sample" in wrong.error


def test_a_control_says_what_it_must_not_be():
    assert refuted(equal("x", 3, 4)).expected == "not 4"


def test_an_erratum_without_a_printed_form_is_an_error():
    finding = run_claim(made(lambda key: Verdict(equal("x", 1, 1)), kind="erratum"))
    assert "printed" in finding.error


def test_the_json_of_a_finding():
    def function(key):
        return Verdict(
            close("a", 1.0, 1.01, tolerance=0.1), within("b", np.float64(0.1), 0.0, error=0.1)
        )

    told = run_claim(made(function), seed=3).as_json()
    assert list(told) == [
        "ids",
        "title",
        "kind",
        "holds",
        "method",
        "measured",
        "expected",
        "tolerance",
        "seed",
        "seconds",
        "failed",
    ]
    assert told["holds"] is True
    assert told["seed"] == 3
    assert told["measured"] == {"a": 1.0, "b": 0.1}
    assert told["failed"] == []
    assert told["method"] == "closed form, statistical (false alarms 1e-5)"
    json.dumps(told)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: register("1.2-xor", title="again", kind="identity")(_documented), "claimed twice"),
        (lambda: register("1.9-x", title="x", kind="truth"), "kind is one of"),
        (
            lambda: register("1.9-x", title="x", kind="identity")(
                lambda key: Verdict(equal("x", 1, 1))
            ),
            "docstring",
        ),
        (
            lambda: register("1.9-x", title="x", kind="identity", of="models.MLP")(_documented),
            "tuple",
        ),
        (
            lambda: erratum("1.2-novikoff", title="x", printed="a", corrected="b")(_documented),
            "claimed twice",
        ),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_claim_that_is_not_well_formed_is_refused(wrong, says):
    find_claims()
    with pytest.raises(ValueError, match=says):
        wrong()


def _documented(key):
    """It is so."""
    return Verdict(equal("x", 1, 1))


def test_finding_claims():
    names = lambda *wanted: [claim.name for claim in find_claims(*wanted)]
    assert names("1.2-novikoff") == ["1.2-novikoff", "1.2-novikoff-erratum"]
    assert names("1.2-novikoff-erratum") == ["1.2-novikoff-erratum"]
    assert set(names("1.")) == set(names("1")) > set(names("1.2")) > set(names("1.2-cover"))
    assert names("3", "1.2-xor", "1.2-xor")[0] == names("1.2-xor")[0]
    assert not any(name.startswith(("10", "11", "12", "13")) for name in names("1"))
    of_course = [claim for claim in find_claims() if claim.chapter != "own"]
    assert sum(c.claims for c in coverage(find_claims())) == len(of_course)
    with pytest.raises(ValueError, match=r"did you mean 1\.2-novikoff"):
        find_claims("1.2-novikov")
    with pytest.raises(ValueError, match="thetax list claims"):
        find_claims("zzz")
    with pytest.raises(ValueError, match="No claim covers yet"):
        find_claims("11.")
    with pytest.raises(ValueError, match="got an empty string"):
        find_claims("")


def test_the_errata_page_lists_mistakes_before_slips():
    mistake, slip = find_claims("1.2-novikoff-erratum", "1.2-hesse-erratum")[::-1]
    assert (mistake.slip, slip.slip) == (False, True)
    lines = errata([slip, mistake, find_claims("1.2-xor")[0]]).splitlines()
    assert [line for line in lines if line.startswith(("## ", "#### "))] == [
        "## Mistakes",
        f"#### {mistake.title}",
        "## Slips",
        f"#### {slip.title}",
    ]
    assert [line[:17] for line in lines if line.startswith("- [")] == [
        "- [Mistakes](#mis",
        "- [Slips](#slips)",
    ]
    assert [line.split(", ")[1].split(":")[0] for line in lines if line.startswith("- [")] == [
        "1",
        "1",
    ]


def test_a_claim_of_ones_own():
    own = made(_holds, name="my-law")
    assert own.chapter == "own"
    assert own.position > find_claims("3")[-1].position
    assert run_claim(own).holds


def _holds(key):
    return Verdict(equal("x", 1, 1))


def _raises(key):
    raise RuntimeError("no data")


def _kills(key):
    os.kill(os.getpid(), signal.SIGKILL)


def _breaks_an_annotation(key):
    return Verdict(close("x", 1.0, 1.0, tolerance=1))


def _promotes_ranks(key):
    return Verdict(close("x", jnp.ones((2, 3)) + jnp.ones(3), 2.0, tolerance=0.1))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:os.fork")
def test_another_process_is_as_strict_as_this_one(tmp_path, monkeypatch):
    """Type annotations are checked in every process."""
    check_annotations(tmp_path, monkeypatch)
    chosen = [made(_breaks_an_annotation, name="1.2-sgn"), made(_promotes_ranks, name="1.2-xor")]
    for findings in (list(verify(chosen, jobs=1)), [run_claim(claim) for claim in chosen]):
        typed, ranked = sorted(findings, key=lambda finding: finding.claim.name)
        assert "Type-check error" in typed.error
        assert "rank_promotion" in ranked.error


@pytest.mark.filterwarnings("ignore:os.fork")
def test_several_processes_and_a_death_hide_nothing(tmp_path, monkeypatch):
    """One claim raises, one kills its process; both are named, and the others are found."""
    check_annotations(tmp_path, monkeypatch)
    functions = {
        "1.0-notation": _holds,
        "1.2-sgn": _kills,
        "1.2-xor": _raises,
        "2.6-relu": _holds,
        "1.2-span": _holds,
    }
    chosen = [made(function, name=name) for name, function in functions.items()]
    findings = {finding.claim.ids[0]: finding for finding in verify(chosen, jobs=2)}
    assert set(findings) == set(functions)
    assert findings.pop("1.2-sgn").error.startswith("The process of this claim died")
    assert "no data" in findings.pop("1.2-xor").error
    assert all(finding.holds for finding in findings.values())


def test_a_derivative_has_the_tolerance_of_finite_differences():
    near, far = (close_derivative("slope", 1.0, 1.0 + error) for error in (5e-9, 5e-8))
    assert near.holds
    assert not far.holds
    assert near.method == "finite differences"
    assert close_derivative("slope", 1.0, 1.0 + 5e-8, tolerance=1e-7).holds
    assert close_derivative("slope", 1e9, 1e9 + 1, relative=True).holds


def test_a_worker_forgets_compiled_programs_now_and_then(monkeypatch):
    verify_module = sys.modules["thetax.claims.engine.verify"]
    calls = []
    monkeypatch.setattr(verify_module, "CLAIMS_PER_CLEANUP", 3)
    monkeypatch.setattr(verify_module, "_claims_run", itertools.count(1))
    monkeypatch.setattr(verify_module.jax, "clear_caches", lambda: calls.append(None))
    claim = find_claims("1.2-xor")[0]
    finding = Finding(claim, None, "", 0, "quick", 0.0)
    monkeypatch.setattr(verify_module, "run_claim", lambda *args, **options: finding)
    for _ in range(7):
        verify_module._work(claim, 0, "quick")
    assert len(calls) == 2
