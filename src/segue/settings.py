"""The settings of a running Segue: where it keeps things, which agents it has, how it works."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, model_validator

from segue.agent.config import AgentConfig, Config, Count, Span
from segue.core.errors import UsageError
from segue.runtime.inbox import COLLECT_FOR, DoubleTexting
from segue.runtime.processor import TurnRules

_ADDRESS = ("postgresql://", "postgres://")


class Settings(Config):
    """Everything has a default that works without a key, on one machine."""

    # What is wrong is named, not quoted: secrets of webhooks may stand beside it.
    model_config = ConfigDict(hide_input_in_errors=True)

    # A folder for SQLite files, or the address of a PostgreSQL database.
    database: str = "segue-data"
    agents: tuple[AgentConfig, ...] = (AgentConfig(id="companion"),)
    # What happens to a message that comes while another is being answered.
    double_texting: DoubleTexting = DoubleTexting.ENQUEUE
    collect_for: Span = COLLECT_FOR
    # How many turns this process works on at once.
    slots: Count = 8
    # How often a turn is tried before it fails, and how long its batch may take.
    max_attempts: Count = TurnRules().max_attempts
    # How often a model that failed for a moment is asked again.
    retries: Annotated[int, Field(ge=0)] = TurnRules().retries
    batch_time: Span = TurnRules().batch_time
    # After this time without a sign of life, another process takes over a turn or timer.
    lease_for: Span = timedelta(seconds=30)
    node_lease_for: Span = timedelta(hours=1)
    # The longest sleep, in case a wake-up call of another process got lost.
    poll: Span | None = timedelta(seconds=15)
    # How long a stopping process lets its turns finish before it hands them back.
    patience: Annotated[timedelta, Field(ge=timedelta(0))] = timedelta(seconds=5)

    @property
    def is_postgres(self) -> bool:
        words = self.database.split()
        return self.database.startswith(_ADDRESS) or any(w.startswith("dbname=") for w in words)

    @property
    def folder(self) -> Path:
        """Where the SQLite files are."""
        return Path(self.database)

    @model_validator(mode="after")
    def _check_agents(self) -> "Settings":
        ids = [agent.id for agent in self.agents]
        if not ids:
            raise UsageError("agents: there is none; give at least one.")
        if len(set(ids)) < len(ids):
            raise UsageError(f"agents: two have the same id: {', '.join(ids)}.")
        for agent in self.agents:
            if unknown := sorted(set(agent.may_ask) - set(ids)):
                raise UsageError(
                    f"agents.{agent.id}.may_ask: there is no agent {unknown[0]!r}; "
                    f"there are: {', '.join(ids)}."
                )
        return self
