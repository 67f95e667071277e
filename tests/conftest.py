"""What tests share: their time limit, new databases of both kinds, and a whole Segue on them."""

# ruff: noqa: PLC0415 - to import a whole Segue takes seconds, and tests of the core need none

import asyncio
import gc
import logging
import os
import shutil
import signal
import ssl
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from segue.simulate.world import Stage
    from segue.testing.postgres import PostgresServer
    from tests.agent.meanings import Meanings
    from tests.providers.recorder import Recorder
    from tests.runtime.receiver import Receiver

# Examples are the same on every run of the same tree, so a red tree stays red until it is mended.
# A new module may change them, since hypothesis also draws constants that it finds in the code.
settings.register_profile(
    "default",
    derandomize=True,
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
# For a long search by hand: HYPOTHESIS_PROFILE=thorough
settings.register_profile("thorough", deadline=None, max_examples=10_000)
# In the fast lane; the long lane runs the same tests with all examples.
settings.register_profile("quick", settings.get_profile("default"), max_examples=25)

# Far above what any test takes, so that only one that hangs is ended by it.
_TEST_SECONDS = float(os.environ.get("SEGUE_TEST_SECONDS", "400"))

# Processes share the tests file by file. Those that take longest go first, so that none is left
# with one of them while the others have nothing more to do.
_LONGEST = (
    "chaos/test_chaos.py",
    "web/test_pictures.py",
    "web/test_simulator.py",
    "clients/test_copilotkit.py",
    "clients/test_pages.py",
    "journal/test_contract_postgres.py",
    "web/test_chat.py",
    "web/test_views.py",
    "web/test_servers.py",
    "journal/test_contract_sqlite.py",
    "server/test_openapi.py",
    "server/test_canary.py",
    "clients/test_sdk.py",
    "test_wheel.py",
    "server/test_isolation.py",
    "stories/test_airline_transcripts.py",
    "stories/test_replay.py",
    "stories/test_compression.py",
    "runtime/test_gates_are_reached.py",
    "providers/test_invisibility.py",
    "stories/test_reminders.py",
    "stories/test_leak_canary.py",
    "stories/test_nights_of_all_zones.py",
    "runtime/test_turns.py",
    "cli/test_serve.py",
    "cli/test_chat.py",
    "test_long_texts.py",
    "journal/test_races.py",
    "journal/test_kills.py",
    "server/test_fuzz.py",
    "runtime/test_bus.py",
    "stories/test_delivery.py",
    "testing/test_simulation.py",
    "test_source_rules.py",
    "server/test_frames.py",
)
# On PostgreSQL these run whole in the fast lane: they are about what databases do differently. Of
# every other file with stories or store tests and of every other folder, the fast lane has one test
# on PostgreSQL, and the long lane the rest.
_BOTH_DATABASES = (
    "chaos",
    "journal/test_contract",
    "journal/test_kills.py",
    "journal/test_postgres",
    "journal/test_races.py",
    "journal/test_search.py",
    "journal/test_watching.py",
    "runtime/test_bus.py",
    "stories/test_hiccups.py",
    "stories/test_outages.py",
    "transfer/test_kills.py",
)
# These take longest: storms, browsers, other programs, and what is searched exhaustively or on
# PostgreSQL, too. The fast lane has smaller tests of the same things. Beginnings of test ids.
_LONG = (
    "agent/test_retrieval_eval.py::test_memories_are_found_with_and_without_a_trigger",
    "chaos/test_chaos.py",
    "cli/test_chat.py::test_a_terminal_shows_words_above_the_line_that_is_typed",
    "cli/test_chat.py::test_lines_of_a_pipe_are_answered_one_after_the_other",
    "cli/test_serve.py::test_a_conversation_outlives_its_server",
    "cli/test_serve.py::test_a_server_ends_if_the_process_that_reloads_it_was_killed",
    "cli/test_serve.py::test_changed_code_is_taken_up_without_losing_anything",
    "clients/test_ag",
    "clients/test_copilotkit.py",
    "clients/test_packages.py::test_the_pages_of_the_examples_are_typed",
    "clients/test_pages.py",
    "core/autonomy/test_decide.py::test_the_rules_fit_dialogues_they_were_not_made_from",
    "core/autonomy/test_local_time.py::test_a_day_began_with_the_first_moment_that_shows_it_in_any_zone",
    "core/autonomy/test_local_time.py::test_nothing_is_open_in_quiet_hours_in_any_zone",
    "core/autonomy/test_local_time.py::test_the_next_day_begins_with_its_first_minute_in_any_zone",
    "journal/test_postgres_server.py",
    "journal/test_power_cut.py",
    "migrate/test_checkpoints.py::test_a_killed_run_repeated_gives_the_same_as_an_unbroken_one",
    "runtime/test_compressor.py::test_what_is_foreseen_is_what_happens",
    "server/langgraph/test_canary.py",
    "server/test_fuzz.py",
    "server/test_isolation.py::test_anothers_things_are_as_if_they_were_not[postgres]",
    "server/test_openapi.py::test_the_api_keeps_to_its_documentation",
    "server/test_simulations.py::test_a_policy_that_changes_nothing_makes_no_difference",
    "server/test_simulations.py::test_a_policy_without_end_is_stopped",
    "server/test_simulations.py::test_every_scenario_has_something_to_show",
    "server/test_simulations.py::test_a_scenario_under_two_policies",
    "server/test_timeouts.py::test_half_a_request_is_not_waited_for",
    "stories/test_airline_transcripts.py::test_a_chat_cut_between_call_and_result_leaves_that_batch_out",
    "stories/test_airline_transcripts.py::test_a_lost_result_leaves_out_its_batch_and_no_other",
    "stories/test_airline_transcripts.py::test_a_result_delivered_again_changes_nothing",
    "stories/test_airline_transcripts.py::test_settling_any_prefix_keeps_all_words_and_results",
    "stories/test_compression.py::test_a_long_talk_is_summed_up_and_goes_on[postgres]",
    "stories/test_delivery.py::test_follow_ups_come_as_often_and_as_punctually_as_the_baseline",
    "stories/test_killed_graphs.py",
    "stories/test_leak_canary.py::test_no_canary_is_ever_seen[postgres]",
    "stories/test_limits_over_time.py::test_an_agent_that_never_has_enough_keeps_to_the_caps_for_a_year",
    "stories/test_nights_of_all_zones.py::test_in_no_zone_and_on_no_day_of_a_year_is_anybody_woken",
    "stories/test_state_after_any_end.py::test_the_state_is_that_of_the_last_turn_that_ended_well[postgres]",
    "stories/test_tries.py::test_a_reply_outlives_a_day_of_deployments",
    "test_docs.py::test_the_example_with_a_scheduler_of_its_own_runs",
    "test_long_texts.py::test_a_nasty_text_is_read_in_no_time[the scripted model]",
    "test_wheel.py::test_a_chat_without_settings_needs_no_weights",
    "test_wheel.py::test_the_wheel_serves_at_once_without_the_weights",
    "web/test_files.py::test_the_declarations_of_the_client_are_those_that_tsc_writes",
    "web/test_files.py::test_the_types_of_the_page_are_right",
    "web/test_inspector.py",
    "web/test_notifications.py",
    "web/test_pictures.py",
    "web/test_servers.py",
    "web/test_simulator.py",
    "web/test_views.py",
)
# Of these the fast lane has the first test.
_FIRST = ("agent/test_mcp.py", "web/test_chat.py")
_HERE = Path(__file__).parent
_MEMORY = Path("/dev/shm")  # noqa: S108 - only pytest writes there, into a folder of its own
_PLENTY = 4 * 2**30  # bytes: far more than all tests need


def pytest_configure(config: pytest.Config) -> None:
    """Choose the number of examples, keep files in memory unless TMPDIR asks for a place, and
    let all processes be patient with locks in PostgreSQL.
    """
    usual = "quick" if "not long" in config.option.markexpr else "default"
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", usual))
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # it would sort by how many tests a file has
    is_roomy = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _PLENTY
    if is_roomy and "TMPDIR" not in os.environ:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
    # On a busy machine, eight writers in a row take longer than the journal's own limit.
    os.environ.setdefault("PGOPTIONS", "-c lock_timeout=60s")
    gc.disable()  # until all is imported, which leaves no garbage


def pytest_collection_finish() -> None:
    """What is there now stays; a collection need not look at it."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {_HERE / name: rank for rank, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))
    seen: set[Path] = set()
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.fuzz)
        if _is_long(item, seen):
            item.add_marker(pytest.mark.long)


def _is_long(item: pytest.Item, seen: set[Path]) -> bool:
    """Whether a test is in the long lane; `seen` are files and folders that have one in the fast
    lane.
    """
    path = item.path.relative_to(_HERE)
    if item.nodeid.removeprefix("tests/").startswith(_LONG):
        return True
    if str(path) in _FIRST:
        group = path
    elif _is_on_postgres(item) and not _is_on_both(path):
        group = path if path.parent.name in {"stories", "journal"} else path.parent
    else:
        return False
    is_second = group in seen
    seen.add(group)
    return is_second


def _is_on_postgres(item: pytest.Item) -> bool:
    """Whether a test is the PostgreSQL twin of one that runs on SQLite, too."""
    callspec = getattr(item, "callspec", None)
    return callspec is not None and "postgres" in callspec.params.values()


def _is_on_both(path: Path) -> bool:
    return any(str(path).startswith(name) for name in _BOTH_DATABASES)


@pytest.fixture
def unguarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Follow-ups are shown from the first word on; the guard's wait has tests of its own."""
    monkeypatch.setattr("segue.runtime.processor.can_be_judged", bool)


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    """A test that hangs fails, and says what its tasks were waiting for."""
    failure = f"This test took more than {_TEST_SECONDS:.0f} s."
    ran_out = False

    def give_up(_number: int, _frame: FrameType | None) -> None:
        nonlocal ran_out
        ran_out = True
        _print_tasks()
        pytest.fail(failure)

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, _TEST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if ran_out:  # a task that caught the failure may have hidden it
        pytest.fail(failure)


def _print_tasks() -> None:
    with suppress(RuntimeError):  # no loop runs
        for task in asyncio.all_tasks():
            task.print_stack(file=sys.stderr)


@pytest.fixture(scope="session", autouse=True)
def _read_once() -> Iterator[None]:
    """What takes as long as a small test: the certificates, by each client, and the types in the
    state of a graph, by each agent.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", cache(ssl.create_default_context))
        if types := sys.modules.get("langgraph._internal._serde"):
            hints = types._safe_get_type_hints
            patch.setattr(types, "_safe_get_type_hints", cache(hints))
        yield


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


# Databases. Tables are made once and copied, which is several times as fast; that they can be made
# is what the stores' own tests show.


@pytest.fixture(scope="session")
def server() -> "Iterator[PostgresServer]":
    from segue.testing.postgres import PostgresServer

    with PostgresServer.start() as server:
        yield server


@pytest.fixture(scope="session")
def empty_tables(server: "PostgresServer") -> str:
    """A database with all tables and nothing in them, to be copied."""
    made = server.create_database()
    asyncio.run(_make_tables(made))
    return made


@pytest.fixture(scope="session")
def empty_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database's files and nothing in them, to be copied."""
    folder = tmp_path_factory.mktemp("empty")
    asyncio.run(_make_tables(str(folder)))
    return folder


async def _make_tables(database: str) -> None:
    from segue.settings import Settings
    from segue.simulate.world import plain_agent
    from segue.stores import checkpoints_of, journal_of

    chosen = Settings(database=database, agents=(plain_agent(),))
    for store in (journal_of(chosen), checkpoints_of(chosen)):
        await store.open()
        await store.close()


@pytest.fixture
def folder(empty_files: Path, tmp_path: Path) -> str:
    """Where a new database of files is, with nothing in it."""
    return str(shutil.copytree(empty_files, tmp_path / "data"))


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    """Where a new database is, with nothing in it."""
    if request.param == "sqlite":
        return str(request.getfixturevalue("folder"))
    server: PostgresServer = request.getfixturevalue("server")
    return server.create_database(like=request.getfixturevalue("empty_tables"))


@pytest.fixture
def stage(database: str) -> "Stage":
    """A new database on a virtual clock, at eight in the morning of a Friday in January."""
    from segue.simulate.world import Stage

    return Stage(database)


@pytest.fixture
def sqlite_stage(folder: str) -> "Stage":
    """The same on SQLite alone, for what no database has a part in."""
    from segue.simulate.world import Stage

    return Stage(folder)


# What is the whole process's, or outside of it.


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> "Iterator[Receiver]":
    """A receiver of webhooks on this machine."""
    from tests.runtime.receiver import Receiver

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Receiver() as running:
        yield running


@pytest.fixture(scope="module")
def recorder() -> "Iterator[Recorder]":
    """A recorder of what clients of model providers send."""
    from tests.providers.recorder import Recorder

    with pytest.MonkeyPatch.context() as patch, Recorder() as recorder:
        # Nothing but the recorder may be reached: no proxy on the way, no tracing beside it.
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("LANGSMITH_TRACING", "false")
        for name in ("LANGCHAIN_TRACING_V2", "GOOGLE_API_KEY", "GEMINI_API_KEY", "OPENAI_ORG_ID"):
            patch.delenv(name, raising=False)
        yield recorder


@pytest.fixture
def foreseen_meanings(monkeypatch: pytest.MonkeyPatch) -> "Meanings":
    """Memories are found without the weights of a real embedder, and it keeps its input."""
    from tests.agent.meanings import Meanings

    meanings = Meanings()
    monkeypatch.setattr("segue.compose.load_embedder", lambda _: meanings)
    return meanings


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Logging is the whole process's; each test leaves it as it was."""
    import structlog

    from segue.telemetry import _THIRD_PARTY

    levels = {name: logging.getLogger(name).level for name in (None, *_THIRD_PARTY)}
    handlers = list(logging.root.handlers)
    yield
    logging.root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
