"""`thetax train`, `thetax look` and `thetax attack`: runs of recipes and their reports."""

import inspect
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cyclopts
from rich.table import Table

from ..recipes import RECIPES, Outcome, find_recipe
from ..recipes.engine.outcome import TRAINING_STEPS, format_seconds, load_outcome
from ..recipes.engine.runs import execute, expect_recipe_run, parse_options
from ..recipes.shared.options import complete_docstring
from ..train import JsonLines, Run, default_progress
from .app import INTERRUPTED, app, err, out, print_json
from .interrupt import interrupts

UNFINISHED_NOTE = (
    "The run has not finished, so there is no trained model for the other sections yet. Continue "
    "with: thetax train --resume {}"
)

train_app = cyclopts.App(name=("train", "run"), help="Run a recipe, or resume a run.")
app.command(train_app)


def _train(
    recipe: str, arguments: dict[str, Any], *, seed: int, folder: Path, as_json: bool
) -> int:
    find_recipe(recipe)
    if not 0 <= seed < 2**63:
        raise ValueError(f"--seed: must be an integer from 0 to 2^63 - 1; got {seed}.")
    is_new = not folder.exists()
    run = Run.begin(folder, recipe=recipe, arguments=arguments, seed=seed)
    start = time.monotonic()
    try:
        outcome = execute(run, JsonLines() if as_json else default_progress())
    except KeyboardInterrupt:
        interrupts.acknowledge()
        if as_json:
            print_json({"event": "interrupted", "run": str(folder)})
        err.print(f"Interrupted. Continue with: thetax train --resume {folder}", soft_wrap=True)
        return INTERRUPTED
    except Exception:
        if is_new and not _results(folder):
            shutil.rmtree(folder)
        raise
    seconds = time.monotonic() - start
    if as_json:
        times = {"seconds": seconds, "training seconds": outcome.seconds}
        print_json({"event": "done", "run": str(folder), "table": outcome.table, **times})
    else:
        _show(outcome)
        steps = f"{TRAINING_STEPS}: {format_seconds(outcome.seconds)}; " if outcome.seconds else ""
        out.print(
            f"{outcome.reason}; {steps}total time: {format_seconds(seconds)}; saved in {folder}",
            soft_wrap=True,
        )
        out.print(f"Write a report with: thetax look {folder}", soft_wrap=True)
    return 0


def _results(folder: Path) -> list[Path]:
    """The files by which a run can be resumed or looked at."""
    return [*folder.glob("outcome.json"), *folder.glob("**/fit.json")]


def _show(outcome: Outcome) -> None:
    columns = list(dict.fromkeys(name for row in outcome.table.values() for name in row))
    table = Table("", *columns)
    for method, row in outcome.table.items():
        table.add_row(method, *(_number(row[name]) if name in row else "" for name in columns))
    out.print(table)


def _number(value: float) -> str:
    """Two decimals, or two significant digits for small and large numbers.

    >>> _number(12.345), _number(0.0), _number(0.00031)
    ('12.35', '0.00', '0.00031')
    """
    return f"{value:.2f}" if value == 0 or 0.1 <= abs(value) < 1e6 else f"{value:.2g}"


@train_app.default
def train(recipe: str | None = None, /, *, resume: Path | None = None, json: bool = False) -> int:
    """Run a recipe, or resume an interrupted run. `thetax train RECIPE --help` lists the options.

    Parameters
    ----------
    recipe
        A recipe of `thetax list recipes`.
    resume
        Continue the interrupted run in this folder, with its original options.
    json
        Print one JSON object per line instead of a progress bar.
    """
    if resume is not None:
        return _resume(resume, as_json=json)
    if recipe is not None:
        find_recipe(recipe)
    raise ValueError(
        f"thetax train: the name of a recipe is missing; give one of: {', '.join(sorted(RECIPES))}."
    )


def _resume(folder: Path, *, as_json: bool, recipe: str | None = None) -> int:
    about = expect_recipe_run(Run.open(folder)).description
    if recipe not in (None, about["recipe"]):
        raise ValueError(f"--resume: {folder} is a run of {about['recipe']}, not of {recipe}.")
    arguments = parse_options(about["recipe"], about["arguments"])
    return _train(about["recipe"], arguments, seed=about["seed"], folder=folder, as_json=as_json)


def _common(
    *, seed: int = 0, out: Path | None = None, resume: Path | None = None, json: bool = False
) -> None:
    """
    seed
        Random seed.
    out
        Folder of the run; by default a new folder in runs/.
    resume
        Continue the interrupted run in this folder, with its original options.
    json
        Print one JSON object per line instead of a progress bar.
    """


