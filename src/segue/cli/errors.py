"""How a command ends when something is wrong: one line, an exit code, and no traceback."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import typer

from segue.core.errors import NotFoundError, SegueError, UsageError
from segue.core.plain import harmless

# As programs do: 2 for what the caller can mend, 1 for what failed.
WRONG_USE: Final = 2
FAILED: Final = 1


def tell(words: str) -> None:
    """Say what is wrong, in one line on stderr."""
    typer.echo(f"Error: {harmless(' '.join(words.split()))}", err=True)


@contextmanager
def told_plainly() -> Iterator[None]:
    """Turn what Segue raises on purpose into a line on stderr and an exit code."""
    try:
        yield
    except SegueError as error:
        tell(str(error))
        code = WRONG_USE if isinstance(error, UsageError | NotFoundError) else FAILED
        raise typer.Exit(code) from None
