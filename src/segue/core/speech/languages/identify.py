"""Whether a text is English, by its most common words.

The rules about replies know English only. In doubt a text is not English: then they say less.
"""

import re
from typing import Final

_WORD: Final = re.compile(r"[^\W\d_]+")
_READ: Final = 200  # words
_SHARE: Final = 0.15
_FEW: Final = 5
_COMMON: Final = frozenset(
    """
    the a an and or but if so because of to in on at for with from by about as into over after
    before than then i you he she it we they me him her us them my your his its our their this that
    these those is are was were be been am do does did have has had will would can could shall
    should may might must not no yes what which who when where why how all any some more most other
    only just also very too here there now today tomorrow yesterday please thanks thank hello hi
    good great ok okay sure sorry let don didn isn can won doesn wasn aren t s m d ll re ve until
    anything something else around like look find one two three yet still again back up down out
    """.split()
)

# Common in other languages as well.
_SHARED: Final = frozenset(
    "is in we was me a no as do am of over he so an on to i up d t s m".split()
)
# Common words of other languages that no English text has.
_FOREIGN: Final = (
    frozenset(
        """
    de der das und ist nicht sehr bis gern dann claro voila gracias danke merci ich du ein eine mit auf den dem von zu auch wie was bin sind haben het een
    en van je niet zijn met voor dat deze hoe wel ook naar le la les un une et est pas tu vous nous
    que qui dans pour sur des du au avec el los las y es por con una del se lo su mi il gli non che
    per di sono una della os as um uma nao com para seu sua em do da och att det som inte jag har
    på er og ikke til jeg nie jest się na w z to że и в не на я что это
    """.split()
    )
    - _COMMON
)


def is_english(text: str) -> bool:
    words = [*map(str.casefold, _WORD.findall(text))][:_READ]
    known = sum(word in _COMMON for word in words)
    foreign = sum(word in _FOREIGN for word in words)
    if len(words) < _FEW:  # "Oslo.", "Santa Fe Depot": names may be all there is
        return known > foreign or (not foreign and "".join(words).isascii())
    is_sure = any(word in _COMMON - _SHARED for word in words)
    return is_sure and known >= max(foreign, _SHARE * len(words))
