"""The API against its own documentation: what it says is complete, and what it says is true."""

import asyncio
import base64
import json
from collections.abc import Iterator
from itertools import product
from typing import Any
from urllib.parse import quote

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from langchain_core.messages import AIMessage
from langgraph.graph import START as BEGIN
from langgraph.graph import MessagesState, StateGraph
from langgraph.types import interrupt
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from segue.core.snowflake import to_text
from segue.server.app import create_app
from segue.server.problems import MEDIA_TYPE
from segue.simulate.world import Stage, World, plain_agent, with_graph
from tests.runtime.scenes import calling, lines
from tests.server.clients import Site, site_of

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("foreseen_meanings")]

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
    negative_data_rejection,
    unsupported_method,
]
# They never end, so a fuzzer would wait for ever; the tests of listening read them.
ENDLESS = {"/api/threads/{thread_id}/events", "/api/events"}
EACH = 2
METHODS = [
    "answerQuestion",
    "cancelFollowUps",
    "cancelReminder",
    "cancelTurns",
    "createMemory",
    "createReminder",
    "createThread",
    "deleteMe",
    "deleteMemory",
    "deleteThread",
    "exportOwn",
    "exportThread",
    "getHistory",
    "getMe",
    "getPushKey",
    "getThread",
    "healthz",
    "listAgents",
    "listFollowUps",
    "listMemories",
    "listReasons",
    "listReminders",
    "listThreadReminders",
    "listThreads",
    "listen",
    "listenToThread",
    "markRead",
    "readyz",
    "receiveEvent",
    "reportTyping",
    "requestFollowUp",
    "searchMemories",
    "searchMessages",
    "sendMessage",
    "snoozeThread",
    "subscribePush",
    "unsubscribePush",
    "updateMe",
    "updateMemory",
    "updateThread",
]


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


@pytest.fixture
def document() -> dict[str, Any]:
    async def never() -> None:
        raise AssertionError

    return create_app(never).openapi()  # type: ignore[arg-type] # nobody opens it


def test_every_operation_says_what_it_is(document: dict[str, Any]) -> None:
    """Each has a summary, words for people, one tag and an id of its own."""
    ids = []
    for name, operation in operations(document):
        assert operation["summary"], name
        assert operation["description"], name
        assert len(operation["tags"]) == 1, name
        ids.append(operation["operationId"])
    assert len(ids) == len(set(ids))


def test_operation_ids_are_names_of_methods(document: dict[str, Any]) -> None:
    """A generated client has these methods; a new name here is a new method for its users."""
    ids = {operation["operationId"] for _, operation in operations(document)}
    assert sorted(name for name in ids if not name.startswith("admin")) == METHODS


def test_every_error_is_documented_as_a_problem(document: dict[str, Any]) -> None:
    """Each error of each operation is a problem, and those that all may give are named by all."""
    problem = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for name, operation in operations(document):
        errors = {code: told for code, told in operation["responses"].items() if code >= "400"}
        for code, told in errors.items():
            assert told["content"] == problem, (name, code)
            assert told["description"], (name, code)
        if "/api/" in name:
            assert errors.keys() >= {"400", "401", "403", "413", "422", "429", "503"}, name
        if "{" in name:
            assert "404" in errors, name
    assert document["components"]["schemas"]["Problem"]["required"] == [
        "title",
        "status",
        "detail",
        "code",
    ]


def test_every_body_has_an_example(document: dict[str, Any]) -> None:
    """Whoever reads how to send something sees one that could be sent."""
    seen = 0
    for name, operation in operations(document):
        if "requestBody" not in operation:
            continue
        [(media_type, content)] = operation["requestBody"]["content"].items()
        if name == "POST /api/admin/import":  # an export, as another route gives it
            assert media_type == "application/jsonl"
            continue
        assert media_type == "application/json", name
        schema = content["schema"].get("anyOf", [content["schema"]])[0]  # a body or none
        body = document["components"]["schemas"][schema["$ref"].rsplit("/")[-1]]
        examples = [field for field in body["properties"].values() if field.get("examples")]
        assert examples or body.get("examples"), name
        # Services that report events send more than is asked for.
        assert "/hooks/" in name or body["additionalProperties"] is False, name
        seen += 1
    assert seen > 5


def test_streams_and_imports_are_described_as_they_are(document: dict[str, Any]) -> None:
    """A generated client expects events, not JSON, and can send the file of an import."""
    told = dict(operations(document))
    for name in ("GET /api/events", "GET /api/threads/{thread_id}/events"):
        assert [*told[name]["responses"]["200"]["content"]] == ["text/event-stream"], name
    body = told["POST /api/admin/import"]["requestBody"]
    assert [*body["content"]] == [*told["GET /api/admin/export"]["responses"]["200"]["content"]]
    for name in ("POST /api/hooks/{source}", "POST /api/threads/{thread_id}/follow-ups"):
        assert "409" in told[name]["responses"], name  # the thread of a run without one


