"""Fixtures: a store on SQLite and Postgres, synchronous and asynchronous, and the databases below it.

store           twice: a Store on SQLite, an AsyncStore on Postgres; four times with tests.contract.faces.every_way or --every-way
open_store      opens another store on the same database, with the same face and clock
database_url    twice: a database of the test's own, ready for Store.open
filled          the same, for a test that asks for it with something in every table
new_database    a function that makes one more of the same kind, for tests that copy from one to another
sqlite_url, postgres_url, empty_postgres_url      one kind only; the last has no tables
sqlite3_shell   the sqlite3 command line
clock           the frozen clock of every store opened here
"""

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from persist import AsyncStore, Store
from persist.db.dialects.postgres import operations
from persist.db.expressions.locking import with_lock_timeout
from persist.db.statements.prepared import compiled_for
from persist.testing import FrozenClock
from tests.async_portal import Portal, PortalStore
from tests.command_line import Sqlite3, find_sqlite3
from tests.database_pool import Databases
from tests.databases import PostgresNotFoundError, postgres_server
from tests.examples import EXPLORING, examples
from tests.kept_connections import KeptConnections, KeptDialect
from tests.kept_files import KeptFiles
from tests.processor_time import ProcessorTime
from tests.seeded_databases import Prepared, new_file, with_file
from tests.temporary_files import use_memory

use_memory(os.environ)
# What recorders tell followers comes at moments of its own, among the statements and connections that tests count.
os.environ.setdefault("PERSIST_NOTIFY_FOLLOWERS", "false")

