"""Looking at a trained model through every lens that applies, and writing down what was seen."""

import difflib
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
from ..layers import Affine, fold, has_batch_norm
from ..recipes.engine.outcome import TRAINING_STEPS, Outcome, lasted
from ..train.loop.fit import CALIBRATION
from .figure import render
from .lenses.regularisers import acting
from .page import Section, number, page
from .registry import LENSES, Lens, LensUnavailable, subsample

MAX_ERROR_LETTERS = 300  # characters of what a lens that failed has to say


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

    The page holds the outcome's table, a section for each lens that applies, and the `facts` of the
    run (as in `run.json`); it needs no network and follows the reader's light or dark setting. A
    lens that fails says so in its section and as a warning, and the others go on.
    `progress(title, done, total)` is called before each lens and at the end. The title is the
    recipe's name unless one is given. With words in `only`, lenses are taken in whose titles one of
    them occurs.
    """
    named = _named(only)
    folder = Path(folder)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    seen, trouble = _folded(outcome)
    chosen = [lens for lens in named if _applies(lens, seen)]
    sections = []
    for done, lens in enumerate(chosen):
        progress(lens.title, done, len(chosen))
        sections.append(_section(lens, seen, folder / "figures"))
    for text in trouble + [
        f"the lens {s.title!r} failed: {s.trouble}" for s in sections if s.trouble
    ]:
        warnings.warn(f"look: {text}", RuntimeWarning, stacklevel=2)
    path = folder / "report.html"
    facts = dict(facts or {})
    title = title or str(facts.get("recipe") or "A trained network")
    text = page(
        title=title, summary=_summary(outcome), table=outcome.table, facts=facts, sections=sections
    )
    disk.write(path, text)
    progress("report.html", len(chosen), len(chosen))
    return path


def _named(only: Sequence[str]) -> list[Lens]:
    """The lenses of these words, all if there are none; refuses a word that is in no title."""
    for word in only:
        if not any(word.lower() in lens.title.lower() for lens in LENSES):
            near = difflib.get_close_matches(word, [lens.title for lens in LENSES], n=1, cutoff=0.0)
            raise ValueError(
                f"look: only={word!r} is in no lens's title; the nearest is {near[0]!r}."
            )
    return [
        lens
        for lens in LENSES
        if not only or any(word.lower() in lens.title.lower() for word in only)
    ]


def _folded(outcome: Outcome) -> tuple[Outcome, list[str]]:
    """The outcome on the device, with its batch norms as the affine maps they are on training
    inputs.
    """
    train, test = (jax.tree.map(jnp.asarray, data) for data in (outcome.train, outcome.test))
    outcome = replace(outcome, train=train, test=test)
    if not has_batch_norm(outcome.model):
        return outcome, []
    try:
        known = subsample(outcome.train, CALIBRATION)[0]
        start = fold(outcome.start, known) if outcome.start is not None else None
        return replace(outcome, model=fold(outcome.model, known), start=start), []
    except Exception as trouble:
        return outcome, [
            f"the batch norms could not be folded ({trouble}); the model is seen as it is on "
            "batches"
        ]


def _applies(lens: Lens, outcome: Outcome) -> bool:
    try:
        return lens.applies(outcome)
    except Exception:
        return True  # then it fails where the reader sees why


def _section(lens: Lens, outcome: Outcome, figures: Path) -> Section:
    name = re.sub(r"[^a-z0-9]+", "-", lens.title.lower()).strip("-")
    section = Section(name, lens.title, lens.says)
    try:
        result = lens.compute(outcome)
        section = replace(section, told=lens.tells(result), rows=lens.rows(result))
        svg, png = render(result, name, escape(lens.title))
        disk.write(figures / f"{name}.png", png)
        return replace(section, figure=svg)
    except LensUnavailable as reason:
        return replace(section, told={"not shown": str(reason)})
    except Exception as trouble:  # one lens must not lose the report
        return replace(section, trouble=_sentence(trouble))


def _sentence(trouble: Exception) -> str:
    """What went wrong, in a line, however much an error has to say."""
    first = str(trouble).strip().partition("\n")[0]
    return textwrap.shorten(
        f"{type(trouble).__name__}: {first}", MAX_ERROR_LETTERS, placeholder=" …"
    )


def _summary(outcome: Outcome) -> dict[str, str]:
    """What a reader wants to know before anything else."""
    sizes = outcome.sizes or [
        len(jax.tree.leaves(data)[0]) for data in (outcome.train, outcome.test)
    ]
    own = list(outcome.table.values())[-1] if outcome.table else {}  # the model's row is the last
    told = {name: number(value) for name, value in list(own.items())[:3]}
    told |= {"parameters": f"{tree.size(outcome.model):,}", "training examples": f"{sizes[0]:,}"}
    told |= {"test examples": f"{sizes[1]:,}"}
    told |= {"batch norms": "seen as affine maps"} if _normalised(outcome.model) else {}
    told |= {"held back by": acting(outcome)} if acting(outcome) else {}
    told |= {TRAINING_STEPS: lasted(outcome.seconds)} if outcome.seconds else {}
    return told | ({"ended": outcome.reason} if outcome.reason else {})


def _normalised(model: Any) -> bool:
    """Whether it has batch norms, or the affine maps that these are once they are folded."""
    affine = lambda node: isinstance(node, Affine)
    return has_batch_norm(model) or any(map(affine, jax.tree.leaves(model, is_leaf=affine)))
