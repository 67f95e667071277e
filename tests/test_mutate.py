"""The list of mutations fits the tree: a guarantee that moved is not silently skipped."""

from pathlib import Path

import pytest

from tests.mutate import CAUGHT, ROOT, Mutation, Result, Results, load_mutations

# Its tests are run by the files that import them, one for each database.
CONTRACT = [*(ROOT / "src/segue/testing/journal_contract").glob("*.py")]


def test_every_mutation_can_be_applied_and_names_tests_that_exist(tmp_path: Path) -> None:
    """Its text is in its file once, it changes something, and its tests are there."""
    mutations = load_mutations()
    assert len({mutation.name for mutation in mutations}) == len(mutations) >= 40
    for mutation in mutations:
        target = tmp_path / "src/segue" / mutation.file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((ROOT / "src/segue" / mutation.file).read_text(encoding="utf-8"))
        mutation.apply(tmp_path)
        assert mutation.find != mutation.replace
        for test in mutation.tests:
            path, _, name = test.partition("[")[0].partition("::")
            texts = [path.read_text(encoding="utf-8") for path in (ROOT / path, *CONTRACT)]
            assert not name or any(f"def {name}(" in text for text in texts), test


def test_a_text_that_is_not_there_once_is_refused(tmp_path: Path) -> None:
    """Otherwise a mutation might change nothing, or more than it says."""
    target = tmp_path / "src/segue/a.py"
    target.parent.mkdir(parents=True)
    target.write_text("x = 1\nx = 1\n")
    for text in ("x = 1", "y = 1"):
        with pytest.raises(ValueError, match="not once"):
            Mutation("m", "a.py", text, "", ()).apply(tmp_path)


def test_a_copy_of_links_is_changed_without_its_tree(tmp_path: Path) -> None:
    """A guarantee is taken out of the copy only."""
    source, target = tmp_path / "a.py", tmp_path / "src/segue/a.py"
    target.parent.mkdir(parents=True)
    source.write_text("x = 1\n")
    target.hardlink_to(source)
    Mutation("m", "a.py", "1", "2", ()).apply(tmp_path)
    assert (source.read_text(), target.read_text()) == ("x = 1\n", "x = 2\n")


def test_verdicts_are_known_until_the_tree_changes(tmp_path: Path) -> None:
    """An interrupted run goes on where it was, and no verdict of other code is believed."""
    path, result = tmp_path / "work" / "results.json", Result(CAUGHT, 1.5, "1 failed")
    Results(path, "one tree").add("m", result)
    assert Results(path, "one tree").found == {"m": result}
    assert Results(path, "another tree").found == {}
