"""The default decider: which follow-up fits a reply, if any, without asking a model."""

import tomllib
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from evals.decider import (
    accuracy,
    by_rules,
    decisions,
    find_data,
    load_cuts,
    predictions,
    read_as_success,
    tokenised,
)
from segue import Batch, BatchType, group_batches, settle, stamp, synthetic_message
from segue.core.autonomy.decide import Delays, Plan, Sign, judge
from segue.core.metadata import MessageMetadata
from segue.core.triggers import TriggerType
from segue.errors import UsageError
from tests.histories import broken_threads, calling, result, ticking_generator

GENERATOR = ticking_generator()
QUESTIONS = tomllib.loads((Path(__file__).parents[1] / "speech/questions.toml").read_text())


def batch_of(*messages: BaseMessage, kind: BatchType | None = None) -> Batch:
    [batch] = group_batches(stamp(messages, GENERATOR, batch_type=kind))
    return batch


def decide(batch: Batch, *, interrupted: bool = False, delays: Delays | None = None) -> Plan | None:
    return judge(batch, interrupted=interrupted).plan(delays or Delays())


def talk(user: str, reply: str) -> Batch:
    return batch_of(HumanMessage(user), AIMessage(reply))


def sign(reply: str, user: str = "Please go on.") -> Sign:
    return judge(talk(user, reply))


@pytest.mark.parametrize(
    "reply",
    [
        "What time would you like to leave?",
        "Sure, and from where do you want to leave?",
        "How many of you will there be? I can seat up to eight.",
        "Got it. Please tell me the amount that you want to transfer.",
        "To set this up I need three things:\n\n1. What is your name?\n2. Where do you live?",
        "I'd love to hear more. **How did the interview go?** 😊",
        "Which language do you mean, `C` or `C++`?",
        "Could you share the error message?",
        "What is the capital of Peru?\n\nA) Lima\nB) Cusco\nC) Quito\nD) Arequipa",
        "您想什么时候出发\uff1f",
    ],
)
def test_a_question_waits_for_its_answer(reply: str) -> None:
    """The user is reminded of what they were asked, not asked how things are going."""
    assert sign(reply) is Sign.ASKED
    plan = decide(talk("Please go on.", reply))
    assert plan is not None
    assert plan.trigger is TriggerType.QUESTION_UNANSWERED


@pytest.mark.parametrize(
    "reply",
    [
        "I can book the 9:15 train. Shall I go ahead?",
        "Would you like me to send the mail now?",
        "Do you want the blue one or the red one?",
        "How about the Thai place on Market Street?",
        "Please confirm: two seats on Friday at eight.",
        "Let's confirm the details. You leave on Friday. You return on Sunday. One bag. No meal.",
        "You'd like two tickets for Friday, correct?",
        "Here are the plans. Which one do you prefer?\n\n- Basic\n- Plus\n- Pro\n- All of it",
        "Sorry, I couldn't get a table at seven. Would eight work for you?",
        "Both would do. It's up to you.",
        "Please could you confirm the address.",
        "Please check the details below and confirm.",
        "Please could you kindly confirm that it is two seats?",
        "I need your approval for the 200 euros.",
        "You want two seats on Friday?",
        "What about the Thai place on Market Street.",
        "I need 200 euros for the tickets. Approve?",
    ],
)
def test_a_proposal_waits_for_a_decision(reply: str) -> None:
    """What the user has to settle, a yes, a no or a choice, is followed up as a decision."""
    assert sign(reply) is Sign.PROPOSED
    plan = decide(talk("Please go on.", reply))
    assert plan is not None
    assert plan.trigger is TriggerType.WAITING_FOR_DECISION


def test_of_two_questions_the_last_counts() -> None:
    """The user is reminded of what they were asked last, which is what they remember."""
    assert sign("When do you want to leave? Or shall I pick a time?") is Sign.PROPOSED
    assert sign("Shall I book it? And when do you want to leave?") is Sign.ASKED


def test_things_to_choose_from_wait_for_a_decision_if_they_were_looked_for() -> None:
    """Who asked for a hotel has to pick one; who asked for the bug has got it."""
    reply = "I found a small hotel near the station. It has 20 rooms."
    assert sign(reply, "I'm looking for a hotel in Bremen.") is Sign.PROPOSED
    assert sign("It opens at ten.", "I'm looking for a hotel in Bremen.") is Sign.INFORMED
    assert sign("I found the bug. It was an off-by-one.", "Find the bug.") is Sign.INFORMED


