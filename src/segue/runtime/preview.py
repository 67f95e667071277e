"""What the model would get of a thread now, for operators; nothing is asked and nothing stored."""

from typing import Any

from langchain_core.messages import messages_to_dict

from segue.agent.config import AgentConfig
from segue.core.context import Context, build_context
from segue.core.metadata import strip_metadata
from segue.core.plain import exact_json
from segue.core.snowflake import to_text
from segue.journal.ports import Journal
from segue.journal.records import Thread
from segue.runtime.windows import read_window
from segue.runtime.wording import in_words, role_of


async def next_context(journal: Journal, thread: Thread, config: AgentConfig) -> Context:
    """The context of a thread before anybody says anything more.

    Memories are not in it: which ones are told depends on what the user says next. A graph of
    one's own has its own system prompt; what it is given is shown.
    """
    window = await read_window(journal, thread.id, max_tokens=config.context_tokens)
    summary = window.told(config.context_tokens)
    system, memories = config.system_prompt, config.memory
    if config.graph is not None:
        return build_context(window.batches, None, config.context_tokens, summary=summary)
    # The built-in agent keeps room for what it remembers.
    room = config.context_tokens - (memories.max_tokens if memories.enabled else 0)
    return build_context(window.batches, None, room, system=system, summary=summary)


def context_json(context: Context) -> dict[str, Any]:
    """A context as JSON: its messages as a model gets them, and in a line each with their role."""
    return {
        "messages": messages_to_dict(strip_metadata(context.messages)),
        "lines": [{"role": role_of(m), "text": in_words(m)} for m in context.messages],
        "batches": [to_text(batch) for batch in context.batches],
        "dropped": exact_json(context.dropped),
        "shortened": exact_json(context.shortened),
        "tokens": context.tokens,
        "reserved": context.reserved,
        "is_cut": context.cut,
        "over_budget": context.over_budget,
    }
