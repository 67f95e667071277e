"""The rules after a storm: kept by a calm day, and each of them able to fail."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall

from segue.core.batch import CUT_OFF_REPLY
from segue.core.context import Context
from segue.core.messages import CONTINUATION_PROMPT
from segue.core.metadata import MessageMetadata
from segue.core.triggers import TRIGGER_PROMPTS
from segue.journal.records import Timer, TimerKind, TimerState, Turn, TurnKind, TurnState
from segue.simulate.world import Stage, World
from segue.stores import JOURNAL_FILE
from tests.chaos import cast, soundness
from tests.chaos.aftermath import Aftermath, is_cancelled
from tests.chaos.driver import Driver, Sent, Spoken
from tests.chaos.ledger import Ledger, Life, ToolRun
from tests.chaos.reading import read_aftermath
from tests.chaos.soundness import RULES, breaches
from tests.chaos.wires import wire_problems
from tests.chaos.worker import date_runs
from tests.providers.clients import Client

pytestmark = pytest.mark.anyio
Breach = Callable[[Aftermath], Aftermath]
DAY = timedelta(days=1)


class CalmDay:
    """A few conversations in which everything happens that the rules are about."""

    def __init__(self, world: World, ledger: Ledger) -> None:
        self._world = world
        self._ledger = ledger
        self.spoken = Spoken()

    async def pass_by(self) -> None:
        await self._say("guide", "q1", "three")
        await self._say("guide", "q2", "plain")
        await self._world.pass_time(seconds=5)  # two follow-ups
        await self._say("guide", "q3", "broken")
        await self._say("planner", "q4", "twice")
        await self._say("host", "q5", "ask")
        await self._world.pass_time(seconds=5)
        await self._request("planner")
        await self._change_mind("guide", "q6", "rounds")
        await self._say("planner", "q7", "twice")
        await self._world.segue.cancel("planner")  # the continuation: the answer is there

    async def _say(self, agent: str, token: str, plan: str) -> None:
        await self._send(agent, token, plan)
        await self._world.clock.settle()

    async def _send(self, agent: str, token: str, plan: str) -> None:
        world, text = self._world, cast.question(token, plan)
        await world.segue.create_thread("ann", agent, thread_id=agent)
        turn = (await world.segue.send(agent, text, client_message_id=token)).turn
        now = world.clock.now()
        self.spoken.sent.append(Sent(agent, token, plan, text, turn.batch, turn.id, now))

    async def _request(self, agent: str) -> None:
        deps = self._world.system.deps
        driver = Driver(deps.journal, deps.ids, deps.clock, 1, self.spoken)
        for kind in (TimerKind.EVENT, TimerKind.EVENT, TimerKind.REMINDER, TimerKind.FOLLOW_UP):
            await driver.request(agent, kind, timedelta(seconds=2))
        deps.wakeups.timers.now()
        await self._world.pass_time(seconds=10)

    async def _change_mind(self, agent: str, token: str, plan: str) -> None:
        ran = len(self._ledger.tools())
        await self._send(agent, token, plan)
        while len(self._ledger.tools()) == ran:  # noqa: ASYNC110 - a file tells nobody
            await asyncio.sleep(0.01)
        stopped = await self._world.segue.cancel(agent)
        self.spoken.cancelled |= {turn.id for turn in stopped}
        await self._world.clock.settle()


@asynccontextmanager
async def a_world(folder: Path, ledger: Ledger) -> AsyncIterator[World]:
    stage, random = Stage(str(folder)), Random(1)  # noqa: S311 - no secret
    agents = cast.agents(ledger, random, stage.clock.now)
    async with stage.world(*agents, models=cast.models(0, random)) as world:
        date_runs(world.system)
        yield world


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Aftermath:
    """What a calm day leaves behind."""
    folder = tmp_path_factory.mktemp("calm")
    ledger = Ledger(folder / "ledger")

    async def pass_by() -> Aftermath:
        async with a_world(folder, ledger) as world:
            node = world.system.runtime.ids.node
            ledger.note_life(Life(0, node, "took", world.clock.now()))
            day = CalmDay(world, ledger)
            await day.pass_by()
            address, now = str(folder / JOURNAL_FILE), world.clock.now()
            return await read_aftermath(world.journal, address, now, day.spoken, ledger)

    return asyncio.run(pass_by())


def test_a_calm_day_breaks_no_rule(calm: Aftermath) -> None:
    """A system that is used as intended leaves nothing to find fault with; and it was used."""
    assert breaches(calm) == []
    kinds = {turn.kind for turn in calm.turns}
    assert kinds == set(TurnKind)
    assert {turn.state for turn in calm.turns} >= {TurnState.DONE, TurnState.FAILED}
    assert any(map(is_cancelled, calm.turns))
    assert any(batch.parent for batch in calm.batches.values())


def batch_of(seen: Aftermath, token: str) -> int:
    [batch] = [sent.batch for sent in seen.spoken.sent if sent.token == token]
    return batch


def with_turns(change: Callable[[Turn], Turn], kind: TurnKind = TurnKind.FOLLOW_UP) -> Breach:
    """All turns of a kind, changed."""

    def breach(seen: Aftermath) -> Aftermath:
        changed = [change(turn) if turn.kind is kind else turn for turn in seen.turns]
        return replace(seen, turns=changed)

    return breach


def with_timers(**change: object) -> Breach:
    def breach(seen: Aftermath) -> Aftermath:
        timers: list[Timer] = [replace(timer, **change) for timer in seen.timers]  # type: ignore[arg-type]  # of any field
        return replace(seen, timers=timers)

    return breach


def with_message(token: str, message: BaseMessage) -> Breach:
    """One message more at the end of a batch."""

    def breach(seen: Aftermath) -> Aftermath:
        batch = seen.batches[batch_of(seen, token)]
        last = MessageMetadata.of(batch.messages[-1])
        place = replace(
            last, position=batch.last_position + 1, sequence_num=batch.next_sequence_num
        )
        row = ("guide", seen.now, place.onto(message, id="one more"))
        return replace(seen, messages=[*seen.messages, row])

    return breach


def without_messages(is_gone: Callable[[BaseMessage], bool]) -> Breach:
    def breach(seen: Aftermath) -> Aftermath:
        return replace(seen, messages=[row for row in seen.messages if not is_gone(row[2])])

    return breach


def with_history(text: str) -> Breach:
    """One message more that a person sees."""

    def breach(seen: Aftermath) -> Aftermath:
        shown = [*seen.history["guide"], HumanMessage(text, id="one more")]
        return replace(seen, history={**seen.history, "guide": shown})

    return breach


def with_tool_run(**change: object) -> Breach:
    """One run of a tool more, like the first but for what is changed."""

    def breach(seen: Aftermath) -> Aftermath:
        again: ToolRun = replace(seen.tools[0], **change)  # type: ignore[arg-type]  # of any field
        return replace(seen, tools=[*seen.tools, again])

    return breach


def nested_again(seen: Aftermath) -> Aftermath:
    """The other agent's batch, once more."""
    [nested] = [batch for batch in seen.batches.values() if batch.parent]
    metadata = MessageMetadata.of(nested.messages[0])
    other = replace(metadata, batch=seen.now.microsecond + 1, position=seen.now.microsecond + 1)
    row = ("host/scholar", seen.now, other.onto(nested.messages[0], id="again"))
    return replace(seen, messages=[*seen.messages, row])


