"""`segue retain`: deletes old batches."""

from typing import Annotated

import typer

from segue.archive import Archive
from segue.cli.access import Place
from segue.cli.output import Answer, print_table, when
from segue.core.durations import parse_duration
from segue.core.metadata import BatchType
from segue.core.retention import RetentionPolicy, RetentionRule
from segue.errors import UsageError
from segue.runtime.housekeeping import ThreadRemoval

_OLDER_THAN = "Delete batches with no new message for this long, such as 90d."
_KEEP_LAST = "Number of each thread's newest batches that are kept at any age."
_TYPE = "Delete only batches of this type; may be given several times."


def retain(
    *,
    older_than: Annotated[str | None, typer.Option(help=_OLDER_THAN)] = None,
    keep_last: Annotated[int | None, typer.Option(min=1, help=_KEEP_LAST)] = None,
    types: Annotated[list[str] | None, typer.Option("--type", help=_TYPE)] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be deleted.")
    ] = False,
    place: Place,
) -> Answer:
    """Delete old batches for good, whole ones, from all threads; memories stay.

    Never a thread's newest batch, nor one that is in progress or waits for an answer. Without an
    age or a number, the policy of the settings applies, with its rules for single types.
    """
    given = _policy(older_than, keep_last, types or [])

    async def work(archive: Archive) -> list[ThreadRemoval]:
        policy = given or archive.settings.retention.policy
        if policy is None:
            raise UsageError("Give --older-than or --keep-last, or set `retention`.")
        return await archive.retain(policy, dry_run=dry_run)

    found = place.run(work)
    value = {"is_dry_run": dry_run, "threads": found}
    return Answer(value, lambda: _print(found, is_dry_run=dry_run))


def _policy(
    older_than: str | None, keep_last: int | None, types: list[str]
) -> RetentionPolicy | None:
    if older_than is None and keep_last is None:
        if types:
            raise UsageError("--type needs --older-than or --keep-last.")
        return None
    known = [kind.value for kind in BatchType]
    if unknown := [kind for kind in types if kind not in known]:
        raise UsageError(f"--type is {unknown[0]!r:.60}; expected one of: {', '.join(known)}.")
    age = None if older_than is None else parse_duration(older_than)
    rule = RetentionRule(
        older_than=age, keep_last=keep_last, types=frozenset(map(BatchType, types))
    )
    return RetentionPolicy([rule])


def _print(found: list[ThreadRemoval], *, is_dry_run: bool) -> None:
    rows = (
        (
            each.thread_id,
            each.user_id,
            str(each.batches),
            str(each.messages),
            when(each.oldest_at),
            when(each.newest_at),
            ", ".join(f"{count} {kind.value}" for kind, count in each.types.items()),
        )
        for each in found
    )
    headings = ("thread", "user", "batches", "messages", "from", "to", "types")
    print_table(headings, rows, nothing="Nothing is old enough to delete.")
    if found:
        what = "would be deleted" if is_dry_run else "were deleted"
        batches, messages = sum(e.batches for e in found), sum(e.messages for e in found)
        typer.echo(f"{batches} batches with {messages} messages {what}.")
