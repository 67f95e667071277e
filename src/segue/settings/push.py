"""The settings of notifications that browsers show while the page is closed."""

import re
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from segue.core.durations import OR_NONE
from segue.errors import UsageError
from segue.settings.schema import FROM_TEXT, Config, Expected

# Of Chrome and those built on it, Firefox, Safari, and Edge.
_SERVICES: Final = (
    "https://fcm.googleapis.com",
    "https://updates.push.services.mozilla.com",
    "https://*.push.apple.com",
    "https://*.notify.windows.com",
)
_ORIGIN: Final = re.compile(r"https?://(?:\*\.)?[a-z0-9.-]+(?::\d{1,5})?")
_CONTACT: Final = "an address that starts with 'mailto:' or 'https://'"


def _check_services(services: tuple[str, ...]) -> tuple[str, ...]:
    for each in services:
        if not _ORIGIN.fullmatch(each):
            raise UsageError(
                f"{each!r:.80} is not an origin; expected one like 'https://push.example.org', or "
                "'https://*.example.org' for all hosts below it."
            )
    return services


class PushSettings(Config):
    """Notifications by Web Push."""

    services: Annotated[
        tuple[str, ...], FROM_TEXT, AfterValidator(_check_services), Expected("a list of origins")
    ] = _SERVICES
    """Origins of push services, the only ones that a browser's address may name; with none,
    notifications are off."""
    contact: Annotated[
        str | None, OR_NONE, Field(pattern="^(mailto:|https://)"), Expected(_CONTACT)
    ] = None
    """Where push services reach you, such as `mailto:ops@example.org`; Apple's needs it."""
