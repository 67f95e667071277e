"""The contract itself: it leaves no method out, and no behaviour hides another."""

import ast
import importlib
from collections import Counter
from functools import cache
from pathlib import Path

from segue.journal.journal import Journal
from segue.testing import journal_contract

NOUNS = sorted(path.stem for path in Path(journal_contract.__file__).parent.glob("[!_]*.py"))
# Each store has its own way of opening, and its own tests of it.
OPENING = {"open", "close"}


@cache
def tree_of(noun: str) -> ast.Module:
    module = importlib.import_module(f"{journal_contract.__name__}.{noun}")
    return ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))


def behaviours_in(noun: str) -> list[ast.AsyncFunctionDef]:
    return [
        node
        for node in tree_of(noun).body
        if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]


def test_no_behaviour_hides_another() -> None:
    """A star import keeps one of two tests with the same name, so no name is used twice."""
    names = Counter(node.name for noun in NOUNS for node in behaviours_in(noun))
    assert [name for name, times in names.items() if times > 1] == []
    assert {name for name in vars(journal_contract) if name.startswith("test_")} == set(names)


def test_every_step_of_the_journal_is_tried() -> None:
    """Each method of the contract is called by some behaviour."""
    called = {
        node.attr
        for noun in NOUNS
        for node in ast.walk(tree_of(noun))
        if isinstance(node, ast.Attribute)
    }
    steps = {name for name in dir(Journal) if not name.startswith("_")}
    assert sorted(steps - called - OPENING) == []


def test_every_behaviour_is_said_in_one_sentence() -> None:
    """A store's author reads in the docstring what is expected."""
    for node in (node for noun in NOUNS for node in behaviours_in(noun)):
        sentence = ast.get_docstring(node) or ""
        assert sentence.endswith("."), node.name
        assert "\n" not in sentence, node.name
