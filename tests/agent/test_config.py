"""What a config says about speaking first, and what it refuses."""

from datetime import time, timedelta
from typing import Any

import pytest

from segue import TriggerType
from segue.core.autonomy.decide import Delays
from segue.core.autonomy.local_time import QuietHours
from segue.core.autonomy.policy import Policy
from segue.core.triggers import PromptVariant, choose_prompt
from segue.errors import UsageError
from segue.settings.agents import AgentConfig, Autonomy, MemoryConfig


def test_an_agent_speaks_first_without_being_told() -> None:
    """With nothing in the config the rules decide, with the default policy and fixed prompts."""
    autonomy = AgentConfig(id="ada").autonomy
    assert autonomy.enabled
    assert (autonomy.policy, autonomy.delays) == (Policy(), Delays())
    assert (autonomy.decider, autonomy.missed, autonomy.holdout) == ("rules", "run", 0)
    assert autonomy.prompts == {}


def test_autonomy_is_read_from_plain_values() -> None:
    """What a file can hold becomes what the gates, the decider and the prompts take."""
    values = {
        "policy": {"max_per_day": 2, "quiet_hours": {"start": "22:00", "end": "07:30"}},
        "delays": {"check_in": "2h", "task_incomplete": 90},
        "prompts": {
            "check_in": "Ask how it went.",
            "task_incomplete": [
                {"name": "warm", "text": "Ask kindly.", "weight": 2},
                {"name": "brief", "text": "Ask."},
            ],
        },
        "holdout": 0.1,
        "decider": "my_package.deciders:mine",
        "missed": "run_if_within:30",
    }
    autonomy = AgentConfig.parse({"id": "ada", "autonomy": values}, "agent").autonomy
    night = QuietHours(time(22), time(7, 30))
    assert autonomy.policy == Policy(max_per_day=2, quiet_hours=night)
    assert autonomy.delays == Delays(
        check_in=timedelta(hours=2), task_incomplete=timedelta(seconds=90)
    )
    assert autonomy.prompts == {
        TriggerType.CHECK_IN: (PromptVariant(name="own", text="Ask how it went."),),
        TriggerType.TASK_INCOMPLETE: (
            PromptVariant(name="warm", text="Ask kindly.", weight=2),
            PromptVariant(name="brief", text="Ask."),
        ),
    }
    chosen = choose_prompt(autonomy.prompts, 0, "check_in", "thread")
    assert chosen is not None
    assert chosen.text == "Ask how it went."


def test_autonomy_takes_values_that_are_made_already() -> None:
    """In Python the policy and the delays are given as they are."""
    policy, delays = Policy(max_consecutive=1), Delays(check_in=timedelta(minutes=1))
    autonomy = Autonomy(policy=policy, delays=delays)
    assert autonomy.policy is policy
    assert autonomy.delays is delays


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"policy": {"max_per_week": 2}}, "autonomy.policy.max_per_week"),
    ({"policy": {"max_per_day": -1}}, "autonomy.policy.max_per_day: got -1; .*at least 0"),
    ({"delays": {"check_in": 0}}, "autonomy.delays.check_in: got 0; .*more than 0"),
    ({"delays": Delays(check_in=timedelta())}, "check_in is not greater than 0"),
    ({"delays": {"birthday": 60}}, "autonomy.delays.birthday"),
    ({"prompts": {"birthday": "Hi."}}, "autonomy.prompts.birthday.*check_in"),
    ({"prompts": {"check_in": " "}}, "autonomy.prompts.check_in.*is empty"),
    ({"prompts": {"check_in": []}}, "autonomy.prompts.check_in: No variant"),
    ({"prompts": {"check_in": [{"name": "a", "text": ""}]}}, "'a' is empty"),
    ({"prompts": {"check_in": [{"name": "a", "text": "Hi.", "weight": 0}]}}, "weight of .*'a'"),
    ({"prompts": {"check_in": [{"name": "a", "text": "Hi."}] * 2}}, "share a name: a, a"),
    ({"prompts": {"check_in": [{"name": "a", "text": "Hi.", "wait": 1}]}}, "0.wait: unknown"),
    ({"decider": "magic"}, "autonomy.decider: Unknown decider 'magic'"),
    ({"missed": "never"}, "autonomy.missed: Unknown policy 'never'"),
    ({"missed": "run_if_within:soon"}, "autonomy.missed"),
    ({"expires_after": True}, "autonomy.expires_after: got true or false; expected a length"),
    (
        {"policy": {"quiet_hours": {"start": "late", "end": "07:00"}}},
        "quiet_hours.start: got 'late'",
    ),
    (
        {"policy": {"quiet_hours": {"start": "08:00", "end": "08:00"}}},
        "policy.quiet_hours: Quiet hours cannot start and end at the same time, 08:00",
    ),
    ({"policy": {"quiet_hours": {"start": "22:00Z", "end": "07:00"}}}, "without a time zone"),
]


@pytest.mark.parametrize(("values", "said"), REFUSED)
def test_autonomy_that_cannot_be_meant_is_refused(values: dict[str, Any], said: str) -> None:
    """The error names the setting and says what was expected, in one sentence each."""
    with pytest.raises(UsageError, match=said) as error:
        Autonomy.parse(values, "autonomy")
    assert "Value error" not in str(error.value)
    assert not str(error.value).endswith("..")


