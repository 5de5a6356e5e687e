"""`thetax tune`: resumable hyperparameter search for a recipe by cross-validation."""

import os
import time
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
from rich.console import Group
from rich.live import Live
from rich.table import Table

from ..recipes.engine.tunable import TUNABLE, find_tunable
from ..train import Run, Setting, Trial, TuningProgress, TuningResult, tune
from ..train.tuning.search_space import parse_domain
from .app import INTERRUPTED, app, err, out, print_json
from .interrupt import interrupts

MAX_TRIALS_SHOWN = 8


@app.command(name="tune")
def tune_(
    recipe: str | None = None,
    /,
    *,
    trials: int | None = None,
    folds: int = 5,
    repeats: int = 1,
    restarts: int = 1,
    members: int = 10,
    workers: int | None = None,
    width: str | None = None,
    depth: str | None = None,
    weight_decay: str | None = None,
    dropout: str | None = None,
    label_smoothing: str | None = None,
    learning_rate: str | None = None,
    batch_size: str | None = None,
    epochs: str | None = None,
    seed: int = 0,
    out: Path | None = None,
    resume: Path | None = None,
    json: bool = False,
) -> int:
    """Tune the hyperparameters of a recipe by cross-validation, and train the best on all data.

    A hyperparameter is a number (0.1), a list of choices (16,32,64), or a range (1e-4:1e-1). The
    recipe has a default search space.

    Parameters
    ----------
    recipe
        Recipe to tune: digits, mnist or default.
    trials
        Number of trials in total, including those before an interruption; by default 60.
    folds
        Number of cross-validation folds.
    repeats
        Number of repetitions of the cross-validation with other folds.
    restarts
        Number of initialisations per fold, whose errors are averaged.
    members
        Number of networks in the final ensemble.
    workers
        Number of processes; by default one per core.
    width
        Number of units per hidden layer.
    depth
        Number of hidden layers.
    weight_decay
        Weight decay.
    dropout
        Dropout probability of hidden units.
    label_smoothing
        Fraction of the label probability that is spread over all classes.
    learning_rate
        Initial learning rate of Adam; it decays to zero along a cosine.
    batch_size
        Batch size.
    epochs
        Number of epochs.
    seed
        Random seed.
    out
        Folder of the search; by default a new one in runs/.
    resume
        Folder of an interrupted search to continue, optionally with more --trials.
    json
        Print one JSON object per line instead of a table.
    """
    domains = {
        name: text
        for name, text in locals().items()
        if name in Setting._fields and text is not None
    }
    if resume is not None:
        run = Run.open(resume).description
        arguments = run["arguments"] | ({} if trials is None else {"trials": trials})
        if recipe not in (None, run["recipe"]) or not {"folds", "space"} <= arguments.keys():
            raise ValueError(
                f"{resume} is a run of {run['recipe']}, not a search of {recipe or 'a recipe'}."
            )
        return _search(run["recipe"], arguments, run["seed"], resume, workers, as_json=json)
    if recipe is None:
        raise ValueError(
            f"the name of a recipe is missing: thetax tune RECIPE, with one of: "
            f"{', '.join(sorted(TUNABLE))}."
        )
    find_tunable(recipe)
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must be an integer in [0, 2^63); got {seed}.")
    arguments = {
        "trials": 60 if trials is None else trials,
        "folds": folds,
        "repeats": repeats,
        "restarts": restarts,
        "members": members,
    }
    folder = out or Path("runs") / f"tune-{recipe}-{time.strftime('%Y%m%d-%H%M%S')}"
    return _search(recipe, {**arguments, "space": domains}, seed, folder, workers, as_json=json)


def _search(
    recipe: str,
    arguments: dict[str, Any],
    seed: int,
    folder: Path,
    workers: int | None,
    *,
    as_json: bool,
) -> int:
    """Starts or continues a search in its folder, and writes the report."""
    tunable = find_tunable(recipe)
    domains = {name: parse_domain(name, text) for name, text in arguments["space"].items()}
    space = {**tunable.space, **domains}
    counts = {
        name: arguments[name] for name in ("trials", "folds", "repeats", "restarts", "members")
    }
    task = tunable.task(jr.key(seed))
    key = jr.key(seed)
    if not (folder / "study.log").exists():
        Run.begin(folder, recipe=recipe, arguments=arguments, seed=seed)
    display = _LineDisplay(as_json) if as_json or not err.is_terminal else _TableDisplay()
    try:
        with display:
            result = tune(
                task,
                space,
                **counts,
                workers=workers or _cores(),
                key=key,
                folder=folder,
                on_progress=display.update,
            )
    except KeyboardInterrupt:
        interrupts.acknowledge()
        if as_json:
            print_json({"event": "interrupted", "run": str(folder)})
        err.print(f"interrupted; resume with: thetax tune --resume {folder}", soft_wrap=True)
        return INTERRUPTED
    from ..report.tuning_page import report_search  # imports matplotlib

    page = report_search(
        result, folder, title=f"Tuning {recipe}", facts=Run.open(folder).description
    )
    _show_result(result, folder, page, as_json=as_json)
    return 0


