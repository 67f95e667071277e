"""What a client may say over a socket. Strict: what is not here is answered with an error frame."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from segue.core.errors import UsageError
from segue.server.guard import TooManyParts, check_parts
from segue.server.mistakes import in_words, mistakes_in
from segue.server.shapes import Given, Id, NewMessage, Sent


class MessageFrame(NewMessage):
    """The user says something."""

    type: Literal["message"]


class CancelFrame(Sent):
    """Stop the answer."""

    type: Literal["cancel"]


class TypingFrame(Sent):
    """The user is typing."""

    type: Literal["typing"]


class AnswerFrame(Sent):
    """An answer to a question that the agent waits with."""

    type: Literal["answer"]
    turn_id: Id
    answer: Given


class PingFrame(Sent):
    """Is anybody there? Answered with `pong`."""

    type: Literal["ping"]


ClientFrame = Annotated[
    MessageFrame | CancelFrame | TypingFrame | AnswerFrame | PingFrame,
    Field(discriminator="type"),
]
_FRAMES: TypeAdapter[ClientFrame] = TypeAdapter(ClientFrame)


def read_frame(text: str) -> ClientFrame:
    """A client's frame; `UsageError` says what is wrong with it."""
    try:
        check_parts(text.encode(errors="replace"))
    except TooManyParts as error:
        raise UsageError(error.detail) from None
    try:
        return _FRAMES.validate_json(text)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[:5]
        for each in wrong:
            each["loc"] = each["loc"][1:]  # behind the frame's type
        raise UsageError(f"{in_words(mistakes_in(wrong), 'This frame')}.") from None
