"""Promises to remind: true ones with their times, and sentences that sound alike; and messages that
name what they should remind of, or do not.
"""

import re
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.core.autonomy.schedule import parse_schedule
from segue.core.speech.reminders import (
    Promise,
    find_agreement,
    find_promise,
    may_promise,
    names_reminder,
)

TABLE = tomllib.loads(Path(__file__).with_name("promises.toml").read_text())
REQUESTS = tomllib.loads(Path(__file__).with_name("reminder_requests.toml").read_text())
NOW = datetime(2026, 11, 17, 12, 26, tzinfo=UTC)  # 13:26 in Berlin, a Tuesday
BERLIN = ZoneInfo("Europe/Berlin")


def read(reply: str, request: str) -> str | None:
    """When the promise is due; empty if that is left open, None if there is no promise."""
    return read_with(find_promise, reply, request)


def read_with(find: Callable[[str, str], Promise | None], reply: str, request: str) -> str | None:
    if (promise := find(reply, request)) is None:
        return None
    arguments = promise.time.arguments(NOW, BERLIN) if promise.time else None
    return " ".join(f"{name} {value}" for name, value in (arguments or {}).items())


@pytest.mark.parametrize("language", TABLE)
def test_promises_are_found_with_their_times(language: str) -> None:
    """In seven languages; a time in doubt is left open rather than guessed."""
    promises = TABLE[language]["promises"]
    assert len(promises) >= (20 if language == "english" else 8)
    found = {reply: read(reply, request) for reply, request, _ in promises}
    assert all(map(may_promise, found))
    assert found == {reply: when for reply, _, when in promises}


@pytest.mark.parametrize("language", TABLE)
def test_what_only_sounds_like_a_promise_is_none(language: str) -> None:
    """Offers, questions, refusals, reports, and reminders of facts."""
    others = TABLE[language]["others"]
    assert len(others) >= (20 if language == "english" else 8)
    assert {reply: read(reply, request) for reply, request in others} == {
        reply: None for reply, _ in others
    }


@pytest.mark.parametrize(
    ("request_", "reply"),
    [
        ("How do you say 'remind me tomorrow at 9' in French?", "Je te rappellerai demain à 9h."),
        ("Translate: I will remind you tomorrow at 9", "Ich erinnere dich morgen um 9."),
        ("Was heißt „I will remind you at 9:00“?", "Ich erinnere dich um 9:00."),
    ],
)
def test_a_translation_promises_nothing(request_: str, reply: str) -> None:
    """The words of the reply are those that the user asked for."""
    assert find_promise(reply, request_) is None
    assert find_promise(reply, f"Please remind me tomorrow at 9. {request_}") is not None


