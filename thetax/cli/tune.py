"""`thetax tune`: a recipe's network searched by cross-validation, watched, resumed and reported."""

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
from ..train import Run, Setting, Standing, Trial, Tuned, tune
from ..train.tuning.search_space import parse
from .app import INTERRUPTED, app, err, out, print_json
from .interrupt import interrupts

SHOWN = 8  # trials in a table


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
    """Search the hyper-parameters of a recipe's network by cross-validation, and train the best on
    everything.

    A parameter is a number (0.1), some of which one is chosen (16,32,64), or a range (1e-4:1e-1);
    where none is given the recipe's own space is searched.

    Parameters
    ----------
    recipe
        What to tune: digits, mnist or default.
    trials
        Candidates to be judged in all, those from before an interruption included; 60 unless it was
        begun with others.
    folds
        Parts of the data, each of which is held out in turn.
    repeats
        How often the folds are dealt anew.
    restarts
        Networks trained on each fold, whose errors are averaged.
    members
        Networks, whose predictions are averaged, in the end.
    workers
        Processes that share the search; by default as many as there are cores.
    width
        Units of a hidden layer.
    depth
        Hidden layers.
    weight_decay
        Strength of weight decay.
    dropout
        Probability of dropping a hidden unit.
    label_smoothing
        Share of a label that is spread over all classes.
    learning_rate
        Initial learning rate of Adam; it falls to zero along a cosine.
    batch_size
        Examples in a batch.
    epochs
        Passes over the training set.
    seed
        The one source of chance.
    out
        The folder of the search; by default a new one under runs/.
    resume
        The folder of a search that was interrupted; it goes on as it was begun, or to more
        --trials.
    json
        One JSON object a line instead of a table.
    """
    given = {
        name: text
        for name, text in locals().items()
        if name in Setting._fields and text is not None
    }
    if resume is not None:
        about = Run.open(resume).described
        asked = about["arguments"] | ({} if trials is None else {"trials": trials})
        if recipe not in (None, about["recipe"]) or not {"folds", "space"} <= asked.keys():
            raise ValueError(
                f"{resume} is a run of {about['recipe']}, not a search of {recipe or 'anything'}."
            )
        return _search(about["recipe"], asked, about["seed"], resume, workers, as_json=json)
    if recipe is None:
        raise ValueError(
            f"Tune what? thetax tune RECIPE, with one of: {', '.join(sorted(TUNABLE))}."
        )
    find_tunable(recipe)
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must lie between 0 and 2^63; got {seed}.")
    asked = {
        "trials": 60 if trials is None else trials,
        "folds": folds,
        "repeats": repeats,
        "restarts": restarts,
        "members": members,
    }
    folder = out or Path("runs") / f"tune-{recipe}-{time.strftime('%Y%m%d-%H%M%S')}"
    return _search(recipe, {**asked, "space": given}, seed, folder, workers, as_json=json)


def _search(
    recipe: str,
    asked: dict[str, Any],
    seed: int,
    folder: Path,
    workers: int | None,
    *,
    as_json: bool,
) -> int:
    """A search in its folder, new or gone on with, and its report."""
    named = find_tunable(recipe)
    space = {**named.space, **{name: parse(name, text) for name, text in asked["space"].items()}}
    counts = {name: asked[name] for name in ("trials", "folds", "repeats", "restarts", "members")}
    task = named.task(jr.key(seed))
    key = jr.key(seed)
    if not (folder / "study.log").exists():
        Run.begin(folder, recipe=recipe, arguments=asked, seed=seed)
    watch = _Lines(as_json) if as_json or not err.is_terminal else _Table()
    try:
        with watch:
            found = tune(
                task,
                space,
                **counts,
                workers=workers or _cores(),
                key=key,
                folder=folder,
                watch=watch.saw,
            )
    except KeyboardInterrupt:
        interrupts.acknowledge()
        if as_json:
            print_json({"event": "interrupted", "run": str(folder)})
        err.print(f"interrupted; go on with: thetax tune --resume {folder}", soft_wrap=True)
        return INTERRUPTED
    from ..report.tuning_page import report_search  # brings matplotlib

    page = report_search(found, folder, title=f"Tuning {recipe}", facts=Run.open(folder).described)
    _tell(found, folder, page, as_json=as_json)
    return 0


