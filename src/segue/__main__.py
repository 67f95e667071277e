"""The program `segue`, also `python -m segue`.

Loading the commands takes a moment; Ctrl-C in that moment ends it like any other, without a
traceback.
"""

import sys
from typing import Final

# The exit code that shells use for a program that Ctrl-C ended.
_INTERRUPTED: Final = 130


def main() -> None:
    try:
        from segue.cli import main as run  # noqa: PLC0415 - interrupted here as well

        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