SURE = "I'll make sure to do that."
AGREED = [
    ("remind me tomorrow at 9 to call mum", SURE, "at 2026-11-18T09:00"),
    ("Can you wake me at 7am tomorrow?", "Of course! Sleep well.", "at 2026-11-18T07:00"),
    ("pls remind me in 20 minutes to check the oven", "Sure thing!", "after 20m"),
    ("Don't let me forget the dentist tomorrow at 8:30", "Count on me.", "at 2026-11-18T08:30"),
    ("set an alarm for tomorrow at 6:30", "Done.", ""),
    ("remind me every monday at 9 to water plants", "Will do!", ""),
    ("Erinnere mich morgen um 9 Uhr an Mama", "Klar, mache ich!", "at 2026-11-18T09:00"),
    ("Kannst du mich morgen um 8:30 an den Arzt erinnern?", SURE, "at 2026-11-18T08:30"),
    ("Rappelle-moi demain à 9h d'appeler maman", "D'accord.", "at 2026-11-18T09:00"),
    ("Tu peux me rappeler dans 20 minutes le gâteau ?", "Bien sûr !", "after 20m"),
    ("Recuérdame mañana a las 9 llamar a mamá", "Claro, lo haré.", "at 2026-11-18T09:00"),
    ("Ricordami domani alle 9 di chiamare mamma", "Ci penso io.", "at 2026-11-18T09:00"),
    ("Me lembra amanhã às 9 de ligar para a mãe", "Pode deixar!", "at 2026-11-18T09:00"),
    ("Herinner me morgen om 9 uur aan mama", "Doe ik!", "at 2026-11-18T09:00"),
]
TAKEN = [
    ("remind me tomorrow at 9 to call mum", "Calling your mum is a lovely idea."),
    ("Hi! Could you please remind me tomorrow at 9?", "Mums love that."),
    ("Erinnere mich morgen um 9 Uhr an Mama", "Mama freut sich bestimmt."),
    ("Rappelle-moi demain à 9h d'appeler maman", "Elle sera ravie de t'entendre."),
    ("Recuérdame mañana a las 9 llamar a mamá", "Le va a encantar."),
    ("Ricordami domani alle 9 di chiamare mamma", "Sarà felice di sentirti."),
    ("Me lembra amanhã às 9 de ligar para a mãe", "Ela vai adorar."),
    ("Herinner me morgen om 9 uur aan mama", "Dat vindt ze vast leuk."),
]
# The time is the user's, and the question is about something else.
ASKED_ON = [
    ("remind me tomorrow at 9 to call mum", "Got it, what else?"),
    ("remind me tomorrow at 9 to call mum", "Sure, what else can I do for you?"),
    ("remind me tomorrow at 9 to call mum", "Calling mum is lovely. How are you today?"),
    ("I'd like you to remind me tomorrow at 9.", "Got it, what else?"),
    ("remind me tomorrow at 9 to call mum", "Noted, 4 so far: milk, bread, mum and tea."),
    ("Erinnere mich morgen um 9 an den Zahnarzt", "Alles notiert, so weit. Was noch?"),
    ("Erinnere mich morgen um 9 an den Zahnarzt", "Der Zahnarzt ist wichtig, was noch?"),
    ("Erinnere mich morgen um 9 an den Zahnarzt", "Klar, was kann ich noch tun?"),
    ("Rappelle-moi demain à 9h d'appeler maman", "C'est noté, ce sera tout ?"),
    ("Recuérdame mañana a las 9 llamar a mamá", "Vale, ¿algo más?"),
    ("Ricordami domani alle 9 di chiamare mamma", "Va bene, serve altro?"),
    ("Me lembra amanhã às 9 de ligar para a mãe", "Com certeza, mais alguma coisa?"),
    ("Herinner me morgen om 9 uur aan mama", "Zeker, kan ik nog iets doen?"),
]
NOT_TAKEN = [
    ("remind me tomorrow at 9 to call mum", "At 9 in the morning?"),
    ("remind me tomorrow at 9 to call mum", "Sure! At 9 in the morning?"),
    ("remind me tomorrow at 9 to call mum", "Tomorrow morning?"),
    ("remind me tomorrow at 9 to call mum", "At nine?"),
    ("remind me tomorrow at 9 to call mum", "Nine in the evening?"),
    ("remind me tomorrow at 9 to call mum", "Sure, but is that too early?"),
    ("remind me tomorrow at 9 to call mum", "Shall I set a reminder?"),
    ("remind me tomorrow at 9 to call mum", "Got it, are you sure?"),
    ("Erinnere mich morgen um 9 Uhr an Mama", "Gern, um wie viel Uhr genau?"),
    ("Rappelle-moi demain à 9h d'appeler maman", "D'accord. À quelle heure ?"),
    ("Recuérdame mañana a las 9 llamar a mamá", "Claro, ¿a qué hora?"),
    ("Ricordami domani alle 9 di chiamare mamma", "Certo! Domani mattina?"),
    ("Me lembra amanhã às 9 de ligar para a mãe", "Quer que eu te lembre?"),
    ("Herinner me morgen om 9 uur aan mama", "Bedoel je morgenochtend?"),
    ("I'd like you to remind me tomorrow at 9.", "I do not do reminders."),
    ("remind me tomorrow at 9 to call mum", "How about 10?"),
    ("remind me tomorrow at 9 to call mum", "Please confirm a reminder at 9:00 about your mum."),
    ("Erinnere mich morgen um 9 Uhr an Mama", "Bitte bestätigen Sie den Termin um 9 Uhr."),
    ("remind me tomorrow at 9 to call mum", "Mornings are busy, 10:00 suits her better."),
    ("remind me tomorrow to call mum", "Calling your mum is a lovely idea."),
    ("Erinnere mich morgen um 9 Uhr an Mama", "Ich setze keine Erinnerungen."),
    ("Rappelle-moi demain à 9h d'appeler maman", "Je ne fais pas ça."),
    ("Recuérdame mañana a las 9 llamar a mamá", "Yo no hago eso."),
    ("Ricordami domani alle 9 di chiamare mamma", "Non lo faccio."),
    ("Me lembra amanhã às 9 de ligar para a mãe", "Eu não faço isso."),
    ("Herinner me morgen om 9 uur aan mama", "Zoiets doe ik niet."),
]
NOT_AGREED = [
    ("My boss said, remind me tomorrow at 9", "Bosses forget a lot."),
    ("Translate this:\nRemind me tomorrow at 9", "Erinnere mich morgen um 9."),
    ("Translate: remind me tomorrow at 9", "Erinnere mich morgen um 9."),
    ("remind me tomorrow at 9 to call mum", "I'm sorry, I can't set reminders."),
    ("remind me tomorrow at 9 to call mum", "Sure, you can set an alarm on your phone."),
    ("remind me tomorrow to call mum", "Sure! At what time?"),
    ("remind me to call mum", "Sure!"),
    ("remind me what we planned for tomorrow at 9", "Sure, you wanted to meet Ann."),
    ("You remind me of a friend who gets up at 9:00", "Sure, tell me more."),
    ("don't remind me tomorrow at 9", "Okay."),
    ("How do I set a reminder for 9:00 on my watch?", "Sure, press the crown."),
    ("I have to call mum tomorrow at 9", "Sure, good luck!"),
    ("Ich erinnere mich, dass wir morgen um 9 Uhr los wollten", "Ja, genau."),
    ("Ik herinner me dat we morgen om 9 uur gaan", "Ja, klopt."),
    ("Erinnere mich morgen um 9 Uhr an Mama", "Das kann ich leider nicht."),
    ("Recuérdame mañana a las 9 llamar a mamá", "Lo siento, no puedo."),
]


