"""Whether a user wants no reminders any more, all that recur or those of one thing."""

import pytest

from segue.core.speech.stops import UserRequest, Wish, read_request

ALL = [
    "Stop reminding me.",
    "please stop reminding me about this",
    "Don't remind me any more!",
    "I don't want to be reminded of it any more",
    "Erinnere mich bitte nicht mehr.",
    "Erinner mich nie wieder daran",
    "Ne me le rappelle plus !",
    "No me lo recuerdes más.",
    "Ya no me lo recuerdes",
    "Non ricordarmelo più.",
    "Não me lembre mais disso.",
    "Herinner me er niet meer aan.",
    "No more reminders, please.",
    "Stop the reminders.",
    "Ich brauche keine Erinnerungen mehr von dir",
    "Keine Erinnerungen mehr, bitte.",
    "Pourrais-tu ne plus m'envoyer de rappels ?",
    "No necesito recordatorios",
    "Basta de recordatorios, por favor.",
    "Non mandarmi più promemoria.",
    "Chega de lembretes, por favor.",
    "Geen herinneringen meer, alsjeblieft.",
]
ONE = {
    "Stop reminding me to water the plants, please": "water the plants",
    "Could you stop reminding me about the plants?": "the plants",
    "don't remind me to stretch": "stretch",
    "Erinnere mich nicht mehr an die Blumen": "die blumen",
    "Arrête de me rappeler de boire": "boire",
    "Deja de recordarme que beba agua": "beba agua",
    "Smetti di ricordarmi di bere": "bere",
    "Pare de me lembrar de beber água": "beber agua",
    "Stop met me te herinneren aan de planten": "de planten",
}
OTHERS = [
    "Don't stop reminding me.",
    "Don't remind me!",  # of something awful
    "Oh, don't remind me, it was terrible.",
    "I told him to stop reminding me.",
    "My phone won't stop reminding me.",
    "Remind me to call mum.",
    "Cancel my reminder",
    "Bitte erinnere mich an die Blumen.",
    "Rappelle-moi de boire.",
    "No olvides recordármelo.",
]


@pytest.mark.parametrize("message", ALL)
def test_a_user_wants_no_reminders(message: str) -> None:
    """If none recur, it is a stop of what the agent writes on its own."""
    assert read_request(message) == UserRequest(Wish.STOP_REMINDERS, may_be_stop=True)


@pytest.mark.parametrize("message", ONE)
def test_a_user_wants_no_reminders_of_one_thing(message: str) -> None:
    """It is named as the user named it."""
    request = read_request(message)
    assert request is not None
    assert (request.wish, request.about) == (Wish.STOP_REMINDERS, ONE[message])


@pytest.mark.parametrize("message", OTHERS)
def test_what_sounds_alike_ends_no_reminder(message: str) -> None:
    """Idioms, other people, and requests for a reminder."""
    assert read_request(message) is None


def test_a_stop_beats_the_end_of_reminders() -> None:
    """In another clause or sentence."""
    for message in (
        "Leave me alone, stop reminding me.",
        "Stop reminding me. And stop writing to me!",
    ):
        assert read_request(message) == UserRequest(Wish.STOP)


@pytest.mark.parametrize("message", ["Question q4: later.", "Status: later", "Frage 2: später"])
def test_a_word_after_a_colon_is_a_value(message: str) -> None:
    """Nobody asked to be written to later."""
    assert read_request(message) is None
    assert read_request("Sorry, later.") is not None
