"""A chat model that answers from a script: for tests, and for a demo without a key.

It streams as providers do, with tool calls and usage, and keeps its requests, so that a test can
check the input of a model. It ignores tools: the script decides.

`demo_reply` is the script of the model `scripted`. The same conversation gets the same replies. A
follow-up refers to the data of its request, or to the user's earlier messages; prompts are ignored,
since only a model could follow them. In a run, triggers are recognised by their metadata, since the
owner may have replaced their prompts. A request for a summary gets the beginnings of the user's
messages.
"""

import asyncio
import inspect
import json
import re
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Annotated, Any, Final, Self

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolCallChunk,
)
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import ConfigDict, Field, PrivateAttr, SkipValidation

from segue.agent.current import current_run
from segue.core.calls import calls_of
from segue.core.compression import SummaryRequest, cut_at_sentence
from segue.core.memory import STOP_WORDS
from segue.core.messages import CONTINUATION_PROMPT
from segue.core.metadata import MessageMetadata, is_synthetic
from segue.core.tokens import estimate_tokens
from segue.core.triggers import (
    EVENT_PROMPT,
    FIXED_PROMPTS,
    REMINDER,
    REMINDER_PROMPT,
    TRIGGER_PROMPTS,
    TriggerType,
    data_of,
    without_data,
)
from segue.errors import UsageError

Reply = AIMessage | str | BaseException
# With an async function a test can delay a reply until something else has happened.
Answer = Callable[[list[BaseMessage]], Reply | Awaitable[Reply]]
Line = Reply | Answer
Script = Sequence[Line] | Answer

_WORDS: Final = re.compile(r"\S+\s*|\s+")


