"""The traceability matrix names tests that exist, and leaves nothing out."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MATRIX = ROOT / "docs" / "requirements.md"
PARTS = {"core", "journal", "agent", "runtime", "server", "lifecycle"}
BUILT = {"core", "journal", "agent", "runtime", "server"}
CONTRACT = ROOT / "src" / "segue" / "testing" / "journal_contract"

Row = tuple[str, str, str, str]


def read_rows() -> list[Row]:
    rows = []
    for line in MATRIX.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 4 and cells[0] != "id" and not set(cells[0]) <= {"-"}:
            rows.append((cells[0], cells[1], cells[2], cells[3]))
    return rows


ROWS = read_rows()


@cache
def named_tests(path: Path) -> set[str]:
    """The tests of a file that pytest runs: by its name, or because the contract brings them."""
    if not path.name.startswith("test_") and path.parent != CONTRACT:
        return set()
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    names = {node.name for node in nodes if isinstance(node, functions)}
    return {name for name in names if name.startswith("test_")}


def broken_references(proof: str) -> list[str]:
    broken = []
    for reference in re.findall(r"`([^`]+)`", proof):
        file, _, name = reference.partition("::")
        path = ROOT / file
        if not path.is_file() or (name and name not in named_tests(path)):
            broken.append(reference)
    return broken


def test_every_id_is_listed_once() -> None:
    """A requirement has one row, so that its proof is found in one place."""
    ids = [row[0] for row in ROWS]
    assert len(ids) > 600
    assert sorted(ids) == sorted(set(ids))


def test_no_numbered_requirement_is_missing() -> None:
    """Every functional requirement and success criterion of the specification has a row."""
    ids = " ".join(row[0] for row in ROWS)
    numbered = [f"FR-{n:03}" for n in range(1, 11)] + [f"SC-{n:03}" for n in range(1, 9)]
    assert [name for name in numbered if name not in ids] == []


def test_every_row_names_a_part() -> None:
    """A requirement belongs to one of the parts of the system."""
    assert {row[2] for row in ROWS} <= PARTS


def test_every_named_test_exists() -> None:
    """No row points to a test that was renamed or never written."""
    broken = {row[0]: found for row in ROWS if (found := broken_references(row[3]))}
    assert broken == {}


def test_every_requirement_of_a_built_part_is_proven() -> None:
    """A built part has no row without a test, unless the design replaced the requirement."""
    unproven = [
        row[0]
        for row in ROWS
        if row[2] in BUILT and "`" not in row[3] and not row[3].startswith("superseded: ")
    ]
    assert unproven == []


def test_every_requirement_of_a_later_part_says_so() -> None:
    """A row without a proof says that its part is not built, and nothing else."""
    vague = [
        row[0]
        for row in ROWS
        if row[2] not in BUILT
        and row[3] != "not built yet"
        and "`" not in row[3]
        and not row[3].startswith("superseded: ")
    ]
    assert vague == []


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_the_contract_runs_over_both_databases(database: str) -> None:
    """A row that names a test of the contract is proven twice."""
    file = ROOT / "tests" / "journal" / f"test_contract_{database}.py"
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    brought = [
        node.module
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
    ]
    assert brought == [".".join(CONTRACT.relative_to(ROOT / "src").parts)]


@pytest.mark.parametrize(
    "proof",
    [
        "`tests/test_requirements.py::test_gone`",
        "`tests/core/test_gone.py::test_x`",
        "`tests/test_requirements.py::read_rows`",
        "`tests/journal/racers.py::racers`",
        "`src/segue/testing/journal_contract/chat.py::begin`",
        "`src/segue/testing/journal_contract/turns.py::test_gone`",
    ],
)
def test_a_wrong_reference_is_noticed(proof: str) -> None:
    """The check can fail: a missing file, a missing test and what is no test are all found."""
    assert broken_references(proof) == [proof.strip("`")]