def test_a_search_some_turns_ago_is_still_a_search() -> None:
    """Who looked for a hotel and then named the day and the price has still to choose one."""
    search = talk("I'm looking for a hotel in Bremen.", "When do you arrive?")
    details = [talk("On Friday.", "For how long?"), talk("Two nights.", "What may it cost?")]
    offer = "There are 4 hotels. The Anker is near the station."
    assert judge(talk("Up to 90 euros.", offer), [search, *details]) is Sign.PROPOSED
    assert judge(talk("Up to 90 euros.", offer), details) is Sign.INFORMED
    older = [search, *details, talk("For one.", "With breakfast?")]
    assert judge(talk("Up to 90 euros.", offer), older) is Sign.INFORMED, "four turns count"


def test_a_search_is_over_when_it_is_met_or_left() -> None:
    """What was booked need not be chosen, and a question about the hotel is answered with facts."""
    search = talk("I'm looking for a hotel in Bremen.", "I found the Anker. It has 20 rooms.")
    booked = talk("Take it.", "The Anker is booked.")
    fact = "There are 20 rooms and a garden."
    assert judge(talk("Good.", fact), [search]) is Sign.PROPOSED
    assert judge(talk("Good.", fact), [search, booked]) is Sign.INFORMED
    assert judge(talk("Is it a big house?", fact), [search]) is Sign.ANSWERED


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("I 'm afraid they do n't have any . Sorry , I could n't book it .", Sign.FAILED),
        ("I ca n't find a table . Anything else ?", Sign.FAILED),
        ("I cant find a table. Anything else?", Sign.FAILED),
        ("What time would you like to leave ?", Sign.ASKED),
        ("You 'd like two tickets for Friday , correct ?", Sign.PROPOSED),
        ("You 're welcome ! Have a great day !", Sign.CLOSED),
    ],
)
def test_tokens_are_read_as_the_text_they_were_cut_from(reply: str, expected: Sign) -> None:
    """Text with spaces before marks and endings, or without apostrophes, means the same."""
    assert sign(reply) is expected


@pytest.mark.parametrize(
    "reply",
    [
        "Sorry, I couldn't book that table. Anything else?",
        "I was unable to reach the server.",
        "Something went wrong and the mail was not sent.",
        "The payment did not go through. Is there anything else I can do?",
        "Your order could not be placed. The shop was closed, and it opens again tomorrow at nine.",
        "I'm sorry, there are no tables left for tonight.",
        "So I was not able to find the file?",
        "Your order failed. Anything else?",
        "The red one is not available. Can I help you with anything else?",
        "Sorry for the wait. They are fully booked that night.",
        "That evening is sold out. Is there anything else I can do?",
        "No seats are left for the late show. Do you need anything else?",
        "The parcel cannot be delivered, unfortunately.",
        "Your card was declined. What else can I do for you?",
        "I have been unable to successfully place the call. Anything else?",
        "That slot is booked already. Do you need anything else?",
        "I'm sorry to say that the tickets weren't sent.",
    ],
)
def test_a_failure_leaves_a_task_open(reply: str) -> None:
    """A task that the agent could not do is not forgotten over a polite "anything else?"."""
    assert sign(reply) is Sign.FAILED
    plan = decide(talk("Book it.", reply))
    assert plan is not None
    assert plan.trigger is TriggerType.TASK_INCOMPLETE


@pytest.mark.parametrize(
    "reply",
    [
        "I'll get back to you with the figures.",
        "I'm still working on the report.",
        "Let me look at that. One moment.",
        "The import is still in progress; I'll let you know.",
    ],
)
def test_a_promise_leaves_a_task_open(reply: str) -> None:
    """What the agent said it would do, it comes back to."""
    assert sign(reply) is Sign.PROMISED
    assert judge(talk("Do it.", reply)).trigger is TriggerType.TASK_INCOMPLETE


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Your table is booked for eight.", Sign.DONE),
        ("I've sent the mail. Have a nice trip!", Sign.DONE),
        ("You're welcome! Is there anything else I can help you with?", Sign.DONE),
        ("Hello! How can I help you today?", Sign.DONE),
        ("What else can I do for you?", Sign.DONE),
        ("The early one was not available. I've booked the next one. Anything else?", Sign.DONE),
        ("The museum opens at ten.", Sign.INFORMED),
        ("I was able to open the file: it has 20 lines.", Sign.INFORMED),
        ("Let me know if you'd like more details on any of these. They are long.", Sign.INFORMED),
    ],
)
def test_what_asks_nothing_is_a_reason_to_check_in(reply: str, expected: Sign) -> None:
    """Nothing is open, so the agent only shows that it is there; offering help asks nothing."""
    assert sign(reply) is expected
    plan = decide(talk("Please go on.", reply))
    assert plan is not None
    assert plan.trigger is TriggerType.CHECK_IN


