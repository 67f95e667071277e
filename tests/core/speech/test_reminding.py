"""Whether a message names what it should remind of."""

import pytest

from segue.core.speech.reminding import names_reminder

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
