"""The chat in a real browser, as a person uses it."""

import asyncio
import base64
from datetime import timedelta

import pytest
from playwright.async_api import Browser, FilePayload, Route, expect

from segue.core.triggers import TRIGGER_PROMPTS
from tests.web.stage import FOLLOW_UP, HOSTILE, Served, look_up, open_tab, tab_of

pytestmark = pytest.mark.anyio

# What of the log is below the screen: less than a line.
_AT_END = "log => log.scrollHeight - log.scrollTop - log.clientHeight < 48"


async def test_the_agent_writes_first_and_a_reload_shows_the_same(
    browser: Browser, site: Served
) -> None:
    """Hello, a streamed reply, silence, a follow-up without a reload; never a trigger."""
    async with tab_of(browser, site) as tab:
        await tab.begin("Ada")
        await tab.say("Which chords first?")
        await tab.check_shows("Start with G")
        await tab.check_shows(FOLLOW_UP)
        await tab.page.get_by_role("button", name="why?").click()
        await tab.page.get_by_text("You had not answered for").wait_for()
        before = await tab.words()
        assert before == ["Which chords first?", "Start with G, then C. Shall we go on?", FOLLOW_UP]
        await tab.page.reload()
        await tab.check_shows(FOLLOW_UP)
        assert await tab.words() == before
        shown = await tab.page.content() + " ".join(await tab.words())
        assert not [prompt for prompt in TRIGGER_PROMPTS.values() if prompt in shown]


async def test_a_conversation_can_begin_once_the_agents_are_known(
    browser: Browser, site: Served
) -> None:
    """An early click would begin one with the first agent, without asking with whom."""
    async with tab_of(browser, site) as tab:
        known = asyncio.Event()

        async def hold(route: Route) -> None:
            await known.wait()
            await route.continue_()

        await tab.page.route("**/api/agents*", hold)
        await tab.page.reload()
        await expect(tab.page.get_by_role("button", name="New", exact=True)).to_be_disabled()
        known.set()
        await tab.begin("Calm")
        await tab.page.get_by_role("heading", name="Calm").wait_for()


async def test_why_shows_that_a_follow_up_was_put_off(browser: Browser, site: Served) -> None:
    """Opened again, it says until when, and offers to undo that."""
    async with tab_of(browser, site) as tab:
        await tab.begin("Ada")
        await tab.say("Which chords first?")
        await tab.check_shows(FOLLOW_UP)
        page = tab.page
        panel = page.locator("segue-why")
        await page.get_by_role("button", name="why?").click()
        await panel.get_by_role("button", name="Later").click()
        await panel.get_by_text("does not write first here before").wait_for()
        await page.reload()
        await page.get_by_role("button", name="why?").click()
        await panel.get_by_text("does not write first here before").wait_for()
        await expect(panel.get_by_role("button", name="Later")).to_have_count(0)
        await panel.get_by_role("button", name="Undo").click()
        await panel.get_by_role("button", name="Later").wait_for()


async def test_tabs_are_in_step(browser: Browser, site: Served) -> None:
    """What one tab says and hears, the other shows once."""
    async with tab_of(browser, site) as one:
        await one.begin("Calm")
        two = await open_tab(one.page.context, one.page.url)
        await two.page.goto(one.page.url)
        await two.page.get_by_role("textbox", name="Write to").wait_for()
        await one.say("First.")
        await two.check_shows("You said: First.")
        await two.say("Second.")
        for tab in (one, two):
            await tab.check_shows("You said: Second.")
        expected = ["First.", "You said: First.", "Second.", "You said: Second."]
        assert await one.words() == expected
        assert await two.words() == expected
        assert two.mistakes == []


async def test_the_log_stays_at_its_end(browser: Browser, site: Served) -> None:
    """What was just said and answered is in view, however long the conversation has become."""
    async with tab_of(browser, site) as tab:
        await tab.page.set_viewport_size({"width": 800, "height": 400})
        await tab.begin("Calm")
        for number in range(8):
            await tab.say(f"Message {number}.")
            await tab.check_shows(f"You said: Message {number}.")
            await tab.page.wait_for_function(_AT_END, arg=await tab.log.element_handle())


