"""What to search memories for: always the user's own words, never a trigger's."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from langchain_core.messages import BaseMessage, HumanMessage

from segue.core.calls import words_beside
from segue.core.metadata import check_messages, is_synthetic


class QuerySource(StrEnum):
    """Whose words a memory query is made of."""

    CURRENT_MESSAGE = "current_message"
    LAST_REAL_USER_MESSAGE = "last_real_user_message"
    CONVERSATION_SUMMARY = "conversation_summary"


@dataclass(frozen=True, slots=True)
class MemoryQuery:
    """The words to search memories with, and where they come from."""

    text: str
    source: QuerySource
    # Of the message that they were said in; a summary has none.
    message_id: str | None = field(default=None, compare=False)


def memory_query(messages: Sequence[BaseMessage], summary: str | None = None) -> MemoryQuery | None:
    """The words to search with and where they come from; None means: do not search.

    The current message if a person wrote it, else the last one a person wrote, else the
    summary. Of a message with pictures only the text counts; one without any text is passed
    over. The messages are taken in the order given.
    """
    source = QuerySource.CURRENT_MESSAGE
    for message in check_messages(reversed(messages)):
        if not isinstance(message, HumanMessage):
            continue
        if not is_synthetic(message) and (text := text_of(message)):
            return MemoryQuery(text, source, message.id)
        source = QuerySource.LAST_REAL_USER_MESSAGE
    if summary and summary.strip():
        return MemoryQuery(summary.strip(), QuerySource.CONVERSATION_SUMMARY)
    return None


def text_of(message: BaseMessage) -> str:
    """The text parts of a message, stripped, one per line."""
    content = message.content
    if isinstance(content, str):
        return content.strip() or words_beside(message)
    parts = (
        block if isinstance(block, str) else block.get("text")
        for block in content
        if isinstance(block, str) or block.get("type") in ("text", "text-plain")
    )
    words = "\n".join(part.strip() for part in parts if isinstance(part, str) and part.strip())
    return words or words_beside(message)
