"""Metadata: one strict question, checked fields, and nothing lost on the way."""

import copy
import json
import logging
import pickle
from collections.abc import Callable
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.load import dumps, loads
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    message_to_dict,
    messages_from_dict,
)

from segue import (
    TRIGGER_PROMPTS,
    BatchType,
    MessageMetadata,
    TriggerType,
    is_synthetic,
    strip_metadata,
)
from segue.core.metadata import KEYS, Priority
from segue.errors import MetadataError

ONE_OF_EACH_TYPE: list[BaseMessage] = [
    HumanMessage("hi"),
    AIMessage("hi"),
    AIMessageChunk(content="hi"),
    SystemMessage("hi"),
    ToolMessage("hi", tool_call_id="call_1"),
    FunctionMessage(content="hi", name="f"),
    ChatMessage(content="hi", role="critic"),
    RemoveMessage("m-1"),
]
NOT_TRUE = [False, None, "true", "True", "", 1, 1.0, 0, [True], {"synthetic": True}]
BIG = 2**63 - 1

json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=5,
)
foreign = st.dictionaries(st.text().filter(lambda key: key not in KEYS), json_values, max_size=2)
snowflakes = st.integers(1, BIG)
optional_text = st.one_of(st.none(), st.text())
# Random words, and words that a check of content would fall for.
words = st.one_of(
    st.text(), st.sampled_from([*TRIGGER_PROMPTS.values(), "[AUTONOMOUS_FOLLOWUP: check_in]"])
)


@st.composite
def metadata(draw: st.DrawFn) -> MessageMetadata:
    synthetic = draw(st.booleans())
    # Only a synthetic message has a trigger.
    triggers = st.one_of(st.none(), st.sampled_from(TriggerType)) if synthetic else st.none()
    return MessageMetadata(
        synthetic=synthetic,
        trigger_type=draw(triggers),
        trigger_reason=draw(optional_text),
        position=draw(st.one_of(st.none(), snowflakes)),
        batch=draw(st.one_of(st.none(), snowflakes)),
        sequence_num=draw(st.one_of(st.none(), st.integers(0))),
        batch_type=draw(st.one_of(st.none(), st.sampled_from(BatchType))),
        parent_batch=draw(st.one_of(st.none(), snowflakes)),
        continue_requested=draw(st.booleans()),
        settled=draw(st.booleans()),
        source_agent_id=draw(optional_text),
        tool_triggered=draw(st.booleans()),
        retry_count=draw(st.one_of(st.none(), st.integers(0))),
        priority=draw(st.one_of(st.none(), st.sampled_from(get_args(Priority)))),
    )


def as_dict(message: BaseMessage) -> BaseMessage:
    return messages_from_dict(json.loads(json.dumps([message_to_dict(message)])))[0]


def as_json(message: BaseMessage) -> BaseMessage:
    restored = loads(dumps(message), allowed_objects="messages")
    assert isinstance(restored, BaseMessage)
    return restored


def as_pickle(message: BaseMessage) -> BaseMessage:
    restored = pickle.loads(pickle.dumps(message))  # noqa: S301  # our own bytes
    assert isinstance(restored, BaseMessage)
    return restored


COPIES: list[Callable[[BaseMessage], BaseMessage]] = [
    as_dict,
    as_json,
    as_pickle,
    copy.deepcopy,
    BaseMessage.model_copy,
]
# LangChain calls its own reader beta; that it changes is what these tests would tell us.
beta = pytest.mark.filterwarnings("ignore:The function `loads` is in beta")


@pytest.mark.parametrize("message", ONE_OF_EACH_TYPE, ids=lambda m: type(m).__name__)
def test_a_message_of_any_type_is_synthetic_if_its_flag_is_true(message: BaseMessage) -> None:
    """Segue writes results and replies too when it settles a batch, so every type is asked."""
    assert not is_synthetic(message)
    assert is_synthetic(message.model_copy(update={"additional_kwargs": {"synthetic": True}}))


@pytest.mark.parametrize("flag", NOT_TRUE, ids=repr)
@pytest.mark.parametrize("message", ONE_OF_EACH_TYPE, ids=lambda m: type(m).__name__)
def test_anything_but_true_is_a_real_message(message: BaseMessage, flag: object) -> None:
    """The text "true", 1, null and other lookalikes never hide what a person wrote."""
    kwargs = {"synthetic": flag, "trigger_type": "check_in"}
    assert not is_synthetic(message.model_copy(update={"additional_kwargs": kwargs}))


