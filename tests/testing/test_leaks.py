"""The leak detector: it finds talk about the machinery, and leaves natural talk alone."""

import pytest

from segue.core.triggers import TRIGGER_PROMPTS, TriggerType
from segue.testing.leaks import find_leaks

LEAKS = {
    "[AUTONOMOUS_FOLLOWUP: check_in]": "marker",
    "You wrote [AUTONOMOUS_FOLLOWUP]. What is that?": "marker",
    "Alright! [MORNING_END]": "marker",
    "That's a great idea. [SUGGESTION: first response]": "marker",
    "I see a check_in here.": "trigger name",
    "It says question_unanswered, so what was the question?": "trigger name",
    "The trigger type is not one I know.": "trigger name",
    "Sure, let's continue our conversation naturally.": "prompt",
    "You asked me to check in about the incomplete task we discussed.": "prompt",
    "What is the decision the user needs to make?": "prompt",
    "The user asked a question but hasn't responded.": "third person",
    "I think the user wants to know about pizza.": "third person",
    "It seems that the user's question was about mushrooms.": "third person",
    "I received an autonomous follow-up.": "machinery",
    "This looks like a system message.": "machinery",
    "I'm sending you this automated reminder about your pizza night.": "machinery",
    "I was triggered to write to you again.": "machinery",
    "The timer fired, so here I am.": "machinery",
    "This reply was triggered by a timer.": "machinery",
    "I see you mentioned an incomplete message.": "message about a message",
    "You sent an incomplete message.": "message about a message",
    "I see you sent a follow-up request.": "message about a message",
    "It looks like your message was cut off.": "message about a message",
    "Your last message seems to be incomplete.": "message about a message",
    "You've sent me a check-in. How can I help?": "message about a message",
    "I don't understand this follow-up prompt.": "message about a message",
    "As a follow-up, I would like to ask about the pizza.": "announcement",
    "This is a friendly check-in about your report.": "announcement",
    "I'm following up on your report as instructed.": "announcement",
}

NATURAL = [
    "By the way, did you have any other questions about pizza?",
    "How did the pizza night go? Did Sam like the pepperoni half?",
    "I wanted to follow up on your question about mushrooms: fresh ones are best.",
    "Just checking in: how is the report coming along?",
    "I was thinking about what you said. Have you decided yet?",
    "Set a timer for twelve minutes and take the pizza out when it rings.",
    "Did the oven timer go off in time?",
    "Do you know what triggers your headaches? For some people it is cheese.",
    "Autonomous cars are a nice topic for your talk. Have you found a title?",
    "Did the follow-up appointment at the doctor's go well?",
    "You can check in at the hotel from three o'clock.",
    "Is the puzzle still incomplete, or did you find the missing piece?",
    "Your report is still unfinished, isn't it? Shall we write the next part?",
    "Have you sent the message to your landlord yet?",
    "The solar system has eight planets. Which one do you like best?",
    "How is the heating system doing since the repair?",
    "Did you tell your team that every user should get a new password?",
    "Most users like the dark theme. What do you prefer?",
    "A good login page tells people what went wrong.",
    "Vue is quicker to learn; React has more libraries. Which way do you lean?",
    "Let's continue where we left off: the outline of your report.",
    "Shall we continue our conversation about Paris tomorrow?",
    "Your request for a day off: has your boss answered?",
    "I'd love to hear how the interview went!",
    "No rush, but I'm curious whether you picked the red one or the blue one.",
    "What was the question your teacher asked?",
    "Have you made a decision about the train?",
    "The task sounds hard, but you have done half of it already.",
    "Did you get the scheduled train, or the later one?",
    "I hope you slept well. Is your knee any better?",
    "How about a quick check of the packing list before you go?",
    "Did the alarm go off early enough this morning?",
    "[smiles] That made my day. How is the cat?",
    "Dear [Your Name], thank you for the invitation. Like that?",
    "Your prompt answer helped me a lot, thank you!",
    "Natural light is best for the plant. Has it grown?",
]


@pytest.mark.parametrize(("reply", "kind"), LEAKS.items())
def test_talk_about_the_machinery_is_found(reply: str, kind: str) -> None:
    """Every way in which models have given a trigger away is a leak, and is named."""
    assert kind in {leak.kind for leak in find_leaks(reply, timer_fired=True)}


@pytest.mark.parametrize("reply", NATURAL)
@pytest.mark.parametrize("timer_fired", [True, False])
def test_natural_talk_is_left_alone(reply: str, timer_fired: bool) -> None:
    """People follow up, check in and set timers too; that is no leak."""
    assert find_leaks(reply, timer_fired=timer_fired) == []


@pytest.mark.parametrize(
    "reply",
    [
        "It looks like your message was cut off. Could you send it again?",
        "When the user clicks the button, the user's question is sent.",
        "As a follow-up, you could read the second part.",
        "A cron job is triggered by a timer; check_in() is a function of yours.",
        "Sure, let's continue our conversation naturally.",
    ],
)
def test_without_a_timer_such_words_can_be_an_honest_answer(reply: str) -> None:
    """What the user really wrote may be cut off, or about users and timers."""
    assert find_leaks(reply, timer_fired=False) == []
    assert find_leaks(reply, timer_fired=True) != []


def test_the_old_marker_is_a_leak_at_any_time() -> None:
    """No user writes it, so it never belongs into a reply."""
    assert find_leaks("Hm, [AUTONOMOUS_FOLLOWUP: check_in]?", timer_fired=False) != []


@pytest.mark.parametrize("trigger", TriggerType)
def test_a_reply_that_repeats_its_prompt_is_found(trigger: TriggerType) -> None:
    """Each of the four prompts, word for word in a reply, gives itself away."""
    leaks = find_leaks(f'You said: "{TRIGGER_PROMPTS[trigger]}"', timer_fired=True)
    assert leaks != []


def test_leaks_come_in_the_order_of_the_text() -> None:
    """Each leak quotes the words that gave it away."""
    found = find_leaks("The user asked about a system message.", timer_fired=True)
    assert [leak.text for leak in found] == ["The user asked", "system message"]
