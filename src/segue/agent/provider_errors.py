"""Why a provider's client cannot be made, without quoting settings, which may hold keys."""

import re
from typing import Final

from pydantic import ValidationError

_VARIABLE: Final = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_KEY\b")
_PACKAGE: Final = re.compile(r"pip install ([\w.-]+\w)")


def describe_missing_package(what: str, provider: str, error: ImportError) -> str:
    """Which package to install for `what`, such as "model 'openai:gpt-4o'"."""
    named = _PACKAGE.search(str(error))
    package = named[1] if named else f"langchain-{provider.replace('_', '-')}"
    return f"The {what} needs a package that is not installed: pip install {package}."


def find_key_variable(error: Exception) -> str | None:
    """The environment variable of the key that a client asks for, if it is about a key."""
    problems = error.errors(include_input=False) if isinstance(error, ValidationError) else []
    text = " ".join(problem["msg"] for problem in problems) or str(error)
    found = _VARIABLE.search(text)
    return found[0] if found else None
