"""Rules about the source that no type checker knows.

Each rule is a function from a syntax tree to what breaks it, and is shown to find a breach in a
few lines of its own before it is held against the package, or against the tests.
"""

import ast
import re
from collections.abc import Callable, Collection, Iterable
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import segue

PACKAGE = Path(segue.__file__).parent
MODULES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
CORE = [name for name in MODULES if name.startswith("core/")]

# Besides these, import-linter keeps whole modules such as `threading` out of the core.
CLOCKS_AND_DICE = {"time", "random", "secrets", "uuid"}
TESTS = Path(__file__).parent
CHECK = re.compile(r"_?(assert|check|expect)")
# All that these say is that nothing is raised.
MERE_ABSENCE = {"test_content.py": ["test_content_of_no_shape_is_left_to_who_reads_it"]}
READING_THE_CLOCK = {"now", "utcnow", "today", "time_ns", "monotonic", "perf_counter"}


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def is_flag(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == "synthetic"


def read_mapping(node: ast.AST) -> ast.expr | None:
    """The mapping that `node` looks the flag up in, by index, by a method or by `in`."""
    match node:
        case ast.Subscript(value=mapping, slice=key, ctx=ast.Load()) if is_flag(key):
            return mapping
        case ast.Call(func=ast.Attribute(value=mapping), args=[key, *_]) if is_flag(key):
            return mapping
        case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[mapping]):
            return mapping if is_flag(key) else None
    return None


def flag_askers(tree: ast.AST) -> list[str]:
    """The functions that look the flag up in a message's metadata, directly or by a variable."""
    nodes = [*ast.walk(tree)]
    if not any(map(is_flag, nodes)):
        return []
    owners: dict[ast.AST, str] = {}
    aliases: set[str] = set()
    # The walk meets an outer function before an inner one, so the innermost name stays.
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            owners |= dict.fromkeys(ast.walk(node), node.name)
        if isinstance(node, ast.Assign) and names_metadata(node.value):
            aliases |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return [
        owners.get(node, "the module itself")
        for node in nodes
        if (mapping := read_mapping(node)) is not None
        and (names_metadata(mapping) or (isinstance(mapping, ast.Name) and mapping.id in aliases))
    ]


def names_metadata(node: ast.AST) -> bool:
    """Whether an expression is a message's `additional_kwargs`, or falls back from it."""
    match node:
        case ast.Attribute(attr="additional_kwargs"):
            return True
        case ast.BoolOp(values=[first, *_]):
            return names_metadata(first)
        case ast.Call(func=ast.Name(id="dict"), args=[first]):
            return names_metadata(first)
    return False


def impure_lines(tree: ast.AST) -> list[int]:
    """Where a module imports a clock or dice, or asks a class for the present."""
    lines = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                modules = {alias.name.split(".")[0] for alias in names}
            case ast.ImportFrom(module=str(module)):
                modules = {module.split(".")[0]}
            case _:
                modules = set()
        reads = isinstance(node, ast.Attribute) and node.attr in READING_THE_CLOCK
        if reads or modules & CLOCKS_AND_DICE:
            lines.append(getattr(node, "lineno", 0))
    return lines


def made_human_messages(tree: ast.AST) -> list[int]:
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "HumanMessage"
    ]


def swallowing_waits(tree: ast.AST) -> list[int]:
    """Where `asyncio.wait_for` is called or imported."""
    lines = []
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="asyncio"), attr="wait_for"):
                lines.append(node.lineno)
            case ast.ImportFrom(names=names) if "wait_for" in {alias.name for alias in names}:
                lines.append(node.lineno)
    return lines


def type_texts_compared(tree: ast.AST) -> list[int]:
    """Where something's `type` is compared with a text, as in `message.type == "human"`."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and any(isinstance(e, ast.Attribute) and e.attr == "type" for e in operands(node))
        and any(isinstance(e, ast.Constant | ast.Tuple | ast.Set) for e in operands(node))
    ]


def store_steps(tree: ast.AST) -> list[int]:
    """The lines that use a part of a journal; to pass the journal on is not one."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Attribute | ast.Name)
        and ast.unparse(node.value).split(".")[-1] in {"journal", "_journal"}
    ]


