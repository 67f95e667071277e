"""`segue compress`: makes room in a thread's window, or takes that back."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from segue.cli.options import AsJson, ConfigFile, Database, ThreadId
from segue.cli.output import print_json, print_lines, print_table, when
from segue.cli.working import with_thread

if TYPE_CHECKING:
    from segue.cli.compressing import Outcome

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
        "summaries": outcome.stored,
        "undone": outcome.undone,
    }


def _print(outcome: "Outcome") -> None:
    if outcome.undone is not None:
        would = "would be" if outcome.is_dry_run else "are"
        count = len(outcome.undone.batches)
        print_lines([f"{count} batches {would} in the window again; this summary is gone:"])
        print_lines([outcome.undone.text or "(no words)"])
        return
    if not outcome.leaving:
        size = f"The window holds {outcome.tokens} tokens, and {outcome.target} are the target."
        print_lines([f"Nothing can leave, or has to. {size}"])
        return
    rows = ((str(left.id), when(left.started_at), left.words) for left in outcome.leaving)
    print_table(("leaving" if outcome.is_dry_run else "left", "when", "what"), rows, nothing="")
    if outcome.stored:
        print_lines(["Summary:", outcome.stored[-1].text or "(no words)"])
