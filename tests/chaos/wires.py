"""What real clients of the providers make of the contexts, held against each provider's rules.

A client takes long for a context, and whether a body is valid depends on its shape alone: each
shape is sent once.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from segue.core.calls import calls_of, has_content
from segue.core.metadata import strip_metadata
from tests.chaos.aftermath import Aftermath
from tests.chaos.soundness import contexts
from tests.providers.clients import Client

# Of two or three batches: what stands next to what does not depend on how much there is.
WIRE_TOKENS: Final = 300

Shape = tuple[tuple[str, bool, int, str], ...]


def wire_problems(seen: Aftermath, clients: Mapping[str, Client]) -> Iterator[str]:
    """What a provider would refuse, with the batch that is answered; nothing if all is well."""
    told = contexts(seen, WIRE_TOKENS)
    shapes = {_shape_of(messages): (batch, messages) for batch, messages in told}
    for batch, messages in shapes.values():
        for name, client in clients.items():
            request = client.send(strip_metadata(messages))
            for problem in client.problems(request.body):
                yield f"Batch {batch} as the current one, {name}: {problem}"


def _shape_of(messages: Iterable[BaseMessage]) -> Shape:
    return tuple(
        (
            message.type,
            has_content(message),
            len(calls_of(message)) if isinstance(message, AIMessage) else 0,
            message.status if isinstance(message, ToolMessage) else "",
        )
        for message in messages
    )
