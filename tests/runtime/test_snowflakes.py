"""The generator: ids that rise whatever the clock and the threads do."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue import ConflictError, SnowflakeGenerator, UsageError
from segue.core.snowflake import MAX_ID, node_of, time_of

NOON = 1_762_776_000_000
HOUR = 3_600_000
MILLIS_FROM_1970_TO_2010 = 1_262_304_000_000


class SettableClock:
    """Unix milliseconds that move only when a test moves them."""

    def __init__(self, now: int = NOON) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def eager_switching() -> Iterator[None]:
    """Threads that take turns as often as the interpreter can, so that races show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def is_rising(ids: list[int]) -> bool:
    return all(a < b for a, b in pairwise(ids))


@pytest.mark.usefixtures("eager_switching")
def test_eight_threads_never_get_the_same_id() -> None:
    """Ids asked for by many threads at once are all different and rise in each thread."""
    generator = SnowflakeGenerator(node=9, clock=SettableClock())
    start = threading.Barrier(8)

    def ask(_: int) -> list[int]:
        start.wait()
        return [generator.next() for _ in range(5_000)]

    with ThreadPoolExecutor(8) as pool:
        lists = list(pool.map(ask, range(8)))
    assert all(is_rising(ids) for ids in lists)
    assert len({i for ids in lists for i in ids}) == 8 * 5_000


@pytest.mark.parametrize("step", [5_000, HOUR], ids=["five seconds", "an hour"])
def test_a_clock_that_steps_back_repeats_nothing(step: int) -> None:
    """After the clock is set back ids go on rising, and the node stays."""
    clock = SettableClock()
    generator = SnowflakeGenerator(node=2, clock=clock)
    before = [generator.next() for _ in range(100)]
    clock.now -= step
    after = [generator.next() for _ in range(5_000)]
    assert is_rising(before + after)
    assert {node_of(i) for i in after} == {2}


def test_ids_follow_the_clock_again_once_it_has_caught_up() -> None:
    """Time borrowed while the clock stood back is not borrowed for ever."""
    clock = SettableClock()
    generator = SnowflakeGenerator(clock=clock)
    first = generator.next()
    clock.now -= HOUR
    generator.next()
    clock.now += 2 * HOUR
    assert time_of(generator.next()) - time_of(first) == timedelta(hours=1)


def test_a_frozen_clock_borrows_milliseconds_and_keeps_the_node() -> None:
    """Ten thousand ids at one instant fill 4,096 per millisecond and never touch the node bits."""
    generator = SnowflakeGenerator(node=1023, clock=SettableClock())
    ids = [generator.next() for _ in range(10_000)]
    assert is_rising(ids)
    assert {node_of(i) for i in ids} == {1023}
    assert time_of(ids[4_095]) == time_of(ids[0])
    assert time_of(ids[4_096]) - time_of(ids[0]) == timedelta(milliseconds=1)
    assert time_of(ids[-1]) - time_of(ids[0]) == timedelta(milliseconds=2)


def test_a_restart_with_the_clock_set_back_goes_on_above_the_stored_maximum() -> None:
    """Seeded with the last stored id, a new generator repeats none of the old ones."""
    stored = SnowflakeGenerator(node=4, clock=SettableClock()).next()
    restarted = SnowflakeGenerator(node=4, last=stored, clock=SettableClock(NOON - HOUR))
    assert restarted.next() == stored + 1


@pytest.mark.parametrize("other", [0, 1023])
def test_a_maximum_stored_by_another_node_is_passed_with_the_own_node(other: int) -> None:
    """The seed may be any process's id; what follows is above it and carries this node."""
    stored = SnowflakeGenerator(node=other, clock=SettableClock(NOON + 60_000)).next()
    made = SnowflakeGenerator(node=5, last=stored, clock=SettableClock()).next()
    assert made > stored
    assert node_of(made) == 5


