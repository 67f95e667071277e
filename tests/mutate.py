"""Takes guarantees out, one at a time, and reports those whose loss no test notices.

`tests/mutations.toml` lists them: a file of `src/segue`, a text in it, what replaces it, and the
tests that must fail then. Each is applied to a copy of the tree, so the tree itself never changes.
`python -m tests.mutate [WORD …]` runs those whose name has one of the words.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIST = Path(__file__).with_name("mutations.toml")
# pytest's exit codes: tests failed; the rest means that no test ran as it should.
_FAILED = 1


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
        path.write_text(text.replace(self.find, self.replace), encoding="utf-8")


def load_mutations(path: Path = LIST) -> list[Mutation]:
    listed = tomllib.loads(path.read_text(encoding="utf-8"))["mutation"]
    return [Mutation(**{**each, "tests": tuple(each["tests"])}) for each in listed]


def is_caught(mutation: Mutation) -> bool:
    """Whether one of its tests fails with the guarantee taken out."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in ("src", "tests", "docs", "examples"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, root / name)
        mutation.apply(root)
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        ran = subprocess.run(  # noqa: S603 - our own tests
            [*command, *mutation.tests],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root / "src")},
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode not in (0, _FAILED):
            sys.stderr.write(ran.stdout[-2_000:])
            raise RuntimeError(f"{mutation.name}: its tests did not run: {ran.returncode}")
        return ran.returncode == _FAILED


def main(words: list[str]) -> int:
    chosen = [m for m in load_mutations() if not words or any(word in m.name for word in words)]
    survivors = []
    for number, mutation in enumerate(chosen, 1):
        caught = is_caught(mutation)
        survivors += [] if caught else [mutation.name]
        verdict = "caught" if caught else "SURVIVED"
        sys.stdout.write(f"{number}/{len(chosen)} {verdict}: {mutation.name}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(chosen) - len(survivors)} caught, {len(survivors)} survived\n")
    return 1 if survivors or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
