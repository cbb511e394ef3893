"""What the tests of every framework need: an event loop, and a store of each face on each database that works on it."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine

from persist import AsyncStore, Store
from persist.testing import FrozenClock
from tests.roundtrips.meter import Meter, metered
from tests.subprocesses import Spawn, spawning


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function on the loop of its store."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    runner = pyfuncitem.funcargs["runner"]
    assert isinstance(runner, asyncio.Runner)
    runner.run(pyfuncitem.obj(**given))
    return True


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def do(runner: asyncio.Runner) -> Callable[[Awaitable[Any]], Any]:
    """Awaits something on the loop of the store."""

    async def awaited(what: Awaitable[Any]) -> Any:
        return await what

    return lambda what: runner.run(awaited(what))


@pytest.fixture
def store(database_url: str, face: str, clock: FrozenClock, do: Callable[[Awaitable[Any]], Any]) -> Iterator[Store | AsyncStore]:
    """A Store, or an AsyncStore on the loop of `do`."""
    if face == "sync":
        with Store.open(database_url, clock=clock) as store:
            yield store
        return
    other = do(AsyncStore.open(database_url, clock=clock))
    yield other
    do(other.close())


@pytest.fixture
def look(database_url: str, clock: FrozenClock) -> Iterator[Store]:
    """Another store on the same database, for what everybody else sees."""
    with Store.open(database_url, clock=clock) as store:
        yield store


@pytest.fixture
def spawn(database_url: str, request: pytest.FixtureRequest) -> Iterator[Spawn]:
    """`spawn(command, *arguments)` starts the worker of the test's folder on its database; none outlives the test."""
    with spawning(f"tests.integrations.{request.path.parent.name}.worker", database_url) as start:
        yield start


@pytest.fixture
def execute(store: Any, database_url: str) -> Iterator[Callable[[str], int]]:
    """Executes SQL on a connection that is not the store's; the number of rows that it changed."""
    options = {} if database_url.startswith("sqlite") else {"options": "-c search_path=persist"}
    engine = create_engine(database_url.replace("postgresql://", "postgresql+psycopg://"), connect_args=options)

    def executed(statement: str) -> int:
        with engine.begin() as connection:
            return connection.exec_driver_sql(statement).rowcount

    yield executed
    engine.dispose()


@pytest.fixture
def meter(postgres_url: str) -> Iterator[Meter]:
    """Counts how often a store waits for an answer of Postgres."""
    with metered(postgres_url) as meter:
        yield meter
