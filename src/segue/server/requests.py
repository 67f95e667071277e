"""What clients send: bodies, frames and query parameters. An unknown field is an error."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from fastapi import Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from segue.core.durations import Duration
from segue.core.text import plain_json
from segue.core.turn_rules import DoubleTexting
from segue.server.problems import check_zone, expected

_HOURS: Final = "a table with start and end such as 22:00, or false"
_BLOCKS: Final = "a text or a list of blocks"
_TIME: Final = "a time such as 2027-01-15T08:00:00Z"

Id = Annotated[str, Field(examples=["2255260483588198400"])]
Hour = Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]
AwareTime = Annotated[datetime, expected(_TIME), AfterValidator(check_zone)]
Limit = Annotated[int, Query(ge=1, le=200)]
Cursor = Annotated[str | None, Query(max_length=300)]


class StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class QuietHours(StrictModel):
    """No follow-up is sent between these hours of the user's clock; may span midnight."""

    start: Hour
    end: Hour


class PreferencesIn(StrictModel):
    """A user's preferences for follow-ups; null removes one."""

    time_zone: str | None = Field(default=None, examples=["Europe/Oslo"])
    quiet_hours: Annotated[QuietHours | Literal[False] | None, expected(_HOURS)] = Field(
        default=None,
        description="false for none at all",
        examples=[{"start": "22:00", "end": "08:00"}],
    )
    muted: bool | None = None
    snoozed_until: AwareTime | None = None
    opted_out: bool | None = None

    def changes(self) -> dict[str, Any]:
        return self.model_dump(exclude_unset=True, exclude={"title"})


class ThreadIn(StrictModel):
    """A conversation to start."""

    agent_id: str | None = Field(
        default=None, max_length=200, description="The first agent by default."
    )
    title: str | None = Field(default=None, max_length=200, examples=["A trip to Oslo"])


class ThreadPatch(PreferencesIn):
    """Changes to a conversation."""

    title: str | None = Field(
        default=None, min_length=1, max_length=200, examples=["A trip to Oslo"]
    )


class MessageIn(StrictModel):
    """A user's message."""

    content: Annotated[str | list[Any], expected(_BLOCKS)] = Field(
        examples=["Which river runs through Oslo?"]
    )
    client_message_id: str | None = Field(
        default=None,
        max_length=200,
        description="Chosen by the client; a message sent again with the same id is stored once.",
    )
    strategy: DoubleTexting | None = Field(
        default=None, description="If the agent is still answering an earlier message."
    )


def _check_answer(given: Any) -> Any:
    """Null would make the graph ask again."""
    if (answer := plain_json(given)) is None:
        raise ValueError("null is not an answer")
    return answer


AnswerValue = Annotated[Any, AfterValidator(_check_answer), Field(examples=["Yes, for eight."])]


class AnswerIn(StrictModel):
    """A person's answer to a question of the agent."""

    turn_id: Id
    answer: AnswerValue


class ReadIn(StrictModel):
    """How far the user has read: the position of a message."""

    position: Id


class SnoozeIn(StrictModel):
    """No follow-up before this time, which must be in the future."""

    until: AwareTime = Field(examples=["2037-01-15T08:00:00+00:00"])


class FollowUpIn(StrictModel):
    """A follow-up to request; at once if it names no time and its trigger has no delay."""

    at: AwareTime | None = Field(default=None, examples=["2037-01-15T08:00:00+00:00"])
    after: Annotated[Duration | None, expected("seconds, or a length of time such as 20m")] = None
    trigger: str = Field(default="check_in", max_length=64)
    prompt: str | None = Field(default=None, description="Instead of the trigger's; never shown.")
    reason: str | None = Field(default=None, max_length=500, description="For operators.")
    data: Any = Field(default=None, description="JSON that the model gets, quoted; never shown.")
    key: str | None = Field(
        default=None, max_length=200, description="Sent again, it returns the first follow-up."
    )


class ReminderIn(StrictModel):
    """A reminder to set, with exactly one of `after`, `at` and `every`."""

    text: str = Field(min_length=1, max_length=1_000, examples=["call mum"])
    after: str | None = Field(default=None, max_length=60, examples=["20m"])
    at: str | None = Field(
        default=None, max_length=60, description="The user's local time, such as 2027-01-15T09:00."
    )
    every: str | None = Field(
        default=None, max_length=300, description="An RRULE or a cron line on the user's clock."
    )
    until: str | None = Field(
        default=None, max_length=60, description="The local time or date after which a rule ends."
    )
    key: str | None = Field(
        default=None, max_length=200, description="Sent again, it returns the first reminder."
    )


class EventIn(StrictModel):
    """An event; for a thread, or for the newest thread of a user."""

    model_config = ConfigDict(extra="ignore")

    type: str = Field(max_length=200, examples=["parcel.shipped"])
    data: Any = None
    user_id: str | None = Field(default=None, max_length=200, examples=["sam"])
    thread_id: str | None = Field(default=None, max_length=200)


class MemoryIn(StrictModel):
    """A fact to remember."""

    content: str = Field(min_length=1, examples=["Sam plays the guitar."])
    key: str | None = Field(default=None, examples=["hobby"])
    agent_id: str | None = Field(default=None, max_length=200)


class PushKeysIn(StrictModel):
    """The browser's keys, as base64url."""

    p256dh: str = Field(max_length=100)
    auth: str = Field(max_length=40)


class EndpointIn(StrictModel):
    """The address of a browser at its push service."""

    endpoint: str = Field(max_length=1_000, examples=["https://push.example.org/…"])


class SubscriptionIn(EndpointIn):
    """A browser's subscription, as `PushSubscription.toJSON()` gives it."""

    keys: PushKeysIn
    expiration_time: float | None = Field(
        default=None, alias="expirationTime", description="Ignored: the push service reports it."
    )


class DeletionIn(StrictModel):
    """Confirms a deletion, which cannot be undone."""

    confirm: Literal["delete everything"] = Field(examples=["delete everything"])


class SimulationIn(StrictModel):
    """Policies to compare, on a scenario or on the past of a thread: exactly one of them."""

    scenario: str | None = Field(default=None, max_length=60, examples=["quiet-week"])
    agent_id: str | None = Field(
        default=None, max_length=200, description="Of a scenario; the first agent by default."
    )
    thread_id: str | None = Field(default=None, max_length=200)
    days: int = Field(default=7, ge=1, le=31, description="Of a thread: the last days of it.")
    policies: Annotated[
        list[dict[str, Any]], Field(min_length=1, max_length=2), expected("one or two JSON objects")
    ] = Field(
        description="Changes to the agent's `autonomy`; an empty one leaves it as it is.",
        examples=[[{}, {"policy": {"max_per_day": 1}}]],
    )


class ThreadFrame(StrictModel):
    """A frame for a thread, which only a socket of all threads needs to name."""

    thread_id: str | None = Field(default=None, max_length=200)


class MessageFrame(MessageIn, ThreadFrame):
    """The user sends a message."""

    type: Literal["message"]


class AnswerFrame(AnswerIn, ThreadFrame):
    """An answer to a question of the agent."""

    type: Literal["answer"]


class SignalFrame(ThreadFrame):
    """Stop the reply; the user is typing; answer with `pong`."""

    type: Literal["cancel", "typing", "ping"]


ClientFrame = Annotated[MessageFrame | AnswerFrame | SignalFrame, Field(discriminator="type")]
