"""Every setting does something, and a test shows it.

`SHOWN` names that test for each. Who adds a setting adds its line; the tests here are those of
settings that no other test has to do with.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage

from segue.agent.build import build_graph
from segue.agent.memory import MemoryBook
from segue.agent.scripted import Line, ScriptedChatModel
from segue.compose import Overrides, compose
from segue.errors import UsageError
from segue.facade import Segue
from segue.journal.records import NewTimer
from segue.journal.sqlite import SqliteJournal
from segue.server.settings import ServedSettings
from segue.settings import Settings
from segue.settings.agents import AgentConfig, MemoryConfig
from segue.settings.schema import settings_of
from segue.simulate.world import START, Stage, World, plain_agent
from tests.agent.meanings import IDS, Meanings
from tests.runtime.scenes import Held
from tests.stories.scenes import eager_agent, model_of, new_thread, sent_at
from tests.test_requirements import broken_references

pytestmark = pytest.mark.anyio

HERE = "tests/settings/test_effects.py::"
REQUESTS = "tests/stories/test_requests.py::"
HOOKS = "tests/server/test_hooks.py::"
AGENT = "tests/agent/test_langgraph_agent.py::"
MEMORY = "tests/agent/test_memory.py::"
MCP = "tests/agent/test_mcp.py::"
RETRIEVAL = "tests/agent/test_retrieval.py::"
TURNS = "tests/runtime/test_turns.py::"
INBOX = "tests/runtime/test_inbox.py::"
INITIATIVE = "tests/runtime/test_after_turn.py::"
EFFECTS = "tests/runtime/test_effects.py::"
LIMITS = "tests/stories/test_limits_over_time.py::"
SILENCE = "tests/stories/test_silence.py::"
REMINDERS = "tests/stories/test_reminders.py::"
PUSH = "tests/runtime/test_notifier.py::"
RETENTION = "tests/stories/test_retention.py::"
COMPRESSION = "tests/stories/test_compression.py::"
TRIES = "tests/stories/test_tries.py::"
SERVER = "tests/settings/test_server_effects.py::"
AUTH = "tests/server/test_auth.py::"
SERVE = "tests/cli/test_serve.py::"

SHOWN = {
    "Settings.database": "tests/test_settings.py::test_a_folder_is_made_where_there_is_none",
    "Settings.agents": "tests/test_facade.py::test_the_first_agent_is_the_one_if_none_is_named",
    "Settings.double_texting": f"{INBOX}test_messages_close_together_are_one_batch_with_one_answer",
    "Settings.collect_for": f"{HERE}test_more_is_waited_for_as_long_as_it_is_set",
    "Settings.time_zone": "tests/stories/test_gates_on_the_clock.py"
    "::test_by_default_nobody_is_woken_at_night_in_the_zone_of_the_settings",
    "Settings.slots": f"{TURNS}test_a_process_works_on_as_many_turns_as_it_has_slots",
    "Settings.max_attempts": f"{TRIES}test_a_turn_that_fails_by_itself_has_its_number_of_tries",
    "Settings.max_interruptions": (
        f"{TURNS}test_a_turn_whose_process_died_is_tried_again_but_not_for_ever"
    ),
    "Settings.retries": f"{TURNS}test_how_often_a_model_is_asked_again_is_a_setting",
    "Settings.batch_time": f"{TURNS}test_a_reply_that_takes_too_long_is_stopped",
    "Settings.lease_for": f"{HERE}test_a_turn_is_taken_over_when_its_lease_is_over",
    "Settings.node_lease_for": f"{HERE}test_a_number_is_taken_over_when_its_lease_is_over",
    "Settings.poll": f"{HERE}test_what_nobody_told_of_is_found_by_looking",
    "Settings.patience": f"{HERE}test_a_process_without_patience_leaves_its_turns_to_the_next",
    "Settings.retention": f"{RETENTION}test_nothing_goes_unless_it_is_set",
    "RetentionSettings.older_than": f"{RETENTION}test_old_batches_go_once_a_day",
    "RetentionSettings.keep_last": f"{RETENTION}test_the_last_batches_can_be_kept_at_any_age",
    "RetentionSettings.types": f"{RETENTION}test_old_triggers_can_go_alone",
    "RetentionSettings.by_type": f"{RETENTION}test_a_type_may_be_kept_for_its_own_time",
    "TypeRetention.older_than": f"{RETENTION}test_a_type_may_be_kept_for_its_own_time",
    "TypeRetention.keep_last": f"{RETENTION}test_the_last_batches_of_a_type_can_be_kept",
    "Settings.push": f"{PUSH}test_a_service_that_is_not_allowed_any_more_gets_nothing",
    "PushSettings.services": f"{PUSH}test_a_service_that_is_not_allowed_any_more_gets_nothing",
    "PushSettings.contact": f"{PUSH}test_a_browser_gets_what_an_agent_writes_first",
    "AgentConfig.id": "tests/test_facade.py::test_the_first_agent_is_the_one_if_none_is_named",
    "AgentConfig.name": f"{SERVER}test_agents_are_listed_by_the_names_that_people_know",
    "AgentConfig.model": f"{HERE}test_the_model_is_loaded_by_its_name_with_its_settings",
    "AgentConfig.model_settings": f"{HERE}test_the_model_is_loaded_by_its_name_with_its_settings",
    "AgentConfig.system_prompt": f"{AGENT}test_the_model_is_told_what_was_said_before",
    "AgentConfig.tools": f"{HERE}test_tools_are_offered_to_the_model",
    "AgentConfig.graph": "tests/test_facade.py::"
    "test_a_question_instead_of_a_reply_is_an_error_to_go_on_with",
    "AgentConfig.context_tokens": f"{AGENT}test_what_is_too_long_is_named",
    "AgentConfig.memory": f"{HERE}test_an_agent_without_memories_has_no_book",
    "AgentConfig.limits": f"{AGENT}test_steps_are_counted_as_the_config_says",
    "AgentConfig.autonomy": f"{SILENCE}test_each_trigger_waits_for_its_own_delay",
    "AgentConfig.checkpoint_types": "tests/agent/test_checkpoint_types.py::"
    "test_what_it_does_not_declare_is_refused_unless_it_is_allowed",
    "AgentConfig.compression": f"{COMPRESSION}test_a_long_talk_is_summed_up_and_goes_on",
    "AgentConfig.continuations": (
        "tests/stories/test_going_on.py::test_a_continuation_goes_on_in_the_same_batch"
    ),
    "AgentConfig.may_ask": "tests/stories/test_asking_agents.py::"
    "test_an_agent_gets_anothers_words_as_its_tools_result",
    "AgentConfig.mcp": f"{MCP}test_the_built_in_agent_calls_them",
    "McpConfig.command": f"{MCP}test_tools_of_a_program_are_named_by_server_and_work",
    "McpConfig.args": f"{MCP}test_tools_of_a_program_are_named_by_server_and_work",
    "McpConfig.env": f"{MCP}test_tools_of_a_program_are_named_by_server_and_work",
    "McpConfig.url": f"{MCP}test_tools_over_http_survive_a_restart_of_the_server",
    "McpConfig.headers": f"{MCP}test_tools_over_http_survive_a_restart_of_the_server",
    "McpConfig.tools": f"{MCP}test_only_the_tools_that_are_named_are_offered",
    "McpConfig.connect_time": (
        f"{MCP}test_a_server_that_never_answers_costs_the_first_run_its_limit_only"
    ),
    "McpConfig.call_time": (
        f"{MCP}test_a_call_that_hangs_ends_at_its_limit_and_the_program_is_replaced"
    ),
    "McpConfig.result_chars": f"{MCP}test_a_long_result_loses_its_middle",
    "AgentConfig.webhook": f"{EFFECTS}test_a_follow_up_reaches_the_receiver_signed",
    "MemoryConfig.enabled": f"{HERE}test_an_agent_without_memories_has_no_book",
    "MemoryConfig.embedder": f"{HERE}test_the_embedder_is_loaded_by_its_name",
    "MemoryConfig.limit": f"{MEMORY}test_the_config_sets_threshold_and_limit",
    "MemoryConfig.max_tokens": f"{RETRIEVAL}test_memories_stay_within_their_budget",
    "MemoryConfig.threshold": f"{MEMORY}test_the_config_sets_threshold_and_limit",
    "MemoryConfig.text_weight": f"{HERE}test_words_count_as_much_as_it_is_set",
    "MemoryConfig.time_limit": (
        f"{RETRIEVAL}test_a_reply_does_not_wait_for_memories_that_do_not_come"
    ),
    "MemoryConfig.duplicate_at": f"{HERE}test_a_fact_replaces_one_that_is_as_similar_as_it_is_set",
    "MemoryConfig.capacity": f"{MEMORY}test_a_full_book_refuses_and_says_what_to_do",
    "Limits.steps": f"{AGENT}test_steps_are_counted_as_the_config_says",
    "Limits.state_bytes": "tests/stories/test_graph_state.py::"
    "test_state_that_is_too_large_fails_the_turn_and_stays_as_it_was",
    "Limits.model_time": f"{AGENT}test_a_turn_that_fails_is_closed_and_the_next_one_works",
    "Limits.tool_time": f"{AGENT}test_a_tool_that_fails_is_answered_and_the_reply_goes_on",
    "Autonomy.enabled": f"{HERE}test_an_agent_without_autonomy_never_speaks_first",
    "Autonomy.policy": f"{INITIATIVE}test_limits_are_asked_before_any_model",
    "Autonomy.delays": f"{SILENCE}test_each_trigger_waits_for_its_own_delay",
    "Autonomy.prompts": f"{LIMITS}test_the_variant_of_a_prompt_is_recorded_with_the_follow_up",
    "Autonomy.holdout": f"{LIMITS}test_held_out_follow_ups_cost_nothing_and_say_so",
    "Autonomy.decider": f"{INITIATIVE}test_a_decider_of_ones_own_plans",
    "Autonomy.missed": "tests/stories/test_outages.py::"
    "test_an_outage_ends_with_one_follow_up_or_none",
    "Autonomy.expires_after": (
        f"{INITIATIVE}test_a_follow_up_that_nobody_began_with_may_come_too_late"
    ),
    "Autonomy.reminders": (f"{REMINDERS}test_switched_off_there_is_no_tool_and_no_promise_is_kept"),
    "ReminderConfig.enabled": (
        f"{REMINDERS}test_switched_off_there_is_no_tool_and_no_promise_is_kept"
    ),
    "ReminderConfig.shelf_life": f"{REMINDERS}test_an_unanswered_series_asks_once_and_stops",
    "ReminderConfig.quiet_hours": f"{REMINDERS}test_a_recurring_reminder_waits_for_the_morning",
    "ReminderConfig.late": f"{REMINDERS}test_how_late_a_missed_reminder_comes_is_a_setting",
    "ReminderConfig.late_again": f"{REMINDERS}test_how_late_a_missed_reminder_comes_is_a_setting",
    "Policy.enabled": f"{INITIATIVE}test_a_follow_up_that_nobody_began_with_may_come_too_late",
    "Policy.max_consecutive": "tests/runtime/test_requirements_of_limits.py::"
    "test_follow_ups_are_counted_until_the_user_writes",
    "Policy.max_per_day": f"{LIMITS}test_the_cap_of_the_day_counts_all_agents_of_a_user",
    "Policy.cooldown": "tests/runtime/test_requirements_of_limits.py::"
    "test_a_second_follow_up_within_the_cooldown_is_held_back",
    "Policy.quiet_hours": f"{HERE}test_an_agents_own_quiet_hours_are_kept",
    "Autonomy.triggers": f"{REQUESTS}test_a_trigger_of_ones_own_keeps_its_rules",
    "HookConfig.agent": f"{HOOKS}test_a_hook_names_its_agent_and_trigger",
    "HookConfig.secret": f"{HOOKS}test_what_is_not_signed_is_refused",
    "HookConfig.trigger": f"{HOOKS}test_a_hook_names_its_agent_and_trigger",
    "ServerSettings.hooks": f"{HOOKS}test_a_signed_event_is_told_once",
    "TriggerConfig.delay": f"{REQUESTS}test_a_trigger_of_ones_own_has_its_own_times",
    "TriggerConfig.expires_after": f"{REQUESTS}test_a_trigger_of_ones_own_has_its_own_times",
    "TriggerConfig.leave_out": f"{REQUESTS}test_a_trigger_of_ones_own_keeps_its_rules",
    "TriggerConfig.missed": f"{REQUESTS}test_a_trigger_of_ones_own_has_its_own_times",
    "TriggerConfig.prompt": f"{REQUESTS}test_data_is_quoted_and_never_seen",
    "Policy.talking_hold": f"{REQUESTS}test_how_long_events_wait_for_a_talk_is_set",
    "Policy.typing_hold": f"{HERE}test_who_types_is_left_alone_as_long_as_it_is_set",
    "Policy.late_after": f"{HERE}test_a_timer_counts_as_missed_as_late_as_it_is_set",
    "Policy.backoff": f"{HERE}test_delays_grow_and_stay_within_their_bounds",
    "Policy.min_delay": f"{HERE}test_delays_grow_and_stay_within_their_bounds",
    "Policy.max_delay": f"{HERE}test_delays_grow_and_stay_within_their_bounds",
    "QuietHours.start": f"{HERE}test_an_agents_own_quiet_hours_are_kept",
    "QuietHours.end": f"{HERE}test_an_agents_own_quiet_hours_are_kept",
    "Delays.question_unanswered": f"{SILENCE}test_each_trigger_waits_for_its_own_delay",
    "Delays.waiting_for_decision": f"{SILENCE}test_each_trigger_waits_for_its_own_delay",
    "Delays.task_incomplete": f"{SILENCE}test_each_trigger_waits_for_its_own_delay",
    "Delays.check_in": f"{SILENCE}test_each_trigger_waits_for_its_own_delay",
    "PromptVariant.name": f"{LIMITS}test_the_variant_of_a_prompt_is_recorded_with_the_follow_up",
    "PromptVariant.text": f"{LIMITS}test_the_variant_of_a_prompt_is_recorded_with_the_follow_up",
    "PromptVariant.weight": "tests/core/test_triggers.py::test_variants_come_by_their_weights",
    "CompressionConfig.enabled": f"{COMPRESSION}test_compression_can_be_switched_off",
    "CompressionConfig.strategy": f"{COMPRESSION}test_only_summaries_ask_a_model",
    "CompressionConfig.trigger_share": (
        f"{COMPRESSION}test_compression_begins_at_its_share_of_the_window"
    ),
    "CompressionConfig.target_share": (
        f"{COMPRESSION}test_compression_ends_at_its_share_of_the_window"
    ),
    "CompressionConfig.keep": (f"{COMPRESSION}test_as_many_of_the_last_batches_stay_as_it_is_set"),
    "CompressionConfig.half_life": f"{COMPRESSION}test_importance_fades_as_fast_as_it_is_set",
    "CompressionConfig.summary_tokens": (
        f"{COMPRESSION}test_a_summary_that_is_too_long_ends_with_a_sentence"
    ),
    "CompressionConfig.model": f"{COMPRESSION}test_a_model_of_its_own_sums_up",
    "WebhookConfig.url": f"{EFFECTS}test_a_follow_up_reaches_the_receiver_signed",
    "WebhookConfig.secret": f"{EFFECTS}test_a_follow_up_reaches_the_receiver_signed",
    "WebhookConfig.all_replies": (f"{EFFECTS}test_answers_are_sent_only_where_the_owner_wants_all"),
    "ServedSettings.server": f"{SERVE}test_wrong_settings_are_told_with_their_place",
    "ServerSettings.host": f"{SERVE}test_a_public_address_needs_a_key",
    "ServerSettings.port": f"{SERVE}test_a_port_that_is_taken",
    "ServerSettings.cors_origins": f"{SERVER}test_pages_of_origins_that_are_named_may_call",
    "ServerSettings.allowed_hosts": (
        f"{SERVER}test_without_keys_only_names_that_are_allowed_lead_here"
    ),
    "ServerSettings.jwt": f"{SERVER}test_tokens_are_read_as_it_is_set",
    "ServerSettings.rate_per_minute": (
        f"{SERVER}test_more_requests_than_the_rate_allows_have_to_wait"
    ),
    "ServerSettings.max_body_bytes": (
        "tests/server/test_middleware.py::test_a_body_that_is_too_big_is_refused"
    ),
    "ServerSettings.max_text_bytes": (
        "tests/server/test_body_limits.py::test_a_message_has_so_much_text_and_no_more"
    ),
    "ServerSettings.max_import_bytes": (
        "tests/server/test_transfers.py::test_an_import_has_a_size_of_its_own"
    ),
    "ServerSettings.max_frame_bytes": "tests/server/test_frames.py::"
    "test_a_frame_that_is_too_big_closes_only_its_own_socket",
    "ServerSettings.max_content_blocks": (f"{SERVER}test_a_message_has_so_many_blocks_and_no_more"),
    "ServerSettings.allow_content_urls": "tests/server/test_content.py::"
    "test_a_server_that_trusts_its_users_takes_addresses",
    "ServerSettings.langgraph": "tests/server/langgraph/test_access.py::"
    "test_the_wire_can_be_moved_and_switched_off",
    "ServerSettings.openai": "tests/server/test_completions.py::test_it_can_be_switched_off",
    "ServerSettings.ag_ui": "tests/server/test_ag_ui.py::test_no_agent_and_no_route",
    "ServerSettings.mcp": "tests/server/test_mcp_server.py::test_versions_are_agreed_on",
    "ServerSettings.max_sockets_per_user": (
        f"{SERVER}test_a_user_holds_so_many_sockets_and_no_more"
    ),
    "ServerSettings.max_connections_per_address": (
        "tests/server/test_listener.py::test_one_address_holds_a_bounded_number_of_connections"
    ),
    "ServerSettings.ping_every": (
        f"{SERVER}test_who_listens_gets_signs_of_life_as_often_as_it_is_set"
    ),
    "ServerSettings.log_format": f"{SERVE}test_a_server_with_keys_lets_in_who_has_one",
    "ServerSettings.log_level": f"{SERVER}test_lines_below_the_level_are_not_written",
    "ServerSettings.traces": (
        "tests/server/test_tracing.py::test_spans_reach_the_collector_that_is_named"
    ),
    "JwtSettings.secret": f"{SERVER}test_tokens_are_read_as_it_is_set",
    "JwtSettings.public_key": f"{AUTH}test_tokens_of_a_published_key",
    "JwtSettings.jwks_url": f"{AUTH}test_tokens_of_a_published_key",
    "JwtSettings.algorithms": f"{SERVER}test_tokens_are_read_as_it_is_set",
    "JwtSettings.audience": f"{SERVER}test_tokens_are_read_as_it_is_set",
    "JwtSettings.issuer": f"{SERVER}test_tokens_are_read_as_it_is_set",
    "JwtSettings.user_claim": f"{SERVER}test_tokens_are_read_as_it_is_set",
    "JwtSettings.scope_claim": f"{SERVER}test_operators_are_told_by_the_claim_that_is_set",
    "JwtSettings.leeway": f"{SERVER}test_tokens_are_read_as_it_is_set",
}


def all_settings(section: type = ServedSettings) -> Iterator[str]:
    for setting in settings_of(section).values():
        is_everybodys = section is ServedSettings and setting.name in Settings.model_fields
        yield f"{(Settings if is_everybodys else section).__name__}.{setting.name}"
        if setting.section is not None:
            yield from all_settings(setting.section)


def test_every_setting_is_shown_to_do_something() -> None:
    """A new setting without a test fails here, and so does a line of one that is gone."""
    assert sorted(SHOWN) == sorted({*all_settings()})


@pytest.mark.parametrize("setting", SHOWN)
def test_the_test_that_shows_it_is_there(setting: str) -> None:
    """No line names a test that was renamed."""
    assert broken_references(f"`{SHOWN[setting]}`") == []


@asynccontextmanager
async def process(stage: Stage, *lines: Line, **settings: Any) -> AsyncIterator[World]:
    """A process with settings that a stage would choose by itself."""
    agent = eager_agent(decider="none")
    chosen = Settings(database=stage.database, agents=(agent,), **settings)
    given = Overrides(clock=stage.clock, models={agent.id: model_of(*lines)})
    async with compose(chosen, given) as system:
        yield World(stage.clock, Segue(system), system)


# The process.


async def test_more_is_waited_for_as_long_as_it_is_set(stage: Stage) -> None:
    """Who collects for ten seconds is not answered after nine."""
    async with stage.world(double_texting="collect", collect_for="10s") as world:
        thread = await new_thread(world)
        await world.say(thread, "Hello.")
        await world.pass_time(seconds=9)
        assert await world.heard(thread) == ["Hello."]
        await world.pass_time(seconds=1)
        assert len(await world.heard(thread)) == 2


async def test_a_turn_is_taken_over_when_its_lease_is_over(stage: Stage) -> None:
    """Not before: until then its process may be alive."""
    held = Held("Hi.")
    async with process(stage, held, lease_for="5m", patience=0, poll=None) as world:
        await world.segue.send(await new_thread(world), "Hello.")
        await held.asked.wait()
        for span, is_free in ((timedelta(seconds=299), False), (timedelta(seconds=301), True)):
            later = world.clock.now() + span
            claimed = await world.journal.turns.claim_one("next", now=later, lease_for=span)
            assert (claimed is not None) is is_free
        held.go.set()


async def test_a_number_is_taken_over_when_its_lease_is_over(stage: Stage) -> None:
    """Of a process that gave no sign of life; not before, since two would make the same ids."""
    async with process(stage, node_lease_for="20m", poll=None) as world:
        mine, lease = world.system.runtime.ids.node, timedelta(days=1)
        for minutes, is_taken in ((19, False), (21, True)):
            later = world.clock.now() + timedelta(minutes=minutes)
            other = await world.journal.nodes.lease(f"after {minutes}", now=later, lease_for=lease)
            assert (other == mine) is is_taken


@pytest.mark.parametrize(("poll", "sent"), [("10s", 1), ("none", 0)])
async def test_what_nobody_told_of_is_found_by_looking(stage: Stage, poll: str, sent: int) -> None:
    """A timer that another process armed, whose word got lost."""
    async with process(stage, poll=poll) as world:
        thread = await new_thread(world)
        await world.say(thread, "Hello.")
        await world.clock.settle()
        due = world.clock.now() + timedelta(seconds=1)
        await world.journal.timers.arm(
            NewTimer(thread, due, "check_in"), ids=world.system.deps.ids, now=world.clock.now()
        )
        await world.pass_time(seconds=12)
        assert len(await sent_at(world, thread)) == sent


async def test_a_process_without_patience_leaves_its_turns_to_the_next(stage: Stage) -> None:
    """It does not wait for a model that would be done in a moment."""
    asked = asyncio.Event()

    async def think(messages: list[BaseMessage]) -> str:
        del messages
        asked.set()
        await asyncio.sleep(3)
        return "Done."

    async with stage.world(models={"guide": model_of(think)}, patience=0) as world:
        thread = await new_thread(world)
        await world.segue.send(thread, "Hello.")
        await asked.wait()
    async with stage.world(models={"guide": model_of("I take over.")}) as world:
        await world.clock.settle()
        assert await world.heard(thread) == ["Hello.", "I take over."]


# An agent.


def test_the_model_is_loaded_by_its_name_with_its_settings() -> None:
    """Both reach the one who makes the model, who refuses what it does not know."""
    with pytest.raises(UsageError, match="nobody"):
        build_graph(AgentConfig(id="ada", model="nobody:model"))
    with pytest.raises(UsageError, match=r"model_settings\.delay"):
        build_graph(AgentConfig(id="ada", model="scripted", model_settings={"delay": -1}))


async def test_tools_are_offered_to_the_model(stage: Stage) -> None:
    """By the path of a function."""
    seen: list[list[str]] = []

    class Offered(ScriptedChatModel):
        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            seen.append([tool.name for tool in tools])
            return super().bind_tools(tools, **kwargs)

    agent = plain_agent(tools=["textwrap:shorten"])
    async with stage.world(agent, models={"guide": Offered(script=["Hi."])}) as world:
        await world.say(await new_thread(world), "Hello.")
    reminders = ["remind", "list_reminders", "cancel_reminder"]
    assert seen == [["shorten", "set_follow_ups", *reminders]]


async def test_an_agent_without_memories_has_no_book(stage: Stage) -> None:
    """Only who may remember gets the tools for it."""
    agents = (plain_agent(), plain_agent("atlas", memory={"enabled": True}))
    async with stage.world(*agents) as world:
        assert [*world.system.books] == ["atlas"]


async def test_the_embedder_is_loaded_by_its_name(stage: Stage) -> None:
    """Whether it is there shows at the start."""
    agent = plain_agent(memory={"embedder": "nobody:model"})
    with pytest.raises(UsageError, match="nobody"):
        async with stage.world(agent):
            pass


# Memories.


class Near(Meanings):
    """An embedder for which all texts are alike, but not the same."""

    async def embed_query(self, text: str) -> list[float]:
        place = self._places.setdefault(text, len(self._places) + 1)
        return [0.8, *(0.6 * (n == place) for n in range(1, self.dimension))]


@asynccontextmanager
async def book(folder: Path, **settings: Any) -> AsyncIterator[MemoryBook]:
    journal = SqliteJournal(folder / "journal.db")
    await journal.open()
    try:
        config = MemoryConfig(**settings)
        yield MemoryBook(journal.memories, Near(), ids=IDS, clock=lambda: START, config=config)
    finally:
        await journal.close()


@pytest.mark.parametrize(("duplicate_at", "kept"), [(0.6, 1), (0.7, 2)])
async def test_a_fact_replaces_one_that_is_as_similar_as_it_is_set(
    tmp_path: Path, duplicate_at: float, kept: int
) -> None:
    """Two facts whose likeness is 0.64."""
    async with book(tmp_path, duplicate_at=duplicate_at) as memories:
        for fact in ("She likes tea.", "He has a boat."):
            kept_now = await memories.remember("guide", "ada", fact)
        assert kept_now.count == kept


@pytest.mark.parametrize(("text_weight", "first"), [(1.0, "red boat"), (0.0, "a ship")])
async def test_words_count_as_much_as_it_is_set(
    tmp_path: Path, text_weight: float, first: str
) -> None:
    """One fact has the words of the question, the other its meaning."""
    async with book(tmp_path, text_weight=text_weight, duplicate_at=1, threshold=0) as memories:
        embedder = Meanings(ship="ship", vessel="ship")
        memories._embedder = embedder
        for fact in ("red boat", "a ship"):
            await memories.remember("guide", "ada", fact)
        found = await memories.search("guide", "ada", "red vessel boat")
        assert found[0].memory.content == first


# Speaking first.


@pytest.mark.parametrize("enabled", [True, False])
async def test_an_agent_without_autonomy_never_speaks_first(stage: Stage, enabled: bool) -> None:
    """However long nobody writes."""
    async with stage.world(eager_agent(enabled=enabled), models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Hello.")
        await world.pass_time(days=3)
        assert bool(await sent_at(world, thread)) is enabled


@pytest.mark.parametrize(
    ("policy", "seconds"),
    [
        ({"backoff": 1}, [30, 30, 30]),
        ({"backoff": 3}, [30, 90, 270]),
        ({"backoff": 3, "max_delay": "1m"}, [30, 60, 60]),
        ({"backoff": 1, "min_delay": "50s"}, [50, 50, 50]),
    ],
)
async def test_delays_grow_and_stay_within_their_bounds(
    stage: Stage, policy: dict[str, Any], seconds: list[int]
) -> None:
    """Three follow-ups that nobody answers, each dated from the one before."""
    async with stage.world(eager_agent(policy=policy), models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Hello.")
        await world.pass_time(hours=1)
        moments = [START, *await sent_at(world, thread)]
    spans = [(later - one).total_seconds() for one, later in pairwise(moments)]
    assert [round(span) for span in spans] == seconds


@pytest.mark.parametrize(
    ("start", "end", "sent"),
    [("07:00", "09:00", 3_600), ("07:00", "08:10", 600), ("08:05", "09:00", 30)],
)
async def test_an_agents_own_quiet_hours_are_kept(
    stage: Stage, start: str, end: str, sent: int
) -> None:
    """For users who have set none: a follow-up due at half a minute past eight."""
    policy = {"max_consecutive": 1, "quiet_hours": {"start": start, "end": end}}
    async with stage.world(eager_agent(policy=policy), models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Hello.")
        await world.pass_time(hours=2)
        assert await sent_at(world, thread) == [START + timedelta(seconds=sent)]


async def test_who_types_is_left_alone_as_long_as_it_is_set(stage: Stage) -> None:
    """Somebody types at the twentieth second; the follow-up of the thirtieth waits five minutes."""
    policy = {"max_consecutive": 1, "typing_hold": "5m"}
    async with stage.world(eager_agent(policy=policy), models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Hello.")
        await world.pass_time(seconds=20)
        await world.segue.report_typing(thread)
        await world.pass_time(hours=1)
        assert await sent_at(world, thread) == [START + timedelta(seconds=20, minutes=5)]


@pytest.mark.parametrize(("late_after", "sent"), [("10m", 1), ("8m", 0)])
async def test_a_timer_counts_as_missed_as_late_as_it_is_set(
    stage: Stage, late_after: str, sent: int
) -> None:
    """The process was away for nine minutes, and what is missed is to be skipped."""
    policy = {"max_consecutive": 1, "late_after": late_after}
    agent = eager_agent(missed="skip", policy=policy)
    async with stage.world(agent, models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Hello.")
    await stage.clock.advance(timedelta(minutes=9, seconds=30))
    async with stage.world(agent, models={"guide": model_of()}) as world:
        await world.pass_time(seconds=1)
        assert len(await sent_at(world, thread)) == sent