# The server's thread draws random numbers, too, and hypothesis takes them for its strategies'.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
async def test_the_api_keeps_to_its_documentation(stage: Stage) -> None:
    """Whatever is sent, right or wrong: no 5xx, no status, type or body that is not documented."""
    guide = plain_agent(memory={})
    model = lines(calling("no_such_tool"), then="Fine.")
    async with stage.world(guide, models={"guide": model}) as world, site_of(world.segue) as site:
        known = await _told(world, site)
        document = await site.get("/openapi.json")
        for _, operation in operations(document):
            operation.pop("security", None)  # without keys, nobody has to say who they are
        wrong = await asyncio.to_thread(fuzz, document, site.address, known)
        assert not wrong, "\n".join(wrong)
        assert (await site.get("/readyz"))["status"] == "ready"


async def _told(world: World, site: Site) -> dict[str, str]:
    """Something to find behind each id, so that more than 404 is seen."""
    thread = await site.new_thread()
    sent = await site.post(f"/api/threads/{thread}/messages", {"content": "Where is Oslo?"})
    await world.clock.settle()
    await site.post("/api/memories", {"content": "Ann likes to ski.", "key": "sport"})
    return {
        "thread_id": thread,
        "key": "sport",
        "effect_id": to_text(world.system.deps.ids.next()),
        "turn_id": sent["turn_id"],
    }


schemathesis.serializer.alias("application/jsonl", "text/plain")
AS_JSON = {"Content-Type": "application/json"}
NUL = "\x00"
FAR = ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2027-01-01T00:00:00"]
ODD_CURSOR = base64.urlsafe_b64encode(f"{FAR[0]} {NUL}".encode()).decode()
CURSORS = [NUL, "!", "A", "x" * 300, "é", ODD_CURSOR]
ODD = ["%00", "a%00b", "%ED%A0%80", "%F0%9F", "%C3%A9", "..%2F..", "%0d%0a", "9" * 3_000]
PLACES = [
    "/api/search?q",
    "/api/memories/search?q",
    "/api/threads?agent_id",
    "/api/memories?agent_id",
]
BODIES: list[tuple[str, str, str]] = [
    ("POST", "/messages", '{"content":"\\ud800 and \\u0000"}'),
    ("POST", "/messages", '{"content":[{"type":"text","text":"\\udfff\\u0000"}]}'),
    (
        "POST",
        "/messages",
        '{"content":[{"type":"image_url","image_url":"data:x","n":NaN,"m":1e999}]}',
    ),
    (
        "POST",
        "/messages",
        '{"content":[{"type":"file","id":"\\u0000","deep":' + "[" * 200 + "]" * 200 + "}]}",
    ),
    ("POST", "/messages", '{"content":"x","client_message_id":"\\u0000"}'),
    ("POST", "/messages", "[" * 100_000),
    ("POST", "/messages", '{"content":' + "9" * 10_000 + "}"),
    ("POST", "/messages", "\xff\xfe"),
    ("POST", "/answer", '{"turn_id":"2255260483588198400","answer":"\\ud800"}'),
    ("POST", "/answer", '{"turn_id":"2255260483588198400","answer":' + "[" * 500 + "]" * 500 + "}"),
    ("PATCH", "", '{"title":"\\u0000 \\ud800"}'),
    ("PATCH", "", '{"title":"a\\u0000b"}'),
    ("PATCH", "", '{"time_zone":"\\u0000"}'),
    ("PATCH", "", '{"time_zone":"../../etc/passwd"}'),
    ("PATCH", "", '{"quiet_hours":{"start":"25:00","end":NaN}}'),
    ("PATCH", "", '{"quiet_hours":{"start":"22:00","end":"07:00","\\u0000":"\\ud800"}}'),
    (
        "PATCH",
        "/api/me",
        '{"quiet_hours":{"start":"22:00","end":"07:00","more":' + "9" * 400 + "}}",
    ),
    ("PATCH", "/api/me", '{"time_zone":"a\\u0000"}'),
    ("POST", "/api/memories", '{"content":"a\\u0000b","key":"\\u0000"}'),
    ("POST", "/api/memories", '{"content":"\\ud800","key":"\\ud800"}'),
    ("POST", "/api/memories", '{"content":"x","agent_id":"\\u0000"}'),
    *[("POST", "/follow-ups/snooze", json.dumps({"until": moment})) for moment in FAR],
    ("POST", "/follow-ups/snooze", '{"until":1e308}'),
    ("POST", "/follow-ups/snooze", '{"until":-62135596800}'),
]


async def test_what_no_database_can_hold_is_no_failure(stage: Stage) -> None:
    """Half an emoji, a NUL, the end of time, endless numbers: taken or refused, never a 5xx."""
    guide = plain_agent(memory={})
    async with stage.world(guide, models={"guide": lines()}) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        path = f"/api/threads/{thread}"
        asked = [("GET", f"/api/threads/{odd}{end}") for odd in ODD for end in ("", "/history")]
        asked += [("DELETE", f"/api/memories/{odd}") for odd in ODD]
        asked += [("GET", f"{place}={odd}") for place in PLACES for odd in ODD]
        for method, url in asked:
            assert (await site.http.request(method, url)).status_code < 500, (method, url)
        for cursor in CURSORS:
            for params in ({"after": cursor}, {"before": cursor}):
                for place in ("/api/threads", "/api/memories", f"{path}/history"):
                    answer = await site.http.get(place, params=params)
                    assert answer.status_code < 500, (place, params)
        for method, place, body in BODIES:
            url = place if place.startswith("/api") else path + place
            answer = await site.http.request(
                method, url, content=body.encode("latin-1"), headers=AS_JSON
            )
            assert answer.status_code < 500, (place, body[:100])
            assert answer.json(), place
        await world.clock.settle()
        for place in ("", "/history", "/follow-ups", "/why"):
            assert (await site.http.get(path + place)).status_code == 200
        assert (await site.http.get("/api/me")).status_code == 200


