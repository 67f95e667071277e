"""The views beside the chat: inspector and outcomes for operators, and what belongs to the user."""

from datetime import timedelta
from pathlib import Path

import axe_playwright_python  # type: ignore[import-untyped] # it has no types
import pytest
from playwright.async_api import Browser, expect

from segue.core.triggers import TRIGGER_PROMPTS
from tests.web.stage import FOLLOW_UP, Served, Tab, tab_of

pytestmark = pytest.mark.anyio

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8")
VIEWS = ("#/", "#/preferences", "#/memories", "#/reminders", "outcomes")


async def check_accessible(tab: Tab, what: str) -> None:
    """No rule of axe is broken, in light and in dark."""
    for scheme in ("light", "dark"):
        await tab.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        found = await tab.page.evaluate("() => axe.run({resultTypes: ['violations']})")
        broken = [
            (rule["id"], rule["nodes"][0]["html"][:200], rule["nodes"][0]["failureSummary"][:300])
            for rule in found["violations"]
        ]
        assert broken == [], (what, scheme)


async def test_no_view_breaks_a_rule_of_accessibility(browser: Browser, site: Served) -> None:
    """Names, contrast, roles, structure: by axe, on all main views, light and dark."""
    async with tab_of(
        browser, site, bypass_csp=True, viewport={"width": 1440, "height": 900}
    ) as tab:
        await tab.page.add_init_script(AXE)
        await tab.page.reload()
        await tab.begin("Ada")
        await tab.say("Which chords first?")
        await tab.check_shows(FOLLOW_UP)
        await tab.page.get_by_role("button", name="why?").click()
        await tab.page.get_by_text("You had not answered").wait_for()
        await tab.page.get_by_role("button", name="Inspector").click()
        for name in ("Timeline", "Decisions", "Context", "Server"):
            await tab.page.get_by_role("tab", name=name).click()
            await check_accessible(tab, f"a conversation and the inspector's {name}")
        for view in VIEWS:
            await tab.page.goto(f"{site.address}/{view}")
            await tab.page.get_by_role("heading", level=1).first.wait_for()
            await check_accessible(tab, view)


async def test_the_inspector_shows_the_trigger_that_the_chat_does_not(
    browser: Browser, site: Served
) -> None:
    """With the gates' verdicts, the next request, and a countdown before it fires."""
    async with tab_of(browser, site, viewport={"width": 1440, "height": 900}) as tab:
        await tab.begin("Calm")
        await tab.page.get_by_role("button", name="Inspector").click()
        await tab.say("Which chords first?")
        panel = tab.page.get_by_role("tabpanel")
        await panel.get_by_text("Next:").wait_for()  # an hour, counted down
        await tab.begin("Ada")
        await tab.say("Which chords first?")
        await tab.check_shows(FOLLOW_UP)
        trigger = panel.locator(".trigger .text").first
        await trigger.wait_for()
        assert await trigger.text_content() in TRIGGER_PROMPTS.values()
        assert not set(await tab.words()) & set(TRIGGER_PROMPTS.values())
        await tab.page.get_by_role("tab", name="Decisions").click()
        await panel.get_by_text("quiet hours", exact=True).first.wait_for()
        await tab.page.get_by_role("tab", name="Context").click()
        await panel.get_by_text("trigger", exact=True).first.wait_for()


async def test_a_share_is_of_follow_ups_whose_time_is_over(browser: Browser, site: Served) -> None:
    """An answer that came early says nothing about those that are still awaited."""
    async with tab_of(browser, site) as tab:
        say = """async ([rate, replied]) => {
          const { sentence } = await import("./web/outcomes.js");
          const counts = { replied, ignored: 0, pending: 1, total: 1 + replied, reply_rate: rate };
          return sentence([{ agent: "ada", trigger: null, variant: null, ...counts }], []);
        }"""
        two, one = [await tab.page.evaluate(say, [None, replied]) for replied in (1, 0)]
        assert two == (
            "2 follow-ups were sent; the reply rate is known once their windows are over."
        )
        assert one == "1 follow-up was sent; the reply rate is known once its window is over."
        over = {"cases": 4, "value": 0.25, "low": 0.05, "high": 0.7}
        assert "25 % of 4 follow-ups" in await tab.page.evaluate(say, [over, 1])


