"""The checks of `segue doctor --live`: whether the addresses of models and webhooks answer.

Each connection is opened and closed; nothing is sent.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from segue.agent.models import load_model
from segue.errors import SegueError
from segue.settings.agents import AgentConfig

_SECONDS: Final = 5.0
_FIX: Final = "Is the address right, and may this machine reach it?"
# Attributes of LangChain's models that hold the address, and the providers' default addresses.
_ATTRIBUTES: Final = ("openai_api_base", "anthropic_api_url", "base_url", "azure_endpoint")
_PROVIDERS: Final = {
    "openai": "https://api.openai.com",
    "anthropic": "https://api.anthropic.com",
    "google_genai": "https://generativelanguage.googleapis.com",
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was checked, what was found, and how to fix it."""

    name: str
    outcome: Literal["ok", "warn", "fail"]
    detail: str
    fix: str = ""


async def check_addresses(agent: AgentConfig) -> AsyncIterator[Diagnosis]:
    """Connect to the addresses of the agent's model and webhook."""
    for what, address in _addresses(agent):
        name = f"{what} of {agent.id}, live"
        if address is None:
            yield Diagnosis(name, "warn", f"The address of {agent.model!r} is not known.")
        else:
            yield await _connect(name, address)


def _addresses(agent: AgentConfig) -> Iterator[tuple[str, str | None]]:
    if agent.graph is None and agent.model not in {"local", "scripted"}:
        try:
            model = load_model(agent.model, agent.model_settings)
        except SegueError:
            pass  # reported by the check of the model
        else:
            yield "model", _address_of(model, agent.model)
    if agent.webhook is not None and urlsplit(agent.webhook.url).hostname:
        yield "webhook", agent.webhook.url


def _address_of(model: Any, name: str) -> str | None:
    given = (getattr(model, attribute, None) for attribute in _ATTRIBUTES)
    known = _PROVIDERS.get(name.partition(":")[0])
    return next((address for address in given if isinstance(address, str)), known)


async def _connect(name: str, address: str) -> Diagnosis:
    parts = urlsplit(address)
    is_secure = parts.scheme == "https"
    port = parts.port or (443 if is_secure else 80)
    # Without the path: a webhook's is often a secret.
    place = f"{parts.hostname}:{port}"
    try:
        async with asyncio.timeout(_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, port, ssl=is_secure or None)
            writer.close()
    except TimeoutError:
        return Diagnosis(name, "fail", f"{place} does not answer within {_SECONDS:.0f} s.", _FIX)
    except OSError as error:
        reason = (error.strerror or str(error)).rstrip(".")
        return Diagnosis(name, "fail", f"{place} does not answer: {reason}.", _FIX)
    return Diagnosis(name, "ok", f"{place} answers.")
