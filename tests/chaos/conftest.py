"""What a storm needs: how long and from which seed, and a nursery for its workers."""

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.chaos.nursery import Nursery
from tests.chaos.storm import FIGURES
from tests.providers.recorder import Recorder
from tests.providers.test_invisibility import PROVIDERS, Client


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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell what happened in each storm, also where all went well."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, told in getattr(report, "user_properties", ()):
                if name == FIGURES and report.when == "call":
                    terminalreporter.line(f"{report.nodeid}: {told}")


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.fixture(scope="session")
def clients() -> Iterator[dict[str, Client]]:
    """A real client of each provider, wired to a recorder on this machine."""
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        # Nothing but the recorder may be reached: no proxy on the way, no tracing beside it.
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("LANGSMITH_TRACING", "false")
        for name in ("LANGCHAIN_TRACING_V2", "GOOGLE_API_KEY", "GEMINI_API_KEY", "OPENAI_ORG_ID"):
            patch.delenv(name, raising=False)
        recorder = stack.enter_context(Recorder())
        yield {
            name: Client(
                stack.enter_context(provider.connect(recorder.url)), recorder, provider.problems
            )
            for name, provider in PROVIDERS.items()
        }
