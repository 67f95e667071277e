"""Where custom code failed: the log has the place, and never the text."""

from pathlib import Path
from types import FunctionType

import httpx
import pytest

from segue.core.triggers import parse_trigger
from segue.errors import UsageError
from segue.runtime.model_failures import describe_fault, place_of

WORDS = "She sounded sad about the cat."


def own_code() -> None:
    raise ValueError(WORDS)


def calling_a_library() -> None:
    httpx.URL(5)  # type: ignore[arg-type]  # what makes it fail


def calling_segue() -> None:
    parse_trigger(WORDS)


@pytest.mark.parametrize(
    ("failing", "kind"),
    [(own_code, "ValueError"), (calling_a_library, "TypeError"), (calling_segue, "UnknownTrigger")],
)
def test_the_place_is_the_authors_innermost_line(failing: FunctionType, kind: str) -> None:
    """Also where a library or Segue raised it, since the mistake is in what called them."""
    line = failing.__code__.co_firstlineno + 1
    with pytest.raises(Exception) as raised:  # noqa: PT011 - any of them
        failing()
    place = f"{Path(__file__)}:{line} in {failing.__name__}"
    assert place_of(raised.value) == place
    assert describe_fault(raised.value) == f"{kind} at {place}"
    assert WORDS not in describe_fault(raised.value)


def test_an_error_that_was_passed_on_is_told_by_its_cause() -> None:
    """What Segue raises in its place has no line of the author's, the first error has."""
    passed_on = UsageError("It failed.")
    try:
        own_code()
    except ValueError as error:
        passed_on.__cause__ = error
    assert "in own_code" in (place_of(passed_on) or "")


def test_what_no_author_wrote_has_no_place() -> None:
    """Then the type alone is told."""
    assert place_of(ValueError(WORDS)) is None
    assert describe_fault(ValueError(WORDS)) == "ValueError"