@pytest.mark.parametrize(("request_", "reply", "when"), AGREED)
def test_a_reply_that_agrees_to_a_request_is_a_promise(
    request_: str, reply: str, when: str
) -> None:
    """In any of the languages, also if the reply is in another one."""
    assert read_with(find_agreement, reply, request_) == when


@pytest.mark.parametrize(("request_", "reply"), ASKED_ON)
def test_a_question_about_something_else_leaves_a_request_clear(request_: str, reply: str) -> None:
    """Many replies end with a question; only one about the reminder is a reason to wait."""
    found = find_agreement(reply, request_)
    assert found is not None
    assert found.is_made
    assert read_with(find_agreement, reply, request_) == "at 2026-11-18T09:00"


@pytest.mark.parametrize(("request_", "reply"), TAKEN)
def test_a_clear_request_counts_unless_the_reply_refuses(request_: str, reply: str) -> None:
    """A model without tools may talk of something else; the user asked all the same."""
    assert read_with(find_agreement, reply, request_) == "at 2026-11-18T09:00"


@pytest.mark.parametrize("language", REQUESTS)
def test_a_request_is_found_in_whatever_else_the_user_writes(language: str) -> None:
    """Polite, after a negation that is about something else, or about something not to do."""
    requests = REQUESTS[language]["requests"]
    assert len(requests) >= 15
    assert {each: read_with(find_agreement, "Sure!", each) for each in requests} == dict.fromkeys(
        requests, "at 2026-11-18T09:00"
    )


@pytest.mark.parametrize("language", REQUESTS)
def test_words_of_a_request_are_not_always_one(language: str) -> None:
    """Negated, reported, quoted, conditional, withdrawn, or about what somebody else does."""
    others = REQUESTS[language]["others"]
    assert len(others) >= 20
    assert [each for each in others if find_agreement("Sure!", each)] == []


@pytest.mark.parametrize(("request_", "reply"), [*NOT_TAKEN, *NOT_AGREED])
def test_not_every_kind_word_is_an_agreement(request_: str, reply: str) -> None:
    """Not a refusal, advice, a question about the time, or what was not asked."""
    found = find_agreement(reply, request_)
    assert found is None or not found.is_made


@pytest.mark.parametrize(("request_", "reply"), NOT_TAKEN)
def test_a_request_that_is_not_taken_on_is_noticed(request_: str, reply: str) -> None:
    """The user can be told that no reminder was set."""
    assert find_agreement(reply, request_) is not None


def test_the_text_is_what_the_user_asked_for() -> None:
    """Without a request, as after "yes please", it is the agent's own sentence."""
    asked = find_promise("OK, I'll remind you.", "Hello. Remind me at 18:00 to Call Mum! Thanks.")
    offered = find_promise("Great! I'll remind you at 18:00 to call mum.", "yes please")
    assert asked is not None
    assert asked.text == "Call Mum"
    assert offered is not None
    assert offered.text == "call mum"


def test_the_text_is_of_the_request_that_counts() -> None:
    """Not of one before it that the user negated or withdrew."""
    for before in ("Don't remind me of the oven.", "Remind me at 8 of the oven. No, forget it."):
        found = find_agreement("Sure!", f"{before} Remind me tomorrow at 9 to call Mum.")
        assert found is not None
        assert found.text == "call Mum"


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ("Can you remind me tomorrow at 9am to water the plants?", "water the plants"),
        ("Remind me to buy milk on Friday at 10:15", "buy milk"),
        ("Don't let me forget the milk in an hour!", "the milk"),
        ("Remind me in 20 minutes.", "Remind me in 20 minutes."),
        ("Erinnere mich in 20 Minuten daran, Mama anzurufen.", "Mama anzurufen"),
        ("Recuérdame en 20 minutos llamar a mamá", "llamar a mamá"),
        ("Herinner me over 20 minuten eraan om mama te bellen", "mama te bellen"),
    ],
)
def test_the_text_is_without_the_request_and_the_time(request_: str, text: str) -> None:
    """A list of reminders says what they are about; if that is not clear, the whole sentence."""
    found = [find_promise(reply, request_) for reply in ANSWERS]
    assert {each.text for each in found if each is not None} == {text}


