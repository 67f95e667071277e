"""One thread of a journal, with the few moves that most behaviours begin with.

Not a test: the contract's modules use it so that a test shows only what it is about.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from langchain_core.messages import AIMessage, BaseMessage

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
    Timer,
    TimerKind,
    TimerLease,
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
        content: str | list[Any] = "Is it open?",
        client_message_id: str | None = None,
        **arrival: Any,
    ) -> Accepted:
        """A user's message; how it comes in is given as the fields of its `Arrival`."""
        return await self.journal.inbox.accept(
            self.thread_id,
            user_message(content),
            ids=self.ids,
            now=self.now,
            client_message_id=client_message_id,
            arrival=Arrival(**arrival),
        )

    async def take_turn(self, owner: str = "worker-a") -> TurnLease:
        lease = await self.journal.turns.claim_one(owner, now=self.now, lease_for=LEASE)
        assert lease is not None
        assert lease.turn.thread_id == self.thread_id
        return lease

    async def write(self, lease: TurnLease, *messages: BaseMessage) -> list[BaseMessage]:
        return await self.journal.messages.append(lease, messages, ids=self.ids, now=self.now)

    async def finish(
        self, lease: TurnLease, *messages: BaseMessage, **ending: Any
    ) -> list[BaseMessage]:
        """End a turn; what else follows from it is given as the fields of its `Ending`."""
        return await self.journal.turns.finish(
            lease, messages, ids=self.ids, now=self.now, ending=Ending(**ending)
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

    async def fire(self, lease: TimerLease, **given: Any) -> Turn | None:
        message = synthetic_message("check_in", "quiet for a while")
        return await self.journal.timers.fire(lease, message, ids=self.ids, now=self.now, **given)

    async def follow_up(self) -> Turn:
        """A timer that is armed, due and fired."""
        await self.arm()
        turn = await self.fire(await self.take_timer())
        assert turn is not None
        return turn

    async def shown_follow_up(self, ago: timedelta = timedelta(0), text: str = "Are") -> TurnLease:
        """A follow-up that began to speak some time ago; the piece that is kept of it."""
        await self.follow_up()
        lease = await self.take_turn()
        await self.journal.turns.show(lease, now=self.now - ago)
        if text:
            await self.journal.turns.save_draft(lease, "m-1", text)
        return lease

    async def continue_batch(self, batch: int) -> Turn:
        """A continuation of the batch, armed, due and fired."""
        await self.arm(trigger_type=None, kind=TimerKind.CONTINUATION, batch=batch)
        lease = await self.take_timer()
        message = continuation_message("more to do")
        turn = await self.journal.timers.fire(lease, message, ids=self.ids, now=self.now)
        assert turn is not None
        return turn

    async def ask_back(self, question: str = "Shall I book it?") -> Turn:
        """A whole turn that ends with a call that a person has to answer; the turn as it waits."""
        await self.say()
        lease = await self.take_turn()
        call = {"name": "book", "args": {}, "id": f"call {lease.turn.id}"}
        await self.finish(lease, AIMessage(question, tool_calls=[call]), is_waiting=True)
        return await self.journal.turns.get(lease.turn.id)

    async def queue_effect(self, key: str = "reply-1", **payload: Any) -> None:
        """A whole turn that leaves one effect behind."""
        await self.say()
        effect = NewEffect("webhook", payload, key)
        await self.finish(await self.take_turn(), AIMessage("Yes."), effects=[effect])

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
