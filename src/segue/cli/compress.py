"""`segue compress`: makes room in a thread's window, or takes that back."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from segue.cli.options import AsJson, ConfigFile, Database, ThreadId
from segue.cli.output import print_json, print_lines, print_table, when
from segue.cli.working import with_thread

if TYPE_CHECKING:
    from segue.cli.compressing import Outcome
    from segue.journal.records import Summary

_DRY_RUN = "Only show what would leave, or be undone; no model is asked and nothing stored."
_UNDO = "Take the newest summary back; its batches are in the window again."


def compress(
    thread_id: ThreadId,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help=_DRY_RUN)] = False,
    undo: Annotated[bool, typer.Option("--undo", help=_UNDO)] = False,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Let old batches leave what the model is told, down to the target; history keeps them.

    As it happens by itself after a turn, but at once, and also where it is switched off.
    """
    from segue.cli.compressing import compress_thread, undo_summary  # noqa: PLC0415

    work = undo_summary if undo else compress_thread
    outcome = with_thread(
        thread_id,
        config,
        database,
        lambda journal, thread, settings: work(journal, thread, settings, dry_run=dry_run),
    )
    if as_json:
        print_json(_as_json(outcome))
    else:
        _print(outcome)


def _as_json(outcome: "Outcome") -> dict[str, Any]:
    return {
        "is_dry_run": outcome.is_dry_run,
        "tokens": outcome.tokens,
        "target": outcome.target,
        "leaving": [batch.id for batch in outcome.leaving],
        "certain": outcome.certain,
        "rounds": outcome.rounds,
        "summaries": outcome.stored,
        "undone": outcome.undone,
    }


def _print(outcome: "Outcome") -> None:
    if outcome.undone is not None:
        _print_undone(outcome.undone, is_dry_run=outcome.is_dry_run)
        return
    if not outcome.leaving:
        size = f"The window holds {outcome.tokens} tokens, and {outcome.target} are the target."
        print_lines([f"Nothing can leave, or has to. {size}"])
        return
    rows = ((str(left.id), when(left.started_at), left.words) for left in outcome.leaving)
    print_table(("leaving" if outcome.is_dry_run else "left", "when", "what"), rows, nothing="")
    if outcome.is_dry_run:
        print_lines([_foreseen(outcome)])
        return
    if outcome.rounds > 1:
        stored = f"{outcome.rounds} summaries were stored"
        if not outcome.stored[-1].text:
            stored = f"They left in {outcome.rounds} rounds"
        print_lines([f"{stored}; --undo takes back the newest, and again the one before it."])
    if words := outcome.stored[-1].text:
        print_lines(["Summary:", words])
    else:
        print_lines(["No summary stands for them."])


def _foreseen(outcome: "Outcome") -> str:
    most, rounds = len(outcome.leaving), outcome.rounds
    within = "1 round" if rounds == 1 else f"{rounds} rounds"
    if outcome.certain == most:
        return f"{_batches(most)} would leave in {within}."
    return (
        f"At least {outcome.certain} and at most {_batches(most)} would leave, in up to {within}: "
        "it depends on how long the summaries become."
    )


def _print_undone(undone: "Summary", *, is_dry_run: bool) -> None:
    is_one = len(undone.batches) == 1
    are = "would be" if is_dry_run else "is" if is_one else "are"
    back = f"{_batches(len(undone.batches))} {are} in the window again."
    if not undone.text:
        print_lines([f"{back} No summary stood for {'it' if is_one else 'them'}."])
    else:
        taken = "would be" if is_dry_run else "is"
        print_lines([f"{back} This summary {taken} taken back:", undone.text])
    if undone.previous_id is not None:
        print_lines(["What left before stays out; --undo once more takes that back too."])


def _batches(count: int) -> str:
    return "1 batch" if count == 1 else f"{count} batches"
