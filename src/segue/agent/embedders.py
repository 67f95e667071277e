"""Embedders by name: the local one, or any that LangChain knows.

An embedder turns a text into a vector, so that memories are found by what they mean. Vectors of
different embedders cannot be compared: each is stored with the name of the one that made it. What
cannot be loaded is a `UsageError` that says what to install, to set or to write instead, and never
holds a key.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Final, Protocol

from langchain.embeddings import init_embeddings
from langchain_core.embeddings import Embeddings
from pydantic import ValidationError

from segue.agent.config import POSSIBLE_EMBEDDERS, check_embedder
from segue.agent.minilm import MiniLM, require_minilm
from segue.core.errors import UsageError

_VARIABLE: Final = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_KEY\b")
_PACKAGE: Final = re.compile(r"pip install ([\w.-]+\w)")
_PROVIDER: Final = re.compile(r"^  - (\w+):", re.MULTILINE)
# Not right for all of them: with some, similarities begin at 0.6. `memory.threshold` replaces it.
_THRESHOLD: Final = 0.25


class Embedder(Protocol):
    """Makes vectors of texts. Any text will do; a blank one gives a vector of zeros."""

    @property
    def name(self) -> str:
        """What is stored with every vector; another name is another space."""
        ...

    @property
    def dimension(self) -> int | None:
        """How long the vectors are; none before the first one if only the provider knows."""
        ...

    @property
    def threshold(self) -> float:
        """The least similarity of texts that have to do with each other."""
        ...

    async def embed_query(self, text: str) -> list[float]: ...

    async def embed_documents(self, texts: Sequence[str]) -> list[list[float]]: ...


class LangChainEmbedder:
    """Any LangChain embeddings under a name; raises whatever the provider raises."""

    threshold = _THRESHOLD

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
        worded = [text for text in texts if text.strip()]
        vectors = iter(await self._embeddings.aembed_documents(worded) if worded else [])
        return [next(vectors) if text.strip() else await self._zeros() for text in texts]

    async def _zeros(self) -> list[float]:
        if self.dimension is None:
            self.dimension = len(await self._embeddings.aembed_query("."))
        return [0.0] * self.dimension


def load_embedder(name: str) -> Embedder:
    """The embedder of that name. `UsageError` says what to install, to set or to write instead."""
    if check_embedder(name) == "local":
        require_minilm()
        return _local()
    provider = name.partition(":")[0]
    try:
        return LangChainEmbedder(name, init_embeddings(name))
    except ImportError as error:
        named = _PACKAGE.search(str(error))
        package = named[1] if named else f"langchain-{provider.replace('_', '-')}"
        raise UsageError(
            f"The embedder {name!r} needs a package that is not installed: pip install {package}."
        ) from None
    # Providers raise errors of their own here. Their texts may quote what they were given, so none
    # is passed on, not even as a cause.
    except Exception as error:  # noqa: BLE001
        raise UsageError(_refused(name, provider, error)) from None


@cache
def _local() -> MiniLM:
    return MiniLM()


def _refused(name: str, provider: str, error: Exception) -> str:
    if providers := _PROVIDER.findall(str(error)):
        return (
            f"There is no provider {provider!r} of embedders; an embedder is {POSSIBLE_EMBEDDERS}. "
            f"Providers are: {', '.join(providers)}."
        )
    problems = error.errors(include_input=False) if isinstance(error, ValidationError) else []
    said = " ".join(problem["msg"] for problem in problems) or str(error)
    if variable := _VARIABLE.search(said):
        return f"The embedder {name!r} needs a key: set {variable[0]} in the environment."
    return (
        f"The embedder {name!r} cannot be set up ({type(error).__name__}). Its provider's own "
        "settings in the environment are missing or wrong."
    )