async def test_variants_are_compared_only_if_it_is_sure(browser: Browser, site: Served) -> None:
    """With no follow-up at all first, then with each other; intervals that overlap say nothing."""
    say = """async ([shares, arms]) => {
      const { rate, sentence } = await import("./web/outcomes.js");
      const rows = Object.entries(shares).map(([variant, [hits, cases]]) =>
        ({ agent: "ada", trigger: "check_in", variant, reply_rate: rate(hits, cases) }));
      const named = { agent: "ada", trigger: "check_in", variant: "warm" };
      return sentence(rows, arms.map(([wrote, low]) => ({
        ...named, wrote: { value: wrote }, difference: { value: low + 0.1, low, high: low + 0.2 },
      })));
    }"""
    async with tab_of(browser, site) as tab:
        sure, unsure = {"warm": [90, 100], "dry": [10, 100]}, {"warm": [2, 3], "dry": [1, 3]}
        helps = await tab.page.evaluate(say, [sure, [[0.3, -0.1], [0.6, 0.05]]])
        assert helps.startswith("“warm” (check in) helps: users wrote after 60 % of the")
        compared = await tab.page.evaluate(say, [sure, [[0.3, -0.1]]])
        assert "answered more often than “dry”: 90 % against 10 %" in compared
        assert (await tab.page.evaluate(say, [unsure, []])).startswith("50 % of 6 follow-ups were")


async def test_what_arrives_does_not_move_the_focus(browser: Browser, site: Served) -> None:
    """A keyboard user stays where they are when an agent writes."""
    async with tab_of(browser, site, viewport={"width": 1440, "height": 900}) as tab:
        await tab.begin("Calm")
        await tab.page.get_by_role("button", name="Inspector").click()
        await tab.say("Which chords first?")
        await tab.check_shows("Shall we go on?")
        decisions = tab.page.get_by_role("tab", name="Decisions")
        await decisions.click()
        thread = tab.page.url.rpartition("/")[2]
        await site.segue.follow_up(thread, after=timedelta(seconds=0.2))
        await tab.check_shows(FOLLOW_UP)
        await expect(decisions).to_be_focused()


async def test_preferences_memories_and_reminders_are_kept(browser: Browser, site: Served) -> None:
    """Set in the page, read back from the server."""
    async with tab_of(browser, site) as tab:
        await tab.begin("Calm")
        await tab.page.goto(f"{site.address}/#/preferences")
        await tab.page.get_by_label("From", exact=True).fill("21:30")
        await tab.page.get_by_role("button", name="Set", exact=True).click()
        await tab.page.get_by_text("No agent writes first between these hours.").wait_for()
        wishes = await site.segue.get_user_preferences("me")
        assert wishes["quiet_hours"] == {"start": "21:30", "end": "08:00"}
        await tab.page.get_by_role("button", name="Clear").click()
        await expect(tab.page.get_by_role("button", name="Clear")).to_have_count(0)
        await tab.page.goto(f"{site.address}/#/reminders")
        await tab.page.get_by_label("Remind me to").fill("call mum")
        await tab.page.get_by_role("button", name="Add").click()
        await tab.page.get_by_role("button", name="Cancel: call mum").wait_for()
        assert [each.text for each in await site.segue.list_reminders("me")] == ["call mum"]
        await tab.page.get_by_role("button", name="Cancel: call mum").click()
        await tab.page.get_by_text("No reminders yet.").wait_for()
        assert await site.segue.list_reminders("me") == []


async def test_all_can_be_done_by_keyboard(browser: Browser, site: Served) -> None:
    """From the first key to the sent message, without a pointer."""
    async with tab_of(browser, site) as tab:
        page = tab.page
        await expect(page.get_by_role("textbox", name="Write to")).to_be_focused()
        await page.get_by_role("button", name="New", exact=True).focus()
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Ada", exact=True).wait_for()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")  # the first agent
        box = page.get_by_role("textbox", name="Write to")
        await expect(box).to_be_focused()
        await page.keyboard.type("Keys only, xylophone.")
        await page.keyboard.press("Enter")
        await tab.check_shows("You said: Keys only, xylophone.")
        await page.keyboard.press("Control+k")
        await expect(page.get_by_role("dialog").get_by_role("searchbox")).to_be_focused()
        await page.keyboard.type("xylophone")
        await page.get_by_role("dialog").get_by_role("link").first.wait_for()
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("ArrowUp")
        await page.keyboard.press("Enter")
        await page.locator("segue-message.found").wait_for()
        assert "Keys only, xylophone." in await tab.words()
        await page.evaluate("document.activeElement.blur()")
        await page.keyboard.press("?")
        await page.get_by_role("heading", name="Keys", exact=True).wait_for()
        await page.keyboard.press("Escape")


async def test_an_unknown_conversation_is_reported(browser: Browser, site: Served) -> None:
    """One sentence above the start page, and none on the start page itself."""
    async with tab_of(browser, site) as tab:
        await tab.page.goto(f"{site.address}/#/t/12345")
        note = tab.page.get_by_role("status").get_by_text("This conversation does not exist, or it")
        await note.wait_for(timeout=20_000)
        await tab.page.goto(f"{site.address}/#/")
        await expect(note).to_have_count(0)
        tab.mistakes[:] = [each for each in tab.mistakes if "404" not in each]


