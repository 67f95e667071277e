"""Whether an agent promises in its reply not to write on its own any more.

A promise counts like the user's own request, so it also helps where `stops` missed that request.
It is a whole clause of the agent's, about itself and the user: "I won't write the essay for you",
"I won't contact them" and "Shall I stop writing to you?" are not promises.
"""

import re
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from typing import Final

from segue.core.sentences import is_question, sentences_of
from segue.core.speech.languages.acknowledgements import ACKNOWLEDGEMENTS, Acknowledgement
from segue.core.speech.languages.grammar import folded

# A promise stands at the beginning or the end of a reply.
_EDGE: Final = 4
_MOST_CLAUSES: Final = 8
_REPEATS: Final = 4
_LONGEST: Final = 200  # characters
_CLAUSE_END: Final = re.compile(r"[\s)\]]*[,;.!…\u2014\u2013]+[\s(\[]*|\s+-+\s+")
# A condition of the promise, which does not weaken it.
_UNLESS: Final = re.compile(
    r"[\s,]+(?:unless|until you|except|es sei denn|bis (?:du|sie)|ausser|sauf|a moins|jusqu'a ce que"
    r"|salvo|a menos|hasta que|a meno|finche|a nao ser|ate que|tenzij|totdat)\b.*"
)
_IF: Final = re.compile(r"(?:if|when|wenn|falls|si|se|quando|als|indien)\b")


def promises_silence(text: str) -> bool:
    """Whether a reply says that the agent will not write on its own any more."""
    sentences = [folded(sentence) for sentence in sentences_of(text)]
    edges = sentences if len(sentences) <= 2 * _EDGE else sentences[:_EDGE] + sentences[-_EDGE:]
    return any(_is_promise(sentence) for sentence in edges)


def _is_promise(sentence: str) -> bool:
    if is_question(sentence) or _IF.match(sentence):
        return False
    own = sentence.partition(":")[0]  # "You can tell him: I won't write to you any more"
    parts = {part for text in (own, _UNLESS.sub("", own)) for part in _parts(text)}
    return any(
        _pattern(each).fullmatch(clause)
        for each in ACKNOWLEDGEMENTS
        for part in parts
        for clause in _linked(part, each)
    )


def _parts(sentence: str) -> Iterator[str]:
    """All runs of clauses: "I'll stop, as you asked, writing to you"."""
    clauses = [*filter(None, _CLAUSE_END.split(sentence))][:_MOST_CLAUSES]
    for start, end in combinations(range(len(clauses) + 1), 2):
        yield " ".join(clauses[start:end])[:_LONGEST]


def _linked(part: str, language: Acknowledgement) -> Iterator[str]:
    """The part, and what follows each of its conjunctions, with the subject that it shares."""
    yield part
    for link in re.finditer(rf"\s(?:{language.link})\s", part):
        rest = part[link.end() :]
        yield rest
        if language.subject and re.search(rf"\b{language.subject}\b", part[: link.start()]):
            yield f"{language.subject} {rest}"


@cache
def _pattern(language: Acknowledgement) -> re.Pattern[str]:
    promises = "|".join(line.strip() for line in language.promises.strip().splitlines())
    leads = rf"(?:(?:{language.leads})\s){{0,{_REPEATS}}}"
    endings = rf"(?:\s(?:{language.endings})){{0,{_REPEATS}}}"
    return re.compile(f"{leads}(?:{promises}){endings}".replace(")*", f"){{0,{_REPEATS}}}"))