def _cores() -> int:
    """The number of cores, or 1 with an accelerator."""
    if jax.default_backend() != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _show_result(result: TuningResult, folder: Path, page: Path, *, as_json: bool) -> None:
    best = result.best
    stopped = sum(trial.stopped for trial in result.trials)
    if as_json:
        summary = {
            "run": str(folder),
            "report": str(page),
            "best": _row(best),
            "simplest": _row(result.simplest),
        }
        counts = {"trials": len(result.trials), "stopped": stopped, "seconds": result.seconds}
        return print_json({"event": "done", **summary, **counts, "test error": result.test_error})
    out.print(_trial_table(result.trials))
    test = "" if result.test_error is None else f"; test error {100 * result.test_error:.2f} %"
    out.print(
        f"{len(result.trials)} trials, {stopped} stopped early, {result.seconds:.1f} s; best trial "
        f"{best.number}: {100 * best.error:.2f} ± {100 * best.standard_error:.2f} %{test}",
        soft_wrap=True,
    )
    if result.simplest.number != best.number:
        out.print(
            f"the simplest within one standard error is trial {result.simplest.number}",
            soft_wrap=True,
        )
    out.print(f"saved to {folder}; report: {page}", soft_wrap=True)


def _row(trial: Trial) -> dict[str, Any]:
    return {
        "trial": trial.number,
        "error": trial.error,
        "stopped": trial.stopped,
        **trial.setting._asdict(),
    }


def _trial_table(trials: list[Trial]) -> Table:
    """A table of the best trials."""
    table = Table(
        "trial", "error", "±", *Setting._fields, box=None, padding=(0, 1, 0, 0), pad_edge=False
    )
    for trial in sorted(trials, key=lambda t: (t.stopped, t.error, t.number))[:MAX_TRIALS_SHOWN]:
        setting = [f"{value:.2g}" if value < 1 else f"{value:g}" for value in trial.setting]
        numbers = [f"{100 * trial.error:.2f}", f"{100 * trial.standard_error:.2f}", *setting]
        table.add_row(str(trial.number), *numbers, style="dim" if trial.stopped else "")
    return table


class _TableDisplay:
    """The best trials and the progress of the search, on a terminal."""

    def __enter__(self) -> "_TableDisplay":
        self.live = Live("starting", console=err, transient=True, refresh_per_second=4)
        self.live.start()
        return self

    def update(self, progress: TuningProgress) -> None:
        """Updates the table."""
        stopped = sum(trial.stopped for trial in progress.trials)
        status = (
            f"{len(progress.trials)} of {progress.total} trials, {stopped} stopped early, "
            f"{progress.running} running, {progress.seconds:.0f} s"
        )
        self.live.update(Group(_trial_table(progress.trials), status))

    def __exit__(self, *error: object) -> None:
        self.live.stop()


class _LineDisplay:
    """One line per trial: JSON on standard output, or text on standard error."""

    def __init__(self, as_json: bool):
        self.as_json = as_json
        self.n_reported = 0

    def __enter__(self) -> "_LineDisplay":
        return self

    def update(self, progress: TuningProgress) -> None:
        """Reports the trials that ended since the last update."""
        for i, trial in enumerate(progress.trials[self.n_reported :], self.n_reported + 1):
            if self.as_json:
                print_json({"event": "trial", **_row(trial), "seconds": trial.seconds})
                continue
            best = min((t.error for t in progress.trials[:i] if not t.stopped), default=None)
            state = "stopped" if trial.stopped else "done"
            tail = "" if best is None else f"best {100 * best:.2f} %  "
            err.print(
                f"{i}/{progress.total}  trial {trial.number} {state}  error "
                f"{100 * trial.error:.2f} %  {tail}{progress.seconds:.1f} s",
                highlight=False,
                soft_wrap=True,
            )
        self.n_reported = len(progress.trials)

    def __exit__(self, *error: object) -> None:
        pass
