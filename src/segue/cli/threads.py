"""`segue threads` and `segue history`: conversations as their users see them."""

from typing import TYPE_CHECKING, Annotated

import typer

from segue.cli.options import AsJson, ConfigFile, Database, Limit, ThreadId
from segue.cli.output import one_line, print_json, print_table, when
from segue.cli.working import with_journal, with_thread

if TYPE_CHECKING:
    from segue.journal.ports import Journal
    from segue.journal.records import Page, Thread
    from segue.settings import Settings

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
    found = with_journal(
        config, database, lambda journal, _: journal.list_threads(user, limit=limit)
    )
    if as_json:
        print_json(found)
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

    async def work(
        journal: "Journal", thread: "Thread", settings: "Settings"
    ) -> "tuple[dict[str, str], Page]":
        named = {agent.id: agent.name for agent in settings.agents if agent.name}
        agent = named.get(thread.agent_id, thread.agent_id)
        names = {"user": thread.user_id, "agent": agent}
        return names, await journal.history(thread.id, limit=limit)

    names, page = with_thread(thread_id, config, database, work)
    messages = [shown(message) for message in page.messages]
    if as_json:
        print_json(messages)
        return
    rows = ((when(m["created_at"]), names[m["role"]], m["text"]) for m in messages)
    print_table(("when", "who", "what"), rows, nothing="Nobody has said anything yet.")
