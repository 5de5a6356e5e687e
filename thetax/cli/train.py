"""`thetax train` and `thetax look`: a recipe run, resumed and looked at."""

import inspect
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cyclopts
import jax.random as jr
from rich.table import Table

from ..recipes import RECIPES, Job, Outcome, find_recipe
from ..recipes.engine.outcome import TRAINING_STEPS, lasted
from ..recipes.engine.reopen import reopen, trained, typed
from ..train import JsonLines, Run, watch
from .app import INTERRUPTED, app, err, out, print_json
from .interrupt import interrupts

train_app = cyclopts.App(name="train", help="Train a model by a recipe, or resume a run.")
app.command(train_app)


def _train(
    recipe: str, arguments: dict[str, Any], *, seed: int, folder: Path, as_json: bool
) -> int:
    function = find_recipe(recipe)
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must lie between 0 and 2^63; got {seed}.")
    run = Run.begin(folder, recipe=recipe, arguments=arguments, seed=seed)
    began = time.monotonic()
    try:
        outcome = function(Job(run, jr.key(seed), JsonLines() if as_json else watch()), **arguments)
    except KeyboardInterrupt:
        interrupts.acknowledge()
        if as_json:
            print_json({"event": "interrupted", "run": str(folder)})
        err.print(f"interrupted; go on with: thetax train --resume {folder}", soft_wrap=True)
        return INTERRUPTED
    seconds = time.monotonic() - began
    if as_json:
        spent = {"seconds": seconds, "training seconds": outcome.seconds}
        print_json({"event": "done", "run": str(folder), "table": outcome.table, **spent})
    else:
        _show(outcome)
        steps = f"{TRAINING_STEPS} took {lasted(outcome.seconds)}, " if outcome.seconds else ""
        out.print(
            f"{outcome.reason}; {steps}the whole command {lasted(seconds)}; kept in {folder}",
            soft_wrap=True,
        )
        out.print(f"look at it with: thetax look {folder}", soft_wrap=True)
    return 0


def _show(outcome: Outcome) -> None:
    columns = list(dict.fromkeys(name for row in outcome.table.values() for name in row))
    table = Table("", *columns)
    for method, row in outcome.table.items():
        table.add_row(method, *(_number(row[name]) if name in row else "" for name in columns))
    out.print(table)


def _number(value: float) -> str:
    """Two places after the point, or two digits where these would say little.

    >>> _number(12.345), _number(0.0), _number(0.00031)
    ('12.35', '0.00', '0.00031')
    """
    return f"{value:.2f}" if value == 0 or 0.1 <= abs(value) < 1e6 else f"{value:.2g}"


@train_app.default
def train(recipe: str | None = None, /, *, resume: Path | None = None, json: bool = False) -> int:
    """Train a model by a recipe (`thetax train RECIPE --help` lists its options), or resume a run.

    Parameters
    ----------
    recipe
        One of `thetax list recipes`.
    resume
        The folder of a run that was interrupted; it goes on as it was begun.
    json
        One JSON object a line instead of a bar.
    """
    if resume is not None:
        return _resume(resume, as_json=json)
    if recipe is not None:
        find_recipe(recipe)
    raise ValueError(
        f"Which recipe? thetax train RECIPE, with one of: {', '.join(sorted(RECIPES))}."
    )


def _resume(folder: Path, *, as_json: bool, recipe: str | None = None) -> int:
    about = trained(Run.open(folder)).described
    if recipe not in (None, about["recipe"]):
        raise ValueError(f"{folder} is a run of {about['recipe']}, not of {recipe}.")
    arguments = typed(about["recipe"], about["arguments"])
    return _train(about["recipe"], arguments, seed=about["seed"], folder=folder, as_json=as_json)


def _common(
    *, seed: int = 0, out: Path | None = None, resume: Path | None = None, json: bool = False
) -> None:
    """
    seed
        The one source of chance.
    out
        The folder of the run; by default a new one under runs/.
    resume
        The folder of a run that was interrupted; it goes on as it was begun.
    json
        One JSON object a line instead of a bar.
    """


