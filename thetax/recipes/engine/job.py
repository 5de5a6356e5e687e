"""A recipe is a function that trains a model on real data, with typed keyword arguments.

Its first argument is the `Job`: the folder of the run, the random key and the progress display. All
other arguments are options with a default, and the command line is built from the signature. A
recipe is called again to resume a run; finished fits are then read from the folder.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import PRNGKeyArray

from ...check import suggest
from ...train import Progress, Run
from .outcome import Outcome


class Job(NamedTuple):
    """The folder of a run, if it has one, the random key and the progress display."""

    run: Run | None
    key: PRNGKeyArray
    progress: Progress | None = None

    def part(self, name: str) -> Run | None:
        """The folder of one fit among several."""
        return None if self.run is None else self.run / name

    def cached(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The result of `compute`, saved as a JSON file of the run, and read from it on resume."""
        if self.run is None:
            return compute()
        if (self.run.folder / f"{name}.json").is_file():
            return self.run.read(f"{name}.json")
        result = compute()
        self.run.write(f"{name}.json", result)
        return result

    def note(self, text: str) -> None:
        """Shows a line in the progress display."""
        if self.progress is not None:
            self.progress.note(text)


Recipe = Callable[..., Outcome]  # recipe(job, *, options) -> outcome
RECIPES: dict[str, Recipe] = {}  # The recipes by the name of their command.


def recipe(function: Recipe) -> Recipe:
    """Registers a recipe under its name, with dashes for underscores."""
    RECIPES[function.__name__.strip("_").replace("_", "-")] = function
    return function


def find_recipe(name: str) -> Recipe:
    """The recipe of this name; raises `ValueError` with similar names if there is none.

    >>> find_recipe("digts")
    Traceback (most recent call last):
    ValueError: There is no recipe 'digts'; did you mean digits ...? Recipes: adding, ...
    """
    if name in RECIPES:
        return RECIPES[name]
    raise ValueError(
        f"There is no recipe {name!r}; {suggest(name, RECIPES)}Recipes: "
        f"{', '.join(sorted(RECIPES))}."
    )


def check_positive(**options: int | float) -> None:
    """Raises `ValueError` if an option is not more than zero."""
    for name, value in options.items():
        if not value > 0:
            raise ValueError(f"{name} must be more than 0; got {value}.")
