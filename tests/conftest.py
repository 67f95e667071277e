"""Settings that every test shares."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

import pytest
from hypothesis import HealthCheck, settings

# Examples are the same on every run of the same tree, so a red tree stays red until it is mended.
# A new module may change them, since hypothesis also draws constants that it finds in the code.
settings.register_profile(
    "default",
    derandomize=True,
    deadline=None,
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow],
)
# For a long search by hand: HYPOTHESIS_PROFILE=thorough
settings.register_profile("thorough", deadline=None, max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# Far above what any test takes, so that only one that hangs is ended by it.
_TEST_SECONDS = float(os.environ.get("SEGUE_TEST_SECONDS", "240"))


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    """A test that hangs fails, and says what its tasks were waiting for."""
    before = signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, _TEST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _give_up(_number: int, _frame: FrameType | None) -> None:
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:  # no loop runs
        tasks = set()
    for task in tasks:
        task.print_stack(file=sys.stderr)
    pytest.fail(f"This test took more than {_TEST_SECONDS:.0f} s.")
