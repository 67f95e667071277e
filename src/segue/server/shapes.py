"""The shapes of what goes over the wire: what clients send, and what they get.

Ids are text, since JavaScript rounds 64-bit numbers. No shape has a place for metadata, so nothing
of it can slip through. `wire` fills them.
"""

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from segue.core.messages import Origin
from segue.core.plain import plain_json
from segue.runtime.rules import DoubleTexting
from segue.server.mistakes import check_zone, expected

_HOURS: Final = "a table with start and end such as 22:00, or false"
_BLOCKS: Final = "a text or a list of blocks"
_TIME: Final = "a time such as 2027-01-15T08:00:00Z"

Id = Annotated[str, Field(examples=["2255260483588198400"])]
Answered = Literal["queued", "running", "waiting", "answered", "failed", "cancelled"]


class Sent(BaseModel):
    """What a client sends is strict: an unknown field is a mistake, told at once."""

    model_config = ConfigDict(extra="forbid")


class MessageOut(BaseModel):
    """One message as a person sees it."""

    id: str
    position: Id = Field(description="Its place; pages and listeners go on from here.")
    role: Literal["user", "agent"]
    text: str
    content: str | list[Any] = Field(description="Text, or blocks of text, pictures and files.")
    created_at: datetime
    origin: Origin | None = Field(
        default=None, description="Of an agent's message: whether it answered or spoke first."
    )
    state: Answered | None = Field(
        default=None, description="Of a user's message: what became of it."
    )
    error: str | None = Field(default=None, description="Why it failed or was stopped, if so.")


class PageOut(BaseModel):
    """Messages, oldest first; `before` and `after` are the cursors of the pages around them, null
    where there is nothing more. `after` also takes the position of a message.
    """

    messages: list[MessageOut]
    before: Id | None
    after: Id | None


class ThreadOut(BaseModel):
    """A conversation; title, preview and count follow what a person sees of it."""

    id: str
    agent_id: str
    title: str | None
    preview: str | None
    preview_role: Literal["user", "agent"] | None
    message_count: int
    settings: dict[str, Any]
    created_at: datetime
    updated_at: datetime


class ThreadsOut(BaseModel):
    """Conversations, the one written to last first; `next` is the cursor of the next page."""

    threads: list[ThreadOut]
    next: str | None


Hour = Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]


class Hours(Sent):
    """From when to when no follow-up comes, by the user's clock; also over midnight."""

    start: Hour
    end: Hour


Moment = Annotated[datetime, expected(_TIME), AfterValidator(check_zone)]


class Wishes(Sent):
    """What a user wants of follow-ups; null takes one back."""

    time_zone: str | None = Field(default=None, examples=["Europe/Oslo"])
    quiet_hours: Annotated[Hours | Literal[False] | None, expected(_HOURS)] = Field(
        default=None,
        description="false for none at all",
        examples=[{"start": "22:00", "end": "08:00"}],
    )
    muted: bool | None = None
    snoozed_until: Moment | None = None
    opted_out: bool | None = None

    def given(self) -> dict[str, Any]:
        return self.model_dump(exclude_unset=True)


class NewThread(Sent):
    """A conversation to begin."""

    agent_id: str | None = Field(
        default=None, max_length=200, description="The first agent, if none is named."
    )
    title: str | None = Field(default=None, max_length=200, examples=["A trip to Oslo"])


class ThreadChange(Wishes):
    """What to change of a conversation."""

    title: str | None = Field(
        default=None, min_length=1, max_length=200, examples=["A trip to Oslo"]
    )

    def given(self) -> dict[str, Any]:
        return {name: value for name, value in super().given().items() if name != "title"}


class NewMessage(Sent):
    """What a user says."""

    content: Annotated[str | list[Any], expected(_BLOCKS)] = Field(
        examples=["Which river runs through Oslo?"]
    )
    client_message_id: str | None = Field(
        default=None,
        max_length=200,
        description="Chosen by the client; sent again with it, a message is stored once.",
    )
    strategy: DoubleTexting | None = Field(
        default=None, description="If the agent is still answering an earlier message."
    )


class AcceptedOut(BaseModel):
    """A message that is stored, and the turn that answers it."""

    message: MessageOut
    turn_id: Id
    is_new: bool


def _checked_answer(given: Any) -> Any:
    """An answer that can be stored, and that lets a graph go on: with null it would ask again."""
    if (answer := plain_json(given)) is None:
        raise ValueError("null answers nothing")
    return answer


Given = Annotated[Any, AfterValidator(_checked_answer), Field(examples=["Yes, for eight."])]


class Answer(Sent):
    """What a person says to a question that the agent waits with."""

    turn_id: Id
    answer: Given


class TurnsOut(BaseModel):
    """The turns that are being stopped, or that go on."""

    turn_ids: list[Id]


class Snooze(Sent):
    """Until when no follow-up comes; a time that is still to come."""

    until: Moment = Field(examples=["2037-01-15T08:00:00+00:00"])


class FollowUpOut(BaseModel):
    """A planned or past follow-up, and what became of it."""

    id: Id
    trigger: str | None
    state: str
    reason: str | None = Field(description="Why it is in this state.")
    due_at: datetime
    created_at: datetime
    updated_at: datetime


class ReasonOut(BaseModel):
    """Something that happened, or did not, and why."""

    at: datetime
    what: str
    outcome: str
    why: str
    details: dict[str, Any]


class MemoryOut(BaseModel):
    """A fact that an agent keeps about the user."""

    id: Id
    agent_id: str
    key: str
    content: str
    created_at: datetime
    updated_at: datetime
    score: float | None = Field(
        default=None, description="Of a search: how well it fits, from 0 to 1."
    )


class MemoriesOut(BaseModel):
    """Memories, newest first or best first; `next` is the cursor of the next page."""

    memories: list[MemoryOut]
    next: Id | None = None


class NewMemory(Sent):
    """A fact to keep."""

    content: str = Field(min_length=1, examples=["Sam plays the guitar."])
    key: str | None = Field(default=None, examples=["hobby"])
    agent_id: str | None = Field(default=None, max_length=200)


class AgentOut(BaseModel):
    """An agent that one can talk to."""

    id: str
    name: str


class DeletedOut(BaseModel):
    """What a deletion took with it, by kind."""

    deleted: dict[str, int]


class FoundOut(BaseModel):
    """A message that a search found, and where."""

    thread_id: str
    message: MessageOut


class Me(BaseModel):
    """Who the caller is, and what they want of follow-ups."""

    user_id: str
    is_operator: bool
    wishes: dict[str, Any]
