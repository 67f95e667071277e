"""The words by which memories are found, and their stems."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.core.porter import stem
from segue.core.words import asked_words, indexed_words


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        # The examples in Porter's own paper, step by step.
        ("caresses", "caress"), ("ponies", "poni"), ("ties", "ti"), ("caress", "caress"),
        ("cats", "cat"), ("feed", "feed"), ("agreed", "agre"), ("plastered", "plaster"),
        ("bled", "bled"), ("motoring", "motor"), ("sing", "sing"), ("conflated", "conflat"),
        ("troubled", "troubl"), ("sized", "size"), ("hopping", "hop"), ("tanned", "tan"),
        ("falling", "fall"), ("hissing", "hiss"), ("fizzed", "fizz"), ("failing", "fail"),
        ("filing", "file"), ("happy", "happi"), ("sky", "sky"), ("relational", "relat"),
        ("conditional", "condit"), ("rational", "ration"), ("valenci", "valenc"),
        ("digitizer", "digit"), ("radicalli", "radic"), ("vietnamization", "vietnam"),
        ("operator", "oper"), ("feudalism", "feudal"), ("decisiveness", "decis"),
        ("hopefulness", "hope"), ("sensibiliti", "sensibl"), ("triplicate", "triplic"),
        ("formative", "form"), ("formalize", "formal"), ("electrical", "electr"),
        ("goodness", "good"), ("revival", "reviv"), ("allowance", "allow"), ("airliner", "airlin"),
        ("adjustable", "adjust"), ("irritant", "irrit"), ("replacement", "replac"),
        ("adjustment", "adjust"), ("dependent", "depend"), ("adoption", "adopt"),
        ("communism", "commun"), ("effective", "effect"), ("bowdlerize", "bowdler"),
        ("probate", "probat"), ("rate", "rate"), ("cease", "ceas"), ("controll", "control"),
        ("roll", "roll"),
    ],
)  # fmt: skip
def test_stems_are_porters(word: str, expected: str) -> None:
    """Stored stems must match those of later versions, so the algorithm is the frozen one."""
    assert stem(word) == expected


@pytest.mark.parametrize("word", ["", "a", "is", "2027", "b2b", "größe", "чай", "茶"])
def test_only_english_letters_are_cut(word: str) -> None:
    """Short words, numbers and other alphabets stay as they are."""
    assert stem(word) == word


def test_forms_of_a_word_are_one_word() -> None:
    """Case, accents and endings do not count."""
    assert indexed_words("Walking WALKED walks") == ["walk", "walk", "walk"]
    assert indexed_words("Crêpe CREPES") == ["crepe", "crepe"]


def test_filler_words_are_left_out() -> None:
    """They are in every text, so they say nothing about any."""
    assert asked_words("What is the name of my dog? I'm sure you don't know.") == [
        "name",
        "dog",
        "sure",
        "know",
    ]
    assert asked_words("Who am I?") == []


def test_scripts_without_spaces_are_cut_into_pairs() -> None:
    """A word is found inside of a sentence, and so is a single sign."""
    sentence = indexed_words("我喜欢喝茶, tea")
    assert set(asked_words("喝茶")) <= set(sentence)
    assert set(asked_words("茶")) <= set(sentence)
    assert asked_words("茶叶") == ["茶叶"]
    assert not set(asked_words("茶叶")) & set(sentence)
    assert "tea" in sentence


def test_signs_are_no_words() -> None:
    """Emoji, marks and half a character ask for nothing."""
    assert asked_words("🙂 ❤️ ½% _ \x00 \ud83d \ufeff -- ...") == ["1", "2"]


def test_a_long_text_has_a_bounded_number_of_words() -> None:
    """A page pasted into a query costs no more than a paragraph."""
    assert len(asked_words("tea " * 100_000)) == 1_000
    assert [len(word) for word in asked_words("x" * 50_000)] == [64]


@given(st.text(max_size=200))
def test_any_text_has_words_that_find_it(text: str) -> None:
    """A memory is found in its own words, and these hold nothing that needs quoting."""
    words = indexed_words(text)
    assert set(asked_words(text)) <= set(words)
    assert not any(sign.isspace() or sign in "'\":\\&|!()<>*" for word in words for sign in word)