def _command(name: str, function: Callable[..., Outcome]) -> Callable[..., int]:
    """The subcommand of a recipe: its own options, and those that every training has."""
    own = [p for p in inspect.signature(function).parameters.values() if p.name != "job"]
    common = list(inspect.signature(_common).parameters.values())

    def command(**given: Any) -> int:
        asked = {**{option.name: option.default for option in (*own, *common)}, **given}
        seed, folder, resume, as_json = (asked.pop(option.name) for option in common)
        if resume is not None:
            if odd := sorted(set(given) - {"resume", "json"}):
                raise ValueError(
                    f"A resumed run keeps the options it began with; leave out --{odd[0]}."
                )
            return _resume(resume, as_json=as_json, recipe=name)
        folder = folder or Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
        return _train(name, asked, seed=seed, folder=folder, as_json=as_json)

    vars(command).update(__signature__=inspect.Signature([*own, *common]))
    command.__annotations__ = {option.name: option.annotation for option in (*own, *common)}
    command.__doc__ = f"{inspect.getdoc(function)}\n{inspect.getdoc(_common)}"
    return command


for _name, _function in RECIPES.items():
    train_app.command(_command(_name, _function), name=_name)


@app.command
def look(run: Path | None = None, /, *, only: tuple[str, ...] = (), json: bool = False) -> int:
    """Run every lens on a run's model and write one report page beside it.

    Parameters
    ----------
    run
        The folder of the run; by default the newest under runs/.
    only
        Words: lenses with one of them in their titles, and no others.
    json
        One JSON object instead of words.
    """
    from ..report import look as write_report  # brings matplotlib, which nothing else needs

    folder = run or _newest()
    began = time.monotonic()
    if _made_by_python(folder):
        return _look_at_fit(folder, only=only, as_json=json)
    opened = Run.open(folder, look_only=True)
    outcome = reopen(opened, JsonLines() if json else watch())
    progress = _say_nothing if json else _lens_progress
    page = write_report(outcome, folder, only=only, facts=opened.described, progress=progress)
    seconds = time.monotonic() - began
    if json:
        print_json(
            {"event": "done", "report": str(page), "table": outcome.table, "seconds": seconds}
        )
    else:
        _show(outcome)
        out.print(f"looked in {seconds:.1f} s; the report is {page}", soft_wrap=True)
    return 0


def _made_by_python(folder: Path) -> bool:
    """Whether a fit was given this folder, or a run of another name begun in it, without one of the
    recipes.
    """
    if (folder / "run.json").is_file():
        return (
            Run.open(folder).asked["recipe"] not in RECIPES and not (folder / "study.log").exists()
        )
    return any(folder.glob("fit.json")) or any(folder.glob("*/fit.json"))


def _look_at_fit(folder: Path, *, only: tuple[str, ...], as_json: bool) -> int:
    from ..report import MORE, look_at_fit

    if only:
        raise ValueError(f"--only chooses among lenses on a model. {MORE}")
    page = look_at_fit(Run(folder, look_only=True))
    if as_json:
        print_json({"event": "done", "report": str(page)})
    else:
        out.print(f"the learning curves and the weights are in {page}", soft_wrap=True)
        err.print(MORE, soft_wrap=True)
    return 0


def _newest() -> Path:
    runs = [
        path.parent
        for path in Path("runs").glob("*/run.json")
        if not (path.parent / "study.log").exists()
    ]
    if not runs:
        raise ValueError("There is no run under runs/; train one first, or name its folder.")
    return max(runs, key=lambda folder: (folder / "run.json").stat().st_mtime)


def _say_nothing(title: str, done: int, total: int) -> None:
    pass


def _lens_progress(title: str, done: int, total: int) -> None:
    err.print(f"{done}/{total}  {title}", highlight=False)
