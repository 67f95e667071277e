"""`segue threads` and `segue history`: conversations as their users see them."""

from typing import TYPE_CHECKING, Annotated

import typer

from segue.cli.errors import told_plainly
from segue.cli.options import AsJson, ConfigFile, Database, Limit, ThreadId
from segue.cli.output import one_line, print_json, print_table, when
from segue.cli.working import with_journal, with_thread
from segue.core.errors import UsageError

if TYPE_CHECKING:
    from segue.journal.ports import Journal
    from segue.journal.records import Page, Thread
    from segue.settings import Settings

_USER = "Whose conversations; `me`, who `segue chat` talks as, if not given."
_ALL = "The newest conversations of all users."


def threads(
    *,
    user: Annotated[str | None, typer.Option(help=_USER)] = None,
    everybody: Annotated[bool, typer.Option("--all", help=_ALL)] = False,
    limit: Limit = 50,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """A user's conversations, or those of all users; the one written to last first."""
    with told_plainly():
        if everybody and user is not None:
            raise UsageError("--all lists the conversations of all users; leave out --user.")
    whose = "me" if user is None else user

    async def work(journal: "Journal", _: "Settings") -> "list[Thread]":
        if everybody:
            return await journal.list_newest_threads(limit=limit)
        return await journal.list_threads(whose, limit=limit)

    found = with_journal(config, database, work)
    if as_json:
        print_json(found)
        return
    rows = (
        (
            t.id,
            *([t.user_id] if everybody else []),
            t.agent_id,
            when(t.updated_at),
            str(t.message_count),
            one_line(t.title or "", 60),
        )
        for t in found
    )
    headings = (
        "id",
        *(["user"] if everybody else []),
        "agent",
        "last written",
        "messages",
        "title",
    )
    nothing = f"{whose} has no conversation here; --all lists those of all users."
    print_table(headings, rows, nothing="There is no conversation here." if everybody else nothing)


def history(
    thread_id: ThreadId,
    *,
    limit: Limit = 50,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """What a person sees of a conversation, oldest first."""
    from segue.cli.messages import shown, with_media  # noqa: PLC0415

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
    rows = (
        (when(m["created_at"]), names[m["role"]], with_media(m["text"], message.content))
        for m, message in zip(messages, page.messages, strict=True)
    )
    print_table(("when", "who", "what"), rows, nothing="Nobody has said anything yet.")
