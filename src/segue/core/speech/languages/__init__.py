"""Grammars of requests about follow-ups, one module per language."""

from typing import Final

from segue.core.speech.languages.dutch import DUTCH
from segue.core.speech.languages.english import ENGLISH
from segue.core.speech.languages.french import FRENCH
from segue.core.speech.languages.german import GERMAN
from segue.core.speech.languages.grammar import Grammar
from segue.core.speech.languages.italian import ITALIAN
from segue.core.speech.languages.portuguese import PORTUGUESE
from segue.core.speech.languages.spanish import SPANISH

GRAMMARS: Final[tuple[Grammar, ...]] = (
    ENGLISH,
    GERMAN,
    FRENCH,
    SPANISH,
    ITALIAN,
    PORTUGUESE,
    DUTCH,
)
