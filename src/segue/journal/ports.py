"""The contracts of the journal. One method is one atomic business step.

Stores never ask for the time and never make up an id: `now` and `ids` are arguments, and times are
aware. A step that raises has written nothing; of one whose task was cancelled nobody can say, so
look before you repeat it. Leases carry a fencing token: whoever lost a lease gets `ConflictError`
("… Nothing was written.") from every later step, however late it comes. A lease is lost when
somebody else takes it, which they can once its time is over.

Errors: `NotFoundError` for an unknown thread or row, `ConflictError` for a lost lease or a used id,
`UsageError` for input that cannot be right, `BackendError` when the database fails.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Protocol

from langchain_core.messages import BaseMessage, HumanMessage

from segue.core.batch import Batch
from segue.core.snowflake import MAX_ID, SnowflakeSource
from segue.journal.outcomes import ArmTally, OutcomeCount, OutcomeQuery, SearchCount
from segue.journal.records import (
    STOPPED,
    Accepted,
    ApiKey,
    Arrival,
    Claimed,
    Decision,
    Deleted,
    Effect,
    EffectLease,
    Ending,
    Events,
    FollowUpCounts,
    Found,
    FoundMemory,
    KeptMemory,
    Memory,
    MemorySearch,
    NewMemory,
    NewTimer,
    Page,
    Summary,
    Thread,
    ThreadPlace,
    Timer,
    TimerLease,
    TimerState,
    Turn,
    TurnLease,
    Window,
)
from segue.journal.retention import Removed, ThreadBatches
from segue.journal.tables import Restored, Row, Rows, Table


class Threads(Protocol):
    """Conversations and the list of them."""

    async def create_thread(
        self,
        thread_id: str,
        *,
        agent_id: str,
        user_id: str,
        now: datetime,
        settings: Mapping[str, Any] | None = None,
    ) -> Thread:
        """Begin a conversation. Again with the same agent and user: the thread as it is;
        with others: `ConflictError`.
        """
        ...

    async def get_thread(self, thread_id: str) -> Thread: ...

    async def list_threads(
        self,
        user_id: str,
        *,
        agent_id: str | None = None,
        limit: int = 50,
        before: ThreadPlace | None = None,
        with_nested: bool = False,
    ) -> list[Thread]:
        """A user's threads, the one written to last first; `before` is the place of the last one of
        the page before. Those in which agents ask each other are no conversations of the user's,
        and come only with `with_nested`. Cost follows the limit, not the number of messages.
        """
        ...

    async def list_newest_threads(self, *, limit: int = 50) -> list[Thread]:
        """Threads of all users, the one written to last first, for who may see everybody's.

        Those in which agents ask each other are not among them. Every thread is looked at, and no
        more than the limit kept.
        """
        ...

    async def update_thread(
        self,
        thread_id: str,
        *,
        title: str | None = None,
        settings: Mapping[str, Any] | None = None,
        reconsider_at: datetime | None = None,
    ) -> Thread:
        """Set what is given: the title, or settings merged into those that are there (null
        removes one). A title set here is no longer taken from the first message. With
        `reconsider_at`, the thread's follow-up that was put off can be claimed from then on.
        """
        ...

    async def note_typing(self, thread_id: str, *, now: datetime) -> None:
        """The user is typing; nothing else of the thread changes."""
        ...

    async def delete_thread(self, thread_id: str) -> Deleted:
        """Delete a thread and all that belongs to it, nested threads too, and say what. Memories
        belong to the user.
        """
        ...


class Users(Protocol):
    """What a user wants of all agents: time zone, quiet hours, snooze, opt-out."""

    async def get_user_settings(self, user_id: str) -> Mapping[str, Any]:
        """Empty for a user of whom nothing is known."""
        ...

    async def update_user_settings(
        self,
        user_id: str,
        settings: Mapping[str, Any],
        *,
        now: datetime,
        reconsider_at: datetime | None = None,
    ) -> Mapping[str, Any]:
        """Merge settings into those that are there (null removes one) and return them all.

        With `reconsider_at`, the user's follow-ups that were put off can be claimed from then on.
        """
        ...


class Messages(Protocol):
    """The append-only journal."""

    async def accept_message(
        self,
        thread_id: str,
        message: HumanMessage,
        *,
        ids: SnowflakeSource,
        now: datetime,
        client_message_id: str | None = None,
        arrival: Arrival = Arrival(),  # noqa: B008 - it is frozen
    ) -> Accepted:
        """Store a user's message in a new batch, raise the epoch, and queue its turn.

        The same step cancels the thread's live follow-up timers and voids its live follow-up turns
        that the user has not seen: of which no message is stored, and no piece is kept or the first
        was shown less than `SEEN_AFTER` ago. Answers are not touched.
        A batch that waits for an answer is settled: the user said something else instead.
        With a `client_message_id` used before in the thread nothing changes, and the first
        acceptance is returned with `is_new` false. `UsageError` for a synthetic message.

        With `arrival.collect` the turn can be taken only after that time; a message that comes
        before it was taken joins its batch and starts the wait anew, up to five times its length
        in all. With `arrival.only_if_idle`: `ConflictError` while a reply is queued or running.
        """
        ...

    async def events(self, thread_id: str, *, after: int = 0, limit: int = 200) -> Events:
        """What listeners see above a position, oldest first: visible messages and ends of turns
        that say something; the text so far of the message that is being written; and which turn
        runs. With a user's message it is known that the follow-ups before it that are void do not.
        """
        ...

    async def append(
        self,
        lease: TurnLease,
        messages: Sequence[BaseMessage],
        *,
        ids: SnowflakeSource,
        now: datetime,
    ) -> list[BaseMessage]:
        """Store messages at the end of the turn's batch and return them as stored.

        What a follow-up says to the user is seen as soon as it is stored: `show_turn` comes first.

        Positions rise above everything in the thread, sequence numbers go on without a gap. A
        message whose id is in the batch already is not stored again; the stored one is
        returned, so a step that was cut off can be repeated.
        """
        ...

    async def load_batch(self, thread_id: str, batch: int) -> Batch:
        """The batch with all its messages; `segue.journal.rows.DamagedError` for one that cannot
        be read, so that nobody takes it for a database that is away.
        """
        ...

    async def load_batches(self, thread_id: str, batches: Collection[int]) -> list[Batch]:
        """Several batches with all their messages, oldest first, in one statement.

        One that is not there is left out, `NotFoundError` if none is; one that cannot be read is
        left out with a line in the log.
        """
        ...

    async def tail(
        self, thread_id: str, *, max_tokens: int, current_batch: int | None = None
    ) -> list[Batch]:
        """The newest batches that are not archived, newest first, at least `max_tokens` of them.

        Never a cut batch. With a current batch, nothing newer than it. Cost follows the budget,
        not the length of the thread.
        """
        ...

    async def window(
        self, thread_id: str, *, max_tokens: int, current_batch: int | None = None
    ) -> Window:
        """The tail together with the newest summary, as of one moment."""
        ...

    async def list_live_batches(
        self, thread_id: str, *, after: int = 0, limit: int = 100
    ) -> list[int]:
        """The ids of batches that are not archived, above an id, oldest first. Cost follows the
        limit.
        """
        ...

    async def history(
        self,
        thread_id: str,
        *,
        limit: int = 50,
        before: int | None = None,
        after: int | None = None,
    ) -> Page:
        """Visible messages, oldest first: the newest, or those next to a position.

        Paging is stable while messages are added: nothing twice, nothing left out. Visibility is
        read from columns written with the message; content is not looked at.
        """
        ...

    async def search(
        self, user_id: str, text: str, *, thread_id: str | None = None, limit: int = 20
    ) -> list[Found]:
        """Visible messages of a user that match words, best first. Any text is a valid query.

        What agents asked each other is found only in a thread that is named.
        """
        ...

    async def list_batch(self, agent_id: str, batch: int) -> list[BaseMessage]:
        """All messages of a batch that belong to an agent, in sequence."""
        ...

    async def list_incomplete_batches(
        self, agent_id: str, *, limit: int = 100
    ) -> list[tuple[str, Batch]]:
        """An agent's unfinished batches with their threads, oldest first.

        Those that a turn works on or left open. Not those of follow-ups that became void, and not
        imported ones: nobody will go on with them.
        """
        ...


class Turns(Protocol):
    """The queue of batches to process: one running per thread, in order of arrival."""

    async def claim_turn(
        self, owner: str, *, now: datetime, lease_for: timedelta
    ) -> TurnLease | None:
        """Take the next turn: the oldest of its thread, from the thread that waits longest.

        It waits since it was served last, since its lease ran out, or since it was to be tried
        again. A turn whose lease ran out is taken again. Two callers never get the same turn.
        One that was never taken and was queued by a clock ahead of `now` counts as queued now.
        A lease or pause that began more than `CLOCK_SKEW` after `now` lasts from now on; the same
        holds for leases of timers and effects.
        None if there is none, or if the only ones are in somebody's hands this moment:
        `next_turn_at` says when to ask again.
        """
        ...

    async def claim_turns(
        self, owner: str, *, now: datetime, lease_for: timedelta, limit: int
    ) -> Claimed:
        """Take several turns at once, each as `claim_turn` does, and say when to ask again."""
        ...

    async def extend_turn(
        self, lease: TurnLease, *, now: datetime, lease_for: timedelta
    ) -> TurnLease: ...

    async def show_turn(self, lease: TurnLease, *, now: datetime) -> None:
        """Mark that the user is about to see something of it. After `SEEN_AFTER`, with a piece kept
        by `save_partial`, it is not voided any more.

        `ConflictError` if the user wrote in the meantime: then nothing may be shown.
        """
        ...

    async def release_turn(
        self,
        lease: TurnLease,
        *,
        now: datetime,
        retry_at: datetime | None = None,
        is_fault: bool = False,
    ) -> None:
        """Give a turn back to the queue, to be taken at once or not before `retry_at`.

        `is_fault`: its own run broke this try. Then the pause counts as work, too; any other try
        counts up to now, and one whose lease ran out up to when that was last extended.
        """
        ...

    async def finish_turn(
        self,
        lease: TurnLease,
        messages: Sequence[BaseMessage] = (),
        *,
        ids: SnowflakeSource,
        now: datetime,
        ending: Ending = Ending(),  # noqa: B008 - it is frozen
    ) -> list[BaseMessage]:
        """Store the last messages and the end of the turn, with all that follows, together."""
        ...

    async def fail_turn(
        self,
        lease: TurnLease,
        error: str,
        *,
        ids: SnowflakeSource,
        now: datetime,
        messages: Sequence[BaseMessage] = (),
        ending: Ending = Ending(),  # noqa: B008 - it is frozen
    ) -> list[BaseMessage]:
        """End a turn for good; `messages` are what settles its batch."""
        ...

    async def withdraw_turn(
        self,
        lease: TurnLease,
        reason: str,
        *,
        ids: SnowflakeSource,
        now: datetime,
        ending: Ending = Ending(),  # noqa: B008 - it is frozen
    ) -> None:
        """End a follow-up of which nothing was shown as void. `ConflictError` if it was shown."""
        ...

    async def save_partial(self, lease: TurnLease, message_id: str, text: str) -> None:
        """Keep the text so far of the message that the turn writes; gone with the turn's end, and
        with the next claim.
        """
        ...

    async def cancel_turns(
        self,
        thread_id: str,
        reason: str = STOPPED,
        *,
        ids: SnowflakeSource,
        now: datetime,
        before: int | None = None,
        only: int | None = None,
    ) -> list[Turn]:
        """Mark the thread's live turns as to be stopped, and return them; all, those that came
        before a turn, or `only` one.

        The reason of the first who asked is their `error` until they end. When all are to be
        stopped, the same step cancels the thread's live continuation timers with the reason, and
        settles their batches.
        """
        ...

    async def answer_turn(
        self, turn_id: int, answer: Any, *, ids: SnowflakeSource, now: datetime
    ) -> Turn:
        """Queue a turn that goes on with the batch of one that waits, with the answer as
        `payload["answer"]` and the ids of the questions as `payload["asked"]`; `UsageError` if
        there are several and the answer does not name any.

        The user spoke: as with a message, the epoch rises and follow-ups end. `ConflictError` if
        the turn does not wait (any more).
        """
        ...

    async def get_turn(self, turn_id: int) -> Turn: ...

    async def list_turns(
        self,
        thread_id: str,
        *,
        limit: int = 50,
        batches: Collection[int] | None = None,
        only_waiting: bool = False,
    ) -> list[Turn]:
        """A thread's turns, newest first; all, or those of some batches, or those that wait for an
        answer.
        """
        ...

    async def next_turn_at(self, *, now: datetime) -> datetime | None:
        """When the next turn can be taken: a time in the past or `now` means at once."""
        ...


class Timers(Protocol):
    """Durable promises to consider a follow-up."""

    async def arm_timer(
        self, timer: NewTimer, *, ids: SnowflakeSource, now: datetime, epoch: int | None = None
    ) -> Timer:
        """Arm a timer at the thread's present epoch; a `ConflictError` if that is not `epoch` any
        more: the user wrote or dropped follow-ups since.

        A thread has at most one live follow-up timer: arming again replaces it in one step, and
        the one replaced is recorded as cancelled. A follow-up needs a trigger and has no batch of
        its own yet, a continuation names the batch it goes on in: anything else is a `UsageError`,
        an unknown batch a `NotFoundError`.
        """
        ...

    async def claim_due_timers(
        self, owner: str, *, now: datetime, lease_for: timedelta, limit: int = 100
    ) -> list[TimerLease]:
        """Take what is due, in order of time. A row that cannot be read is set aside as
        suppressed with the reason, and the others are not held up.
        """
        ...

    async def next_due_at(self) -> datetime | None:
        """When the next timer is due or a claimed one may be taken again."""
        ...

    async def count_timers(self, *, limit: int) -> int:
        """How many timers are alive; so many are counted at most."""
        ...

    async def fire_timer(
        self,
        lease: TimerLease,
        message: HumanMessage,
        *,
        ids: SnowflakeSource,
        now: datetime,
        counted: FollowUpCounts | None = None,
        decisions: Sequence[Decision] = (),
    ) -> Turn | None:
        """Store the synthetic message in a new batch, queue its turn, and close the timer.

        `counted` is what the gates decided on: `ConflictError` if it is no longer so, because the
        user got a follow-up of another thread in the meantime. Then ask the gates again.

        None if the user wrote since the timer was armed or somebody cancelled or replaced it: then
        it is cancelled, and nothing is stored. A continuation timer goes on in its own batch.
        `UsageError` for a message that is not synthetic: the user would see it.
        """
        ...

    async def count_follow_ups(
        self, thread_id: str, *, day_began: datetime, leaving_out: int | None = None
    ) -> FollowUpCounts:
        """What the thread's user got of follow-ups; one turn may be left out.

        Counted are those that were shown, and those that are queued or running.
        """
        ...

    async def postpone_timer(
        self,
        lease: TimerLease,
        until: datetime,
        reason: str,
        *,
        now: datetime,
        decisions: Sequence[Decision] = (),
    ) -> Timer: ...

    async def close_timer(
        self,
        lease: TimerLease,
        state: TimerState,
        reason: str,
        *,
        ids: SnowflakeSource,
        now: datetime,
        decisions: Sequence[Decision] = (),
    ) -> Timer:
        """End a claimed timer as suppressed, expired, missed or cancelled.

        The same step settles the batch of a continuation: nothing goes on with it.
        """
        ...

    async def cancel_timers(
        self, thread_id: str, reason: str, *, ids: SnowflakeSource, now: datetime
    ) -> list[Timer]:
        """Cancel the thread's live timers, and return them, oldest first.

        The same step settles the batches of its continuations, voids its follow-ups that the user
        has not seen, as `accept_message` does, and raises the epoch: no follow-up is armed any
        more for a turn that was queued before.
        """
        ...

    async def list_timers(self, thread_id: str, *, limit: int = 50) -> list[Timer]:
        """A thread's timers, newest first, with what became of them."""
        ...

    async def list_pending_timers(self, *, limit: int = 50) -> list[Timer]:
        """The live timers of all threads: the one that wakes next first."""
        ...


