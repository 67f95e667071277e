"""`segue threads` and `segue history`: conversations as their users see them."""

from typing import TYPE_CHECKING, Annotated

import typer

from segue.cli.options import AsJson, ConfigFile, Database, Limit, ThreadId

if TYPE_CHECKING:
    from segue.journal.records import Page, Thread

_USER = "Whose conversations; `me` is who `segue chat` talks as."


def threads(
    *,
    user: Annotated[str, typer.Option(help=_USER)] = "me",
    limit: Limit = 50,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """A user's conversations, the one written to last first."""
    from segue.cli.opening import open_journal, read_settings, run  # noqa: PLC0415
    from segue.cli.output import one_line, print_json, print_table, record, when  # noqa: PLC0415
    from segue.runtime.asking import NESTED  # noqa: PLC0415

    settings = read_settings(config, database)

    async def work() -> "list[Thread]":
        async with open_journal(settings) as journal:
            found = await journal.list_threads(user, limit=limit)
            # Where agents ask each other is no conversation of the user's.
            return [thread for thread in found if NESTED not in thread.settings]

    found = run(work())
    if as_json:
        print_json([*map(record, found)])
        return
    rows = (
        (t.id, t.agent_id, when(t.updated_at), str(t.message_count), one_line(t.title or "", 60))
        for t in found
    )
    headings = ("id", "agent", "last written", "messages", "title")
    print_table(headings, rows, nothing=f"{user} has no conversation here.")


def history(
    thread_id: ThreadId,
    *,
    limit: Limit = 50,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """What a person sees of a conversation, oldest first."""
    from segue.cli.messages import shown  # noqa: PLC0415
    from segue.cli.opening import open_journal, read_settings, run  # noqa: PLC0415
    from segue.cli.output import print_json, print_table, when  # noqa: PLC0415

    settings = read_settings(config, database)

    async def work() -> "tuple[Thread, Page]":
        async with open_journal(settings) as journal:
            thread = await journal.get_thread(thread_id)
            return thread, await journal.history(thread_id, limit=limit)

    thread, page = run(work())
    messages = [shown(message) for message in page.messages]
    if as_json:
        print_json(messages)
        return
    names = {"user": thread.user_id, "agent": thread.agent_id}
    rows = ((when(m["created_at"]), names[m["role"]], m["text"]) for m in messages)
    print_table(("when", "who", "what"), rows, nothing="Nobody has said anything yet.")