async def test_dialogs_look_alike_and_show_the_focus(browser: Browser, site: Served) -> None:
    """The page behind them is equally dark, and the ring of the search lies inside its dialog."""
    behind = "each => getComputedStyle(each, '::backdrop').backgroundColor"
    ring = "each => getComputedStyle(each).outlineOffset"
    async with tab_of(browser, site) as tab:
        dialogs = tab.page.locator("dialog")
        await expect(dialogs).to_have_count(2)
        shades = {await dialog.evaluate(behind) for dialog in await dialogs.all()}
        assert shades == {"rgba(0, 0, 0, 0.35)"}
        await tab.page.keyboard.press("Control+k")
        field = tab.page.get_by_role("dialog").get_by_role("searchbox")
        await expect(field).to_be_focused()
        assert await field.evaluate(ring) == "-2px"


async def test_a_phone_shows_one_thing_at_a_time(browser: Browser, site: Served) -> None:
    """The list, then the conversation, and a way back; nothing is wider than the screen."""
    async with tab_of(browser, site, viewport={"width": 390, "height": 800}) as tab:
        await tab.begin("Calm")
        await tab.say("Which chords first?")
        await tab.check_shows("Start with G")
        assert not await tab.page.get_by_role("navigation", name="Conversations").is_visible()
        wide = await tab.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390
        await tab.page.get_by_role("button", name="Back to the conversations").click()
        await tab.page.get_by_role("navigation", name="Conversations").wait_for()


async def test_memories_are_edited_and_searched(browser: Browser, site: Served) -> None:
    """Added, corrected, found and forgotten, as the server has them."""
    async with tab_of(browser, site) as tab:
        page = tab.page
        await page.goto(f"{site.address}/#/memories")
        await page.get_by_role("combobox").select_option("minder")
        await page.get_by_label("Something to remember").fill("I play the guitar.")
        await page.get_by_role("button", name="Remember").click()
        await page.get_by_role("button", name="Edit: I play the guitar.").click()
        await page.get_by_label("The memory").fill("I play the lute.")
        await page.get_by_role("button", name="Save").click()
        await page.get_by_text("I play the lute.").wait_for()
        assert [m.content for m in await site.segue.list_memories("me", "minder")] == [
            "I play the lute."
        ]
        await page.get_by_label("Search memories").fill("lute")
        await page.keyboard.press("Enter")
        await page.get_by_text("match").wait_for()
        await page.get_by_role("button", name="Forget: I play the lute.").click()
        await page.get_by_text("Nothing found for “lute”.").wait_for()
        assert await site.segue.list_memories("me", "minder") == []


async def test_a_refused_reminder_speaks_to_the_user(browser: Browser, site: Served) -> None:
    """Not to the model; and nothing promises that a model without tools takes reminders."""
    async with tab_of(browser, site) as tab:
        await tab.begin("Calm")
        await site.segue.set_user_preferences("me", opted_out=True)
        await tab.page.goto(f"{site.address}/#/reminders")
        await tab.page.get_by_label("Remind me to").fill("call mum")
        await tab.page.get_by_role("button", name="Add").click()
        told = await tab.page.get_by_role("alert").text_content()
        await site.segue.set_user_preferences("me", opted_out=None)
        assert told is not None
        assert "the preferences say that agents do not write first" in told
        assert "user" not in told
        assert not await tab.page.get_by_text("You can also ask").count()
        tab.mistakes.clear()  # the browser notes the refusal


async def test_an_operator_settles_a_batch_in_the_inspector(browser: Browser, site: Served) -> None:
    """A question that stays unanswered: the batch is whole then, and the form is gone."""
    async with tab_of(browser, site, viewport={"width": 1440, "height": 900}) as tab:
        await tab.begin("Asker")
        await tab.page.get_by_role("button", name="Inspector").click()
        await tab.say("Book a table.")
        await tab.page.get_by_role("form", name="A question for you").wait_for()
        async with tab.page.expect_download() as saved:
            await tab.page.get_by_role("button", name="Export").click()
        assert (await saved.value).suggested_filename.startswith("batch-")
        await tab.page.get_by_role("button", name="Settle").click()
        await tab.page.get_by_text("complete ·").wait_for()
        await tab.page.reload()
        await tab.check_shows("Book a table.")
        await expect(tab.page.get_by_role("form", name="A question for you")).to_have_count(0)
        await tab.page.get_by_role("tab", name="Server").click()
        await tab.page.get_by_text("No failed deliveries.").wait_for()


async def test_outcomes_fit_on_every_screen(browser: Browser, site: Served) -> None:
    """No number is cut off, neither at 1280 pixels nor on a phone."""
    for width in (1280, 390):
        async with tab_of(browser, site, viewport={"width": width, "height": 800}) as tab:
            await tab.begin("Ada")
            await tab.say("Which chords first?")
            await tab.check_wrote_first(FOLLOW_UP)
            await tab.page.goto(f"{site.address}/outcomes")
            table = tab.page.get_by_role("group", name="The numbers")
            await table.wait_for()
            await expect(tab.page.get_by_text("still open").first).to_be_visible()
            for place in (table, *await tab.page.locator("figure").all()):
                room = await place.evaluate("each => [each.scrollWidth, each.clientWidth]")
                assert room[0] <= room[1], width
