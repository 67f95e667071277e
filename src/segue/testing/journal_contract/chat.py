"""One thread of a journal, with the few moves that most behaviours begin with.

Not a test: the contract's modules use it so that a test shows only what it is about.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from segue.core.batch import Batch
from segue.core.messages import continuation_message, synthetic_message, user_message
from segue.core.snowflake import SnowflakeSource
from segue.journal.effects import EffectLease
from segue.journal.inbox import Arrival
from segue.journal.journal import Journal
from segue.journal.records import (
    Accepted,
    Decision,
    Ending,
    NewEffect,
    NewTimer,
    Summary,
    Thread,
    Timer,
    TimerKind,
    TimerLease,
    TimerState,
    Turn,
    TurnLease,
)

NOW = datetime(2027, 1, 15, 8, tzinfo=UTC)
LEASE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
AGENT = "guide"
USER = "ada"


@dataclass
class Chat:
    journal: Journal
    ids: SnowflakeSource
    now: datetime
    thread_id: str = "chat"

    async def begin(self, *, agent_id: str = AGENT, user_id: str = USER) -> Self:
        await self.journal.threads.create(
            self.thread_id, agent_id=agent_id, user_id=user_id, now=self.now
        )
        return self

    async def another(
        self, thread_id: str, *, agent_id: str = AGENT, user_id: str = USER
    ) -> "Chat":
        """A second thread in the same journal."""
        other = Chat(self.journal, self.ids, self.now, thread_id)
        return await other.begin(agent_id=agent_id, user_id=user_id)

    async def say(
        self,
        said: str | list[Any] | HumanMessage = "Is it open?",
        client_message_id: str | None = None,
        **arrival: Any,
    ) -> Accepted:
        """A user's message; how it comes in is given as the fields of its `Arrival`."""
        return await self.journal.inbox.accept(
            self.thread_id,
            said if isinstance(said, BaseMessage) else user_message(said),
            ids=self.ids,
            now=self.now,
            client_message_id=client_message_id,
            arrival=Arrival(**arrival),
        )

    async def next_turn(
        self, at: datetime | None = None, owner: str = "worker-a"
    ) -> TurnLease | None:
        """The turn of any thread that a worker gets, now or at a time."""
        return await self.journal.turns.claim_one(owner, now=at or self.now, lease_for=LEASE)

    async def take_turn(self, owner: str = "worker-a", at: datetime | None = None) -> TurnLease:
        lease = await self.next_turn(at, owner)
        assert lease is not None
        assert lease.turn.thread_id == self.thread_id
        return lease

    async def running_reply(self, *said: Any, **arrival: Any) -> TurnLease:
        """A message that a worker has begun to answer."""
        await self.say(*said, **arrival)
        return await self.take_turn()

    async def write(self, lease: TurnLease, *messages: BaseMessage) -> list[BaseMessage]:
        return await self.journal.messages.append(lease, messages, ids=self.ids, now=self.now)

    async def finish(
        self, lease: TurnLease, *messages: BaseMessage, **ending: Any
    ) -> list[BaseMessage]:
        """End a turn; what else follows from it is given as the fields of its `Ending`."""
        return await self.journal.turns.finish(
            lease, messages, ids=self.ids, now=self.now, ending=Ending(**ending)
        )

    async def fail(
        self, lease: TurnLease, error: str = "oops", *messages: BaseMessage, **ending: Any
    ) -> None:
        given: dict[str, Any] = {"messages": messages, "ending": Ending(**ending)}
        await self.journal.turns.fail(lease, error, ids=self.ids, now=self.now, **given)

    async def withdraw(self, lease: TurnLease, reason: str = "muted", **ending: Any) -> None:
        await self.journal.turns.withdraw(
            lease, reason, ids=self.ids, now=self.now, ending=Ending(**ending)
        )

    async def show(self, lease: TurnLease) -> None:
        await self.journal.turns.show(lease, now=self.now)

    async def release(self, lease: TurnLease, **given: Any) -> None:
        await self.journal.turns.release(lease, now=self.now, **given)

    async def cancel(self, *reason: str, **given: Any) -> list[Turn]:
        """Request the cancellation of the thread's turns."""
        return await self.journal.turns.cancel(
            self.thread_id, *reason, ids=self.ids, now=self.now, **given
        )

    async def reply(self, text: str = "Yes, until six.") -> list[BaseMessage]:
        """Take the next turn and end it with one answer."""
        return await self.finish(await self.take_turn(), AIMessage(text))

    async def exchange(
        self, question: str | list[Any] = "Is it open?", answer: str = "Yes."
    ) -> int:
        """A question with its answer; the batch they are in."""
        accepted = await self.say(question)
        await self.reply(answer)
        return accepted.turn.batch

    async def arm(self, after: timedelta = timedelta(0), **fields: Any) -> Timer:
        timer = NewTimer(self.thread_id, self.now + after, **{"trigger_type": "check_in"} | fields)
        return await self.journal.timers.arm(timer, ids=self.ids, now=self.now)

    async def take_timer(self, owner: str = "worker-a") -> TimerLease:
        [lease] = await self.journal.timers.claim_due(owner, now=self.now, lease_for=LEASE)
        assert lease.timer.thread_id == self.thread_id
        return lease

    async def claimed_timer(self, *after: timedelta, **fields: Any) -> TimerLease:
        """A timer that is armed, due and claimed."""
        await self.arm(*after, **fields)
        return await self.take_timer()

    async def fire(
        self, lease: TimerLease, message: HumanMessage | None = None, **given: Any
    ) -> Turn | None:
        message = message or synthetic_message("check_in", "quiet for a while")
        return await self.journal.timers.fire(lease, message, ids=self.ids, now=self.now, **given)

    async def fired(self, lease: TimerLease, *message: HumanMessage, **given: Any) -> Turn:
        """The turn of a timer that nothing keeps from firing."""
        turn = await self.fire(lease, *message, **given)
        assert turn is not None
        return turn

    async def postpone(
        self, lease: TimerLease, until: datetime, reason: str, **given: Any
    ) -> Timer:
        return await self.journal.timers.postpone(lease, until, reason, now=self.now, **given)

    async def close(
        self, lease: TimerLease, state: TimerState, reason: str = "muted", **given: Any
    ) -> Timer:
        return await self.journal.timers.close(
            lease, state, reason, ids=self.ids, now=self.now, **given
        )

    async def drop(self, reason: str) -> list[Timer]:
        """Cancel the thread's timers."""
        return await self.journal.timers.cancel(self.thread_id, reason, ids=self.ids, now=self.now)

    async def follow_up(self) -> Turn:
        """A timer that is armed, due and fired."""
        return await self.fired(await self.claimed_timer())

    async def running_follow_up(self) -> TurnLease:
        await self.follow_up()
        return await self.take_turn()

    async def shown_follow_up(self, ago: timedelta = timedelta(0), text: str = "Are") -> TurnLease:
        """A follow-up that began to speak some time ago; the piece that is kept of it."""
        lease = await self.running_follow_up()
        await self.journal.turns.show(lease, now=self.now - ago)
        if text:
            await self.journal.turns.save_draft(lease, "m-1", text)
        return lease

    async def continue_batch(self, batch: int) -> Turn:
        """A continuation of the batch, armed, due and fired."""
        going_on: dict[str, Any] = {"kind": TimerKind.CONTINUATION, "batch": batch}
        lease = await self.claimed_timer(trigger_type=None, **going_on)
        return await self.fired(lease, continuation_message("more to do"))

    async def ask_back(self, question: str = "Shall I book it?", **ending: Any) -> Turn:
        """A whole turn that ends with a call that a person has to answer; the turn as it waits."""
        lease = await self.running_reply()
        call = {"name": "book", "args": {}, "id": f"call {lease.turn.id}"}
        asked = AIMessage(question, tool_calls=[call])
        await self.finish(lease, asked, is_waiting=True, **ending)
        return await self.journal.turns.get(lease.turn.id)

    async def answer(self, turn_id: int, answer: Any, **given: Any) -> Turn:
        return await self.journal.inbox.answer(turn_id, answer, ids=self.ids, now=self.now, **given)

    async def summarise(self, text: str, batches: Sequence[int], **given: Any) -> Summary:
        return await self.journal.summaries.save(
            self.thread_id, text, batches, ids=self.ids, now=self.now, **given
        )

    async def queue_effect(self, key: str = "reply-1", **payload: Any) -> None:
        """A whole turn that leaves one effect behind."""
        effect = NewEffect("webhook", payload, key)
        await self.finish(await self.running_reply(), AIMessage("Yes."), effects=[effect])

    async def take_effect(self, owner: str = "worker-a") -> EffectLease:
        [lease] = await self.journal.effects.claim(
            owner, kind="webhook", now=self.now, lease_for=LEASE
        )
        return lease

    def decision(self, **fields: Any) -> Decision:
        """A decision about this thread, made now and not on record yet."""
        reasons = ("quiet hours until 07:00 🙂", "cooldown")
        facts = {"silence": 3.5, "ids": [2**63 - 1], "zone": None}
        given = (self.ids.next(), self.thread_id, "gates", "postpone", reasons, facts)
        return replace(Decision(*given, None, None, self.now), **fields)

    async def thread(self) -> Thread:
        return await self.journal.threads.get(self.thread_id)

    async def turn(self, turn_id: int) -> Turn:
        return await self.journal.turns.get(turn_id)

    async def turns(self) -> list[Turn]:
        return await self.journal.turns.list_of(self.thread_id)

    async def timers(self) -> list[Timer]:
        return await self.journal.timers.list_of(self.thread_id)

    async def timer(self, timer_id: int) -> Timer:
        timer = await self.journal.timers.find(timer_id)
        assert timer is not None
        return timer

    async def decisions(self) -> list[Decision]:
        return await self.journal.decisions.list_of(self.thread_id)

    async def batch(self, batch_id: int) -> Batch:
        return await self.journal.messages.load_batch(self.thread_id, batch_id)

    async def history(self) -> list[BaseMessage]:
        """What a person sees of the thread."""
        return (await self.journal.messages.history(self.thread_id)).messages

    async def messages(self) -> list[BaseMessage]:
        """All that the thread holds, hidden rows too, in order of position."""
        batches = await self.journal.messages.tail(self.thread_id, max_tokens=1_000_000)
        return sorted((m for batch in batches for m in batch.messages), key=position)


def position(message: BaseMessage) -> int:
    value: int = message.additional_kwargs["position"]
    return value


def positions(messages: Sequence[BaseMessage]) -> list[int]:
    return [position(message) for message in messages]


def texts(messages: Sequence[BaseMessage]) -> list[str]:
    return [str(message.content) for message in messages]
