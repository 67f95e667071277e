"""CopilotKit: its agent for LangGraph servers in node, as its runtime calls it."""

from pathlib import Path

import pytest

from tests.clients.packages import run_script
from tests.clients.stage import Site
from tests.web.stage import FOLLOW_UP

pytestmark = pytest.mark.anyio
ANSWER = "Start with **G**, then `C`. Shall we go on?"


async def test_its_agent_streams_an_answer_and_learns_of_a_follow_up_with_the_next_one(
    sdk: Path, site: Site
) -> None:
    """Each message once; the follow-up of the pause comes with the state of the second run."""
    given = {"SEGUE_URL": site.address, "ASSISTANT": "ada", "PAUSE": "2500"}
    report = await run_script("copilot.mjs", sdk, **given)
    assert report["first"] == [
        {"role": "user", "content": "Which chords?"},
        {"role": "assistant", "content": ANSWER},
    ]
    assert len(report["streamed"]) > 3
    assert "".join(report["streamed"]) == ANSWER
    said = [each["content"] for each in report["second"]]
    assert sorted(said) == sorted(
        ["Which chords?", ANSWER, FOLLOW_UP, "Thanks.", "You said: Thanks."]
    )
    assert "RUN_ERROR" not in report["types"]
    site.traffic.check_no_trigger()
