"""What the model would get of a thread, computed from the journal and the settings alone."""

from segue.agent.config import AgentConfig
from segue.core.context import Context, build_context
from segue.core.errors import NotFoundError
from segue.journal.ports import Journal
from segue.settings import Settings


async def next_context(settings: Settings, journal: Journal, thread_id: str) -> Context:
    """`NotFoundError` if there is no such thread, or the settings do not know its agent."""
    thread = await journal.get_thread(thread_id)
    config = _agent(settings, thread.agent_id)
    window = await journal.window(thread_id, max_tokens=config.context_tokens)
    summary = window.summary.text if window.summary else None
    return build_context(
        window.batches, None, config.context_tokens, system=config.system_prompt, summary=summary
    )


def _agent(settings: Settings, agent_id: str) -> AgentConfig:
    for config in settings.agents:
        if config.id == agent_id:
            return config
    known = ", ".join(config.id for config in settings.agents)
    raise NotFoundError(
        f"The thread is with agent {agent_id!r}, and the settings have only: {known}. "
        "Name the settings that it was begun with by --config."
    )