class Outbox(Protocol):
    """Effects: things to do outside after a commit, at least once."""

    async def claim_effects(
        self,
        owner: str,
        *,
        kind: str,
        now: datetime,
        lease_for: timedelta,
        limit: int = 20,
        not_of: Collection[str] = (),
    ) -> list[EffectLease]:
        """Take effects of one kind that are due, those that wait longest first.

        Those of the agents in `not_of` are left alone and hold up nobody.
        """
        ...

    async def next_effect_at(
        self, kind: str, *, now: datetime, not_of: Collection[str] = ()
    ) -> datetime | None:
        """When to claim effects of a kind: one is due then or a lease ends."""
        ...

    async def complete_effect(self, lease: EffectLease, evidence: str | None = None) -> None: ...

    async def retry_effect(
        self, lease: EffectLease, error: str, *, retry_at: datetime | None
    ) -> Effect:
        """Try again at a time, or give up (`retry_at` None): the effect is dead, not gone."""
        ...

    async def list_effects(self, thread_id: str, *, limit: int = 50) -> list[Effect]:
        """A thread's effects, newest first, with what became of them."""
        ...

    async def list_dead_effects(self, *, limit: int = 100) -> list[Effect]: ...

    async def revive_effect(self, effect_id: int, *, now: datetime) -> Effect: ...


