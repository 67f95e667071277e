"""`segue threads`, `history`, `batches`, `context`, `timers` and `why`: what is stored."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Annotated, Any
from urllib.parse import quote

import typer

from segue.cli.access import Target, config_of, look, of_thread
from segue.cli.output import (
    AsJson,
    ConfigFile,
    Database,
    Key,
    Limit,
    ThreadId,
    Url,
    print_json,
    print_lines,
    print_table,
    when,
)
from segue.core.text import one_line
from segue.errors import UsageError
from segue.insight.views import Inspector
from segue.journal.journal import Journal
from segue.journal.records import Thread
from segue.settings import Settings

_USER = "Whose conversations; if not given, those of the key's user, or of `me` without a server."
_ALL = "The newest conversations of all users."
_ONE_THREAD = "The thread's id; without it, the pending timers of all threads."


def threads(  # noqa: PLR0913 - they are its options
    *,
    user: Annotated[str | None, typer.Option(help=_USER)] = None,
    of_all: Annotated[bool, typer.Option("--all", help=_ALL)] = False,
    limit: Limit = 50,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """List a user's conversations, or those of all users, the most recent first."""
    if of_all and user is not None:
        raise UsageError("--all lists the conversations of all users; leave out --user.")
    owner = "me" if user is None else user

    async def load(journal: Journal, settings: Settings) -> Any:
        inspector = Inspector(journal, settings.agents)
        return await inspector.list_threads(None if of_all else owner, limit=limit)

    target = Target(url, key, config, database)
    if url is None or of_all or user is not None:
        found = look(target, "/api/admin/threads", load, limit=limit, user=user)
    else:  # the caller's own threads need no operator's key
        found = look(target, "/api/threads", load, limit=limit)["threads"]
    if as_json:
        print_json(found)
        return
    columns = {
        "id": "id",
        **({"user": "user_id"} if of_all else {}),
        "agent": "agent_id",
        "last written": "updated_at",
        "messages": "message_count",
        "title": "title",
    }
    shown = (
        {**t, "updated_at": when(t["updated_at"]), "title": one_line(t["title"] or "", 60)}
        for t in found
    )
    rows = ([str(thread[name]) for name in columns.values()] for thread in shown)
    subject = "You have" if url is not None and user is None else f"{owner} has"
    nothing = f"{subject} no conversation here; --all lists those of all users."
    print_table([*columns], rows, nothing="There is no conversation here." if of_all else nothing)


