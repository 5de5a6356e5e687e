"""Free memory of the device that holds the arrays."""

import os

import jax


def free_memory() -> int:
    """Free bytes on the first device; on a CPU, the available memory of the machine."""
    device = jax.devices()[0]
    if device.platform == "cpu":
        return _available()
    stats = device.memory_stats() or {}
    return stats.get("bytes_limit", 0) - stats.get("bytes_in_use", 0) or _available()


def _available() -> int:
    try:
        with open("/proc/meminfo") as file:
            return next(
                1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable")
            )
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def expect_memory(name: str, size: int | float, advice: str) -> None:
    """Raises `ValueError` if `size` bytes are more than the free memory."""
    free = free_memory()
    if size > free:
        raise ValueError(
            f"{name}: it needs {format_bytes(size)} of memory, but {format_bytes(free)} are free; "
            f"{advice}."
        )


def format_bytes(size: int | float) -> str:
    """A number of bytes as text, with a unit.

    >>> format_bytes(512), format_bytes(3.2e6), format_bytes(4e12)
    ('512 B', '3.2 MB', '4,000.0 GB')
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size:.0f} B"
