"""The files of the page: what is vendored, how they are served, and that nothing else is loaded."""

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

import segue
from segue.server.app import create_app
from segue.server.routes.web import page_files

WEB = Path(segue.__file__).parent / "web"
TOOLS = Path(__file__).parent.parent.parent / "tools" / "web"
ADDRESS = "http://127.0.0.1:8000"
OURS = sorted(path for path in WEB.rglob("*.js") if path.parent.name != "vendor")
IMPORTS = re.compile(r"""^(?:import|export)\b[^;=]*?"([^"]+)";|import\("([^"]+)"\)""", re.MULTILINE)


async def _get(path: str, method: str = "GET", **headers: str) -> httpx.Response:
    async def never() -> None:
        raise AssertionError

    app = create_app(never)  # type: ignore[arg-type] # it is never opened
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
        return await client.request(method, path, headers=headers)


def test_vendored_files_are_those_that_were_built() -> None:
    """Each has the hash of the list, and none is missing in it; licences lie beside them."""
    folder = WEB / "vendor"
    lines = (folder / "SHA256SUMS").read_text("utf-8").splitlines()
    listed = {name: digest for digest, name in map(str.split, lines)}
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name != "SHA256SUMS" and not path.name.endswith(".d.ts")
    }
    assert found == listed
    assert {"lit.LICENSE", "streaming-markdown.LICENSE"} <= found.keys()


def test_the_lock_of_the_tools_names_no_address() -> None:
    """So that it works with any registry."""
    assert "://" not in (TOOLS / "package-lock.json").read_text("utf-8").replace(
        "https://opencollective.com", ""
    )


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.relative_to(WEB).as_posix())
def test_modules_are_small_and_import_only_our_own_files(path: Path) -> None:
    """By relative paths that exist, without a build; at most 300 lines each."""
    text = path.read_text("utf-8")
    named = [one or other for one, other in IMPORTS.findall(text)]
    assert [name for name in named if not (path.parent / name).is_file()] == []
    assert len(text.splitlines()) <= 300


@pytest.mark.anyio
async def test_the_policy_allows_nothing_but_our_own_files() -> None:
    """No inline script or style, no other host, and no text that becomes HTML."""
    page = await _get("/")
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "require-trusted-types-for 'script'; trusted-types lit-html segue-worker" in policy
    assert "unsafe" not in policy
    assert not re.search(r"<script(?![^>]*src=)|<style|style=|https?:|\son\w+=", page.text)
    for link in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        found = await _get(f"/{link}")
        assert (found.status_code, found.headers["x-content-type-options"]) == (200, "nosniff")


@pytest.mark.anyio
async def test_an_unchanged_file_is_not_sent_again() -> None:
    """A browser asks each time, so that an upgrade is whole at once; the answer is short."""
    first = await _get("/web/app.js")
    again = await _get("/web/app.js", **{"If-None-Match": first.headers["etag"]})
    assert (first.headers["cache-control"], first.status_code) == ("no-cache", 200)
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.anyio
@pytest.mark.parametrize(
    "path",
    ["/web/__init__.py", "/web/../app.py", "/web/%2e%2e/app.py", "/web/", "/web//etc/passwd"],
)
async def test_no_path_leads_out_of_the_page(path: str) -> None:
    """Only the files of the list are served."""
    assert (await _get(path)).status_code == 404
    assert "__init__.py" not in page_files()


def test_the_types_of_the_page_are_right() -> None:
    """`tsc` finds nothing; where its packages are not installed, this is skipped."""
    if not (TOOLS / "node_modules").is_dir() or shutil.which("npx") is None:
        pytest.skip("The tools of the page are not installed; `make types` does it.")
    command = ["npx", "tsc", "--project", "tsconfig.json"]
    found = subprocess.run(command, cwd=TOOLS, capture_output=True, text=True, check=False)  # noqa: S603 - our own, without a shell
    assert found.stdout == ""


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/", "/outcomes", "/web/app.js"])
async def test_a_page_can_be_asked_for_without_its_body(path: str) -> None:
    """Monitors and link checkers use HEAD."""
    found = await _get(path, method="HEAD")
    assert (found.status_code, found.content) == (200, b"")


def test_the_declarations_of_the_client_name_its_methods() -> None:
    """What a program may call is in the `.d.ts`, and nothing else."""
    code = (WEB / "client" / "segue-client.js").read_text("utf-8")
    declared = (WEB / "client" / "segue-client.d.ts").read_text("utf-8")
    made = set(re.findall(r"^  (?:async )?([a-z]\w+)(?: = (?:async )?\(|\()", code, re.MULTILINE))
    named = set(re.findall(r"^    ([a-z]\w+)(?:: \(|\()", declared, re.MULTILINE))
    assert {"getHistory", "settleBatch", "inspectServer"} <= made
    assert made - {"constructor"} == named - {"constructor", "fetch"}


def test_the_declarations_of_the_client_are_those_that_tsc_writes(tmp_path: Path) -> None:
    """Types, too; where its packages are not installed, this is skipped."""
    if not (TOOLS / "node_modules").is_dir() or shutil.which("npm") is None:
        pytest.skip("The tools of the page are not installed; `make types` does it.")
    for source in (WEB / "client").glob("*.js"):
        shutil.copy(source, tmp_path)
    script = json.loads((TOOLS / "package.json").read_text("utf-8"))["scripts"]["declare"]
    command = ["npx", *script.replace("../../src/segue/web/client", str(tmp_path)).split()[4:]]
    subprocess.run(command, cwd=TOOLS, check=True)  # noqa: S603 - our own, without a shell
    written = {path.name: path.read_text("utf-8") for path in tmp_path.glob("*.d.ts")}
    assert written == {p.name: p.read_text("utf-8") for p in (WEB / "client").glob("*.d.ts")}
