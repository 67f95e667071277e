"""`segue migrate`: imports conversations of another system as threads."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack, closing
from typing import Annotated

import typer

from segue.cli.access import Place
from segue.cli.output import FAILED, Answer, print_table
from segue.core.text import one_line
from segue.migrate.ledger import Ledger, MigrationReport
from segue.migrate.migration import Migration, Owners, open_source
from segue.offline import open_offline
from segue.runtime.clock import SystemClock
from segue.settings import Settings
from segue.stores import is_there

_SOURCE = "A LangGraph app's checkpoints (a SQLite file or a postgresql:// address), or a .jsonl."
_USER_FROM = "Field of each conversation that names its user, such as metadata.user_id."
_ROWS = {
    "threads": "conversations found",
    "migrated": "migrated",
    "continued": "went on since the last run",
    "unchanged": "unchanged",
    "held_back": "last batch held back: it may be going on",
    "messages": "messages stored",
    "markers": "old markers turned into triggers",
    "orphans": "results without a call",
    "repairs": "unfinished batches settled",
}
_DRY_ROWS = {
    **_ROWS,
    "migrated": "would be migrated",
    "held_back": "last batch would be held back: it may be going on",
    "messages": "messages would be stored",
    "markers": "old markers would be turned into triggers",
    "repairs": "unfinished batches would be settled",
}
# Number of users to list, those with the most threads first.
_USERS = 10
# Number of progress lines.
_LINES = 20


def migrate(  # noqa: PLR0913 - they are its options
    source: Annotated[str, typer.Argument(metavar="SOURCE", help=_SOURCE)],
    *,
    user: Annotated[
        str | None, typer.Option(help="Owner of conversations that name no user.")
    ] = None,
    user_from: Annotated[str | None, typer.Option(help=_USER_FROM)] = None,
    agent: Annotated[
        str | None, typer.Option(help="The threads' agent; the settings' first if not given.")
    ] = None,
    agent_from: Annotated[
        str | None, typer.Option(help="Field that names the agent, such as metadata.agent.")
    ] = None,
    prefix: Annotated[str, typer.Option(help="Prefix for the ids of the new threads.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read everything, write nothing.")
    ] = False,
    place: Place,
) -> Answer:
    """Import conversations of a LangGraph app, or chats in a file. The source is only read.

    Run it again to continue an interrupted run, or to add what is new in the source.
    """
    settings = place.load_settings()
    agents = [each.id for each in settings.agents]
    owners = Owners(
        agents=agents,
        agent=agent or agents[0],
        agent_from=agent_from,
        user=user,
        user_from=user_from,
    )
    report = asyncio.run(_migrate(source, settings, owners, prefix=prefix, is_dry_run=dry_run))
    has_failed = report.threads and len(report.skipped) == report.threads
    return Answer(report, lambda: _print(report), FAILED if has_failed else 0)


async def _migrate(
    source: str, settings: Settings, owners: Owners, *, prefix: str, is_dry_run: bool
) -> MigrationReport:
    with closing(open_source(source)) as opened:
        async with AsyncExitStack() as stack:
            journal = None
            if not is_dry_run or is_there(settings):
                segue = await stack.enter_async_context(open_offline(settings, make=True))
                journal = segue.journal
            ledger = Ledger(journal, is_dry_run=is_dry_run)
            now = SystemClock().now()
            return await Migration(opened, ledger, owners, now=now, prefix=prefix).run(
                _print_progress
            )


def _print_progress(done: int, of: int) -> None:
    if done == of or done % -(-of // _LINES) == 0:
        typer.echo(f"{done} of {of} conversations", err=True)


def _shares(users: Mapping[str, int]) -> list[tuple[str, str]]:
    by_size = sorted(users.items(), key=lambda share: (-share[1], share[0]))
    rows = [(user, str(threads)) for user, threads in by_size[:_USERS]]
    if rest := by_size[_USERS:]:
        rows.append((f"and {len(rest)} more", str(sum(threads for _, threads in rest))))
    return rows


def _print(report: MigrationReport) -> None:
    labels = _DRY_ROWS if report.is_dry_run else _ROWS
    rows = [(label, str(getattr(report, name))) for name, label in labels.items()]
    print_table(("what", "how many"), rows, nothing="")
    if report.users:
        whose = (
            "threads that would be theirs" if report.is_dry_run else "threads that became theirs"
        )
        print_table(("user", whose), _shares(report.users), nothing="")
    if report.renamed:
        became = "would be called here" if report.is_dry_run else "is called here"
        renamed = ((each.thread, each.became) for each in report.renamed)
        print_table(("conversation", became), renamed, nothing="")
    if report.skipped:
        skipped = ((each.thread, one_line(each.why, 400)) for each in report.skipped)
        print_table(("skipped", "why"), skipped, nothing="")
    if report.is_dry_run:
        typer.echo("Nothing was written: this was a dry run.")
