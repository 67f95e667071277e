"""Logging: lines of `logging` and of structlog look alike, say whose they are, and hide keys."""

import asyncio
import json
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
import structlog
from structlog.contextvars import bound_contextvars

from segue.errors import UsageError
from segue.telemetry import configure_logging, log_event

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret"
HTTP_CLIENTS = ["httpx", "httpx2", "httpcore", "httpcore.http11"]
DRIVERS = ["aiosqlite", "asyncio", "psycopg", "psycopg.pool", "openai._base_client"]
Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Lines:
    return lambda: [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_both_kinds_of_lines_are_alike(lines: Lines) -> None:
    """Whoever reads the log needs not know which library wrote a line."""
    configure_logging(json=True)
    with bound_contextvars(thread_id="t1", agent_id="a1", trigger_type="check_in"):
        logging.getLogger("segue.journal").info("Turn %s was given up.", 91)
        structlog.get_logger("segue.runtime").info("turn_given_up", turn=91)
    plain, event = lines()
    known = {"level": "info", "thread_id": "t1", "agent_id": "a1", "trigger_type": "check_in"}
    assert known.items() <= plain.items()
    assert known.items() <= event.items()
    assert (plain["logger"], plain["event"]) == ("segue.journal", "Turn 91 was given up.")
    assert (event["logger"], event["event"], event["turn"]) == (
        "segue.runtime",
        "turn_given_up",
        91,
    )
    for line in (plain, event):
        assert datetime.fromisoformat(line["time"]).utcoffset() is not None
    assert plain.keys() | {"turn"} == event.keys()


async def test_each_task_logs_as_its_own_thread(lines: Lines) -> None:
    """Turns that run at the same time do not take each other's ids."""
    configure_logging(json=True)
    both = asyncio.Barrier(2)

    async def turn(thread_id: str) -> None:
        with bound_contextvars(thread_id=thread_id):
            await both.wait()
            logging.getLogger("segue").info(thread_id)

    await asyncio.gather(turn("t1"), turn("t2"))
    logging.getLogger("segue").info("none")
    assert sorted((line["event"], line.get("thread_id")) for line in lines()) == [
        ("none", None),
        ("t1", "t1"),
        ("t2", "t2"),
    ]


def test_configuring_again_replaces(capsys: pytest.CaptureFixture[str]) -> None:
    """A line appears once, however often logging is set up, and the last settings count."""
    before = len(logging.getLogger().handlers)
    configure_logging(json=True)
    configure_logging("DEBUG", json=True)
    configure_logging("WARNING")
    assert len(logging.getLogger().handlers) == before + 1
    for logger in (logging.getLogger("segue"), structlog.get_logger("segue")):
        logger.info("too quiet")
        logger.warning("loud enough")
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("loud enough") == 2
    assert "too quiet" not in said.err
    assert "{" not in said.err


def test_lines_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """Without colours where nobody looks, with time, level, logger and ids."""
    configure_logging()
    with bound_contextvars(thread_id="t1"):
        logging.getLogger("segue.journal").warning("Slow: %.1f s", 2.25)
        structlog.get_logger("segue.runtime").warning("slow", seconds=2.25)
    for line, logger in zip(
        capsys.readouterr().err.splitlines(), ("segue.journal", "segue.runtime"), strict=True
    ):
        assert "\x1b" not in line
        assert "warning" in line
        assert "thread_id=t1" in line
        assert logger in line
        assert datetime.fromisoformat(line.split()[0]).utcoffset() is not None


@pytest.mark.parametrize("as_json", [True, False])
def test_a_traceback_shows_no_variables(
    capsys: pytest.CaptureFixture[str], *, as_json: bool
) -> None:
    """Where something failed is told, but not the keys that were at hand there."""
    configure_logging(json=as_json)

    def connect(api_key: str) -> None:
        raise ConnectionError(f"no route for a key of {len(api_key)} letters")

    for logger in (logging.getLogger("segue"), structlog.get_logger("segue")):
        try:
            connect(KEY)
        except ConnectionError:
            logger.exception("It failed.")
    said = capsys.readouterr().err
    assert said.count("ConnectionError: no route") == 2
    assert said.count("in connect") == 2
    assert KEY not in said
    assert not as_json or len(said.splitlines()) == 2


@pytest.mark.parametrize("name", [*HTTP_CLIENTS, *DRIVERS])
def test_clients_and_drivers_do_not_tell_all(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """URLs and headers, where keys travel, and statements, in which all else would drown, are in
    no log, not even in detail.
    """
    configure_logging("DEBUG", json=True)
    logging.getLogger(name).info("HTTP Request: POST https://example.org/?key=%s", KEY)
    assert capsys.readouterr().err == ""
    logging.getLogger(name).warning("A connection was lost.")
    assert "A connection was lost." in capsys.readouterr().err
    configure_logging("ERROR", json=True)
    logging.getLogger(name).warning("A connection was lost.")
    assert capsys.readouterr().err == ""


def test_a_program_keeps_its_own_handlers() -> None:
    """Segue adds a handler and takes away none but its own."""
    own = logging.NullHandler()
    logging.getLogger().addHandler(own)
    configure_logging()
    configure_logging()
    assert own in logging.getLogger().handlers


@pytest.mark.parametrize("level", ["debug", "DEBUG"])
def test_a_level_is_a_word(level: str, lines: Lines) -> None:
    """In capitals or not."""
    configure_logging(level, json=True)
    logging.getLogger("segue").debug("details")
    assert [line["level"] for line in lines()] == ["debug"]


@pytest.mark.parametrize("level", ["", "LOUD", "10"])
def test_an_unknown_level_is_refused(level: str) -> None:
    """A slip in a config is told with the words that would do, and changes nothing."""
    before = list(logging.getLogger().handlers)
    with pytest.raises(UsageError, match=r"Unknown log level .* INFO"):
        configure_logging(level)
    assert logging.getLogger().handlers == before


def test_a_noted_event_brings_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    """A sentence for people, and its kind and fields for programs, on one line."""
    configure_logging(json=True)
    log_event(
        logging.getLogger("segue.test"),
        "follow_up_fired",
        "Follow-up of {thread_id} fired",
        thread_id="pizza",
        timer_id=7,
    )
    [line] = capsys.readouterr().err.splitlines()
    found = json.loads(line)
    assert found["event"] == "Follow-up of pizza fired"
    assert (found["kind"], found["timer_id"]) == ("follow_up_fired", 7)
