"""Running claims: each by itself, several at once, and no failure hides another."""

import os
import signal
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from inspect import signature
from multiprocessing import get_context
from typing import Any
from zlib import crc32

import jax
import jax.random as jr
import scipy.linalg  # noqa: F401  its LAPACK, which JAX uses, must be here to be limited
from threadpoolctl import threadpool_limits

from ..core import remember_compilations
from .check import Check
from .claim import Claim, Scale, Verdict


@dataclass(frozen=True)
class Finding:
    """A claim that was run: its verdict, or the trouble that kept it from one."""

    claim: Claim
    verdict: Verdict | None
    trouble: str
    seed: int
    scale: Scale
    seconds: float

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
        return ", ".join(words) or "failed"

    def as_json(self) -> dict[str, Any]:
        """The finding as JSON has it; measured, expected and tolerance are by the name of the check."""
        told: dict[str, Any] = {
            "ids": list(self.claim.ids),
            "title": self.claim.title,
            "kind": self.claim.kind,
            "holds": self.holds,
            "method": self.method,
            "measured": {check.name: check.measured for check in self.checks},
            "expected": {check.name: check.expected for check in self.checks},
            "tolerance": {check.name: check.tolerance for check in self.checks if check.tolerance is not None},
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
        }
        return told | ({"trouble": self.trouble} if self.trouble else {})


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
    verdict, trouble = _run(claim, seed, scale)
    return Finding(claim, verdict, trouble, seed, scale, time.monotonic() - began)


def _run(claim: Claim, seed: int, scale: Scale) -> tuple[Verdict | None, str]:
    try:
        with jax.enable_x64(True), jax.default_matmul_precision("highest"):
            key = jr.fold_in(jr.key(seed), crc32(claim.name.encode()))
            asked = {"scale": scale} if "scale" in signature(claim.function).parameters else {}
            verdict = claim.function(key, **asked)
        if claim.kind == "erratum" and not verdict.printed:
            raise ValueError("an erratum must show the printed form to fail; give Verdict its printed checks.")
        return verdict, ""
    except Exception:
        return None, traceback.format_exc(limit=-3).strip()


def verify(
    claims: Sequence[Claim], *, seed: int = 0, scale: Scale = "quick", jobs: int | None = None
) -> Iterator[Finding]:
    """Runs the claims on `jobs` processes (as many as there are cores), yielding each finding as it comes.

    A process that dies takes nothing with it: the claims it may have died of are run again, each alone, and only
    the one that kills its process twice is reported as the killer. The functions are sent by name, so they must
    be at the top of an importable module.
    """
    jobs = max(1, min(jobs or len(os.sched_getaffinity(0)), len(claims)))
    waiting, suspects = deque(claims), deque()
    while waiting or suspects:
        alone = not waiting
        queue, limit = (suspects, 1) if alone else (waiting, jobs)
        running: dict[Future, Claim] = {}
        with _pool(limit) as pool:
            try:
                while queue or running:
                    while queue and len(running) < limit:
                        claim = queue.popleft()
                        running[pool.submit(_work, claim, seed, scale)] = claim
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        verdict, trouble, seconds = future.result()
                        yield Finding(running.pop(future), verdict, trouble, seed, scale, seconds)
            except BrokenProcessPool:
                if alone:
                    (killer,) = running.values()
                    yield Finding(killer, None, "Its process died, twice; it may need more memory.", seed, scale, 0.0)
                else:
                    suspects.extend(running.values())


def _pool(size: int) -> ProcessPoolExecutor:
    """Fresh processes, on the CPU, which share the compiled programs on disk."""
    return ProcessPoolExecutor(size, mp_context=get_context("spawn"), initializer=_begin)


def _begin() -> None:
    """One thread of linear algebra a process: two libraries that both want every core wait for each other."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threadpool_limits(1)
    jax.config.update("jax_platforms", "cpu")
    remember_compilations()


def _work(claim: Claim, seed: int, scale: Scale) -> tuple[Verdict | None, str, float]:
    finding = settle(claim, seed=seed, scale=scale)
    return finding.verdict, finding.trouble, finding.seconds
