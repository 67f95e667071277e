"""The phrases of each language: `languages/*.toml`, one file per language, for translators.

The only module of the core that reads files, and only its own package's, at first use.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final
from unicodedata import category, combining, normalize

LANGUAGES: Final = ("english", "german", "french", "spanish", "italian", "portuguese", "dutch")

_NAME: Final = re.compile(r"<(\w+)>")
_GROUP: Final = re.compile(r"\((?!\?)")
_WORD: Final = re.compile(r"[a-z']{2,}")
# Words of one kind in a row. Without a bound, hostile text takes exponential time.
_REPEATS: Final = 5
_EDGE: Final = 4  # sentences
_INVERTED: Final = str.maketrans("¿¡", "  ")
_SYMBOLS: Final = {code: " " for code in range(128) if category(chr(code)).startswith("S")}


@cache
def read_phrases(name: str) -> dict[str, Any]:
    """The tables of a file, such as `languages/german`."""
    return tomllib.loads(files(__package__).joinpath(f"{name}.toml").read_text("utf-8"))


def languages() -> Iterator[dict[str, Any]]:
    """The tables of each language; English comes first."""
    return (read_phrases(f"languages/{name}") for name in LANGUAGES)


def alternatives(lines: str, words: Mapping[str, str] | None = None) -> str:
    """One pattern for all lines; a name in angle brackets stands for one of these words."""
    pattern = "|".join(filter(None, map(str.strip, lines.splitlines())))
    pattern = _NAME.sub(lambda name: f"(?:{alternatives((words or {})[name[1]], words)})", pattern)
    return _GROUP.sub("(?:", pattern).replace(")*", f"){{0,{_REPEATS}}}")


def whole_words(lines: str, words: Mapping[str, str] | None = None) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w'])(?:{alternatives(lines, words)})(?![\w'])")


def whole_clause(table: Mapping[str, Any], phrases: str) -> re.Pattern[str]:
    """A clause of the leading words of a table, one of its phrases, and what may follow it."""
    leads, core, endings = (
        alternatives(table[name], table.get("words")) for name in ("leads", phrases, "endings")
    )
    return re.compile(
        rf"(?:(?:{leads})\s){{0,{_REPEATS}}}(?:{core})"
        rf"(?:\s(?:{endings})(?![\w'])){{0,{_REPEATS}}}+"
    )


def open_clause(table: Mapping[str, Any], phrases: str) -> re.Pattern[str]:
    """A clause of leading words and one of the phrases; its group is all that follows."""
    leads, core = (alternatives(table[name], table.get("words")) for name in ("leads", phrases))
    return re.compile(rf"(?:(?:{leads})\s){{0,{_REPEATS}}}(?:{core})\s(.+)")


def words_in(*patterns: re.Pattern[str]) -> frozenset[str]:
    """The words of patterns, to tell cheaply whether they `may_match`."""
    return frozenset(word for each in patterns for word in _WORD.findall(each.pattern))


def may_match(words: frozenset[str], sentence: str) -> bool:
    """Whether a fifth of the sentence's words, at least, are among those of some patterns.

    A request or promise consists mostly of such words. Trying the patterns of all languages on
    each sentence would take milliseconds.
    """
    said = set(_WORD.findall(sentence))
    return 5 * len(said & words) >= len(said)


def at_edges(sentences: list[str]) -> list[str]:
    """Where requests and promises stand: at the beginning or the end; the middle may be pasted."""
    return sentences if len(sentences) <= 2 * _EDGE else sentences[:_EDGE] + sentences[-_EDGE:]


def folded(sentence: str) -> str:
    """The sentence without accents, symbols, inverted marks and double blanks."""
    if sentence.isascii():
        return " ".join(sentence.translate(_SYMBOLS).split())
    plain = "".join(sign for sign in normalize("NFKD", sentence) if not combining(sign))
    plain = "".join(" " if category(sign).startswith("S") else sign for sign in plain)
    return " ".join(plain.translate(_INVERTED).split())
