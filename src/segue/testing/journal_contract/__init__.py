"""The promises of `segue.journal.journal` as tests, to be run over any store.

    from segue.testing.journal_contract import *

    @pytest.fixture
    async def open_journal(tmp_path): ...

`open_journal` gives a function that opens one more handle on the same database, as another process
would, and closes all of them after the test. One noun is one module; anyio runs the tests.
"""

# ruff: noqa: E402, F403 - pytest rewrites asserts only in modules that are registered before import

from importlib import import_module
from pathlib import Path

import pytest

_MODULES = sorted(
    f"{__name__}.{path.stem}"
    for path in Path(__file__).parent.glob("[!_]*.py")
    if path.stem != "fixtures"
)
pytest.register_assert_rewrite(*_MODULES)

from segue.testing.journal_contract.fixtures import *

for _module in _MODULES:  # tests, and the fixtures that some modules define for theirs
    _names = vars(import_module(_module))
    globals().update({name: _names[name] for name in _names if not name.startswith("_")})
pytestmark = pytest.mark.anyio
