"""Old conversations: where batches begin, which times are kept, what becomes of old markers."""

import copy
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from segue import (
    TRIGGER_PROMPTS,
    BatchType,
    ConflictError,
    MessageMetadata,
    SnowflakeGenerator,
    TriggerType,
    UsageError,
    assign_batches,
    group_batches,
    is_synthetic,
    stamp,
    synthetic_message,
    user_message,
    visible_messages,
)
from segue.core.snowflake import node_of, parse, time_of
from segue.migrate.legacy import convert_legacy_trigger, created_at
from tests.histories import calling, positions, result, threads, ticking_generator

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
NOON = datetime(2024, 5, 17, 12, 0, tzinfo=UTC)


def at(message: BaseMessage, moment: object) -> BaseMessage:
    """The message as an old store kept it, with the time it was made."""
    kwargs = message.additional_kwargs | {"created_at": moment}
    return message.model_copy(update={"additional_kwargs": kwargs})


def assign(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    return assign_batches(messages, ticking_generator())


def grouped(messages: Sequence[BaseMessage]) -> list[list[str]]:
    """What each batch says, so that borders can be read off; a call without words is "call"."""
    return [[m.text or "call" for m in batch.messages] for batch in group_batches(assign(messages))]


def times(messages: Sequence[BaseMessage]) -> list[datetime]:
    return [time_of(position) for position in positions(list(messages))]


def test_a_human_message_after_a_reply_begins_a_batch() -> None:
    """Each question forms a batch with its answer."""
    old = [HumanMessage("a"), AIMessage("b"), HumanMessage("c"), AIMessage("d")]
    assert grouped(old) == [["a", "b"], ["c", "d"]]


def test_human_messages_in_a_row_belong_together() -> None:
    """People write several messages before they get an answer."""
    old = [HumanMessage("a"), HumanMessage("b"), HumanMessage("c"), AIMessage("d")]
    assert grouped(old) == [["a", "b", "c", "d"]]


def test_calls_results_and_replies_stay_in_the_batch_of_their_question() -> None:
    """A whole cycle is one batch, however many steps it took."""
    old = [
        HumanMessage("a"),
        calling("c1", "c2"),
        result("c2", "r2"),
        result("c1", "r1"),
        calling("c3"),
        result("c3", "r3"),
        AIMessage("b"),
        AIMessage("c"),
    ]
    assert grouped(old) == [["a", "call", "r2", "r1", "call", "r3", "b", "c"]]
    assert all(batch.is_complete for batch in group_batches(assign(old)))


def test_a_trigger_begins_a_batch_of_its_own() -> None:
    """A follow-up is its own cycle, right after a reply, after a user and before a user."""
    check_in = synthetic_message("check_in", prompt="t")
    old = [
        HumanMessage("a"),
        AIMessage("b"),
        check_in,
        AIMessage("c"),
        HumanMessage("d"),
        check_in,
        HumanMessage("e"),
    ]
    assert grouped(old) == [["a", "b"], ["t", "c"], ["d"], ["t"], ["e"]]


def test_what_the_system_initiated_is_a_batch_of_its_own() -> None:
    """A system message that the agent answers is apart from what a user asked before."""
    old = [HumanMessage("a"), AIMessage("b"), SystemMessage("t"), AIMessage("c")]
    assert grouped(old) == [["a", "b"], ["t", "c"]]
    assert group_batches(assign(old))[1].type is BatchType.SYSTEM_TRIGGER


def test_an_instruction_belongs_to_the_request_behind_it() -> None:
    """A stored prompt or note is in the batch of the next human message, so it is not lost."""
    old = [
        SystemMessage("s"),
        HumanMessage("a"),
        AIMessage("b"),
        SystemMessage("t"),
        SystemMessage("u"),
        HumanMessage("c"),
        AIMessage("d"),
    ]
    assert grouped(old) == [["s", "a", "b"], ["t", "u", "c", "d"]]
    assert {batch.type for batch in group_batches(assign(old))} == {BatchType.USER_REQUEST}


def test_a_note_between_question_and_answer_separates_nothing() -> None:
    """Old apps stored found memories as system messages in the middle of a turn."""
    old = [
        HumanMessage("a"),
        SystemMessage("memories"),
        calling("c1", text="call"),
        SystemMessage("more"),
        result("c1", "r"),
        AIMessage("b"),
    ]
    assert grouped(old) == [["a", "memories", "call", "more", "r", "b"]]
    assert group_batches(assign(old))[0].is_complete


def test_an_agents_greeting_is_a_batch_before_the_users_first() -> None:
    """The first message begins a batch, whoever it is from."""
    old = [AIMessage("Welcome!"), HumanMessage("a"), AIMessage("b")]
    assert grouped(old) == [["Welcome!"], ["a", "b"]]


def test_a_batch_is_named_for_what_began_it() -> None:
    """Triggers and system messages make a system batch, all else a user's request."""
    old = [
        AIMessage("Welcome!"),
        HumanMessage("a"),
        synthetic_message("check_in"),
        AIMessage("b"),
        SystemMessage("s"),
    ]
    assert [batch.type for batch in group_batches(assign(old))] == [
        BatchType.USER_REQUEST,
        BatchType.USER_REQUEST,
        BatchType.SYSTEM_TRIGGER,
        BatchType.SYSTEM_TRIGGER,
    ]


def test_a_late_result_joins_the_batch_of_its_call() -> None:
    """A user who interrupts does not take the result away from the call it answers."""
    old = [
        HumanMessage("a"),
        calling("c1"),
        HumanMessage("b"),
        AIMessage("c"),
        result("c1", "r1"),
        AIMessage("d"),
    ]
    assert grouped(old) == [["a", "call", "r1"], ["b", "c", "d"]]


def test_late_results_of_two_interrupted_batches_each_find_their_own() -> None:
    """Calls that wait in several batches are answered in any order."""
    old = [
        HumanMessage("a"),
        calling("c1"),
        HumanMessage("b"),
        calling("c2"),
        synthetic_message("check_in", prompt="t"),
        result("c1", "r1"),
        result("c2", "r2"),
    ]
    assert grouped(old) == [["a", "call", "r1"], ["b", "call", "r2"], ["t"]]


def test_a_reused_call_id_is_answered_in_the_nearest_batch() -> None:
    """Providers repeat ids: the newest open call gets the result, the older one what is left."""
    old = [
        HumanMessage("a"),
        calling("c1"),
        HumanMessage("b"),
        calling("c1"),
        result("c1", "new"),
        result("c1", "old"),
        AIMessage("c"),
    ]
    assert grouped(old) == [["a", "call", "old"], ["b", "call", "new", "c"]]


def test_an_answered_call_id_is_free_again() -> None:
    """A result never goes back to a batch whose call of that id has its answer."""
    turn = [calling("c1"), result("c1", "r"), AIMessage("x")]
    old = [HumanMessage("a"), *turn, HumanMessage("b"), *turn]
    assert grouped(old) == [["a", "call", "r", "x"], ["b", "call", "r", "x"]]


def test_a_result_without_a_call_stays_where_it_stands() -> None:
    """Nothing is lost: an orphan is kept in the batch around it, or in one of its own."""
    old = [result("c0", "first"), HumanMessage("a"), result("c9", "orphan"), AIMessage("b")]
    assert grouped(old) == [["first"], ["a", "orphan", "b"]]


def test_no_messages_give_no_messages() -> None:
    """An empty conversation is no error."""
    assert assign([]) == []


def test_what_others_wrote_on_a_message_is_kept() -> None:
    """Content, name, ids and foreign keys come through, and the originals are untouched."""
    old = [
        HumanMessage("a", id="m-1", name="Ann", additional_kwargs={"mood": "calm"}),
        calling("c1"),
        result("c1", "r1", artifact=[1, 2]),
        AIMessage("b", response_metadata={"model": "m"}),
    ]
    before = copy.deepcopy(old)
    new = assign(old)
    assert old == before
    assert [m.content for m in new] == [m.content for m in old]
    assert (new[0].id, new[0].name) == ("m-1", "Ann")
    assert new[0].additional_kwargs["mood"] == "calm"
    assert isinstance(new[2], ToolMessage)
    assert new[2].artifact == [1, 2]
    assert new[3].response_metadata == {"model": "m"}


def test_a_message_without_an_id_is_named_after_its_position() -> None:
    """Every stored message has an id, and it tells its place."""
    [message] = assign([HumanMessage("a")])
    assert message.id is not None
    assert parse(message.id) == MessageMetadata.of(message).position


def test_metadata_that_a_message_brings_is_kept() -> None:
    """Giving a batch adds the batch; trigger, source, retries and priority stay as they were."""
    brought = MessageMetadata(
        synthetic=True,
        trigger_type=TriggerType.TASK_INCOMPLETE,
        trigger_reason="report",
        source_agent_id="planner",
        tool_triggered=True,
        retry_count=2,
        priority="high",
    )
    [message] = assign([brought.onto(HumanMessage("a"))])
    kept = brought.to_kwargs()
    assert {key: message.additional_kwargs.get(key) for key in kept} == kept


def test_a_reply_that_was_stored_as_a_chunk_is_a_whole_message() -> None:
    """Old stores keep the stream's type; what they hold is finished, so its batch is complete."""
    [batch] = group_batches(assign([HumanMessage("a"), AIMessageChunk(content="b")]))
    assert batch.is_complete


@pytest.mark.parametrize("holder", ["additional_kwargs", "response_metadata"])
@pytest.mark.parametrize("key", ["created_at", "timestamp"])
@pytest.mark.parametrize(
    "value",
    [
        pytest.param("2024-05-17T12:00:00+00:00", id="ISO"),
        pytest.param("2024-05-17T12:00:00Z", id="ISO with Z"),
        pytest.param("2024-05-17T14:00:00+02:00", id="ISO of another zone"),
        pytest.param("2024-05-17 12:00:00", id="naive ISO counts as UTC"),
        pytest.param(1_715_947_200, id="seconds"),
        pytest.param(1_715_947_200.0, id="seconds as float"),
        pytest.param(1_715_947_200_000, id="milliseconds"),
        pytest.param(NOON, id="datetime"),
        pytest.param(NOON.replace(tzinfo=None), id="naive datetime counts as UTC"),
    ],
)
def test_a_messages_own_time_is_found(holder: str, key: str, value: object) -> None:
    """The usual ways to write a time are read, in either place where stores keep it."""
    fields: dict[str, Any] = {holder: {key: value}}
    assert created_at(AIMessage("a", **fields)) == NOON


@pytest.mark.parametrize(
    "value",
    [None, "", "yesterday", "2024-13-01", True, [], {}, float("nan"), float("inf"), 1e300, 10**400],
    ids=lambda value: repr(value)[:12],
)
def test_what_is_no_time_is_no_time(value: object) -> None:
    """A value that cannot be read as a moment is passed over, not guessed at and not an error."""
    kwargs = {"created_at": value, "timestamp": 1_715_947_200}
    assert created_at(HumanMessage("a", additional_kwargs=kwargs)) == NOON
    assert created_at(at(HumanMessage("a"), value)) is None


@pytest.fixture
def machine_in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose local time is nine hours ahead."""
    monkeypatch.setenv("TZ", "JST-9")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("machine_in_tokyo")
@pytest.mark.parametrize("value", ["2024-05-17T12:00:00", NOON.replace(tzinfo=None), 1_715_947_200])
def test_a_time_without_a_zone_is_utc_wherever_the_machine_stands(value: object) -> None:
    """The same import gives the same times on a laptop and on a server."""
    assert created_at(at(HumanMessage("a"), value)) == NOON


def test_old_messages_keep_their_times() -> None:
    """An id tells when the message was made, to the millisecond, and carries the own node."""
    moments = [NOON + timedelta(milliseconds=offset) for offset in (0, 7, 60_000, 86_400_123)]
    old = [at(HumanMessage("a"), m) for m in moments]
    new = assign_batches(old, SnowflakeGenerator(node=12))
    assert times(new) == moments
    assert {node_of(position) for position in positions(new)} == {12}


def test_times_that_go_back_or_repeat_still_give_rising_ids() -> None:
    """The order of the conversation wins over clocks that were wrong."""
    offsets = [0, 5_000, -3_600_000, 5_000, 6_000]
    old = [at(HumanMessage("a"), NOON + timedelta(milliseconds=n)) for n in offsets]
    new = assign(old)
    assert all(a < b for a, b in pairwise(positions(new)))
    assert [(t - NOON).total_seconds() for t in times(new)] == [0, 5, 5, 5, 6]


def test_a_message_without_a_time_takes_its_neighbours() -> None:
    """The one before it, and at the start the first one after it."""
    later = NOON + timedelta(minutes=1)
    old = [
        HumanMessage("a"),
        at(AIMessage("b"), NOON),
        HumanMessage("c"),
        at(AIMessage("d"), later),
        HumanMessage("e"),
    ]
    assert times(assign(old)) == [NOON, NOON, NOON, later, later]


def test_a_conversation_without_times_takes_new_ids() -> None:
    """Where nothing says when it was, the generator's present is as good as any."""
    generator = ticking_generator(node=3)
    before = generator.next()
    new = assign_batches([HumanMessage("a"), AIMessage("b")], generator)
    after = generator.next()
    assert before < positions(new)[0] < positions(new)[1] < after
    assert {node_of(position) for position in positions(new)} == {3}


def test_a_time_from_before_the_ids_began_is_accepted() -> None:
    """A zero timestamp is common in old data; ids still rise from it."""
    new = assign([at(HumanMessage("a"), 0), at(AIMessage("b"), 0), at(HumanMessage("c"), NOON)])
    assert all(a < b for a, b in pairwise(positions(new)))
    assert times(new)[2] == NOON


def test_a_store_that_keeps_times_elsewhere_can_say_where() -> None:
    """The caller's own reader of times replaces ours."""
    old = [HumanMessage("a", name="2024")]
    [message] = assign_batches(
        old, ticking_generator(), time_of=lambda m: datetime(int(m.name or 0), 1, 1, tzinfo=UTC)
    )
    assert times([message]) == [datetime(2024, 1, 1, tzinfo=UTC)]


def test_a_reader_that_gives_naive_times_is_refused() -> None:
    """A moment without a zone would move a conversation by hours."""
    naive = NOON.replace(tzinfo=None)
    with pytest.raises(UsageError, match="has no time zone"):
        assign_batches([HumanMessage("a")], ticking_generator(), time_of=lambda _: naive)


def test_stamped_messages_are_left_alone() -> None:
    """A message never moves to another batch, and new ones come after it."""
    generator = ticking_generator()
    stored = stamp([user_message("a"), AIMessage("b")], generator)
    new = assign_batches([*stored, HumanMessage("c"), AIMessage("d")], ticking_generator(node=0))
    assert new[:2] == stored
    assert [batch.messages for batch in group_batches(new)] == [stored, new[2:]]


def test_a_stamped_message_that_reads_like_a_marker_is_a_users_own() -> None:
    """Markers are old; who typed one into Segue itself keeps those words."""
    stored = stamp([user_message("[AUTONOMOUS_FOLLOWUP: check_in]")], ticking_generator())
    assert assign(stored) == stored
    assert visible_messages(assign(stored)) == stored


def test_a_stamped_trigger_of_a_type_to_come_is_left_alone() -> None:
    """What a newer version stored is not renamed by an import."""
    [stored] = stamp([synthetic_message("check_in")], ticking_generator())
    newer = stored.model_copy(
        update={"additional_kwargs": stored.additional_kwargs | {"trigger_type": "birthday"}}
    )
    assert assign([newer]) == [newer]


@given(threads())
def test_a_stamped_thread_is_unchanged(messages: list[BaseMessage]) -> None:
    """Nothing of a thread that Segue wrote itself is changed by an import."""
    assert assign(messages) == messages


def test_a_late_result_finds_its_call_behind_a_stamped_message() -> None:
    """A message that has a batch already does not cut a result off from its call."""
    generator = ticking_generator()
    stored = stamp([user_message("b"), AIMessage("c")], generator)
    older = [at(m, NOON) for m in (HumanMessage("a"), calling("c1"))]
    old = [*older, *stored, result("c1", "r1")]
    new = assign_batches(old, generator)
    batches = [MessageMetadata.of(m).batch for m in new]
    assert batches[4] == batches[1] == batches[0]


@pytest.mark.parametrize("trigger", TriggerType)
def test_an_old_marker_becomes_its_trigger(trigger: TriggerType) -> None:
    """The converted message reads naturally and is tagged; where it came from is its reason."""
    old = HumanMessage(f"[AUTONOMOUS_FOLLOWUP: {trigger}]", id="m-1")
    new = convert_legacy_trigger(old)
    assert type(new) is HumanMessage
    assert (new.id, new.content) == ("m-1", TRIGGER_PROMPTS[trigger])
    assert is_synthetic(new)
    read = MessageMetadata.of(new)
    assert read.trigger_type is trigger
    assert trigger.value in (read.trigger_reason or "")
    assert old.additional_kwargs == {}


@pytest.mark.parametrize(
    "text",
    [
        "[AUTONOMOUS_FOLLOWUP:task_incomplete]",
        "[AUTONOMOUS_FOLLOWUP:  task_incomplete ]",
        "  [AUTONOMOUS_FOLLOWUP: task_incomplete]\n",
        "[AUTONOMOUS_FOLLOWUP: task-incomplete]",
        "[AUTONOMOUS_FOLLOWUP: TASK_INCOMPLETE]",
    ],
)
def test_a_marker_is_known_in_all_its_spellings(text: str) -> None:
    """Blanks, case and hyphens varied over the years."""
    converted = MessageMetadata.of(convert_legacy_trigger(HumanMessage(text)))
    assert (converted.synthetic, converted.trigger_type) == (True, TriggerType.TASK_INCOMPLETE)


@pytest.mark.parametrize("name", ["agent_decision", "context_based", "x"])
def test_a_marker_of_a_forgotten_type_becomes_a_check_in(name: str) -> None:
    """An unknown type is still a trigger; it must not show as the user's words."""
    new = convert_legacy_trigger(HumanMessage(f"[AUTONOMOUS_FOLLOWUP: {name}]"))
    assert new.content == TRIGGER_PROMPTS[TriggerType.CHECK_IN]
    assert MessageMetadata.of(new).trigger_type is TriggerType.CHECK_IN
    assert name in (MessageMetadata.of(new).trigger_reason or "")


def test_a_tagged_trigger_of_a_forgotten_type_becomes_a_check_in() -> None:
    """Old metadata may name a type that is gone; the words stay and the reason keeps the name."""
    kwargs = {"synthetic": True, "trigger_type": "agent_decision"}
    new = convert_legacy_trigger(HumanMessage("Ask about the trip.", additional_kwargs=kwargs))
    read = MessageMetadata.of(new)
    assert new.content == "Ask about the trip."
    assert (read.synthetic, read.trigger_type) == (True, TriggerType.CHECK_IN)
    assert "agent_decision" in (read.trigger_reason or "")


@pytest.mark.parametrize(
    "text",
    [
        "What does [AUTONOMOUS_FOLLOWUP: check_in] mean?",
        "[AUTONOMOUS_FOLLOWUP: check_in] please",
        "[AUTONOMOUS_FOLLOWUP: check_in][AUTONOMOUS_FOLLOWUP: check_in]",
        "[AUTONOMOUS_FOLLOWUP]",
        "AUTONOMOUS_FOLLOWUP: check_in",
        "[autonomous_followup: check_in]",
        "Continue our conversation naturally.",
        "",
    ],
)
def test_any_other_text_stays_a_users_message(text: str) -> None:
    """A person who writes about the marker, or writes a prompt's words, keeps the message."""
    message = HumanMessage(text)
    assert convert_legacy_trigger(message) is message


def test_a_marker_inside_a_single_text_block_is_converted() -> None:
    """Stores that keep content as blocks hold the same marker."""
    old = HumanMessage([{"type": "text", "text": "[AUTONOMOUS_FOLLOWUP: task_incomplete]"}])
    new = convert_legacy_trigger(old)
    assert new.content == TRIGGER_PROMPTS[TriggerType.TASK_INCOMPLETE]
    assert is_synthetic(new)


def test_older_messages_cannot_be_put_before_a_stored_conversation() -> None:
    """Where they would not fit below what is there, an error says so instead of a wrong order."""
    generator = ticking_generator()
    stored = stamp([HumanMessage("b"), AIMessage("c")], generator)
    with pytest.raises(ConflictError, match="cannot be put before"):
        assign_batches([HumanMessage("a"), *stored], generator)


def test_a_marker_of_a_numbered_type_is_known() -> None:
    """Whatever name stood in the marker, it is not shown to the user as own words."""
    converted = convert_legacy_trigger(HumanMessage("[AUTONOMOUS_FOLLOWUP: check_in_2]"))
    assert MessageMetadata.of(converted).trigger_type is TriggerType.CHECK_IN


def test_the_reason_of_a_forgotten_trigger_is_kept() -> None:
    """Converting adds where a trigger came from and loses nothing of why."""
    kwargs = {"synthetic": True, "trigger_type": "agent_decision", "trigger_reason": "idle"}
    converted = convert_legacy_trigger(HumanMessage("Say hello.", additional_kwargs=kwargs))
    reason = MessageMetadata.of(converted).trigger_reason
    assert reason == "converted from the old trigger 'agent_decision': idle"


def test_a_time_that_no_id_can_hold_is_no_time() -> None:
    """One bad date does not stop an import."""
    [message] = assign([HumanMessage("a", additional_kwargs={"created_at": "9999-12-31"})])
    assert message.additional_kwargs["position"] > 0


def test_a_message_with_a_picture_is_a_persons() -> None:
    """No trigger ever had a picture, and converting would lose it."""
    message = HumanMessage([{"type": "text", "text": "[AUTONOMOUS_FOLLOWUP: check_in]"}, PICTURE])
    assert convert_legacy_trigger(message) is message


@pytest.mark.parametrize(
    "message",
    [
        AIMessage("[AUTONOMOUS_FOLLOWUP: check_in]"),
        SystemMessage("[AUTONOMOUS_FOLLOWUP: check_in]"),
        result("c1", "[AUTONOMOUS_FOLLOWUP: check_in]"),
        synthetic_message("task_incomplete", "due", prompt="[AUTONOMOUS_FOLLOWUP: check_in]"),
    ],
    ids=["reply", "system", "result", "already synthetic"],
)
def test_only_untagged_human_messages_are_converted(message: BaseMessage) -> None:
    """Others never were triggers, and what is tagged already keeps its own type and reason."""
    assert convert_legacy_trigger(message) is message


def test_a_converted_marker_keeps_its_time_and_foreign_keys() -> None:
    """Conversion changes what the message is, not when it was or what others noted on it."""
    old = HumanMessage(
        "[AUTONOMOUS_FOLLOWUP: check_in]",
        additional_kwargs={"created_at": NOON.isoformat(), "mood": "calm", "synthetic": "true"},
    )
    [new] = assign([old])
    assert times([new]) == [NOON]
    assert new.additional_kwargs["mood"] == "calm"
    assert is_synthetic(new)


def test_markers_begin_batches_as_triggers_do() -> None:
    """A converted follow-up is a cycle of its own with the reply it got."""
    old = [
        HumanMessage("a"),
        AIMessage("b"),
        HumanMessage("[AUTONOMOUS_FOLLOWUP: check_in]"),
        AIMessage("c"),
        HumanMessage("d"),
    ]
    batches = group_batches(assign(old))
    assert [batch.type for batch in batches] == [
        BatchType.USER_REQUEST,
        BatchType.SYSTEM_TRIGGER,
        BatchType.USER_REQUEST,
    ]
    assert [len(batch.messages) for batch in batches] == [2, 2, 1]


@st.composite
def conversations(draw: st.DrawFn, *, timed: bool = False) -> list[BaseMessage]:
    """Any mix of messages in any order, some with times that may go back."""
    messages: list[BaseMessage] = []
    for n in range(draw(st.integers(0, 10))):
        call_id = draw(st.sampled_from(["c1", "c2"]))
        message = draw(
            st.sampled_from(
                [
                    HumanMessage(f"user {n}"),
                    HumanMessage(f"user {n}", id=f"m-{n}"),
                    AIMessage(f"agent {n}"),
                    calling(call_id, text=f"calls {n}"),
                    calling("c1", call_id),
                    result(call_id, f"result {n}"),
                    SystemMessage(f"system {n}"),
                    synthetic_message("check_in", f"reason {n}"),
                    HumanMessage("[AUTONOMOUS_FOLLOWUP: task_incomplete]"),
                ]
            )
        )
        if timed or draw(st.booleans()):
            message = at(message, NOON + timedelta(milliseconds=draw(st.integers(-3, 3))))
        messages.append(message)
    return messages


@given(conversations())
def test_no_message_is_lost_doubled_or_moved(old: list[BaseMessage]) -> None:
    """Every message comes back at its place, with what it said."""
    new = assign(old)
    assert [m.type for m in new] == [m.type for m in old]
    assert [m.content for m in new] == [convert_legacy_trigger(m).content for m in old]
    in_batches = [m for batch in group_batches(new) for m in batch.messages]
    assert sorted(positions(in_batches)) == positions(new)


@given(conversations())
def test_positions_rise_and_batches_count_from_zero(old: list[BaseMessage]) -> None:
    """Positions rise through the list; a batch has its first position as id and no gaps."""
    new = assign(old)
    assert all(a < b for a, b in pairwise(positions(new)))
    for batch in group_batches(new):
        members = [m for m in new if m.additional_kwargs["batch"] == batch.id]
        assert positions(members)[0] == batch.id
        assert [m.additional_kwargs["sequence_num"] for m in members] == list(range(len(members)))
        assert batch.messages == members
        assert {m.additional_kwargs["batch_type"] for m in members} == {batch.type}
    assert len({m.id for m in new}) == len(new)


@given(conversations())
def test_assigning_twice_changes_nothing(old: list[BaseMessage]) -> None:
    """A migration that runs again finds everything done."""
    once = assign(old)
    assert assign_batches(once, SnowflakeGenerator(node=900)) == once


@given(conversations(timed=True))
def test_a_conversation_imported_in_two_steps_is_the_same_as_in_one(old: list[BaseMessage]) -> None:
    """Wherever a first import ended, the second goes on as if there had been no break."""
    at_once = assign(old)
    for cut in range(len(old)):
        assert assign([*at_once[:cut], *old[cut:]]) == at_once


@given(conversations(timed=True))
def test_the_same_conversation_gives_the_same_ids(old: list[BaseMessage]) -> None:
    """With times of its own, a conversation's ids do not depend on when it is imported."""
    early = SnowflakeGenerator(node=4, clock=lambda: 1_700_000_000_000)
    late = SnowflakeGenerator(node=4, clock=lambda: 1_900_000_000_000)
    assert assign_batches(old, early) == assign_batches(old, late)