def fired_again(seen: Aftermath) -> Aftermath:
    [decision, *_] = [one for one in seen.decisions if one.outcome == "allow"]
    return replace(seen, decisions=[*seen.decisions, decision])


def trigger_without_turn(seen: Aftermath) -> Aftermath:
    turns = [turn for turn in seen.turns if turn.kind is not TurnKind.FOLLOW_UP]
    return replace(seen, turns=turns)


def three_in_a_row(seen: Aftermath) -> Aftermath:
    [one, *_] = [turn for turn in seen.turns if turn.kind is TurnKind.FOLLOW_UP]
    more = [replace(one, id=number) for number in (1, 2, 3)]
    return replace(seen, turns=[*seen.turns, *more])


def nothing_cancelled(seen: Aftermath) -> Aftermath:
    return replace(seen, spoken=replace(seen.spoken, cancelled=set()))


def never_sent(seen: Aftermath) -> Aftermath:
    """A message that the client has in writing, and nobody else."""
    sent = replace(seen.spoken.sent[0], text="Where am I?", batch=1)
    return replace(seen, spoken=replace(seen.spoken, sent=[sent]))


def in_two_hands(seen: Aftermath) -> Aftermath:
    [life] = seen.lives
    return replace(seen, lives=[life, replace(life, life=7, at=life.at + DAY)])


def is_reply(token: str) -> Callable[[BaseMessage], bool]:
    return lambda message: message.text == f"This is my answer to {token} as I know it."


def is_continuation(message: BaseMessage) -> bool:
    return message.text == CONTINUATION_PROMPT