# The same examples in every run, so that a red build means a change broke something; PERSIST_EXPLORE=1 draws new ones.
hypothesis.settings.register_profile("steady", derandomize=True, deadline=None, max_examples=examples(30))
hypothesis.settings.register_profile("explore", deadline=None, max_examples=examples(30))
hypothesis.settings.load_profile("explore" if EXPLORING else "steady")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """What `-n auto` means here: a third of the time tests wait, for processes, locks and servers, but quick ones do not."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if config.getoption("--quick") else cores + (cores + 1) // 2


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="what takes little and needs no server, on SQLite, through the synchronous face"
    )
    parser.addoption("--lane", action="store_true", help="what proves a change, as `make test` runs it: see tests/lanes.py")
    parser.addoption("--renew-night", action="store_true", help="measure every test, and write tests/night.txt (not_quick.txt)")
    parser.addoption("--every-way", action="store_true", help="each face of a store on each database, in every test")


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that are marked `every_way` have both faces on both databases, as all have with `--every-way`.

    One that is marked `one_database` then has both databases, too, and else the one that the letters of its name choose.
    """
    test, config = metafunc.definition, metafunc.config
    quick, every = config.getoption("--quick"), config.getoption("--every-way")
    if test.get_closest_marker("one_database") and "backend" in metafunc.fixturenames and not quick and not every:
        chosen = "postgres" if sum(test.originalname.encode()) % 2 else "sqlite"
        test.add_marker(pytest.mark.parametrize("backend", [chosen]))
    if test.get_closest_marker("every_way") and "face" in metafunc.fixturenames and not every:
        metafunc.parametrize("face", ["sync"] if quick else ["sync", "async"], indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`--quick` leaves out what takes long and what is of Postgres and of the asynchronous face. Plans are those of one server.

    A test of Postgres is marked `postgres`, whether its name says so or only its fixtures do.
    """
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "asked" in fixtures:
            item.add_marker("one_server")
        if any("postgres" in name for name in (item.nodeid, *fixtures)) or "databases" in fixtures:
            item.add_marker("postgres")
    from tests import lanes  # it imports persist.schema

    if config.getoption("--quick"):
        slow = frozenset[str]() if config.getoption("--renew-night") else lanes.NOT_QUICK
        left = [item for item in items if not _is_quick(item, slow)]
        items[:] = [item for item in items if _is_quick(item, slow)]
        config.hook.pytest_deselected(items=left)
    if config.getoption("--lane"):
        items[:], left = lanes.chosen(items)
        config.hook.pytest_deselected(items=left)


def _is_quick(item: pytest.Item, slow: frozenset[str]) -> bool:
    if {item.nodeid, item.nodeid.partition("[")[0]} & slow:
        return False
    params: dict[str, object] = item.callspec.params if hasattr(item, "callspec") else {}
    names = set(getattr(item, "fixturenames", ()))
    ways = {value for value in params.values() if isinstance(value, str)}
    return not ways & {"postgres", "async"} and "new_postgres_database" not in names and not item.get_closest_marker("long")


# Options of a store that have no part in how its file is made.
ORDINARY = {"clock", "events", "settings", "sleep"}


def pytest_collection_finish() -> None:
    """Thousands of collected tests stay to the end: no garbage collection looks at them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder of the run for the bytecode of the processes that tests start, where PYTHONDONTWRITEBYTECODE keeps none.

    Without it each of some hundred processes compiles the package anew, which takes longer than most of them run.
    """
    with pytest.MonkeyPatch.context() as patch:
        if sys.dont_write_bytecode:
            base = tmp_path_factory.getbasetemp()
            shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
            patch.setenv("PYTHONPYCACHEPREFIX", str(shared / "bytecode"))
            patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(ProcessorTime(config))
    config.pluginmanager.register(_ways(quick=config.getoption("--quick"), every=config.getoption("--every-way")))


def _ways(*, quick: bool, every: bool) -> object:
    """The fixtures by which a test runs in several ways: those that `--quick` leaves out are not collected in the first place."""
    faces = ["sync", "async"] if every and not quick else None

    class Ways:
        @pytest.fixture(params=["sqlite"] if quick else ["sqlite", "postgres"])
        def backend(self, request: pytest.FixtureRequest) -> str:
            """Which database the test runs on."""
            return str(request.param)

        @pytest.fixture(params=faces)
        def face(self, request: pytest.FixtureRequest, backend: str) -> str:
            """Which of Store and AsyncStore is behind `store`.

            AsyncStore runs the very verb of Store in a thread, which tests/architecture/test_faces.py proves of each: a test that
            runs on both databases meets both faces, and not each of them on each.
            """
            return str(getattr(request, "param", "async" if backend == "postgres" else "sync"))

    return Ways()


@pytest.fixture
def clock() -> FrozenClock:
    """Stands at 2026-01-02T03:04:05.678Z until it is advanced."""
    return FrozenClock()


@pytest.fixture
def time_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """`time_zone("EST5")` makes that the process's zone until the test ends."""

    def set_(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield set_
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def short_lock_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Locks of a server are waited for 50 ms."""
    monkeypatch.setattr(operations, "LOCK_TIMEOUT", "50ms")
    monkeypatch.setattr(with_lock_timeout, "limit", "50ms")
    compiled_for.cache_clear()
    yield
    compiled_for.cache_clear()


@pytest.fixture(scope="session")
def databases(request: pytest.FixtureRequest) -> Iterator[Databases]:
    """The Postgres server. Without one the run ends, unless POSTGRES=skip says that half of the tests may be left out."""
    from persist.schema.migrate import upgrade  # Alembic takes long to import

    with ExitStack() as stack:
        try:
            server_url = stack.enter_context(postgres_server())
        except PostgresNotFoundError as reason:
            found = f"there is no Postgres: {' '.join(str(reason).split())}"
            if os.environ.get("POSTGRES") == "skip":
                pytest.skip(found)
            request.session.shouldfail = f"{found}. To leave its tests out: make test POSTGRES=skip"
            pytest.fail(request.session.shouldfail, pytrace=False)
        databases = Databases(server_url, upgrade, request.getfixturevalue("kept_connections").drop)
        stack.callback(databases.close)
        yield databases


@pytest.fixture(scope="session")
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Databases that were filled once; a server is asked for when the first one on it is."""
    return Prepared(tmp_path_factory.mktemp("prepared"), lambda: request.getfixturevalue("databases"))


@pytest.fixture
def new_postgres_database(databases: Databases) -> Iterator[Callable[..., str]]:
    """A function that gives a Postgres database, migrated or empty; all go back, or are dropped, at the end of the test."""
    with ExitStack() as stack:

        def create(*, migrated: bool = True) -> str:
            url = databases.lend() if migrated else databases.create(migrated=False)
            stack.callback(databases.give_back if migrated else databases.drop, url)
            return url

        yield create


@pytest.fixture
def postgres_url(new_postgres_database: Callable[..., str]) -> str:
    return new_postgres_database()


@pytest.fixture
def empty_postgres_url(new_postgres_database: Callable[..., str]) -> str:
    return new_postgres_database(migrated=False)


@pytest.fixture
def new_database(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """A function that makes one more database of the kind the test runs on."""
    if backend == "postgres":
        create: Callable[[], str] = request.getfixturevalue("new_postgres_database")
        return create
    paths = (tmp_path / f"other-{number}.db" for number in range(1000))
    return lambda: f"sqlite:///{next(paths).as_posix()}"


@pytest.fixture
def database_url(backend: str, request: pytest.FixtureRequest) -> str:
    # Looked up by name, so that a run of the SQLite tests alone never starts a server.
    return str(request.getfixturevalue("filled" if "filled" in request.fixturenames else f"{backend}_url"))


@pytest.fixture
def sqlite_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A file that does not exist yet, which opening a store makes; of a test that asks for `store`, one that was kept."""
    if {"store", "database_url"} <= set(request.fixturenames) and request.getfixturevalue("keeps_connections"):
        files: KeptFiles = request.getfixturevalue("kept_files")
        url = files.lend()
        yield url
        files.give_back(url)
    else:
        yield f"sqlite:///{(tmp_path / 'state.db').as_posix()}"


@pytest.fixture
def filled(backend: str, tmp_path: Path, prepared: Prepared) -> Iterator[str]:
    """The test's database, with something in every table: see tests.maintenance.pruning_scenes."""
    from tests.maintenance.pruning_scenes import everything  # it imports all of persist

    with prepared.lend(everything, backend, tmp_path) as url:
        yield url


@pytest.fixture(scope="session")
def sqlite3_shell(tmp_path_factory: pytest.TempPathFactory) -> Sqlite3:
    """The real sqlite3 command line."""
    binary = find_sqlite3()
    if binary is None:
        pytest.fail("there is no sqlite3 command line: neither on the path nor in the wheel of apsw", pytrace=False)
    return Sqlite3(binary, tmp_path_factory.mktemp("bin"))


@pytest.fixture(scope="session")
def kept_connections() -> Iterator[KeptConnections]:
    """What earlier tests left open for the next ones."""
    kept = KeptConnections()
    yield kept
    kept.close()


@pytest.fixture(scope="session")
def kept_files(tmp_path_factory: pytest.TempPathFactory, kept_connections: KeptConnections) -> Iterator[KeptFiles]:
    """The files of what is kept open."""
    files = KeptFiles(tmp_path_factory.mktemp("kept"), new_file(), kept_connections.drop)
    yield files
    kept_connections.close()
    files.close()


@pytest.fixture(scope="session")
def portal() -> Iterator[Portal]:
    portal = Portal()
    yield portal
    portal.close()


@pytest.fixture
def open_store(database_url: str, face: str, clock: FrozenClock, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """`open_store(**options)` opens a store, on this test's database unless it says `url=`. All are closed at the end."""
    with ExitStack() as stack:

        def open_(*, url: str = database_url, **options: Any) -> Any:
            path = Path(url.removeprefix("sqlite:///"))
            if url == database_url and url.startswith("sqlite") and options.keys() <= ORDINARY and not path.exists():
                with_file(url)
            options = {"clock": clock} | options
            if face == "sync":
                store: Any = Store.open(url, **options)
            else:
                store = PortalStore.open(request.getfixturevalue("portal"), AsyncStore.open, url, **options)
            stack.callback(store.close)
            return store

        yield open_


@pytest.fixture
def keeps_connections(request: pytest.FixtureRequest) -> bool:
    """Whether the stores of the test may begin with connections that an earlier test used: not where it patches something."""
    return not {"monkeypatch", "filled", "logging_store"} & set(request.fixturenames)


@pytest.fixture
def open_kept(
    keeps_connections: bool, database_url: str, face: str, clock: FrozenClock, request: pytest.FixtureRequest
) -> Iterator[Callable[[], Any]]:
    """`open_kept()` opens a store on the test's database, on connections that were kept for it, if it may."""
    with ExitStack() as stack:

        def close(kept: KeptDialect) -> None:
            connections: KeptConnections = request.getfixturevalue("kept_connections")
            reusable = False
            try:
                reusable = kept.close_store()
            finally:
                if reusable:
                    connections.put(database_url, kept)
                else:
                    kept.close()

        def open_() -> Any:
            if not keeps_connections:
                return request.getfixturevalue("open_store")()
            connections: KeptConnections = request.getfixturevalue("kept_connections")
            kept = connections.take(database_url, KeptDialect) or KeptDialect(database_url)
            store = kept.open(clock, None if face == "sync" else request.getfixturevalue("portal"))
            stack.callback(close, kept)
            return store

        yield open_


@pytest.fixture
def store(open_kept: Callable[[], Any]) -> Any:
    """A Store, or an AsyncStore behind the same synchronous face."""
    return open_kept()
