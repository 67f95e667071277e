"""Timing work and printing tables.

A machine is rarely idle. Pure functions are timed as the best of several rounds. Work on a database
is timed as a median, and what is compared takes turns: a slow minute then slows all of it, and what
counts is the ratio.
"""

import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

T = TypeVar("T")
Work = Callable[[], Awaitable[object]]

SCALE = float(os.environ.get("SEGUE_BENCH_SCALE", "1"))

_BEGAN = time.perf_counter()


@dataclass(frozen=True)
class Row:
    what: str
    micros: float
    peer: str = ""
    peer_micros: float | None = None

    def cells(self) -> tuple[str, str, str, str]:
        if self.peer_micros is None:
            return self.what, f"{self.micros:,.2f}", self.peer, ""
        ratio = self.micros / self.peer_micros
        return (
            self.what,
            f"{self.micros:,.2f}",
            f"{self.peer}: {self.peer_micros:,.2f}",
            f"{ratio:.2f}",
        )


def scaled(size: int, least: int) -> int:
    """A size for this run: `SEGUE_BENCH_SCALE` makes all of them smaller for a quick look."""
    return max(least, int(size * SCALE))


def micros(function: Callable[[], object], units: int = 1, rounds: int = 7) -> float:
    """Microseconds per unit of work, best of `rounds`, each at least 50 ms long."""
    repeat = 1
    while _elapsed(function, repeat) < 0.05:
        repeat *= 2
    return min(_elapsed(function, repeat) for _ in range(rounds)) / repeat / units * 1e6


async def medians(
    *works: Work, rounds: int = 60, seconds: float = 10.0, between: Work | None = None
) -> list[float]:
    """The median milliseconds of each work. They take turns, at least three times and not much
    longer than `seconds`; `between` makes good what a round has used up.
    """
    times: list[list[float]] = [[] for _ in works]
    start = time.perf_counter()
    for number in range(rounds):
        if number >= 3 and time.perf_counter() - start > seconds:
            break
        for work, taken in rotated(list(zip(works, times, strict=True)), number):
            began = time.perf_counter()
            await work()
            taken.append(time.perf_counter() - began)
        if between:
            await between()
    return [median(taken) * 1_000 for taken in times]


def rotated(items: list[T], by: int) -> list[T]:
    """The items, another one first in every round: what comes before leaves its mark on caches."""
    start = by % len(items)
    return items[start:] + items[:start]


def progress(what: str) -> None:
    print(f"{time.perf_counter() - _BEGAN:4.0f} s  {what}", file=sys.stderr, flush=True)


def print_table(title: str, rows: list[Row]) -> None:
    print_columns(title, ("what", "µs", "peer, µs", "ratio"), [row.cells() for row in rows])


def print_columns(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    cells = [header, *rows]
    widths = [max(len(row[n]) for row in cells) for n in range(len(header))]
    print(f"\n{title}\n")
    for index, row in enumerate(cells):
        print("| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |")
        if index == 0:
            print("|" + "|".join("-" * (w + 2) for w in widths) + "|")
    sys.stdout.flush()


def _elapsed(function: Callable[[], object], repeat: int) -> float:
    start = time.perf_counter()
    for _ in range(repeat):
        function()
    return time.perf_counter() - start
