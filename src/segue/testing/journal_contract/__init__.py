"""The promises of `segue.journal.ports` as tests, to be run over any store.

    from segue.testing.journal_contract import *

    @pytest.fixture
    async def open_journal(tmp_path): ...

`open_journal` gives a function that opens one more handle on the same database, as another process
would, and closes all of them after the test. One noun is one module; anyio runs the tests.
"""

# ruff: noqa: E402, F403 - asserts can be explained only in modules that are named before they load

import pytest

_NOUNS = (
    "accepting",
    "answering",
    "appending",
    "arriving",
    "cancelling",
    "claiming",
    "clocks",
    "collecting",
    "continuing",
    "counting",
    "decisions",
    "ending",
    "fidelity",
    "firing",
    "history",
    "importing",
    "keeping",
    "keys",
    "listening",
    "memories",
    "missing",
    "nodes",
    "outbox",
    "outcomes",
    "racing",
    "reading",
    "refusing",
    "retaining",
    "search",
    "summaries",
    "threads",
    "timers",
    "transferring",
    "trying",
    "turns",
    "users",
    "watching",
    "withdrawing",
    "wording",
)
pytest.register_assert_rewrite(*(f"{__name__}.{noun}" for noun in ("chat", *_NOUNS)))

from segue.testing.journal_contract.accepting import *
from segue.testing.journal_contract.answering import *
from segue.testing.journal_contract.appending import *
from segue.testing.journal_contract.arriving import *
from segue.testing.journal_contract.cancelling import *
from segue.testing.journal_contract.claiming import *
from segue.testing.journal_contract.clocks import *
from segue.testing.journal_contract.collecting import *
from segue.testing.journal_contract.continuing import *
from segue.testing.journal_contract.counting import *
from segue.testing.journal_contract.decisions import *
from segue.testing.journal_contract.ending import *
from segue.testing.journal_contract.fidelity import *
from segue.testing.journal_contract.firing import *
from segue.testing.journal_contract.fixtures import *
from segue.testing.journal_contract.history import *
from segue.testing.journal_contract.importing import *
from segue.testing.journal_contract.keeping import *
from segue.testing.journal_contract.keys import *
from segue.testing.journal_contract.listening import *
from segue.testing.journal_contract.memories import *
from segue.testing.journal_contract.missing import *
from segue.testing.journal_contract.nodes import *
from segue.testing.journal_contract.outbox import *
from segue.testing.journal_contract.outcomes import *
from segue.testing.journal_contract.racing import *
from segue.testing.journal_contract.reading import *
from segue.testing.journal_contract.refusing import *
from segue.testing.journal_contract.retaining import *
from segue.testing.journal_contract.search import *
from segue.testing.journal_contract.summaries import *
from segue.testing.journal_contract.threads import *
from segue.testing.journal_contract.timers import *
from segue.testing.journal_contract.transferring import *
from segue.testing.journal_contract.trying import *
from segue.testing.journal_contract.turns import *
from segue.testing.journal_contract.users import *
from segue.testing.journal_contract.watching import *
from segue.testing.journal_contract.withdrawing import *
from segue.testing.journal_contract.wording import *

pytestmark = pytest.mark.anyio
