"""The checks of `segue doctor`, each with what it found and what to do about it."""

import os
import sqlite3
import zoneinfo
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from datetime import timedelta
from importlib import resources
from pathlib import Path
from typing import Final

from segue.agent.build import build_graph, load_attribute, load_tool
from segue.agent.config import AgentConfig
from segue.agent.embedders import load_embedder
from segue.agent.local_engine import HONESTLY
from segue.agent.minilm import require_minilm
from segue.agent.models import load_model
from segue.cli.live import Check, check_addresses
from segue.cli.opening import open_journal
from segue.compose import webhook_target
from segue.core.errors import BackendError, SegueError, UsageError
from segue.core.snowflake import time_of
from segue.journal.ports import Journal
from segue.journal.selftest import check_integrity
from segue.runtime.clock import SystemClock
from segue.runtime.ids import LeasedIds
from segue.settings import Settings, load_settings
from segue.stores import JOURNAL_FILE, checkpoints_of, is_there, place_of

# Two clocks that are set by the network differ by less.
_CLOCK_SLACK: Final = timedelta(seconds=5)
_CONNECT_SECONDS: Final = 10
_SOME_ZONE: Final = "Europe/Oslo"
# Those that come with Segue.
_DECIDERS: Final = ("rules", "none", "model")
_NOT_TRIED: Final = "`--live` tries whether it answers."


async def check_all(
    config: Path | None, database: str | None, *, is_live: bool = False
) -> list[Check]:
    """Everything, in the order in which a start would need it; with `is_live`, also whether
    addresses of models and webhooks answer.
    """
    try:
        settings = load_settings(config, kind=_kind(), database=database)
    except UsageError as error:
        found = [Check("settings", "fail", line) for line in str(error).splitlines()]
        return [*found[:-1], replace(found[-1], fix="docs/settings.md says what they take.")]
    agents = ", ".join(agent.id for agent in settings.agents)
    checks = [Check("settings", "ok", f"They can be read. Agents: {agents}.")]
    checks += [check async for check in _check_database(settings)]
    for agent in settings.agents:
        checks += _check_agent(agent)
        if is_live:
            checks += [check async for check in check_addresses(agent)]
    return [*checks, _check_zones(), _check_server()]


def _kind() -> type[Settings]:
    """With the server's section, where there is a server."""
    try:
        from segue.server.settings import ServedSettings  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return Settings
    return ServedSettings


async def _check_database(settings: Settings) -> AsyncIterator[Check]:
    """Reachable, up to date, writable, and true to what it is given."""
    if not is_there(settings):
        yield _check_new_place(settings)
        return
    try:
        place = place_of(settings)
        version, known = await _versions(settings)
    except SegueError as error:
        yield Check("database", "fail", str(error), "Is `database` of the settings right?")
        return
    yield Check("database", "ok", f"{place} answers.")
    yield _check_version(version, known)
    if version != known:
        return
    try:
        async with open_journal(settings) as journal:
            yield await _check_clock(journal)
            await _test_itself(settings, journal)
    except (SegueError, OSError) as error:
        fix = "This process needs to write to the database, and the versions of LangGraph to fit."
        yield Check("self-test", "fail", str(error), fix)
        return
    yield Check("self-test", "ok", "A message with metadata came back as it was stored.")


def _check_new_place(settings: Settings) -> Check:
    folder = settings.folder.absolute()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return Check("database", "ok", f"{place_of(settings)} is made with the first start.")
    fix = "Set `database` to a folder that this process may write to, or to a PostgreSQL address."
    return Check("database", "fail", f"{there} cannot be written to.", fix)


def _check_version(version: int, known: int) -> Check:
    if version == known:
        return Check("migrations", "ok", f"The schema is up to date ({known}).")
    if version < known:
        detail = f"The schema is at {version} of {known}."
        return Check("migrations", "warn", detail, "The next start brings it up to date.")
    detail = f"The schema is {version}, and this version of Segue knows {known}."
    return Check("migrations", "fail", detail, "Install the newer version of Segue.")


async def _versions(settings: Settings) -> tuple[int, int]:
    """The schema's version as it is, and the one that this code has; changes nothing."""
    kind = "postgres" if settings.is_postgres else "sqlite"
    scripts = resources.files("segue.journal.migrations") / kind
    known = sum(file.name.endswith(".sql") for file in scripts.iterdir())
    if settings.is_postgres:
        return await _postgres_version(settings.database), known
    return _sqlite_version(settings.folder / JOURNAL_FILE), known


