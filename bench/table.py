"""Prints the machine, the work of each subject, and a table of its results."""

from typing import Any

from rich.console import Console
from rich.table import Table

from .machine import Limits
from .row import Result, Row


def show_machine(console: Console, machine: dict[str, Any]) -> None:
    """A line of hardware and a line of versions."""
    parts = [
        machine["cpu"],
        f"{machine['cores']} cores",
        f"{machine['memory GiB']} GiB",
        machine["os"],
    ]
    console.print(
        ", ".join(parts + [machine[k] for k in ("accelerator",) if k in machine]), highlight=False
    )
    versions = {"python": machine["python"], **machine["versions"]}
    console.print(
        "  ".join(f"{name} {value}" for name, value in versions.items() if value), style="dim"
    )


def show_work(
    console: Console, name: str, description: str, rows: list[Row], limits: Limits
) -> None:
    """The work of a subject, and its least possible time on this machine."""
    console.rule(f"[bold]{name}", align="left")
    console.print(description, highlight=False)
    works = {row.name: row for row in rows if row.work is not None}
    if works:
        console.print(
            f"limits: {limits.operations / 1e9:.0f} GFLOP/s, {limits.bytes / 1e9:.0f} GB/s",
            highlight=False,
        )
    for row in works.values():
        assert row.work is not None
        least = row.work.floor(*limits) / row.seconds
        size = f"{row.work.operations / 1e6:.3g} MFLOP and {row.work.bytes / 1e6:.3g} MB"
        console.print(f"  {row.name}: {size}, no less than {least:.3g} {row.unit}", highlight=False)


def show_results(console: Console, results: list[Result], limits: Limits) -> None:
    """A row per comparison; `of limit` is the least possible time divided by ours."""
    table = Table(pad_edge=False)
    for title in ("name", "peer"):
        table.add_column(title)
    for title in ("ours", "theirs", "unit", "ratio", "spread", "target", "of limit"):
        table.add_column(title, justify="right", no_wrap=True)
    for result in results:
        numbers = [
            _number(result.ours),
            _number(result.theirs),
            result.row.unit,
            _number(result.ratio),
        ]
        table.add_row(
            result.row.name,
            result.row.peer,
            *numbers,
            _number(result.spread),
            _verdict(result),
            _share(result, limits),
        )
    console.print(table)
    for result in results:
        text = result.row.remark(result) if result.ratio is not None else result.error
        if text:
            console.print(
                f"{result.row.name}, {result.row.peer}: {text}", highlight=False, markup=False
            )


def summary(result: Result) -> str:
    """A result in one line."""
    if result.error:
        return result.error
    return (
        f"{_number(result.ours)} to {_number(result.theirs)} {result.row.unit}, ratio "
        f"{_number(result.ratio)}"
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _verdict(result: Result) -> str:
    if result.row.target is None:
        return ""
    target = f"{result.row.target:.3g}"
    if result.ratio is None:
        return target
    return (
        f"[green]{target} met[/]"
        if result.ratio >= result.row.target
        else f"[yellow]{target} missed[/]"
    )


def _share(result: Result, limits: Limits) -> str:
    if result.row.work is None or result.ours is None:
        return ""
    return f"{100 * result.row.work.floor(*limits) / (result.ours * result.row.seconds):.0f} %"
