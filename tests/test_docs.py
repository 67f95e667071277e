"""What the documents show really happens."""

import asyncio
import pkgutil
import re
import subprocess
import sys
from contextlib import redirect_stdout
from datetime import timedelta
from io import StringIO
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

import segue
from segue.autonomy import Delays, judge
from tests.histories import ticking_generator

ROOT = Path(__file__).parent.parent
# Each page with the number of its programs that show what they print.
PAGES = {
    "README.md": 1,
    "docs/library.md": 3,
    "docs/journal.md": 1,
    "docs/agent.md": 5,
    "docs/runtime.md": 3,
    "docs/settings.md": 2,
    "docs/outcomes.md": 1,
    "docs/migrate.md": 1,
    "docs/compression.md": 1,
    "docs/simulate.md": 1,
}
BLOCKS = re.compile(r"^```(python|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run(page: Path) -> list[tuple[str, str]]:
    """Run a page's programs in order, and pair what each printed with the page's next text."""
    printed: list[tuple[str, str]] = []
    scope: dict[str, Any] = {}
    output = ""
    for kind, block in BLOCKS.findall(page.read_text(encoding="utf-8")):
        if kind == "python":
            buffer = StringIO()
            with redirect_stdout(buffer):
                exec(compile(block, str(page), "exec"), scope)  # noqa: S102  # our own pages
            output = buffer.getvalue()
        elif output:
            printed.append((output, block))
            output = ""
    return printed


@pytest.mark.parametrize("page", PAGES)
def test_every_program_of_a_page_runs(page: str) -> None:
    """A reader who copies a page's programs gets no error, and the output the page shows."""
    shown = run(ROOT / page)
    assert [output for output, _ in shown] == [text for _, text in shown]
    assert len(shown) == PAGES[page]


def test_the_example_with_a_scheduler_of_its_own_runs() -> None:
    """One follow-up on its own timer, gates that refuse a second, and a user who says stop."""
    call = [sys.executable, str(ROOT / "examples" / "own_scheduler.py")]
    result = subprocess.run(call, check=False, capture_output=True, text=True)  # noqa: S603 - ours
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "sam:   I want to learn the guitar.",
        "agent: Which songs do you like?",
        "plan:  The reply asks the user something.",
        "gates: All gates are open.",
        "agent: Shall I name some easy ones?",
        "plan:  The reply leaves the user something to decide.",
        "gates: 1 of 1 follow-ups sent since the user last wrote; the user is next.",
        "sam:   Please stop writing to me.",
        "agent: All right, I won't.",
        "plan:  The user asked not to be written to.",
        "remind: Monday 18 January 2027, 09:00 (Europe/Berlin), then every week on Monday at 09:00",
    ]


def test_the_example_with_a_scheduler_of_its_own_waits_for_a_user_who_said_not_now() -> None:
    """The follow-up is armed again for the time that the user named; no model is asked."""
    armed: list[Any] = []
    example = run_path(str(ROOT / "examples" / "own_scheduler.py"))
    companion = example["Companion"](agent=None)
    companion._arm = lambda *given: armed.append(given)
    due_at = example["now"]()
    until = due_at + timedelta(days=1)
    companion.preferences = {"snoozed_until": until.isoformat()}
    asyncio.run(companion._fire("check_in", due_at, companion.epoch))
    assert armed == [("check_in", until, companion.epoch)]


# As JavaScript, Python and a shell write them.
SENT = re.compile(r'''(?:"human"|"user"), "?content"?: "(.+?)"|langgraph_chat\.py "(.+?)"''')


@pytest.mark.parametrize(
    "place", ["docs/clients.md", "examples/clients/README.md", "examples/clients/langgraph_chat.py"]
)
def test_what_the_clients_send_brings_a_follow_up(place: str) -> None:
    """A reader who runs an example sees the agent speak first, whatever it replied."""
    sent = {a or b for a, b in SENT.findall((ROOT / place).read_text(encoding="utf-8"))}
    assert sent
    for text in sent:
        talk = [HumanMessage(text), AIMessage("Start with G and C.")]
        [batch] = segue.group_batches(segue.stamp(talk, ticking_generator()))
        assert judge(batch).plan(Delays()) is not None, text


LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = HEADING.findall(page.read_text(encoding="utf-8"))
    bare = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {title.replace(" ", "-") for title in bare}


def broken_links(page: Path) -> list[str]:
    """The links of a page to a file or heading that is not there."""
    broken = []
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


def test_every_link_leads_somewhere(tmp_path: Path) -> None:
    """To a file that exists, and to a heading in it."""
    wrong = tmp_path / "wrong.md"
    wrong.write_text("# A b\n[a](no.md) [b](#no) [c](#a-b) [d](wrong.md#a-b) [e](wrong.md#no)")
    assert broken_links(wrong) == ["no.md", "#no", "wrong.md#no"]
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    broken = {str(page.relative_to(ROOT)): broken_links(page) for page in pages}
    assert {page: links for page, links in broken.items() if links} == {}


def test_the_readme_can_be_read_in_one_sitting() -> None:
    """At most 150 lines."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


REFERENCES = re.findall(r"`(segue\.\w[\w.]*)", (ROOT / "docs/reference.md").read_text("utf-8"))


@pytest.mark.parametrize("name", REFERENCES)
def test_what_the_reference_names_is_there(name: str) -> None:
    """Every module and class that the page spells out can be imported by that name."""
    assert pkgutil.resolve_name(name)


def test_the_reference_names_everything_public() -> None:
    """A name that can be imported is on the page that lists them."""
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert [name for name in segue.__all__ if f"`{name}" not in page] == []
