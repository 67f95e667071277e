"""The metadata that a client keeps on a thread, such as the id of a customer.

It is stored in the thread's settings, each key separately, so that two clients can set different
keys at the same time. Models and gates never read it.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from segue.core.text import check_name, plain_json
from segue.errors import UsageError

_PREFIX: Final = "metadata."
_MOST: Final = 50
_MOST_BYTES: Final = 10_000


def metadata_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The client metadata in a thread's settings."""
    found = ((name, value) for name, value in settings.items() if is_metadata(name))
    return {name.removeprefix(_PREFIX): value for name, value in found}


def is_metadata(setting: str) -> bool:
    return setting.startswith(_PREFIX)


def metadata_settings(
    given: Mapping[str, Any], known: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The settings that add metadata to the `known` ones; None removes a key.

    `UsageError` if there are too many, or they are too large.
    """
    new = {check_name(name, "metadata"): plain_json(value) for name, value in given.items()}
    after = {name: value for name, value in {**(known or {}), **new}.items() if value is not None}
    size = len(json.dumps(after))
    if len(after) > _MOST or size > _MOST_BYTES:
        raise UsageError(
            f"The metadata of a thread would have {len(after)} names and {size} bytes; at most "
            f"{_MOST} names and {_MOST_BYTES} bytes are kept. Nothing was written."
        )
    return {f"{_PREFIX}{name}": value for name, value in new.items()}
