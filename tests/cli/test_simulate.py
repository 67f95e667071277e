"""`segue simulate`, as a person uses it."""

import json
import pkgutil
import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from segue.cli import app, output
from segue.core.autonomy.gates import FOR_FOLLOW_UPS, Gate
from segue.core.triggers import TRIGGER_PROMPTS

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "scenarios").glob("*.toml"))
STORY = """
title = "A [red]story[/red]"
start = 2027-03-01T09:00:00
for = "1 day"
[user]
id = "mia"
time_zone = "Europe/Berlin"
[[agents]]
id = "coach"
[agents.autonomy.policy]
max_consecutive = 1
[agents.autonomy.prompts]
question_unanswered = "Ask about the zebra called Archibald."
[[events]]
at = "+0s"
replies = ["What is your [bold]goal[/bold]?"]
[[events]]
at = "+0s"
say = "I want to run."
[[events]]
at = "day 1 20:00"
say = "Bye!"
"""

Segue = Callable[..., Result]


@pytest.fixture
def segue() -> Segue:
    runner = CliRunner()
    return lambda *args: runner.invoke(app, [*map(str, args)], env={"COLUMNS": "100"})


@pytest.fixture
def story(tmp_path: Path) -> Path:
    path = tmp_path / "story.toml"
    path.write_text(STORY, encoding="utf-8")
    return path


