"""Errors of invalid requests tell the client what to change."""

from datetime import timedelta

import jwt
import pytest
from pydantic import SecretStr

from segue.errors import UsageError
from segue.server.auth import token_error
from segue.server.settings import JwtSettings, ServerSettings
from segue.server.socket import parse_frame
from segue.simulate.world import Stage
from tests.server.clients import site_of

pytestmark = pytest.mark.anyio

HOURS = "quiet_hours: expected a table with start and end such as 22:00, or false"
ZONE = "has no time zone; write 2026-11-17T08:00:00Z"
WRONG = [
    ("PATCH", "/api/me", '{"quiet_hours": true}', HOURS),
    ("PATCH", "/api/me", '{"quiet_hours": {"start": "25:00", "end": "08:00"}}', HOURS),
    ("PATCH", "/api/me", '{"quiet_hours": {"start": "22:00"}}', HOURS),
    ("PATCH", "/api/me", '{"snoozed_until": "2026-11-17T08:00:00"}', f"snoozed_until {ZONE}"),
    (
        "PATCH",
        "/api/me",
        '{"snoozed_until": "tomorrow"}',
        "snoozed_until: expected a time such as 2027-01-15T08:00:00Z",
    ),
    ("PATCH", "/api/me", '{"muted": "a bit"}', "muted: expected true or false"),
    ("PATCH", "/api/me", '{"mute": true}', "mute: unknown"),
    (
        "PATCH",
        "/api/me",
        '{\n  "muted": tru\n}',
        "The body is not valid JSON: Expecting value at line 2, column 12",
    ),
    ("PATCH", "/api/me", "[]", "The body: expected a JSON object"),
    ("POST", "/follow-ups/snooze", '{"until": "2026-11-17T08:00:00"}', f"until {ZONE}"),
    ("POST", "/messages", '{"content": {}}', "content: expected a text or a list of blocks"),
    ("POST", "/messages", "{}", "content: missing"),
    ("GET", "/history?limit=many", "", "limit: expected a whole number"),
    ("GET", "/history?limit=0", "", "limit: expected at least 1"),
]


async def test_a_snooze_into_the_past_is_refused(stage: Stage) -> None:
    """By every way in, with the time that it has to be after; nothing is changed."""
    past = (stage.clock.now() - timedelta(minutes=1)).isoformat()
    async with stage.world() as world, site_of(world.segue) as site:
        path = f"/api/threads/{await site.new_thread()}"
        before = await site.get(path)
        for method, place, body in (
            ("POST", f"{path}/follow-ups/snooze", {"until": past}),
            ("PATCH", path, {"snoozed_until": past, "title": "Later"}),
            ("PATCH", "/api/me", {"snoozed_until": past}),
        ):
            answer = await site.http.request(method, place, json=body)
            assert answer.status_code == 422
            assert "which is past; expected a time after 2027-01-15" in answer.json()["detail"]
        assert await site.get(path) == before


async def test_quiet_hours_of_no_length_are_refused(sqlite_stage: Stage) -> None:
    """They could mean always or never."""
    same = {"quiet_hours": {"start": "08:00", "end": "08:00"}}
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        answer = await site.http.patch("/api/me", json=same)
        assert answer.status_code == 422
        assert "two times that differ" in answer.json()["detail"]


async def test_of_a_huge_name_only_a_part_is_told(sqlite_stage: Stage) -> None:
    """An unknown field's name is the client's own; it is not sent back by the megabyte."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        answer = await site.http.patch("/api/me", json={"x" * 900_000: 1, "y\n" * 1_000: 1})
        assert [each["at"] for each in answer.json()["errors"]] == ["x" * 60, "y " * 29 + "y"]
        assert len(answer.content) < 1_000
    with pytest.raises(UsageError, match=r"^x{60}: unknown\.$"):
        parse_frame('{"type": "ping", "' + "x" * 900_000 + '": 1}')


async def test_a_request_that_is_wrong_is_told_so_in_plain_words(sqlite_stage: Stage) -> None:
    """By the name of the field and what it takes; no name of a type, no regular expression."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        for method, place, body, words in WRONG:
            url = place if place.startswith("/api") else f"/api/threads/{thread}{place}"
            answer = await site.http.request(
                method, url, content=body, headers={"Content-Type": "application/json"}
            )
            told = answer.json()
            assert answer.status_code == 422, (place, body)
            assert told["detail"].startswith(words), (place, body)
            assert ";" not in told["detail"].removeprefix(words), told["detail"]
            assert len(told["errors"]) == 1


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ('{"type": "message", "content": 5}', "content: expected a text or a list of blocks."),
        ('{"type": "message"}', "content: missing."),
        (
            '{"type": "answer", "turn_id": "1", "answer": null}',
            "answer: null is not an answer.",
        ),
        ('{"type": "cancel", "now": 1}', "now: unknown."),
        ("[]", "This frame: expected a JSON object."),
        ("{}", "This frame: expected a JSON object with a type."),
        ("{ ]", "This frame is not valid JSON: Expecting property name enclosed in double quotes"),
    ],
)
def test_a_frame_that_is_wrong_is_told_so_in_plain_words(frame: str, words: str) -> None:
    """As a request is, without the names of types."""
    with pytest.raises(UsageError) as caught:
        parse_frame(frame)
    assert str(caught.value).partition(": line 1 ")[0] == words


async def test_a_caller_learns_which_claim_is_missing(sqlite_stage: Stage) -> None:
    """Not the name of an error of another library."""
    secret = "x" * 40
    settings = ServerSettings(jwt=JwtSettings(secret=SecretStr(secret)))
    words = jwt.encode({"sub": "ann"}, secret, "HS256")
    async with sqlite_stage.world() as world, site_of(world.segue, settings) as site:
        answer = await site.http.get("/api/me", headers={"Authorization": f"Bearer {words}"})
    assert answer.status_code == 401
    assert answer.json()["detail"] == "This token is not valid: its claim exp is missing."


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (jwt.MissingRequiredClaimError("exp"), "its claim exp is missing"),
        (jwt.ExpiredSignatureError(), "it has expired"),
        (jwt.InvalidAudienceError(), "it is for another audience (aud)"),
        (jwt.InvalidIssuerError(), "it is from another issuer (iss)"),
        (jwt.InvalidSignatureError(), "its signature does not match"),
        (jwt.DecodeError(), "it cannot be read as a JWT"),
        (ValueError("secret"), "it is malformed"),
    ],
)
def test_a_token_that_does_not_hold_says_why(error: Exception, words: str) -> None:
    """Whoever made it learns which claim to mend."""
    assert token_error(error) == words
