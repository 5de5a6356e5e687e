"""A run opened again: its recipe, called with the options and the seed that it was begun with."""

import inspect
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import jax.random as jr

from ...train import Progress, Run
from .job import Job, find_recipe
from .outcome import Outcome


def reopen(run: Run, progress: Progress | None) -> Outcome:
    """What came of a run. With `look_only` nothing is trained: a fit answers with the newest
    weights it finds.
    """
    about = trained(run).described
    arguments = typed(about["recipe"], about["arguments"])
    return find_recipe(about["recipe"])(Job(run, jr.key(about["seed"]), progress), **arguments)


def trained(run: Run) -> Run:
    """The run of a recipe; the folder of a search is another thing."""
    if (run.folder / "study.log").exists():
        raise ValueError(
            f"{run.folder} is a search: go on with thetax tune --resume, and read its report.html."
        )
    return run


def typed(recipe: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """JSON has no tuples; a recipe's options have."""
    known = inspect.signature(find_recipe(recipe)).parameters
    if odd := sorted(set(arguments) - set(known)):
        raise ValueError(f"The recipe {recipe} has no option {odd[0]!r} any more; begin a new run.")
    kinds = get_type_hints(find_recipe(recipe))
    given = {}
    for name, value in arguments.items():
        given[name] = tuple(value) if isinstance(value, list) else value
        if not _is_a(given[name], kinds[name]):
            raise ValueError(
                f"The option {name} of the recipe {recipe} cannot be {value!r}; correct run.json."
            )
    return given


def _is_a(value: Any, kind: Any) -> bool:
    """Whether a value is of the annotated type of an option: a number, text, a choice, a tuple of
    one type, or None.
    """
    origin = get_origin(kind)
    inside = get_args(kind)
    if origin is Literal:
        return value in inside
    if origin in (Union, UnionType):
        return any(_is_a(value, one) for one in inside)
    if origin is tuple:
        return isinstance(value, tuple) and all(_is_a(item, inside[0]) for item in value)
    number = (int, float) if kind is float else kind
    return isinstance(value, number) and (kind is bool or not isinstance(value, bool))


def begin(job: Job, settings: dict[str, Any]) -> None:
    """Says in the folder of a job without a fit that it is under way, so that it can be resumed."""
    if job.run is not None and not job.run.look_only:
        job.run.agree(settings)
        job.run.write("fit.json", settings)


def finish(job: Job, reason: str) -> None:
    """Says there that it has ended."""
    if job.run is not None and not job.run.look_only:
        job.run.write("done.json", {"reason": reason})
