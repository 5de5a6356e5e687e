"""Breaks formulas of the library at random, one at a time, and tells which test or claim notices
each.

    python tests/mutate.py thetax/layers/recurrent/lstm_gru.py --count 20 --seed 0
    python tests/mutate.py thetax/layers thetax/models --count 150 --log mutants.jsonl

A folder stands for its modules, of which each mutant takes one at random, by size. No file is
written but the log, a JSON line a mutant; what it holds already is not done again. A worker process
imports the library once. For a mutant it compiles the module anew, gives the loaded function the
code of the changed one, forgets all compiled programs and imports the tests afresh, so that what a
test module computes is computed with the change. Then it runs, until a test fails:

1. the quick tests of the module: its examples, `tests/.../test_<module>.py` and the rows of the
   contracts;
2. the quick tests of other files that mention the function, and the claims of the quick run with
   its name in `of=`;
3. the quick tests of the same folder of `tests/`;
4. the slow tests of 1, and the claims that are slow.

At the end all tests that noticed one are run without any change: a mutant counts as noticed only by
a test that passes then, and is judged again without one that fails. What runs in other processes
does not see the change, and what is computed while the library is imported is not changed.
"""

import argparse
import ast
import functools
import json
import multiprocessing
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

import pytest  # noqa: E402
from mutants import ROOT, Mutant, choose, mutants, put  # noqa: E402

QUICK = "not peer and not network and not slow"
SLOW = "slow and not peer and not network"
ONE_TEST, ONE_STAGE, HANGS = (
    40,
    60,
    300,
)  # seconds; a program that never returns must be ended from outside
MUTANTS_PER_WORKER = 25
KEPT = {"__main__", "__mp_main__", "mutants"}  # modules among the tests that are not forgotten
NOT_CHOSEN = {
    "test_mutations.py",
    "test_mutants.py",
    "test_claims.py",
    "test_contracts.py",
    "test_slow.py",
}


class Stage(NamedTuple):
    """Files of tests, and which of their tests are run."""

    name: str
    marks: str
    files: list[str]
    rows: set[str] | None  # of the contracts, those with such a word in their name; without it all
    claims: set[str] | None


# Which tests could notice


@functools.cache
def words(path: Path) -> Counter:
    """How often a file says each word."""
    return Counter(re.findall(r"\w+", path.read_text("utf-8")))


@functools.cache
def files_of_tests() -> list[Path]:
    found = sorted((ROOT / "tests").rglob("test_*.py"))
    return [path for path in found if path.name not in NOT_CHOSEN and path.parent.name != "peer"]


