r"""A claim: a statement of the course that runs.

    @claim(
        "1.2-novikoff",
        title="Novikoff's bound",
        kind="theorem",
        of=("models.fit_perceptron",),
        cites="...",
    )
    def novikoff(rng):
        r'''Data with margin $\gamma$ in a ball of radius $R$: at most
        $\lfloor R^2 / \gamma^2 \rfloor$ mistakes.'''
        ...
        return Verdict(at_most("mistakes", mistakes, bound), assumed=("no bias",), figure=...)

The docstring is the statement, in words and formula. The function takes any of three arguments by
name: `key`, a JAX random key; `rng`, a NumPy random generator seeded by that key; `scale`, "quick"
or "full". It runs in double precision. A claim is checked, not proved.

An `erratum` shows that a printed form fails and that the corrected form passes the same checks. It
is a mistake (a formula or statement that does not hold) or, with `slip=True`, a misprint in the
wording, an index or a symbol, where the lines around it are right.
"""

import difflib
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Literal, get_args

from .check import Check, is_known
from .course import chapter_of, position, rows

Scale = Literal["quick", "full"]  # How much a claim computes.
Kind = Literal[
    "definition",
    "identity",
    "theorem",
    "algorithm",
    "model",
    "layer",
    "loss",
    "experiment",
    "figure",
    "exercise",
    "erratum",
]


@dataclass(frozen=True, init=False)
class Verdict:
    """The checks of one run of a claim: it holds if every check and every checked assumption does.

    For an erratum, every `printed` check must fail and all others, the corrected form, must hold.

    >>> from thetax.claims import equal
    >>> Verdict(equal("two", 1 + 1, 2), assumed=("the integers",)).holds
    True
    >>> Verdict(equal("two", 1 + 1, 2), printed=[equal("printed", 1 + 1, 2)]).holds
    False
    """

    checks: tuple[Check, ...]
    assumptions: tuple[Check, ...]  # assumptions of the statement that were checked
    assumed: tuple[str, ...]  # assumptions that were not checked
    printed: tuple[Check, ...]
    figure: Any  # a result that `thetax.plot.draw` draws

    def __init__(
        self,
        *checks: Check,
        assumptions: Sequence[Check] = (),
        assumed: Sequence[str] = (),
        printed: Sequence[Check] = (),
        figure: Any = None,
    ):
        if not checks:
            raise ValueError("Verdict: a claim without a check cannot fail; give at least one.")
        if isinstance(assumed, str):
            raise ValueError("Verdict: assumed is a tuple of sentences.")
        set_field = lambda name, value: object.__setattr__(self, name, value)
        set_field("checks", checks)
        set_field("assumptions", tuple(assumptions))
        set_field("assumed", tuple(assumed))
        set_field("printed", tuple(printed))
        set_field("figure", figure)

    @property
    def holds(self) -> bool:
        """Whether the statement holds."""
        right = all(check.holds for check in (*self.checks, *self.assumptions))
        return right and not any(check.holds or not is_known(check) for check in self.printed)


@dataclass(frozen=True)
class Claim:
    """A statement, the rows of the course it covers, and the function that checks it."""

    ids: tuple[str, ...]
    title: str
    kind: Kind
    statement: str
    function: Callable[..., Verdict]
    of: tuple[str, ...] = ()  # the public names it checks, such as "models.Perceptron"
    cites: str = ""
    printed: str = ""  # an erratum's two formulas
    corrected: str = ""
    data: tuple[str, ...] = ()  # the datasets it needs, which may have to be downloaded
    slip: bool = False  # an erratum in wording, an index or a symbol only

    @property
    def name(self) -> str:
        """Its first row, with the suffix `-erratum` for an erratum."""
        return self.ids[0] + ("-erratum" if self.kind == "erratum" else "")

    @property
    def chapter(self) -> str:
        """The chapter of its first row."""
        return chapter_of(self.ids[0])

    @property
    def position(self) -> tuple[int, bool]:
        """Its position in the course; an erratum comes after the statement it corrects."""
        return position(self.ids[0]), self.kind == "erratum"


CHAPTER_FOLDERS = (
    "ch01_connectionism",
    "ch02_feedforward",
    "ch03_gradients",
    "ch04_convolution",
    "ch05_recurrence",
    "ch06_transformers",
    "ch07_sets_and_graphs",
    "ch08_tricks",
    "ch09_tangent",
    "ch10_bayesian",
    "ch13_adversarial",
    "lecture_01",
    "lecture_10",
)
_claims: dict[str, Claim] = {}


