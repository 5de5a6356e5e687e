"""`look` writes the report of a trained model: one section for each lens that applies."""

import re
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from .. import files as disk
from .. import tree
from ..check import suggest
from ..layers import Affine, fold_batch_norm, has_batch_norm
from ..recipes.engine.outcome import TRAINING_STEPS, Outcome, format_seconds
from ..train.loop.fit import CALIBRATION
from .figure import render
from .lenses.regularisers import describe_regularisation
from .page import Section, format_number, page
from .registry import LENSES, Lens, LensUnavailable, subsample

MAX_SUMMARY_RESULTS = 3  # numbers of the results table that the header shows
MAX_ERROR_LENGTH = 300  # characters of an error message on the page


def look(
    outcome: Outcome,
    folder: str | Path,
    *,
    title: str = "",
    only: Sequence[str] = (),
    facts: Mapping[str, Any] | None = None,
    progress: Callable[[str, int, int], None] = lambda title, done, total: None,
) -> Path:
    """Writes `report.html` and `figures/*.png` into the folder, and returns the path of the page.

    The page contains the outcome's table, a section for each lens that applies, and the `facts` of
    the run (as in `run.json`). It is one file, can be read offline, and follows the light or dark
    setting of the browser. If a lens fails, its section shows the error, a warning is issued, and
    the other lenses still run. `progress(title, done, total)` is called before each lens and at the
    end. `title` is the heading of the page, by default the name of the recipe. With `only`, only
    lenses whose title contains one of these words are run.
    """
    candidates = _select_lenses(only)
    folder = Path(folder)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    folded, messages = _fold_batch_norms(outcome)
    lenses = [lens for lens in candidates if _applies(lens, folded)]
    sections = []
    for done, lens in enumerate(lenses):
        progress(lens.title, done, len(lenses))
        sections.append(_section(lens, folded, folder / "figures"))
    messages += [f"the lens {s.title!r} failed: {s.error}" for s in sections if s.error]
    for message in messages:
        warnings.warn(f"look: {message}", RuntimeWarning, stacklevel=2)
    path = folder / "report.html"
    facts = dict(facts or {})
    title = title or str(facts.get("recipe") or "Trained model")
    table = {} if _fits_in_summary(outcome) else outcome.table
    text = page(title=title, summary=_summary(outcome), table=table, facts=facts, sections=sections)
    disk.write(path, text)
    progress("report.html", len(lenses), len(lenses))
    return path


def _select_lenses(only: Sequence[str]) -> list[Lens]:
    """The lenses whose title contains one of the words, or all lenses if no word is given."""
    for word in only:
        if not any(word.lower() in lens.title.lower() for lens in LENSES):
            words = {part for lens in LENSES for part in re.findall(r"\w+", lens.title.lower())}
            raise ValueError(
                f"look: only: no lens has a title that contains {word!r}; "
                f"{suggest(word, sorted(words), n=1)}the titles are: "
                f"{'; '.join(lens.title for lens in LENSES)}."
            )
    return [
        lens
        for lens in LENSES
        if not only or any(word.lower() in lens.title.lower() for word in only)
    ]


def _fold_batch_norms(outcome: Outcome) -> tuple[Outcome, list[str]]:
    """The outcome with its arrays on the device and its batch norms replaced by the affine maps
    that they are on training inputs; and error messages.
    """
    train, test = (jax.tree.map(jnp.asarray, data) for data in (outcome.train, outcome.test))
    outcome = replace(outcome, train=train, test=test)
    if not has_batch_norm(outcome.model):
        return outcome, []
    try:
        xs = subsample(outcome.train, CALIBRATION)[0]
        start = fold_batch_norm(outcome.start, xs) if outcome.start is not None else None
        return replace(outcome, model=fold_batch_norm(outcome.model, xs), start=start), []
    except Exception as error:
        return outcome, [
            f"the batch norms could not be folded ({error}); the lenses use batch statistics"
        ]


def _applies(lens: Lens, outcome: Outcome) -> bool:
    try:
        return lens.applies(outcome)
    except Exception:
        return True  # so that it fails in its section, where the page shows the error


def _section(lens: Lens, outcome: Outcome, figures: Path) -> Section:
    slug = re.sub(r"[^a-z0-9]+", "-", lens.title.lower()).strip("-")
    section = Section(slug, lens.title, lens.description)
    try:
        result = lens.compute(outcome)
        section = replace(section, metrics=lens.metrics(result), rows=lens.rows(result))
        svg, png = render(result, slug, escape(lens.title))
        disk.write(figures / f"{slug}.png", png)
        return replace(section, figure=svg)
    except LensUnavailable as reason:
        return replace(section, metrics={"not shown": str(reason)})
    except Exception as error:  # the other lenses still run
        return replace(section, error=_one_line(error))


def _one_line(error: Exception) -> str:
    """Type and first line of an error, shortened."""
    first = str(error).strip().partition("\n")[0]
    return textwrap.shorten(f"{type(error).__name__}: {first}", MAX_ERROR_LENGTH, placeholder=" …")


def _summary(outcome: Outcome) -> dict[str, str]:
    """The numbers in the header of the page."""
    sizes = outcome.sizes or [
        len(jax.tree.leaves(data)[0]) for data in (outcome.train, outcome.test)
    ]
    own = list(outcome.table.values())[-1] if outcome.table else {}  # the last row is the model's
    summary = {"model": next(iter(outcome.table))} if _fits_in_summary(outcome) else {}
    summary |= dict(
        _with_unit(name, value) for name, value in list(own.items())[:MAX_SUMMARY_RESULTS]
    )
    summary |= {"parameters": f"{tree.size(outcome.model):,}", "training examples": f"{sizes[0]:,}"}
    summary |= {"test examples": f"{sizes[1]:,}"}
    summary |= {"batch norm": "folded into affine maps"} if _has_batch_norm(outcome.model) else {}
    summary |= {TRAINING_STEPS: format_seconds(outcome.seconds)} if outcome.seconds else {}
    regularisation = describe_regularisation(outcome)
    summary |= {"regularisation": regularisation} if regularisation else {}
    return summary | ({"end of run": outcome.reason} if outcome.reason else {})


def _fits_in_summary(outcome: Outcome) -> bool:
    """Whether the results are a single row of which the summary shows every number."""
    return len(outcome.table) == 1 and len(*outcome.table.values()) <= MAX_SUMMARY_RESULTS


def _with_unit(name: str, value: float) -> tuple[str, str]:
    """A column of the results table as a label and a value; a percent sign moves to the value.

    >>> _with_unit("test error %", 2.228), _with_unit("test loss", 0.25)
    (('test error', '2.228 %'), ('test loss', '0.2500'))
    """
    number = format_number(value)
    return (name[:-2], f"{number} %") if name.endswith(" %") else (name, number)


def _has_batch_norm(model: Any) -> bool:
    """Whether the model has batch norms, folded or not."""
    is_affine = lambda node: isinstance(node, Affine)
    return has_batch_norm(model) or any(map(is_affine, jax.tree.leaves(model, is_leaf=is_affine)))
