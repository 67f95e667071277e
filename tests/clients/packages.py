"""The JavaScript clients that the tests run, with their locks in `tools/clients`.

`make clients` installs them once per lock into the user's cache folder, outside of the repository.
Without node, or before that, their tests are skipped; but not in CI.
"""

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tools" / "clients"
EXAMPLES = ROOT / "examples" / "clients"
SCRIPTS = Path(__file__).parent / "scripts"
_INSTALL = ("npm", "ci", "--loglevel=error", "--no-audit", "--no-fund", "--ignore-scripts")
_BUILD = ("npm", "run", "--silent", "--if-present", "build")


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
        for call in (_INSTALL, _BUILD):
            subprocess.run(call, cwd=made, check=True)  # noqa: S603 - our own call
        made.rename(target)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def installed(name: str) -> Path:
    """Their folder; without it a test is skipped, but not where all tests have to run."""
    reason = "There is no node." if shutil.which("node") is None else ""
    if not reason and not folder_of(name).is_dir():
        reason = f"The clients of tools/clients/{name} are not installed; run: make clients"
    if reason and os.environ.get("CI") == "true":
        pytest.fail(reason)
    return pytest.skip(reason) if reason else folder_of(name)


async def run_script(name: str, folder: Path, **given: str) -> Any:
    """What a module of `scripts` prints at last, as JSON; it imports the packages of the folder."""
    # From its standard input, node looks for packages where it was started.
    call = ("node", "--input-type=module", "-")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *call, stdin=pipe, stdout=pipe, stderr=pipe, cwd=folder, env={**os.environ, **given}
    )
    try:
        printed, complaints = await process.communicate((SCRIPTS / name).read_bytes())
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, complaints.decode()
    return json.loads(printed.splitlines()[-1])


def bundle(page: Path, folder: Path, target: Path) -> None:
    """Build an example with the packages of a folder, as its own `npm start` would."""
    target.mkdir(parents=True, exist_ok=True)
    esbuild = folder / "node_modules" / ".bin" / "esbuild"
    call = (esbuild, page / "chat.tsx", "--bundle", "--jsx=automatic", "--log-level=warning")
    where = {**os.environ, "NODE_PATH": str(folder / "node_modules")}
    whole = (*call, f"--outfile={target / 'chat.js'}")
    subprocess.run(whole, check=True, env=where)  # noqa: S603 - our own call
    shutil.copy(page / "index.html", target)


if __name__ == "__main__":
    if shutil.which("npm") is None:
        sys.exit("The JavaScript clients were not installed: there is no npm.")
    for each in sorted(path.name for path in TOOLS.iterdir()):
        install(each)
        sys.stdout.write(f"{folder_of(each)}\n")
