"""`segue --version`."""

from importlib.metadata import version

from typer.testing import CliRunner

from segue.cli import app


def test_the_program_says_its_version() -> None:
    """Who reports something can say of what, without a command."""
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"segue {version('segue')}\n")
