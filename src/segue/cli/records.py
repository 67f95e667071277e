"""`segue batches`, `context`, `timers` and `why`: what is stored of a thread, for its operator."""

from typing import TYPE_CHECKING

import typer

from segue.cli.options import AsJson, ConfigFile, Database, Limit, ThreadId

if TYPE_CHECKING:
    from segue.core.context import Context
    from segue.journal.records import Timer
    from segue.runtime.why import Reason


def batches(
    thread_id: ThreadId,
    *,
    limit: Limit = 20,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """The newest batches, oldest first: type, state and reasons, and what is nested in them."""
    from segue.cli.nesting import Node, as_json_of, lines_of, load_nodes  # noqa: PLC0415
    from segue.cli.opening import open_journal, read_settings, run  # noqa: PLC0415
    from segue.cli.output import print_json, print_lines  # noqa: PLC0415

    settings = read_settings(config, database)

    async def work() -> list[Node]:
        async with open_journal(settings) as journal:
            agents = [agent.id for agent in settings.agents]
            return await load_nodes(journal, thread_id, agents, limit=limit)

    nodes = run(work())
    if as_json:
        print_json([as_json_of(node) for node in nodes])
    else:
        found = [line for node in nodes for line in lines_of(node)]
        print_lines(found or ["Nothing has happened in this thread yet."])


def context(
    thread_id: ThreadId,
    *,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """What the model would get of a thread now, and what is left out of it and why.

    Memories are not in it: which ones are told depends on what the user says next.
    """
    from langchain_core.messages import messages_to_dict  # noqa: PLC0415

    from segue.cli.messages import in_words, role_of  # noqa: PLC0415
    from segue.cli.opening import open_journal, read_settings, run  # noqa: PLC0415
    from segue.cli.output import print_json, print_table, record  # noqa: PLC0415
    from segue.cli.windows import next_context  # noqa: PLC0415
    from segue.core.metadata import strip_metadata  # noqa: PLC0415

    settings = read_settings(config, database)

    async def work() -> "Context":
        async with open_journal(settings) as journal:
            return await next_context(settings, journal, thread_id)

    found = run(work())
    if as_json:
        messages = messages_to_dict(strip_metadata(found.messages))
        dropped = [record(each) for each in found.dropped]
        print_json(record(found) | {"messages": messages, "dropped": dropped})
        return
    rows = ((role_of(m), in_words(m, 10_000)) for m in found.messages)
    print_table(("role", "what the model gets"), rows, nothing="Nothing yet.")
    left = [(str(d.batch), d.reason.value, d.detail) for d in found.dropped]
    print_table(("left out", "why", "in words"), left, nothing="Nothing is left out.")
    cut = ", and there may be older ones that do not fit" if found.cut else ""
    typer.echo(f"About {found.tokens} tokens in {len(found.batches)} batches{cut}.")


def timers(
    thread_id: ThreadId,
    *,
    limit: Limit = 50,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Planned and past follow-ups of a thread, newest first, with what became of them."""
    from segue.cli.opening import open_journal, read_settings, run  # noqa: PLC0415
    from segue.cli.output import print_json, print_table, record, when  # noqa: PLC0415

    settings = read_settings(config, database)

    async def work() -> "list[Timer]":
        async with open_journal(settings) as journal:
            await journal.get_thread(thread_id)  # raises if there is none
            return await journal.list_timers(thread_id, limit=limit)

    found = run(work())
    if as_json:
        print_json([*map(record, found)])
        return
    rows = (
        (when(t.due_at), t.state.value, t.trigger_type or t.kind.value, t.state_reason or t.reason)
        for t in found
    )
    headings = ("due", "state", "trigger", "why")
    print_table(headings, ((*row[:3], row[3] or "") for row in rows), nothing="There is no timer.")


def why(
    thread_id: ThreadId,
    *,
    limit: Limit = 50,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Why the agent wrote, and why it did not; oldest first."""
    from segue.cli.opening import open_journal, read_settings, run  # noqa: PLC0415
    from segue.cli.output import print_json, print_table, record, when  # noqa: PLC0415
    from segue.runtime.why import why as reasons_of  # noqa: PLC0415

    settings = read_settings(config, database)

    async def work() -> "list[Reason]":
        async with open_journal(settings) as journal:
            await journal.get_thread(thread_id)  # raises if there is none
            return await reasons_of(journal, thread_id, limit=limit)

    found = run(work())
    if as_json:
        print_json([*map(record, found)])
        return
    rows = ((when(r.at), r.what, r.outcome, r.why) for r in found)
    print_table(("when", "what", "outcome", "why"), rows, nothing="Nothing was decided yet.")