@pytest.mark.parametrize(
    ("written", "kept"),
    [("run_if_within:1h30m", "run_if_within:5400"), ("run_if_within:0.5", "run_if_within:0.5")],
)
def test_lateness_is_kept_in_seconds(written: str, kept: str) -> None:
    """The gate reads seconds, whatever a person wrote."""
    assert Autonomy(missed=written).missed == kept


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("30s", timedelta(seconds=30)),
        ("5m", timedelta(minutes=5)),
        ("2h", timedelta(hours=2)),
        ("1d", timedelta(days=1)),
        ("1h30m", timedelta(minutes=90)),
        ("PT2H", timedelta(hours=2)),
        ("02:30:00", timedelta(minutes=150)),
        ("45", timedelta(seconds=45)),
        (1.5, timedelta(seconds=1.5)),
        (timedelta(minutes=3), timedelta(minutes=3)),
    ],
)
def test_lengths_of_time_are_written_alike_everywhere(written: Any, meant: timedelta) -> None:
    """In a section, in the policy and in the delays: with units, in seconds, or as a timedelta."""
    values = {
        "expires_after": written,
        "policy": {"cooldown": written},
        "delays": {"check_in": written},
    }
    autonomy = Autonomy.parse(values, "autonomy")
    found = (autonomy.expires_after, autonomy.policy.cooldown, autonomy.delays.check_in)
    assert found == (meant, meant, meant)


def test_a_word_stands_for_none() -> None:
    """Neither a file nor the environment has another way to write it."""
    autonomy = Autonomy.parse({"expires_after": "none"}, "autonomy")
    assert autonomy.expires_after is None
    assert MemoryConfig.parse({"threshold": "none"}, "memory").threshold is None


def test_a_list_may_be_one_text() -> None:
    """As the environment writes it."""
    agent = AgentConfig.parse({"id": "ada", "may_ask": "bob, eve", "tools": "a.b:c"}, "agent")
    assert (agent.may_ask, agent.tools) == (("bob", "eve"), ("a.b:c",))


def test_a_config_never_changes() -> None:
    """What was checked stays as it was checked."""
    with pytest.raises(ValueError, match="frozen"):
        Autonomy().enabled = False


@pytest.mark.parametrize("name", ["", "minilm", "openai:", ":x", " :x", "openai: "])
def test_a_name_that_is_no_embedders_is_refused_by_the_config(name: str) -> None:
    """A wrong name shows when the config is read, not when the first memory is searched."""
    with pytest.raises(UsageError, match=r"memory.embedder: Unknown embedder .*'local'"):
        MemoryConfig.parse({"embedder": name}, "memory")


@pytest.mark.parametrize("name", ["local", "openai:text-embedding-3-small", "ollama:a:b"])
def test_names_of_embedders_are_taken(name: str) -> None:
    """Whether a provider is there shows when it is loaded."""
    assert MemoryConfig(embedder=name).embedder == name


def test_a_webhook_shows_neither_its_secret_nor_its_url() -> None:
    """Paths and queries of webhooks are often secrets; a config may be printed all the same."""
    hook = {"url": "https://example.org/hooks/s3cr3t?key=hush", "secret": "not-to-be-guessed"}
    shown = repr(AgentConfig.parse({"id": "ada", "webhook": hook}, "agent"))
    assert "WebhookConfig" in shown
    for hidden in ("s3cr3t", "hush", "guessed"):
        assert hidden not in shown


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"model": "scripted"}, "model"),
        ({"model_settings": {"delay": 0}}, "model_settings"),
        ({"system_prompt": "You count."}, "system_prompt"),
        ({"tools": [len]}, "tools"),
        ({"continuations": 2}, "continuations"),
        ({"may_ask": ["bob"]}, "may_ask"),
        ({"limits": {"model_time": "5s"}}, "limits.model_time"),
        ({"limits": {"tool_time": "60s"}}, "limits.tool_time"),
        ({"memory": {"limit": 3}}, "memory.limit"),
        ({"compression": {"keep": 2}}, "compression"),
    ],
)
def test_what_a_graph_would_not_follow_is_refused(values: dict[str, Any], place: str) -> None:
    """With its place and the reason, even if it is what the default would be."""
    AgentConfig.parse({"id": "ada", **values}, "agent")
    with pytest.raises(UsageError, match=rf"^agent\.{place}: the agent has its own graph"):
        AgentConfig.parse({"id": "ada", "graph": "mine:graph", **values}, "agent")


def test_what_a_graph_can_follow_is_taken() -> None:
    """Defaults are no wish; memories, steps, the window and an own model of the decider work."""
    AgentConfig(id="ada", graph="mine:graph")
    config = AgentConfig.parse(
        {
            "id": "ada",
            "graph": "mine:graph",
            "model": "scripted",
            "autonomy": {"decider": "model"},
            "memory": {"enabled": True, "limit": 3},
            "limits": {"steps": 5},
            "compression": {"strategy": "truncate"},
            "context_tokens": 4_000,
            "continuations": 0,
            "may_ask": [],
        },
        "agent",
    )
    assert config.keeps_memories


def test_an_agent_with_a_graph_remembers_only_if_that_is_set() -> None:
    """The built-in agent does of itself."""
    assert AgentConfig(id="ada").keeps_memories
    assert not AgentConfig(id="ada", graph="mine:graph").keeps_memories
    off = MemoryConfig(enabled=False, limit=3)
    assert not AgentConfig(id="ada", graph="mine:graph", memory=off).keeps_memories
