"""What is sent elsewhere when an agent has written: effects for webhooks and notifications.

`Webhooks` and `Notifier` deliver them.
"""

from datetime import timedelta
from typing import Final

from langchain_core.messages import AIMessage

from segue.core.batch import Batch
from segue.core.messages import visible_messages
from segue.core.metadata import BatchType, MessageMetadata
from segue.core.snowflake import to_text
from segue.journal.push import Push
from segue.journal.records import NewEffect, Turn, TurnKind
from segue.settings.agents import AgentConfig

WEBHOOK: Final = "webhook"
PUSH: Final = "push"
# An open page has marked the message as read by then, and no other device rings.
_PUSH_DELAY: Final = timedelta(seconds=5)


def webhook_effects(turn: Turn, batch: Batch, config: AgentConfig) -> list[NewEffect]:
    """The delivery of what a follow-up or continuation said; with `all_replies`, of replies too."""
    if config.webhook is None or batch.type is BatchType.AGENT_TO_AGENT:
        return []
    event, replies = _event(turn, batch), visible_replies(turn, batch)
    if not replies or (event is TurnKind.REPLY and not config.webhook.all_replies):
        return []
    payload = {
        "event": event.value,
        "agent_id": turn.agent_id,
        "user_id": turn.user_id,
        "thread_id": turn.thread_id,
        "turn_id": to_text(turn.id),
        "messages": [{"id": reply.id, "text": reply.text} for reply in replies],
    }
    return [NewEffect(WEBHOOK, payload, f"{WEBHOOK}:{to_text(turn.id)}")]


async def push_effects(turn: Turn, batch: Batch, push: Push) -> list[NewEffect]:
    """A notification for each browser of the user, of what was not asked for just now.

    They name the turn and hold no text, so that retention and deletion need not look for it here.
    """
    event = _event(turn, batch)
    is_answer = event is TurnKind.REPLY or batch.type is BatchType.AGENT_TO_AGENT
    if is_answer or not visible_replies(turn, batch):
        return []
    name = to_text(turn.id)
    return [
        NewEffect(
            PUSH,
            {"event": event.value, "turn": name, "subscription": to_text(each.id)},
            f"{PUSH}:{name}:{to_text(each.id)}",
            _PUSH_DELAY,
        )
        for each in await push.list_of(turn.user_id)
    ]


def _event(turn: Turn, batch: Batch) -> TurnKind:
    """A continuation of a follow-up is part of the follow-up."""
    spoke_first = batch.type is BatchType.SYSTEM_TRIGGER
    is_follow_up = spoke_first and turn.kind is not TurnKind.REPLY
    return TurnKind.FOLLOW_UP if is_follow_up else turn.kind


def visible_replies(turn: Turn, batch: Batch) -> list[AIMessage]:
    """The agent's messages of a turn that the user sees, including those of earlier tries."""
    seen = (m for m in visible_messages(batch.messages) if isinstance(m, AIMessage))
    # Positions after the turn's id belong to the turn; its last message has no position yet.
    return [m for m in seen if (MessageMetadata.of(m).position or turn.id) >= turn.id]
