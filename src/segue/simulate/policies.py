"""Policies as operators edit them: the part of an agent's `autonomy` that a simulation may change.

Nothing that names code or a model is part of one.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Final

from segue.core.autonomy.local_time import QuietHours
from segue.core.durations import show_duration
from segue.errors import UsageError
from segue.settings.agents import Autonomy
from segue.simulate.scenario import parse_hours

EDITABLE: Final = ("enabled", "delays", "policy", "holdout", "missed", "expires_after")


def plain_policy(autonomy: Autonomy) -> dict[str, Any]:
    """As a settings file would have it, in JSON."""
    chosen = {name: getattr(autonomy, name) for name in EDITABLE}
    for name in ("delays", "policy"):
        chosen[name] = {key: plain_value(value) for key, value in asdict(chosen[name]).items()}
    # `asdict` takes quiet hours apart, too.
    chosen["policy"]["quiet_hours"] = plain_value(autonomy.policy.quiet_hours)
    return {name: plain_value(value) for name, value in chosen.items()}


def plain_value(value: Any) -> Any:
    """A duration, quiet hours or nothing as a settings file has them."""
    if value is None:
        return "none"
    if isinstance(value, timedelta):
        is_whole = not value.microseconds
        return show_duration(value) if is_whole else value.total_seconds()
    if isinstance(value, QuietHours):
        return {"start": f"{value.start:%H:%M}", "end": f"{value.end:%H:%M}"}
    return value


def change_policy(autonomy: Autonomy, changes: Mapping[str, Any], name: str) -> Autonomy:
    """The autonomy with some settings changed; `UsageError` names each wrong one.

    Quiet hours may be a text like `22:00 to 08:00`, as in a scenario.
    """
    if unknown := sorted(changes.keys() - {*EDITABLE}):
        raise UsageError(
            f"{name}.{unknown[0]:.60}: it cannot be changed here; expected one of: "
            f"{', '.join(EDITABLE)}."
        )
    match changes:
        case {"policy": {"quiet_hours": str(hours)} as policy}:
            with suppress(UsageError):  # reported with the other mistakes
                parsed = parse_hours(hours) or None
                changes = {**changes, "policy": {**policy, "quiet_hours": parsed}}
    return autonomy.with_changes(changes, name)