@pytest.mark.parametrize("other", [0, 1023])
def test_an_id_after_a_faster_process_is_above_its_id_and_keeps_the_own_node(other: int) -> None:
    """A thread whose newest id lies in our future still gets a higher one of our node."""
    theirs = SnowflakeGenerator(node=other, clock=SettableClock(NOON + 60_000)).next()
    generator = SnowflakeGenerator(node=5, clock=SettableClock())
    ours = generator.next(after=theirs)
    assert ours > theirs
    assert node_of(ours) == 5
    assert generator.next() > ours


def test_an_older_lower_bound_changes_nothing() -> None:
    """A bound below what was already given out does not bring an id back."""
    generator = SnowflakeGenerator(clock=SettableClock())
    first = generator.next()
    second = generator.next()
    assert generator.next(after=first) == second + 1


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(-3, 3)), min_size=2, max_size=60),
    st.integers(0, 1022),
)
def test_two_nodes_never_give_the_same_id(steps: list[tuple[bool, bool, int]], lower: int) -> None:
    """Two processes that see each other's ids, with one unsteady clock, never collide."""
    clock = SettableClock()
    pair = [SnowflakeGenerator(lower, clock=clock), SnowflakeGenerator(lower + 1, clock=clock)]
    given_out: list[int] = []
    for second, sees_all, drift in steps:
        clock.now += drift
        after = max(given_out, default=0) if sees_all else 0
        given_out.append(pair[second].next(after=after))
        assert given_out[-1] > after
        assert node_of(given_out[-1]) == lower + second
    assert len(set(given_out)) == len(given_out)


@pytest.mark.parametrize("node", [-1, 1024, True, "1", None])
def test_a_bad_node_is_refused_at_once(node: object) -> None:
    """A generator that could not keep its ids apart is never made."""
    make: Callable[..., SnowflakeGenerator] = SnowflakeGenerator
    with pytest.raises(UsageError, match=r"The node .* is out of range"):
        make(node=node)


@pytest.mark.parametrize("last", [-1, 2**63, True, "7", 1.5])
def test_a_bad_last_id_is_refused_at_once(last: object) -> None:
    """A seed that is no id is an error, since ignoring it could repeat stored ids."""
    make: Callable[..., SnowflakeGenerator] = SnowflakeGenerator
    with pytest.raises(UsageError, match=r"The last id .* is not a snowflake"):
        make(last=last)


@pytest.mark.parametrize("after", [-1, 2**63, True, "7"])
def test_a_bad_lower_bound_is_refused_and_uses_up_nothing(after: object) -> None:
    """A wrong bound is an error, and the next id is the one that was due."""
    generator = SnowflakeGenerator(clock=SettableClock())
    first = generator.next()
    ask: Callable[..., int] = generator.next
    with pytest.raises(UsageError, match=r"The lower bound .* is not a snowflake"):
        ask(after=after)
    assert generator.next() == first + 1


def test_the_end_of_time_is_an_error_and_not_a_wrong_id() -> None:
    """With no id left above the bound the generator says so, and works on for other threads."""
    generator = SnowflakeGenerator(clock=SettableClock())
    first = generator.next()
    with pytest.raises(UsageError, match="does not fit a snowflake"):
        generator.next(after=MAX_ID)
    assert generator.next() == first + 1


def test_a_generator_tells_its_node() -> None:
    """Code that makes ids for old messages asks the generator for its node."""
    assert SnowflakeGenerator(node=77).node == 77


def test_the_default_clock_is_the_wall_clock() -> None:
    """An id made without a clock of one's own carries the present time."""
    before = time.time_ns() // 1_000_000  # noqa: TID251  # what the default is compared with
    made = (SnowflakeGenerator().next() >> 22) + MILLIS_FROM_1970_TO_2010
    assert before <= made <= time.time_ns() // 1_000_000  # noqa: TID251  # as above


def test_a_forked_process_cannot_repeat_its_parents_ids() -> None:
    """A generator that was copied by a fork refuses to work instead of handing out doubles."""
    generator = SnowflakeGenerator(node=1)
    generator.next()
    child = os.fork()
    if child == 0:  # the child: report by exit code, and never return into pytest
        try:
            generator.next()
        except ConflictError:
            os._exit(7)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert generator.next() > 0
