"""The machine, and its limits: the rates of a large matrix product and a large copy."""

import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

LIBRARIES = (
    "thetax",
    "jax",
    "jaxlib",
    "equinox",
    "optax",
    "orbax-checkpoint",
    "numpy",
    "scikit-learn",
    "torch",
)


class Limits(NamedTuple):
    """Operations and bytes per second, the best of several runs."""

    operations: float
    bytes: float


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe() -> dict[str, Any]:
    """Processor, memory, system, versions, and the accelerator if JAX uses one."""
    device = jax.devices()[0]
    description = {
        "cpu": _processor(),
        "cores": cores(),
        "memory GiB": _memory(),
        "os": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in LIBRARIES},
    }
    return (
        description
        if device.platform == "cpu"
        else {**description, "accelerator": device.device_kind}
    )


def measure() -> Limits:
    """The limits of JAX's device in float32, with all its cores.

    The copy is of 4 MiB, which fits into caches like the weights of a small network, so that the
    limit is not exceeded.
    """
    size = 2048
    a = jnp.ones((size, size))
    product = jax.jit(jnp.matmul)
    operations = 2 * size**3 / _fastest(lambda: product(a, a).block_until_ready(), 20)
    if jax.devices()[0].platform == "cpu":
        there = np.ones((size, size), np.float32)
        operations = max(operations, 2 * size**3 / _fastest(lambda: there @ there, 20))
    block = jnp.ones(2**20)
    copy = jax.jit(lambda x: x + 1)
    return Limits(
        operations, 2 * block.nbytes / _fastest(lambda: copy(block).block_until_ready(), 200)
    )


def _fastest(work: Callable[[], Any], tries: int) -> float:
    times = []
    for _ in range(tries + 1):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):
        return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
