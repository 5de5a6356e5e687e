"""Runs claims in parallel processes; a failure of one never hides the result of another."""

import gc
import os
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from itertools import count
from multiprocessing import active_children, get_context, parent_process
from typing import Any
from zlib import crc32

import jax
import jax.random as jr
import scipy.linalg  # noqa: F401  its LAPACK, which JAX uses, must be here to be limited
from threadpoolctl import threadpool_limits

from ...core import enable_compilation_cache
from ...data import DatasetUnavailable
from .check import Check
from .claim import Claim, Scale, Verdict
from .numpy_rng import numpy_rng
from .uses import unused

PRINTED = "printed form, must fail: "  # The prefix of the checks of a printed form.
PARENT_WATCH = "thetax parent watch"  # a thread of each worker
CLAIMS_PER_CLEANUP = 20  # a worker forgets its compiled programs, which take memory
PARAMETERS = ("key", "rng", "scale")  # what a claim's function may take

_claims_run = count(1)  # in this process


@dataclass(frozen=True)
class Finding:
    """The result of running a claim: its verdict, or the error, or the dataset that is missing."""

    claim: Claim
    verdict: Verdict | None
    error: str
    seed: int
    scale: Scale
    seconds: float
    missing: str = ""

    @property
    def fails(self) -> bool:
        """Whether the claim ran and does not hold; without its data it neither holds nor fails."""
        return not self.holds and not self.missing

    @property
    def holds(self) -> bool:
        """Whether every check came out as it should; a claim with an error does not hold."""
        return self.verdict is not None and self.verdict.holds

    @property
    def checks(self) -> tuple[Check, ...]:
        """Every comparison, in order: assumptions, the printed form, the statement."""
        v = self.verdict
        return () if v is None else (*v.assumptions, *v.printed, *v.checks)

    @property
    def method(self) -> str:
        """The methods of its checks, as one string."""
        words = dict.fromkeys(_method(check) for check in self.checks)
        return ", ".join(words) or ("no data" if self.missing else "failed")

    def as_json(self) -> dict[str, Any]:
        """The finding as a JSON object; measured, expected and tolerance are keyed by check name.

        `failed` lists the checks that did not come out as they should, including a printed form
        that passes.
        """
        named = self.named()
        record: dict[str, Any] = {
            "ids": list(self.claim.ids),
            "title": self.claim.title,
            "kind": self.claim.kind,
            "holds": self.holds,
            "method": self.method,
            "measured": {name: check.measured for name, check in named.items()},
            "expected": {name: check.expected for name, check in named.items()},
            "tolerance": {
                name: check.tolerance
                for name, check in named.items()
                if check.tolerance is not None
            },
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "failed": [
                name for name, check in named.items() if check.holds == name.startswith(PRINTED)
            ],
        }
        optional = {"error": self.error, "missing": self.missing}
        return record | {word: text for word, text in optional.items() if text}

    def named(self) -> dict[str, Check]:
        """The checks by unique name; assumptions and printed forms get a prefix."""
        v = self.verdict
        found = {}
        if v is None:
            return found
        roles = [("assumption: ", v.assumptions), (PRINTED, v.printed), ("", v.checks)]
        for name, check in [
            (role + check.name, check) for role, checks in roles for check in checks
        ]:
            again = sum(other == name or other.startswith(f"{name} (") for other in found)
            found[f"{name} ({again + 1})" if again else name] = check
        return found


def _method(check: Check) -> str:
    alarm = f" (false alarms {check.false_alarm:.0e})" if check.false_alarm else ""
    return check.method + alarm.replace("e-0", "e-")


def run_claim(claim: Claim, *, seed: int = 0, scale: Scale = "quick") -> Finding:
    """Runs one claim in this process, in double precision; an exception becomes `Finding.error`.

    >>> from thetax.claims import find_claims
    >>> run_claim(find_claims("1.2-xor")[0]).holds
    True
    """
    began = time.monotonic()
    verdict, error, missing = _run(claim, seed, scale)
    return Finding(claim, verdict, error, seed, scale, time.monotonic() - began, missing)


