"""Puts all parts together: the only file that knows all others."""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool

from segue.agent.build import build_graph, load_attribute
from segue.agent.checkpoints import Checkpoints
from segue.agent.config import AgentConfig
from segue.agent.continuing import continue_tool
from segue.agent.decider import ModelDecider
from segue.agent.embedders import Embedder, load_embedder
from segue.agent.langgraph_agent import LangGraphAgent
from segue.agent.memory import MemoryBook
from segue.agent.minilm import require_minilm
from segue.agent.models import load_model
from segue.agent.summariser import load_summariser
from segue.core.compress import Strategy
from segue.core.errors import NotFoundError, SegueError, UsageError
from segue.journal.ports import Journal
from segue.journal.records import Effect
from segue.journal.selftest import check_integrity
from segue.runtime.asking import ask_agent_tool
from segue.runtime.bus import Bus
from segue.runtime.clock import Clock, SystemClock
from segue.runtime.compressor import COMPRESS, Compressor, Summariser, compresses
from segue.runtime.deciding import Decider, OwnDecider
from segue.runtime.effects import EffectRunner
from segue.runtime.follow_up import DECIDE
from segue.runtime.gatekeeper import Gatekeeper
from segue.runtime.ids import LeasedIds
from segue.runtime.inbox import Inbox
from segue.runtime.initiative import WEBHOOK, Initiative
from segue.runtime.parts import Agent, Parts
from segue.runtime.processor import SessionProcessor
from segue.runtime.retainer import Retainer
from segue.runtime.rules import TurnRules
from segue.runtime.runtime import Runtime
from segue.runtime.sweeper import Sweeper
from segue.runtime.thread_service import ThreadService
from segue.runtime.timers import TimerWorker
from segue.runtime.turns import TurnWorker
from segue.runtime.webhooks import DeliveryError, Webhooks, WebhookTarget
from segue.settings import Settings
from segue.stores import checkpoints_of, journal_of, make_folder

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Replacements:
    """What a test or a simulation puts in the place of the real thing."""

    clock: Clock = field(default_factory=SystemClock)
    # Models by the agent's id.
    models: Mapping[str, BaseChatModel] = field(default_factory=dict)
    http: httpx.AsyncClient | None = None
    checkpoints: Checkpoints | None = None


@dataclass(frozen=True, slots=True)
class Composed:
    """A running system, in its parts."""

    settings: Settings
    parts: Parts
    inbox: Inbox
    threads: ThreadService
    runtime: Runtime
    books: Mapping[str, MemoryBook]


