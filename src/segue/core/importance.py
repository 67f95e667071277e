"""How much a batch matters to the rest of a conversation, as a number. By rule, no model.

| what | points |
|---|---|
| the user said something in it | 3 |
| the user asked something | 1 |
| the agent decided, proposed, promised, or failed at something | 2 |
| a tool brought a result | 1 |
| how much was said, full at 1,200 characters | up to 1 |
| how many of its words come up again later, but not everywhere | up to 2 |

A trigger's words count for nothing: only what a person could see, and tools, are looked at.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from segue.core.acts import Act, acts_of
from segue.core.batch import Batch
from segue.core.messages import spoken_text, visible_messages
from segue.core.metadata import is_synthetic
from segue.core.sentences import is_question, sentences_of
from segue.core.words import indexed_words

_USER_SPOKE: Final = 3.0
_USER_ASKED: Final = 1.0
_DECIDED: Final = 2.0
_TOOL_ANSWERED: Final = 1.0
_LENGTH: Final = 1.0
_CITED: Final = 2.0

_LONG: Final = 1_200  # characters
_DECISIONS: Final = frozenset({Act.PROPOSES, Act.PROMISES, Act.REPORTS, Act.FAILS})


def importances(batches: Sequence[Batch]) -> dict[int, float]:
    """How much each batch matters, by its id; from 0 to 10."""
    ordered = sorted(batches, key=lambda batch: batch.id)
    seen = {batch.id: visible_messages(batch.messages) for batch in ordered}
    words = {batch: _words(messages) for batch, messages in seen.items()}
    counts = Counter(chain.from_iterable(words.values()))
    everywhere = {word for word, count in counts.items() if count > max(len(ordered) / 2, 2)}
    later: set[str] = set()
    weights = {}
    for batch in reversed(ordered):
        own = words[batch.id] - everywhere
        cited = len(own & later) / len(own) if own else 0.0
        weights[batch.id] = _by_itself(batch, seen[batch.id]) + _CITED * cited
        later |= own
    return weights


def _words(messages: Sequence[BaseMessage]) -> set[str]:
    return {word for message in messages for word in indexed_words(spoken_text(message))}


def _by_itself(batch: Batch, seen: Sequence[BaseMessage]) -> float:
    users = [m for m in seen if isinstance(m, HumanMessage)]
    asks = any(is_question(s) for m in users for s in sentences_of(spoken_text(m)))
    replies = [spoken_text(m) for m in seen if isinstance(m, AIMessage)]
    decides = any(acts & _DECISIONS for text in replies for acts in acts_of(text))
    results = [exchange.result for exchange in batch.pairing.exchanges]
    length = sum(len(spoken_text(message)) for message in seen)
    return (
        _USER_SPOKE * bool(users)
        + _USER_ASKED * asks
        + _DECIDED * decides
        + _TOOL_ANSWERED * any(r is not None and not is_synthetic(r) for r in results)
        + _LENGTH * min(length / _LONG, 1.0)
    )