async def test_stop_keeps_what_was_written(browser: Browser, site: Served) -> None:
    """Esc stops a reply; what was seen of it stays, and the next message is answered."""
    async with tab_of(browser, site) as tab:
        await tab.begin("Calm")
        await tab.say("slow, please")
        await tab.check_shows("word3")
        await tab.page.keyboard.press("Escape")
        await tab.page.get_by_text("Stopped", exact=True).wait_for()
        await tab.page.get_by_role("button", name="Send").wait_for()
        [_, kept] = await tab.words()
        assert "word3" in kept
        assert "word399" not in kept
        await tab.say("And now?")
        await tab.check_shows("You said: And now?")


async def test_hostile_markdown_stays_text(browser: Browser, site: Served) -> None:
    """No element, handler or address of a model's choosing, but a link with a harmless scheme."""
    async with tab_of(browser, site) as tab:
        await tab.begin("Calm")
        await tab.say("hostile")
        await tab.check_shows("<svg onload=alert(1)>")
        message = tab.log.locator("segue-message").nth(1)
        assert await message.locator("script, iframe, img, svg [onload], [onerror]").count() == 0
        links = message.locator("a[href]")
        found = [await link.get_attribute("href") for link in await links.all()]
        assert found == ["https://example.org", "https://example.org/p.png"]
        assert "<iframe" in "".join(await tab.words())
        assert "<svg onload=alert(1)>" in HOSTILE


async def test_what_a_user_types_stays_text(browser: Browser, site: Served) -> None:
    """Markup of the user's own, even a trigger's words, is shown as it was typed."""
    typed = f"<b onclick=alert(1)>{TRIGGER_PROMPTS['check_in']}</b>"
    async with tab_of(browser, site) as tab:
        await tab.begin("Calm")
        await tab.say(typed)
        await tab.check_shows("You said:")
        assert (await tab.words())[0] == typed
        assert await tab.log.locator("b").count() == 0


async def test_a_failed_turn_says_so_and_can_be_asked_again(browser: Browser, site: Served) -> None:
    """The reason stands at the message, with a way to go on."""
    async with tab_of(browser, site) as tab:
        await tab.begin("Calm")
        await tab.say("fail, please")
        await tab.page.get_by_text("Not answered").first.wait_for()
        await tab.page.get_by_role("button", name="Ask again").first.click()
        await expect(tab.log.get_by_text("fail, please")).to_have_count(2)
        assert (await tab.words())[0] == "fail, please"


async def test_a_question_is_answered_by_a_form(browser: Browser, site: Served) -> None:
    """The agent waits, also over a reload, and goes on with the answer; both stay readable."""
    async with tab_of(browser, site) as tab:
        await tab.begin("Asker")
        await tab.say("Book a table.")
        await tab.page.get_by_text("For eight?").wait_for()
        await tab.page.reload()
        form = tab.page.get_by_role("form", name="A question for you")
        await form.get_by_role("textbox").fill("For nine.")
        await form.get_by_role("button", name="Answer").click()
        await tab.check_shows("So: For nine.")
        await expect(form).to_have_count(0)
        await tab.page.reload()
        asked = tab.page.get_by_role("region", name="A question from Asker")
        await expect(asked).to_contain_text("For eight?")
        await expect(asked).to_contain_text("For nine.")


async def test_a_draft_survives_a_reload(browser: Browser, site: Served) -> None:
    """Typed text is never lost."""
    async with tab_of(browser, site) as tab:
        await tab.begin("Calm")
        await tab.page.get_by_role("textbox", name="Write to").fill("Half a thou")
        await tab.page.reload()
        box = tab.page.get_by_role("textbox", name="Write to")
        await expect(box).to_have_value("Half a thou")


async def test_a_follow_up_elsewhere_is_marked_unread(browser: Browser, site: Served) -> None:
    """It is heard in a thread that is not open, and read once it is."""
    async with tab_of(browser, site) as tab:
        await tab.begin("Calm")
        await tab.say("Which chords would you unread?")
        await tab.check_shows("Shall we go on?")
        thread = tab.page.url.rpartition("/")[2]
        await tab.begin("Calm")
        await site.segue.follow_up(thread, after=timedelta(seconds=0.2))
        row = tab.page.get_by_role("link", name="Which chords would you unread?")
        unread = row.get_by_text("unread", exact=True)
        await expect(unread).to_have_count(1)
        await row.click()
        await tab.check_shows(FOLLOW_UP)
        await expect(unread).to_have_count(0)


