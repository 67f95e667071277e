"""Snowflake arithmetic: the layout, the rules of rising and the strict text form."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.core.snowflake import (
    EPOCH,
    MAX_ID,
    check_node,
    check_snowflake,
    millis_of,
    next_snowflake,
    node_of,
    parse,
    time_of,
    to_text,
)
from segue.errors import UsageError

LAST_MILLISECOND = 2**41 - 1
NOT_A_SNOWFLAKE = [True, False, "1", b"1", 1.0, None, 0, -1, 2**63]

millis = st.integers(1, LAST_MILLISECOND - 1)
nodes = st.integers(0, 1023)
sequences = st.integers(0, 4095)
snowflakes = st.integers(1, 2**63 - 1)


def snowflake(at: int, node: int, sequence: int) -> int:
    """An id written down bit by bit, as the layout is documented."""
    return int(f"{at:041b}{node:010b}{sequence:012b}", 2)


@given(millis, nodes)
def test_an_id_is_41_bits_of_time_10_of_node_and_12_of_sequence(at: int, node: int) -> None:
    """The first id of a millisecond holds the time, the node and sequence 0."""
    assert next_snowflake(0, at, node) == snowflake(at, node, 0)


def test_stored_ids_keep_their_meaning() -> None:
    """A fixed moment on a fixed node has the id it had when the first thread was stored."""
    moment = datetime(2025, 11, 10, 18, 0, 0, 123_000, tzinfo=UTC)
    assert next_snowflake(0, millis_of(moment), 5) == 2_099_222_308_970_319_872
    assert time_of(2_099_222_308_970_319_872) == moment


def test_the_highest_id_fits_a_signed_64_bit_column() -> None:
    """The last id of the last millisecond on the last node is the largest 64-bit int."""
    assert snowflake(LAST_MILLISECOND, 1023, 4095) == MAX_ID == 2**63 - 1


def test_no_id_is_zero() -> None:
    """Zero means nothing yet, so even the first instant of node 0 gives 1."""
    assert next_snowflake(0, 0, 0) == 1


@given(millis, nodes, st.integers(0, 4094))
def test_a_clock_that_stands_still_counts_up(at: int, node: int, sequence: int) -> None:
    """In the same millisecond the next id is the one after the last."""
    last = snowflake(at, node, sequence)
    assert next_snowflake(last, at, node) == last + 1


@given(millis, nodes, st.integers(0, 4094), st.data())
def test_a_clock_that_steps_back_stays_in_the_last_millisecond(
    at: int, node: int, sequence: int, data: st.DataObject
) -> None:
    """However far back the clock goes, the next id is the one after the last."""
    last = snowflake(at, node, sequence)
    assert next_snowflake(last, data.draw(st.integers(-(2**41), at)), node) == last + 1


@given(millis, nodes)
def test_a_full_millisecond_borrows_from_the_next(at: int, node: int) -> None:
    """After sequence 4095 the time goes on by one and the node bits stay."""
    full = snowflake(at, node, 4095)
    assert next_snowflake(full, at, node) == snowflake(at + 1, node, 0)


@given(millis, st.integers(0, 1022), sequences, st.data())
def test_an_id_of_a_higher_node_is_passed_by_one_millisecond(
    at: int, node: int, sequence: int, data: st.DataObject
) -> None:
    """Above a stored id of a higher node, ours takes the next millisecond with our node."""
    other = snowflake(at, data.draw(st.integers(node + 1, 1023)), sequence)
    assert next_snowflake(other, at, node) == snowflake(at + 1, node, 0)


@given(millis, st.integers(1, 1023), sequences, st.data())
def test_an_id_of_a_lower_node_is_passed_in_the_same_millisecond(
    at: int, node: int, sequence: int, data: st.DataObject
) -> None:
    """Above a stored id of a lower node, ours is already higher by its node bits."""
    other = snowflake(at, data.draw(st.integers(0, node - 1)), sequence)
    assert next_snowflake(other, at, node) == snowflake(at, node, 0)


@given(
    st.one_of(st.just(0), st.integers(1, 2**63 - 1 - 2**22)),
    st.integers(-(2**41), LAST_MILLISECOND),
    nodes,
)
def test_the_next_id_is_the_lowest_of_its_node_that_rises(last: int, at: int, node: int) -> None:
    """It is above the last id, of the asked node, not too old, and no lower one would do."""
    found = next_snowflake(last, at, node)
    assert found > last
    assert node_of(found) == node
    assert found >> 22 >= at
    # The id of the same node right before: in this millisecond, or the end of the one before.
    lower = found - 1 if found & 4095 else found - 2**22 + 4095
    assert lower <= last or lower >> 22 < at


def test_a_moment_before_the_epoch_still_gives_rising_ids() -> None:
    """A negative time counts as the epoch, so that ancient messages can be imported."""
    first = next_snowflake(0, -5, 7)
    assert first == snowflake(0, 7, 0)
    assert next_snowflake(first, -9, 7) == first + 1


@pytest.mark.parametrize(
    ("last", "at", "node"),
    [
        pytest.param(0, 2**41, 0, id="the clock is past the last millisecond"),
        pytest.param(2**63 - 1, 0, 1023, id="the last id of all is used"),
        pytest.param(2**63 - 1, 0, 3, id="the last id of a higher node is used"),
    ],
)
def test_a_time_beyond_41_bits_is_refused(last: int, at: int, node: int) -> None:
    """Past the end of time an id would turn negative in a column, so it is an error."""
    with pytest.raises(UsageError, match=r"2010-01-01 does not fit a snowflake \(41 bits\)"):
        next_snowflake(last, at, node)


def test_the_last_millisecond_is_usable() -> None:
    """The error starts after the last millisecond, not at it."""
    assert next_snowflake(0, LAST_MILLISECOND, 1023) == snowflake(LAST_MILLISECOND, 1023, 0)
    assert next_snowflake(MAX_ID - 1, 0, 1023) == MAX_ID


@given(snowflakes)
def test_text_is_19_digits_and_reads_back(value: int) -> None:
    """Every id has one text of fixed width, and that text gives the id again."""
    text = to_text(value)
    assert len(text) == 19
    assert parse(text) == value


@given(snowflakes, snowflakes)
def test_text_sorts_like_the_number(one: int, other: int) -> None:
    """A text column and a JSON client order ids as the database does."""
    assert (to_text(one) < to_text(other)) == (one < other)


def test_an_id_of_13_digits_keeps_its_value_as_text() -> None:
    """A small id is padded, so it is never mistaken for a time in milliseconds."""
    assert to_text(1_712_345_678_901) == "0000001712345678901"
    assert parse("0000001712345678901") == 1_712_345_678_901


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("1712345678901", id="13 digits, a time"),
        pytest.param("1" * 18, id="one digit short"),
        pytest.param("1" * 20, id="one digit long"),
        pytest.param("+" + "1" * 18, id="plus sign"),
        pytest.param("-" + "1" * 18, id="minus sign"),
        pytest.param(" " + "1" * 18, id="leading space"),
        pytest.param("1" * 18 + " ", id="trailing space"),
        pytest.param("1" * 18 + "\n", id="trailing newline"),
        pytest.param("1" * 19 + "\n", id="newline after 19 digits"),
        pytest.param("1_" + "1" * 17, id="underscore"),
        pytest.param("0x" + "1" * 17, id="hexadecimal"),
        pytest.param("\u0661" * 19, id="Arabic digits"),
        pytest.param("\uff11" * 19, id="fullwidth digits"),
        pytest.param("\u00b2" * 19, id="superscripts"),
        pytest.param("9223372036854775808", id="2 to the 63rd"),
        pytest.param("9" * 19, id="largest 19 digits"),
        pytest.param("0" * 19, id="zero"),
        pytest.param("", id="empty"),
        pytest.param(2_099_222_308_970_319_872, id="an int"),
        pytest.param(b"2099222308970319872", id="bytes"),
        pytest.param(None, id="nothing"),
    ],
)
def test_anything_but_exactly_19_plain_digits_is_no_id(text: object) -> None:
    """What `to_text` cannot have written is refused instead of guessed at."""
    with pytest.raises(UsageError):
        parse(text)


def test_a_refused_text_is_named() -> None:
    """The error shows the text and what was expected, so that the caller can find it."""
    with pytest.raises(UsageError, match="'12345' is not an id: expected exactly 19 digits"):
        parse("12345")


@given(
    st.datetimes(datetime(2010, 1, 1), datetime(2079, 9, 1), timezones=st.just(UTC)),  # noqa: DTZ001  # hypothesis takes naive bounds
    nodes,
)
def test_time_and_node_read_back_from_an_id(moment: datetime, node: int) -> None:
    """An id tells its millisecond and its node."""
    made = next_snowflake(0, millis_of(moment), node)
    assert timedelta(0) <= moment - time_of(made) < timedelta(milliseconds=1)
    assert node_of(made) == node


def test_the_time_of_an_id_is_aware_utc() -> None:
    """The moment in an id needs no guess about its zone."""
    assert time_of(snowflake(0, 0, 1)) == EPOCH == datetime(2010, 1, 1, tzinfo=UTC)
    assert time_of(snowflake(1500, 0, 0)).tzinfo is UTC


def test_milliseconds_do_not_depend_on_the_zone() -> None:
    """The same instant in two zones is the same number."""
    tokyo = timezone(timedelta(hours=9))
    assert millis_of(datetime(2010, 1, 1, 9, 0, 1, tzinfo=tokyo)) == 1000


def test_milliseconds_round_down() -> None:
    """A part of a millisecond never makes an id younger than its moment, before the epoch too."""
    assert millis_of(EPOCH + timedelta(microseconds=1999)) == 1
    assert millis_of(EPOCH - timedelta(microseconds=1)) == -1


def test_a_naive_moment_is_refused() -> None:
    """A moment without a zone is an error, since guessing one moves messages by hours."""
    with pytest.raises(UsageError, match="has no time zone; pass an aware datetime"):
        millis_of(datetime(2025, 1, 1))  # noqa: DTZ001  # the naive value is the point


@pytest.mark.parametrize("value", [1, 2**53 + 1, 2**63 - 1])
def test_an_int_of_63_bits_can_be_a_snowflake(value: int) -> None:
    """Both ends of the range pass and come back as they are."""
    assert check_snowflake(value) == value


@pytest.mark.parametrize("value", NOT_A_SNOWFLAKE)
def test_what_cannot_be_a_snowflake_is_refused_by_name(value: object) -> None:
    """The error says what the value was meant to be, what it is and what was expected."""
    with pytest.raises(UsageError) as refused:
        check_snowflake(value, "parent batch")
    assert f"The parent batch {value!r} is not a snowflake" in str(refused.value)
    assert "1..9223372036854775807" in str(refused.value)


@pytest.mark.parametrize("read", [time_of, node_of, to_text])
@pytest.mark.parametrize("value", NOT_A_SNOWFLAKE)
def test_nothing_is_read_from_what_is_no_snowflake(read: object, value: object) -> None:
    """Time, node and text of a wrong value are an error, not a plausible answer."""
    assert callable(read)
    with pytest.raises(UsageError):
        read(value)


@pytest.mark.parametrize("node", [0, 1, 1023])
def test_a_node_of_10_bits_passes(node: int) -> None:
    """Both ends of the node range are usable."""
    assert check_node(node) == node


@pytest.mark.parametrize("node", [-1, 1024, True, "1", 1.0, None])
def test_a_node_outside_10_bits_is_refused(node: object) -> None:
    """A larger node would change the time in an id, so it is an error."""
    with pytest.raises(UsageError, match=r"expected an int in 0\.\.1023"):
        check_node(node)