class Decisions(Protocol):
    """Why the agent wrote, and why it did not."""

    async def record_decision(self, decision: Decision) -> None: ...

    async def list_decisions(self, thread_id: str, *, limit: int = 50) -> list[Decision]:
        """A thread's decisions, newest first."""
        ...


class Outcomes(Protocol):
    """What became of follow-ups, counted from what is stored; nothing is written for it.

    Cost follows the follow-ups in question. Lists are by agent, trigger and the rest.
    """

    async def count_outcomes(self, query: OutcomeQuery) -> list[OutcomeCount]:
        """How many follow-ups of each agent, trigger and variant had which outcome.

        One that was shown is replied to if the user's next message came within the window and
        before the next follow-up that was shown; ignored once either is past. An answer to an
        agent's question counts as a message. One that was withdrawn to be tried later, or
        replaced by a newer one, is not counted: the other one is.
        """
        ...

    async def tally_arms(self, query: OutcomeQuery) -> list[ArmTally]:
        """After which share of moments users wrote, thread by thread, in each arm.

        Moments are follow-ups that all gates let pass, sent or held out, the first since the user
        wrote, whose window is over. Whatever became of one that was sent, it counts.
        """
        ...

    async def count_searches(self, query: OutcomeQuery) -> list[SearchCount]:
        """With whose words follow-ups searched memories."""
        ...

    async def count_unmarked(self, query: OutcomeQuery) -> int:
        """Follow-ups whose stored trigger has lost its mark; 0 where no store loses metadata."""
        ...


