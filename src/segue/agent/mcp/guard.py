"""A script that runs a program until it ends, or until the process that started this one is gone.

`python -I -S guard.py PARENT COMMAND ARGS…`, as the leader of its own process group; the program
inherits standard input and output. Without it, a program that does not read its input, and its
child processes, would outlive a Segue that was killed.
"""

import os
import select
import signal
import subprocess
import sys
from typing import Final

_LOOK_EVERY: Final = 0.5
_GRACE: Final = 2.0


def main(parent: int, command: list[str]) -> int:
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    # SIGCHLD ends the wait below; SIGTERM is for the program, which has its time to end. Handlers,
    # unlike ignored signals, are not inherited.
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    program = subprocess.Popen(command)  # noqa: S603 - the owner's own settings
    while program.poll() is None:
        if select.select([woken], [], [], _LOOK_EVERY)[0]:
            os.read(woken, 64)
        if os.getppid() != parent:
            _stop_group(program)
    return program.returncode


def _stop_group(program: "subprocess.Popen[bytes]") -> None:
    os.killpg(0, signal.SIGTERM)
    try:
        program.wait(_GRACE)
    finally:
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
