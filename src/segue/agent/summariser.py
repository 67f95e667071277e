"""`ModelSummariser`: asks a chat model to bring the summary of a conversation up to date.

The model answers a `SummaryRequest` with the new summary alone. Whatever goes wrong is a
`ModelFailure` that quotes nothing. How long an answer may be and what becomes of it is the
caller's.
"""

import asyncio
from datetime import timedelta
from typing import Final

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig

from segue.agent.config import AgentConfig
from segue.agent.model_calls import counting_callbacks
from segue.agent.model_errors import ModelFailure, explain_model_error
from segue.agent.models import load_model
from segue.agent.summary_request import SummaryRequest
from segue.core.errors import UsageError
from segue.core.query import text_of

_TIME_LIMIT: Final = timedelta(seconds=60)
_WORDS_PER_TOKEN: Final = 0.7


class ModelSummariser:
    """Sums up by asking a model. Holds no state between summaries."""

    def __init__(self, model: BaseChatModel, *, time_limit: timedelta = _TIME_LIMIT) -> None:
        self._model = model
        self._time_limit = time_limit

    async def summarise(self, earlier: str, retold: str, max_tokens: int) -> str:
        """The summary of `earlier` and of a `segue.core.transcript`, wished for in so many tokens.

        `ModelFailure` if the model fails or says nothing.
        """
        words = max(round(max_tokens * _WORDS_PER_TOKEN), 1)
        messages = SummaryRequest(earlier, retold, words).messages()
        # None but ours: what is summed up is no part of any answer.
        config = RunnableConfig(run_name="summarise", callbacks=counting_callbacks())
        try:
            async with asyncio.timeout(self._time_limit.total_seconds()):
                answer = await self._model.ainvoke(messages, config)
        except Exception as error:
            raise _failure(error) from error
        if not (said := text_of(answer)):
            raise ModelFailure("The model gave no summary.", kind="empty", retryable=True)
        return said


def load_summariser(config: AgentConfig, own: BaseChatModel | None = None) -> ModelSummariser:
    """Who sums up for an agent: the model that its config names for it, or its own.

    `UsageError` if that cannot be loaded.
    """
    named = config.compression.model
    if named is None and own is not None:
        return ModelSummariser(own)
    if named is None and config.graph is not None:
        raise UsageError(
            f"agent {config.id!r}: compression: a graph has no model to ask for summaries; set "
            "compression.model, or another compression.strategy."
        )
    try:
        if named is not None:
            return ModelSummariser(load_model(named, {}))
        return ModelSummariser(load_model(config.model, config.model_settings))
    except UsageError as error:
        place = "model" if named is None else "compression.model"
        raise UsageError(f"agent {config.id!r}: {place}: {error}") from error


def _failure(error: Exception) -> ModelFailure:
    """The provider's own words are not passed on: they may quote the conversation."""
    explained = explain_model_error(error)
    if not isinstance(explained, ModelFailure):
        text = f"The summary failed: {explained.code} ({type(error).__name__})."
        return ModelFailure(text, kind=explained.code, retryable=False)
    return ModelFailure(
        f"The summary failed: {explained.kind} ({type(error).__name__}).",
        kind=explained.kind,
        retryable=explained.retryable,
        retry_after=explained.retry_after,
    )