class ScriptedChatModel(BaseChatModel):
    """Answers each request with the next line of its script, or by a function of the messages.

    A line is a message, a text, an error to raise, or a function that makes one of these from
    the messages; a function as the whole script answers without end. Parallel requests take their
    lines in the order of arrival. `UsageError` when no line is left.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    # Checked below: pydantic would turn every text into a message.
    script: SkipValidation[Script]
    # Seconds before each piece of a reply.
    delay: Annotated[float, Field(ge=0)] = 0.0
    # Number of requests that `seen` keeps; None means all.
    keep: Annotated[int, Field(ge=0)] | None = None

    _requests: deque[list[BaseMessage]] = PrivateAttr()
    _tools: list[Any] = PrivateAttr(default_factory=list)
    _taken: int = PrivateAttr(default=0)
    _lock: threading.Lock = PrivateAttr(default_factory=threading.Lock)

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._requests = deque(maxlen=self.keep)
        lines = [self.script] if callable(self.script) else self.script
        if isinstance(lines, str) or not isinstance(lines, Sequence):
            raise UsageError(f"A script is a list of lines, not {type(lines).__name__}.")
        for line in lines:
            if not callable(line):
                _check_reply(line)

    @property
    def seen(self) -> list[list[BaseMessage]]:
        """The messages of each request, oldest first."""
        with self._lock:
            return list(self._requests)

    @property
    def tools(self) -> list[Any]:
        """The tools that were bound last."""
        return list(self._tools)

    @property
    def _llm_type(self) -> str:
        return "segue-scripted"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Self:
        """The model itself: its script says what it calls."""
        self._tools = list(tools)
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **_options: Any) -> ChatResult:
        reply = self._reply(messages)
        time.sleep(self.delay * len(_pieces(reply)))
        return ChatResult(generations=[ChatGeneration(message=reply)])

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **_options: Any) -> ChatResult:
        reply = await self._areply(messages)
        await asyncio.sleep(self.delay * len(_pieces(reply)))
        return ChatResult(generations=[ChatGeneration(message=reply)])

    def _stream(
        self, messages: list[BaseMessage], *_: Any, **_options: Any
    ) -> Iterator[ChatGenerationChunk]:
        for piece in _pieces(self._reply(messages)):
            time.sleep(self.delay)
            yield ChatGenerationChunk(message=piece)

    async def _astream(
        self, messages: list[BaseMessage], *_: Any, **_options: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for piece in _pieces(await self._areply(messages)):
            # Even without a delay, so that a reply can be cancelled and others can run.
            await asyncio.sleep(self.delay)
            yield ChatGenerationChunk(message=piece)

    def _reply(self, messages: list[BaseMessage]) -> AIMessage:
        line = self._next_line(messages)
        reply = line(list(messages)) if callable(line) else line
        if inspect.isawaitable(reply):
            raise UsageError("A line that is an async function needs ainvoke or astream.")
        return _complete(reply, messages)

    async def _areply(self, messages: list[BaseMessage]) -> AIMessage:
        line = self._next_line(messages)
        reply = line(list(messages)) if callable(line) else line
        return _complete(await reply if inspect.isawaitable(reply) else reply, messages)

    def _next_line(self, messages: list[BaseMessage]) -> Line:
        with self._lock:
            self._requests.append(list(messages))
            if callable(self.script):
                return self.script
            if self._taken == len(self.script):
                raise UsageError(
                    f"The script has {self._taken} lines and all are used; the model was asked "
                    "once more. Add a line, or give it a function as its script."
                )
            self._taken += 1
            return self.script[self._taken - 1]


def _check_reply(reply: object) -> Reply:
    if isinstance(reply, AIMessage | str | BaseException):
        return reply
    raise UsageError(
        f"A line of a script is {type(reply).__name__}; expected an AIMessage, a text, an error, "
        "or a function that returns one of these."
    )


def _complete(given: object, messages: list[BaseMessage]) -> AIMessage:
    """The reply as a message with its metadata and usage; raises a line that is an error."""
    reply = _check_reply(given)
    if isinstance(reply, BaseException):
        raise reply
    if isinstance(reply, str):
        reply = AIMessage(reply)
    reason = "tool_calls" if calls_of(reply) else "stop"
    # A copy, since LangChain sets its id, and the same line may be used twice.
    return reply.model_copy(
        update={
            "response_metadata": {"finish_reason": reason, "model_name": "scripted"}
            | reply.response_metadata,
            "usage_metadata": reply.usage_metadata or _usage(reply, messages),
            "additional_kwargs": dict(reply.additional_kwargs),
        }
    )


def _usage(reply: AIMessage, messages: list[BaseMessage]) -> UsageMetadata:
    read, written = sum(map(estimate_tokens, messages)), estimate_tokens(reply)
    return UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)


def _pieces(reply: AIMessage) -> list[AIMessageChunk]:
    """The reply in the chunks that a provider would stream: words, calls, and a last one."""
    content = reply.content
    texts: list[Any] = _WORDS.findall(content) if isinstance(content, str) else [content]
    pieces = [AIMessageChunk(content=text, id=reply.id) for text in texts]
    pieces += [
        AIMessageChunk(content="", id=reply.id, tool_call_chunks=[chunk])
        for chunk in _call_chunks(reply)
    ]
    closing = AIMessageChunk(
        content="" if isinstance(content, str) else [],
        id=reply.id,
        name=reply.name,
        additional_kwargs=reply.additional_kwargs,
        response_metadata=reply.response_metadata,
        usage_metadata=reply.usage_metadata,
        chunk_position="last",
    )
    return [*pieces, closing]


def _call_chunks(reply: AIMessage) -> Iterator[ToolCallChunk]:
    """First the name, then the arguments, as providers stream them."""
    calls = [(call["name"], json.dumps(call["args"]), call["id"]) for call in reply.tool_calls]
    calls += [(c["name"] or "", c["args"] or "", c["id"]) for c in reply.invalid_tool_calls]
    for index, (name, args, call_id) in enumerate(calls):
        yield tool_call_chunk(name=name, args="", id=call_id, index=index)
        yield tool_call_chunk(name=None, args=args, id=None, index=index)


# Words before a noun.
_DETERMINER: Final = re.compile(r"(?i)a|about|an|for|my|of|our|some|the|these|this|those|your")
_TOKEN: Final = re.compile(r"[^\W\d_][\w'-]*|[.,;:!?]")
_CHOICE: Final = re.compile(r"(?i)(?<![\w'-])[\w'-]+ or [\w'-]+")
_QUESTION: Final = re.compile(r"(?i)\?\s*$|^(how|what|when|where|which|who|why)\b")

# The first pattern that matches decides.
_SMALL_TALK: Final[Mapping[str, str]] = {
    r"(?i)\b(good)?bye\b|\bgood night\b|\bsee you\b": "Goodbye, and take care!",
    r"(?i)\bthank(s| you)\b": "You're welcome! Just write whenever you like.",
    r"(?i)\bhow are you\b": "Very well, thanks. What are you up to?",
    r"(?i)^(hi|hello|hey|good (morning|afternoon|evening))\b[^?]{0,20}$": (
        "Hi there! How is your day going?"
    ),
}
_TO_QUESTION: Final = (
    "Hard to say from here, but {topic} is worth a closer look. What do you think?"
)
_TO_REMARK: Final = "And how do you feel about {topic}?"
# By prompt.
_FOLLOW_UPS: Final[Mapping[str, str]] = {
    TRIGGER_PROMPTS[TriggerType.CHECK_IN]: "By the way, how are things with {topic}?",
    TRIGGER_PROMPTS[TriggerType.QUESTION_UNANSWERED]: (
        "Did my answer about {topic} help, or shall we look at it from another side?"
    ),
    TRIGGER_PROMPTS[TriggerType.TASK_INCOMPLETE]: (
        "How far did you get with {topic}? I'm happy to take the next step with you."
    ),
    TRIGGER_PROMPTS[TriggerType.WAITING_FOR_DECISION]: (
        "Have you made up your mind about {choice}?"
    ),
    REMINDER_PROMPT: "It is time for what you asked me to remind you of.",
    EVENT_PROMPT: "There is news for you. Shall I tell you more?",
    CONTINUATION_PROMPT: "That is done now. What would you like to do next?",
}
_NEWS: Final = "There is news for you: {topic}. Shall I tell you more?"
_SECOND_FOLLOW_UP: Final = "I was just thinking of {topic}. Is there anything new?"
_WITHOUT_TOPIC: Final = "Is there anything new with you?"
# Speakers quoted in a summary, by their names in a transcript.
_QUOTED: Final = {"user": "The user", "another agent": "Another agent"}
_QUOTE_TOKENS: Final = 30
_GREETING_WORDS: Final = 5


def demo_reply(messages: Sequence[BaseMessage]) -> str:
    """The next reply, or the summary that the messages ask for."""
    if (request := SummaryRequest.find(messages)) is not None:
        return _summarise(request)
    asked = [message for message in messages if isinstance(message, HumanMessage)]
    last = asked[-1].text if asked else ""
    data = _data_behind(last)
    if last.startswith(REMINDER_PROMPT) and data:
        return f"Here is your reminder: {data[REMINDER]}"
    prompts = _prompts_in_run()
    texts = [
        prompts.get(message.id) or prompts.get(text) or _without_facts(text)
        for message in asked
        for text in [message.text.strip()]
    ]
    real = [text for text in texts if text not in _FOLLOW_UPS]
    told = ", ".join(_leaves(data, ""))
    topic = told or _latest(real, find_topic)
    template = _template(texts, has_topic=bool(topic))
    if told and template == _FOLLOW_UPS[EVENT_PROMPT]:
        template = _NEWS
    return template.format(topic=topic or "that", choice=_latest(real, _find_choice) or topic)


def _template(texts: Sequence[str], *, has_topic: bool) -> str:
    last = texts[-1] if texts else ""
    if last == CONTINUATION_PROMPT or last not in _FOLLOW_UPS:
        reply = _TO_QUESTION if _QUESTION.search(last) else _TO_REMARK
        return _FOLLOW_UPS.get(last) or _find_small_talk(last) or reply
    if not has_topic and last != EVENT_PROMPT:
        return _WITHOUT_TOPIC
    in_a_row = len([*takewhile(_FOLLOW_UPS.__contains__, reversed(texts))])
    return _FOLLOW_UPS[last] if in_a_row % 2 else _SECOND_FOLLOW_UP


def _prompts_in_run() -> dict[str | None, str]:
    """The standard prompt of each trigger in the run, by the trigger's id and by its text."""
    found: dict[str | None, str] = {}
    run = current_run()
    for message in run.messages if run else ():
        if isinstance(message, HumanMessage) and is_synthetic(message):
            trigger = MessageMetadata.of(message).trigger_type
            # A trigger of an owner's own is taken for a check-in.
            known = FIXED_PROMPTS.get(trigger or "") or FIXED_PROMPTS[TriggerType.CHECK_IN]
            standard = known if trigger else CONTINUATION_PROMPT
            found |= {name: standard for name in (message.id, message.text.strip()) if name}
    return found