def operands(node: ast.Compare) -> list[ast.expr]:
    return [node.left, *node.comparators]


def asserts(function: ast.AST, checks: Collection[str] = ()) -> bool:
    """Whether a function can fail a test by itself, or calls one of these checks."""
    return any(
        isinstance(node, ast.Assert) or (isinstance(node, ast.Call) and _fails(node.func, checks))
        for node in ast.walk(function)
    )


def _fails(called: ast.expr, checks: Collection[str]) -> bool:
    match called:
        case ast.Attribute(value=ast.Name(id="pytest"), attr=name):
            return name in {"raises", "fail", "warns"}
        case ast.Name(id="expect"):  # Playwright's
            return True
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in checks
    return False


def functions_of(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return [node for node in ast.walk(tree) if isinstance(node, kinds)]


def checks_in(trees: Iterable[ast.AST]) -> set[str]:
    """The functions that are named as checks and are, by themselves or by another check."""
    named = [f for tree in trees for f in functions_of(tree) if CHECK.match(f.name)]
    found: set[str] = set()
    while more := {f.name for f in named if asserts(f, found)} - found:
        found |= more
    return found


def idle_tests(tree: ast.AST, checks: Collection[str] = ()) -> list[str]:
    """The tests that can only fail by an error."""
    tests = [function for function in functions_of(tree) if function.name.startswith("test_")]
    return [test.name for test in tests if not asserts(test, checks)]


@pytest.mark.parametrize(
    ("rule", "breach"),
    [
        (flag_askers, "def f(m): return m.additional_kwargs['synthetic']"),
        (flag_askers, "def f(m): return m.additional_kwargs.get('synthetic', False)"),
        (flag_askers, "def f(m): return m.additional_kwargs.pop('synthetic')"),
        (flag_askers, "def f(m): return 'synthetic' in m.additional_kwargs"),
        (flag_askers, "def f(m):\n  k = m.additional_kwargs or {}\n  return k.get('synthetic')"),
        (flag_askers, "f = lambda m: dict(m.additional_kwargs)['synthetic']"),
        (impure_lines, "import time"),
        (impure_lines, "from random import choice"),
        (impure_lines, "from datetime import datetime\nmoment = datetime.now()"),
        (impure_lines, "from uuid import uuid4"),
        (store_steps, "async def f(segue): await segue.journal.keys.list_all()"),
        (store_steps, "async def f(journal): await journal.threads.get('t1')"),
        (made_human_messages, "message = HumanMessage('hi')"),
        (swallowing_waits, "async def f(e): await asyncio.wait_for(e.wait(), 1)"),
        (swallowing_waits, "from asyncio import wait_for"),
        (type_texts_compared, "if message.type == 'human': pass"),
        (type_texts_compared, "if message.type in ('human', 'ai'): pass"),
        (idle_tests, "def test_a(): check_nothing()\ndef check_nothing(): pass"),
        (idle_tests, "async def test_a():\n  with suppress(ValueError): await f()"),
    ],
)
def test_a_breach_of_a_rule_is_found(rule: Callable[[ast.AST], list[object]], breach: str) -> None:
    """Every rule below can fail: it sees what it forbids."""
    assert len(rule(ast.parse(breach))) == 1


def test_one_function_asks_whether_a_message_is_synthetic() -> None:
    """The flag is read from a message in `is_synthetic` and nowhere else."""
    askers = {module: names for module in MODULES if (names := flag_askers(tree_of(module)))}
    assert askers == {"core/metadata.py": ["is_synthetic"]}


def test_only_the_migration_knows_the_old_marker() -> None:
    """No other module can tell a trigger by its content, because none knows what to look for."""
    knowing = [m for m, path in MODULES.items() if "AUTONOMOUS_FOLLOWUP" in path.read_text("utf-8")]
    assert knowing == ["migrate/legacy.py"]


def breaches(rule: Callable[[ast.AST], list[int]], modules: Iterable[str]) -> dict[str, list[int]]:
    """The modules that break a rule, each with its lines."""
    return {module: lines for module in modules if (lines := rule(tree_of(module)))}


def test_server_and_commands_take_no_step_at_the_store() -> None:
    """What they do is a method of `Segue` or `OfflineSegue`, so that both do the same."""
    callers = [module for module in MODULES if module.startswith(("server/", "cli/"))]
    assert breaches(store_steps, callers) == {}


def test_no_wait_swallows_a_cancellation() -> None:
    """Before Python 3.12 `asyncio.wait_for` does so; `asyncio.timeout` never does."""
    assert breaches(swallowing_waits, MODULES) == {}


def test_the_core_reads_no_clock_and_throws_no_dice() -> None:
    """Time and new ids come in as arguments, so that every decision can be replayed."""
    assert breaches(impure_lines, CORE) == {}


def test_human_messages_are_made_in_one_module() -> None:
    """Every user's message and every trigger comes from the constructors made for them."""
    product = [module for module in MODULES if not module.startswith("testing/")]
    makers = [module for module in product if made_human_messages(tree_of(module))]
    assert makers == ["core/messages.py"]


def test_messages_are_told_apart_by_class() -> None:
    """Type checks are instance checks; a type's text is never compared."""
    assert breaches(type_texts_compared, MODULES) == {}


def test_every_module_says_what_it_is_for() -> None:
    """A newcomer can read the package by its docstrings."""
    assert [module for module in MODULES if not ast.get_docstring(tree_of(module))] == []


def test_every_test_asserts_something() -> None:
    """What a test says is held by an assertion in it, or in a check that it calls."""
    paths = [*TESTS.rglob("*.py"), *(PACKAGE / "testing").rglob("*.py")]
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    checks = checks_in(trees.values())
    assert "assert_all_is_whole" in checks
    idle = {path.name: names for path, tree in trees.items() if (names := idle_tests(tree, checks))}
    assert idle == MERE_ABSENCE


def test_the_public_names_are_few() -> None:
    """What is public stays small enough to hold in the head, and no name is listed twice."""
    assert len(segue.__all__) <= 25
    assert len(set(segue.__all__)) == len(segue.__all__)


def test_every_public_name_is_there_and_documented() -> None:
    """Each name can be imported and, unless it is a constant, says what it is."""
    for name in segue.__all__:
        value = getattr(segue, name)
        assert name.isupper() or (value.__doc__ or "").strip(), name


PUBLIC_MODULES = {
    "segue.events": {
        "Event",
        "ListenerLagged",
        "MemoriesRecalled",
        "MessageDelta",
        "MessageRetracted",
        "MessageStored",
        "OutsideEvent",
        "Payload",
        "ProgressReported",
        "QuestionAsked",
        "TurnCancelled",
        "TurnFailed",
        "ThreadChanged",
        "ThreadDeleted",
        "ToolActivity",
        "TurnEnded",
        "TurnStarted",
    },
    "segue.autonomy": {
        "Decider",
        "DeciderResult",
        "Delays",
        "Facts",
        "Gate",
        "GateDecision",
        "GateOutcome",
        "Plan",
        "Policy",
        "PolicyGates",
        "QuietHours",
        "Schedule",
        "Sign",
        "apply_request",
        "judge",
        "next_delay",
        "parse_schedule",
        "read_request",
    },
    "segue.middleware": {
        "BatchHistory",
        "Bounds",
        "Invisibility",
        "McpTools",
        "RetrieveMemories",
        "TellTime",
        "UniqueIds",
        "mcp_tools",
    },
    "segue.testing.world": {"Overrides", "ScriptedChatModel", "Stage", "World", "plain_agent"},
    "segue.webhooks": {
        "EVENT_ID_HEADER",
        "SIGNATURE_HEADER",
        "TOLERANCE",
        "sign",
        "sign_standard",
        "verify",
        "verify_standard",
    },
}


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_public_modules_have_exactly_their_pinned_names(name: str) -> None:
    """Docs and programs import these names; changing one is a decision, not an accident."""
    module = import_module(name)
    assert set(module.__all__) == PUBLIC_MODULES[name]
    assert all(hasattr(module, each) for each in module.__all__)