@cache
def _load() -> None:
    """Imports the chapters on the first lookup, since they import the libraries compared with."""
    for folder in CHAPTER_FOLDERS:
        import_module(f"thetax.claims.{folder}")


def claim(
    *ids: str,
    title: str,
    kind: Kind,
    of: Sequence[str] = (),
    cites: str = "",
    data: Sequence[str] = (),
) -> Callable[[Callable[..., Verdict]], Callable[..., Verdict]]:
    """Registers a function as the check of these rows of the course.

    `of` lists the public names that the claim is about; the function or one of its helpers must use
    them. `data` lists the datasets it loads; if one is unavailable the claim is reported as not
    checked rather than failed.
    """
    if kind == "erratum" or kind not in get_args(Kind):
        raise ValueError(
            f"claim {ids}: kind is one of {', '.join(get_args(Kind)[:-1])}; got {kind!r}."
        )
    return lambda function: _register(
        Claim(
            ids, title, kind, _statement(function), function, _names(of), cites, data=_names(data)
        )
    )


def erratum(
    *ids: str,
    title: str,
    printed: str,
    corrected: str,
    of: Sequence[str] = (),
    cites: str = "",
    slip: bool = False,
) -> Callable[[Callable[..., Verdict]], Callable[..., Verdict]]:
    """Registers a function that shows that a printed form fails and the corrected form holds.

    `printed` and `corrected` are LaTeX. With `slip`, the erratum concerns only wording, an index or
    a symbol, and the lines around it are right.
    """
    return lambda function: _register(
        Claim(
            ids,
            title,
            "erratum",
            _statement(function),
            function,
            _names(of),
            cites,
            printed,
            corrected,
            slip=slip,
        )
    )


def _names(names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise ValueError(f"claim: expected a tuple of names; got the string {names!r}.")
    return tuple(names)


def _statement(function: Callable[..., Verdict]) -> str:
    statement = inspect.getdoc(function)
    if not statement:
        raise ValueError(
            f"claim {function.__name__}: the docstring is the statement of a claim; add one."
        )
    return statement


def _register(claim: Claim) -> Callable[..., Verdict]:
    wrong = claim.kind == "erratum"
    for other in _claims.values():
        if (other.kind == "erratum") == wrong and (both := set(claim.ids) & set(other.ids)):
            raise ValueError(
                f"{sorted(both)[0]} is claimed twice, by {other.title!r} and {claim.title!r}."
            )
    _claims[claim.name] = claim
    return claim.function


def find_claims(*prefixes: str) -> list[Claim]:
    """The claims whose rows or names equal or start with one of `prefixes`, in course order.

    Without prefixes, all claims.

    >>> [claim.name for claim in find_claims("1.2-novikoff")]
    ['1.2-novikoff', '1.2-novikoff-erratum']
    >>> find_claims("1.2-novikov")
    Traceback (most recent call last):
    ValueError: There is no claim '1.2-novikov'; did you mean 1.2-novikoff or ...
    """
    _load()
    if not all(prefixes):
        raise ValueError(
            "find_claims: expected the name of a row or its beginning, such as 1.2-novikoff or "
            "1.2; got an empty string."
        )
    names = {name for prefix in prefixes for name in _matching(prefix)} or set(_claims)
    return sorted((_claims[name] for name in names), key=lambda claim: claim.position)


def _matching(prefix: str) -> list[str]:
    exact = [name for name, claim in _claims.items() if prefix == name or prefix in claim.ids]
    matches = exact or [
        name for name, claim in _claims.items() if any(_begins(row, prefix) for row in claim.ids)
    ]
    if matches:
        return matches
    if unclaimed := [row for row in rows() if _begins(row, prefix)]:
        raise ValueError(f"No claim covers yet the {len(unclaimed)} statements {prefix!r}.")
    known = sorted({row for claim in _claims.values() for row in claim.ids})
    near = difflib.get_close_matches(prefix, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "see thetax list claims."
    raise ValueError(f"There is no claim {prefix!r}; {hint}")


def _begins(row: str, prefix: str) -> bool:
    """Whether the row is in chapter `prefix` ("1") or section ("1.2"), or starts with the text.

    >>> _begins("10.1-x", "1"), _begins("1.2-novikoff", "1"), _begins("1.2-novikoff", "1.")
    (False, True, True)
    """
    is_number = re.fullmatch(r"L?\d+(\.\d+)?", prefix)
    return row.startswith(prefix) and (not is_number or not row[len(prefix) :][:1].isdigit())