def _data_behind(text: str) -> Any:
    """The data that came with a trigger; None if there is none."""
    try:
        return data_of(text)
    except ValueError:  # a user typed something like it
        return None


def _without_facts(text: str) -> str:
    """A standard prompt without its data; any other text as it is."""
    prompt = without_data(text)
    return prompt if prompt in _FOLLOW_UPS else text


def _leaves(value: Any, name: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            if key not in {"type", "at", "meant_for"}:
                yield from _leaves(each, str(key))
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each, name)
    elif value is not None:
        yield value if isinstance(value, str) else f"{name} {value}".replace("_", " ").strip()


def find_topic(text: str) -> str:
    """The topic of a text: its longest noun phrase, else its longest word; empty if none."""
    if _find_small_talk(text):
        return ""
    phrases: list[str] = []
    words: list[str] = []
    follows_determiner = False
    for token in [*_TOKEN.findall(text), "."]:
        if _is_content(token):
            words.append(token)
            continue
        if words and follows_determiner:
            phrases.append(" ".join(words[:3]))
        words, follows_determiner = [], _DETERMINER.fullmatch(token) is not None
    if phrases:
        phrase = max(phrases, key=lambda phrase: phrase.count(" "))
        return phrase if phrase[0].isupper() else f"the {phrase}"
    long_words = (word for word in _TOKEN.findall(text) if _is_content(word) and len(word) > 4)
    return max(long_words, key=len, default="")