@pytest.mark.parametrize(
    "reply",
    [
        "Use this:\n```python\nif input('Do you want to go on?'):\n    pass\n```",
        "Use this:\n~~~\nWhat is your name?\n~~~",
        "```sh\nread -p 'Which one do you want?' x",
        "Run `ask --what 'Which file?'` and read the manual.",
        'The form says "Do you want to go on?" and then ends.',
        "The form says “Do you want to go on?”",
        "He wrote:\n\n> What would you like?\n> Shall I call you?",
        "It is at https://example.org/search?q=what+do+you+want?",
        "It is at https://example.org/find?",
        "Why is the sky blue? Because short waves are scattered more.",
        "## What do you need?\n\nA bowl and a spoon.",
        "| question | answer |\n|---|---|\n| Do you want it? | yes |",
        "Two reasons:\n\n- it is fast\n- it is small",
        "If you'd like, I can show an example.",
        "Please ensure that the server runs, then verify your config.",
        "You need to restart it, so you want a short break first.",
        "The job failed because the disk was full, which is why the list is empty.",
        "I'm sorry to hear that you're not well. Rest helps.",
        "I'm sorry, but I can't help with that.",
        "I couldn't agree more.",
        "The old driver is not available on that system, so the kernel takes the new one.",
        "A tuple cannot be changed, which is why the call failed.",
        "Please open the valve and confirm that the light is green.",
        "Pull requests are welcome on the project's page.",
        "Thank you for the logs: the cache is filled before the lock is taken, so one is old.",
        "See the manual, and take care of the order.",
        "A good night's rest is worth more than an hour of work.",
    ],
)
def test_what_only_looks_like_something_open_is_not(reply: str) -> None:
    """Code, quotations, links, headings and advice plan no follow-up but a check-in."""
    assert sign(reply) is Sign.INFORMED


@pytest.mark.parametrize(
    ("user", "reply"),
    [
        ("Thanks, that's all.", "You're welcome!"),
        ("That is all I need for now, thank you.", "Can I help you with anything else?"),
        ("ok bye", "Your notes are saved."),
        ("Good night!", "Sleep well."),
        ("Thanks a lot", "My pleasure. Have a great day!"),
        ("Thank you so much for your help!", "You're welcome! Let me know if you need anything."),
        ("thanks!", "You're welcome! If you have any more questions, feel free to ask."),
        ("I think we are done here.", "Okay."),
        ("Not now.", "No problem."),
        ("I have to go now", "Sure."),
        ("Let's stop for today.", "Great work today. See you tomorrow!"),
    ],
)
def test_a_goodbye_is_not_followed_up(user: str, reply: str) -> None:
    """Who has said goodbye, or that they have all they need, is left alone."""
    assert sign(reply, user) is Sign.CLOSED
    assert decide(talk(user, reply)) is None


@pytest.mark.parametrize(
    ("user", "reply"),
    [
        ("What is the capital of Norway?", "Oslo is the capital of Norway."),
        ("Thanks. And how high is the tower?", "It is 120 metres high."),
        ("Can you tell me when the museum opens?", "The museum opens at ten."),
        ("I want to know more about fjords.", "It is a long inlet of the sea between the cliffs."),
        ("Explain recursion to me, please.", "A function that calls itself is recursive."),
        ("I see. Which of them is the oldest?", "The one in Bergen is the oldest."),
        ("Which letter stands for three?", "It is the letter C."),
        ("Which train for Rome?", "It is the one at ten."),
    ],
)
def test_a_fact_that_was_answered_is_not_followed_up(user: str, reply: str) -> None:
    """Who asked what is so and was told has no reason to hear from the agent again."""
    assert sign(reply, user) is Sign.ANSWERED
    assert decide(talk(user, reply)) is None


