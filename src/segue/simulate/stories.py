"""The scenarios that come with Segue, to compare policies on; the agent is added to them.

`python -m segue.simulate.stories` runs one in a separate process for `Simulator`: it reads JSON and
prints the reports.
"""

import json
import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

from segue.errors import NotFoundError
from segue.simulate.report import SimulationReport
from segue.simulate.scenario import read_scenario

CPU_SECONDS: Final = 30
_NAMES: Final = ("quiet-week", "lively-week", "gone-silent")


@cache
def stories() -> Mapping[str, Mapping[str, Any]]:
    """All of them by name, as a TOML file gives them."""
    folder = files("segue.simulate") / "scenarios"
    return {name: tomllib.loads((folder / f"{name}.toml").read_text("utf-8")) for name in _NAMES}


def get_story(name: str) -> Mapping[str, Any]:
    if name not in stories():
        raise NotFoundError(
            f"There is no scenario {name!r:.60}; there are: {', '.join(stories())}."
        )
    return stories()[name]


def run_story(name: str, agent: str, policies: Sequence[Any]) -> list[SimulationReport]:
    """The story under each policy, which are `autonomy` settings of the agent."""
    from segue.simulate.simulation import simulate  # noqa: PLC0415 - the server never runs one

    return [
        simulate(read_scenario({**get_story(name), "agents": [{"id": agent, "autonomy": policy}]}))
        for policy in policies
    ]


def _main() -> None:
    if sys.platform != "win32":
        import resource  # noqa: PLC0415 - not on Windows

        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        os.nice(5)  # others wait for their answers
    reports = run_story(**json.load(sys.stdin))
    json.dump([report.as_json() for report in reports], sys.stdout)


if __name__ == "__main__":
    _main()
