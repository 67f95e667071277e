"""The self-test at start: does metadata survive the journal and the LangGraph checkpointer in use?

If either loses or changes anything, a trigger could show or a batch could break, so the system must
not start.
"""

import logging
from datetime import datetime
from typing import Any, Final

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint

from segue.core.messages import synthetic_message
from segue.core.snowflake import MAX_ID, SnowflakeSource, to_text
from segue.core.stamp import stamp
from segue.errors import BackendError
from segue.journal.journal import Journal
from segue.journal.messages import SELF_TEST

logger = logging.getLogger(__name__)

FAILED: Final = "Checkpoint metadata integrity test failed"

_CONTENT: Final[list[str | dict[str, Any]]] = [
    {"type": "text", "text": "Grüße, 世界 😀"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
]
_FOREIGN: Final = {"nested": {"list": [1, 2.5, None, True], "öäü": "\u2028"}, "large": MAX_ID}


async def check_integrity(
    journal: Journal,
    checkpointer: BaseCheckpointSaver[Any],
    *,
    ids: SnowflakeSource,
    now: datetime,
) -> None:
    """`BackendError` unless a message comes back unchanged from both; deletes what it stored."""
    message = _sample(ids)
    name = f"{SELF_TEST}{to_text(ids.next())}"
    _compare("journal", message, await _through_journal(journal, name, message, now))
    returned = await _through_checkpointer(checkpointer, name, message)
    _compare("checkpointer", message, returned)


def _sample(ids: SnowflakeSource) -> BaseMessage:
    trigger = synthetic_message("check_in", reason="self-test: ünïcode")
    kwargs = trigger.additional_kwargs | _FOREIGN
    rich = trigger.model_copy(update={"content": _CONTENT, "additional_kwargs": kwargs})
    [message] = stamp([rich], ids, parent_batch=MAX_ID)
    return message


async def _through_journal(
    journal: Journal, name: str, message: BaseMessage, now: datetime
) -> BaseMessage:
    # One user for all: its feed stays behind.
    await journal.threads.create(name, agent_id=name, user_id=SELF_TEST, now=now)
    try:
        await journal.messages.import_messages(name, [message])
        batch = await journal.messages.load_batch(name, message.additional_kwargs["batch"])
        page = await journal.messages.history(name)
    finally:
        await journal.threads.delete(name)
    if page.messages:
        raise BackendError(f"{FAILED}: the journal shows a synthetic message as visible.")
    return batch.messages[0]


async def _through_checkpointer(
    checkpointer: BaseCheckpointSaver[Any], name: str, message: BaseMessage
) -> BaseMessage | None:
    config: Any = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
    checkpoint = empty_checkpoint()
    version = checkpointer.get_next_version(None, None)
    checkpoint["channel_values"] = {"messages": [message]}
    checkpoint["channel_versions"] = {"messages": version}
    try:
        await checkpointer.aput(config, checkpoint, {}, {"messages": version})
        stored = await checkpointer.aget_tuple(config)
    finally:
        await checkpointer.adelete_thread(name)
    messages = stored.checkpoint["channel_values"].get("messages") if stored else None
    return messages[0] if messages else None


def _compare(where: str, sent: BaseMessage, returned: object) -> None:
    if type(returned) is type(sent) and returned == sent:
        return
    difference = f"sent {_summary(sent)}, got back {_summary(returned)}"
    logger.error("%s: the %s changed a message: %s", FAILED, where, difference)
    raise BackendError(
        f"{FAILED}: the {where} changed a message ({difference}). The system does not start, "
        "since triggers could become visible; check the versions of LangGraph and its saver."
    )


def _summary(message: object) -> str:
    if isinstance(message, BaseMessage):
        return f"{type(message).__name__} with {message.additional_kwargs}"
    return type(message).__name__
