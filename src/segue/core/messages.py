"""Making messages, and choosing which ones a user sees.

`user_message` takes what clients send, `synthetic_message` makes Segue's own prompts, and
everything shown to a user passes through `visible_messages`.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, Literal

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from segue.core.calls import FOREIGN_TEXT, has_content, is_of_type, words_beside
from segue.core.media import is_convertible
from segue.core.metadata import (
    NO_METADATA,
    BatchType,
    Initiative,
    MessageMetadata,
    check_messages,
    is_synthetic,
)
from segue.core.text import check_storable, is_deeper, plain_json, storable
from segue.core.tokens import estimate_text
from segue.core.triggers import (
    FIXED_PROMPTS,
    TriggerType,
    check_trigger_name,
    parse_trigger,
    with_data,
)
from segue.errors import UsageError

# Blocks that a client may send. Tool calls, tool results and reasoning would forge history.
CLIENT_BLOCKS: Final = frozenset(
    {"text", "image", "image_url", "audio", "input_audio", "video", "file", "text-plain"}
)
# Blocks that a person sees: those that clients send, and the text blocks of some models.
_SHOWN_BLOCKS: Final = CLIENT_BLOCKS | FOREIGN_TEXT

Origin = Literal["reply", "follow_up"]

_LONGEST: Final = 4_000
_DEEPEST: Final = 64
# For one request, or for all events that one message is about.
MOST_DATA_TOKENS: Final = 1_500
CONTINUATION_PROMPT: Final = "Go on with what you were doing."


def synthetic_message(
    trigger: TriggerType | str,
    reason: str | None = None,
    prompt: str | None = None,
    *,
    initiative: Initiative | None = None,
    data: Any = None,
) -> HumanMessage:
    """The message that asks the model to speak first.

    `reason` is kept for operators and never shown to the model; `prompt` replaces the trigger's
    fixed one, and `data` is quoted behind it. With an `initiative`, the trigger may be an owner's.
    Raises `UnknownTrigger`.
    """
    kind = parse_trigger(trigger) if initiative is None else check_trigger_name(trigger)
    text = FIXED_PROMPTS.get(kind, "") if prompt is None else storable(str(prompt))
    if not text.strip():
        raise UsageError(f"The prompt for {str(kind)!r} is empty; the model needs words to answer.")
    metadata = NO_METADATA.with_fields(
        synthetic=True, trigger_type=kind, trigger_reason=reason, initiative=initiative
    )
    return HumanMessage(with_data(text, data), additional_kwargs=metadata.to_kwargs())


def check_request(prompt: Any, data: Any) -> None:
    """`UsageError` if a prompt is empty or too long, data is not JSON or too large, or a text of
    them cannot be stored.
    """
    if prompt is not None and not (isinstance(prompt, str) and 0 < len(prompt.strip()) <= _LONGEST):
        raise UsageError(f"A prompt is text of 1 to {_LONGEST:,} characters. Nothing was written.")
    check_storable(prompt, "The prompt")
    try:
        written = json.dumps(data, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"Data is JSON, and this is not: {error}. Nothing was written.") from error
    if is_deeper(data, _DEEPEST):
        raise UsageError(f"Data is nested {_DEEPEST} deep at most. Nothing was written.")
    check_storable(data, "The data")
    if (size := estimate_text(written)) > MOST_DATA_TOKENS:
        raise UsageError(
            f"Data has about {size:,} tokens as JSON; at most {MOST_DATA_TOKENS:,} leave room for "
            "the conversation. Nothing was written."
        )


def continuation_message(reason: str | None = None) -> HumanMessage:
    """The message that continues a batch; a human message, since providers may refuse others."""
    metadata = MessageMetadata(synthetic=True, trigger_reason=reason)
    return HumanMessage(CONTINUATION_PROMPT, additional_kwargs=metadata.to_kwargs())


def background_message(message: BaseMessage) -> HumanMessage:
    """A stamped text that the user did not write, such as a summary, as a hidden human message."""
    metadata = replace(MessageMetadata.of(message), synthetic=True)
    return HumanMessage(message.content, id=message.id, additional_kwargs=metadata.to_kwargs())


def user_message(content: str | list[Any] | HumanMessage, id: str | None = None) -> HumanMessage:
    """A user's message from client input: content only.

    Metadata, names, ids and anything else that the client attached are dropped; the server gives
    the `id`. `UsageError` for an empty message, and for a content block that clients may not send,
    that has no payload, or that no model can read.
    """
    if isinstance(content, HumanMessage):
        return user_message(content.content, id)
    if isinstance(content, str | list):
        plain = storable(content) if isinstance(content, str) else [*map(_client_block, content)]
        message = HumanMessage(plain, id=id)
        if has_content(message):
            return message
        raise UsageError("The message is empty; send some text, a picture or a file.")
    raise UsageError(f"A message is text or a list of blocks, not {type(content).__name__}.")


def visible_messages(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """The messages that a user sees: their own and the agent's replies.

    Left out are synthetic messages, by their metadata alone, tool results, and assistant messages
    that only call tools or only reason.
    """
    return [
        message
        for message in check_messages(messages)
        if not is_synthetic(message)
        and (
            isinstance(message, HumanMessage)
            or (isinstance(message, AIMessage) and has_content(message))
        )
    ]


def spoken_text(message: BaseMessage) -> str:
    """The text of a visible message, wherever its provider keeps it."""
    return message.text or words_beside(message)


def with_text(message: AIMessage, text: str) -> AIMessage:
    """The message with a paragraph added at its end."""
    content = message.content
    if isinstance(content, str):
        added: str | list[Any] = f"{spoken_text(message)}\n\n{text}".strip()
    else:
        added = [*content, {"type": "text", "text": f"\n\n{text}"}]
    return message.model_copy(update={"content": added})


def shown_content(message: BaseMessage) -> str | list[Any]:
    """The content without tool calls and without reasoning, which may quote a trigger."""
    content = message.content
    if isinstance(content, str):
        return content or words_beside(message)
    return [each for each in content if isinstance(each, str) or is_of_type(each, _SHOWN_BLOCKS)]


def origin_of(message: BaseMessage) -> Origin | None:
    """Whether an agent's message is a reply or a follow-up; None for a user's message."""
    if isinstance(message, HumanMessage):
        return None
    is_follow_up = MessageMetadata.of(message).batch_type is BatchType.SYSTEM_TRIGGER
    return "follow_up" if is_follow_up else "reply"


def _has_payload(block: dict[str, Any]) -> bool:
    """Whether a media block has its data; clients crash on one that has not."""
    inner = block.get(str(block["type"]))
    place = inner if isinstance(inner, dict) else block
    url = inner if isinstance(inner, str) else place.get("url")
    if url is not None:
        return isinstance(url, str) and url.startswith(("https://", "data:"))
    payloads = (place.get(key) for key in ("base64", "data", "file_id", "id", "text", "file_data"))
    return any(isinstance(payload, str) and payload for payload in payloads)


def _client_block(block: Any) -> Any:
    if isinstance(block, str):
        block = {"type": "text", "text": block}
    kind = block.get("type") if isinstance(block, dict) else type(block).__name__
    if not isinstance(kind, str) or kind not in CLIENT_BLOCKS:
        raise UsageError(
            f"A client cannot send a content block of type {kind!r}; "
            f"allowed are: {', '.join(sorted(CLIENT_BLOCKS))}."
        )
    if kind == "text":
        if not isinstance(block.get("text"), str):
            raise UsageError("A text block needs its words in 'text'.")
        # Some clients would forward unknown keys of a text block.
        return {"type": "text", "text": storable(block["text"])}
    if not _has_payload(block):
        raise UsageError(
            f"A block of type {kind!r} needs a url (https: or data:), base64 data or a file id."
        )
    if not is_convertible(block):
        raise UsageError(
            f"The block of type {kind!r} cannot be read by models: base64 data needs its "
            "'mime_type', and a block with 'source_type' what that names."
        )
    # Only the agent's owner decides on caching, since it costs money.
    return plain_json({key: value for key, value in block.items() if key != "cache_control"})
