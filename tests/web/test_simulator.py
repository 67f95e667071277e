"""The simulator in a real browser: two policies, one week each, and why something was not sent."""

import re

import pytest
from playwright.async_api import Browser, expect

from tests.web.stage import FOLLOW_UP, Served, tab_of
from tests.web.test_views import AXE, check_accessible

pytestmark = pytest.mark.anyio


async def test_two_policies_are_compared_on_one_story(browser: Browser, site: Served) -> None:
    """A cap is lowered: the second week has fewer marks, and the sentence says how many."""
    async with tab_of(
        browser, site, bypass_csp=True, viewport={"width": 1440, "height": 900}
    ) as tab:
        page = tab.page
        await page.add_init_script(AXE)
        await page.get_by_role("link", name="Simulator").click()
        await page.get_by_role("heading", name="Simulator").wait_for()
        await page.get_by_text("Both policies do the same.").wait_for()
        weeks = page.locator("figure")
        await expect(weeks).to_have_count(2)
        await page.get_by_label("Agent").select_option("calm")
        field = page.get_by_label("In a row, at most, policy A")
        await field.fill("3")
        await page.get_by_label("In a row, at most, policy B").fill("0")
        await page.keyboard.press("Enter")
        await page.get_by_text("fewer follow-ups: 0 instead of").first.wait_for()
        await weeks.nth(0).locator(".mark .follow_up").first.wait_for()
        await expect(weeks.nth(1).locator(".mark .follow_up")).to_have_count(0)
        await check_accessible(tab, "the simulator")


async def test_a_mark_says_why_and_a_wrong_field_is_named(browser: Browser, site: Served) -> None:
    """By keyboard as by pointer; a mistake is shown at its field and runs nothing."""
    async with tab_of(browser, site, viewport={"width": 390, "height": 800}) as tab:
        page = tab.page
        await page.goto(f"{site.address}/simulate")
        await page.locator("figure").first.wait_for()
        await page.get_by_label("Quiet hours, policy A").fill("21:00 to 09:30")
        await page.get_by_label("After a question, policy A").fill("8h")
        await page.get_by_role("button", name="Simulate").click()
        await page.get_by_text("quiet 21:00 to 09:30").wait_for()
        mark = page.locator("figure").first.locator(".mark:has(.postponed)").first
        await mark.focus()
        told = page.locator("figure").first.locator(".told")
        await expect(told).to_contain_text("until")
        await expect(told).to_contain_text("quiet hours")
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390
        story = await page.get_by_label("Story").bounding_box()
        assert story is not None
        assert story["x"] + story["width"] <= 390 - 20, "it stays inside its box"
        await page.get_by_label("Between two, at least, policy B").fill("soon")
        await page.keyboard.press("Enter")
        await page.get_by_role("alert").get_by_text("policy B.policy.cooldown").wait_for()
        wrong = page.get_by_label("Between two, at least, policy B")
        await expect(wrong).to_have_attribute("aria-invalid", "true")
        await expect(page.locator("figure")).to_have_count(0)
        await page.get_by_role("button", name="Reset").click()
        await expect(wrong).not_to_have_attribute("aria-invalid", "true")
        await expect(page.get_by_role("alert")).to_have_count(0)
        tab.mistakes[:] = [each for each in tab.mistakes if "422" not in each]


async def test_marks_of_one_spot_show_their_number(browser: Browser, site: Served) -> None:
    """The numbers add up to those of the week, and each follow-up has its reason."""
    async with tab_of(browser, site, viewport={"width": 1440, "height": 900}) as tab:
        page = tab.page
        await page.goto(f"{site.address}/simulate")
        week = page.locator("figure").first
        await week.wait_for()
        await page.get_by_label("Agent").select_option("ada")
        await page.get_by_label("In a row, at most, policy A").fill("3")
        await page.keyboard.press("Enter")
        marks = week.locator(".mark:has(.follow_up)")
        await marks.first.wait_for()
        texts = [await each.text_content() or "" for each in await marks.all()]
        numbers = [int(text.strip()[1:] or 1) for text in texts]
        assert max(numbers) > 1
        assert f"· {sum(numbers)} follow-ups ·" in await week.inner_text()
        box = "all => Math.{0}(...all.map((each) => each.getBoundingClientRect().{1}))"
        latest = await marks.locator("text").evaluate_all(box.format("max", "right"))
        sums = week.locator("text", has_text="/1000")
        assert latest < await sums.evaluate_all(box.format("max", "left")), "both can be read"
        await marks.nth(numbers.index(max(numbers))).focus()
        told = await week.locator(".told").inner_text()
        assert len(told.strip().splitlines()) == max(numbers)


async def test_the_past_of_a_conversation_is_a_story_too(browser: Browser, site: Served) -> None:
    """What was really said, under the policy of now and another one."""
    async with tab_of(browser, site) as tab:
        await tab.begin("Ada")
        await tab.say("Which chords first, in the past?")
        await tab.check_wrote_first(FOLLOW_UP)
        page = tab.page
        await page.goto(f"{site.address}/simulate")
        await page.locator("figure").first.wait_for()
        story = page.get_by_label("Story")
        option = story.locator("option", has_text="in the past?").first
        await story.select_option(await option.get_attribute("value"))
        await page.get_by_label("In a row, at most, policy B").fill("0")
        await page.get_by_role("button", name="Simulate").click()
        await page.get_by_text("B sends 1 fewer follow-up: 0 instead of 1.").wait_for()
        sent = page.locator("figure").nth(0).locator(".mark:has(.follow_up)")
        await expect(sent).to_have_count(1)
        await expect(sent).to_have_attribute("aria-label", re.compile("would be sent. All gates"))
        unsent = page.locator("figure").nth(1).locator(".mark:has(.not_sent)").first
        await expect(unsent).to_have_attribute("aria-label", re.compile("the cap in a row"))