def _find_choice(text: str) -> str:
    """The "this or that" of a text; empty if there is none."""
    found = _CHOICE.search(text)
    return found[0] if found else ""


def _summarise(request: SummaryRequest) -> str:
    """The earlier summary and one line per message to the agent; the newest lines that fit."""
    lines = request.earlier.splitlines()
    for entry in json.loads(request.transcript):
        speaker, text = _QUOTED.get(entry.get("from")), " ".join(entry.get("text", "").split())
        is_greeting = len(text.split()) <= _GREETING_WORDS and _find_small_talk(text)
        if speaker and text and not is_greeting:
            lines.append(f"{speaker} said: {cut_at_sentence(text, _QUOTE_TOKENS)}")
    room, kept = request.words, list[str]()
    for line in reversed(lines):
        room -= len(line.split())
        if kept and room < 0:
            break
        kept.insert(0, line)
    return "\n".join(kept) or "There was some small talk."


def _find_small_talk(text: str) -> str | None:
    replies = (reply for pattern, reply in _SMALL_TALK.items() if re.search(pattern, text))
    return next(replies, None)


def _is_content(word: str) -> bool:
    return word.isalpha() and word.lower() not in STOP_WORDS


def _latest(texts: Sequence[str], find: Callable[[str], str]) -> str:
    return next(filter(None, map(find, reversed(texts))), "")
