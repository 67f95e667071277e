"""Two hundred real support chats with tools, cut, repeated and reordered wherever they can be.

The transcripts are tau-bench's airline runs in OpenAI's message shape; they are read in place and
never copied. What must hold is counted over the raw JSON by plain loops, not by the code under
test. Every chat and every cut point is covered; nothing is sampled. The data's own quirks: no
assistant message makes two calls at once, an assistant message that calls mostly has null
content, some results are empty, 49 chats use one call id for several calls, and no chat ends with
an assistant message: the user says goodbye last, or a call to a human agent ends it.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
    convert_to_messages,
)

from segue import (
    Context,
    SnowflakeGenerator,
    TriggerType,
    assign_batches,
    build_context,
    group_batches,
    memory_query,
    settle,
    stamp,
    synthetic_message,
)
from segue.core.batch import CUT_OFF_REPLY, INTERRUPTED_RESULT, BatchState
from segue.core.memory import QuerySource
from segue.core.window import DropReason
from segue.testing.providers import request_problems

ROOT: Final = Path(__file__).parents[2]
DATA: Final = Path(os.environ.get("SEGUE_DATA") or ROOT.parent / "shared" / "data")
FILE: Final = DATA / "tau_bench_airline" / "trajectories.json"

pytestmark = pytest.mark.skipif(
    not FILE.exists(), reason="needs tau_bench_airline/trajectories.json; SEGUE_DATA names its home"
)

Json = dict[str, Any]
# A message as both sides know it: who says what, and which calls with which arguments.
Said = tuple[str, str, list[tuple[str, Any]]]
ROLES: Final = {"human": "user", "ai": "assistant", "tool": "tool", "system": "system"}


def ticking_generator(last: int = 0) -> SnowflakeGenerator:
    """Ids that rise by one from a fixed time, so that every run makes the same."""
    return SnowflakeGenerator(node=3, last=last, clock=lambda: 1_772_452_800_000)


@dataclass(frozen=True)
class Chat:
    """One transcript without its system prompt, which an agent gets by other ways."""

    number: int
    policy: str = field(repr=False)
    raw: list[Json] = field(repr=False)

    @cached_property
    def messages(self) -> list[BaseMessage]:
        return convert_to_messages(self.raw)

    @cached_property
    def stored(self) -> list[BaseMessage]:
        return assign_batches(self.messages, ticking_generator())

    @property
    def calls(self) -> list[int]:
        """Where in `raw` an assistant message calls a tool; its result stands right after."""
        return [i for i, message in enumerate(self.raw) if message.get("tool_calls")]

    @property
    def turns(self) -> list[list[Json]]:
        """The raw messages, split where the user speaks."""
        starts = [i for i, message in enumerate(self.raw) if message["role"] == "user"]
        ends = [*starts[1:], len(self.raw)]
        return [self.raw[start:end] for start, end in zip(starts, ends, strict=True)]


@pytest.fixture(scope="module")
def chats() -> list[Chat]:
    runs = json.loads(FILE.read_text(encoding="utf-8"))
    return [
        Chat(number, run["traj"][0]["content"], run["traj"][1:]) for number, run in enumerate(runs)
    ]


def raw_said(messages: list[Json]) -> list[Said]:
    return [
        (
            message["role"],
            message["content"] or "",
            [
                (call["function"]["name"], json.loads(call["function"]["arguments"]))
                for call in message.get("tool_calls") or []
            ],
        )
        for message in messages
    ]


def said(messages: list[BaseMessage]) -> list[Said]:
    return [
        (
            ROLES[message.type],
            str(message.content),
            [(c["name"], c["args"]) for c in message.tool_calls]
            if isinstance(message, AIMessage)
            else [],
        )
        for message in messages
    ]


def is_whole(turn: list[Json]) -> bool:
    return turn[-1]["role"] == "assistant" and not turn[-1].get("tool_calls")


def whole_turns(turns: list[list[Json]]) -> list[Json]:
    return [message for turn in turns if is_whole(turn) for message in turn]


def answered_in_place(messages: list[BaseMessage]) -> Iterator[tuple[str, Any, str]]:
    """Each call with the content of the message right after it, where the ids agree."""
    for message, following in pairwise(messages):
        if isinstance(message, AIMessage) and message.tool_calls:
            (call,) = message.tool_calls
            assert isinstance(following, ToolMessage)
            assert following.tool_call_id == call["id"]
            yield call["name"], call["args"], str(following.content)


def raw_answers(chat: Chat) -> list[tuple[str, Any, str]]:
    answers = []
    for index in chat.calls:
        ((name, args),) = raw_said([chat.raw[index]])[0][2]
        answers.append((name, args, chat.raw[index + 1]["content"]))
    return answers


def call_ids(chat: Chat, indexes: list[int]) -> list[str]:
    return [chat.raw[index]["tool_calls"][0]["id"] for index in indexes]


def reuses_an_id(chat: Chat) -> bool:
    ids = call_ids(chat, chat.calls)
    return len(set(ids)) < len(ids)


def left_out(context: Context) -> list[tuple[int, DropReason]]:
    return [(dropped.batch, dropped.reason) for dropped in context.dropped]


def test_the_file_holds_what_the_other_tests_count_on(chats: list[Chat]) -> None:
    """Two hundred chats, 1,164 single calls each answered in the next message, 73 errors."""
    calls = [(chat, index) for chat in chats for index in chat.calls]
    assert len(chats) == 200
    assert len(calls) == 1_164
    for chat, index in calls:
        (call,) = chat.raw[index]["tool_calls"]
        assert chat.raw[index + 1]["role"] == "tool"
        assert chat.raw[index + 1]["tool_call_id"] == call["id"]
    results = [m["content"] for chat in chats for m in chat.raw if m["role"] == "tool"]
    assert len(results) == 1_164
    assert sum(text.startswith("Error") for text in results) == 73
    assert sum(not text for text in results) == 92
    assert sum(map(reuses_an_id, chats)) == 49
    endings = Counter(chat.raw[-1]["role"] for chat in chats)
    assert endings == {"user": 149, "tool": 51}


def test_every_chat_falls_into_one_batch_for_each_thing_the_user_said(chats: list[Chat]) -> None:
    """Batches are the user's turns, message for message, and only a chat's last one is open."""
    states: Counter[BatchState] = Counter()
    for chat in chats:
        batches = group_batches(chat.stored)
        assert [said(batch.messages) for batch in batches] == [raw_said(t) for t in chat.turns]
        assert [batch.is_complete for batch in batches] == [is_whole(t) for t in chat.turns]
        assert all(batch.is_complete for batch in batches[:-1])
        states.update(batch.state for batch in batches)
    users = sum(message["role"] == "user" for chat in chats for message in chat.raw)
    assert users == 1_490
    assert states == {BatchState.COMPLETE: 1_290, BatchState.OPEN: 200}


def test_the_instruction_a_chat_begins_with_reaches_the_model(chats: list[Chat]) -> None:
    """A system prompt stored as the first message is still in the context after the import."""
    lost = []
    for chat in chats:
        instruction = convert_to_messages([{"role": "system", "content": chat.policy}])
        stored = assign_batches([*instruction, *chat.messages], ticking_generator())
        first = build_context(stored).messages[0]
        if (first.type, first.content) != ("system", chat.policy):
            lost.append(chat.number)
    assert lost == []


def test_a_chat_cut_between_call_and_result_leaves_that_batch_out(chats: list[Chat]) -> None:
    """At each of the 1,164 cuts the cut batch awaits tools; all before it is sent, and valid.

    Only where the cut batch is itself the current one is it sent, with its open call answered.
    """
    cuts = 0
    for chat in chats:
        for index in chat.calls:
            stored = assign_batches(chat.messages[: index + 1], ticking_generator())
            *before, cut = group_batches(stored)
            context = build_context(stored)
            assert cut.state is BatchState.AWAITING_TOOLS, (chat.number, index)
            assert left_out(context) == [(cut.id, DropReason.INCOMPLETE)], (chat.number, index)
            assert context.batches == [batch.id for batch in before]
            assert said(context.messages) == raw_said(whole_turns(chat.turns[: len(before)]))
            assert request_problems(context.messages) == [], (chat.number, index)
            resumed = build_context(stored, cut.id).messages
            assert said(resumed)[-1] == ("tool", INTERRUPTED_RESULT, [])
            assert request_problems(resumed) == [], (chat.number, index)
            cuts += 1
    assert cuts == 1_164


def test_a_lost_result_leaves_out_its_batch_and_no_other(chats: list[Chat]) -> None:
    """With any one result gone, only the batch of its call is missing from the context."""
    lost = 0
    for chat in chats:
        for turn_number, position in results_by_turn(chat):
            kept = [m for i, m in enumerate(chat.stored) if i != position]
            broken = group_batches(kept)[turn_number]
            context = build_context(kept)
            others = [turn for i, turn in enumerate(chat.turns) if i != turn_number]
            assert broken.state is BatchState.AWAITING_TOOLS, (chat.number, position)
            # Also where a later call of the batch has the same id and its own result.
            (unanswered,) = broken.pairing.unanswered
            assert unanswered.message is chat.stored[position - 1]
            assert said(context.messages) == raw_said(whole_turns(others))
            assert request_problems(context.messages) == [], (chat.number, position)
            lost += 1
    assert lost == 1_164


def results_by_turn(chat: Chat) -> Iterator[tuple[int, int]]:
    """Each result: the number of its turn and its place in the chat."""
    turn = -1
    for index, message in enumerate(chat.raw):
        turn += message["role"] == "user"
        if message["role"] == "tool":
            yield turn, index


def test_a_result_delivered_again_changes_nothing(chats: list[Chat]) -> None:
    """A second copy of any result, at the end of its batch, leaves state and context the same."""
    doubled = 0
    for chat in chats:
        batches = group_batches(chat.stored)
        states = [batch.state for batch in batches]
        context = build_context(chat.stored)
        for turn_number, position in results_by_turn(chat):
            generator = ticking_generator(batches[-1].last_position)
            again = stamp([chat.messages[position]], generator, batches[turn_number])
            stored = [*chat.stored, *again]
            grouped = group_batches(stored)
            assert [batch.state for batch in grouped] == states
            assert grouped[turn_number].pairing.duplicates == again
            assert build_context(stored).messages == context.messages, (chat.number, position)
            doubled += 1
    assert doubled == 1_164


def test_a_result_stored_twice_in_a_row_is_sent_once(chats: list[Chat]) -> None:
    """A chat in which every result stands twice reads to the model as if each stood once."""
    for chat in chats:
        twice = [m for m in chat.messages for _ in range(1 + isinstance(m, ToolMessage))]
        stored = assign_batches(twice, ticking_generator())
        context = build_context(stored)
        assert [b.is_complete for b in group_batches(stored)] == [is_whole(t) for t in chat.turns]
        assert said(context.messages) == raw_said(whole_turns(chat.turns))
        assert request_problems(context.messages) == [], chat.number


def parallel_runs(chat: Chat) -> list[list[int]]:
    """Calls right after each other whose ids differ: they could have been made at once."""
    runs: list[list[int]] = []
    for index in chat.calls:
        if runs and runs[-1][-1] == index - 2:
            runs[-1].append(index)
        else:
            runs.append([index])
    return [run for run in runs if len(run) > 1 and len(set(call_ids(chat, run))) == len(run)]


def in_parallel(chat: Chat, *, swapped: bool) -> list[BaseMessage]:
    """The chat with each such run as one message, its results after it in order or reversed."""
    places: list[list[BaseMessage]] = [[message] for message in chat.messages]
    for run in parallel_runs(chat):
        callers = [m for i in run if isinstance(m := chat.messages[i], AIMessage)]
        text = "\n".join(str(m.content) for m in callers if m.content)
        together = AIMessage(text, tool_calls=[call for m in callers for call in m.tool_calls])
        results = [chat.messages[i + 1] for i in run]
        for index in run:
            places[index] = places[index + 1] = []
        places[run[0]] = [together, *(reversed(results) if swapped else results)]
    return [message for place in places for message in place]


def test_results_in_any_order_make_the_same_context(chats: list[Chat]) -> None:
    """Calls made at once may be answered in any order: same states, same request.

    The data has no parallel calls of its own, so 206 runs of calls are made into such.
    """
    for chat in chats:
        ordered, crossed = (
            assign_batches(in_parallel(chat, swapped=swapped), ticking_generator())
            for swapped in (False, True)
        )
        states = [batch.state for batch in group_batches(ordered)]
        context = build_context(crossed)
        assert [batch.state for batch in group_batches(crossed)] == states
        assert said(context.messages) == said(build_context(ordered).messages), chat.number
        assert request_problems(context.messages) == [], chat.number
        assert (said(ordered) == said(crossed)) == (parallel_runs(chat) == [])
    assert sum(len(parallel_runs(chat)) for chat in chats) == 206


def test_results_belong_to_the_call_of_their_own_message(chats: list[Chat]) -> None:
    """Though 49 chats reuse call ids, each call gets the result that stood after it."""
    for chat in chats:
        exchanges = [e for batch in group_batches(chat.stored) for e in batch.pairing.exchanges]
        pairs = [(e.call.name, e.call.args, str(e.result and e.result.content)) for e in exchanges]
        assert pairs == raw_answers(chat), chat.number


def test_reused_ids_are_unique_in_the_context(chats: list[Chat]) -> None:
    """The model gets every call under an id of its own, with the right result right after it."""
    calls = reused = 0
    for chat in chats:
        *batches, last = group_batches(chat.stored)
        context = build_context([settle(last), *reversed(batches)]).messages
        ids = [c["id"] for m in context if isinstance(m, AIMessage) for c in m.tool_calls]
        given = call_ids(chat, chat.calls)
        assert len(set(ids)) == len(ids) == len(given)
        assert list(answered_in_place(context)) == raw_answers(chat), chat.number
        assert request_problems(context) == [], chat.number
        # Only a repeated id is replaced; the first use keeps the provider's.
        firsts = [i for i, call_id in enumerate(given) if call_id not in given[:i]]
        assert [ids[i] for i in firsts] == [given[i] for i in firsts]
        calls += len(ids)
        reused += len(ids) - len(firsts)
    assert (calls, reused) == (1_164, 73)


def test_settling_any_prefix_keeps_all_words_and_results(chats: list[Chat]) -> None:
    """Wherever a chat breaks off, settling makes it whole, valid, and loses nothing said."""
    prefixes = 0
    for chat in chats:
        for end in range(1, len(chat.raw) + 1):
            raw = chat.raw[:end]
            *batches, last = group_batches(chat.stored[:end])
            settled = settle(last)
            context = build_context([settled, *reversed(batches)])
            closing: list[Said] = [] if last.is_complete else [("assistant", CUT_OFF_REPLY, [])]
            if raw[-1].get("tool_calls"):
                closing.insert(0, ("tool", INTERRUPTED_RESULT, []))
            assert settled.is_complete
            assert settled.messages[: len(last.messages)] == last.messages
            assert context.dropped == []
            assert said(context.messages) == [*raw_said(raw), *closing], (chat.number, end)
            assert request_problems(context.messages) == [], (chat.number, end)
            prefixes += 1
    assert prefixes == sum(len(chat.raw) for chat in chats)


def test_a_trigger_never_changes_what_memories_are_searched_for(chats: list[Chat]) -> None:
    """After each reply and each trigger, the search uses the user's last words, as before."""
    asked = 0
    for chat in chats:
        words = ""
        for index, message in enumerate(chat.messages):
            if isinstance(message, HumanMessage):
                words = str(message.content).strip()
            elif not isinstance(message, AIMessage) or message.tool_calls:
                continue
            history = chat.stored[: index + 1]
            before = memory_query(history)
            for trigger in TriggerType:
                after = memory_query([*history, synthetic_message(trigger)])
                assert before is not None
                assert after is not None
                assert after.text == before.text == words
                assert after.source is QuerySource.LAST_REAL_USER_MESSAGE
            asked += 1
    assert asked == 1_490 + 1_290
