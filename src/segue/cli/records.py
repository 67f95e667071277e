"""`segue batches`, `context`, `timers` and `why`: what is stored of a thread, for its operator."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from segue.cli.options import AsJson, ConfigFile, Database, Key, Limit, ThreadId, Url
from segue.cli.output import one_line, print_json, print_lines, print_table, when
from segue.cli.working import Where, look, look_at_thread

if TYPE_CHECKING:
    from segue.journal.ports import Journal
    from segue.journal.records import Thread
    from segue.settings import Settings

_ONE_THREAD = "The thread's id; without it, what is still to come in all threads."


def batches(  # noqa: PLR0913 - they are its options
    thread_id: ThreadId,
    *,
    limit: Limit = 20,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """List the newest batches, oldest first: type, state, reasons, and what is nested in them."""

    async def work(journal: "Journal", thread: "Thread", settings: "Settings") -> Any:
        from segue.runtime.views import list_batches  # noqa: PLC0415

        return await list_batches(journal, thread.id, settings.agents, limit=limit)

    where = Where(url, key, config, database)
    found = look_at_thread(where, thread_id, "batches", work, limit=limit)[::-1]
    if as_json:
        print_json(found)
    else:
        lines = [line for batch in found for line in _batch_lines(batch)]
        print_lines(lines or ["Nothing has happened in this thread yet."])


def context(
    thread_id: ThreadId,
    *,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Show what the model would get of a thread now, and what is left out of it and why.

    Memories are not in it: which ones are told depends on what the user says next.
    """

    async def work(journal: "Journal", thread: "Thread", settings: "Settings") -> Any:
        from segue.cli.opening import config_of  # noqa: PLC0415
        from segue.runtime.preview import context_json, next_context  # noqa: PLC0415

        agent = config_of(settings, thread.agent_id)
        return context_json(await next_context(journal, thread, agent))

    found = look_at_thread(Where(url, key, config, database), thread_id, "context", work)
    if as_json:
        print_json(found)
    else:
        _print_context(found)


def timers(  # noqa: PLR0913 - they are its options
    thread_id: Annotated[str | None, typer.Argument(metavar="THREAD", help=_ONE_THREAD)] = None,
    *,
    limit: Limit = 50,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """List a thread's planned and past follow-ups, newest first, with what became of them.

    Without a thread: what is still to come in all threads, soonest first.
    """

    async def work(journal: "Journal", thread: "Thread", _: "Settings") -> Any:
        from segue.runtime.views import list_timers  # noqa: PLC0415

        return await list_timers(journal, thread.id, limit=limit)

    async def pending(journal: "Journal", _: "Settings") -> Any:
        from segue.runtime.views import list_pending_timers  # noqa: PLC0415

        return await list_pending_timers(journal, limit=limit)

    where = Where(url, key, config, database)
    if thread_id is None:
        found = look(where, "/api/admin/timers", pending, limit=limit)
    else:
        found = look_at_thread(where, thread_id, "timers", work, limit=limit)
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


def why(  # noqa: PLR0913 - they are its options
    thread_id: ThreadId,
    *,
    limit: Limit = 50,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Tell why the agent wrote, and why it did not; oldest first."""

    async def work(journal: "Journal", thread: "Thread", _: "Settings") -> Any:
        from segue.runtime.views import list_reasons  # noqa: PLC0415

        return await list_reasons(journal, thread.id, limit=limit)

    where = Where(url, key, config, database)
    found = look_at_thread(where, thread_id, "why", work, limit=limit)
    if as_json:
        print_json(found)
        return
    rows = ((when(r["at"]), r["what"], r["outcome"], r["why"]) for r in found)
    print_table(("when", "what", "outcome", "why"), rows, nothing="Nothing was decided yet.")


def _batch_lines(batch: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    """A batch for people, what is nested in it further in."""
    inset = "    " * depth
    worked = ", ".join(f"{turn['kind']} {turn['state']}" for turn in reversed(batch["turns"]))
    where = f", in thread {batch['thread_id']}" if depth else ""
    yield (
        f"{inset}{batch['id']}  {when(batch['began_at'])}  {batch['type']}, "
        f"{batch['state']}{f' ({worked})' if worked else ''}{where}"
    )
    yield from (f"{inset}    ! {reason}" for reason in batch["reasons"])
    yield from (f"{inset}    {m['role']:7} {one_line(m['text'])}" for m in batch["messages"])
    for child in reversed(batch["nested"]):
        yield from _batch_lines(child, depth + 1)


def _print_context(found: Mapping[str, Any]) -> None:
    rows = ((line["role"], line["text"]) for line in found["lines"])
    print_table(("role", "what the model gets"), rows, nothing="Nothing yet.")
    left = ((str(d["batch"]), d["reason"], d["detail"]) for d in found["dropped"])
    print_table(("left out", "why", "in words"), left, nothing="Nothing is left out.")
    if found["shortened"]:
        shorter = ((str(s["batch"]), s["detail"]) for s in found["shortened"])
        print_table(("told in part", "why"), shorter, nothing="")
    cut = ", and there may be older ones that do not fit" if found["is_cut"] else ""
    typer.echo(f"About {found['tokens']} tokens in {len(found['batches'])} batches{cut}.")