CALL = AIMessage("", tool_calls=[ToolCall(name="note", args={}, id="call-again")])
ANSWER = AIMessage("This is my answer to q1 as I know it.")
BREACHES: list[tuple[str, Breach]] = [
    ("an accepted message is not in history exactly once", never_sent),
    ("an accepted message is not in history exactly once", with_history("Question q1: three.")),
    ("a message has no answer and no honest end", never_sent),
    ("a message has no answer and no honest end", without_messages(is_reply("q1"))),
    (
        "a message has no answer and no honest end",
        with_turns(lambda turn: replace(turn, ending=None), TurnKind.REPLY),
    ),
    (
        "a message has no answer and no honest end",
        with_turns(lambda turn: replace(turn, state=TurnState.VOID), TurnKind.REPLY),
    ),
    (
        "a turn failed for no good reason",
        with_turns(lambda turn: replace(turn, state=TurnState.FAILED, error="Because.")),
    ),
    ("a turn was cancelled that nobody wanted cancelled", nothing_cancelled),
    ("a batch is over and not complete", without_messages(is_reply("q2"))),
    ("a reply is there twice", with_message("q1", ANSWER)),
    ("a reply answers something else", with_message("q2", ANSWER)),
    ("a turn took more steps than it had to", with_message("q1", CALL)),
    (
        "a tool ran again whose result was stored",
        lambda seen: with_tool_run(run_began_at=seen.now + DAY)(seen),
    ),
    ("a tool ran again whose result was stored", with_tool_run(knew_result=True)),
    ("a tool ran more often than its turn was tried", with_tool_run()),
    ("a tool ran without a call", with_tool_run(call_id="nobody")),
    ("an agent was asked twice for one call", nested_again),
    ("a timer fired twice, or for nothing", fired_again),
    ("a timer fired twice, or for nothing", trigger_without_turn),
    ("a timer fired twice, or for nothing", with_timers(state=TimerState.CANCELLED)),
    ("a request was lost, or is there twice", with_timers(key=None)),
    ("a request was lost, or is there twice", with_timers(state=TimerState.CANCELLED)),
    ("a continuation came twice, or without its timer", without_messages(is_continuation)),
    ("a continuation came twice, or without its timer", lambda seen: replace(seen, timers=[])),
    ("too many follow-ups in a row", three_in_a_row),
    (
        "a follow-up was shown after the user wrote",
        lambda seen: with_turns(lambda turn: replace(turn, shown_at=seen.now + DAY))(seen),
    ),
    (
        "a follow-up is seen that was never shown",
        with_turns(lambda turn: replace(turn, shown_at=None)),
    ),
    ("a timer hangs, or does not say why", with_timers(state=TimerState.CLAIMED)),
    ("a timer hangs, or does not say why", with_timers(state=TimerState.PENDING)),
    ("a timer hangs, or does not say why", with_timers(state=TimerState.SUPPRESSED)),
    ("a turn hangs", with_turns(lambda turn: replace(turn, state=TurnState.RUNNING))),
    ("a turn hangs", with_turns(lambda turn: replace(turn, state=TurnState.QUEUED))),
    ("a person sees what was never said to them", with_history(TRIGGER_PROMPTS["check_in"])),
    (
        "a person sees what was never said to them",
        lambda seen: replace(
            seen, threads=[replace(t, preview=CUT_OFF_REPLY) for t in seen.threads]
        ),
    ),
    ("a node number is shared", in_two_hands),
]


@pytest.mark.parametrize(("rule", "breach"), BREACHES, ids=[rule for rule, _ in BREACHES])
def test_a_broken_rule_is_found(calm: Aftermath, rule: str, breach: Breach) -> None:
    """Every rule sees what it is about."""
    assert any(found.startswith(f"{rule}: ") for found in breaches(breach(calm)))


def test_every_rule_can_fail() -> None:
    """No rule is without a breach that it finds; contexts have a test of their own."""
    assert {rule for rule, _ in BREACHES} == set(RULES) - {"a context is not valid"}


def a_context_with_an_open_call(*args: object, **how: object) -> Context:
    """What a careless `build_context` would give."""
    del args, how
    call = ToolCall(name="weather", args={}, id="call-1")
    messages = [HumanMessage("Hello."), AIMessage("", tool_calls=[call]), HumanMessage("Well?")]
    return Context(messages, [], 10)


def test_a_bad_context_is_found(
    calm: Aftermath, clients: dict[str, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that no provider takes is found, before and after the clients had it."""
    assert list(wire_problems(calm, clients)) == []
    monkeypatch.setattr(soundness, "build_context", a_context_with_an_open_call)
    assert any(found.startswith("a context is not valid: ") for found in breaches(calm))
    found = list(wire_problems(calm, clients))
    assert {name for name in clients if any(name in problem for problem in found)} == set(clients)