@given(json_values)
def test_only_true_itself_is_true(flag: object) -> None:
    """Whatever JSON brings as the flag, the answer is yes for `true` and no for all else."""
    assert is_synthetic(HumanMessage("hi", additional_kwargs={"synthetic": flag})) == (flag is True)


@given(words, words)
def test_the_answer_is_the_same_whatever_the_message_says(one: str, other: str) -> None:
    """Synthetic is a fact of metadata, so content cannot change it."""
    for flag in (True, False):
        first = HumanMessage(one, additional_kwargs={"synthetic": flag})
        second = HumanMessage(other, additional_kwargs={"synthetic": flag})
        assert is_synthetic(first) == is_synthetic(second) == flag


@pytest.mark.parametrize("message", ONE_OF_EACH_TYPE, ids=lambda m: type(m).__name__)
def test_a_message_without_metadata_reads_as_a_real_one(message: BaseMessage) -> None:
    """Every field is optional: messages from before the metadata are real and belong nowhere."""
    read = MessageMetadata.of(message)
    assert read == MessageMetadata()
    assert not read.synthetic
    assert read.trigger_type is None


def test_null_fields_read_as_absent() -> None:
    """A store that writes null for what is not there changes nothing."""
    nulls = HumanMessage("hi", additional_kwargs=dict.fromkeys(KEYS))
    assert MessageMetadata.of(nulls) == MessageMetadata()


def test_keys_of_others_do_not_disturb_reading() -> None:
    """Keys that LangChain or a provider keeps beside ours are none of our fields."""
    kwargs: dict[str, Any] = {"synthetic": True, "refusal": None, "Batch": "x"}
    message = AIMessage("hi", additional_kwargs=kwargs)
    assert MessageMetadata.of(message) == MessageMetadata(synthetic=True)


@pytest.mark.parametrize("flag", NOT_TRUE, ids=repr)
def test_a_flag_that_is_not_true_is_read_as_false(flag: object) -> None:
    """A lookalike flag is no error, and the trigger type beside it does not count."""
    kwargs = {"synthetic": flag, "trigger_type": "check_in"}
    assert MessageMetadata.of(HumanMessage("hi", additional_kwargs=kwargs)) == MessageMetadata()


@pytest.mark.parametrize("unknown", ["agent_decision", "CHECK_IN", "", 7, ["check_in"]])
def test_an_unknown_trigger_type_is_logged_and_the_message_stays_synthetic(
    unknown: object, caplog: pytest.LogCaptureFixture
) -> None:
    """A trigger of a newer version is neither shown nor an error; the log names it."""
    kwargs = {"synthetic": True, "trigger_type": unknown, "trigger_reason": "idle"}
    message = HumanMessage("hi", id="m-7", additional_kwargs=kwargs)
    with caplog.at_level(logging.WARNING, logger="segue"):
        read = MessageMetadata.of(message)
    assert read == MessageMetadata(synthetic=True, trigger_reason="idle")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert repr(unknown) in caplog.text
    assert "'m-7'" in caplog.text


@pytest.mark.parametrize("trigger", TriggerType)
def test_a_known_trigger_type_is_read_without_a_word(
    trigger: TriggerType, caplog: pytest.LogCaptureFixture
) -> None:
    """Normal operation makes no noise in the log."""
    kwargs = {"synthetic": True, "trigger_type": trigger.value}
    read = MessageMetadata.of(HumanMessage("hi", additional_kwargs=kwargs))
    assert read.trigger_type is trigger
    assert caplog.records == []


def test_a_trigger_type_without_the_synthetic_flag_is_refused() -> None:
    """Only synthetic messages have a trigger, so writing one on a real message is an error."""
    with pytest.raises(MetadataError, match="trigger_type"):
        MessageMetadata(trigger_type=TriggerType.CHECK_IN)


