"""What a storm needs: how long and from which seed, and a nursery for its workers."""

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.chaos.nursery import Nursery
from tests.chaos.storm import FIGURES
from tests.providers.clients import PROVIDERS, Client
from tests.providers.recorder import Recorder


@pytest.fixture(scope="session")
def seconds() -> float:
    """How long it storms. Long enough for a handful of kills, unless told otherwise."""
    return float(os.environ.get("SEGUE_CHAOS_SECONDS", "8"))


@pytest.fixture
def seed() -> int:
    """Named on failure. It repeats what users do and when workers die, not how they are timed."""
    return int(os.environ.get("SEGUE_CHAOS_SEED") or secrets.randbelow(10**6))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell what happened in each storm, also where all went well."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, told in getattr(report, "user_properties", ()):
                if name == FIGURES and report.when == "call":
                    terminalreporter.line(f"{report.nodeid}: {told}")


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PGOPTIONS", raising=False)  # its workers wait for locks as in earnest
        with Nursery() as nursery:
            yield nursery


@pytest.fixture(scope="module")
def clients(recorder: Recorder) -> Iterator[dict[str, Client]]:
    """A real client of each provider, wired to a recorder on this machine."""
    with ExitStack() as stack:
        yield {
            name: Client(
                stack.enter_context(provider.connect(recorder.url)), recorder, provider.problems
            )
            for name, provider in PROVIDERS.items()
        }
