"""Whether a text is English, by its most common words.

The rules about replies know English only. In doubt a text is not English: then they say less.
"""

import re
from typing import Final

_WORD: Final = re.compile(r"[^\W\d_]+(?:'[a-z]+)?")
_READ: Final = 200  # words
_SHARE: Final = 0.15
_COMMON: Final = frozenset(
    """
    the a an and or but if so because of to in on at for with from by about as into over after
    before than then i you he she it we they me him her us them my your his its our their this that
    these those is are was were be been am do does did have has had will would can could shall
    should may might must not no yes what which who when where why how all any some more most other
    only just also very too here there now today tomorrow yesterday please thanks thank hello hi
    good great ok okay sure sorry let's it's i'm you're don't i'll i've that's there's can't
    didn't isn't what's we're you'll
    """.split()
)

# Common words of other languages that no English text has.
_FOREIGN: Final = (
    frozenset(
        """
    de der das und ist nicht ich du ein eine mit auf den dem von zu auch wie was bin sind haben het een
    en van je niet zijn met voor dat deze hoe wel ook naar le la les un une et est pas tu vous nous
    que qui dans pour sur des du au avec el los las y es por con una del se lo su mi il gli non che
    per di sono una della os as um uma nao com para seu sua em do da och att det som inte jag har
    på er og ikke til jeg nie jest się na w z to że и в не на я что это
    """.split()
    )
    - _COMMON
)


def is_english(text: str) -> bool:
    words = [*map(str.casefold, _WORD.findall(text.replace("\u2019", "'")))][:_READ]
    if not words:
        return True
    known = sum(word in _COMMON for word in words)
    if len(words) < 3:  # "Oslo.", "Done!": nothing to go by but the script
        return all(word.isascii() for word in words)
    foreign = sum(word in _FOREIGN for word in words)
    return known >= max(1, _SHARE * len(words)) and known > foreign