def test_advice_may_be_followed_up_and_a_fact_may_not() -> None:
    """Which chords come first has yet to be tried; what the capital of Norway is, is settled."""
    for kind, expected in (("advice", Sign.INFORMED), ("fact", Sign.ANSWERED)):
        read = {user: sign("Start with G, C and D.", user) for user in QUESTIONS[kind]}
        assert read == dict.fromkeys(QUESTIONS[kind], expected)


@pytest.mark.parametrize(
    "user",
    [
        "I have an exam tomorrow. How long should a break be?",
        "My mother is ill, what helps against fever?",
        "We are moving to Oslo in May, how cold is it then?",
        "I'm so nervous about the talk. Is that normal?",
        "Should I quit my job?",
        "Which pizza for three?",
        "And what size pan for 4 people?",
        "What gift for my mother?",
        "I feel alone today.",
        "Could you write me a plan for the week?",
    ],
)
def test_who_tells_of_their_life_is_asked_how_it_goes(user: str) -> None:
    """Plans, feelings and work for the user are worth a check-in, also beside a question."""
    assert sign("Ten minutes in the hour are a good measure.", user) is Sign.INFORMED


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("How do I say goodbye in French?", Sign.ANSWERED),
        ("Bye for now, but can you send me the file?", Sign.INFORMED),
        ("That's all well and good, but I want to see it.", Sign.INFORMED),
        ("Nothing works.", Sign.INFORMED),
        ("I'm done with my homework.", Sign.INFORMED),
        ("I'm fine.", Sign.INFORMED),
        ("No.", Sign.INFORMED),
    ],
)
def test_words_of_parting_are_not_always_a_goodbye(user: str, expected: Sign) -> None:
    """A talk goes on that only mentions an end."""
    assert sign("It is in the second drawer.", user) is expected


@pytest.mark.parametrize(
    ("user", "reply", "expected"),
    [
        ("Please stop writing to me.", "Okay. Did I do anything wrong?", Sign.STOPPED),
        ("Hör auf, mir zu schreiben", "Verstanden. Kann ich noch etwas tun?", Sign.STOPPED),
        ("All this pinging makes me want to unplug you, so less.", "Why?", Sign.MAY_BE_STOP),
        ("You can write to me again. I was only tired.", "Great, how are you?", Sign.ASKED),
        ("Was ist die Hauptstadt von Norwegen?", "Oslo ist die Hauptstadt.", Sign.NOT_READ),
        ("Ich lerne Gitarre.", "Schön! Welche Lieder magst du?", Sign.ASKED),
        ("Danke, tschüss!", "Gern! Kann ich noch etwas für dich tun?", Sign.CLOSED),
        ("Merci, au revoir", "Avec plaisir. Autre chose ?", Sign.CLOSED),
        ("ありがとう", "どういたしまして。", Sign.NOT_READ),
        ("Opowiedz mi coś", "Kraków jest pięknym miastem.", Sign.NOT_READ),
    ],
)
def test_where_the_rules_do_not_know_better_they_say_less(
    user: str, reply: str, expected: Sign
) -> None:
    """A stop and an unknown language get no check-in; an open question counts."""
    assert sign(reply, user) is expected
    assert (decide(talk(user, reply)) is None) == (expected is not Sign.ASKED)


def test_a_short_english_reply_is_known_to_be_english() -> None:
    """Also if most of it repeats the user; other languages share some of its words."""
    assert (
        sign("Noted, 1 so far: I want to learn guitar", "I want to learn guitar") is Sign.INFORMED
    )
    assert sign("Não use mais emojis nas respostas.", "Olá") is Sign.NOT_READ
    assert sign("Ik oefen gitaar, want dat is leuk.", "Hoi") is Sign.NOT_READ