def _cores() -> int:
    """A worker for each core; an accelerator is not shared."""
    if jax.default_backend() != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _tell(found: Tuned, folder: Path, page: Path, *, as_json: bool) -> None:
    best = found.best
    stopped = sum(trial.stopped for trial in found.trials)
    if as_json:
        told = {
            "run": str(folder),
            "report": str(page),
            "best": _row(best),
            "simplest": _row(found.simplest),
        }
        count = {"trials": len(found.trials), "stopped": stopped, "seconds": found.seconds}
        print_json({"event": "done", **told, **count, "test error": found.test_error})
        return
    out.print(_trials(found.trials))
    test = "" if found.test_error is None else f"; test error of {100 * found.test_error:.2f} %"
    out.print(
        f"{len(found.trials)} trials, {stopped} stopped early, {found.seconds:.1f} s; best trial "
        f"{best.number}: {100 * best.error:.2f} ± {100 * best.spread:.2f} %{test}",
        soft_wrap=True,
    )
    if found.simplest.number != best.number:
        out.print(
            f"the simplest within one standard error is trial {found.simplest.number}",
            soft_wrap=True,
        )
    out.print(f"kept in {folder}; the report is {page}", soft_wrap=True)


def _row(trial: Trial) -> dict[str, Any]:
    return {
        "trial": trial.number,
        "error": trial.error,
        "stopped": trial.stopped,
        **trial.setting._asdict(),
    }


def _trials(trials: list[Trial]) -> Table:
    """The best trials so far."""
    table = Table(
        "trial", "error", "±", *Setting._fields, box=None, padding=(0, 1, 0, 0), pad_edge=False
    )
    for trial in sorted(trials, key=lambda t: (t.stopped, t.error, t.number))[:SHOWN]:
        setting = [f"{value:.2g}" if value < 1 else f"{value:g}" for value in trial.setting]
        numbers = [f"{100 * trial.error:.2f}", f"{100 * trial.spread:.2f}", *setting]
        table.add_row(str(trial.number), *numbers, style="dim" if trial.stopped else "")
    return table


class _Table:
    """The best trials and how far the search is, on a terminal."""

    def __enter__(self) -> "_Table":
        self.live = Live("starting", console=err, transient=True, refresh_per_second=4)
        self.live.start()
        return self

    def saw(self, standing: Standing) -> None:
        """Draws the table anew."""
        stopped = sum(trial.stopped for trial in standing.trials)
        words = (
            f"{len(standing.trials)} of {standing.wanted} trials, {stopped} of them stopped early, "
            f"{standing.running} running, {standing.seconds:.0f} s"
        )
        self.live.update(Group(_trials(standing.trials), words))

    def __exit__(self, *trouble: object) -> None:
        self.live.stop()


class _Lines:
    """A line a trial: JSON on standard output, or words on standard error."""

    def __init__(self, as_json: bool):
        self.as_json, self.told = as_json, 0

    def __enter__(self) -> "_Lines":
        return self

    def saw(self, standing: Standing) -> None:
        """Tells of the trials that have ended since."""
        for place, trial in enumerate(standing.trials[self.told :], self.told + 1):
            if self.as_json:
                print_json({"event": "trial", **_row(trial), "seconds": trial.seconds})
                continue
            best = min((t.error for t in standing.trials[:place] if not t.stopped), default=None)
            word = "stopped" if trial.stopped else "done"
            tail = "" if best is None else f"best {100 * best:.2f} %  "
            err.print(
                f"{place}/{standing.wanted}  trial {trial.number} {word}  error "
                f"{100 * trial.error:.2f} %  {tail}{standing.seconds:.1f} s",
                highlight=False,
                soft_wrap=True,
            )
        self.told = len(standing.trials)

    def __exit__(self, *trouble: object) -> None:
        pass
