"""The errors: one root, few kinds, stable codes."""

import inspect

import pytest

from segue import errors
from segue.errors import (
    AnswerNeeded,
    BackendError,
    ConflictError,
    DeniedError,
    MetadataError,
    NotFoundError,
    OptedOut,
    ReplyCancelled,
    SegueError,
    UnknownTrigger,
    UsageError,
)

CODES = {
    SegueError: "error",
    UsageError: "usage",
    MetadataError: "metadata",
    UnknownTrigger: "unknown_trigger",
    OptedOut: "opted_out",
    NotFoundError: "not_found",
    ConflictError: "conflict",
    DeniedError: "denied",
    AnswerNeeded: "answer_needed",
    ReplyCancelled: "cancelled",
    BackendError: "backend",
}


def defined_errors() -> set[type[Exception]]:
    members = vars(errors).values()
    return {m for m in members if inspect.isclass(m) and issubclass(m, Exception)}


def test_every_error_has_the_code_that_programs_know_it_by() -> None:
    """Codes are part of the interface: none changes, none is shared, none is missing."""
    assert {error: vars(error)["code"] for error in defined_errors()} == CODES
    assert len(set(CODES.values())) == len(CODES)


@pytest.mark.parametrize("error", CODES)
def test_one_except_clause_catches_everything_raised_on_purpose(error: type[SegueError]) -> None:
    """All errors share one root, and the text given is the text shown."""
    with pytest.raises(SegueError, match=r"^Batch 7 is gone\.$"):
        raise error("Batch 7 is gone.")


@pytest.mark.parametrize("error", [MetadataError, UnknownTrigger])
def test_wrong_metadata_and_unknown_triggers_are_usage_errors(error: type[SegueError]) -> None:
    """Whoever handles wrong input handles these too."""
    assert issubclass(error, UsageError)


def test_wrong_input_and_missing_things_are_what_python_calls_them() -> None:
    """Code that knows nothing of Segue can catch `ValueError` and `LookupError`."""
    assert issubclass(UsageError, ValueError)
    assert issubclass(NotFoundError, LookupError)


def test_the_module_draws_every_error_under_its_parent() -> None:
    """The tree in the module's docstring is the tree of the classes."""
    drawn: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        name = line.lstrip(" │├└─").split(" ")[0]
        if not (line.startswith("    ") and hasattr(errors, name)):
            continue
        depth = line.index(name)
        path = [(d, n) for d, n in path if d < depth]
        drawn[name] = path[-1][1] if path else ""
        path.append((depth, name))
    parents = {e.__name__: e.__bases__[0].__name__ for e in defined_errors() - {SegueError}}
    assert drawn == parents | {"SegueError": ""}
