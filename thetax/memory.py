"""How much memory is free where arrays are made."""

import os

import jax


def free_memory() -> int:
    """Bytes that are free on the first device; on a CPU, what the machine says it can give."""
    device = jax.devices()[0]
    if device.platform == "cpu":
        return _available()
    told = device.memory_stats() or {}
    return told.get("bytes_limit", 0) - told.get("bytes_in_use", 0) or _available()


def _available() -> int:
    try:
        with open("/proc/meminfo") as file:
            return next(
                1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable")
            )
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def expect_room(name: str, size: int | float, cure: str) -> None:
    """Refuses what takes more memory than is free."""
    if size > (room := free_memory()):
        raise ValueError(
            f"{name}: it takes {in_bytes(size)}, and {in_bytes(room)} are free; {cure}."
        )


def in_bytes(count: int | float) -> str:
    """A count of bytes, to be read.

    >>> in_bytes(512), in_bytes(3.2e6), in_bytes(4e12)
    ('512 B', '3.2 MB', '4,000.0 GB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:.0f} B"
