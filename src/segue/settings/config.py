"""What all sections of settings have in common: checked when they are created, never changed."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from segue.core.durations import Duration
from segue.errors import UsageError
from segue.settings.schema import Mistake, find_mistakes


def _as_list(given: Any) -> Any:
    """Split a text at its commas, as the environment writes a list."""
    return [each.strip() for each in given.split(",")] if isinstance(given, str) else given


Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Span = Annotated[Duration, Field(gt=timedelta(0))]
# A list that may also be one text with commas.
FROM_TEXT: Final = BeforeValidator(_as_list)


class Config(BaseModel):
    """Settings that are validated when they are created and never change.

    `UsageError` lists all errors, one on each line.
    """

    # Errors do not quote the input: secrets may be in it.
    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, hide_input_in_errors=True
    )

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise UsageError(_lines(find_mistakes(error, type(self), values))) from None

    # Without it, pydantic calls `__init__` for nested sections, too, and their place is lost.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # pydantic's own mark

    @classmethod
    def parse(cls, values: Mapping[str, Any], name: str) -> Self:
        """The config in `values`; `UsageError` lists all errors."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            found = find_mistakes(error, cls, values)
            raise UsageError(_lines(Mistake((name, *m.place), m.text) for m in found)) from None


def _lines(mistakes: Iterable[Mistake]) -> str:
    return "\n".join(map(str, mistakes))