@pytest.mark.parametrize("user", ["No.", "Nope, thank you very much", "no thanks"])
def test_a_no_after_an_offer_of_help_is_a_goodbye(user: str) -> None:
    """To "Anything else?" a no means that this was all; to another question it does not."""
    question = talk("Book it.", "Do you want a window seat?")
    offer = talk("Yes.", "It is booked. Anything else?")
    answer = talk(user, "It is in the second drawer.")
    later = talk("Hm.", "Do you want a window seat?")
    assert judge(answer, [question, offer]) is Sign.CLOSED
    assert judge(answer, [later, offer, question]) is Sign.CLOSED
    assert judge(answer, [question]) is Sign.INFORMED
    assert judge(answer) is Sign.INFORMED
    wish = talk("No, move it to the second drawer.", "It fits in there.")
    assert judge(wish, [offer]) is Sign.INFORMED, "who wants more has not parted"


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Before you go: shall I cancel the booking?", Sign.PROPOSED),
        ("One last thing: when will you be back?", Sign.ASKED),
        ("Sorry, I couldn't save your notes. Goodbye!", Sign.FAILED),
    ],
)
def test_what_is_open_beats_a_goodbye(reply: str, expected: Sign) -> None:
    """A user who leaves in the middle of something hears of it again."""
    assert sign(reply, "Bye!") is expected


def test_a_pending_interrupt_waits_for_a_decision() -> None:
    """A graph that stopped for a person's word gets it asked for, whatever was said before."""
    batch = batch_of(HumanMessage("Bye!"), calling("pay", text="Goodbye!"))
    assert decide(batch, interrupted=True) == Plan(
        TriggerType.WAITING_FOR_DECISION,
        Delays().waiting_for_decision,
        "The agent stopped to wait for the user's answer.",
    )


def test_a_settled_batch_is_an_open_task() -> None:
    """A reply that was cut off is taken up again, even if its first words sound finished."""
    settled = settle(batch_of(HumanMessage("Book it."), calling("a", text="All done!")))
    assert judge(settled) is Sign.BROKEN_OFF
    assert judge(settled).trigger is TriggerType.TASK_INCOMPLETE


def test_an_unfinished_batch_is_an_open_task() -> None:
    """What nobody has settled yet is no less unfinished."""
    assert judge(batch_of(HumanMessage("Book it."), calling("a"))) is Sign.BROKEN_OFF


def test_a_batch_that_goes_on_by_itself_plans_nothing() -> None:
    """An agent that asked for time to go on does not nag the user meanwhile."""
    more = MessageMetadata(continue_requested=True).onto(result("a"))
    batch = batch_of(HumanMessage("Book it."), calling("a"), more, AIMessage("What now?"))
    assert judge(batch) is Sign.GOES_ON
    assert decide(batch) is None


def test_a_failed_tool_leaves_a_task_open() -> None:
    """A tool's error counts even where the reply passes over it."""
    failed = result("a", "no such file", status="error")
    batch = batch_of(HumanMessage("Save it."), calling("a"), failed, AIMessage("All good."))
    assert judge(batch) is Sign.TOOL_FAILED
    assert judge(batch).trigger is TriggerType.TASK_INCOMPLETE


def test_a_retry_that_worked_is_no_failure() -> None:
    """Only the last attempt counts: what was mended needs no follow-up."""
    batch = batch_of(
        HumanMessage("Save it."),
        calling("a"),
        result("a", "busy", status="error"),
        calling("b"),
        result("b", "saved"),
        AIMessage("It is saved."),
    )
    assert judge(batch) is Sign.DONE


def test_a_question_about_a_failed_tool_is_a_question() -> None:
    """If the agent already asked how to go on, the user is reminded of that question."""
    failed = result("a", "no such file", status="error")
    batch = batch_of(HumanMessage("Save it."), calling("a"), failed, AIMessage("Where is it?"))
    assert judge(batch) is Sign.ASKED


def test_an_agent_that_chose_silence_is_left_silent() -> None:
    """Nobody hears from an agent that had decided not to answer."""
    batch = batch_of(HumanMessage("(to someone else)"), AIMessage([{"type": "thinking"}]))
    assert judge(settle(batch)) is Sign.BROKEN_OFF
    hidden = MessageMetadata(synthetic=True).onto(AIMessage("What do you want?"))
    silent = batch_of(HumanMessage("(to someone else)"), hidden)
    assert judge(silent) is Sign.SILENT
    assert decide(silent) is None


def test_a_follow_up_that_broke_off_unseen_plans_no_other() -> None:
    """A failing model does not turn one follow-up into a row of them."""
    batch = settle(batch_of(synthetic_message("check_in"), kind=BatchType.SYSTEM_TRIGGER))
    assert judge(batch) is Sign.SILENT


