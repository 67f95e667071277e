"""Builds the system from the settings: the only module that knows all others."""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool

from segue.agent.build import build_graph, load_attribute
from segue.agent.checkpoints.selftest import check_integrity
from segue.agent.checkpoints.store import Checkpoints
from segue.agent.decider import ModelDecider
from segue.agent.embedders import Embedder, load_embedder, require_minilm
from segue.agent.initiative_tools import initiative_tools, reminder_tools
from segue.agent.langgraph_agent import LangGraphAgent
from segue.agent.memory import MemoryBook
from segue.agent.models import can_call_tools, load_model
from segue.agent.summariser import load_summariser
from segue.agent.tools import ask_agent_tool, continue_tool
from segue.core.compression import Strategy
from segue.core.speech.acts import acts_of
from segue.core.speech.guard import find_machinery
from segue.core.speech.reminders import find_promise, may_promise
from segue.core.speech.silence import promises_silence
from segue.core.speech.stops import may_be_stop, read_request
from segue.core.turn_rules import TurnRules
from segue.errors import NotFoundError, SegueError, UsageError
from segue.journal.effects import Effect
from segue.journal.journal import Journal
from segue.runtime.after_turn import DECIDE, AfterTurn
from segue.runtime.bus import Bus
from segue.runtime.clock import Clock, SystemClock
from segue.runtime.compressor import COMPRESS, Compressor, Summariser, compresses
from segue.runtime.delivery import DeliveryError, Webhooks, WebhookTarget
from segue.runtime.deps import Agent, Deps
from segue.runtime.effects import PUSH, WEBHOOK, EffectRunner
from segue.runtime.gatekeeper import Gatekeeper
from segue.runtime.housekeeping import Discarder, Retainer, Sweeper
from segue.runtime.ids import LeasedIds
from segue.runtime.inbox import Inbox
from segue.runtime.planning import CustomDecider, Decider
from segue.runtime.processor import SessionProcessor
from segue.runtime.reminders import Reminders
from segue.runtime.requests import Requests
from segue.runtime.runtime import Runtime
from segue.runtime.thread_service import ThreadService
from segue.runtime.timers import TimerWorker
from segue.runtime.turns import TurnWorker
from segue.settings import Settings
from segue.settings.agents import AgentConfig
from segue.stores import checkpoints_of, journal_of, make_folder

if TYPE_CHECKING:
    from segue.agent.mcp.server import Toolbox
    from segue.runtime.notifier import Notifier

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Overrides:
    """Parts that a test or a simulation overrides."""

    clock: Clock = field(default_factory=SystemClock)
    # By agent id.
    models: Mapping[str, BaseChatModel] = field(default_factory=dict)
    http: httpx.AsyncClient | None = None
    checkpoints: Checkpoints | None = None


@dataclass(frozen=True, slots=True)
class System:
    """The parts of a running system."""

    settings: Settings
    deps: Deps
    inbox: Inbox
    threads: ThreadService
    runtime: Runtime
    requests: Requests
    reminders: Reminders
    books: Mapping[str, MemoryBook]
    # None without the extra that it needs.
    notifier: "Notifier | None" = None