def _sqlite_version(file: Path) -> int:
    try:
        with closing(sqlite3.connect(file)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error as error:
        raise BackendError(f"SQLite file {str(file)!r}: {error}.") from None
    return int(version)


async def _postgres_version(address: str) -> int:
    import psycopg  # noqa: PLC0415 - an extra

    from segue.journal.postgres.database import check_address  # noqa: PLC0415

    check_address(address)
    try:
        async with await psycopg.AsyncConnection.connect(
            address, connect_timeout=_CONNECT_SECONDS
        ) as connection:
            found = await connection.execute("SELECT to_regclass('segue_schema')")
            if (await found.fetchone() or (None,))[0] is None:
                return 0
            found = await connection.execute("SELECT coalesce(max(version), 0) FROM segue_schema")
            return int((await found.fetchone() or (0,))[0])
    except psycopg.Error as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise BackendError(f"PostgreSQL: {reason.rstrip('.')}.") from None


async def _check_clock(journal: Journal) -> Check:
    newest, now = await journal.last_position(), SystemClock().now()
    ahead = time_of(newest) - now if newest else timedelta(0)
    if ahead <= _CLOCK_SLACK:
        return Check("clock", "ok", f"It is {now:%Y-%m-%d %H:%M:%S} UTC, after all that is stored.")
    return Check(
        "clock",
        "fail",
        f"It is {now:%Y-%m-%d %H:%M:%S} UTC, and the newest message was stored at "
        f"{time_of(newest):%Y-%m-%d %H:%M:%S}.",
        "Set the clock of this machine, or of the one that stored it; follow-ups go by it.",
    )


async def _test_itself(settings: Settings, journal: Journal) -> None:
    clock = SystemClock()
    owner = f"doctor:{os.getpid()}"
    ids = LeasedIds(journal, clock, owner=owner, lease_for=timedelta(minutes=1))
    async with AsyncExitStack() as stack:
        checkpoints = checkpoints_of(settings)
        await checkpoints.open()
        stack.push_async_callback(checkpoints.close)
        await ids.open()
        stack.push_async_callback(ids.close)
        await check_integrity(journal, checkpoints.saver(), ids=ids, now=clock.now())


def _check_agent(agent: AgentConfig) -> Iterator[Check]:
    yield _check_model(agent) if agent.graph is None else _check_graph(agent)
    if agent.tools or agent.autonomy.decider not in _DECIDERS:
        yield _check_own_code(agent)
    if agent.keeps_memories:
        yield _check_embedder(agent)
    if agent.webhook is not None:
        yield _check_webhook(agent)


def _check_model(agent: AgentConfig) -> Check:
    """Whether it can be set up; a real one is not asked anything."""
    name = f"model of {agent.id}"
    try:
        load_model(agent.model, agent.model_settings)
    except SegueError as error:
        fix = "Or set another one: 'provider:model' with its key, or 'scripted' for a demo."
        return Check(name, "fail", str(error), fix)
    if agent.model == "local":
        fix = "Set `model` to one such as 'openai:gpt-4o-mini' before people talk with it."
        return Check(name, "warn", f"'local' is {HONESTLY}.", fix)
    if agent.model == "scripted":
        return Check(name, "warn", "'scripted' speaks by rules.", "Set `model` to a real one.")
    return Check(name, "ok", f"{agent.model!r} is installed and has a key. {_NOT_TRIED}")


def _check_graph(agent: AgentConfig) -> Check:
    """Whether it is found and can be run; it is not called."""
    name = f"graph of {agent.id}"
    try:
        build_graph(agent)
    except SegueError as error:
        return Check(name, "fail", str(error), "docs/agent.md says what a graph needs.")
    return Check(name, "ok", "A graph of its own; it can be loaded.")


def _check_webhook(agent: AgentConfig) -> Check:
    """Whether it can be sent to; nothing is sent."""
    name = f"webhook of {agent.id}"
    try:
        webhook_target(agent)
    except SegueError as error:
        return Check(name, "fail", str(error), "docs/runtime.md says what a webhook needs.")
    return Check(name, "ok", f"It has an address and a secret. {_NOT_TRIED}")


def _check_own_code(agent: AgentConfig) -> Check:
    """Whether tools and decider are found; they are not called."""
    name, decider = f"tools of {agent.id}", agent.autonomy.decider
    try:
        found = [load_tool(given, agent.id).name for given in agent.tools]
        if isinstance(decider, str) and decider not in _DECIDERS:
            load_attribute(decider, f"agent {agent.id!r}: decider")
            found.append("its own decider")
    except SegueError as error:
        fix = "Modules of the working directory and installed ones can be named: 'module:name'."
        return Check(name, "fail", str(error), fix)
    return Check(name, "ok", f"Found: {', '.join(found)}.")


def _check_embedder(agent: AgentConfig) -> Check:
    name, embedder = f"embedder of {agent.id}", agent.memory.embedder
    try:
        if embedder == "local":
            require_minilm()
        else:
            load_embedder(embedder)
    except SegueError as error:
        if embedder == "local":
            fix = "Until then memories are found by their words alone."
            return Check(name, "warn", str(error), fix)
        return Check(name, "fail", str(error), "Or set `memory.embedder` to 'local'.")
    tried = "" if embedder == "local" else f" {_NOT_TRIED}"
    return Check(name, "ok", f"{embedder!r} is installed.{tried}")


def _check_zones() -> Check:
    try:
        zoneinfo.ZoneInfo(_SOME_ZONE)
    except (zoneinfo.ZoneInfoNotFoundError, OSError):
        fix = "pip install tzdata, or install it by the system's packages."
        return Check("time zones", "fail", "There is no time zone data: quiet hours need it.", fix)
    return Check("time zones", "ok", "They are known.")


def _check_server() -> Check:
    try:
        from segue.server.app import create_app  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        detail = f"`segue serve` needs {error.name}."
        return Check("server", "warn", detail, "pip install 'segue[server]'")
    del create_app
    return Check("server", "ok", "All that it needs is installed.")
