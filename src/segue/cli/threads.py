"""`segue threads` and `segue history`: conversations as their users see them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from segue.cli.errors import told_plainly
from segue.cli.options import AsJson, ConfigFile, Database, Key, Limit, ThreadId, Url
from segue.cli.output import one_line, print_json, print_table, when
from segue.cli.working import Where, look, look_at_thread
from segue.core.errors import UsageError

if TYPE_CHECKING:
    from segue.journal.ports import Journal
    from segue.journal.records import Thread
    from segue.settings import Settings

_USER = "Whose conversations; yours if not given: the key's user, or `me` as in `segue chat`."
_ALL = "The newest conversations of all users."


def threads(  # noqa: PLR0913 - they are its options
    *,
    user: Annotated[str | None, typer.Option(help=_USER)] = None,
    everybody: Annotated[bool, typer.Option("--all", help=_ALL)] = False,
    limit: Limit = 50,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """List a user's conversations, or those of all users; the one written to last first."""
    with told_plainly():
        if everybody and user is not None:
            raise UsageError("--all lists the conversations of all users; leave out --user.")
    whose = "me" if user is None else user

    async def work(journal: "Journal", _: "Settings") -> Any:
        from segue.runtime.views import list_threads  # noqa: PLC0415

        return await list_threads(journal, None if everybody else whose, limit=limit)

    where = Where(url, key, config, database)
    if url is None or everybody or user is not None:
        found = look(where, "/api/admin/threads", work, limit=limit, user=user)
    else:  # one's own, for which it takes no operator
        found = look(where, "/api/threads", work, limit=limit)["threads"]
    if as_json:
        print_json(found)
        return
    rows = (
        (
            t["id"],
            *([t["user_id"]] if everybody else []),
            t["agent_id"],
            when(t["updated_at"]),
            str(t["message_count"]),
            one_line(t["title"] or "", 60),
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
    nobody = "You have" if url is not None and user is None else f"{whose} has"
    nothing = f"{nobody} no conversation here; --all lists those of all users."
    print_table(headings, rows, nothing="There is no conversation here." if everybody else nothing)


def history(  # noqa: PLR0913 - they are its options
    thread_id: ThreadId,
    *,
    limit: Limit = 50,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Show what a person sees of a conversation, oldest first."""

    async def work(journal: "Journal", thread: "Thread", settings: "Settings") -> Any:
        from segue.runtime.views import list_history  # noqa: PLC0415

        return await list_history(journal, thread, settings.agents, limit=limit)

    where = Where(url, key, config, database)
    messages = look_at_thread(where, thread_id, "history", work, limit=limit)
    if as_json:
        print_json(messages)
        return
    rows = ((when(m["created_at"]), m["name"], m["shown"]) for m in messages)
    print_table(("when", "who", "what"), rows, nothing="Nobody has said anything yet.")