def test_another_agents_question_is_not_the_users() -> None:
    """What one agent answers another is never followed up with the user."""
    batch = batch_of(
        HumanMessage("Which trains?"), AIMessage("When?"), kind=BatchType.AGENT_TO_AGENT
    )
    assert judge(batch) is Sign.NESTED
    assert decide(batch) is None


@pytest.mark.parametrize("prompt", ["Goodbye!", "That's all, thanks.", "I'm looking for a hotel."])
def test_a_triggers_words_are_never_looked_at(prompt: str) -> None:
    """However a follow-up's prompt is worded, only the reply to it counts."""
    trigger = synthetic_message("check_in", prompt=prompt)
    batch = batch_of(trigger, AIMessage("There are 20 rooms."), kind=BatchType.SYSTEM_TRIGGER)
    assert judge(batch) is Sign.INFORMED


def test_a_picture_alone_is_a_reply() -> None:
    """A reply without words is still something to come back to."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    batch = batch_of(HumanMessage("Draw a cat."), AIMessage([picture]))
    assert judge(batch).trigger is TriggerType.CHECK_IN


def test_only_the_last_thing_said_counts() -> None:
    """What was asked before a tool ran is answered by what came after it."""
    batch = batch_of(
        HumanMessage("Look it up."),
        calling("a", text="Which one do you want?"),
        result("a"),
        AIMessage("The museum opens at ten."),
    )
    assert judge(batch) is Sign.INFORMED


def test_a_question_in_the_middle_of_a_long_reply_is_part_of_it() -> None:
    """What a reply asks early and then goes on from, nobody waits to have answered."""
    reply = "Do you know the feeling?" + " It is like rain on a roof." * 5
    assert sign(reply) is Sign.INFORMED


def test_delays_are_the_owners() -> None:
    """How long to wait for what is set per trigger."""
    delays = Delays(question_unanswered=timedelta(minutes=7))
    plan = decide(talk("Hi.", "What is your name?"), delays=delays)
    assert plan == Plan(
        TriggerType.QUESTION_UNANSWERED, timedelta(minutes=7), "The reply asks the user something."
    )
    assert all(Delays().of(trigger) > timedelta() for trigger in TriggerType)


def test_a_negative_delay_is_refused() -> None:
    """A slip in a config is told at once and names the trigger."""
    with pytest.raises(UsageError, match="check_in"):
        Delays(check_in=timedelta(seconds=-1))


@pytest.mark.parametrize("each", Sign)
def test_every_sign_has_a_reason(each: Sign) -> None:
    """Whatever the decider saw can be told in a sentence, without a word of the talk."""
    assert each.reason.endswith(".")


@given(broken_threads())
def test_no_history_breaks_the_decider(messages: list[BaseMessage]) -> None:
    """Whatever a crash left behind, there is an answer and it is the same every time."""
    batches = group_batches(messages)
    for batch in batches:
        assert judge(batch, batches) == judge(batch, reversed(batches))


@given(st.text(), st.text())
def test_no_words_break_the_decider(user: str, reply: str) -> None:
    """Any language, any signs: a follow-up is planned or not, but nothing fails."""
    batch = batch_of(HumanMessage(user or "x"), AIMessage(reply or "x"))
    assert judge(batch).reason


@pytest.mark.parametrize(
    "sample", ["? ", "``", "'", '"', "```\n", "do that ", "have a ", "*_", "- a?\n"]
)
def test_a_hostile_reply_costs_no_time(sample: str) -> None:
    """A reply of a million signs is read within the time of a request."""
    assert judge(talk("Hi.", sample * (1_000_000 // len(sample)) + "end.")).reason


def test_the_rules_fit_dialogues_they_were_not_made_from() -> None:
    """On real dialogues held out from tuning, most decisions are those of the annotators."""
    file = find_data()
    if file is None:
        pytest.skip("The dialogues are not here; name their folder in SEGUE_DATA.")
    cuts = load_cuts(file)
    held_out = [cut for cut in cuts if cut.is_held_out]
    found = predictions(held_out, by_rules)
    assert accuracy(decisions(found)) > 0.85
    assert read_as_success(found) <= 1
    as_tokens = predictions(map(tokenised, cuts), by_rules)
    assert accuracy(as_tokens) >= accuracy(predictions(cuts, by_rules)) - 0.01