def history(
    thread_id: ThreadId,
    *,
    limit: Limit = 50,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Show a conversation as its user sees it, oldest message first."""
    messages = _look_at_thread(
        Target(url, key, config, database),
        thread_id,
        "history",
        lambda inspector, thread, _: inspector.list_history(thread, limit=limit),
        limit=limit,
    )
    if as_json:
        print_json(messages)
        return
    rows = ((when(m["created_at"]), m["name"], m["shown"]) for m in messages)
    print_table(("when", "who", "what"), rows, nothing="There is no message yet.")


def batches(
    thread_id: ThreadId,
    *,
    limit: Limit = 20,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """List the newest batches, oldest first: type, state, reasons, and nested batches."""
    newest_first = _look_at_thread(
        Target(url, key, config, database),
        thread_id,
        "batches",
        lambda inspector, thread, _: inspector.list_batches(thread.id, limit=limit),
        limit=limit,
    )
    found = newest_first[::-1]
    if as_json:
        print_json(found)
    else:
        lines = [line for batch in found for line in _batch_lines(batch)]
        print_lines(lines or ["This thread has no batch yet."])


def context(
    thread_id: ThreadId,
    *,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Show what the model would get of a thread now, and what is left out and why.

    Without memories: they are searched with the user's next message.
    """

    async def load(inspector: Inspector, thread: Thread, settings: Settings) -> Any:
        return await inspector.get_context(thread, config_of(settings, thread.agent_id))

    found = _look_at_thread(Target(url, key, config, database), thread_id, "context", load)
    if as_json:
        print_json(found)
    else:
        _print_context(found)


def timers(
    thread_id: Annotated[str | None, typer.Argument(metavar="THREAD", help=_ONE_THREAD)] = None,
    *,
    limit: Limit = 50,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """List a thread's planned and past follow-ups with their outcome, newest first.

    Without a thread: the pending timers of all threads, soonest first.
    """

    async def load_pending(journal: Journal, settings: Settings) -> Any:
        return await Inspector(journal, settings.agents).list_pending_timers(limit=limit)

    target = Target(url, key, config, database)
    if thread_id is None:
        found = look(target, "/api/admin/timers", load_pending, limit=limit)
    else:
        found = _look_at_thread(
            target,
            thread_id,
            "timers",
            lambda inspector, thread, _: inspector.list_timers(thread.id, limit=limit),
            limit=limit,
        )
    if as_json:
        print_json(found)
        return
    own = ("thread_id", "agent_id") if thread_id is None else ()
    rows = (
        (
            when(timer["due_at"]),
            *(timer[name] for name in own),
            timer["state"],
            timer["became"] or "",
            timer["trigger_type"] or timer["kind"],
            timer["why"],
        )
        for timer in found
    )
    headings = ("due", *(name.removesuffix("_id") for name in own), "state", "became", "trigger")
    print_table((*headings, "why"), rows, nothing="There is no timer.")


def why(
    thread_id: ThreadId,
    *,
    limit: Limit = 50,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Show why the agent wrote, and why it did not, oldest first."""
    found = _look_at_thread(
        Target(url, key, config, database),
        thread_id,
        "why",
        lambda inspector, thread, _: inspector.list_reasons(thread.id, limit=limit),
        limit=limit,
    )
    if as_json:
        print_json(found)
        return
    rows = ((when(r["at"]), r["what"], r["outcome"], r["why"]) for r in found)
    print_table(("when", "what", "outcome", "why"), rows, nothing="There is no decision yet.")


def _look_at_thread(
    target: Target,
    thread_id: str,
    view: str,
    load: Callable[[Inspector, Thread, Settings], Awaitable[Any]],
    **params: Any,
) -> Any:
    """The JSON of a thread's view, from a server or from the database."""

    async def work(journal: Journal, thread: Thread, settings: Settings) -> Any:
        return await load(Inspector(journal, settings.agents), thread, settings)

    path = f"/api/admin/threads/{quote(thread_id, safe='')}/{view}"
    return look(target, path, of_thread(thread_id, work), **params)


def _batch_lines(batch: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    """A batch and, indented, the batches nested in it."""
    indent = "    " * depth
    turns = ", ".join(f"{turn['kind']} {turn['state']}" for turn in reversed(batch["turns"]))
    where = f", in thread {batch['thread_id']}" if depth else ""
    yield (
        f"{indent}{batch['id']}  {when(batch['began_at'])}  {batch['type']}, "
        f"{batch['state']}{f' ({turns})' if turns else ''}{where}"
    )
    yield from (f"{indent}    ! {reason}" for reason in batch["reasons"])
    yield from (f"{indent}    {m['role']:7} {one_line(m['text'])}" for m in batch["messages"])
    for child in reversed(batch["nested"]):
        yield from _batch_lines(child, depth + 1)


def _print_context(found: Mapping[str, Any]) -> None:
    rows = ((line["role"], line["text"]) for line in found["lines"])
    print_table(("role", "what the model gets"), rows, nothing="Nothing yet.")
    left = ((str(d["batch"]), d["reason"], d["detail"]) for d in found["dropped"])
    print_table(("left out", "reason", "detail"), left, nothing="Nothing is left out.")
    if found["shortened"]:
        shorter = ((str(s["batch"]), s["detail"]) for s in found["shortened"])
        print_table(("shortened", "detail"), shorter, nothing="")
    cut = ", and there may be older ones that do not fit" if found["is_cut"] else ""
    typer.echo(f"About {found['tokens']} tokens in {len(found['batches'])} batches{cut}.")
