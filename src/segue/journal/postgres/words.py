"""Full text on PostgreSQL: the words of a text, and how well they match a query.

Words are taken in Python, the way FTS5 takes them on SQLite: PostgreSQL's own parser reads `-5` as
one word and `a.b` as a host, follows the database's locale, and keeps accents. The score is FTS5's
as well, BM25, because `ts_rank` makes "the" count as much as a name.
"""

import re
import unicodedata
from typing import LiteralString

# A tsvector holds 1 MB and a word in it 2 kB; a longer text is still stored, only not all indexed.
_INDEXED_CHARACTERS = 100_000
_WORD_LENGTH = 500
_ASKED_WORDS = 500


def words_of(text: str) -> list[str]:
    """The words in order, without case and accents."""
    bare = text[:_INDEXED_CHARACTERS]
    if bare.isascii():  # most are, and have no accents
        bare = bare.lower()
    else:
        plain = unicodedata.normalize("NFKD", bare).casefold()
        bare = "".join(letter for letter in plain if not unicodedata.combining(letter))
    found: list[str] = re.findall(r"[^\W_]+", bare[:_INDEXED_CHARACTERS])
    return [word[:_WORD_LENGTH] for word in found]


def asked_words(text: str) -> list[str]:
    """What to look for; any text will do. A word that is asked twice counts twice."""
    return words_of(text)[:_ASKED_WORDS]


def to_vector(words: list[str]) -> str:
    """The words as a tsvector; they consist of letters and digits, so nothing needs quoting."""
    return " ".join(f"{word}:{place}" for place, word in enumerate(words, 1))


def to_query(words: list[str]) -> str:
    """A tsquery that any of the words fulfils."""
    return " | ".join(words)


def ranked(hits: LiteralString, scope: LiteralString) -> LiteralString:
    """SQL for the ids and scores of the best `hits`.

    `hits` selects (id, words, word_count), `scope` the size of what they were chosen from as one
    row (total, average). Parameters: `words` and `limit`.
    """
    return f"""
    WITH hits AS ({hits}), scope AS ({scope}),
    terms AS (
        SELECT hits.id, hits.word_count, term.lexeme, cardinality(term.positions) AS times
        FROM hits, unnest(hits.words) AS term WHERE term.lexeme = ANY(%(words)s)),
    rarity AS (
        SELECT lexeme, greatest(1e-6, ln(
            (greatest(max(total), count(*)) - count(*) + 0.5)::float8 / (count(*) + 0.5))) AS weight
        FROM terms, scope GROUP BY lexeme)
    SELECT id, sum(weight * times * 2.2
        / (times + 1.2 * (0.25 + 0.75::float8 * word_count / average::float8))) AS score
    FROM unnest(%(words)s::text[]) AS lexeme JOIN rarity USING (lexeme) JOIN terms USING (lexeme)
    CROSS JOIN scope
    GROUP BY id ORDER BY score DESC, id DESC LIMIT %(limit)s
    """  # noqa: S608 - our own words
