"""Whether a message requests a reminder, or only contains the words of a request.

A request is the user's own, and the agent is to remind. It is none if its clause negates, reports,
or only mentions it, puts a condition on it, or says it of somebody else, or if the user withdraws
it later. What the reminder is about may contain all of that: "remind me not to say no".
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from segue.core.speech.phrases import alternatives, folded, whole_clause, whole_words
from segue.core.speech.sentences import sentences_of

_QUOTED: Final = re.compile(
    r"(?<!\w)'[^'\n]+'(?!\w)|[\u2018\u201a][^\u2018\u201a\n]+?[\u2018\u2019](?!\w)"
    r"|\u00bb[^\u00ab\u00bb\n]+\u00ab|\u2039[^\u2039\u203a\n]+\u203a"
)
_BREAK: Final = re.compile(r"[\s)\]]*[,;:.!?…\u2014\u2013()]+\s*|\s+-+\s+")
# A verb of saying may be followed by its object: "He told my wife, remind me …".
_OBJECT: Final = r"(?:\s\w+){0,2}\s*$"


class RequestGrammar:
    """The requests of one language, and what makes them none."""

    def __init__(self, language: Mapping[str, Any]) -> None:
        table = language["reminder_requests"]
        self.request = whole_words(table["requests"])
        self._separator = whole_words(table["separators"])
        self._negated = _before(table["negations"], table["glue"], most=7)
        self._governed = _before(table["governors"], table["adverbs"])
        self._framed = _before(table["frames"], table["adverbs"])
        self._question = re.compile(rf"\W*(?:\w+ )?(?:{alternatives(table['questions'])})(?![\w'])")
        self._says = whole_words(table["says"])
        self._has_said = re.compile(rf"(?<![\w'])(?:{alternatives(table['says'])}){_OBJECT}")
        self._text = whole_words(table["texts"])
        self._works_on = re.compile(
            rf"\W*(?:\w+ ){{0,2}}(?:{alternatives(table['texts'])})(?![\w']).*:"
        )
        self._means = re.compile(rf"(?<![\w'])(?:{alternatives(table['meanings'])})\W*\?")
        self._condition = whole_words(table["conditions"])
        self._polite = whole_words(table["polite"])
        self._hypothesis = whole_words(table["hypotheses"])
        self._content = whole_words(table["contents"])
        self._negates_after = whole_words(table["negates_after"])
        last, endings = (
            alternatives(table["negates_last"]),
            alternatives(table["endings"]),
        )
        self._negates_last = re.compile(rf"\s(?:{last})(?:\s(?:{endings}))*$")
        self._withdrawal = whole_clause({**table, "leads": table["second_thoughts"]}, "withdrawals")

    def requests_of(self, message: list[str]) -> list[str]:
        """The sentences of a message with a request that was not withdrawn."""
        asked: list[str] = []
        is_own = True
        for sentence in message:
            found = self.request.finditer(sentence)
            if is_own and any(self._is_request(sentence, each) for each in found):
                asked.append(sentence)
            elif self._withdraws(sentence):
                asked.clear()
            # What follows is not the user's own text: "Translate this:".
            is_own = is_own and not (sentence.endswith(":") and self._text.search(sentence))
        return asked

    def is_about_words(self, message: list[str]) -> bool:
        """Whether a message asks to translate, explain or correct some words."""
        return any(
            self._works_on.match(each) or (self._question.match(each) and self._says.search(each))
            for each in message
        )

    def _is_request(self, sentence: str, found: re.Match[str]) -> bool:
        before, after = sentence[: found.start()], sentence[found.end() :]
        *earlier, clause = self._clauses(before)
        is_statement = self._governed.search(clause) and not self._framed.search(clause)
        return not (
            is_statement
            or self._negated.search(clause)
            or self._question.match(clause)
            or self._is_reported(before, clause, earlier)
            or self._is_conditional(sentence, (*earlier[-1:], clause, self._time_of(after)))
            or self._is_negated_after(found[0], after)
            or self._means.search(after)
            or any(map(self._withdraws, _BREAK.split(after, maxsplit=1)[1:]))
        )

    def _is_reported(self, before: str, clause: str, earlier: list[str]) -> bool:
        is_text = ":" in before and self._text.search(before)
        is_said = bool(earlier) and self._has_said.search(earlier[-1])
        return bool(is_text or is_said or self._says.search(clause))

    def _is_conditional(self, sentence: str, parts: tuple[str, ...]) -> bool:
        return self._hypothesis.search(sentence) is not None or any(
            self._condition.search(part) and not self._polite.search(part) for part in parts
        )

    def _is_negated_after(self, request: str, after: str) -> bool:
        """As in German, where "nicht" may stand far behind the verb, or within the request."""
        clause = _BREAK.split(after)[0]
        return any(map(self._negates_after.search, (request, self._time_of(clause)))) or (
            self._negates_last.search(clause) is not None
        )

    def _time_of(self, after: str) -> str:
        """What follows a request, up to what it is about."""
        found = self._content.search(after)
        return after[: found.start()] if found else after

    def _clauses(self, text: str) -> list[str]:
        return _BREAK.split(self._separator.sub(",", text))

    def _withdraws(self, text: str) -> bool:
        clauses = [*filter(None, _BREAK.split(text))]
        return any(map(self._withdrawal.fullmatch, (*clauses, " ".join(clauses))))


def own_sentences(message: str) -> Iterator[str]:
    """The sentences of a user's message, folded and without what is quoted."""
    return map(folded, sentences_of(_QUOTED.sub("quoted", message)))


def _before(phrases: str, fillers: str, most: int = 3) -> re.Pattern[str]:
    """One of the phrases at the end of a text, with a few other words behind it."""
    return re.compile(
        rf"(?<![\w'])(?:{alternatives(phrases)})(?:\s(?:{alternatives(fillers)})){{0,{most}}}\s*$"
    )
