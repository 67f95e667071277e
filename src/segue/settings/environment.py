"""Settings from variables: `SEGUE_SLOTS`, and `SEGUE_AGENTS__ADA__MODEL` for what is deeper inside.

Owns the variables' names. A value is read by its setting; only lists and tables may be JSON here.
"""

import json
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from segue.agent.mistakes import Mistake, did_you_mean

logger = logging.getLogger(__name__)

PREFIX: Final = "SEGUE_"
# A name this like a setting's is a slip. Others are somebody else's, such as those that Kubernetes
# gives every process for a service of our name.
_SLIP: Final = 0.8


@dataclass
class Variables:
    """What variables set, by place, and what is wrong with their names."""

    values: dict[tuple[str, ...], Any] = field(default_factory=dict)
    slips: list[str] = field(default_factory=list)


def variable(place: Iterable[str]) -> str:
    """The name of the variable that sets what is in a place."""
    return PREFIX + "__".join(map(_shouted, place))


def read_environment(
    environ: Mapping[str, str],
    known: Sequence[str],
    *,
    agents: Sequence[str],
    ignored: Collection[str] = (),
) -> Variables:
    """Variables of the `known` settings. Agents are named by an id in capitals, with `_` for all
    but letters and digits; there are only those that the file has. An empty one sets nothing.
    """
    read, unread = Variables(), []
    ids = {_shouted(name): name for name in agents}
    for name in sorted(each for each in environ if each.startswith(PREFIX) and environ[each]):
        place = name.removeprefix(PREFIX).split("__")
        place = [place[0].lower(), *place[1:]]
        match place:
            case [top, *_] if top not in known:
                if get_close_matches(top, known, n=1, cutoff=_SLIP):
                    read.slips.append(_slip(name, did_you_mean(top, known)))
                elif top not in ignored:
                    unread.append(name)
            case ["agents", agent, *_] if agent not in ids:
                read.slips.append(_slip(name, did_you_mean(agent, agents)))
            case ["agents", agent, *rest]:
                place = ["agents", ids[agent], *map(str.lower, rest)]
                read.values[*place] = _read(environ[name])
            case _:
                read.values[*map(str.lower, place)] = _read(environ[name])
    if unread:
        logger.warning("Not read, since they are no settings: %s", ", ".join(unread))
    return read


def _slip(name: str, meant: str) -> str:
    return str(Mistake((name,), f"unknown; {meant}"))


def _read(text: str) -> Any:
    if text.startswith(("[", "{")):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _shouted(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name).upper()