@asynccontextmanager
async def compose(settings: Settings, given: Replacements) -> AsyncIterator[Composed]:
    """Open everything, run it, and close it again."""
    _check_models(settings, given)
    async with AsyncExitStack() as stack:
        stores = await _open_stores(settings, given, stack)
        owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        ids = LeasedIds(stores.journal, given.clock, owner=owner, lease_for=settings.node_lease_for)
        await ids.open()
        stack.push_async_callback(ids.close)
        saver = stores.checkpoints.saver()
        await check_integrity(stores.journal, saver, ids=ids, now=given.clock.now())
        http = given.http
        if http is None:
            http = await stack.enter_async_context(httpx.AsyncClient())
        composed = _put_together(_Kit(settings, given, stores, ids, owner, http))
        async with composed.runtime.running():
            embedding = asyncio.create_task(_prepare(composed.books))
            try:
                yield composed
            finally:
                await composed.inbox.close()
                embedding.cancel()
                await asyncio.gather(embedding, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _Stores:
    """What is kept, open."""

    journal: Journal
    checkpoints: Checkpoints


@dataclass(frozen=True, slots=True)
class _Kit:
    """What a system is made with: all that has to be opened."""

    settings: Settings
    given: Replacements
    stores: _Stores
    ids: LeasedIds
    # Under whose name work is claimed.
    owner: str
    http: httpx.AsyncClient


async def _open_stores(settings: Settings, given: Replacements, stack: AsyncExitStack) -> _Stores:
    journal = journal_of(settings)
    checkpoints = given.checkpoints or checkpoints_of(settings)
    make_folder(settings)
    await journal.open()
    stack.push_async_callback(journal.close)
    await checkpoints.open()
    stack.push_async_callback(checkpoints.close)
    return _Stores(journal, checkpoints)


def _put_together(kit: _Kit) -> Composed:
    settings, journal = kit.settings, kit.stores.journal
    agents: dict[str, Agent] = {}
    parts = Parts(
        journal=journal,
        ids=kit.ids,
        clock=kit.given.clock,
        bus=Bus(journal),
        agent_of=lambda agent_id: find_agent(agents, agent_id),
        owner=kit.owner,
        lease_for=settings.lease_for,
    )
    gatekeeper = Gatekeeper(journal, kit.ids)
    initiative = Initiative(parts, gatekeeper, _deciders(settings, kit.given).get)
    rules = TurnRules(
        max_attempts=settings.max_attempts,
        max_interruptions=settings.max_interruptions,
        retries=settings.retries,
        batch_time=settings.batch_time,
    )
    turns = TurnWorker(parts, SessionProcessor(parts, initiative, rules), rules, settings.slots)
    books = _books(settings, parts)
    for config in settings.agents:
        agents[config.id] = _agent(config, kit, parts, turns, books.get(config.id))
    webhooks = Webhooks(kit.http, kit.given.clock.now)
    compressor = Compressor(
        journal,
        kit.ids,
        kit.given.clock,
        lambda agent_id: find_agent(agents, agent_id).config,
        _summarisers(settings, kit.given).get,
    )
    runtime = Runtime(
        parts=parts,
        ids=kit.ids,
        turns=turns,
        timers=TimerWorker(parts, gatekeeper),
        effects=EffectRunner(
            parts,
            {
                DECIDE: initiative.decide,
                COMPRESS: compressor.compress,
                WEBHOOK: _deliverer(settings, webhooks),
            },
        ),
        sweeper=Sweeper(journal, kit.stores.checkpoints, parts.clock),
        retainer=Retainer(journal, settings.retention.policy, parts.clock),
        poll=settings.poll,
        patience=settings.patience,
    )
    inbox = Inbox(parts, turns, settings.double_texting, settings.collect_for)
    return Composed(settings, parts, inbox, ThreadService(parts.journal), runtime, books)


def _check_models(settings: Settings, given: Replacements) -> None:
    """A slip in an id would ask the real model instead."""
    ids = [config.id for config in settings.agents]
    if unknown := sorted(set(given.models) - set(ids)):
        raise UsageError(
            f"Replacements.models: there is no agent {unknown[0]!r}; there are: {', '.join(ids)}."
        )
    if own := [c.id for c in settings.agents if c.id in given.models and c.graph is not None]:
        raise UsageError(
            f"Replacements.models: agent {own[0]!r} has a graph of its own, and that its own model."
        )


def find_agent(agents: Mapping[str, Agent], agent_id: str) -> Agent:
    """The agent of that name; `NotFoundError` if the settings have none."""
    if agent_id not in agents:
        raise NotFoundError(
            f"There is no agent {agent_id!r}; there are: {', '.join(sorted(agents))}."
        )
    return agents[agent_id]


def _agent(
    config: AgentConfig, kit: _Kit, parts: Parts, turns: TurnWorker, book: MemoryBook | None
) -> LangGraphAgent:
    if config.graph is not None:
        return LangGraphAgent(config, build_graph(config), kit.stores.checkpoints, book)
    tools: list[BaseTool] = []
    if config.continuations:
        tools.append(continue_tool(config.continuations))
    if config.may_ask:
        limit = config.limits.tool_time
        tools.append(ask_agent_tool(parts, turns, config.may_ask, limit=limit))
    built = build_graph(config, model=_model(config, kit.given), memories=book, tools=tools)
    return LangGraphAgent(config, built, kit.stores.checkpoints)


def _model(config: AgentConfig, given: Replacements) -> BaseChatModel:
    if model := given.models.get(config.id):
        return model
    try:
        return load_model(config.model, config.model_settings)
    except UsageError as error:
        hint = ""
        if config.model == "local":
            hint = " Or set another model, such as 'openai:gpt-4o-mini', or 'scripted' for a demo."
        raise UsageError(f"agent {config.id!r}: model: {error}{hint}") from error


def _embedder(config: AgentConfig) -> Embedder | None:
    """The agent's embedder; none if it is the default one and its packages are not there."""
    if config.memory.embedder == "local":
        try:
            require_minilm()
        except UsageError as error:
            logger.warning(
                "agent %r: memory.embedder: %s Until then memories are found by their words alone.",
                config.id,
                error,
            )
            return None
    try:
        return load_embedder(config.memory.embedder)
    except UsageError as error:
        raise UsageError(f"agent {config.id!r}: memory.embedder: {error}") from error


def _books(settings: Settings, parts: Parts) -> dict[str, MemoryBook]:
    """The memories of agents that keep any, by the agent's id."""
    return {
        config.id: MemoryBook(
            parts.journal,
            _embedder(config),
            ids=parts.ids,
            clock=parts.clock.now,
            config=config.memory,
        )
        for config in settings.agents
        if config.keeps_memories
    }


async def _prepare(books: Mapping[str, MemoryBook]) -> None:
    """Off everybody's path: load embedders, and give memories without a vector of them one."""
    for agent_id, book in books.items():

        def tell(done: int, total: int, agent_id: str = agent_id) -> None:
            logger.info("Embedded %d of %d memories of agent %s", done, total, agent_id)

        try:
            await book.load()
            await book.reembed(tell, agent_id)
        except SegueError as error:
            # They are found by their words meanwhile; the next start tries again.
            logger.warning("Memories of agent %s were not embedded: %s", agent_id, error)


def _deciders(settings: Settings, given: Replacements) -> dict[str, Decider]:
    """Who decides about follow-ups, for agents that do not go by the rules, by the agent's id."""
    return {
        config.id: made
        for config in settings.agents
        if (made := _decider(config, given)) is not None
    }


def _decider(config: AgentConfig, given: Replacements) -> Decider | None:
    autonomy = config.autonomy
    if autonomy.decider in ("rules", "none"):
        return None
    if autonomy.decider == "model":
        return ModelDecider(_model(config, given), delays=autonomy.delays, policy=autonomy.policy)
    whose = f"agent {config.id!r}: decider"
    own = autonomy.decider
    return OwnDecider(load_attribute(own, whose) if isinstance(own, str) else own, whose)


def _summarisers(settings: Settings, given: Replacements) -> dict[str, Summariser]:
    """Who sums up long conversations, for agents that let them be summed up, by the agent's id."""
    found: dict[str, Summariser] = {}
    for config in settings.agents:
        if compresses(config) and config.compression.strategy is Strategy.SUMMARISE:
            is_own = config.compression.model is None
            found[config.id] = load_summariser(config, _model(config, given) if is_own else None)
    return found


def webhook_target(config: AgentConfig) -> WebhookTarget | None:
    """Where the agent's webhook leads; `UsageError` if it cannot be sent to."""
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