class Summaries(Protocol):
    """Words that stand for archived batches."""

    async def save_summary(
        self,
        thread_id: str,
        text: str,
        batches: Sequence[int],
        *,
        ids: SnowflakeSource,
        now: datetime,
        follows: int | None = None,
    ) -> Summary:
        """Archive the batches and store their summary together. `ConflictError` if one of them
        is archived already or still being processed, `NotFoundError` if one is not there. A batch
        that goes on later comes back whole.

        `follows` is the summary that the text was made from, 0 if there was none: `ConflictError`
        if that is not the newest any more.
        """
        ...

    async def find_summary(self, thread_id: str) -> Summary | None:
        """The newest summary, if there is one."""
        ...

    async def undo_summary(self, summary: Summary) -> None:
        """Remove the newest summary and bring its batches back into the tail."""
        ...


class Retention(Protocol):
    """The only steps that take something out of the journal and leave the thread."""

    async def list_stored(
        self, *, after: str = "", limit: int = 100, nested: bool = False
    ) -> list[ThreadBatches]:
        """The batches of the next threads behind a name, in order of their names.

        Those in which agents ask each other are left out: what is in them belongs to the batch
        that asked. With `nested`, these are listed instead; while anything in the conversation that
        they belong to is unfinished, so are all of their batches.
        """
        ...

    async def remove_batches(self, thread_id: str, batches: Collection[int]) -> Removed:
        """Remove whole batches, archived or not, with what agents asked each other in them.

        The thread's newest batch and any that somebody works on, will go on with or waits for are
        left alone, and so is one that is not there. Title, preview and count follow what is left.
        Turns, decisions, summaries and memories stay; of a turn, what a person answered goes.
        Call `wipe_removed` after the last call.
        """
        ...

    async def wipe_removed(self) -> None:
        """Leave nothing of removed batches in files of the store, as far as its database can.

        It takes longer the more is stored, so it is a step of its own; `delete_thread`,
        `delete_user` and `delete_memory` need none after them.
        """
        ...