def _run(claim: Claim, seed: int, scale: Scale) -> tuple[Verdict | None, str, str]:
    try:
        if names := unused(claim):
            raise ValueError(
                f"a claim uses what it is about; of= names {', '.join(names)}, which this one "
                "does not use."
            )
        with jax.enable_x64(True), jax.default_matmul_precision("highest"):
            key = jr.fold_in(jr.key(seed), crc32(claim.name.encode()))
            arguments = {"key": key, "rng": numpy_rng(key), "scale": scale}
            verdict = claim.function(**{name: arguments[name] for name in _parameters(claim)})
        if not isinstance(verdict, Verdict):
            raise TypeError(
                f"a claim returns a Verdict of its checks; this one returned {verdict!r}."
            )
        if claim.kind == "erratum" and not verdict.printed:
            raise ValueError(
                "an erratum must show the printed form to fail; give Verdict its printed checks."
            )
        return verdict, "", ""
    except DatasetUnavailable as missing:
        return None, "", str(missing)
    except Exception:
        return None, traceback.format_exc(limit=-3).strip(), ""


def _parameters(claim: Claim) -> list[str]:
    """The parameters of a claim's function; each must be one of `PARAMETERS`."""
    names = list(signature(claim.function).parameters)
    unknown = [name for name in names if name not in PARAMETERS]
    if unknown:
        raise TypeError(
            f"a claim's function takes {', '.join(PARAMETERS)} or some of them; this one takes "
            f"{', '.join(unknown)}."
        )
    return names


def verify(
    claims: Sequence[Claim], *, seed: int = 0, scale: Scale = "quick", jobs: int | None = None
) -> Iterator[Finding]:
    """Runs the claims on `jobs` processes (default: one per core) and yields findings as they end.

    If a process dies, the claims that were running are run again, one at a time; a claim that
    kills its process twice is reported as failed. Functions are sent to processes by name, so they
    must be defined at the top level of an importable module.
    """
    jobs = max(1, min(jobs or cores(), len(claims)))
    waiting = deque(claims)
    suspects = deque()
    while waiting or suspects:
        alone = not waiting
        queue, limit = (suspects, 1) if alone else (waiting, jobs)
        running: dict[Future, Claim] = {}
        with _pool(limit) as pool:
            try:
                while queue or running:
                    while queue and len(running) < limit:
                        claim = queue.popleft()
                        with _uninterrupted():
                            running[pool.submit(_work, claim, seed, scale)] = claim
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        verdict, error, seconds, missing = future.result()
                        yield Finding(
                            running.pop(future), verdict, error, seed, scale, seconds, missing
                        )
            except BrokenProcessPool:
                if alone:
                    (killer,) = running.values()
                    yield Finding(killer, None, DIED, seed, scale, 0.0)
                else:
                    suspects.extend(running.values())


def cores() -> int:
    """The number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


DIED = (
    "The process of this claim died twice; it may need more memory. In a script, call verify under "
    "`if __name__ == '__main__':`, because every process imports the script."
)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Processes started inside ignore Ctrl-C; the parent handles it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _pool(size: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of new CPU processes that share the compilation cache on disk.

    They are killed if the block is left by an exception.
    """
    before = set(active_children())
    pool = ProcessPoolExecutor(size, mp_context=get_context("spawn"), initializer=_start_worker)
    try:
        yield pool
        pool.shutdown()
    except BaseException:
        for child in set(active_children()) - before:
            child.kill()
        pool.shutdown(wait=False, cancel_futures=True)
        raise


def _start_worker() -> None:
    """Limits linear algebra to one thread, so that processes do not compete for cores."""
    threading.Thread(target=_exit_with_parent, name=PARENT_WATCH, daemon=True).start()
    threadpool_limits(1)
    jax.config.update("jax_platforms", "cpu")
    enable_compilation_cache()


def _exit_with_parent() -> None:
    """Ends this process when its parent is killed; otherwise it would wait forever."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _work(claim: Claim, seed: int, scale: Scale) -> tuple[Verdict | None, str, float, str]:
    finding = run_claim(claim, seed=seed, scale=scale)
    if next(_claims_run) % CLAIMS_PER_CLEANUP == 0:
        jax.clear_caches()
        gc.collect()
    return finding.verdict, finding.error, finding.seconds, finding.missing
