"""What a program loads: the parts it uses. Each program here is a fresh interpreter that prints the modules it has in the end."""

import ast
import builtins
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from persist.lazy_imports import lazy_module, lazy_modules
from tests.architecture.sources import ROOT, Source, sources
from tests.seeded_databases import new_file

PACKAGE = sources("persist")
DOMAINS = {"chat", "conversations", "events", "messaging", "programs", "telemetry", "workflows"}
LEFT_ALONE = {"adopt", "aio", "instances", "maintenance", "metadata", "migrate", "run_files", "sessionlog", "testing"}
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
    return {domain for domain in DOMAINS if f"persist.{domain}.models" in modules}


# ---------------------------------------------------------------- what is loaded


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
    assert parts(steps[0]) == {"errors", "lazy_imports", "quoting"}


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


# ---------------------------------------------------------------- what must be whole all the same


@pytest.mark.long
def test_the_log_of_events_covers_domains_that_were_never_used(current_url: str) -> None:
    code = """
import sys, persist
with persist.Store.open(sys.argv[1], events=True) as store:
    with store.read() as tx:
        run = tx._work.transaction.driver.execute
        rows = run("SELECT DISTINCT tbl_name FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'persist_event_guard%'")
    guarded = {name for (name,) in rows.fetchall()}
from persist.db.changes.event_streams import logged_tables
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


# ---------------------------------------------------------------- how it is declared


def _blocks(source: Source, kind: str) -> Iterator[ast.With]:
    if f"{kind}(globals())" not in source.text:
        return
    for node in source.tree.body:
        if isinstance(node, ast.With) and ast.unparse(node.items[0].context_expr) == f"{kind}(globals())":
            yield node


def _declared(block: ast.With) -> dict[str, str]:
    """By the name it is bound to, the module or the name in a module that is imported."""
    found: dict[str, str] = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom), ast.unparse(node)
        found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


LAZY = [(source, block) for source in PACKAGE for block in _blocks(source, "lazy_modules")]
OFFERING = [(source, block) for source in PACKAGE for block in _blocks(source, "lazy_names")]


def test_there_is_something_to_look_at() -> None:
    assert (len(LAZY), len(OFFERING)) > (8, 4)


@pytest.mark.parametrize(("source", "block"), LAZY, ids=lambda given: getattr(given, "name", ""))
def test_what_comes_later_are_modules(source: Source, block: ast.With) -> None:
    here = vars(importlib.import_module(_module(source)))
    for name, module in _declared(block).items():
        assert type(here[name]) is lazy_module
        importlib.import_module(module)


@pytest.mark.parametrize(("source", "block"), OFFERING, ids=lambda given: getattr(given, "name", ""))
def test_a_package_offers_what_its_block_imports(source: Source, block: ast.With) -> None:
    package = importlib.import_module(_module(source))
    for name, home in _declared(block).items():
        module, _, there = home.rpartition(".")
        assert name in package.__all__
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


DECLARING = """
from persist.lazy_imports import lazy_modules
with lazy_modules(globals()):
    from os import path
    from xml.etree import ElementTree as trees
"""


def test_only_the_imports_of_the_block_come_later() -> None:
    imported = builtins.__import__
    here: dict[str, Any] = {"__name__": "here"}
    elsewhere: dict[str, Any] = {"__name__": "elsewhere"}
    with lazy_modules(here):
        exec("import json", elsewhere)
        exec("from os import path", here)
        with pytest.raises(ImportError, match="from package import name"):
            exec("import json", here)
    assert elsewhere["json"] is json
    assert type(here["path"]) is lazy_module
    assert here["path"].join is os.path.join
    assert builtins.__import__ is imported


def test_an_import_that_somebody_replaced_in_the_meantime_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__
    here: dict[str, Any] = {"__name__": "here"}
    asked = []
    with lazy_modules(here):
        ours = builtins.__import__

        def theirs(name: str, *given: Any) -> Any:
            asked.append(name)
            return ours(name, *given)

        monkeypatch.setattr(builtins, "__import__", theirs)
    for _ in range(2):
        exec(DECLARING, here)
    exec("import json", here)
    assert asked[-1] == "json"
    assert here["json"] is json
    assert type(here["path"]) is lazy_module
    monkeypatch.undo()
    with lazy_modules({}):
        pass
    assert builtins.__import__ is imported


def test_blocks_and_imports_in_many_threads() -> None:
    code = f"""
import builtins, sys, threading
from persist.lazy_imports import lazy_module
sys.setswitchinterval(1e-6)
imported, failed, together = builtins.__import__, [], threading.Barrier(8)
declaring = compile({DECLARING!r}, "declaring", "exec")
def declare():
    for _ in range(300):
        here = {{"__name__": "here"}}
        exec(declaring, here)
        if type(here["path"]) is not lazy_module or here["path"].join("a", "b") != "a/b": failed.append(here)
def make():
    for _ in range(300):
        from os import path
        import json.decoder
        if type(path) is lazy_module or type(json) is lazy_module: failed.append(path)
def run(work):
    together.wait()
    try: work()
    except BaseException as error: failed.append(repr(error))
threads = [threading.Thread(target=run, args=(work,)) for work in (declare, make) * 4]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(failed, builtins.__import__ is imported)
"""
    assert run(code) == ["[] True"]