class Memories(Protocol):
    """Long-term facts, searched by words and by meaning.

    A namespace is what one agent knows of one user. Steps that write to a namespace come one after
    the other, whichever processes make them.
    """

    async def put_memory(self, memory: NewMemory, *, ids: SnowflakeSource, now: datetime) -> Memory:
        """Store a fact, or replace the one with that key.

        A fact with the content of the one it replaces and without a vector keeps the vector.
        """
        ...

    async def keep_memory(
        self,
        memory: NewMemory,
        *,
        duplicate_at: float,
        capacity: int,
        ids: SnowflakeSource,
        now: datetime,
    ) -> KeptMemory:
        """Store a fact, or replace the one that says the same, which keeps its id and its key.

        That is the one with the same key; else with the same content; else the nearest one of the
        same embedding model, if its similarity reaches `duplicate_at`. The same fact at once from
        two processes is one memory. `ConflictError` if it is new and the namespace holds
        `capacity` memories; nothing is ever evicted.
        """
        ...

    async def delete_memory(self, agent_id: str, user_id: str, key: str) -> bool: ...

    async def list_memories(
        self, agent_id: str, user_id: str, *, limit: int = 100, before: int | None = None
    ) -> list[Memory]:
        """Newest first."""
        ...

    async def count_memories(self, agent_id: str, user_id: str) -> int: ...

    async def search_memories(self, query: MemorySearch) -> list[FoundMemory]:
        """The best matches of one namespace, ranked by a weighted sum of normalised scores.

        Their `score` is from 0 to 1, and never rises down the list.
        Vectors of another model or dimension are never compared. Any text is a valid query.
        """
        ...

    async def count_memories_to_embed(self, model: str, *, agent_id: str | None = None) -> int:
        """How many memories, of all agents or of one, have no vector of that model."""
        ...

    async def list_memories_to_embed(
        self, model: str, *, agent_id: str | None = None, limit: int = 100, after: int = 0
    ) -> list[Memory]:
        """Memories, of all agents or of one, that have no vector of that model.

        By rising id above `after`, so that one that cannot be embedded does not stop the others.
        """
        ...

    async def set_embedding(self, memory: Memory, embedding: Sequence[float], model: str) -> bool:
        """Give a memory the vector of its content, and nothing else.

        False, and nothing is written, if the memory is gone or has other content or a vector of
        another model than when it was read: whoever wrote that knew better.
        """
        ...


