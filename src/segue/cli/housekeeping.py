"""`segue compress` and `retain`: old batches leave a thread's window, or the database."""

from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Annotated, Final, Self

import typer

from segue.cli.output import Answer, ThreadId, counted, print_lines, print_table, when
from segue.cli.target import Place, of_thread
from segue.core.batch import Batch
from segue.core.compression import Strategy
from segue.core.durations import parse_duration
from segue.core.messages import spoken_text, visible_messages
from segue.core.metadata import BatchType
from segue.core.retention import RetentionPolicy, RetentionRule
from segue.core.text import one_line
from segue.errors import UsageError
from segue.journal.records import Summary, Thread
from segue.offline import OfflineSegue
from segue.runtime.compressor import Compressor, WindowLimits
from segue.runtime.housekeeping import ThreadRemoval

_SHOWN: Final = 80
_DRY_RUN = "Only show which batches would leave or come back; calls no model, stores nothing."
_OLDER_THAN = "Delete batches with no new message for this long, such as 90d."
_KEEP_LAST = "Number of each thread's newest batches that are kept at any age."
_TYPE = "Delete only batches of this type; may be given several times."


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One line about a batch. There may be thousands, so their messages are not kept."""

    id: int
    started_at: datetime
    text: str

    @classmethod
    def of(cls, batch: Batch) -> Self:
        texts = map(spoken_text, visible_messages(batch.messages))
        return cls(batch.id, batch.started_at, one_line(" / ".join(texts), _SHOWN))


@dataclass(slots=True)
class CompressResult:
    """Which batches left or would leave, oldest first, and what was stored or undone.

    Batches leave in `rounds`, each with its own summary. In a dry run, `certain` of them would
    leave in any case; the others only if the summaries get as long as allowed.
    """

    is_dry_run: bool
    tokens: int = 0
    target: int = 0
    leaving: list[BatchLine] = field(default_factory=list)
    certain: int = 0
    rounds: int = 0
    summaries: list[Summary] = field(default_factory=list)
    undone: Summary | None = None


def compress(
    thread_id: ThreadId,
    *,
    dry_run: Annotated[bool, _DRY_RUN] = False,
    undo: Annotated[bool, "Undo the newest summary; its batches return to the window."] = False,
    place: Place,
) -> Answer:
    """Move old batches out of a thread's window, down to the target; history keeps them.

    The same as after a turn, but now, and also if compression is switched off.
    """

    async def work(segue: OfflineSegue, thread: Thread) -> CompressResult:
        if undo:
            undone = await segue.undo_summary(thread, dry_run=dry_run)
            return CompressResult(dry_run, undone=undone)
        return await compress_thread(segue, thread, dry_run=dry_run)

    result = place.run(of_thread(thread_id, work))
    value = {each.name: getattr(result, each.name) for each in fields(result)}
    value["leaving"] = [batch.id for batch in result.leaving]
    return Answer(value, lambda: _print(result))


async def compress_thread(segue: OfflineSegue, thread: Thread, *, dry_run: bool) -> CompressResult:
    """Compress a thread down to its target, or find out which batches would leave."""
    agent = segue.get_agent(thread.agent_id)
    asks_model = not dry_run and agent.compression.strategy is Strategy.SUMMARISE
    # Imported here: it loads LangChain's models, and only summaries need one.
    from segue.agent.summariser import load_summariser  # noqa: PLC0415

    summariser = load_summariser(agent) if asks_model else None
    async with segue.new_ids(dry_run=dry_run) as ids:
        compressor = Compressor(
            segue.journal, ids, segue.clock, lambda _: agent, lambda _: summariser
        )
        tokens, target = await compressor.count_tokens(thread), WindowLimits.of(agent).target
        result = CompressResult(dry_run, tokens, target)
        await (_preview if dry_run else _shrink)(compressor, thread, result)
    result.leaving.sort(key=lambda each: each.id)
    return result


async def _preview(compressor: Compressor, thread: Thread, result: CompressResult) -> None:
    async for each in compressor.preview(thread):
        result.rounds += 1
        result.certain += len(each.leaving) if each.is_certain else 0
        result.leaving += map(BatchLine.of, each.leaving)


async def _shrink(compressor: Compressor, thread: Thread, result: CompressResult) -> None:
    while stored := await compressor.shrink(
        thread, at_once=True, tell=lambda batch: result.leaving.append(BatchLine.of(batch))
    ):
        result.summaries += stored
    result.certain, result.rounds = len(result.leaving), len(result.summaries)


def _print(result: CompressResult) -> None:
    if result.undone is not None:
        _print_undone(result.undone, is_dry_run=result.is_dry_run)
        return
    if not result.leaving:
        size = f"The window holds {result.tokens} tokens; the target is {result.target}."
        print_lines([f"Nothing can leave, or has to. {size}"])
        return
    rows = ((str(left.id), when(left.started_at), left.text) for left in result.leaving)
    print_table(("leaving" if result.is_dry_run else "left", "when", "what"), rows)
    if result.is_dry_run:
        print_lines([_forecast(result)])
        return
    summary = result.summaries[-1].text
    if result.rounds > 1:
        stored = f"{result.rounds} summaries were stored"
        if not summary:
            stored = f"They left in {result.rounds} rounds"
        print_lines([f"{stored}; --undo undoes the newest, and again the one before it."])
    print_lines(["Summary:", summary] if summary else ["No summary replaces them."])


def _forecast(result: CompressResult) -> str:
    most = len(result.leaving)
    if result.certain == most:
        return f"Batches that would leave: {most}; rounds: {result.rounds}."
    return (
        f"Batches that would leave: {result.certain} to {most}, depending on the length of the "
        f"summaries; rounds: up to {result.rounds}."
    )


def _print_undone(undone: Summary, *, is_dry_run: bool) -> None:
    are = "would be" if is_dry_run else "are"
    print_lines([f"Batches that {are} in the window again: {len(undone.batches)}."])
    if undone.text:
        print_lines([f"Summary that {'would be' if is_dry_run else 'is'} undone:", undone.text])
    if undone.previous_id is not None:
        print_lines(["Batches that left before stay out; --undo once more undoes that too."])


def retain(
    *,
    older_than: Annotated[str | None, _OLDER_THAN] = None,
    keep_last: Annotated[int | None, typer.Option(min=1, help=_KEEP_LAST)] = None,
    types: Annotated[list[str] | None, typer.Option("--type", help=_TYPE)] = None,
    dry_run: Annotated[bool, "Only show what would be deleted."] = False,
    place: Place,
) -> Answer:
    """Delete whole old batches from all threads; memories stay.

    Never a thread's newest batch, nor one that is in progress or waits for an answer. Without an
    age or a number, the policy of the settings applies, including its rules per type.
    """
    given = _policy(older_than, keep_last, types or [])

    async def work(segue: OfflineSegue) -> list[ThreadRemoval]:
        policy = given or segue.settings.retention.policy
        if policy is None:
            raise UsageError("Give --older-than or --keep-last, or set `retention`.")
        return await segue.retain(policy, dry_run=dry_run)

    found = place.run(work)
    value = {"is_dry_run": dry_run, "threads": found}
    return Answer(value, lambda: _print_removed(found, is_dry_run=dry_run))


def _policy(
    older_than: str | None, keep_last: int | None, types: list[str]
) -> RetentionPolicy | None:
    if older_than is None and keep_last is None:
        if types:
            raise UsageError("--type needs --older-than or --keep-last.")
        return None
    known = [kind.value for kind in BatchType]
    if unknown := [kind for kind in types if kind not in known]:
        raise UsageError(f"--type is {unknown[0]!r:.60}; expected one of: {', '.join(known)}.")
    age = None if older_than is None else parse_duration(older_than)
    rule = RetentionRule(
        older_than=age, keep_last=keep_last, types=frozenset(map(BatchType, types))
    )
    return RetentionPolicy([rule])


def _print_removed(found: list[ThreadRemoval], *, is_dry_run: bool) -> None:
    rows = (
        (
            each.thread_id,
            each.user_id,
            str(each.batches),
            str(each.messages),
            when(each.oldest_at),
            when(each.newest_at),
            ", ".join(f"{count} {kind.value}" for kind, count in each.types.items()),
        )
        for each in found
    )
    headings = ("thread", "user", "batches", "messages", "from", "to", "types")
    print_table(headings, rows, nothing="Nothing is old enough to delete.")
    if found:
        what = "would be deleted" if is_dry_run else "deleted"
        batches = counted(sum(each.batches for each in found), "batch")
        messages = counted(sum(each.messages for each in found), "message")
        typer.echo(f"{batches} with {messages} {what}.")
