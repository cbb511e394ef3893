"""What a program loads: the parts it uses. Each program here is a fresh interpreter that prints the modules it has in the end."""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from persist.domains import packages
from persist.lazy_imports import lazy_module
from tests.architecture.sources import ROOT, Source, sources
from tests.cases import each
from tests.seeded_databases import new_file

PACKAGE = sources("persist")
STOOD_ON = {"blobs", "usage"}  # by other domains, which load them
LEFT_ALONE = {"maintenance", "sessionlog", "single_owner_files", "testing"}
NEVER = ("alembic", "click", "numpy", "psycopg", "pytest", "rich", "sqlalchemy.dialects.postgresql")


@pytest.fixture(scope="session")
def current_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file that is there and current."""
    path = tmp_path_factory.mktemp("current") / "state.db"
    path.write_bytes(new_file())
    return f"sqlite:///{path.as_posix()}"


def run(code: str, *arguments: str) -> list[str]:
    """The lines a program prints."""
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def loaded(code: str, *arguments: str) -> set[str]:
    """The modules that a program has loaded in the end."""
    return set(run(f"import sys\n{code}\nprint(*sys.modules, sep='\\n')", *arguments))


def parts(modules: set[str]) -> set[str]:
    """The parts of persist among them: `chat` for `persist.chat.models`."""
    return {name.split(".")[1] for name in modules if name.startswith("persist.")}


def domains_in_use(modules: set[str]) -> set[str]:
    """The domains whose tables are there."""
    return {domain for domain, package in packages().items() if f"{package}.models" in modules} - STOOD_ON


STEPS = """
import sys, persist
print(*sys.modules)
persist.Store
print(*sys.modules)
store = persist.Store.open(sys.argv[1])
store.close()
print(*sys.modules)
store = persist.Store.open(sys.argv[1])
with store.read() as tx: tx.chat.sessions.list()
with store.begin() as tx: session = tx.chat.sessions.create(agent='build', model={})
with store.record(session.id) as recorder: recorder.feed_many([{'type': 'start'}, {'type': 'finish'}])
store.close()
print(*sys.modules)
"""


@pytest.fixture(scope="session")
def steps(current_url: str) -> list[set[str]]:
    """What one program has loaded after it imported persist, looked up Store, opened and closed a file, and used a chat."""
    return [set(line.split()) for line in run(STEPS, current_url)]


@pytest.mark.long
def test_importing_the_package_loads_its_errors_alone(steps: list[set[str]]) -> None:
    assert parts(steps[0]) == {"errors", "lazy_imports"}


@pytest.mark.long
def test_the_store_alone_loads_no_domain_no_driver_and_no_settings(steps: list[set[str]]) -> None:
    assert domains_in_use(steps[1]) == set()
    assert parts(steps[1]) & (LEFT_ALONE | {"settings"}) == set()
    assert steps[1] & {*NEVER, "pydantic.main", "pydantic_settings", "sqlalchemy.dialects.sqlite"} == set()


@pytest.mark.long
def test_opening_a_current_file_loads_no_domain(steps: list[set[str]]) -> None:
    assert domains_in_use(steps[2]) == set()
    assert parts(steps[2]) & LEFT_ALONE == set()
    assert steps[2] & set(NEVER) == set()


@pytest.mark.long
def test_using_a_chat_loads_the_chat_alone(steps: list[set[str]]) -> None:
    """Listing, writing and recording."""
    assert domains_in_use(steps[3]) == {"chat"}
    assert parts(steps[3]) & LEFT_ALONE == set()
    assert steps[3] & set(NEVER) == set()


@pytest.mark.long
def test_the_async_face_loads_the_domain_it_uses(current_url: str) -> None:
    modules = loaded(
        """
import asyncio, persist
async def main():
    async with persist.AsyncStore.open(sys.argv[1]) as store, store.read() as tx:
        await tx.workflows.runs.list()
asyncio.run(main())
""",
        current_url,
    )
    assert domains_in_use(modules) == {"workflows"}
    assert modules & set(NEVER) == set()


@pytest.mark.long
def test_the_log_of_events_covers_domains_that_were_never_used(current_url: str) -> None:
    code = """
import sys, persist
with persist.Store.open(sys.argv[1], events=True) as store:
    with store.read() as tx:
        run = tx._work.transaction.driver.execute
        rows = run("SELECT DISTINCT tbl_name FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'persist_event_guard%'")
    guarded = {name for (name,) in rows.fetchall()}
from persist.db.changes.journal import logged_tables
from persist.schema.metadata import metadata
print(guarded == {table.name for table in logged_tables(metadata.sorted_tables)}, len(guarded) > 30)
"""
    assert run(code, current_url) == ["True True"]


@pytest.mark.long
def test_partial_indexes_are_whole_for_both_databases() -> None:
    code = """
