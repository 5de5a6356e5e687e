"""Which tests run, in which order, and for how long.

`slow` stands at a test that takes long by nature. `sampled(n)` stands at a test of many cases: each
n-th runs in `make test`, all of them in `make test-all`. With `--budget MINUTES` no test starts
later than that: tests that failed last time come first, then those of files changed by the last
commits, then the other files in an order that rotates with the commit; what was left out is listed
at the end.
"""

import gc
import hashlib
import os
import subprocess
import time
from collections import Counter
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).parent.parent
RECENT_COMMITS = 20
MAX_RESIDENT = 3 * 2**30  # bytes of a worker at which it forgets compiled programs
LEFT_OUT = "the time budget is spent"


class Suite:
    """A pytest plugin."""

    def __init__(self, config: pytest.Config):
        self.config = config
        self.minutes = config.getoption("budget")
        self.left: Counter[str] = Counter()
        self.ran = 0
        if self.minutes is not None and not hasattr(config, "workerinput"):
            os.environ["THETAX_TEST_DEADLINE"] = str(
                time.time() + 60 * self.minutes
            )  # workers inherit it
        self.deadline = float(os.environ.get("THETAX_TEST_DEADLINE", "inf"))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        mark_samples(items)
        if self.minutes is not None:
            changed = changed_files()
            commit = _git("rev-parse", "HEAD")
            failed = self.config.cache.get("cache/lastfailed", {}) if self.config.cache else {}
            items.sort(key=lambda item: order(item, failed, changed, commit))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if time.time() > self.deadline:
            pytest.skip(LEFT_OUT)

    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Compiled programs take memory; those that two files share are on disk too."""
        self.ran += 1
        if self.ran % 10 == 0 and resident() > MAX_RESIDENT:
            jax.clear_caches()
            gc.collect()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and LEFT_OUT in str(report.longrepr):
            self.left[report.nodeid.partition("::")[0]] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.left:
            total = sum(self.left.values())
            terminalreporter.section(
                f"{total} tests left out: the budget of {self.minutes:g} minutes is spent"
            )
            for name, count in self.left.most_common():
                terminalreporter.write_line(f"{count:5} {name}")


def mark_samples(items: list[pytest.Item]) -> None:
    """Of a test with `sampled(n)` each n-th case stays in the quick run; the others are slow."""
    seen: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("sampled")
        if mark is not None:
            name = item.nodeid.partition("[")[0]
            if seen[name] % mark.args[0]:
                item.add_marker(pytest.mark.slow)
            seen[name] += 1


def order(
    item: pytest.Item, failed: dict[str, bool], changed: set[str], commit: str
) -> tuple[int, str]:
    """Where a test stands in a run that may end early; the tests of one file stay together."""
    file = item.nodeid.partition("::")[0]
    module = Path(file).stem.removeprefix("test_")
    if item.nodeid in failed:
        return 0, ""
    turn = hashlib.sha256(f"{commit} {file}".encode()).hexdigest()
    return (1 if file in changed or module in {Path(name).stem for name in changed} else 2), turn


def changed_files() -> set[str]:
    return set(_git("log", f"-{RECENT_COMMITS}", "--name-only", "--format=").split())


def _git(*words: str) -> str:
    """What git says; nothing where there is no repository."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def resident() -> int:
    """Bytes of memory that this process holds; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
