"""The JavaScript clients that the tests run, with their locks in `tools/clients`.

`make clients` installs them once per lock into the user's cache folder, outside of the repository.
Without node, or before that, their tests are skipped; but not in CI. `make clients ARGS=--all` also
installs those that take too long for CI.
"""

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tools" / "clients"
EXAMPLES = ROOT / "examples" / "clients"
SCRIPTS = Path(__file__).parent / "scripts"
_INSTALL = ("npm", "ci", "--loglevel=error", "--no-audit", "--no-fund", "--ignore-scripts")
_BUILD = ("npm", "run", "--silent", "--if-present", "build")
# 1,150 packages, which take minutes.
_LARGE = ("copilotkit",)
_REGISTRY = ("npm", "config", "get", "registry")
_LONGEST_LINE = 2**24  # bytes that a script may print as one report


def folder_of(name: str) -> Path:
    """Where the packages of a folder of `tools/clients` are installed; per lock another place."""
    digest = hashlib.sha256()
    for path in sorted((TOOLS / name).iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "segue" / "clients" / f"{name}-{digest.hexdigest()[:12]}"


def install(name: str) -> None:
    """Install and build them, unless they are there; an interrupted installation leaves nothing."""
    target = folder_of(name)
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=target.parent))
    try:
        shutil.copytree(TOOLS / name, made, dirs_exist_ok=True)
        _add_addresses(made / "package-lock.json")
        for call in (_INSTALL, _BUILD):
            subprocess.run(call, cwd=made, check=True)  # noqa: S603 - our own call
        made.rename(target)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _add_addresses(lock: Path) -> None:
    """Without addresses, npm first downloads the list of all versions of each package."""
    asked = subprocess.run(_REGISTRY, capture_output=True, text=True, check=True)  # noqa: S603 - our own call
    registry = asked.stdout.strip().rstrip("/")
    content = json.loads(lock.read_text("utf-8"))
    for place, package in content["packages"].items():
        if place and not package.get("inBundle"):
            name = package.get("name") or place.rpartition("node_modules/")[2]
            file = f"{name.rpartition('/')[2]}-{package['version']}.tgz"
            package["resolved"] = f"{registry}/{name}/-/{file}"
    lock.write_text(json.dumps(content), "utf-8")


def installed(name: str) -> Path:
    """Their folder; without it a test is skipped, but not where all tests have to run."""
    reason = "There is no node." if shutil.which("node") is None else ""
    if not reason and not folder_of(name).is_dir():
        reason = f"The clients of tools/clients/{name} are not installed; run: make clients"
    if reason and os.environ.get("CI") == "true" and name not in _LARGE:
        pytest.fail(reason)
    return pytest.skip(reason) if reason else folder_of(name)


@asynccontextmanager
async def _running(name: str, folder: Path, given: dict[str, str]) -> AsyncIterator[Process]:
    """A module of `scripts`, which imports the packages of the folder."""
    # Given as a text, node looks for packages where it was started.
    call = ("node", "--input-type=module", "--eval", (SCRIPTS / name).read_text("utf-8"))
    pipe, env = asyncio.subprocess.PIPE, {**os.environ, **given}
    process = await asyncio.create_subprocess_exec(
        *call, stdin=pipe, stdout=pipe, stderr=pipe, cwd=folder, env=env, limit=_LONGEST_LINE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def run_script(name: str, folder: Path, **given: str) -> Any:
    """What a module of `scripts` prints at last, as JSON."""
    async with _running(name, folder, given) as process:
        printed, complaints = await process.communicate()
    assert process.returncode == 0, complaints.decode()
    return json.loads(printed.splitlines()[-1])


@asynccontextmanager
async def acting(
    name: str, folder: Path, **given: str
) -> AsyncIterator[Callable[[str], Awaitable[Any]]]:
    """Calls acts of a module of `scripts` by their names, all in one process."""
    async with _running(name, folder, given) as process:
        told, heard = process.stdin, process.stdout
        assert told is not None
        assert heard is not None

        async def act(name: str) -> Any:
            told.write(f"{name}\n".encode())
            await told.drain()
            report = json.loads(await heard.readline() or '{"error": "The process ended."}')
            assert "error" not in report, report["error"]
            return report["got"]

        yield act


def bundle(example: Path, name: str, folder: Path, target: Path) -> None:
    """Build a page of an example with the packages of a folder, as its own `npm start` would."""
    target.mkdir(parents=True, exist_ok=True)
    esbuild = folder / "node_modules" / ".bin" / "esbuild"
    call = (esbuild, example / f"{name}.tsx", "--bundle", "--jsx=automatic", "--log-level=warning")
    where = {**os.environ, "NODE_PATH": str(folder / "node_modules")}
    whole = (*call, f"--outfile={target / 'chat.js'}")
    subprocess.run(whole, check=True, env=where)  # noqa: S603 - our own call
    shutil.copy(example / "index.html", target)


def main(options: Iterable[str]) -> None:
    """Install them side by side."""
    if shutil.which("npm") is None:
        sys.exit("The JavaScript clients were not installed: there is no npm.")
    names = sorted(
        {path.name for path in TOOLS.iterdir()} - set(() if "--all" in options else _LARGE)
    )
    with ThreadPoolExecutor() as pool:
        for name, _ in zip(names, pool.map(install, names), strict=True):
            sys.stdout.write(f"{folder_of(name)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