from persist.schema.metadata import metadata
kept = [index.dialect_kwargs for table in metadata.tables.values() for index in table.indexes]
print(len([True for one in kept if 'sqlite_where' in one]) > 5)
print(all(one.get('sqlite_where') is one.get('postgresql_where') for one in kept))
"""
    assert run(code) == ["True", "True"]


@pytest.mark.long
def test_threads_that_use_everything_first_at_once(current_url: str) -> None:
    code = """
import sys, threading
sys.setswitchinterval(1e-5)
import persist
store, failed, together = persist.Store.open(sys.argv[1]), [], threading.Barrier(14)
def use(domain):
    try:
        together.wait()
        with store.read() as tx: getattr(tx, domain)
        persist.AsyncStore, persist.Recorder, persist.include_name
    except BaseException as error:
        failed.append(repr(error))
names = ("chat", "conversations", "events", "messaging", "programs", "telemetry", "workflows") * 2
threads = [threading.Thread(target=use, args=(name,)) for name in names]
for thread in threads: thread.start()
for thread in threads: thread.join()
store.close()
print(failed)
"""
    assert run(code, current_url) == ["[]"]


def _blocks(source: Source) -> Iterator[ast.If]:
    return (node for node in source.tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")


def _later(block: ast.If) -> dict[str, str]:
    """By the name of each stand-in of a block, its module."""
    found = {}
    for node in block.orelse:
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("lazy_module("):
            assert isinstance(node.value, ast.Call)
            found[ast.unparse(node.targets[0])] = ast.literal_eval(node.value.args[0])
    return found


def _declared(block: ast.If) -> dict[str, str]:
    """By the name that a block binds for the type checker, the module or the name in a module that it imports."""
    found: dict[str, str] = {}
    for node in block.body:
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
            home, _, name = ast.unparse(node.value).partition(".")
            found[ast.unparse(node.targets[0])] = f"{found[home]}.{name}"
    return {name: home for name, home in found.items() if not name.startswith("_")}


# The text is asked first: each process of a run makes these lists, and parsing the whole package takes it seconds.
LAZY = [(source, block) for source in PACKAGE if "lazy_module(" in source.text for block in _blocks(source) if _later(block)]
OFFERING = [(source, block) for source in PACKAGE if "lazy_names(globals())\n" in source.text for block in _blocks(source)]
OFFERING = [(source, block) for source, block in OFFERING if source.name != "persist/lazy_imports.py"]


def test_there_is_something_to_look_at() -> None:
    assert (len(LAZY), len(OFFERING)) > (8, 4)


@each(("source", "block"), LAZY)
def test_what_comes_later_are_modules(source: Source, block: ast.If) -> None:
    """The type checker sees the module that the stand-in imports."""
    here, declared = vars(importlib.import_module(_module(source))), _declared(block)
    for name, module in _later(block).items():
        assert declared[name] == module
        assert type(here[name]) is lazy_module
        importlib.import_module(module)


@each(("source", "block"), OFFERING)
def test_a_package_offers_what_its_block_imports(source: Source, block: ast.If) -> None:
    package = importlib.import_module(_module(source))
    declared = _declared(block)
    assert set(declared) <= set(package.__all__) <= set(dir(package))
    for name, home in declared.items():
        module, _, there = home.rpartition(".")
        assert getattr(package, name) is getattr(importlib.import_module(module), there)
    with pytest.raises(AttributeError, match="no_such_name"):
        package.no_such_name  # noqa: B018  # asking is the test


def _module(source: Source) -> str:
    return source.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def test_a_module_that_comes_later_is_that_module() -> None:
    path = lazy_module("posixpath")
    assert path.join("a", "b") == "a/b"
    with pytest.raises(AttributeError, match="no_such_name"):
        path.no_such_name  # noqa: B018  # asking is the test


def _assigned(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                yield from targets
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                yield target
            case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[target, *_]):
                yield ast.Attribute(target, "")


def _in_builtins(target: ast.expr) -> bool:
    """Whether a name of the builtins is meant, or one of `vars(builtins)`."""
    words = {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
    return isinstance(target, ast.Attribute | ast.Subscript) and bool({"builtins", "__builtins__"} & words)


def test_no_builtin_is_replaced() -> None:
    """They belong to the program that uses the package."""
    assigned = ((source.name, target) for source in PACKAGE for target in _assigned(source.tree))
    found = [f"{name}: {ast.unparse(target)}" for name, target in assigned if _in_builtins(target)]
    assert found == []
    planted = "import builtins\nbuiltins.__import__ = print\nvars(builtins)['open'] = print\nsetattr(builtins, 'id', print)"
    assert len([target for target in _assigned(ast.parse(planted)) if _in_builtins(target)]) == 3
