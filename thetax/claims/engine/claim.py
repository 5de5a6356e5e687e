r"""A claim: a statement of the course that runs.

    @claim("1.2-novikoff", title="Novikoff's bound", kind="theorem", of=("models.fit_perceptron",),
    cites="...") def novikoff(key, scale):
        r'''Data with margin $\gamma$ in a ball of radius $R$: at most
        $\lfloor R^2 / \gamma^2 \rfloor$ mistakes.'''
        ...
        return Verdict(at_most("mistakes", mistakes, bound), assumed=("no bias",), figure=...)

The docstring is the statement, in words and formula. The function is given a key, and the scale,
"quick" or "full", if it asks for it; it runs in double precision. What it returns was checked, not
proved. An `erratum` shows that a printed form fails and the corrected one holds, by the same
checks. It is a mistake, a formula or statement that does not hold, or a slip: of wording, an index
or a symbol, with the lines around it right.
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
from .course import chapter_of, place, rows

Scale = Literal["quick", "full"]
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
    """What came of a claim: it holds if every check does, its checked assumptions included.

    Of an erratum, every `printed` check must fail and the others, the corrected form, must hold.

    >>> from thetax.claims import equal
    >>> Verdict(equal("two", 1 + 1, 2), assumed=("the integers",)).holds
    True
    >>> Verdict(equal("two", 1 + 1, 2), printed=[equal("printed", 1 + 1, 2)]).holds
    False
    """

    checks: tuple[Check, ...]
    assumptions: tuple[Check, ...]  # what the statement assumes, and was checked
    assumed: tuple[str, ...]  # what it assumes, and was not
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
        """Whether the statement was seen to hold."""
        right = all(check.holds for check in (*self.checks, *self.assumptions))
        return right and not any(check.holds or not is_known(check) for check in self.printed)


@dataclass(frozen=True)
class Claim:
    """A statement, the rows of the course it settles, and the function that checks it."""

    ids: tuple[str, ...]
    title: str
    kind: Kind
    statement: str
    function: Callable[..., Verdict]
    of: tuple[str, ...] = ()  # the public names it uses and is about, as in "models.Perceptron"
    cites: str = ""
    printed: str = ""  # an erratum's two formulas
    corrected: str = ""
    data: tuple[str, ...] = ()  # the datasets it needs, which may have to be fetched
    slip: bool = False  # an erratum of wording, an index or a symbol, not a mistake

    @property
    def name(self) -> str:
        """What a link to it is called: its first row, and whether it is an erratum."""
        return self.ids[0] + ("-erratum" if self.kind == "erratum" else "")

    @property
    def chapter(self) -> str:
        """The chapter of its first row."""
        return chapter_of(self.ids[0])

    @property
    def place(self) -> tuple[int, bool]:
        """Where it stands in the course; an erratum comes after the statement it corrects."""
        return place(self.ids[0]), self.kind == "erratum"


CHAPTER_FOLDERS = (
    "ch01_connectionism",
    "ch02_feedforward",
    "ch03_gradients",
    "ch04_convolution",
    "ch05_recurrence",
    "ch06_transformers",
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
    """The chapters are imported when a claim is first looked for: they bring every library a claim
    compares with.
    """
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
    """Registers a function of a key, and perhaps a scale, as the check of these rows.

    `of` names what of the library it is about: public names that the function, or a helper of it,
    uses. `data` names the datasets it loads; where one cannot be had the claim is left unchecked,
    not failed.
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
    """Registers a function that shows a printed form to fail and the corrected one to hold; both
    are LaTeX.

    With `slip`, it is of wording, an index or a symbol, and the lines around it are right.
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
        raise ValueError(f"A claim takes a tuple of names; got the string {names!r}.")
    return tuple(names)


def _statement(function: Callable[..., Verdict]) -> str:
    statement = inspect.getdoc(function)
    if not statement:
        raise ValueError(f"claim {function.__name__}: its docstring is its statement; write one.")
    return statement


def _register(claim: Claim) -> Callable[..., Verdict]:
    wrong = claim.kind == "erratum"
    for other in _claims.values():
        if (other.kind == "erratum") == wrong and (both := set(claim.ids) & set(other.ids)):
            raise ValueError(
                f"{sorted(both)[0]} is settled twice, by {other.title!r} and {claim.title!r}."
            )
    _claims[claim.name] = claim
    return claim.function


def find_claims(*wanted: str) -> list[Claim]:
    """The claims of these rows, links or beginnings of rows, in the order of the course; all
    without any.

    >>> [claim.name for claim in find_claims("1.2-novikoff")]
    ['1.2-novikoff', '1.2-novikoff-erratum']
    >>> find_claims("1.2-novikov")
    Traceback (most recent call last):
    ValueError: There is no claim '1.2-novikov'; did you mean 1.2-novikoff or ...
    """
    _load()
    if not all(wanted):
        raise ValueError(
            "A claim is named by its row, or how it begins, such as 1.2-novikoff or 1.2; got "
            "nothing."
        )
    chosen = {name for want in wanted for name in _matching(want)} if wanted else set(_claims)
    return sorted((_claims[name] for name in chosen), key=lambda claim: claim.place)


def _matching(want: str) -> list[str]:
    exact = [name for name, claim in _claims.items() if want == name or want in claim.ids]
    found = exact or [
        name for name, claim in _claims.items() if any(_begins(row, want) for row in claim.ids)
    ]
    if found:
        return found
    if ahead := [row for row in rows() if _begins(row, want)]:
        raise ValueError(
            f"None of the {len(ahead)} statements that begin like {want!r} is claimed yet."
        )
    known = sorted({row for claim in _claims.values() for row in claim.ids})
    near = difflib.get_close_matches(want, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "see thetax list claims."
    raise ValueError(f"There is no claim {want!r}; {hint}")


def _begins(row: str, want: str) -> bool:
    """Whether the row lies in a chapter ("1"), a section ("1.2") or begins like this ("1.2-cov").

    >>> _begins("10.1-x", "1"), _begins("1.2-novikoff", "1"), _begins("1.2-novikoff", "1.")
    (False, True, True)
    """
    whole = re.fullmatch(r"L?\d+(\.\d+)?", want)
    return row.startswith(want) and (not whole or not row[len(want) :][:1].isdigit())
