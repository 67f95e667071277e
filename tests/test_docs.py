"""What the documents show really happens."""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import segue

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "docs" / "library.md"]
BLOCKS = re.compile(r"^```(python|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run(page: Path) -> list[tuple[str, str]]:
    """Run a page's programs in order, and pair what each printed with the page's next text."""
    printed: list[tuple[str, str]] = []
    scope: dict[str, Any] = {}
    output = ""
    for kind, block in BLOCKS.findall(page.read_text(encoding="utf-8")):
        if kind == "python":
            buffer = StringIO()
            with redirect_stdout(buffer):
                exec(compile(block, str(page), "exec"), scope)  # noqa: S102  # our own pages
            output = buffer.getvalue()
        elif output:
            printed.append((output, block))
            output = ""
    return printed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_program_of_a_page_runs(page: Path) -> None:
    """A reader who copies a page's programs gets no error, and the output the page shows."""
    shown = run(page)
    assert [output for output, _ in shown] == [text for _, text in shown]


def test_the_readme_shows_its_output() -> None:
    """The page that is read first has programs with output to compare."""
    assert len(run(ROOT / "README.md")) == 2


def test_the_readme_can_be_read_in_one_sitting() -> None:
    """At most 150 lines."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_reference_names_everything_public() -> None:
    """A name that can be imported is on the page that lists them."""
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert [name for name in segue.__all__ if f"`{name}" not in page] == []
