"""The locks of the clients, and the versions that the examples name."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.packages import EXAMPLES, TOOLS, installed

LOCKS = sorted(TOOLS.glob("*/package-lock.json"))
APPS = sorted(EXAMPLES.glob("*/package.json"))
TYPED = (
    *("--noEmit", "--strict", "--skipLibCheck", "--jsx", "react-jsx", "--target", "es2022"),
    *("--module", "esnext", "--moduleResolution", "bundler", "--lib", "es2023,dom,dom.iterable"),
)


def _read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.parent.name)
def test_a_lock_names_hashes_and_no_address(lock: Path) -> None:
    """So that it works with any registry, and installs what was tested."""
    packages = {name: each for name, each in _read(lock)["packages"].items() if name}
    assert packages
    for name, each in packages.items():
        assert "resolved" not in each, name
        # A package inside of another one has the hash of that one.
        assert each.get("inBundle") or each["integrity"].startswith("sha512-"), name


@pytest.mark.parametrize("folder", [lock.parent for lock in LOCKS], ids=lambda path: path.name)
def test_packages_are_pinned(folder: Path) -> None:
    """Each to one version, which the lock has."""
    wanted = _read(folder / "package.json")["dependencies"]
    locked = _read(folder / "package-lock.json")["packages"]
    assert wanted == {name: locked[f"node_modules/{name}"]["version"] for name in wanted}


@pytest.mark.parametrize("app", APPS, ids=lambda path: path.parent.name)
def test_an_example_names_the_versions_that_were_tested(app: Path) -> None:
    """A reader who installs it gets what the tests run."""
    named = _read(app)["dependencies"].items()
    assert named
    assert any(
        named <= _read(lock.parent / "package.json")["dependencies"].items() for lock in LOCKS
    )


def test_the_pages_of_the_examples_are_typed(tmp_path: Path) -> None:
    """Against the types that the packages ship."""
    sdk = installed("sdk")
    shutil.copytree(EXAMPLES / "react", tmp_path / "react")
    (tmp_path / "node_modules").symlink_to(sdk / "node_modules")
    names = [str(tmp_path / "react" / f"{name}.tsx") for name in ("react", "hook")]
    call = [str(sdk / "node_modules" / ".bin" / "tsc"), *TYPED, *names]
    checked = subprocess.run(call, check=False, capture_output=True, text=True)  # noqa: S603 - ours
    assert (checked.returncode, checked.stdout) == (0, "")
