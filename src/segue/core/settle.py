"""Settling: closing an abandoned batch so that it is complete and valid.

All messages stay. Each open call gets an "interrupted" result, and a closing message tells the
model that its reply was cut off. Both are synthetic, so no person sees them.
"""

from dataclasses import replace
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from segue.core.batch import Batch
from segue.core.metadata import MessageMetadata
from segue.core.snowflake import SnowflakeSource, next_snowflake, node_of, to_text

INTERRUPTED_RESULT: Final = (
    "Interrupted: this call did not finish, and it is not known whether it took effect."
)
CUT_OFF_REPLY: Final = "My reply was cut off here before I could finish it."


def settle(batch: Batch, generator: SnowflakeSource | None = None) -> Batch:
    """The complete batch: itself if it is complete, else with closing messages appended.

    It only appends, so a journal stores `settled.messages[len(batch.messages):]`. Without a
    generator the new positions follow the batch's own, which is right for a view but may collide
    with another batch's; pass a generator for messages to store. Settling twice changes nothing.
    """
    if batch.is_complete:
        return batch
    closing = [*interrupted_results(batch), AIMessage(CUT_OFF_REPLY)]
    return Batch(batch.id, [*batch.messages, *_appended(batch, closing, generator)])


def with_open_calls_answered(batch: Batch) -> Batch:
    """The batch with its open calls answered, so that a model can continue it."""
    return Batch(batch.id, [*batch.messages, *_appended(batch, interrupted_results(batch), None)])


def interrupted_results(batch: Batch) -> list[BaseMessage]:
    return [
        ToolMessage(
            INTERRUPTED_RESULT,
            tool_call_id=exchange.call.id,
            name=exchange.call.name or None,
            status="error",
        )
        for exchange in batch.pairing.unanswered
    ]


def _appended(
    batch: Batch, messages: list[BaseMessage], generator: SnowflakeSource | None
) -> list[BaseMessage]:
    position = batch.last_position
    template = MessageMetadata(
        synthetic=True,
        settled=True,
        batch=batch.id,
        batch_type=batch.type,
        parent_batch=batch.parent,
    )
    appended = []
    for sequence_num, message in enumerate(messages, batch.next_sequence_num):
        if generator is None:
            position = next_snowflake(position, 0, node_of(position))
        else:
            position = generator.next(after=position)
        metadata = replace(template, position=position, sequence_num=sequence_num)
        appended.append(metadata.onto(message, id=to_text(position)))
    return appended
