"""Histories for transfers: moves that leave something of every kind in a journal."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count

from langchain_core.messages import AIMessage, ToolMessage

from segue import SnowflakeGenerator, synthetic_message, user_message
from segue.errors import ConflictError
from segue.journal.inbox import Arrival
from segue.journal.journal import Journal
from segue.journal.memories import NewMemory
from segue.journal.records import (
    Decision,
    Ending,
    NewEffect,
    NewTimer,
    StateValue,
    TimerKind,
    TimerState,
    TurnKind,
    TurnLease,
    nested_id,
)

# Before this very day: an import by the system clock refuses what is from the future.
START = datetime(2026, 1, 15, 8, tzinfo=UTC)
LEASE = timedelta(minutes=1)
CANARY = "CANARY-TRIGGER"
THREADS = ("blue", "blue sky", "blue!", "ölig")


def ticking_ids(node: int = 1, start: datetime = START) -> SnowflakeGenerator:
    """Ids whose clock moves one millisecond for each, so that a tale repeats exactly."""
    ticks = count(int(start.timestamp() * 1000))
    return SnowflakeGenerator(node=node, clock=lambda: next(ticks))


@dataclass
class Tale:
    """What happens in a journal. A move that cannot be made at the moment changes nothing."""

    journal: Journal
    ids: SnowflakeGenerator = field(default_factory=ticking_ids)
    now: datetime = START
    thread: str = THREADS[0]
    users: tuple[str, ...] = ("ada", "Bö")

    async def begin(self) -> "Tale":
        await self._begin(THREADS[0])
        return self

    async def tell(self, moves: list[str]) -> "Tale":
        for move in moves:
            self.now += timedelta(seconds=7, microseconds=1)
            await MOVES[move](self)
        return self

    @property
    def user(self) -> str:
        return self.users[THREADS.index(self.thread) % 2]

    async def change_thread(self) -> None:
        self.thread = THREADS[(THREADS.index(self.thread) + 1) % len(THREADS)]
        await self._begin(self.thread)

    async def say(self) -> None:
        words = f"What about 🙂 \u2028 {self.ids.next()}?"
        await self.journal.inbox.accept(
            self.thread,
            user_message([{"type": "text", "text": words}]),
            ids=self.ids,
            now=self.now,
            client_message_id=words.replace("\u2028", "-"),
        )

    async def answer(self) -> None:
        if lease := await self._taken():
            effect = NewEffect("webhook", {"turn": lease.turn.id}, f"reply {lease.turn.id}")
            timer = NewTimer(lease.turn.thread_id, self.now + LEASE, "check_in", "quiet")
            state = {"plan": StateValue("msgpack", "list", b"\x00\xff%d" % lease.turn.id)}
            decisions = [self._decision(lease)]
            ending = Ending([effect], [timer], decisions, state=state)
            await self._finish(lease, ending)

    async def use_a_tool(self) -> None:
        if lease := await self._taken():
            call = {"name": "look", "args": {"n": 0.1}, "id": f"call {lease.turn.id}"}
            result = ToolMessage("Found.", tool_call_id=call["id"], artifact={"half": "\ud83d"})
            messages = [AIMessage("", tool_calls=[call]), result]
            await self.journal.messages.append(lease, messages, ids=self.ids, now=self.now)
            await self._finish(lease, Ending(says={"kind": "note", "turn": lease.turn.id}))

    async def ask_back(self) -> None:
        if lease := await self._taken():
            call = {"name": "book", "args": {}, "id": f"call {lease.turn.id}"}
            asking = AIMessage("Shall I?", tool_calls=[call])
            ending = Ending(is_waiting=True, says={"kind": "question", "questions": {}})
            await self.journal.turns.finish(
                lease, [asking], ids=self.ids, now=self.now, ending=ending
            )

    async def fail(self) -> None:
        if lease := await self._taken():
            await self.journal.turns.fail(lease, "It broke.", ids=self.ids, now=self.now)

    async def take(self) -> None:
        """Have a turn in hand, half written."""
        if lease := await self._taken():
            await self.journal.turns.save_draft(lease, "m", "half a")

    async def arm(self) -> None:
        due = self.now + timedelta(hours=1)
        timer = NewTimer(self.thread, due, "check_in", CANARY, missed="skip", expires_at=due)
        await self.journal.timers.arm(timer, ids=self.ids, now=self.now)
        kind, key = TimerKind.REMINDER, f"reminder:{due.isoformat()}"
        reminder = NewTimer(self.thread, due, "reminder", kind=kind, payload={"text": "x"}, key=key)
        await self.journal.timers.arm(reminder, ids=self.ids, now=self.now)

    async def go_on(self) -> None:
        """A batch is to be continued."""
        if tail := await self.journal.messages.tail(self.thread, max_tokens=1):
            kind = TimerKind.CONTINUATION
            timer = NewTimer(self.thread, self.now + LEASE, kind=kind, batch=tail[0].id)
            await self.journal.timers.arm(timer, ids=self.ids, now=self.now)

    async def fire(self) -> None:
        self.now += timedelta(hours=2)
        for lease in await self.journal.timers.claim_due("t", now=self.now, lease_for=LEASE):
            message = synthetic_message("check_in", CANARY, prompt=f"{CANARY}: say hello.")
            await self.journal.timers.fire(lease, message, ids=self.ids, now=self.now)

    async def put_off(self) -> None:
        self.now += timedelta(hours=2)
        for lease in await self.journal.timers.claim_due("t", now=self.now, lease_for=LEASE):
            until = self.now + timedelta(hours=3)
            timer = lease.timer
            place = (self.ids.next(), timer.thread_id)
            reasons = ("Quiet.",)
            gates = Decision(*place, "gates", "postpone", reasons, {}, timer.id, None, self.now)
            await self.journal.timers.postpone(
                lease, until, "Quiet hours.", now=self.now, decisions=[gates]
            )

    async def close(self) -> None:
        self.now += timedelta(hours=4)
        for lease in await self.journal.timers.claim_due("t", now=self.now, lease_for=LEASE):
            await self.journal.timers.close(
                lease, TimerState.MISSED, "Too late.", ids=self.ids, now=self.now
            )

    async def claim_timers(self) -> None:
        self.now += timedelta(hours=4)
        await self.journal.timers.claim_due("t", now=self.now, lease_for=LEASE)

    async def claim_effects(self) -> None:
        await self.journal.effects.claim("e", kind="webhook", now=self.now, lease_for=LEASE)

    async def do_effects(self) -> None:
        leases = await self.journal.effects.claim(
            "e", kind="webhook", now=self.now, lease_for=LEASE
        )
        for number, lease in enumerate(leases):
            if number % 2:
                await self.journal.effects.complete(lease, "204")
            else:
                await self.journal.effects.retry(lease, "503", retry_at=self.now + LEASE)

    async def sum_up(self) -> None:
        tail = await self.journal.messages.tail(self.thread, max_tokens=10_000)
        batches = [batch.id for batch in tail if batch.is_complete][-2:]
        with suppress(ConflictError):  # still being processed
            if batches:
                await self.journal.summaries.save(
                    self.thread, "They talked.", batches, ids=self.ids, now=self.now
                )

    async def remember(self) -> None:
        number = self.ids.next()
        tick = number >> 22
        vector = [0.1, 1 / 3, float(tick % 7)] if tick % 3 else None
        fact = NewMemory(
            "guide",
            self.user,
            f"fact {number}",
            f"Likes {number} pizzas.",
            {"n": number},
            vector,
            "m" if vector else None,
        )
        await self.journal.memories.put(fact, ids=self.ids, now=self.now)

    async def wish(self) -> None:
        wishes = {"time_zone": "Europe/Oslo", "muted": False}
        await self.journal.users.update_settings(self.user, wishes, now=self.now)
        await self.journal.threads.update(self.thread, title="Ours", settings=wishes)

    async def ask_agent(self) -> None:
        """Another agent is asked, on a thread of its own."""
        tail = await self.journal.messages.tail(self.thread, max_tokens=1)
        nested = nested_id(self.thread, "cook")
        await self._begin(nested, "cook")
        if tail:
            arrival = Arrival(parent_batch=tail[0].id, source_agent_id="guide")
            await self.journal.inbox.accept(
                nested, user_message("How hot?"), ids=self.ids, now=self.now, arrival=arrival
            )

    async def _begin(self, thread_id: str, agent_id: str = "guide") -> None:
        await self.journal.threads.create(
            thread_id, agent_id=agent_id, user_id=self.user, now=self.now
        )

    async def _taken(self) -> TurnLease | None:
        return await self.journal.turns.claim_one("w", now=self.now, lease_for=LEASE)

    async def _finish(self, lease: TurnLease, ending: Ending) -> None:
        if lease.turn.kind is TurnKind.FOLLOW_UP:
            await self.journal.turns.show(lease, now=self.now)
        said = AIMessage(f"Half and half, {lease.turn.id}.")
        await self.journal.turns.finish(lease, [said], ids=self.ids, now=self.now, ending=ending)

    def _decision(self, lease: TurnLease) -> Decision:
        turn = lease.turn
        facts = {"turn": turn.id, "delay": 0.5, "why": CANARY}
        place = (self.ids.next(), turn.thread_id)
        return Decision(*place, "plan", "follow_up", ("It asks.",), facts, None, turn.id, self.now)


Move = Callable[[Tale], Awaitable[None]]
MOVES: dict[str, Move] = {
    move.__name__: move
    for move in (
        Tale.change_thread,
        Tale.say,
        Tale.answer,
        Tale.use_a_tool,
        Tale.ask_back,
        Tale.fail,
        Tale.take,
        Tale.arm,
        Tale.go_on,
        Tale.fire,
        Tale.put_off,
        Tale.close,
        Tale.claim_timers,
        Tale.claim_effects,
        Tale.do_effects,
        Tale.sum_up,
        Tale.remember,
        Tale.wish,
        Tale.ask_agent,
    )
}
# Something of every kind.
EVERYTHING = [
    "wish", "say", "answer", "say", "use_a_tool", "sum_up", "arm", "fire", "answer", "remember",
    "remember", "change_thread", "say", "ask_back", "ask_agent", "change_thread", "say", "fail",
    "arm", "put_off", "do_effects", "change_thread", "wish", "remember", "arm", "close", "say",
    "answer", "claim_effects", "arm", "say", "take", "arm", "say", "arm", "change_thread", "say",
    "go_on", "say", "answer", "answer", "answer", "sum_up", "do_effects", "say", "change_thread",
]  # fmt: skip
