"""A recipe is a function with typed keyword arguments that does a whole job on real data.

Its first argument is the `Job`: where to keep the work, the chance to use, and who watches.
Everything else is an option, with a default, and the command line is built from the signature. A
recipe is called again to resume and again to be looked at; its fits then take from the folder what
is already done.
"""

import difflib
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import PRNGKeyArray

from ...train import Progress, Run
from .outcome import Outcome


class Job(NamedTuple):
    """What every recipe is given."""

    run: Run | None
    key: PRNGKeyArray
    progress: Progress | None = None

    def part(self, name: str) -> Run | None:
        """The folder of one fit among several."""
        return None if self.run is None else self.run / name

    def remember(self, name: str, find: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Numbers that take long to find, as a file of the run: found once, and read when the run
        is looked at.
        """
        if self.run is None:
            return find()
        if (self.run.folder / f"{name}.json").is_file():
            return self.run.read(f"{name}.json")
        found = find()
        if not self.run.look_only:  # the weights of a fit under way are not the last ones
            self.run.write(f"{name}.json", found)
        return found

    def say(self, text: str) -> None:
        """Tells the watcher what comes next."""
        if self.progress is not None:
            self.progress.note(text)


Recipe = Callable[..., Outcome]  # recipe(job, *, options) -> outcome
RECIPES: dict[str, Recipe] = {}


def recipe(function: Recipe) -> Recipe:
    """Registers a recipe under its name, underscores as dashes."""
    RECIPES[function.__name__.strip("_").replace("_", "-")] = function
    return function


def find_recipe(name: str) -> Recipe:
    """The recipe of that name, or a `ValueError` with the nearest names.

    >>> find_recipe("digts")
    Traceback (most recent call last):
    ValueError: There is no recipe 'digts'; did you mean digits ...? Known: adding, ...
    """
    if name in RECIPES:
        return RECIPES[name]
    near = difflib.get_close_matches(name, RECIPES, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise ValueError(f"There is no recipe {name!r}; {hint}Known: {', '.join(sorted(RECIPES))}.")


def positive(**options: int | float) -> None:
    """Refuses options that must be more than zero, by name."""
    for name, value in options.items():
        if not value > 0:
            raise ValueError(f"{name} must be more than 0; got {value}.")
