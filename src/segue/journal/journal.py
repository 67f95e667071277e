"""The journal: the durable store, composed of one part for each noun.

A method of a part is one atomic business step. Stores never read the clock and never create an id:
`now` and `ids` are arguments, and times are aware. A step that raises has written nothing; a step
whose task was cancelled may have been written, so check before you repeat it. Leases carry a
fencing token: once another worker claimed an expired lease, its old owner gets `ConflictError` ("…
Nothing was written.") from every later step.

Errors: `NotFoundError` for an unknown thread or row, `ConflictError` for a lost lease or a used id,
`UsageError` for input that cannot be right, `BackendError` when the database fails.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator

from segue.journal.effects import Effects
from segue.journal.feed import Feed
from segue.journal.follow_ups import Decisions
from segue.journal.inbox import Inbox
from segue.journal.memories import Memories
from segue.journal.messages import Messages
from segue.journal.records import Hint
from segue.journal.registry import Keys, Nodes, Push, Users
from segue.journal.retention import Removal
from segue.journal.search import Search
from segue.journal.stats import Stats
from segue.journal.summaries import Summaries
from segue.journal.threads import States, Threads
from segue.journal.timers import Timers
from segue.journal.transfer import Transfer
from segue.journal.turns import Turns
from segue.journal.tx import Database


class Journal(ABC):
    def __init__(self, db: Database) -> None:
        self.threads = Threads(db)
        self.users = Users(db)
        self.inbox = Inbox(db)
        self.messages = Messages(db)
        self.feed = Feed(db)
        self.turns = Turns(db)
        self.states = States(db)
        self.timers = Timers(db)
        self.effects = Effects(db)
        self.decisions = Decisions(db)
        self.stats = Stats(db)
        self.search = Search(db)
        self.summaries = Summaries(db)
        self.removal = Removal(db)
        self.memories = Memories(db)
        self.keys = Keys(db)
        self.nodes = Nodes(db)
        self.push = Push(db)
        self.transfer = Transfer(db)

    @abstractmethod
    async def open(self) -> None:
        """Connect and migrate the schema from any earlier version, under a lock.

        A newer schema is refused, and nothing is changed.
        """

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    def watch(self, *, of_others: bool = False) -> AsyncGenerator[Hint]:
        """The threads in which any process has written, with their users.

        With `of_others`, this journal's own writes may be left out. A hint only: it may come late,
        twice or, while a connection is broken, not at all. Ends when the journal or the iterator
        is closed.
        """