async def test_a_stop_in_plain_words_leaves_a_line_with_undo(
    browser: Browser, site: Served
) -> None:
    """The bell is in step, and undo takes it back for good."""
    async with tab_of(browser, site) as tab:
        await tab.begin("Calm")
        bell = tab.page.get_by_role("button", name="Do not write first")
        await expect(bell).to_have_attribute("aria-pressed", "false")
        await tab.say("Please stop writing to me.")
        line = tab.page.get_by_text("Agents no longer write to you first.")
        await line.wait_for()
        await expect(bell).to_have_attribute("aria-pressed", "true")
        await tab.page.get_by_role("button", name="Undo").click()
        await expect(line).to_have_count(0)
        await expect(bell).to_have_attribute("aria-pressed", "false")
        assert not (await site.segue.get_user_preferences("me")).get("opted_out")
        await bell.click()
        await tab.page.get_by_text("Calm does not write first here.").wait_for()
        await bell.click()
        await expect(bell).to_have_attribute("aria-pressed", "false")


async def test_tools_at_work_are_shown(
    browser: Browser, site: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While they run, by their names; the inspector has both calls of the batch."""
    seen = asyncio.Event()

    async def wait(what: str) -> str:
        await seen.wait()
        return f"Found {what}."

    monkeypatch.setattr(look_up, "coroutine", wait)
    async with tab_of(browser, site, viewport={"width": 1440, "height": 900}) as tab:
        await tab.begin("Calm")
        await tab.page.get_by_role("button", name="Inspector").click()
        await tab.say("Please use tools.")
        await tab.page.get_by_text("Calm is using look up, look up").wait_for()
        seen.set()
        await tab.check_shows("You said: Found G.")
        await expect(tab.page.get_by_text("Calm uses")).to_have_count(0)
        await expect(tab.page.locator("segue-timeline rect.call")).to_have_count(2)
        await tab.page.get_by_role("button", name="Inspector").click()


async def test_pictures_and_files_are_sent_and_shown(browser: Browser, site: Served) -> None:
    """Chosen in the composer, removed again, and there after a reload."""
    pixel = base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
    files: list[FilePayload] = [
        {"name": "dot.png", "mimeType": "image/png", "buffer": pixel},
        {"name": "chords.txt", "mimeType": "text/plain", "buffer": b"G C D"},
        {"name": "wrong.txt", "mimeType": "text/plain", "buffer": b"no"},
    ]
    async with tab_of(browser, site) as tab:
        await tab.begin("Calm")
        await tab.page.locator("#attach").set_input_files(files)
        await tab.page.get_by_role("button", name="Remove wrong.txt").click()
        await tab.say("Two files.")
        await tab.check_shows("Two files.")
        for _ in range(2):
            picture = await tab.log.get_by_role("img", name="A picture").bounding_box()
            assert picture is not None
            assert (picture["width"], picture["height"]) == (1, 1), "it is not stretched"
            await tab.log.get_by_role("link", name="chords.txt").wait_for()
            await expect(tab.log.get_by_text("wrong.txt")).to_have_count(0)
            await tab.page.reload()


async def test_files_that_are_too_large_are_named(browser: Browser, site: Served) -> None:
    """One by its name; several that only together are too large, by the limit."""
    large: FilePayload = {"name": "big.bin", "mimeType": "", "buffer": b"x" * 7_000_001}
    halves: list[FilePayload] = [
        {"name": name, "mimeType": "", "buffer": b"x" * 3_500_001} for name in ("a.bin", "b.bin")
    ]
    async with tab_of(browser, site) as tab:
        await tab.begin("Calm")
        await tab.page.locator("#attach").set_input_files(large)
        problem = tab.page.get_by_role("alert")
        await expect(problem).to_have_text("“big.bin” is larger than 7 MB, the limit of a message.")
        await tab.page.locator("#attach").set_input_files(halves)
        await expect(problem).to_have_text(
            "Together, these files are larger than 7 MB, the limit of a message."
        )


async def test_files_that_are_chosen_one_after_the_other_are_all_kept(
    browser: Browser, site: Served
) -> None:
    """Also if the first is still read when the second is pasted."""
    async with tab_of(browser, site) as tab:
        await tab.begin("Calm")
        add = """composer => Promise.all(["a.txt", "b.txt"].map(
          (name) => composer.add([new File(["x"], name, { type: "text/plain" })])))"""
        await tab.page.locator("segue-composer").evaluate(add)
        for name in ("a.txt", "b.txt"):
            await expect(tab.page.get_by_role("button", name=f"Remove {name}")).to_be_visible()
