"""Everything Segue raises on purpose.

    SegueError
    ├── UsageError            the caller gave something that cannot be right
    │   ├── MetadataError     a message's metadata has the wrong type or is missing
    │   └── UnknownTrigger    a trigger type that does not exist
    ├── NotFoundError         the thing named is not there
    ├── ConflictError         the thing named is there, but in another state
    ├── DeniedError           the caller may not do this
    └── BackendError          a database, model or network failed

Each has a stable `code` for programs; the text is for people and says what failed, on what,
what was expected and what to do.
"""

from typing import ClassVar


class SegueError(Exception):
    code: ClassVar[str] = "error"


class UsageError(SegueError, ValueError):
    code = "usage"


class MetadataError(UsageError):
    code = "metadata"


class UnknownTrigger(UsageError):
    code = "unknown_trigger"


class NotFoundError(SegueError, LookupError):
    code = "not_found"


class ConflictError(SegueError):
    code = "conflict"


class DeniedError(SegueError):
    code = "denied"


class BackendError(SegueError):
    code = "backend"