ANSWERS = (
    "I'll remind you.",
    "Ich erinnere dich daran.",
    "Te lo recordaré.",
    "Ik herinner je eraan.",
)
PIECES = """
    I'll remind you|ich erinnere dich|te recordaré|remind me|erinnere mich|in 20 minutes
    in 0 minutes
    at 9|at 09:00|um 9|a las 9|99:99|9 heures|9 uur|tomorrow|morgen|mañana|Monday|pm|.|,|every|half
"""
WORDS = st.lists(st.sampled_from(re.split(r"[|\n]\s*", PIECES.strip())), max_size=20).map(" ".join)


@given(WORDS, WORDS)
def test_a_time_that_is_read_can_be_kept(reply: str, request: str) -> None:
    """Whatever was written, the arguments are accepted as a schedule in the future."""
    promise = find_promise(reply, request)
    arguments = promise.time.arguments(NOW, BERLIN) if promise and promise.time else None
    if arguments:
        schedule = parse_schedule(now=NOW, zone="Europe/Berlin", **arguments)
        assert schedule.first > NOW


# In each pair the message is about the reminder, in other words and forms.
NAMED = [
    ("call mum", "Time to call your mum!"),
    ("call mum", "Your mum is waiting for your call."),
    ("Remind me in two minutes to call mum.", "Don't forget to ring Mum."),
    ("water the plants", "Have you watered your plant?"),
    ("pay invoice 4711", "Number 4711 is due today."),
    ("take the medication", "Medications: now is the time."),
    ("pick up Zoë", "Zoe is waiting at school."),
    ("den Müll rausbringen", "Der Müll muss noch raus."),
    ("Zahnarzttermin", "Gleich hast du deinen Termin beim Zahnarzt."),
    ("Erinnere mich daran, die Blumen zu gießen", "Denk an die Blumen!"),
    ("prendre mes médicaments", "C'est l'heure du médicament."),
    ("appeler le dentiste", "N'oublie pas ton dentiste."),
    ("llamar a mi madre", "Tu madre espera tu llamada."),
    ("comprare il latte", "Ricordati il latte!"),
    ("comprar pão", "Hora de comprar o pão."),
    ("de was ophangen", "Vergeet niet de was op te hangen."),
    ("给妈妈打电话", "别忘了给妈妈打电话。"),
    ("позвонить маме", "Пора позвонить маме!"),
]
# In each pair the message could be about anything.
NOT_NAMED = [
    ("call mum", "How is it going?"),
    ("call mum", "Here is the reminder that you asked for!"),
    ("call mum", "Hi! I hope that your day is going well. What can I do for you today?"),
    ("Remind me in two minutes to call mum.", "I will remind you in two minutes."),
    ("Remind me in 20 minutes to call mum.", "The 20 minutes are over!"),
    ("Remind me on Monday at 9 to stand up.", "Good morning, it is Monday, 9 o'clock."),
    ("sign the contract", "Is everything fine at the control tower?"),
    ("Erinnere mich morgen an den Müll", "Guten Morgen! Wie geht es dir?"),
    ("Erinnere mich bitte daran, die Steuer zu machen", "Bitte denk daran!"),
    ("rappelle-moi dans une heure d'appeler le dentiste", "C'est l'heure du rappel !"),
    ("recuérdame mañana comprar leche", "Buenos días, ¿cómo estás mañana?"),
    ("ricordami domani di pagare l'affitto", "Ciao, come stai? Domani è domenica."),
    ("lembre-me amanhã de pagar a luz", "Olá, tudo bem com você?"),
    ("herinner me morgen aan de huur", "Goedemorgen, hoe gaat het?"),
    ("给妈妈打电话", "你好"),
    ("do it", "Do it now!"),
    ("", "Hello."),
    ("call mum", ""),
]


@pytest.mark.parametrize(("reminder", "message"), NAMED)
def test_a_message_that_names_the_reminder_is_left_alone(reminder: str, message: str) -> None:
    """Inflected, compound, without its accents, or by a name or a number."""
    assert names_reminder(message, reminder)


@pytest.mark.parametrize(("reminder", "message"), NOT_NAMED)
def test_common_words_and_times_do_not_name_a_reminder(reminder: str, message: str) -> None:
    """Nor does talk of reminding itself; in doubt the plain words are added."""
    assert not names_reminder(message, reminder)