@asynccontextmanager
async def compose(settings: Settings, overrides: Overrides) -> AsyncIterator[System]:
    """Open everything, run it, and close it again."""
    _check_models(settings, overrides)
    async with AsyncExitStack() as stack:
        journal = journal_of(settings)
        checkpoints = overrides.checkpoints or checkpoints_of(settings)
        make_folder(settings)
        await journal.open()
        stack.push_async_callback(journal.close)
        await checkpoints.open()
        stack.push_async_callback(checkpoints.close)
        owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        ids = LeasedIds(journal, overrides.clock, owner=owner, lease_for=settings.node_lease_for)
        await ids.open()
        stack.push_async_callback(ids.close)
        saver = checkpoints.saver()
        await check_integrity(journal, saver, ids=ids, now=overrides.clock.now())
        # Otherwise the first message would block the loop.
        await asyncio.to_thread(_compile_phrases)
        http = overrides.http
        if http is None:
            http = await stack.enter_async_context(httpx.AsyncClient())
        toolboxes = {
            config.id: await stack.enter_async_context(load_toolbox(config).open())
            for config in settings.agents
            if config.mcp
        }
        kit = _Kit(settings, overrides, journal, checkpoints, ids, owner, http, toolboxes)
        system = _put_together(kit)
        async with system.runtime.running():
            preparing = asyncio.create_task(_prepare(system.books))
            try:
                yield system
            finally:
                await system.inbox.close()
                preparing.cancel()
                await asyncio.gather(preparing, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _Kit:
    """What has to be opened before the parts are built."""

    settings: Settings
    overrides: Overrides
    journal: Journal
    checkpoints: Checkpoints
    ids: LeasedIds
    owner: str
    http: httpx.AsyncClient
    # By agent id.
    toolboxes: Mapping[str, "Toolbox"]


def _put_together(kit: _Kit) -> System:
    settings, journal = kit.settings, kit.journal
    agents: dict[str, Agent] = {}
    deps = Deps(
        journal=journal,
        ids=kit.ids,
        clock=kit.overrides.clock,
        bus=Bus(journal),
        agent_of=lambda agent_id: find_agent(agents, agent_id),
        owner=kit.owner,
        lease_for=settings.lease_for,
        zone=settings.zone,
    )
    gatekeeper = Gatekeeper(journal, settings.zone)
    after_turn = AfterTurn(deps, gatekeeper, _deciders(settings, kit.overrides).get)
    rules = TurnRules(
        max_attempts=settings.max_attempts,
        max_interruptions=settings.max_interruptions,
        retries=settings.retries,
        batch_time=settings.batch_time,
    )
    turns = TurnWorker(deps, SessionProcessor(deps, after_turn, rules), rules, settings.slots)
    wakeup = deps.wakeups.timers
    armer = (journal, deps.ids, deps.clock, deps.autonomy_of, deps.zone, wakeup)
    requests, reminders = Requests(*armer), Reminders(*armer)
    books, notifier = _books(settings, deps), _notifier(kit, deps)
    for config in settings.agents:
        book = books.get(config.id)
        agents[config.id] = _agent(config, kit, deps, turns, reminders, book)
    sweeper = Sweeper(journal, kit.checkpoints, deps.clock)
    runtime = Runtime(
        deps=deps,
        ids=kit.ids,
        turns=turns,
        timers=TimerWorker(deps, gatekeeper),
        effects=_effects(kit, deps, after_turn, notifier),
        sweeper=sweeper,
        discarder=Discarder(journal, deps.bus, sweeper, deps.clock),
        retainer=Retainer(journal, settings.retention.policy, deps.clock),
        poll=settings.poll,
        patience=settings.patience,
    )
    inbox = Inbox(deps, turns, settings.double_texting, settings.collect_for)
    threads = ThreadService(journal)
    return System(settings, deps, inbox, threads, runtime, requests, reminders, books, notifier)


def _notifier(kit: _Kit, deps: Deps) -> "Notifier | None":
    try:
        from segue.runtime.notifier import Notifier  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return None
    return Notifier(deps, kit.http, kit.settings.push)


def _effects(
    kit: _Kit, deps: Deps, after_turn: AfterTurn, notifier: "Notifier | None"
) -> EffectRunner:
    """The effects of a turn: a decision, compression, and deliveries to other systems."""
    compressor = Compressor(
        deps.journal,
        deps.ids,
        deps.clock,
        lambda agent_id: deps.agent_of(agent_id).config,
        _summarisers(kit.settings, kit.overrides).get,
    )
    deliver = _deliverer(kit.settings, Webhooks(kit.http, deps.clock.now))
    handlers = {DECIDE: after_turn.decide, COMPRESS: compressor.compress, WEBHOOK: deliver}
    if notifier is not None:
        handlers[PUSH] = notifier.deliver
    return EffectRunner(deps, handlers)


def _check_models(settings: Settings, overrides: Overrides) -> None:
    """With a misspelt id, the real model would be called."""
    ids = [config.id for config in settings.agents]
    if unknown := sorted(set(overrides.models) - set(ids)):
        raise UsageError(
            f"Overrides.models: unknown agent {unknown[0]!r}; the agents are: {', '.join(ids)}."
        )
    if own := [c.id for c in settings.agents if c.id in overrides.models and c.graph is not None]:
        raise UsageError(
            f"Overrides.models: agent {own[0]!r} has a custom graph, which has its own model."
        )


def find_agent(agents: Mapping[str, Agent], agent_id: str) -> Agent:
    """`NotFoundError` if the settings have no such agent."""
    if agent_id not in agents:
        known = ", ".join(sorted(agents))
        raise NotFoundError(f"Unknown agent {agent_id!r}; the agents are: {known}.")
    return agents[agent_id]


def _agent(
    config: AgentConfig,
    kit: _Kit,
    deps: Deps,
    turns: TurnWorker,
    reminders: Reminders,
    book: MemoryBook | None,
) -> LangGraphAgent:
    toolbox = kit.toolboxes.get(config.id)
    if config.graph is not None:
        return LangGraphAgent(config, build_graph(config), kit.checkpoints, book, toolbox)
    tools: list[BaseTool] = []
    if config.continuations:
        tools.append(continue_tool(config.continuations, deps.clock.now))
    if config.may_ask:
        limit = config.limits.tool_time
        tools.append(ask_agent_tool(deps, turns, config.may_ask, limit=limit))
    model = _model(config, kit.overrides)
    if toolbox is not None and not can_call_tools(model):
        raise UsageError(f"agent {config.id!r}: mcp: the model {config.model!r} calls no tools.")
    if config.autonomy.enabled and can_call_tools(model):
        tools += initiative_tools(deps)
        if config.autonomy.reminders.enabled:
            tools += reminder_tools(deps.journal, reminders)
    built = build_graph(config, model=model, tools=tools, memories=book is not None)
    return LangGraphAgent(config, built, kit.checkpoints, book, toolbox)


def load_toolbox(config: AgentConfig) -> "Toolbox":
    """The tools of an agent's MCP servers; `UsageError` if the extra is not installed."""
    try:
        from segue.agent.mcp.server import toolbox_of  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        hint = f"it needs {error.name}; pip install 'segue[mcp]'."
        raise UsageError(f"agent {config.id!r}: mcp: {hint}") from error
    return toolbox_of(config)


def _model(config: AgentConfig, overrides: Overrides) -> BaseChatModel:
    if model := overrides.models.get(config.id):
        return model
    try:
        return load_model(config.model, config.model_settings)
    except UsageError as error:
        hint = ""
        if config.model == "local":
            hint = " Or set another model, such as 'openai:gpt-4o-mini', or 'scripted' for a demo."
        raise UsageError(f"agent {config.id!r}: model: {error}{hint}") from error


def _embedder(config: AgentConfig) -> Embedder | None:
    """None if it is the default embedder and its packages are not installed."""
    if config.memory.embedder == "local":
        try:
            require_minilm()
        except UsageError as error:
            logger.warning(
                "agent %r: memory.embedder: %s Until then memories are found by full text only.",
                config.id,
                error,
            )
            return None
    try:
        return load_embedder(config.memory.embedder)
    except UsageError as error:
        raise UsageError(f"agent {config.id!r}: memory.embedder: {error}") from error


def _books(settings: Settings, deps: Deps) -> dict[str, MemoryBook]:
    """The memory books of agents that keep memories, by agent id."""
    return {
        config.id: MemoryBook(
            deps.journal.memories,
            _embedder(config),
            ids=deps.ids,
            clock=deps.clock.now,
            config=config.memory,
        )
        for config in settings.agents
        if config.keeps_memories
    }


def _compile_phrases() -> None:
    """Read a text by all rules: the first use of their patterns takes most of a second."""
    readers = (read_request, may_be_stop, promises_silence, may_promise, find_machinery, acts_of)
    for read in readers:
        read("Well, I will remind you.")
    find_promise("I'll remind you.", "Hello!")


async def _prepare(books: Mapping[str, MemoryBook]) -> None:
    """In the background: load embedders, embed memories without a vector."""
    for agent_id, book in books.items():

        def report(done: int, total: int, agent_id: str = agent_id) -> None:
            logger.info("Embedded %d of %d memories of agent %s", done, total, agent_id)

        try:
            await book.load()
            await book.reembed(report, agent_id)
        except SegueError as error:
            # Until then full text finds them; the next start tries again.
            logger.warning("Memories of agent %s were not embedded: %s", agent_id, error)


def _deciders(settings: Settings, overrides: Overrides) -> dict[str, Decider]:
    """The deciders of agents that do not use the rules, by agent id."""
    found = {config.id: _decider(config, overrides) for config in settings.agents}
    return {name: decider for name, decider in found.items() if decider is not None}


def _decider(config: AgentConfig, overrides: Overrides) -> Decider | None:
    """None for the rules, and where nothing decides."""
    autonomy = config.autonomy
    if autonomy.decider in ("rules", "none"):
        return None
    whose, own = f"agent {config.id!r}: decider", autonomy.decider
    if own == "model":
        model = _model(config, overrides)
        try:
            return ModelDecider(model, delays=autonomy.delays, policy=autonomy.policy)
        except UsageError as error:
            raise UsageError(f"{whose}: {error}") from error
    loaded = load_attribute(own, whose) if isinstance(own, str) else own
    return CustomDecider(loaded, whose, triggers=autonomy.triggers)


def _summarisers(settings: Settings, overrides: Overrides) -> dict[str, Summariser]:
    """The summarisers of agents whose strategy is to summarise, by agent id."""
    found = {config.id: _summariser(config, overrides) for config in settings.agents}
    return {name: summariser for name, summariser in found.items() if summariser is not None}


def _summariser(config: AgentConfig, overrides: Overrides) -> Summariser | None:
    if not compresses(config) or config.compression.strategy is not Strategy.SUMMARISE:
        return None
    return load_summariser(config, None if config.compression.model else _model(config, overrides))


def check_parts(config: AgentConfig) -> None:
    """Make what a start makes of an agent's settings; `UsageError` if the parts do not fit."""
    real = Overrides()
    build_graph(config, memories=config.keeps_memories and config.graph is None)
    _decider(config, real)
    _summariser(config, real)


def webhook_target(config: AgentConfig) -> WebhookTarget | None:
    """The target of the agent's webhook; `UsageError` if it is unusable."""
    if config.webhook is None:
        return None
    try:
        return WebhookTarget(config.webhook.url, config.webhook.secret.get_secret_value())
    except UsageError as error:
        raise UsageError(f"agent {config.id!r}: webhook: {error}") from None


def _deliverer(settings: Settings, webhooks: Webhooks) -> Callable[[Effect], Any]:
    """Sends an effect to the webhook of its agent."""
    targets = {config.id: webhook_target(config) for config in settings.agents}

    async def deliver(effect: Effect) -> str:
        target = targets.get(str(effect.payload.get("agent_id")))
        if target is None:
            raise DeliveryError("The agent has no webhook any more.", retryable=False)
        return await webhooks.deliver(target, effect.dedupe_key, effect.payload)

    return deliver
