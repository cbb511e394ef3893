"""What a program loads: the parts it uses. Each program here is a fresh interpreter that prints the modules it has in the end."""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from persist import Store
from persist.lazy_imports import lazy_module
from tests.architecture.sources import ROOT, Source, sources

PACKAGE = sources("persist")
DOMAINS = {"chat", "conversations", "events", "messaging", "programs", "telemetry", "workflows"}
LEFT_ALONE = {"adopt", "aio", "instances", "maintenance", "metadata", "migrate", "run_files", "sessionlog", "testing"}
NEVER = ("alembic", "click", "numpy", "psycopg", "pytest", "rich", "sqlalchemy.dialects.postgresql")


@pytest.fixture
def current_url(tmp_path: Path) -> str:
    """A file that is there and current."""
    url = f"sqlite:///{(tmp_path / 'state.db').as_posix()}"
    Store.open(url).close()
    return url


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
    return {domain for domain in DOMAINS if f"persist.{domain}.models" in modules}


# ---------------------------------------------------------------- what is loaded


def test_the_store_alone_loads_no_domain_no_driver_and_no_settings() -> None:
    modules = loaded("import persist\npersist.Store")
    assert domains_in_use(modules) == set()
    assert parts(modules) & (LEFT_ALONE | {"settings"}) == set()
    assert modules & {*NEVER, "pydantic.main", "pydantic_settings", "sqlalchemy.dialects.sqlite"} == set()


def test_importing_the_package_loads_its_errors_alone() -> None:
    assert parts(loaded("import persist")) == {"errors", "lazy_imports", "quoting"}


def test_opening_a_current_file_loads_no_domain(current_url: str) -> None:
    modules = loaded("import persist\npersist.Store.open(sys.argv[1]).close()", current_url)
    assert domains_in_use(modules) == set()
    assert parts(modules) & LEFT_ALONE == set()
    assert modules & set(NEVER) == set()


USES = {
    "listing": "with store.read() as tx: tx.chat.sessions.list()",
    "writing": "with store.begin() as tx: tx.chat.sessions.create(agent='build', model={})",
    "recording": """
with store.begin() as tx: session = tx.chat.sessions.create(agent='build', model={})
with store.record(session.id) as recorder: recorder.feed_many([{'type': 'start'}, {'type': 'finish'}])
""",
}


@pytest.mark.parametrize("use", USES)
def test_using_a_chat_loads_the_chat_alone(current_url: str, use: str) -> None:
    modules = loaded(f"import persist\nstore = persist.Store.open(sys.argv[1])\n{USES[use]}\nstore.close()", current_url)
    assert domains_in_use(modules) == {"chat"}
    assert parts(modules) & LEFT_ALONE == set()
    assert modules & set(NEVER) == set()


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


# ---------------------------------------------------------------- what must be whole all the same


def test_the_log_of_events_covers_domains_that_were_never_used(current_url: str) -> None:
    code = """
import sys, persist
with persist.Store.open(sys.argv[1], events=True) as store:
    with store.read() as tx: rows = tx._work._driver.execute("SELECT DISTINCT tbl_name FROM sqlite_master WHERE type = 'trigger'")
    guarded = {name for (name,) in rows.fetchall()}
from persist.db.changes.event_streams import logged_tables
from persist.schema.metadata import metadata
print(guarded == {table.name for table in logged_tables(metadata.sorted_tables)}, len(guarded) > 30)
"""
    assert run(code, current_url) == ["True True"]


def test_partial_indexes_are_whole_for_both_databases() -> None:
    code = """
from persist.schema.metadata import metadata
kept = [index.dialect_kwargs for table in metadata.tables.values() for index in table.indexes]
print(len([True for one in kept if 'sqlite_where' in one]) > 5)
print(all(one.get('sqlite_where') is one.get('postgresql_where') for one in kept))
"""
    assert run(code) == ["True", "True"]


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


# ---------------------------------------------------------------- how it is declared


def _declared(body: list[ast.stmt]) -> dict[str, str]:
    """By the name it is bound to, the module or the name in a module that is imported."""
    found: dict[str, str] = {}
    for node in body:
        assert isinstance(node, ast.ImportFrom), ast.unparse(node)
        found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _for_types(source: Source) -> Iterator[ast.If]:
    for node in source.tree.body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield node


def _calls(source: Source, name: str) -> list[ast.Call]:
    return [node for node in ast.walk(source.tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == name]


LAZY = [source for source in PACKAGE if "from persist.lazy_imports import lazy_module\n" in source.text]
OFFERING = [source for source in PACKAGE if _calls(source, "lazy_names")]


@pytest.mark.parametrize("source", LAZY, ids=lambda source: source.name)
def test_what_comes_later_is_what_the_type_checker_sees(source: Source) -> None:
    made = {}
    for node in _for_types(source):
        seen = _declared(node.body)
        for statement in node.orelse:
            assert isinstance(statement, ast.Assign)
            assert isinstance(statement.value, ast.Call)
            made[ast.unparse(statement.targets[0])] = module = ast.literal_eval(statement.value.args[0])
            assert seen[ast.unparse(statement.targets[0])] == module
            importlib.import_module(module)
    assert len(made) == len(_calls(source, "lazy_module")), "lazy_module() stands in the other half of `if TYPE_CHECKING` alone"


@pytest.mark.parametrize("source", OFFERING, ids=lambda source: source.name)
def test_what_a_package_offers_is_what_the_type_checker_sees(source: Source) -> None:
    (call,) = _calls(source, "lazy_names")
    homes = ast.literal_eval(call.args[1])
    (for_types,) = _for_types(source)
    assert {name: f"{home}.{name}" for name, home in homes.items()} == _declared(for_types.body)
    package = importlib.import_module(source.name.removesuffix("/__init__.py").replace("/", "."))
    assert set(homes) <= set(package.__all__)
    assert all(getattr(package, name) is not None for name in package.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        package.no_such_name  # noqa: B018  # asking is the test


def test_a_module_that_comes_later_is_that_module() -> None:
    path = lazy_module("posixpath")
    assert path.join("a", "b") == "a/b"
    with pytest.raises(AttributeError, match="no_such_name"):
        path.no_such_name  # noqa: B018  # asking is the test
