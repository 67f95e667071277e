"""Takes guarantees out, one at a time, and reports those whose loss no test notices.

`tests/mutations.toml` lists them: a file of `src/segue`, a text in it, what replaces it, and the
tests that must fail then. Each is applied to a copy of the tree, so the tree itself never changes.
`python -m tests.mutate [WORD …]` runs those whose name has one of the words. Verdicts are kept in
`.mutate` until the tree changes: after an interruption, only the rest runs.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
LIST = Path(__file__).with_name("mutations.toml")
# On the file system of the tree, so that copies are hard links.
WORK = ROOT / ".mutate"
_COPIED = ("src", "tests", "docs", "examples", "pyproject.toml", "README.md")
_AT_ONCE = 2
# Seconds; a mutation may make a test wait for ever, and a test that hangs fails.
_PER_TEST, _PER_RUN = "120", 1_800
_PASSED, _FAILED = 0, 1  # pytest's exit codes; with all others no test ran as it should
CAUGHT, SURVIVED, BROKEN, PASSED = "caught", "SURVIVED", "NOT RUN", "passed"
UNCHANGED = "(nothing taken out: all tests that are named below)"


@dataclass(frozen=True, slots=True)
class Mutation:
    """A guarantee, how to take it out, and the tests that keep it."""

    name: str
    file: str
    find: str
    replace: str
    tests: tuple[str, ...]

    def apply(self, root: Path) -> None:
        """Change the file below `root`; `ValueError` if its text is not there exactly once."""
        path = root / "src/segue" / self.file
        text = path.read_text(encoding="utf-8")
        if (count := text.count(self.find)) != 1:
            raise ValueError(f"{self.name}: the text is in {self.file} {count} times, not once.")
        path.unlink()  # a new file: the old one may be a link to the tree's own
        path.write_text(text.replace(self.find, self.replace), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a mutation, how long its tests took, and the end of their output."""

    verdict: str
    seconds: float
    output: str


def load_mutations(path: Path = LIST) -> list[Mutation]:
    listed = tomllib.loads(path.read_text(encoding="utf-8"))["mutation"]
    return [Mutation(**{**each, "tests": tuple(each["tests"])}) for each in listed]


@contextmanager
def copied_tree() -> Iterator[Path]:
    """A copy of hard links, with byte code: Python replaces files and never writes into them."""
    WORK.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=WORK) as folder:
        root = Path(folder)
        for name in _COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, root / name, copy_function=os.link)
            else:
                (root / name).hardlink_to(source)
        yield root


def try_mutation(mutation: Mutation) -> Result:
    with copied_tree() as root:
        try:
            mutation.apply(root)
        except ValueError as error:
            return Result(BROKEN, 0, str(error))
        return run_tests(root, mutation.tests)


def try_unchanged(mutations: list[Mutation]) -> Result:
    """Run all named tests with nothing taken out: one that fails then proves nothing."""
    with copied_tree() as root:
        result = run_tests(root, tuple({test: None for m in mutations for test in m.tests}))
    return replace(result, verdict=PASSED if result.verdict == SURVIVED else BROKEN)


def run_tests(root: Path, tests: tuple[str, ...]) -> Result:
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    environment = {
        **os.environ,
        "PYTHONPATH": str(root / "src"),
        "SEGUE_TEST_SECONDS": os.environ.get("SEGUE_TEST_SECONDS", _PER_TEST),
    }
    try:
        ran = subprocess.run(  # noqa: S603 - our own tests
            command,
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_PER_RUN,
            check=False,
        )
        verdict = {_PASSED: SURVIVED, _FAILED: CAUGHT}.get(ran.returncode, BROKEN)
        output = ran.stdout[-2_000:]
    except subprocess.TimeoutExpired:
        verdict, output = BROKEN, f"It took more than {_PER_RUN} s."
    return Result(verdict, round(time.monotonic() - began, 1), output)


def digest_of_tree() -> str:
    """Of all that a verdict depends on, but for what is installed."""
    digest = hashlib.sha256()
    for folder in ("src", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


class Results:
    """Results by name, kept in a file for the same tree."""

    def __init__(self, path: Path, tree: str) -> None:
        self._path = path
        self._tree = tree
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        found = kept.get("results", {}) if kept.get("tree") == tree else {}
        self.found = {name: Result(**each) for name, each in found.items()}

    def add(self, name: str, result: Result) -> None:
        self.found[name] = result
        kept = {name: asdict(each) for name, each in self.found.items()}
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text(json.dumps({"tree": self._tree, "results": kept}), encoding="utf-8")


def main(words: list[str]) -> int:
    chosen = [m for m in load_mutations() if not words or any(word in m.name for word in words)]
    results = Results(WORK / "results.json", digest_of_tree())
    # Those that are asked for by name run again.
    left = [m for m in chosen if words or m.name not in results.found]
    _print(f"{len(chosen) - len(left)} verdicts are known, {len(left)} to go.")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        running = {pool.submit(try_mutation, mutation): mutation.name for mutation in left}
        unchanged = pool.submit(try_unchanged, left) if left else None
        for number, done in enumerate(as_completed(running), 1):
            name, result = running[done], done.result()
            results.add(name, result)
            _print(f"{number}/{len(left)} {result.verdict} {result.seconds:.0f} s: {name}")
    found = {mutation.name: results.found[mutation.name] for mutation in chosen}
    return report({**({UNCHANGED: unchanged.result()} if unchanged else {}), **found})


def report(found: dict[str, Result]) -> int:
    """Print what was not caught with its output, then a table; the exit code."""
    for name, result in found.items():
        if result.verdict in (SURVIVED, BROKEN):
            _print(f"\n== {result.verdict}: {name}\n{result.output}")
    _print("\nverdict    seconds  guarantee")
    for name, result in sorted(found.items(), key=lambda each: -each[1].seconds):
        _print(f"{result.verdict:9}  {result.seconds:7.0f}  {name}")
    counts = Counter(result.verdict for result in found.values())
    _print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 1 if not found or counts[SURVIVED] or counts[BROKEN] else 0


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
