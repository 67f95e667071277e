"""What a migration found and did, for people and programs."""

from dataclasses import dataclass, field
from typing import Literal

Became = Literal["migrated", "continued", "unchanged"]


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of one conversation; nothing yet, if all of it is held back."""

    became: Became | None
    messages: int = 0
    markers: int = 0
    orphans: int = 0
    repairs: int = 0
    is_held: bool = False
    # Whose the thread is.
    user: str = ""


@dataclass(frozen=True, slots=True)
class Renamed:
    """A conversation whose name cannot be a thread's, and what it is called here."""

    thread: str
    became: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A conversation that was not taken, and why."""

    thread: str
    why: str


@dataclass(slots=True)
class Report:
    """All conversations of a source."""

    is_dry_run: bool = False
    threads: int = 0
    # New here.
    migrated: int = 0
    # Known from an earlier run, and longer since.
    continued: int = 0
    unchanged: int = 0
    # With a last batch that somebody may be working on: it comes with a later run.
    held_back: int = 0
    messages: int = 0
    # Old text markers that became metadata.
    markers: int = 0
    # Results without a call: kept, and never told to a model.
    orphans: int = 0
    # Batches that nobody had finished, and that were settled.
    repairs: int = 0
    # How many of those that are new here went to whom.
    users: dict[str, int] = field(default_factory=dict)
    # Of all that are here, known ones too.
    renamed: list[Renamed] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def count(self, taken: Taken) -> None:
        self.migrated += taken.became == "migrated"
        self.continued += taken.became == "continued"
        self.unchanged += taken.became == "unchanged"
        self.held_back += taken.is_held
        self.messages += taken.messages
        self.markers += taken.markers
        self.orphans += taken.orphans
        self.repairs += taken.repairs
        if taken.became == "migrated":
            self.users[taken.user] = self.users.get(taken.user, 0) + 1
