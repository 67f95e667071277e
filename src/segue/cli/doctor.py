"""`segue doctor`: checks whether Segue would run here, and suggests how to fix what would not.

With `--live`, it also opens and closes a connection to each address; nothing is sent.
"""

import asyncio
import os
import zoneinfo
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import typer

from segue.agent.build import build_graph, load_attribute, load_tool
from segue.agent.checkpoints.selftest import check_integrity
from segue.agent.embedders import load_embedder, require_minilm
from segue.agent.models import load_model
from segue.agent.state import kept_channels
from segue.cli.output import FAILED, Answer
from segue.cli.target import Place
from segue.compose import check_parts, load_toolbox, webhook_target
from segue.core.snowflake import time_of
from segue.errors import SegueError, UsageError
from segue.offline import OfflineSegue, open_offline
from segue.settings import Settings, load_settings
from segue.settings.agents import AgentConfig
from segue.settings.settings import LOCAL_MODEL_NOTE
from segue.stores import checkpoints_of, describe_location, is_there, schema_versions

# Two clocks that are synchronised over the network differ by less.
_CLOCK_TOLERANCE: Final = timedelta(seconds=5)
_ANY_ZONE: Final = "Europe/Oslo"
_BUILT_IN_DECIDERS: Final = ("rules", "none", "model")
_NOT_TRIED: Final = "`--live` checks whether it answers."
_LIVE = "Also connect to the addresses of models and webhooks; nothing is sent to them."
_MARKS: Final = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}
_COLOURS: Final = {"ok": "green", "warn": "yellow", "fail": "red"}
_LIVE_SECONDS: Final = 5.0
_LIVE_FIX: Final = "Is the address right, and may this machine reach it?"
# Attributes of LangChain's models that hold the address, and the providers' default addresses.
_ATTRIBUTES: Final = ("openai_api_base", "anthropic_api_url", "base_url", "azure_endpoint")
_PROVIDERS: Final = {
    "openai": "https://api.openai.com",
    "anthropic": "https://api.anthropic.com",
    "google_genai": "https://generativelanguage.googleapis.com",
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was checked, what was found, and how to fix it."""

    name: str
    outcome: Literal["ok", "warn", "fail"]
    detail: str
    fix: str = ""


def doctor(
    *,
    live: Annotated[bool, _LIVE] = False,
    place: Place,
) -> Answer:
    """Check settings, database, models, clock and time zones; exit code 1 if anything fails.

    Changes nothing: it applies no migration, and deletes its test message afterwards.
    """
    found = asyncio.run(_diagnose(place, is_live=live))
    has_failed = any(each.outcome == "fail" for each in found)
    return Answer(found, lambda: _print(found), FAILED if has_failed else 0)


def _print(found: list[Diagnosis]) -> None:
    for each in found:
        mark = typer.style(_MARKS[each.outcome], fg=_COLOURS[each.outcome])
        typer.echo(f"{mark}  {each.name}: {each.detail}")
        if each.fix:
            typer.echo(f"      {each.fix}")


async def _diagnose(place: Place, *, is_live: bool) -> list[Diagnosis]:
    """Check everything in the order of a start; with `is_live`, also connect to addresses."""
    kind, server = _check_server()
    try:
        settings = load_settings(place.config, kind=kind, database=place.database)
    except UsageError as error:
        found = [Diagnosis("settings", "fail", line) for line in str(error).splitlines()]
        return [*found[:-1], replace(found[-1], fix="docs/settings.md lists all settings.")]
    agents = ", ".join(agent.id for agent in settings.agents)
    found = [Diagnosis("settings", "ok", f"Valid. Agents: {agents}.")]
    if (deleted := settings.retention.deleted) is not None:
        detail = f"Deletes at each start and once a day: {deleted}."
        found.append(Diagnosis("retention", "ok", detail))
    found += [each async for each in _check_database(settings)]
    for agent in settings.agents:
        found += _check_agent(agent)
        found += [each async for each in _check_mcp(agent)]
        if is_live:
            found += [await _connect(agent, *each) for each in _addresses(agent)]
    return [*found, _check_zones(), server]


async def _check_database(settings: Settings) -> AsyncIterator[Diagnosis]:
    """Whether it is reachable, up to date and writable, and returns messages as they were."""
    if not is_there(settings):
        yield _check_new_place(settings)
        return
    try:
        place = describe_location(settings)
        version, known = await schema_versions(settings)
    except SegueError as error:
        fix = "" if isinstance(error, UsageError) else "Is `database` of the settings right?"
        yield Diagnosis("database", "fail", str(error), fix)
        return
    yield Diagnosis("database", "ok", f"{place} answers.")
    yield _check_version(version, known)
    if version != known:
        return
    try:
        async with open_offline(settings) as segue:
            yield await _check_clock(segue)
            await _store_and_load(segue)
    except (SegueError, OSError) as error:
        fix = "May this process write to the database? Are LangGraph's versions compatible?"
        yield Diagnosis("self-test", "fail", str(error), fix)
        return
    yield Diagnosis("self-test", "ok", "A message with metadata came back as it was stored.")


def _check_new_place(settings: Settings) -> Diagnosis:
    folder = settings.folder.absolute()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        detail = f"{describe_location(settings)} is created by the first start."
        return Diagnosis("database", "ok", detail)
    fix = "Set `database` to a folder that this process may write to, or to a PostgreSQL address."
    return Diagnosis("database", "fail", f"{existing} is not writable.", fix)


def _check_version(version: int, known: int) -> Diagnosis:
    if version == known:
        return Diagnosis("migrations", "ok", f"The schema is up to date ({known}).")
    if version < known:
        detail = f"The schema is at {version} of {known}."
        return Diagnosis("migrations", "warn", detail, "The next start migrates it.")
    detail = f"The schema is {version}, and this version of Segue knows {known}."
    return Diagnosis("migrations", "fail", detail, "Install the newer version of Segue.")


async def _check_clock(segue: OfflineSegue) -> Diagnosis:
    newest, now = await segue.last_position(), segue.clock.now()
    ahead = time_of(newest) - now if newest else timedelta(0)
    clock = f"It is {now:%Y-%m-%d %H:%M:%S} UTC"
    if ahead <= _CLOCK_TOLERANCE:
        return Diagnosis("clock", "ok", f"{clock}, after all stored messages.")
    detail = f"{clock}, and the newest message was stored at {time_of(newest):%Y-%m-%d %H:%M:%S}."
    fix = "Set the clock of this machine, or of the one that stored it; follow-ups depend on it."
    return Diagnosis("clock", "fail", detail, fix)


async def _store_and_load(segue: OfflineSegue) -> None:
    checkpoints = await checkpoints_of(segue.settings).open()
    try:
        async with segue.new_ids() as ids:
            now = segue.clock.now()
            await check_integrity(segue.journal, checkpoints.saver(), ids=ids, now=now)
    finally:
        await checkpoints.close()


def _check_agent(agent: AgentConfig) -> list[Diagnosis]:
    """Whether its parts can be loaded and fit together; none of them is called."""
    found = [*_check_parts(agent)]
    if all(each.outcome != "fail" for each in found):
        fix = "`segue serve` refuses it. docs/settings.md lists all settings."
        found.append(
            _attempt(
                f"settings of {agent.id}", lambda: check_parts(agent), "They fit together.", fix
            )
        )
    return found


def _check_parts(agent: AgentConfig) -> Iterator[Diagnosis]:
    yield _check_model(agent) if agent.graph is None else _check_graph(agent)
    if agent.tools or agent.autonomy.decider not in _BUILT_IN_DECIDERS:
        fix = "Name modules of the working directory or installed ones: 'module:name'."
        yield _attempt(f"tools of {agent.id}", lambda: _load_own_code(agent), "Found: {}.", fix)
    if agent.keeps_memories:
        yield _check_embedder(agent)
    if agent.webhook is not None:
        detail = f"It has an address and a secret. {_NOT_TRIED}"
        fix = "See docs/runtime.md for what a webhook needs."
        yield _attempt(f"webhook of {agent.id}", lambda: webhook_target(agent), detail, fix)


def _attempt(name: str, load: Callable[[], object], detail: str, fix: str) -> Diagnosis:
    """Ok unless `load` raises `SegueError`; `{}` in `detail` is what it returned."""
    try:
        return Diagnosis(name, "ok", detail.format(load()))
    except SegueError as error:
        return Diagnosis(name, "fail", str(error), fix)


async def _check_mcp(agent: AgentConfig) -> AsyncIterator[Diagnosis]:
    """The tools of its MCP servers, by listing them; none of them is called."""
    if not agent.mcp:
        return
    try:
        async with load_toolbox(agent).open() as toolbox:
            tools = [tool.name for tool in await toolbox.tools()]
            servers = {server.name: server.problem for server in toolbox.servers}
    except UsageError as error:
        yield Diagnosis(f"mcp of {agent.id}", "fail", str(error))
        return
    for name, problem in servers.items():
        listed = ", ".join(tool for tool in tools if tool.startswith(f"{name}__"))
        where = f"mcp server {name} of {agent.id}"
        if problem is None:
            yield Diagnosis(where, "ok", f"Tools: {listed or 'none'}.")
        else:
            fix = "The agent runs without its tools. `segue serve` retries."
            yield Diagnosis(where, "fail", problem, fix)


def _check_graph(agent: AgentConfig) -> Diagnosis:
    name = f"graph of {agent.id}"
    try:
        built = build_graph(agent)
    except SegueError as error:
        return Diagnosis(name, "fail", str(error), "See docs/agent.md for what a graph needs.")
    kept = ", ".join(sorted(kept_channels(built.graph))) or "nothing"
    detail = f"It can be loaded. It keeps from turn to turn, beside its messages: {kept}."
    if built.notes:
        return Diagnosis(name, "warn", " ".join([detail, *built.notes]), "Compile it without them.")
    return Diagnosis(name, "ok", detail)


def _load_own_code(agent: AgentConfig) -> str:
    names = [load_tool(given, agent.id).name for given in agent.tools]
    decider = agent.autonomy.decider
    if isinstance(decider, str) and decider not in _BUILT_IN_DECIDERS:
        load_attribute(decider, f"agent {agent.id!r}: decider")
        names.append("its own decider")
    return ", ".join(names)


def _check_model(agent: AgentConfig) -> Diagnosis:
    name = f"model of {agent.id}"
    fix = "Or set another one: 'provider:model' with its key, or 'scripted' for a demo."
    detail = f"{agent.model!r} is installed and has a key. {_NOT_TRIED}"
    found = _attempt(name, lambda: load_model(agent.model, agent.model_settings), detail, fix)
    if found.outcome == "fail":
        return found
    if agent.model == "local":
        fix = "Set `model` to one such as 'openai:gpt-4o-mini' before users chat with it."
        return Diagnosis(name, "warn", f"'local' is {LOCAL_MODEL_NOTE}.", fix)
    if agent.model == "scripted":
        return Diagnosis(name, "warn", "'scripted' answers by rules.", "Set `model` to a real one.")
    return found


def _check_embedder(agent: AgentConfig) -> Diagnosis:
    name, embedder = f"embedder of {agent.id}", agent.memory.embedder
    if embedder != "local":
        detail = f"{embedder!r} is installed. {_NOT_TRIED}"
        fix = "Or set `memory.embedder` to 'local'."
        return _attempt(name, lambda: load_embedder(embedder), detail, fix)
    fix = "Until then memories are searched by words, not by meaning."
    found = _attempt(name, require_minilm, "'local' is installed.", fix)
    return replace(found, outcome="warn") if found.outcome == "fail" else found


def _addresses(agent: AgentConfig) -> Iterator[tuple[str, str | None]]:
    if agent.graph is None and agent.model not in {"local", "scripted"}:
        try:
            model = load_model(agent.model, agent.model_settings)
        except SegueError:
            pass  # reported by the check of the model
        else:
            yield "model", _address_of(model, agent.model)
    if agent.webhook is not None and urlsplit(agent.webhook.url).hostname:
        yield "webhook", agent.webhook.url


def _address_of(model: Any, name: str) -> str | None:
    given = (getattr(model, attribute, None) for attribute in _ATTRIBUTES)
    known = _PROVIDERS.get(name.partition(":")[0])
    return next((address for address in given if isinstance(address, str)), known)


async def _connect(agent: AgentConfig, what: str, address: str | None) -> Diagnosis:
    name = f"{what} of {agent.id}, live"
    if address is None:
        return Diagnosis(name, "warn", f"The address of {agent.model!r} is not known.")
    parts = urlsplit(address)
    is_secure = parts.scheme == "https"
    port = parts.port or (443 if is_secure else 80)
    # Without the path: a webhook's is often a secret.
    place = f"{parts.hostname}:{port}"
    try:
        async with asyncio.timeout(_LIVE_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, port, ssl=is_secure or None)
            writer.close()
    except TimeoutError:
        return Diagnosis(
            name, "fail", f"{place} does not answer within {_LIVE_SECONDS:.0f} s.", _LIVE_FIX
        )
    except OSError as error:
        reason = (error.strerror or str(error)).rstrip(".")
        return Diagnosis(name, "fail", f"{place} does not answer: {reason}.", _LIVE_FIX)
    return Diagnosis(name, "ok", f"{place} answers.")


def _check_zones() -> Diagnosis:
    try:
        zoneinfo.ZoneInfo(_ANY_ZONE)
    except (zoneinfo.ZoneInfoNotFoundError, OSError):
        fix = "pip install tzdata, or install it with the system's package manager."
        detail = "Time zone data is missing; quiet hours need it."
        return Diagnosis("time zones", "fail", detail, fix)
    return Diagnosis("time zones", "ok", "Time zone data is installed.")


def _check_server() -> tuple[type[Settings], Diagnosis]:
    """Settings with the server's section if the server is installed, and whether it is."""
    try:
        import segue.server.app  # noqa: PLC0415 - an extra
        from segue.server.settings import ServedSettings  # noqa: PLC0415
    except ModuleNotFoundError as error:
        detail = f"`segue serve` needs {error.name}."
        return Settings, Diagnosis("server", "warn", detail, "pip install 'segue[server]'")
    del segue
    return ServedSettings, Diagnosis("server", "ok", "All packages that it needs are installed.")
