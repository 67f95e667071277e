"""What is wrong with what a client sent, in words: which field, and what was expected.

Quotes nothing that was sent, since it may be anybody's words; a time that lacks its zone excepted.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import jwt
from pydantic import ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

# Where a field stands is told by its name; in which part of the request, by the route.
_PARTS: Final = frozenset({"body", "query", "path", "header"})
_WORDS: Final[Mapping[str, str]] = {
    "missing": "missing",
    "extra_forbidden": "unknown",
    "string_type": "expected a text",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",
    "enum": "expected {expected}",
    "literal_error": "expected {expected}",
    "string_too_short": "expected at least {min_length} characters",
    "string_too_long": "expected at most {max_length} characters",
    "greater_than_equal": "expected at least {ge}",
    "less_than_equal": "expected at most {le}",
    "union_tag_not_found": "expected a JSON object with a type",
    "union_tag_invalid": "there is no such type; there are: {expected_tags}",
    "model_type": "expected a JSON object",
    "dict_type": "expected a JSON object",
    "model_attributes_type": "expected a JSON object, sent as Content-Type: application/json",
    "value_error": "{error}",
    "json_invalid": "is no JSON: {error}",
}
_TOKEN_WORDS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (jwt.ExpiredSignatureError, "it has expired"),
    (jwt.ImmatureSignatureError, "it holds only later"),
    (jwt.InvalidAudienceError, "it is made for another audience (aud)"),
    (jwt.InvalidIssuerError, "it is made by another issuer (iss)"),
    (jwt.InvalidSignatureError, "its signature does not fit"),
    (jwt.InvalidAlgorithmError, "its algorithm (alg) is not taken"),
    (jwt.PyJWKClientError, "its signer's key was not found"),
    (jwt.DecodeError, "it cannot be read as a JWT"),
)


def expected(words: str) -> WrapValidator:
    """In an annotation: what a field takes, told once whichever way it is wrong."""

    def check(given: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(given)
        except ValidationError:
            raise PydanticCustomError("expected", "expected {words}", {"words": words}) from None

    return WrapValidator(check)


def check_zone(moment: datetime) -> datetime:
    """A time that has a zone."""
    if moment.utcoffset() is None:
        context = {"moment": moment.isoformat()}
        raise PydanticCustomError("no_zone", "has no time zone; write {moment}Z", context)
    return moment


def mistakes_in(errors: Iterable[Any], body: Any = None) -> list[dict[str, str]]:
    """Each part that pydantic found wrong: `at` is its field, empty for the whole."""
    return [_mistake(error, body) for error in errors]


def in_words(mistakes: Iterable[Mapping[str, str]], whole: str) -> str:
    """All of them in one line; `whole` is what the parts are of."""
    return "; ".join(_sentence(each["at"] or whole, each["what"]) for each in mistakes)


def token_words(error: Exception) -> str:
    """Why a token does not hold; nothing of what it says."""
    if isinstance(error, jwt.MissingRequiredClaimError):
        return f"its claim {error.claim} is missing"
    found = (words for kind, words in _TOKEN_WORDS if isinstance(error, kind))
    return next(found, "it is not valid")


def _sentence(name: str, words: str) -> str:
    return f"{name} {words}" if words.startswith(("is ", "has ")) else f"{name}: {words}"


def _mistake(error: Any, body: Any) -> dict[str, str]:
    loc, kind, context = error["loc"], error["type"], error.get("ctx", {})
    if kind == "json_invalid":
        return {"at": "", "what": _WORDS[kind].format(**context) + _place_in(body, loc)}
    named = loc[1:] if loc and loc[0] in _PARTS else loc
    words = _WORDS[kind].format(**context) if kind in _WORDS else str(error["msg"])
    return {"at": ".".join(map(str, named)), "what": words}


def _place_in(body: Any, loc: tuple[Any, ...]) -> str:
    """Where JSON ends to be JSON; frames say it in their error's own words."""
    if not isinstance(body, str) or not loc or not isinstance(loc[-1], int):
        return ""
    before = body[: loc[-1]]
    return f" at line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"
