"""Where somebody's code failed, told without the error's words: those may quote what users said.

For log lines about graphs, tools and deciders of others. The whole traceback belongs to DEBUG.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final

# What runs the code of others: a frame in here is not where their mistake is.
_RUNNERS: Final = sys.stdlib_module_names - {"__main__"} | {
    "langchain",
    "langchain_core",
    "langgraph",
    "segue",
}
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


def describe_fault(error: BaseException) -> str:
    """The error's type, and where in the author's code it was raised."""
    place = place_of(error)
    return f"{type(error).__name__} at {place}" if place else type(error).__name__


def place_of(error: BaseException) -> str | None:
    """The innermost line of the agent's author in a traceback, as `file:line in function`.

    None if none of it is theirs: then Segue, LangGraph or what Python brings along failed.
    """
    frames = [*_frames(error)] or [*_frames(error.__cause__)]
    own = [place for place in frames if not _INSTALLED.intersection(Path(place[0]).parts)]
    if not (own or frames):
        return None
    file, line, function = (own or frames)[-1]
    return f"{file}:{line} in {function}"


def _frames(error: BaseException | None) -> Iterator[tuple[str, int, str]]:
    """File, line and function of what is no runner's, outermost first."""
    step: TracebackType | None = error.__traceback__ if error else None
    while step is not None:
        frame = step.tb_frame
        if _root_module(frame) not in _RUNNERS:
            yield frame.f_code.co_filename, step.tb_lineno, frame.f_code.co_qualname
        step = step.tb_next


def _root_module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
