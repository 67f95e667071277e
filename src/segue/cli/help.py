"""How help shows options: a flag as `--json`, and not as `--json <bool>`, as if it took a value."""

from typing import Any

from typer.core import TyperCommand, TyperGroup


class Command(TyperCommand):
    def get_params(self, ctx: Any) -> Any:
        return _plain(super().get_params(ctx))


class Group(TyperGroup):
    def get_params(self, ctx: Any) -> Any:
        return _plain(super().get_params(ctx))


def _plain(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params