@pytest.mark.parametrize("key", ["sport", "a/b", "search", "search/me", "%2F", "a b?c#d", "é"])
async def test_a_fact_can_be_changed_and_deleted_whatever_its_key(stage: Stage, key: str) -> None:
    """A key that was accepted can be named in a path."""
    async with stage.world(plain_agent(memory={})) as world, site_of(world.segue) as site:
        await site.post("/api/memories", {"content": "Ann likes to ski.", "key": key})
        path = f"/api/memories/{quote(key, safe='')}"
        changed = await site.http.put(path, json={"content": "Ann likes to row."})
        assert changed.json()["key"] == key
        [only] = (await site.get("/api/memories"))["items"]
        assert (only["key"], only["content"]) == (key, "Ann likes to row.")
        assert (await site.http.delete(path)).status_code == 204
        assert (await site.get("/api/memories"))["items"] == []


@pytest.mark.parametrize("answer", ['"\\ud800 \\u0000"', "{}", "null", "9" * 300, "1e999", "NaN"])
async def test_any_json_is_an_answer_or_is_refused(stage: Stage, answer: str) -> None:
    """A question is answered by it, or waits on; nothing fails."""
    builder = StateGraph(MessagesState)
    builder.add_node("ask", lambda _: {"messages": [AIMessage(f"So: {interrupt('For eight?')}")]})
    builder.add_edge(BEGIN, "ask")
    waiter = with_graph(plain_agent(), builder.compile())
    async with stage.world(waiter) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        sent = await site.post(f"/api/threads/{thread}/messages", {"content": "A table."})
        await world.clock.settle()
        body = f'{{"turn_id":"{sent["turn_id"]}","answer":{answer}}}'
        path = f"/api/threads/{thread}/answer"
        answered = await site.http.post(path, content=body, headers=AS_JSON)
        assert answered.status_code in {202, 400, 422}, answered.text
        await world.clock.settle()
        asked, *said = (await site.get(f"/api/threads/{thread}/history"))["items"]
        if answered.status_code == 202:
            assert asked["state"] == "answered"
            assert said[-1]["text"].startswith("So: ")
        else:
            assert (asked["state"], said) == ("waiting", [])


def fuzz(document: dict[str, Any], address: str, known: dict[str, str]) -> list[str]:
    """Call every operation with made-up requests, some of them with ids that are there.

    In the fast lane half as many: of an operation on something, only with an id that is there.
    """
    wrong: list[str] = []
    is_quick = settings().max_examples < 100
    for found in schemathesis.openapi.from_dict(document).get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        if operation.path in ENDLESS:
            continue
        named = {name: value for name, value in known.items() if f"{{{name}" in operation.path}
        paths = [named, {}] if named and operation.method != "delete" else [{}]
        for mode, path in product(GenerationMode, paths[:1] if is_quick else paths):
            try:
                attack(operation, mode, path, address)
            except Unsatisfiable:  # it has nothing that could be wrong
                continue
            except FailureGroup as failures:
                wrong += [f"{operation.label}: {failure}" for failure in failures.exceptions]
    return wrong


def attack(
    operation: APIOperation[Any, Any, Any, Any],
    mode: GenerationMode,
    path: dict[str, str],
    address: str,
) -> None:
    @settings(max_examples=EACH, phases=[Phase.generate], suppress_health_check=[*HealthCheck])
    @given(case=operation.as_strategy(mode, path_parameters=path))
    def call(case: schemathesis.Case[Any]) -> None:
        headers = {"Accept": "application/json"}
        case.call_and_validate(address, headers=headers, checks=CHECKS)

    call()


async def test_every_list_has_one_shape(sqlite_stage: Stage) -> None:
    """No route answers with a bare list, or with items under a name of their own."""
    async with sqlite_stage.world() as world:
        document = create_app(world.segue).openapi()
    schemas = document["components"]["schemas"]
    lists = set()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for code, answer in operation["responses"].items():
                schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
                assert schema.get("type") != "array", (method, path)
                name = schema.get("$ref", "").rpartition("/")[2]
                fields = schemas.get(name, {}).get("properties", {})
                if code < "300" and "items" in fields:
                    lists.add(path)
                    assert fields.keys() in ({"items", "next"}, {"items", "before", "after"}), name
    assert {"/api/threads", "/api/agents", "/api/reminders", "/api/admin/turns"} <= lists
    assert len(lists) >= 18
