"""The models of a simulation: the replies of the scripted ones, and the tokens of all."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from segue.agent.demo import demo_reply
from segue.agent.models import load_model
from segue.agent.scripted import ScriptedChatModel
from segue.core.tokens import estimate_tokens
from segue.core.triggers import TRIGGER_PROMPTS
from segue.settings.agents import AgentConfig
from segue.simulate.report import Usage


class ScriptedReplies:
    """Replies of a scripted model: the lines it was given, and then the demo's."""

    def __init__(self, agent: AgentConfig) -> None:
        self.lines: deque[str] = deque()
        # The demo knows triggers by their fixed prompts; it would repeat an owner's own prompt.
        self._fixed = {
            variant.text.strip(): TRIGGER_PROMPTS[trigger]
            for trigger, variants in agent.autonomy.prompts.items()
            for variant in variants
        }

    def __call__(self, messages: Sequence[BaseMessage]) -> str:
        if self.lines:
            return self.lines.popleft()
        return demo_reply([self._with_fixed_prompt(message) for message in messages])

    def _with_fixed_prompt(self, message: BaseMessage) -> BaseMessage:
        fixed = self._fixed.get(message.text.strip())
        return message if fixed is None else message.model_copy(update={"content": fixed})


class Meter(AsyncCallbackHandler):
    """Counts the calls and tokens of models."""

    def __init__(self) -> None:
        self.usage = Usage()

    async def on_chat_model_start(
        self,
        serialized: dict[str, Any],  # noqa: ARG002
        messages: list[list[BaseMessage]],
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        read = sum(estimate_tokens(message) for request in messages for message in request)
        self.usage = replace(
            self.usage,
            model_calls=self.usage.model_calls + len(messages),
            tokens_read=self.usage.tokens_read + read,
        )

    async def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:  # noqa: ARG002
        written = sum(
            estimate_tokens(made.message)
            for answers in response.generations
            for made in answers
            if isinstance(made, ChatGeneration)
        )
        self.usage = replace(self.usage, tokens_written=self.usage.tokens_written + written)


def metered_model(agent: AgentConfig, script: ScriptedReplies, meter: Meter) -> BaseChatModel:
    """The model of an agent, with a script if it is the scripted one, on a meter."""
    model = load_model(agent.model, agent.model_settings)
    if isinstance(model, ScriptedChatModel):
        model.script = script
    model.callbacks = [meter]
    return model