def public_names(path: Path, mutant: Mutant) -> list[str]:
    """What the mutant's function is called outside: itself, its class, or for a private one those
    that use it.
    """
    tree = ast.parse(path.read_text("utf-8"))
    definitions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    uses = {
        node.name: {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        for node in definitions
    }
    names = set()
    around = {mutant.function.partition(".")[0]}
    while new := around - names:
        names |= new
        private = {name for name in new if name.startswith("_")}
        around = names | {user for user, used in uses.items() if used & private}
    public = sorted(name for name in names if not name.startswith("_"))
    return public or sorted(name for name in uses if not name.startswith("_"))


def importers(path: Path) -> list[Path]:
    """Modules of the same folder that import this one."""
    pattern = re.compile(rf"^from \.{path.stem} import", re.MULTILINE)
    return [
        other
        for other in sorted(path.parent.glob("[a-z]*.py"))
        if pattern.search(other.read_text("utf-8"))
    ]


def mirror(path: Path) -> list[str]:
    """The module's own tests; those of its importers where it has none."""
    tests = ROOT / "tests" / path.relative_to(ROOT / "thetax").parent
    own = [tests / f"test_{path.stem}.py"]
    if not own[0].exists():
        own = [tests / f"test_{other.stem}.py" for other in importers(path)]
    return [str(test.relative_to(ROOT)) for test in own if test.exists()]


def tables(names: list[str]) -> list[str]:
    """Tables of cells and the like in the contracts that have one of the names."""
    lines = ast.parse((ROOT / "tests" / "contracts.py").read_text("utf-8")).body
    tables = [
        line for line in lines if isinstance(line, ast.Assign) and isinstance(line.value, ast.Dict)
    ]
    return [
        ast.unparse(line.targets[0])
        for line in tables
        if set(names) & set(re.findall(r"\w+", ast.unparse(line)))
    ]


def stages(path: Path, mutant: Mutant) -> list[Stage]:
    """What is run, in this order."""
    from thetax.claims import find_claims

    names = public_names(path, mutant)
    module = str(path.relative_to(ROOT))
    own = mirror(path)
    around = (
        names
        if own
        else [*names, *(name for other in importers(path) for name in public_names(other, ANY))]
    )
    folder = path.relative_to(ROOT / "thetax").parts[0]
    wanted = [*around, *tables(around)]
    said = {
        str(file.relative_to(ROOT)): sum(words(file)[name] for name in wanted)
        for file in files_of_tests()
    }
    order = sorted(said, key=lambda file: (f"/{folder}/" not in file, -said[file]))
    others = [file for file in order if said[file] and file not in own]
    claims = {
        claim.name
        for claim in find_claims()
        if {f"{folder}.{name}" for name in around} & set(claim.of)
    }
    rows = set(around) & set(words(ROOT / "tests" / "contracts.py"))
    own = [
        module,
        *own,
        *["tests/test_contracts.py"] * bool(rows or not own),
    ]  # with one of tests/ comes its conftest
    courses = ["tests/claims/test_claims.py"] * bool(claims)
    parent = ROOT / "tests" / path.relative_to(ROOT / "thetax").parent
    neighbours = [str(parent.relative_to(ROOT))] * parent.is_dir()
    return [
        Stage("the module's quick tests", QUICK, own, rows, set()),
        Stage("other quick tests", QUICK, [*others[:6], *courses], set(), claims),
        Stage("quick tests of the folder", QUICK, neighbours, None, None),
        Stage("the module's slow tests", SLOW, own, rows, set()),
        Stage("slow claims", SLOW, courses, set(), claims),
    ]


ANY = Mutant("_", 0, "", 0, 0, "")  # of no function: all names of a module


# Running them


class Slow(Exception):
    """A test takes too long."""


class Watch:
    """Runs only what the stage names, and keeps the first failure."""

    def __init__(self, stage: Stage, skipped: set[str], tell: Any):
        self.stage, self.skipped, self.tell = stage, skipped, tell
        self.failed: tuple[str, str] | None = None
        self.ends = time.monotonic() + ONE_STAGE

    def chosen(self, item: pytest.Item) -> bool:
        row = getattr(getattr(item, "callspec", None), "id", "")
        if self.stage.rows is None or self.stage.claims is None:
            return True
        if item.path.name == "test_contracts.py":
            return bool(self.stage.rows & set(re.findall(r"\w+", row)))
        if item.path.name == "test_claims.py":
            return row in self.stage.claims and item.name.startswith("test_it_holds")
        return True

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if self.chosen(item) and item.nodeid not in self.skipped]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item):
        self.tell(item.nodeid)
        if time.monotonic() > self.ends:
            item.session.shouldstop = "out of time"
        signal.alarm(ONE_TEST)
        try:
            return (yield)
        finally:
            signal.alarm(0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.keep(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.keep(report)

    def keep(self, report: Any) -> None:
        if report.failed and self.failed is None and report.nodeid not in self.skipped:
            crash = getattr(report.longrepr, "reprcrash", None)
            text = crash.message if crash else report.longreprtext
            if f"{Slow.__name__}: " in text:  # on a busy machine: it says nothing
                return
            self.failed = (
                report.nodeid,
                next((line for line in text.splitlines() if line.strip()), "")[:160],
            )


def session(stage: Stage, skipped: set[str], tell: Any) -> tuple[str, str] | None:
    """The first test that fails, and its message."""
    watch = Watch(stage, skipped, tell)
    if not stage.files:
        return None
    options = [
        "-o",
        "addopts=",
        "-p",
        "no:cacheprovider",
        "--doctest-modules",
        "-x",
        "-q",
        "-m",
        stage.marks,
    ]
    pytest.main([*options, *stage.files], plugins=[watch])
    return watch.failed


def forget() -> None:
    """Nothing computed before is found again: compiled programs, caches of the library, modules of
    tests.
    """
    import jax

    jax.clear_caches()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "thetax":
            for thing in [*vars(module).values()]:
                if isinstance(thing, functools._lru_cache_wrapper):
                    thing.cache_clear()
    tests = str(ROOT / "tests")
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(tests) and name not in KEPT:
            del sys.modules[name]


def judge(path: Path, mutant: Mutant, quick: bool, skipped: set[str], tell: Any) -> dict[str, str]:
    """Which test fails with the mutant, in which stage; nothing if none does."""
    source = path.read_bytes()
    found = stages(path, mutant)
    module = import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    put(module, mutant.function, mutant.applied(source))
    forget()
    try:
        for stage in found[:3] if quick else found:
            if failed := session(stage, skipped, tell):
                return {"noticed": failed[0], "stage": stage.name, "message": failed[1]}
    finally:
        put(module, mutant.function, source)
        forget()
    return {}


def failing(tests: list[str], tell: Any) -> list[str]:
    """Those of the tests that fail without any mutant."""
    stage = Stage("by themselves", "not peer and not network", tests, None, None)
    found: set[str] = set()
    while failed := session(stage, found, tell):
        found.add(failed[0])
    return sorted(found)


def serve(pipe: Any) -> None:
    """The worker: does what it is sent until there is no more."""
    os.chdir(ROOT)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, _too_long)
    # an ordinary session first: it checks shapes while importing the library, and compiles as the
    # quick run does
    pytest.main(["-n", "0", "--collect-only", "-q", "-m", QUICK, "tests/test_tree.py"])
    while True:
        function, *arguments = pipe.recv()
        try:
            answer = function(*arguments, pipe.send)
        except Exception as error:
            answer = {"stage": "error", "message": f"{type(error).__name__}: {error}"}
        pipe.send((answer,))


def _too_long(signum: int, frame: Any) -> None:
    raise Slow(f"more than {ONE_TEST} seconds")


class Worker:
    """A process that tests mutants; it is restarted now and then, and when a mutant hangs."""

    def __init__(self):
        self.process, self.left = None, 0

    def begin(self) -> None:
        self.end()
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process, self.left = (
            context.Process(target=serve, args=(theirs,), daemon=True),
            MUTANTS_PER_WORKER,
        )
        self.process.start()

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()

    def ask(self, function: Any, *arguments: Any) -> Any:
        """What the function answers there; of a process that hangs or dies, the test that it was
        at.
        """
        if self.left == 0:
            self.begin()
        self.left -= 1
        self.pipe.send((function, *arguments))
        test = ""
        while True:
            if not self.pipe.poll(HANGS):
                self.left = 0
                return {
                    "noticed": test,
                    "stage": "never ends",
                    "message": f"no answer in {HANGS} seconds",
                }
            try:
                answer = self.pipe.recv()
            except EOFError:
                self.left = 0
                return {"noticed": test, "stage": "process died", "message": "the process died"}
            if isinstance(answer, tuple):
                return answer[0]
            test = answer


# What is asked for


def drawn(paths: list[Path], count: int, seed: int) -> list[tuple[Path, Mutant]]:
    """Mutants of the modules: which module by its size, the same for the same seed."""
    chance = random.Random(seed)
    files = [
        file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])
    ]
    found = {file: mutants(file.read_bytes()) for file in files}
    files = [file for file in files if found[file]]
    sizes = [file.stat().st_size for file in files]
    shares = Counter(chance.choices(range(len(files)), sizes, k=count))
    order = sorted(shares)
    chance.shuffle(order)
    return [
        (files[i], mutant) for i in order for mutant in choose(found[files[i]], shares[i], chance)
    ]


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: the counts, and a line a mutant."""
    stages = Counter(row["stage"] or "survived" for row in rows if row["stage"] != "error")
    total = sum(stages.values())
    lines = ["| noticed by | mutants | share |", "|---|---|---|"]
    lines += [f"| {stage} | {n} | {100 * n / total:.0f} % |" for stage, n in stages.most_common()]
    lines += ["", "| where | before | after | noticed by |", "|---|---|---|---|"]
    for row in rows:
        before, after = (f"`{row[part]}`".replace("|", "\\|") for part in ("before", "after"))
        noticed = row["noticed"] or (row["message"] if row["stage"] == "error" else "**survived**")
        lines.append(f"| {row['path']}:{row['line']} | {before} | {after} | {noticed} |")
    return "\n".join(lines)


class Log:
    """The rows so far, by the mutant; each is written to the file as it comes, if there is one."""

    def __init__(self, path: Path | None):
        self.path, lines = path, path.read_text().splitlines() if path and path.exists() else []
        self.rows = {row["id"]: row for row in map(json.loads, lines)}

    def add(self, row: dict[str, Any]) -> None:
        self.rows[row["id"]] = row
        if self.path:
            with self.path.open("a") as log:
                log.write(json.dumps(row) + "\n")
        verdict = row["noticed"] or row["message"] or "SURVIVED"
        print(
            f"{row['seconds']:6.1f} s  {row['path']}:{row['line']}  {row['after']}  {verdict}",
            file=sys.stderr,
        )


def judged(
    worker: Worker, path: Path, mutant: Mutant, quick: bool, skipped: set[str]
) -> dict[str, Any]:
    """The row of a mutant."""
    began, (before, after) = time.monotonic(), mutant.diff(path.read_bytes())
    answer = worker.ask(judge, path, mutant, quick, skipped)
    row = {
        "id": identity(path, mutant),
        "path": str(path.relative_to(ROOT)),
        "line": mutant.line,
        "kind": mutant.kind,
    }
    row |= {"before": before, "after": after, "noticed": "", "stage": "", "message": ""} | answer
    return row | {"seconds": round(time.monotonic() - began, 1)}


def identity(path: Path, mutant: Mutant) -> str:
    before, after = mutant.diff(path.read_bytes())
    return f"{path.relative_to(ROOT)}:{mutant.function}:{mutant.kind}:{before}>{after}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, help="modules or folders of thetax")
    parser.add_argument("--count", type=int, default=20, help="how many mutants (20)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other mutants (0)")
    parser.add_argument("--quick", action="store_true", help="leave out the slow tests and claims")
    parser.add_argument(
        "--log", type=Path, help="JSON lines; mutants that are there already are not judged again"
    )
    parser.add_argument("--list", action="store_true", help="print the mutants and judge none")
    asked = parser.parse_args()
    found = drawn([path.resolve() for path in asked.paths], asked.count, asked.seed)
    if asked.list:
        for path, mutant in found:
            print(
                f"{path.relative_to(ROOT)}:{mutant.line} {mutant.kind}",
                *mutant.diff(path.read_bytes()),
                sep="\n  ",
            )
        return
    os.environ["XDG_CACHE_HOME"] = str(
        Path(tempfile.gettempdir()) / "thetax-mutants"
    )  # programs that are wrong
    worker = Worker()
    log = Log(asked.log)
    skipped = set()
    mine = {identity(*pair): pair for pair in found}
    while missing := [name for name in mine if name not in log.rows]:
        for name in missing:
            log.add(judged(worker, *mine[name], asked.quick, skipped))
        tests = sorted({log.rows[name]["noticed"] for name in mine} - {""})
        fails = set(worker.ask(failing, tests)) if tests else set()
        skipped |= fails
        log.rows = {name: row for name, row in log.rows.items() if row["noticed"] not in fails}
    worker.end()
    print(table([log.rows[name] for name in mine]))


if __name__ == "__main__":
    main()
