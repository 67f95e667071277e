"""The engine's queue, on an engine that is played: order, cancelling, failing, closing."""

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessageChunk

from segue.agent import local
from segue.agent.local import EngineEvent, Generation, LocalEngine
from segue.errors import BackendError, UsageError

Event = dict[str, Any]
USAGE: Event = {
    "choices": [],
    "usage": {
        "prompt_tokens": 5,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 3},
    },
}


def token(text: str | None, reason: str | None = None) -> Event:
    return {"choices": [{"delta": {"content": text}, "finish_reason": reason}]}


class PlayedServer:
    """Plays the events of each request; `hold` in a request waits until the test lets it go on."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.holding = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.running = 0
        self.most_running = 0

    def handle_chat_completions(self, request: Event, callback: Callable[[Event], bool]) -> None:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            self.play(request, callback)
        finally:
            self.running -= 1

    def play(self, request: Event, callback: Callable[[Event], bool]) -> None:
        self.asked.append(request["name"])
        if request.get("fail"):
            raise RuntimeError("out of memory")
        for event in request.get("events", [token("Hi "), token("there", "stop"), USAGE]):
            if request.get("hold"):
                self.holding.release()
                assert self.go.acquire(timeout=10)
            try:
                if callback(event):
                    return
            except Exception:  # noqa: BLE001  # as the real one does
                return


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> PlayedServer:
    played = PlayedServer()
    monkeypatch.setattr(local, "_load", lambda: played)
    return played


@pytest.fixture
def engine(server: PlayedServer) -> Iterator[LocalEngine]:
    made = LocalEngine()
    yield made
    for _ in range(100):
        server.go.release()
    made.close()


def is_end(event: EngineEvent) -> bool:
    return isinstance(event, AIMessageChunk) and event.chunk_position == "last"


class Caller:
    """A caller that keeps what it gets."""

    def __init__(self, engine: LocalEngine, name: str, **request: Any) -> None:
        self.told: queue.SimpleQueue[EngineEvent] = queue.SimpleQueue()
        self.generation: Generation = engine.submit({"name": name, **request}, self.told.put)

    def hear(self) -> EngineEvent:
        return self.told.get(timeout=10)

    def hear_all(self) -> list[EngineEvent]:
        heard = [self.hear()]
        while isinstance(heard[-1], AIMessageChunk) and not is_end(heard[-1]):
            heard.append(self.hear())
        return heard


def test_pieces_come_first_and_the_end_last(engine: LocalEngine) -> None:
    """A reply is told as it grows, and its end says why and what it cost."""
    *pieces, end = Caller(engine, "a").hear_all()
    assert pieces == [AIMessageChunk(content="Hi "), AIMessageChunk(content="there")]
    assert isinstance(end, AIMessageChunk)
    assert (end.text, end.response_metadata["finish_reason"]) == ("", "stop")
    assert end.usage_metadata == {
        "input_tokens": 5,
        "output_tokens": 2,
        "total_tokens": 7,
        "input_token_details": {"cache_read": 3},
    }


def test_one_at_a_time_in_the_order_of_asking(engine: LocalEngine, server: PlayedServer) -> None:
    """Requests are served in order, one at a time."""
    first = Caller(engine, "first", hold=True)
    assert server.holding.acquire(timeout=10)
    others = [Caller(engine, str(n)) for n in range(5)]
    for _ in range(3):
        server.go.release()
    for caller in (first, *others):
        caller.hear_all()
    assert server.asked == ["first", "0", "1", "2", "3", "4"]
    assert server.most_running == 1


def test_a_cancelled_waiter_leaves_the_queue(engine: LocalEngine, server: PlayedServer) -> None:
    """A cancelled request is not served, and does not delay the next."""
    first = Caller(engine, "first", hold=True)
    assert server.holding.acquire(timeout=10)
    gone, patient = Caller(engine, "gone"), Caller(engine, "patient")
    engine.cancel(gone.generation)
    for _ in range(3):
        server.go.release()
    first.hear_all()
    patient.hear_all()
    assert server.asked == ["first", "patient"]
    assert gone.told.empty()


def test_a_cancelled_reply_says_no_more(engine: LocalEngine, server: PlayedServer) -> None:
    """The first event after the cancelling ends the generation."""
    caller = Caller(engine, "a", hold=True)
    assert server.holding.acquire(timeout=10)
    server.go.release()
    assert caller.hear() == AIMessageChunk(content="Hi ")
    engine.cancel(caller.generation)
    server.go.release()
    Caller(engine, "next").hear_all()
    assert caller.told.empty()


def test_a_prompt_that_is_too_long_names_both_numbers(engine: LocalEngine) -> None:
    """What does not fit is told with what was given and what goes in."""
    refused = {"error": {"n_prompt_tokens": 9031, "n_ctx": 8192, "message": "too long"}}
    (told,) = Caller(engine, "a", events=[refused]).hear_all()
    assert isinstance(told, UsageError)
    assert "9031 tokens" in str(told)
    assert "8192" in str(told)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"events": [{"error": {"message": "no such field"}}]}, "no such field"),
        ({"events": [token("Hi")]}, "before the end"),
        ({"events": [{"choices": [{}]}]}, "before the end"),
        ({"fail": True}, "out of memory"),
    ],
)
def test_whoever_waits_hears_of_a_failure(
    engine: LocalEngine, caplog: pytest.LogCaptureFixture, request_: Event, words: str
) -> None:
    """A refusal, an event that cannot be read and a crash end the reply, not the queue."""
    caplog.set_level(logging.CRITICAL)
    told = Caller(engine, "a", **request_).hear_all()[-1]
    assert isinstance(told, BackendError)
    assert words in str(told)
    assert is_end(Caller(engine, "next").hear_all()[-1])


def test_a_caller_who_cannot_be_told_is_given_up(engine: LocalEngine) -> None:
    """A closed event loop stops its own reply, and no other."""

    def closed(_: EngineEvent) -> None:
        raise RuntimeError("Event loop is closed")

    generation = engine.submit({"name": "gone"}, closed)
    assert is_end(Caller(engine, "next").hear_all()[-1])
    assert generation.cancelled.is_set()


def test_a_load_that_fails_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, server: PlayedServer
) -> None:
    """Weights that were missing once may be there the next time."""
    results: list[Any] = [UsageError("not installed"), server]

    def load() -> Any:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(local, "_load", load)
    engine = LocalEngine()
    assert [str(o) for o in Caller(engine, "a").hear_all()] == ["not installed"]
    assert is_end(Caller(engine, "b").hear_all()[-1])
    engine.close()


def test_closing_stops_what_runs_and_refuses_what_waits(
    engine: LocalEngine, server: PlayedServer
) -> None:
    """No caller is left waiting, and the engine can be used again."""
    running = Caller(engine, "running", hold=True)
    assert server.holding.acquire(timeout=10)
    waiting = Caller(engine, "waiting")
    closing = threading.Thread(target=engine.close)
    closing.start()
    while not engine._closing.is_set():
        pass
    server.go.release()
    closing.join(10)
    for caller in (running, waiting):
        assert isinstance(caller.hear(), BackendError)
    assert is_end(Caller(engine, "later").hear_all()[-1])


def test_closing_what_was_never_used_does_nothing() -> None:
    """An engine without a request has no thread to wait for."""
    before = threading.active_count()
    LocalEngine().close()
    assert threading.active_count() == before
