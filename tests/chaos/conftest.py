"""What a storm needs: how long and from which seed, and a nursery for its workers."""

import os
import secrets
from collections.abc import Iterator

import pytest

from tests.chaos.nursery import Nursery


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def seconds() -> float:
    """How long it storms. Long enough for a handful of kills, unless told otherwise."""
    return float(os.environ.get("SEGUE_CHAOS_SECONDS", "8"))


@pytest.fixture
def seed() -> int:
    """Named on failure. It repeats what users do and when workers die, not how they are timed."""
    return int(os.environ.get("SEGUE_CHAOS_SEED") or secrets.randbelow(10**6))


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery
