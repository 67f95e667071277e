"""AG-UI's own `HttpAgent` in node, unmodified."""

from pathlib import Path

import pytest

from tests.clients.packages import run_script
from tests.clients.stage import Site
from tests.web.stage import FOLLOW_UP

pytestmark = pytest.mark.anyio
ANSWER = "Start with **G**, then `C`. Shall we go on?"


async def test_a_run_and_a_connection_that_hears_a_follow_up(sdk: Path, site: Site) -> None:
    """The answer by `run`; what nobody asked for by `connect`, while it is open."""
    report = await run_script("agui.mjs", sdk, SEGUE_URL=site.address, ASSISTANT="ada")
    answered = [
        {"role": "user", "content": "Which chords?"},
        {"role": "assistant", "content": ANSWER},
    ]
    assert report["answered"] == answered
    assert report["after"] == [*answered, {"role": "assistant", "content": FOLLOW_UP}]
    site.traffic.check_no_trigger()
