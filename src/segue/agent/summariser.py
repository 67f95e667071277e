"""`ModelSummariser`: asks a chat model to update the summary of a conversation.

The model answers a `SummaryRequest` with the new summary. Every error is a `ModelFailure` that
quotes nothing. The caller limits the answer's length.
"""

import asyncio
from datetime import timedelta
from typing import Final

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig

from segue.agent.models import counting_callbacks, load_model
from segue.core.compression import SummaryRequest
from segue.core.memory import text_of
from segue.errors import UsageError
from segue.runtime.model_failures import ModelFailure, explain_model_error
from segue.settings.agents import AgentConfig

_TIME_LIMIT: Final = timedelta(seconds=60)
_WORDS_PER_TOKEN: Final = 0.7


class ModelSummariser:
    """Summarises by asking a model. Stateless."""

    def __init__(self, model: BaseChatModel, *, time_limit: timedelta = _TIME_LIMIT) -> None:
        self._model = model
        self._time_limit = time_limit

    async def summarise(self, earlier: str, retold: str, max_tokens: int) -> str:
        """The summary of the `earlier` summary and a `segue.core.compression`.

        The model is asked for at most `max_tokens`. `ModelFailure` if it fails or gives no text.
        """
        words = max(round(max_tokens * _WORDS_PER_TOKEN), 1)
        messages = SummaryRequest(earlier, retold, words).messages()
        # Not the run's own callbacks: they would stream the summary to the user.
        config = RunnableConfig(run_name="summarise", callbacks=counting_callbacks())
        try:
            async with asyncio.timeout(self._time_limit.total_seconds()):
                answer = await self._model.ainvoke(messages, config)
        except Exception as error:
            raise _failure(error) from error
        if not (summary := text_of(answer)):
            raise ModelFailure("The model gave no summary.", kind="empty", retryable=True)
        return summary


def load_summariser(config: AgentConfig, own: BaseChatModel | None = None) -> ModelSummariser:
    """The summariser of an agent, with `compression.model` or the agent's own model.

    `UsageError` if it cannot be loaded.
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
    """Without the provider's text, which may quote the conversation."""
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
