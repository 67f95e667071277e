"""`segue batches`, `context`, `timers` and `why`: what is stored of a thread, for its operator."""

from typing import TYPE_CHECKING

import typer

from segue.cli.options import AsJson, ConfigFile, Database, Limit, ThreadId
from segue.cli.output import print_json, print_lines, print_table, when
from segue.cli.working import with_thread

if TYPE_CHECKING:
    from segue.core.context import Context
    from segue.journal.ports import Journal
    from segue.journal.records import Thread
    from segue.settings import Settings


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

    async def work(journal: "Journal", thread: "Thread", settings: "Settings") -> list[Node]:
        agents = [agent.id for agent in settings.agents]
        return await load_nodes(journal, thread.id, agents, limit=limit)

    nodes = with_thread(thread_id, config, database, work)
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
    from segue.cli.opening import config_of  # noqa: PLC0415
    from segue.runtime.preview import context_json, next_context  # noqa: PLC0415

    async def work(journal: "Journal", thread: "Thread", settings: "Settings") -> "Context":
        return await next_context(journal, thread, config_of(settings, thread.agent_id))

    found = with_thread(thread_id, config, database, work)
    if as_json:
        print_json(context_json(found))
    else:
        _print_context(found)


def timers(
    thread_id: ThreadId,
    *,
    limit: Limit = 50,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Planned and past follow-ups of a thread, newest first, with what became of them."""
    from segue.cli.fates import Fate, load_fates  # noqa: PLC0415

    async def work(journal: "Journal", thread: "Thread", _: "Settings") -> list[Fate]:
        return await load_fates(journal, thread.id, limit=limit)

    found = with_thread(thread_id, config, database, work)
    if as_json:
        print_json([fate.as_json() for fate in found])
        return
    rows = (
        (
            when(fate.timer.due_at),
            fate.timer.state.value,
            fate.became or "",
            fate.timer.trigger_type or fate.timer.kind.value,
            fate.why,
        )
        for fate in found
    )
    print_table(("due", "state", "became", "trigger", "why"), rows, nothing="There is no timer.")


def why(
    thread_id: ThreadId,
    *,
    limit: Limit = 50,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Why the agent wrote, and why it did not; oldest first."""
    from segue.runtime.why import why as reasons_of  # noqa: PLC0415

    found = with_thread(
        thread_id,
        config,
        database,
        lambda journal, thread, _: reasons_of(journal, thread.id, limit=limit),
    )
    if as_json:
        print_json(found)
        return
    rows = ((when(r.at), r.what, r.outcome, r.why) for r in found)
    print_table(("when", "what", "outcome", "why"), rows, nothing="Nothing was decided yet.")


def _print_context(found: "Context") -> None:
    from segue.cli.messages import in_words, role_of  # noqa: PLC0415

    rows = ((role_of(m), in_words(m, 10_000)) for m in found.messages)
    print_table(("role", "what the model gets"), rows, nothing="Nothing yet.")
    left = ((str(d.batch), d.reason.value, d.detail) for d in found.dropped)
    print_table(("left out", "why", "in words"), left, nothing="Nothing is left out.")
    if found.shortened:
        shorter = ((str(s.batch), s.detail) for s in found.shortened)
        print_table(("told in part", "why"), shorter, nothing="")
    cut = ", and there may be older ones that do not fit" if found.cut else ""
    typer.echo(f"About {found.tokens} tokens in {len(found.batches)} batches{cut}.")
