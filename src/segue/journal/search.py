"""Full-text search of messages, the same on both databases.

Words are extracted in Python, because the databases' parsers differ: PostgreSQL's reads `-5` as one
word and `a.b` as a host, follows the database's locale, and keeps accents. In the index each word
has its owner's mark as prefix, so a search reads only the user's own entries, and neither its time
nor its order depends on other users.
"""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from segue.journal.records import EXCERPT, Found
from segue.journal.threads import thread_of
from segue.journal.tx import Part, Tx, reads

# Characters of an excerpt, and how many of them come before the first match.
EXCERPT_SIZES: Final = {"longest": EXCERPT, "lead": EXCERPT // 5}
# Words of a query that are used to place an excerpt: each one is another pass over the text.
_EXCERPT_WORDS: Final = 8
# A tsvector holds 1 MB and a word in it 2 kB; a longer text is stored but not fully indexed.
_INDEXED_CHARACTERS: Final = 100_000
_WORD_LENGTH: Final = 500
_QUERY_WORDS: Final = 32
# Further repetitions hardly change the score, but cost every search that finds the word.
_REPEATS: Final = 8
_MARK_LENGTH: Final = 8


class Search(Part):
    @reads
    async def find(
        self, tx: Tx, user_id: str, text: str, *, thread_id: str | None = None, limit: int = 20
    ) -> list[Found]:
        """Visible messages of a user that match words, best first. Any text is a valid query.

        Nested threads are searched only by their `thread_id`.
        """
        if thread_id is not None:
            await thread_of(tx, thread_id)
        return [*map(_to_found, await tx.search(user_id, text, thread_id, limit))]


def excerpt_words(query: str) -> list[str]:
    """The words of a query; the first match of any of them in a text starts its excerpt."""
    return re.findall(r"\w+", query.lower())[:_EXCERPT_WORDS]


def words_of(text: str) -> list[str]:
    """The words in order, without case and accents: letters and digits only, each at most
    `_REPEATS` times.
    """
    bare = text[:_INDEXED_CHARACTERS]
    if bare.isascii():  # most texts are, and have no accents
        bare = bare.lower()
    else:
        # Cut again, since one letter may become eighteen.
        plain = unicodedata.normalize("NFKD", bare)[: 2 * _INDEXED_CHARACTERS].casefold()
        bare = "".join(letter for letter in plain if not unicodedata.combining(letter))
    found: list[str] = re.findall(r"[^\W_]+", bare[:_INDEXED_CHARACTERS])
    if found and max(Counter(found).values()) > _REPEATS:
        found = [*_with_few_repeats(found)]
    return [word[:_WORD_LENGTH] for word in found]


def _with_few_repeats(words: Iterable[str]) -> Iterator[str]:
    counted: Counter[str] = Counter()
    for word in words:
        counted[word] += 1
        if counted[word] <= _REPEATS:
            yield word


@lru_cache(maxsize=2)  # SQLite asks several times for each message that it stores
def joined_words(text: str) -> str:
    return " ".join(words_of(text))


def query_words(text: str) -> list[str]:
    """The words to search for; a repeated word counts twice."""
    return words_of(text)[:_QUERY_WORDS]


@lru_cache(maxsize=1_000)
def owner_mark(user_id: str) -> str:
    """The prefix of a user's words. Two users with the same mark only cost time."""
    return hashlib.sha256(user_id.encode()).hexdigest()[:_MARK_LENGTH]


def _to_found(row: Any) -> Found:
    start, text = row["start"], row["excerpt"]
    head = "…" if start > 1 else ""
    tail = "…" if start - 1 + len(text) < row["length"] else ""
    names = ("thread_id", "message_id", "position", "role", "batch_type", "score")
    return Found(**{name: row[name] for name in names}, text=f"{head}{text}{tail}")
