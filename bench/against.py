"""Two checkouts next to each other: `python -m bench.against OTHER [module …] [--rounds N]`.

Runs each benchmark here and in the folder OTHER by turns, each with its own `.venv`, and compares
the rows that both print. Rounds alternate, so a slow minute slows both. A figure is the best of its
rounds, since other work on the machine only ever makes it worse.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

from bench.table import print_columns

MODULES = ("core", "journal", "agent", "memory", "runtime", "server", "transfer", "compression")
_FIGURE = re.compile(r"(?:[\w ,.]+: )?([\d,]*\.?\d+) ?(?:%|ms|s|µs|[kM]B)?")
_LABELS = frozenset({"store", "threads", "turn", "what", "text", "words"})
_RATE = re.compile(r"/s\b|per second")

Key = tuple[str, str, str]


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.against")
    parser.add_argument("other", type=Path)
    parser.add_argument("modules", nargs="*", default=MODULES)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    here = Path(__file__).parent.parent
    for module in given.modules:
        before: list[dict[Key, float]] = []
        after: list[dict[Key, float]] = []
        for number in range(given.rounds):
            sides = [(given.other, before), (here, after)]
            for folder, figures in sides if number % 2 else reversed(sides):
                figures.append(parse_tables(run(folder, module)))
        rows = compare(before, after)
        print_columns(f"bench.{module}", ("table", "row", "figure", "other", "here", "x"), rows)


def run(folder: Path, module: str) -> str:
    command = [str(folder.resolve() / ".venv/bin/python"), "-m", *f"bench.{module}".split()]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603 - our own benchmarks
    if done.returncode:
        sys.exit(f"bench.{module} failed in {folder}:\n{done.stderr[-2_000:]}")
    return done.stdout


def parse_tables(output: str) -> dict[Key, float]:
    """The figures of all tables, by title, row and column."""
    figures: dict[Key, float] = {}
    title, header = "", list[str]()
    for line in output.splitlines():
        if not line.startswith("|"):
            title, header = line.strip() or title, []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not header:
            header = cells
            continue
        row = " ".join(cell for name, cell in zip(header, cells, strict=True) if name in _LABELS)
        for name, cell in zip(header, cells, strict=True):
            found = _FIGURE.fullmatch(cell)
            if found and name not in _LABELS and name != "ratio" and not name.startswith("x "):
                figures[title, row, name] = float(found[1].replace(",", ""))
    return figures


def compare(before: list[dict[Key, float]], after: list[dict[Key, float]]) -> list[list[str]]:
    rows = []
    for key in before[0]:
        if all(key in figures for figures in (*before, *after)):
            best = max if _RATE.search(" ".join(key)) else min
            old, new = (best(figures[key] for figures in side) for side in (before, after))
            ratio = f"{new / old:.2f}" if old else ""
            rows.append([key[0][:40], key[1], key[2], f"{old:,.2f}", f"{new:,.2f}", ratio])
    return rows


if __name__ == "__main__":
    main()
