"""Model calls as they are counted: how long each took, and how many tokens went in and came out.

By LangChain's callbacks, so that the calls of a graph of one's own and of tools count as well.
"""

import time
from typing import Any, Final
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from segue.noting import count, is_observed

_MODEL: Final = "ls_model_name"


def counting_callbacks() -> list[BaseCallbackHandler]:
    """For the config of a run; none where nobody counts."""
    return [_ModelCalls()] if is_observed() else []


class _ModelCalls(BaseCallbackHandler):
    """Tells of each model call of one run when it is over."""

    # There is nothing here to wait for, and a visit to another thread would cost more.
    run_inline = True
    # Of all that a graph does, its model calls alone.
    ignore_chain = True
    ignore_agent = True
    ignore_retriever = True
    ignore_custom_event = True

    def __init__(self) -> None:
        self._begun: dict[UUID, tuple[float, str | None]] = {}

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],  # noqa: ARG002 - named by LangChain
        messages: list[list[BaseMessage]],  # noqa: ARG002
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        self._begun[run_id] = time.perf_counter(), (metadata or {}).get(_MODEL)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:  # noqa: ARG002
        self._tell(run_id, "done", *_tokens(response))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:  # noqa: ARG002
        self._tell(run_id, "failed")

    def _tell(self, run_id: UUID, outcome: str, tokens_in: int = 0, tokens_out: int = 0) -> None:
        began, model = self._begun.pop(run_id, (time.perf_counter(), None))
        count(
            "model_called",
            outcome=outcome,
            model=model,
            seconds=time.perf_counter() - began,
            input_tokens=tokens_in,
            output_tokens=tokens_out,
        )


def _tokens(response: LLMResult) -> tuple[int, int]:
    """Those that the provider counted, of input and output."""
    made = [g for generations in response.generations for g in generations]
    said = [g.message for g in made if isinstance(g, ChatGeneration)]
    usages = [m.usage_metadata for m in said if isinstance(m, AIMessage) and m.usage_metadata]
    return sum(u["input_tokens"] for u in usages), sum(u["output_tokens"] for u in usages)
