"""Timing a function and printing a table.

A machine is rarely idle, so each figure is the best of several rounds, and what counts is the ratio
to a peer measured in the same minute.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass


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


def micros(function: Callable[[], object], units: int = 1, rounds: int = 7) -> float:
    """Microseconds per unit of work, best of `rounds`, each at least 50 ms long."""
    repeat = 1
    while _elapsed(function, repeat) < 0.05:
        repeat *= 2
    return min(_elapsed(function, repeat) for _ in range(rounds)) / repeat / units * 1e6


def print_table(title: str, rows: list[Row]) -> None:
    header = ("what", "µs", "peer, µs", "ratio")
    cells = [header, *(row.cells() for row in rows)]
    widths = [max(len(row[n]) for row in cells) for n in range(4)]
    print(f"\n{title}\n")
    for index, row in enumerate(cells):
        print("| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |")
        if index == 0:
            print("|" + "|".join("-" * (w + 2) for w in widths) + "|")


def _elapsed(function: Callable[[], object], repeat: int) -> float:
    start = time.perf_counter()
    for _ in range(repeat):
        function()
    return time.perf_counter() - start