def test_there_are_examples() -> None:
    """A newcomer finds something to run."""
    assert [path.stem for path in EXAMPLES] == ["quiet-week", "travel"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs(segue: Segue, example: Path) -> None:
    """With comments that say what it is for, and something sent and something not."""
    assert example.read_text(encoding="utf-8").startswith("# ")
    result = segue("simulate", example, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    totals = json.loads(result.stdout)["totals"]
    assert totals["sent"] > 0
    assert totals["postponed_by_gate"]
    assert totals["not_sent_by_gate"]


def test_the_travel_example_shows_what_its_comments_say(segue: Segue) -> None:
    """An outage, a follow-up that was missed, one that is stale and one that is muted."""
    travel = next(path for path in EXAMPLES if path.stem == "travel")
    totals = json.loads(segue("simulate", travel, "--json").stdout)["totals"]
    assert totals["outages"] == 1
    assert totals["not_sent_by_gate"] == {"missed": 1, "muted": 1, "stale": 1}


def test_the_timeline_says_when_who_what_and_why(segue: Segue, story: Path) -> None:
    """On the user's clock, with words as they were said, and then the totals."""
    result = segue("simulate", story)
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[0] == "A [red]story[/red]: mia from 2027-03-01 09:00 to 2027-03-02 09:00"
    assert "when who what why" in lines
    assert "Mon 01 Mar 09:00 mia I want to run." in lines
    assert "Mon 01 Mar 09:00 coach What is your [bold]goal[/bold]?" in lines
    assert any(re.match(r"Mon 01 Mar 10:00 coach .*question_unanswered: The", x) for x in lines)
    assert "sent 1 question_unanswered 1; 1 answered" in lines
    assert "at night 0 0% of those sent, from 22:00 to 08:00" in lines
    assert (
        "not planned 1 The conversation is closed: goodbye, thanks, or nothing more needed."
        in lines
    )
    assert "longest silence 13h from Mon 01 Mar 20:00" in lines
    assert any(line.startswith("model calls 3 about ") for line in lines)


def test_in_a_pipe_the_timeline_is_lines_with_tabs(segue: Segue, story: Path) -> None:
    """Neither padded nor wrapped, as other commands write their tables."""
    lines = segue("simulate", story).stdout.splitlines()
    assert lines[1] == "when\twho\twhat\twhy"
    assert "Mon 01 Mar 09:00\tmia\tI want to run.\t" in lines
    assert "sent\t1\tquestion_unanswered 1; 1 answered" in lines
    assert all(line == line.rstrip(" ") for line in lines)


def test_verbose_shows_every_gate(segue: Segue, story: Path) -> None:
    """And what was planned; without it, neither is in the way."""
    plain, verbose = segue("simulate", story).stdout, segue("simulate", story, "-v").stdout
    assert "question_unanswered is planned" not in plain
    assert "question_unanswered is planned" in verbose
    for gate in FOR_FOLLOW_UPS:
        assert f"\t{gate.value}\tallow: " not in plain
        assert f"\t{gate.value}\tallow: " in verbose


def test_the_json_is_stable(segue: Segue, story: Path) -> None:
    """The same twice, in the documented shape."""
    first, second = (segue("simulate", story, "--json").stdout for _ in range(2))
    assert first == second
    report = json.loads(first)
    assert list(report) == ["format", "title", "seed", "user", "start", "end", "entries", "totals"]
    assert report["format"] == 1
    assert report["start"] == "2027-03-01T09:00:00+01:00"
    sent = next(entry for entry in report["entries"] if entry["kind"] == "follow_up")
    assert sent["at"] == "2027-03-01T10:00:00+01:00"
    assert sent["trigger"] == "question_unanswered"
    assert sent["variant"] == "own"
    assert [verdict["gate"] for verdict in sent["verdicts"]] == [
        gate.value for gate in Gate if gate in FOR_FOLLOW_UPS
    ]


def test_another_seed_is_another_user(segue: Segue, story: Path) -> None:
    """It takes the place of the scenario's."""
    assert json.loads(segue("simulate", story, "--json", "--seed", "9").stdout)["seed"] == 9


@pytest.mark.parametrize("options", [[], ["--verbose"], ["--json"]], ids=str)
def test_a_triggers_words_are_never_printed(segue: Segue, story: Path, options: list[str]) -> None:
    """Not the fixed ones, and not the owner's own."""
    printed = " ".join(segue("simulate", story, *options).stdout.lower().split())
    assert "question_unanswered" in printed
    for words in ("zebra", "archibald", *map(str.lower, TRIGGER_PROMPTS.values())):
        assert words not in printed


def test_the_database_is_kept_where_it_is_wanted(segue: Segue, story: Path, tmp_path: Path) -> None:
    """In a new folder; one with a journal in it is refused."""
    folder = tmp_path / "kept"
    assert segue("simulate", story, "--database", folder).exit_code == 0
    assert (folder / "journal.db").exists()
    again = segue("simulate", story, "--database", folder)
    assert again.exit_code == 2
    assert "holds a journal already" in again.stderr


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("+0s", "soon", "event 1: at: 'soon' is not a moment"),
        ("1 day", "1 month", "for: got '1 month'; expected a length of time"),
        ("Europe/Berlin", "Mars", "user.time_zone: 'Mars' is not a time zone"),
        (
            "max_consecutive",
            "max_consecutiv",
            "autonomy.policy.max_consecutiv: unknown",
        ),
        ("start =", "start", "is not TOML"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    segue: Segue, story: Path, old: str, new: str, named: str
) -> None:
    """It names the file and the setting; there is no traceback, and nothing on stdout."""
    story.write_text(STORY.replace(old, new), encoding="utf-8")
    result = segue("simulate", story)
    assert result.exit_code == 2
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert "story.toml" in line
    assert named in line


def test_a_file_that_is_not_there_is_named(segue: Segue) -> None:
    """As any other mistake."""
    result = segue("simulate", "nowhere.toml")
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert line.startswith("Error: The scenario '")
    assert line.endswith("nowhere.toml' does not exist.")


def test_what_cannot_be_loaded_is_told_too(segue: Segue, story: Path) -> None:
    """A mistake that shows only when the system starts is one line as well."""
    story.write_text(STORY.replace('id = "coach"', 'id = "coach"\ntools = ["no.such:thing"]'))
    result = segue("simulate", story)
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert "tool 'no.such:thing' cannot be loaded" in line


def test_help_says_what_it_does(segue: Segue) -> None:
    """Of the program and of the command."""
    assert "simulate" in segue("--help").stdout
    assert "--verbose" in segue("simulate", "--help").stdout


def test_the_program_is_installed() -> None:
    """The entry point of the package leads to it, with all that it needs to start."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert callable(pkgutil.resolve_name(project["scripts"]["segue"]))
    needed = {re.split(r"[<>=\[]", name)[0] for name in project["dependencies"]}
    assert {"typer", "rich"} <= needed


def test_the_page_shows_what_is_printed(
    segue: Segue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scenario of the page gives the output of the page, at a terminal."""
    monkeypatch.setattr(output, "is_piped", lambda: False)
    page = (ROOT / "docs" / "simulate.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(toml|text)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (_, scenario), (_, shown) = blocks[:2]
    path = tmp_path / "two-days.toml"
    path.write_text(scenario, encoding="utf-8")
    printed = segue("simulate", path).stdout.splitlines()
    assert [line.rstrip() for line in printed] == shown.splitlines()


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of the story."""
    folder = tmp_path_factory.mktemp("simulated")
    story, data = folder / "story.toml", folder / "data"
    story.write_text(STORY, encoding="utf-8")
    assert CliRunner().invoke(app, ["simulate", str(story), "--database", str(data)]).exit_code == 0
    return data


@pytest.fixture
def past(simulated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose settings lead to a copy of the database of the story."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(simulated, "data")
    settings = 'database = "data"\n[agents.coach.autonomy.policy]\nmax_consecutive = 1\n'
    (tmp_path / "segue.toml").write_text(settings, encoding="utf-8")
    return tmp_path


def told_of_past(segue: Segue, *options: str) -> dict[str, object]:
    result = segue("simulate", *options, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    report: dict[str, object] = json.loads(result.stdout)
    return report


@pytest.mark.parametrize("which", [["--all"], ["--from", "coach"]], ids=str)
def test_a_past_under_its_own_settings_is_what_it_was(
    segue: Segue, past: Path, which: list[str]
) -> None:
    """Without a policy, the present settings are replayed."""
    del past
    report = told_of_past(segue, *which)
    assert report["sent_then"] == report["sent"] == {"question_unanswered": 1}
    assert report["replies_then"] == {"question_unanswered": 1}
    assert report["sentence"] == "As many sent as then: 1. None of 1 replies lost."


@pytest.mark.parametrize("heading", ["policy", "autonomy.policy"])
def test_a_policy_is_laid_over_the_settings(segue: Segue, past: Path, heading: str) -> None:
    """What it does not name stays; the report says how many fewer, and what that costs."""
    (past / "new.toml").write_text(f"[{heading}]\nmax_per_day = 0\n", encoding="utf-8")
    report = told_of_past(segue, "--all", "--policy", "new.toml")
    assert (report["sent"], report["held_back"]) == ({}, {"daily_cap": 1})
    assert report["sentence"] == "1 fewer sent: 0 instead of 1. 1 of 1 replies lost."
    delays = "question_unanswered = '20m'\nwaiting_for_decision = '20m'\ncheck_in = '20m'"
    more = f"[delays]\n{delays}\n[policy]\nmax_consecutive = 3\n"
    (past / "more.toml").write_text(more, encoding="utf-8")
    eager = told_of_past(segue, "--all", "--policy", "more.toml")
    assert eager["difference"] == 2
    # The policy is meant for somebody else.
    other = segue("simulate", "--all", "--policy", "more.toml", "--agent", "bob")
    assert other.exit_code == 2
    assert "No conversation is with agent 'bob'; the agents are: coach." in other.stderr


def test_a_past_is_told_to_people(segue: Segue, past: Path) -> None:
    """A table, the sentence, what it cannot know, and with -v all moments; nobody's words."""
    (past / "new.toml").write_text("[policy]\nmax_per_day = 0\n", encoding="utf-8")
    result = segue("simulate", "--from", "coach", "--policy", "new.toml", "-v")
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "trigger sent then answered sent now replies lost" in lines
    assert "question_unanswered 1 1 0 1" in lines
    assert any(line.startswith("1 fewer sent: 0 instead of 1.") for line in lines)
    night = "At night, 22:00 to 08:00 on the user's clock: 0 (0%) instead of "
    assert any(line.startswith(night) for line in lines)
    assert "Held back: daily_cap 1." in lines
    assert any(line.startswith("Users write as they did then.") for line in lines)
    assert any(
        re.fullmatch(r"\S+ \S+ coach would be held back question_unanswered daily_cap", x)
        for x in lines
    )
    assert "goal" not in result.stdout
    assert "zebra" not in result.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "Name a scenario, or --from THREAD, or --all: one of the three."),
        (["--all", "--from", "coach"], "one of the three"),
        (["--from", "nobody"], "There is no thread 'nobody'"),
        (["--all", "--seed", "3"], "--seed needs a scenario."),
        (["story.toml", "--policy", "new.toml"], "--policy needs --from THREAD or --all."),
        (["--all", "--policy", "missing.toml"], "The policy "),
        (["--all", "--policy", "broken.toml"], "is not TOML"),
        (
            ["--all", "--policy", "slip.toml"],
            "policy.max_perday: unknown; did you mean max_per_day?",
        ),
        (["--all", "--policy", "wrong.toml"], "policy.max_consecutive: got -1"),
        (["--all", "--since", "yesteryear"], "is not a time or an age"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_of_a_past_is_told_in_a_line(
    segue: Segue, past: Path, options: list[str], words: str
) -> None:
    """Before anything is replayed, and with exit code 2."""
    (past / "broken.toml").write_text("policy = [", encoding="utf-8")
    (past / "slip.toml").write_text("[policy]\nmax_perday = 1\n", encoding="utf-8")
    (past / "wrong.toml").write_text("[policy]\nmax_consecutive = -1\n", encoding="utf-8")
    result = segue("simulate", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_an_empty_database_has_no_past(segue: Segue, tmp_path: Path) -> None:
    """Nor is one made where there is none."""
    missing = segue("simulate", "--all", "--database", tmp_path / "none")
    assert missing.exit_code == 2
    assert "has no database yet" in missing.stderr
    assert not (tmp_path / "none").exists()
