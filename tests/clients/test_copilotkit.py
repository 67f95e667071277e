"""CopilotKit: its agent for LangGraph servers in node, and its chat and runtime in a browser."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.agent.test_mcp import free_port
from tests.clients.packages import EXAMPLES, installed, run_script
from tests.clients.stage import Site, Tab, serving, tab_of
from tests.web.stage import FOLLOW_UP

pytestmark = pytest.mark.anyio
ANSWER = "Start with **G**, then `C`. Shall we go on?"


async def test_its_agent_streams_an_answer_and_learns_of_a_follow_up_with_the_next_one(
    sdk: Path, site: Site
) -> None:
    """Each message once; the follow-up of the pause comes with the state of the second run."""
    report = await run_script("copilot.mjs", sdk, SEGUE_URL=site.address, ASSISTANT="ada")
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


@pytest.fixture
async def chat(tmp_path: Path) -> AsyncIterator[tuple[str, Site]]:
    """The example, started as its `npm start` does, and its server."""
    folder = shutil.copytree(EXAMPLES / "copilotkit", tmp_path / "app")
    (folder / "node_modules").symlink_to(installed("copilotkit") / "node_modules")
    port = str(free_port())
    async with serving(str(tmp_path / "data"), cors_origins=(f"http://127.0.0.1:{port}",)) as site:
        given = {"SEGUE_URL": site.address, "SEGUE_AGENT": "ada", "PORT": port, "DO_NOT_TRACK": "1"}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *("node", "server.js"), cwd=folder, stdout=pipe, env={**os.environ, **given}
        )
        try:
            assert process.stdout is not None
            yield (await process.stdout.readline()).decode().strip().rstrip("/"), site
        finally:
            process.kill()
            await process.wait()


async def _check_chat(tab: Tab, *words: str) -> None:
    kinds = ("copilot-user-message", "copilot-assistant-message")
    messages = tab.page.locator(",".join(f'[data-testid="{kind}"]' for kind in kinds))
    await expect(messages).to_contain_text([*words])
    await expect(messages).to_have_count(len(words))


async def test_the_chat_shows_what_the_agent_writes_first_and_the_same_after_a_reload(
    browser: Browser, chat: tuple[str, Site]
) -> None:
    """An answer while it is written, a follow-up without another request, and each once."""
    address, site = chat
    answer = "Start with G, then C. Shall we go on?"
    async with tab_of(browser, address, site) as tab:
        await tab.say("Which chords?")
        await _check_chat(tab, "Which chords?", answer, FOLLOW_UP)
        await tab.page.reload()
        await _check_chat(tab, "Which chords?", answer, FOLLOW_UP)
        await tab.say("slow, please")
        await _check_chat(tab, "Which chords?", answer, FOLLOW_UP, "slow, please", "word3 ")
        site.gate.set()
        await _check_chat(tab, "Which chords?", answer, FOLLOW_UP, "slow, please", "word399")