WRONG: list[tuple[str, object]] = [
    ("trigger_reason", 30),
    ("trigger_reason", {"idle": 30}),
    ("position", "2099222308970319872"),
    ("position", 0),
    ("position", True),
    ("batch", -1),
    ("batch", 2**63),
    ("batch", 1.5),
    ("batch", "msg_batch_7"),
    ("parent_batch", []),
    ("sequence_num", -1),
    ("sequence_num", "0"),
    ("sequence_num", True),
    ("sequence_num", 1.0),
    ("batch_type", "user"),
    ("batch_type", ["user_request"]),
    ("continue_requested", "yes"),
    ("settled", 1),
    ("source_agent_id", 4),
    ("stored_at", "yesterday"),
    ("stored_at", "2027-01-15T08:00:00"),
    ("tool_triggered", "true"),
    ("retry_count", -2),
    ("retry_count", "2"),
    ("priority", "urgent"),
    ("priority", 3),
]


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_a_wrong_value_is_reported_with_its_message_and_key(key: str, value: object) -> None:
    """Malformed metadata is an error that tells where to look, not a guess."""
    message = AIMessage("hi", id="m-7", additional_kwargs={key: value})
    with pytest.raises(MetadataError) as refused:
        MessageMetadata.of(message)
    assert str(refused.value).startswith("Message 'm-7' (ai): ")
    assert repr(key) in str(refused.value)
    assert repr(value) in str(refused.value)


@pytest.mark.parametrize(
    ("key", "value"), [*WRONG, ("synthetic", "true"), ("synthetic", 1), ("trigger_type", "nap")]
)
def test_wrong_metadata_cannot_be_made(key: str, value: object) -> None:
    """What would be refused when read is refused when written."""
    fields: dict[str, Any] = {"synthetic": True, key: value}
    with pytest.raises(MetadataError, match=repr(key)):
        MessageMetadata(**fields)


def test_a_wrong_value_says_what_was_expected() -> None:
    """The valid choices stand in the error, so that nobody has to look them up."""
    with pytest.raises(MetadataError, match="'urgent'; expected one of: low, medium, high"):
        MessageMetadata(priority="urgent")  # type: ignore[arg-type]  # the misuse is the point
    message = HumanMessage("hi", additional_kwargs={"batch_type": "user"})
    with pytest.raises(MetadataError, match="user_request, agent_to_agent, system_trigger"):
        MessageMetadata.of(message)


@given(metadata(), foreign)
def test_metadata_is_read_as_it_was_written(
    written: MessageMetadata, others: dict[str, Any]
) -> None:
    """All fields come back equal, 64-bit ids and any script included, and so do foreign keys."""
    message = written.onto(AIMessage("hi", additional_kwargs=others))
    assert MessageMetadata.of(message) == written
    assert {k: v for k, v in message.additional_kwargs.items() if k not in KEYS} == others


@beta
@pytest.mark.parametrize("copied", COPIES, ids=lambda copied: copied.__name__)
@given(written=metadata())
def test_metadata_survives_every_way_to_copy_or_serialise_a_message(
    copied: Callable[[BaseMessage], BaseMessage], written: MessageMetadata
) -> None:
    """JSON, pickle and copies give an equal message with equal metadata."""
    message = written.onto(HumanMessage("hi", id="m-7"))
    restored = copied(message)
    assert restored == message
    assert restored.additional_kwargs == message.additional_kwargs
    assert MessageMetadata.of(restored) == written


@beta
@pytest.mark.parametrize("copied", [as_dict, as_json], ids=lambda copied: copied.__name__)
def test_ids_of_64_bits_and_any_script_are_exact_after_json(
    copied: Callable[[BaseMessage], BaseMessage],
) -> None:
    """No digit is rounded as in a float, and no character is replaced."""
    written = MessageMetadata(
        synthetic=True, position=BIG, batch=BIG - 1, trigger_reason="静か 🍕 \u202e naïve"
    )
    read = MessageMetadata.of(copied(written.onto(HumanMessage("hi"))))
    assert (read.position, read.batch) == (9223372036854775807, 9223372036854775806)
    assert read.trigger_reason == "静か 🍕 \u202e naïve"


@beta
@pytest.mark.parametrize("copied", [as_dict, as_json], ids=lambda copied: copied.__name__)
def test_a_mixed_list_keeps_order_and_each_messages_own_metadata(
    copied: Callable[[BaseMessage], BaseMessage],
) -> None:
    """After serialisation each trigger has its three fields and plain messages stay plain."""
    messages: list[BaseMessage] = [HumanMessage("Hello")]
    for trigger in TriggerType:
        tags = MessageMetadata(
            synthetic=True, trigger_type=trigger, trigger_reason=f"because of {trigger}"
        )
        messages += [tags.onto(HumanMessage("psst")), AIMessage("Yes?")]
    restored = [copied(message) for message in messages]
    assert restored == messages
    assert [m.additional_kwargs for m in restored if is_synthetic(m)] == [
        {"synthetic": True, "trigger_type": t, "trigger_reason": f"because of {t}"}
        for t in ("check_in", "question_unanswered", "task_incomplete", "waiting_for_decision")
    ]
    assert all(m.additional_kwargs == {} for m in restored if not is_synthetic(m))


