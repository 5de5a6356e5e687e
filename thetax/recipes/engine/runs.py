"""Runs of recipes: calls the recipe with the options of its run, and saves the outcome."""

import inspect
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import jax.random as jr

from ...train import Progress, Run
from .job import Job, find_recipe
from .outcome import Outcome, save_outcome


def execute(run: Run, progress: Progress | None = None) -> Outcome:
    """Calls the recipe of a run with the options and the seed in `run.json`, and saves the outcome.

    An interrupted run is resumed; finished fits are read from the folder.
    """
    description = expect_recipe_run(run).description
    options = parse_options(description["recipe"], description["arguments"])
    job = Job(run, jr.key(description["seed"]), progress)
    outcome = find_recipe(description["recipe"])(job, **options)
    save_outcome(run.folder, outcome)
    return outcome


def expect_recipe_run(run: Run) -> Run:
    """The run; raises `ValueError` if it is a study of `thetax tune`."""
    if (run.folder / "study.log").exists():
        raise ValueError(
            f"{run.folder} is a study of thetax tune; resume it with: thetax tune --resume "
            f"{run.folder} (its report is {run.folder / 'report.html'})."
        )
    return run


def parse_options(recipe: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The options of a recipe from JSON, with tuples for lists; checks names and types."""
    function = find_recipe(recipe)
    parameters = inspect.signature(function).parameters
    if unknown := sorted(set(arguments) - set(parameters)):
        raise ValueError(f"The recipe {recipe} has no option {unknown[0]!r}; begin a new run.")
    types = get_type_hints(function)
    options = {}
    for name, value in arguments.items():
        options[name] = tuple(value) if isinstance(value, list) else value
        if not _has_type(options[name], types[name]):
            raise ValueError(
                f"The option {name} of the recipe {recipe} cannot be {value!r}; correct run.json."
            )
    return options


def _has_type(value: Any, annotation: Any) -> bool:
    """Whether a value has the annotated type of an option: a number, a string, a literal, a tuple
    of one type, or None.
    """
    origin = get_origin(annotation)
    parts = get_args(annotation)
    if origin is Literal:
        return value in parts
    if origin in (Union, UnionType):
        return any(_has_type(value, part) for part in parts)
    if origin is tuple:
        return isinstance(value, tuple) and all(_has_type(item, parts[0]) for item in value)
    expected = (int, float) if annotation is float else annotation
    return isinstance(value, expected) and (annotation is bool or not isinstance(value, bool))


def begin(job: Job, settings: dict[str, Any]) -> None:
    """Marks a job without a fit as begun, so that it can be resumed."""
    if job.run is not None:
        job.run.check_settings(settings)
        job.run.write("fit.json", settings)


def finish(job: Job, reason: str) -> None:
    """Marks a job without a fit as finished."""
    if job.run is not None:
        job.run.write("done.json", {"reason": reason})
