"""`segue init`: writes a settings file with comments, and an agent to start from."""

import shlex
from importlib import resources
from pathlib import Path
from typing import Annotated, Final

import typer

from segue.cli.output import Answer, program
from segue.errors import UsageError
from segue.settings.loading import FILE
from segue.settings.settings import has_local_model

_GRAPH_FILE: Final = "my_agent.py"
_BUILT_IN: Final = """\
# The model: "local", "scripted", or any LangChain "provider:model" with its package and key.
model = "{model}"
# Who the agent is.
# system_prompt = "You are a friendly companion. Answer naturally, in one or two short sentences."
# Your own functions or LangChain tools, as "module:name".
# tools = []"""
_OWN_GRAPH: Final = """\
# Your own LangGraph graph, which brings its model, prompt and tools.
graph = "my_agent:graph\""""
_Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="Folder to write to; created if missing.")
]


def init(
    *,
    folder: _Folder = Path(),
    graph: Annotated[
        bool, typer.Option("--graph", help=f"Also write {_GRAPH_FILE}, a LangGraph agent.")
    ] = False,
    force: Annotated[bool, "Overwrite existing files."] = False,
) -> Answer:
    """Write a segue.toml whose comments explain the settings; all values are the defaults."""
    model = "local" if has_local_model() else "scripted"
    agent = _OWN_GRAPH if graph else _BUILT_IN.format(model=model)
    memory = "false" if graph else "true"
    files = {FILE: _template(FILE).replace("{agent}", agent).replace("{memory}", memory)}
    if graph:
        files[_GRAPH_FILE] = _template(_GRAPH_FILE)
    taken = [name for name in files if (folder / name).exists()]
    if taken and not force:
        raise UsageError(f"{folder / taken[0]} exists already; --force overwrites it.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{str(folder)!r} cannot be written to: {error.strerror}.") from None
    return Answer([str(folder / name) for name in files], lambda: _print(folder, [*files]))


def _template(name: str) -> str:
    return (resources.files("segue.cli") / "templates" / f"{name}.txt").read_text("utf-8")


def _print(folder: Path, names: list[str]) -> None:
    for name in names:
        typer.echo(f"Wrote {folder / name}.")
    where = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    flag = " --reload" if _GRAPH_FILE in names else ""
    typer.echo(f"Next: {where}{program(elsewhere=bool(where))} serve{flag}")
