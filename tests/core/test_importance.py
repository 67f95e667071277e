"""How much a batch matters: what counts, and what counts for nothing."""

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from segue import Batch, stamp, synthetic_message
from segue.core.importance import importances
from tests.histories import calling, positions, result, ticking_generator

PLAIN = [HumanMessage("The sky is grey."), AIMessage("I see.")]


def weights(*cycles: list[BaseMessage]) -> list[float]:
    generator = ticking_generator()
    stamped = [stamp(cycle, generator) for cycle in cycles]
    found = importances([Batch(positions(cycle)[0], cycle) for cycle in stamped])
    return [found[positions(cycle)[0]] for cycle in stamped]


@pytest.mark.parametrize(
    "more",
    [
        [HumanMessage("Is the sky grey?"), AIMessage("I see.")],
        [HumanMessage("The sky is grey."), AIMessage("I booked it: the room is now reserved.")],
        [HumanMessage("The sky is grey."), AIMessage("Shall I order the umbrella?")],
        [HumanMessage("The sky is grey."), calling("c"), result("c", "rain"), AIMessage("I see.")],
        [HumanMessage("The sky is grey." + " So grey." * 40), AIMessage("I see.")],
    ],
    ids=["a question", "a report", "a proposal", "a tool's result", "length"],
)
def test_what_makes_a_batch_matter_more(more: list[BaseMessage]) -> None:
    """Each of these alone, beside a batch without it."""
    plain, better = weights(PLAIN, more)[0], weights(more)[0]
    assert better > weights(PLAIN)[0]
    assert plain >= weights(PLAIN)[0]


def test_the_users_own_words_count_most() -> None:
    """A follow-up that nobody answered matters less than anything the user said."""
    follow_up = [synthetic_message("check_in"), AIMessage("Shall I order the umbrella?")]
    said, alone = weights([HumanMessage("Yes."), AIMessage("Fine.")], follow_up)
    assert said > alone


def test_what_comes_up_again_matters_more() -> None:
    """By its words, in what was said later."""
    cited, forgotten = (weights(PLAIN, [HumanMessage(words)])[0] for words in ("Grey sky", "Oslo"))
    assert cited > forgotten


def test_a_triggers_words_count_for_nothing() -> None:
    """Neither as a question of the user's nor as words that come up again."""
    for prompt in ("Is the sky grey, is it grey?", "Say it."):
        asked = synthetic_message("check_in", prompt=prompt)
        assert weights(PLAIN, [asked, AIMessage("Hello.")]) == weights(
            PLAIN, [synthetic_message("check_in"), AIMessage("Hello.")]
        )


def test_the_same_batches_in_any_order_weigh_the_same() -> None:
    """The journal gives them newest first."""
    generator = ticking_generator()
    cycles = [stamp(list(PLAIN), generator) for _ in range(3)]
    batches = [Batch(positions(cycle)[0], cycle) for cycle in cycles]
    assert importances(batches[::-1]) == importances(batches)