def _command(
    name: str, function: Callable[..., Outcome], *, argument: str = ""
) -> Callable[..., int]:
    """The subcommand of a recipe: its own options, and the common ones. The option `argument` is
    positional.
    """
    own = [p for p in inspect.signature(function).parameters.values() if p.name != "job"]
    own = [p.replace(kind=p.POSITIONAL_ONLY) if p.name == argument else p for p in own]
    own.sort(key=lambda option: option.kind)  # positional parameters come first
    common = list(inspect.signature(_common).parameters.values())

    def command(*positional: Any, **given: Any) -> int:
        given |= dict(zip([argument], positional))
        options = {**{option.name: option.default for option in (*own, *common)}, **given}
        seed, folder, resume, as_json = (options.pop(option.name) for option in common)
        if resume is not None:
            if extra := sorted(set(given) - {"resume", "json"}):
                raise ValueError(
                    f"--resume: a resumed run keeps its original options; leave out --{extra[0]}."
                )
            return _resume(resume, as_json=as_json, recipe=name)
        folder = folder or Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
        return _train(name, options, seed=seed, folder=folder, as_json=as_json)

    vars(command).update(__signature__=inspect.Signature([*own, *common]))
    command.__annotations__ = {option.name: option.annotation for option in (*own, *common)}
    text = complete_docstring(function)
    header = "" if "Parameters\n---" in text else "\nParameters\n----------\n"
    command.__doc__ = f"{text}\n{header}{inspect.getdoc(_common)}"
    return command


for _name, _function in RECIPES.items():
    train_app.command(_command(_name, _function), name=_name)
app.command(_command("attack", RECIPES["attack"], argument="run"), name="attack")


@app.command
def look(folder: Path | None = None, /, *, only: tuple[str, ...] = (), json: bool = False) -> int:
    """Write the report of a run: report.html in its folder, with every lens that applies.

    Parameters
    ----------
    folder
        Folder of the run; by default the newest in runs/.
    only
        Only the sections whose title contains one of these words.
    json
        Print one JSON object instead of text.
    """
    from ..report import look as write_report  # imports matplotlib

    folder = folder or _newest()
    start = time.monotonic()
    if _is_without_recipe(folder):
        return _look_at_fit(folder, only=only, as_json=json)
    run = expect_recipe_run(Run.open(folder))
    if not (folder / "outcome.json").is_file():
        return _look_at_fit(folder, only=only, as_json=json, note=UNFINISHED_NOTE.format(folder))
    outcome = load_outcome(folder)
    progress = _no_progress if json else _lens_progress
    page = write_report(outcome, folder, only=only, facts=run.description, progress=progress)
    seconds = time.monotonic() - start
    if json:
        print_json(
            {"event": "done", "report": str(page), "table": outcome.table, "seconds": seconds}
        )
    else:
        _show(outcome)
        out.print(f"Wrote {page} in {seconds:.1f} s", soft_wrap=True)
    return 0


def _is_without_recipe(folder: Path) -> bool:
    """Whether the folder is of a fit or run that was started from Python code, without a recipe."""
    if (folder / "run.json").is_file():
        return (
            Run.open(folder).request["recipe"] not in RECIPES
            and not (folder / "study.log").exists()
        )
    return any(folder.glob("fit.json")) or any(folder.glob("*/fit.json"))


def _look_at_fit(folder: Path, *, only: tuple[str, ...], as_json: bool, note: str = "") -> int:
    from ..report import NO_MODEL_NOTE, look_at_fit

    note = note or NO_MODEL_NOTE
    if only:
        raise ValueError(f"--only: selects sections that need the trained model. {note}")
    page = look_at_fit(Run(folder), note=note)
    if as_json:
        print_json({"event": "done", "report": str(page)})
    else:
        out.print(f"Wrote {page}, with learning curves and weights only.", soft_wrap=True)
        err.print(note, soft_wrap=True)
    return 0


def _newest() -> Path:
    runs = [
        path.parent
        for path in Path("runs").glob("*/run.json")
        if not (path.parent / "study.log").exists() and _results(path.parent)
    ]
    if not runs:
        raise ValueError(
            "There is no run in runs/; train a model first, or give the folder of a run."
        )
    return max(runs, key=lambda folder: (folder / "run.json").stat().st_mtime)


def _no_progress(title: str, done: int, total: int) -> None:
    pass


def _lens_progress(title: str, done: int, total: int) -> None:
    err.print(f"{done}/{total}  {title}", highlight=False)
