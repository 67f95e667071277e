"""Follow-ups on your own scheduler: no journal and no workers, only Segue's plain functions.

The agent is LangChain's `create_agent` with its own checkpointer, and asyncio is the scheduler.
With another scheduler, store the arguments of `_arm`: the trigger, the time and the epoch.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver

from segue import group_batches, synthetic_message, user_message
from segue.autonomy import (
    Delays,
    Facts,
    GateOutcome,
    Policy,
    PolicyGates,
    apply_request,
    judge,
    next_delay,
    parse_schedule,
    read_request,
)
from segue.middleware import BatchHistory
from segue.testing.world import ScriptedChatModel

SECOND = timedelta(seconds=1)
# For this demo; use hours in production.
DELAYS = Delays(question_unanswered=SECOND, waiting_for_decision=SECOND, check_in=SECOND)
POLICY = Policy(min_delay=SECOND, cooldown=timedelta(), max_consecutive=1, quiet_hours=None)
ZONE = "Europe/Berlin"
THREAD: Any = {"configurable": {"thread_id": "sam"}}


class Companion:
    """One conversation: the facts that the gates need, and its timers."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent
        self.epoch = 0  # raised by each message of the user, which voids older follow-ups
        self.consecutive = 0  # follow-ups since the user last wrote
        self.preferences: dict[str, Any] = {}

    async def hear(self, text: str) -> None:
        """A message of the user."""
        print("sam:  ", text)
        self.epoch += 1
        self.consecutive = 0
        if request := read_request(text):  # "stop", "not now", "write to me again"
            changed = apply_request(request, self.preferences, now(), ZoneInfo(ZONE))
            self.preferences |= changed or {}
        await self._run(user_message(text))

    async def _run(self, message: Any) -> None:
        state = await self.agent.ainvoke({"messages": [message]}, THREAD)
        print("agent:", state["messages"][-1].text)
        *earlier, batch = group_batches(state["messages"])
        sign = judge(batch, earlier)
        print("plan: ", sign.reason)
        if plan := sign.plan(DELAYS):
            delay = next_delay(POLICY, plan.delay, self.consecutive)
            self._arm(plan.trigger, now() + delay, self.epoch)

    def _arm(self, trigger: str, due_at: datetime, epoch: int) -> None:
        async def fire() -> None:
            await asyncio.sleep((due_at - now()).total_seconds())
            await self._fire(trigger, due_at, epoch)

        self.timer = asyncio.create_task(fire())

    async def _fire(self, trigger: str, due_at: datetime, epoch: int) -> None:
        snoozed_until = self.preferences.get("snoozed_until")
        facts = Facts(
            checked_at=now(),
            due_at=due_at,
            armed_epoch=epoch,
            thread_epoch=self.epoch,
            consecutive=self.consecutive,
            opted_out=bool(self.preferences.get("opted_out")),
            snoozed_until=snoozed_until and datetime.fromisoformat(snoozed_until),
            zone=ZONE,
        )
        decision = PolicyGates(POLICY).check(facts)
        print("gates:", decision.reason)
        if decision.outcome is GateOutcome.ALLOW:
            self.consecutive += 1
            await self._run(synthetic_message(trigger))
        elif decision.until is not None:
            self._arm(trigger, decision.until, epoch)


def now() -> datetime:
    return datetime.now(UTC)


async def main() -> None:
    model = ScriptedChatModel(
        script=["Which songs do you like?", "Shall I name some easy ones?", "All right, I won't."]
    )
    agent = create_agent(
        model, middleware=[BatchHistory(max_tokens=8_000)], checkpointer=InMemorySaver()
    )
    companion = Companion(agent)
    await companion.hear("I want to learn the guitar.")
    await asyncio.sleep(5)  # Sam is silent: one follow-up comes, and no second one
    await companion.hear("Please stop writing to me.")
    monday = datetime(2027, 1, 18, 7, tzinfo=UTC)
    reminder = parse_schedule(every="FREQ=WEEKLY;BYHOUR=9", now=monday, zone=ZONE)
    print("remind:", reminder.describe())


if __name__ == "__main__":
    asyncio.run(main())