class Keys(Protocol):
    """Who may call the server."""

    async def add_key(self, key: ApiKey) -> None:
        """`ConflictError` if there is one with that id."""
        ...

    async def find_key(self, key_id: str) -> ApiKey | None: ...

    async def list_keys(self) -> list[ApiKey]:
        """All of them, oldest first, also those that were revoked."""
        ...

    async def revoke_key(self, key_id: str, *, now: datetime) -> ApiKey:
        """It opens nothing any more. Again: nothing changes. `NotFoundError` if there is none."""
        ...


class Nodes(Protocol):
    """Numbers for id generators, so that two processes never share one."""

    async def lease_node(self, owner: str, *, now: datetime, lease_for: timedelta) -> int:
        """A number from 0 to 1023 that nobody holds; `ConflictError` if all are taken."""
        ...

    async def extend_node(
        self, node: int, owner: str, *, now: datetime, lease_for: timedelta
    ) -> None: ...

    async def release_node(self, node: int, owner: str) -> None: ...

    async def last_position(self, *, latest: int = MAX_ID) -> int:
        """The highest position in the journal, to seed a generator above; 0 if there is none.

        With `latest`, of those threads and decisions that have none above it.
        """
        ...


class Transfers(Rows, Protocol):
    """Rows as they are, for who takes them elsewhere. `read_rows` reads a page as of now."""

    def snapshot(self) -> AbstractAsyncContextManager[Rows]:
        """Pages that are all as of one moment, whatever is written meanwhile."""
        ...

    async def restore(
        self,
        rows: Callable[[], Iterable[tuple[Table, Row]]],
        *,
        now: datetime,
        skip_existing: bool = False,
        dry_run: bool = False,
    ) -> Restored:
        """Store rows as they are, all of them or, if anything is wrong, none.

        They come by thread: the thread, then what belongs to it, with its `thread_id`; `rows` may
        be asked for them more than once. What waits can be claimed afterwards, by its own time.
        `ConflictError` for a thread, a memory or preferences that are there already, or with
        `skip_existing` those are left alone; `BatchTaken` if another thread has the batch;
        `UsageError` for an id later than a day from now. With
        `dry_run` all is tried and nothing is kept.
        """
        ...

    async def delete_user(self, user_id: str) -> Deleted:
        """Delete all that is stored of a user, and say what: threads, nested ones too, memories,
        and wishes. Keys that speak for the user open nothing any more, and name nobody.
        """
        ...


class Journal(
    Threads,
    Users,
    Messages,
    Turns,
    Timers,
    Outbox,
    Decisions,
    Outcomes,
    Summaries,
    Retention,
    Memories,
    Keys,
    Nodes,
    Transfers,
    Protocol,
):
    """The whole store."""

    async def open(self) -> None:
        """Connect and bring the schema up to date, under a lock; from any earlier version.

        A schema newer than this code is refused, and nothing is changed.
        """
        ...

    async def close(self) -> None: ...

    def watch(self, *, of_others: bool = False) -> AsyncGenerator[str]:
        """The ids of threads in which something was written, by any process; "" stands for any.

        With `of_others`, what this journal wrote itself may be left out.

        A hint and no more: it may come late, twice or, while a connection is broken, not at all.
        Ends when the journal is closed or the iterator is.
        """
        ...

    async def import_messages(self, thread_id: str, messages: Iterable[BaseMessage]) -> int:
        """Store messages that have their positions already; those that are there are left alone.
        Returns how many were new.
        """
        ...
