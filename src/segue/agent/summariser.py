"""`ModelSummariser`: asks a chat model to update the summary of a conversation.

The model answers a `SummaryRequest` with the new summary. Every error is a `ModelFailure` that
quotes nothing. The caller limits the answer's length.
"""

from datetime import timedelta
from typing import Final

from langchain_core.language_models import BaseChatModel

from segue.agent.models import ask_aside, load_model
from segue.core.compression import SummaryRequest
from segue.core.memory import text_of
from segue.errors import UsageError
from segue.runtime.model_failures import ModelFailure, explain_model_error
from segue.settings.agents import AgentConfig

_TIME_LIMIT: Final = timedelta(seconds=60)
_WORDS_PER_TOKEN: Final = 0.7


class ModelSummariser:
    """Summarises by asking a model. Stateless."""

    def __init__(self, model: BaseChatModel) -> None:
        self._model = model

    async def summarise(self, earlier: str, retold: str, max_tokens: int) -> str:
        """The summary of the `earlier` summary and the transcript `retold`.

        The model is asked for at most `max_tokens`. `ModelFailure` if it fails or gives no text.
        """
        words = max(round(max_tokens * _WORDS_PER_TOKEN), 1)
        messages = SummaryRequest(earlier, retold, words).messages()
        try:
            answer = await ask_aside(self._model, messages, "summarise", _TIME_LIMIT)
        except Exception as error:
            raise _failure(error) from error
        if not (summary := text_of(answer)):
            raise ModelFailure("The model gave no summary.", kind="empty", retryable=True)
        return summary


def load_summariser(config: AgentConfig, own: BaseChatModel | None = None) -> ModelSummariser:
    """With `compression.model` or the agent's model; `UsageError` if it cannot be loaded."""
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
    failure = explained if isinstance(explained, ModelFailure) else None
    kind = failure.kind if failure else explained.code
    return ModelFailure(
        f"The summary failed: {kind} ({type(error).__name__}).",
        kind=kind,
        retryable=failure is not None and failure.retryable,
        retry_after=failure.retry_after if failure else None,
    )
