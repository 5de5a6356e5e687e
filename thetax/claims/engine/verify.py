"""Running claims: each by itself, several at once, and no failure hides another."""

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
from multiprocessing import active_children, get_context, parent_process
from typing import Any
from zlib import crc32

import jax
import jax.random as jr
import scipy.linalg  # noqa: F401  its LAPACK, which JAX uses, must be here to be limited
from threadpoolctl import threadpool_limits

from ...core import remember_compilations
from ...data import Unavailable
from .check import Check
from .claim import Claim, Scale, Verdict
from .uses import unused

PRINTED = "printed form, must fail: "
WATCH = "ends with its parent"  # a thread of each worker


@dataclass(frozen=True)
class Finding:
    """A claim that was run: its verdict, or the trouble that kept it from one, or the data it could
    not have.
    """

    claim: Claim
    verdict: Verdict | None
    trouble: str
    seed: int
    scale: Scale
    seconds: float
    missing: str = ""

    @property
    def fails(self) -> bool:
        """Whether it was run and not seen to hold; for want of data it is neither."""
        return not self.holds and not self.missing

    @property
    def holds(self) -> bool:
        """Whether the claim was seen to hold; trouble is not that."""
        return self.verdict is not None and self.verdict.holds

    @property
    def checks(self) -> tuple[Check, ...]:
        """Everything that was compared, in order: assumptions, the printed form, the statement."""
        v = self.verdict
        return () if v is None else (*v.assumptions, *v.printed, *v.checks)

    @property
    def method(self) -> str:
        """How it was checked, in words."""
        words = dict.fromkeys(_method(check) for check in self.checks)
        return ", ".join(words) or ("no data" if self.missing else "failed")

    def as_json(self) -> dict[str, Any]:
        """The finding as JSON has it; measured, expected and tolerance are by the name of the
        check.

        `failed` names the checks that did not come out as they should: all are listed, a printed
        form that passes too.
        """
        named = self.named()
        told: dict[str, Any] = {
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
        said = {"trouble": self.trouble, "missing": self.missing}
        return told | {word: text for word, text in said.items() if text}

    def named(self) -> dict[str, Check]:
        """The checks by name, with what an assumption and a printed form are said to be; no two
        have the same.
        """
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


def settle(claim: Claim, *, seed: int = 0, scale: Scale = "quick") -> Finding:
    """Runs one claim here, in double precision; an exception becomes the finding's trouble.

    >>> from thetax.claims import find_claims
    >>> settle(find_claims("1.2-xor")[0]).holds
    True
    """
    began = time.monotonic()
    verdict, trouble, missing = _run(claim, seed, scale)
    return Finding(claim, verdict, trouble, seed, scale, time.monotonic() - began, missing)


def _run(claim: Claim, seed: int, scale: Scale) -> tuple[Verdict | None, str, str]:
    try:
        if names := unused(claim):
            raise ValueError(
                f"a claim uses what it is about; of= names {', '.join(names)}, which this one "
                "does not use."
            )
        with jax.enable_x64(True), jax.default_matmul_precision("highest"):
            key = jr.fold_in(jr.key(seed), crc32(claim.name.encode()))
            asked = {"scale": scale} if "scale" in signature(claim.function).parameters else {}
            verdict = claim.function(key, **asked)
        if not isinstance(verdict, Verdict):
            raise TypeError(
                f"a claim returns a Verdict of its checks; this one returned {verdict!r}."
            )
        if claim.kind == "erratum" and not verdict.printed:
            raise ValueError(
                "an erratum must show the printed form to fail; give Verdict its printed checks."
            )
        return verdict, "", ""
    except Unavailable as missing:
        return None, "", str(missing)
    except Exception:
        return None, traceback.format_exc(limit=-3).strip(), ""


def verify(
    claims: Sequence[Claim], *, seed: int = 0, scale: Scale = "quick", jobs: int | None = None
) -> Iterator[Finding]:
    """Runs the claims on `jobs` processes (as many as there are cores), yielding each finding as it
    comes.

    A process that dies takes nothing with it: the claims it may have died of are run again, each
    alone, and only the one that kills its process twice is reported as the killer. The functions
    are sent by name, so they must be at the top of an importable module.
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
                        verdict, trouble, seconds, missing = future.result()
                        yield Finding(
                            running.pop(future), verdict, trouble, seed, scale, seconds, missing
                        )
            except BrokenProcessPool:
                if alone:
                    (killer,) = running.values()
                    yield Finding(killer, None, DIED, seed, scale, 0.0)
                else:
                    suspects.extend(running.values())


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


DIED = (
    "Its process died, twice: it may need more memory. In a script, call verify under "
    "`if __name__ == '__main__':`, for every process imports the script anew."
)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """A process begun here does not hear Ctrl-C, which is for the one that waits for it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _pool(size: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes, on the CPU, which share the compiled programs on disk; left early, they are
    ended at once.
    """
    before = set(active_children())
    pool = ProcessPoolExecutor(size, mp_context=get_context("spawn"), initializer=_begin)
    try:
        yield pool
        pool.shutdown()
    except BaseException:
        for child in set(active_children()) - before:
            child.kill()
        pool.shutdown(wait=False, cancel_futures=True)
        raise


def _begin() -> None:
    """One thread of linear algebra a process: two libraries that both want every core wait for each
    other.
    """
    threading.Thread(target=_end_with_parent, name=WATCH, daemon=True).start()
    threadpool_limits(1)
    jax.config.update("jax_platforms", "cpu")
    remember_compilations()


def _end_with_parent() -> None:
    """A process whose parent was killed would wait for its next claim for ever."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _work(claim: Claim, seed: int, scale: Scale) -> tuple[Verdict | None, str, float, str]:
    finding = settle(claim, seed=seed, scale=scale)
    return finding.verdict, finding.trouble, finding.seconds, finding.missing
