"""`segue retain`: removes batches that have been kept long enough."""

from typing import TYPE_CHECKING, Annotated

import typer

from segue.cli.errors import told_plainly
from segue.cli.options import AsJson, ConfigFile, Database
from segue.cli.output import print_json, print_table, when
from segue.cli.working import with_journal
from segue.core.errors import UsageError

if TYPE_CHECKING:
    from segue.core.retention import RetentionPolicy
    from segue.journal.ports import Journal
    from segue.runtime.retainer import Retained
    from segue.settings import Settings

_OLDER_THAN = "Delete batches with no new message for this long, such as 90d."
_KEEP_LAST = "Number of each thread's last batches that stay at any age."
_TYPE = "Only batches of this type go; may be given several times."


def retain(  # noqa: PLR0913 - they are its options
    *,
    older_than: Annotated[str | None, typer.Option(help=_OLDER_THAN)] = None,
    keep_last: Annotated[int | None, typer.Option(min=1, help=_KEEP_LAST)] = None,
    types: Annotated[list[str] | None, typer.Option("--type", help=_TYPE)] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would go; nothing is removed.")
    ] = False,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Remove old batches for good, whole ones, from all threads; memories stay.

    Never a thread's newest batch, and none that somebody works on or waits for. Without an age or a
    number, the policy of the settings is taken, with its rules for single types.
    """
    from segue.runtime.clock import SystemClock  # noqa: PLC0415
    from segue.runtime.retainer import retain as retained  # noqa: PLC0415

    with told_plainly():
        given = _policy(older_than, keep_last, types or [])

    async def work(journal: "Journal", settings: "Settings") -> "list[Retained]":
        policy = given or settings.retention.policy
        if policy is None:
            raise UsageError(
                "Nothing says what may go: give --older-than or --keep-last, or set `retention`."
            )
        now = SystemClock().now()
        return [each async for each in retained(journal, policy, now=now, is_dry_run=dry_run)]

    found = with_journal(config, database, work)
    if as_json:
        print_json({"is_dry_run": dry_run, "threads": found})
    else:
        _print(found, is_dry_run=dry_run)


def _policy(
    older_than: str | None, keep_last: int | None, types: list[str]
) -> "RetentionPolicy | None":
    from segue.core.durations import parse_duration  # noqa: PLC0415
    from segue.core.metadata import BatchType  # noqa: PLC0415
    from segue.core.retention import RetentionPolicy, RetentionRule  # noqa: PLC0415

    if older_than is None and keep_last is None:
        if types:
            raise UsageError("--type needs --older-than or --keep-last beside it.")
        return None
    known = [kind.value for kind in BatchType]
    if unknown := [kind for kind in types if kind not in known]:
        raise UsageError(f"--type is {unknown[0]!r:.60}; expected one of: {', '.join(known)}.")
    age = None if older_than is None else parse_duration(older_than)
    rule = RetentionRule(
        older_than=age, keep_last=keep_last, types=frozenset(map(BatchType, types))
    )
    return RetentionPolicy([rule])


def _print(found: "list[Retained]", *, is_dry_run: bool) -> None:
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
    headings = ("thread", "user", "batches", "messages", "from", "to", "of which")
    print_table(headings, rows, nothing="Nothing is old enough to go.")
    if found:
        what = "would go" if is_dry_run else "are gone"
        batches, messages = sum(e.batches for e in found), sum(e.messages for e in found)
        typer.echo(f"{batches} batches with {messages} messages {what}.")