@given(metadata())
def test_what_is_written_is_plain_json_without_absent_fields(written: MessageMetadata) -> None:
    """A plain dictionary of strings, ints and true: no null, no false, no class of ours."""
    kwargs = written.to_kwargs()
    assert type(kwargs) is dict
    assert kwargs.keys() <= KEYS
    assert all(type(v) in (str, int) or v is True for v in kwargs.values())
    assert json.loads(json.dumps(kwargs)) == kwargs


def test_zero_is_written() -> None:
    """The first place of a batch and a first try are numbers, not absence."""
    assert MessageMetadata(sequence_num=0, retry_count=0).to_kwargs() == {
        "sequence_num": 0,
        "retry_count": 0,
    }


def test_a_real_message_gets_no_metadata_written() -> None:
    """Nothing known means nothing written: a plain message stays plain."""
    assert MessageMetadata().to_kwargs() == {}


@given(metadata(), foreign)
def test_tagging_a_message_leaves_the_original_alone(
    tags: MessageMetadata, others: dict[str, Any]
) -> None:
    """The tagged message is a copy; the one given is as it was, to the last key."""
    original = HumanMessage(["hi"], id="m-7", name="Ann", additional_kwargs=others)
    before = copy.deepcopy(original)
    tagged = tags.onto(original)
    assert original == before
    assert tagged is not original
    assert (tagged.content, tagged.id, tagged.name) == (["hi"], "m-7", "Ann")


def test_a_message_has_one_set_of_metadata() -> None:
    """New metadata replaces the old as a whole; fields of two sets never mix."""
    first = MessageMetadata(synthetic=True, trigger_reason="idle", retry_count=3)
    message = first.onto(HumanMessage("hi", additional_kwargs={"mood": "calm"}))
    replaced = MessageMetadata(position=5).onto(message)
    assert replaced.additional_kwargs == {"mood": "calm", "position": 5}


@given(st.lists(st.tuples(st.sampled_from(ONE_OF_EACH_TYPE), metadata(), foreign), max_size=3))
def test_stripped_messages_hold_no_key_of_ours_and_all_of_others(
    parts: list[tuple[BaseMessage, MessageMetadata, dict[str, Any]]],
) -> None:
    """A provider gets the same messages in the same order, with foreign keys only."""
    plain = [m.model_copy(update={"additional_kwargs": others}) for m, _, others in parts]
    tagged = [tags.onto(m) for m, (_, tags, _) in zip(plain, parts, strict=True)]
    before = copy.deepcopy(tagged)
    assert strip_metadata(tagged) == plain
    assert tagged == before


def test_a_key_of_ours_is_stripped_whatever_its_value() -> None:
    """Malformed metadata must not reach a model either, and stripping it is no error."""
    kwargs: dict[str, Any] = dict.fromkeys(KEYS, "broken") | {"mood": "calm"}
    [stripped] = strip_metadata([HumanMessage("hi", additional_kwargs=kwargs)])
    assert stripped.additional_kwargs == {"mood": "calm"}


def test_a_message_without_our_keys_is_not_copied() -> None:
    """Stripping costs nothing where there is nothing to strip."""
    message = HumanMessage("hi", additional_kwargs={"mood": "calm"})
    assert strip_metadata(iter([message]))[0] is message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("source_agent_id", "travel-agent"),
        ("tool_triggered", True),
        ("retry_count", 2),
        ("priority", "low"),
        ("priority", "medium"),
        ("priority", "high"),
    ],
)
def test_metadata_has_room_for_what_comes_later(field: str, value: object) -> None:
    """Source agent, tool origin, retries and priority are written under their own names."""
    fields: dict[str, Any] = {field: value}
    message = MessageMetadata(**fields).onto(HumanMessage("hi"))
    assert message.additional_kwargs == {field: value}
    assert getattr(MessageMetadata.of(as_dict(message)), field) == value


def test_a_batch_has_one_of_four_types() -> None:
    """The types of a cycle are a closed set of strings."""
    assert [kind.value for kind in BatchType] == [
        "user_request",
        "agent_to_agent",
        "system_trigger",
        "continuation",
    ]
