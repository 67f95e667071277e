"""How this program is called: by its name if that finds it, else by the path that was typed."""

import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

_NAME: Final = "segue"


def program() -> str:
    """What to type to run this program again, such as `segue` or `.venv/bin/segue`."""
    typed = Path(sys.argv[0])
    if typed.name != _NAME or not typed.is_file():  # run as a module, or by a test
        return _NAME
    found = shutil.which(_NAME)
    if found is not None and Path(found).samefile(typed):
        return _NAME
    return shlex.quote(str(typed))
