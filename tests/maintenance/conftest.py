"""Fixtures of maintenance: a database whose catalog a test may spoil, and a role that may only read."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

from persist import Store
from persist.testing import FrozenClock
from tests.maintenance.erasing_scenes import two_people
from tests.maintenance.filled import filled
from tests.maintenance.moving import CROSSING, PAIRS, Pair, new_url
from tests.seeded_databases import with_file


@pytest.fixture
def store(database_url: str, clock: FrozenClock) -> Iterator[Store]:
    """A store on the test's database: whoever maintains one has a Store, on a server, too."""
    with Store.open(with_file(database_url), clock=clock) as store:
        yield store


@pytest.fixture
def logged(database_url: str, clock: FrozenClock) -> Iterator[Store]:
    """A store that logs events."""
    with Store.open(with_file(database_url), clock=clock, events=True) as store:
        yield store


@pytest.fixture
def people(database_url: str, clock: FrozenClock) -> Iterator[Store]:
    """A store that logs events, with what Maria and Peter have stored."""
    with two_people(database_url, clock) as store:
        yield store


@pytest.fixture
def url(database_url: str) -> str:
    """The test's database, by a shorter name."""
    return database_url


@pytest.fixture
def new_file(tmp_path: Path) -> Callable[[], str]:
    """A function that makes one more file of a store, and gives its URL."""
    numbers = count()
    return lambda: with_file(f"sqlite:///{tmp_path / f'new-{next(numbers)}.db'}")


@pytest.fixture(scope="module")
def filled_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with something in every table, and nothing running."""
    return filled(f"sqlite:///{tmp_path_factory.mktemp('filled') / 'state.db'}", FrozenClock()).path


@pytest.fixture
def other_kind(backend: str, request: pytest.FixtureRequest) -> str:
    """A new database of the other kind."""
    return str(request.getfixturevalue("sqlite_url" if backend == "postgres" else "postgres_url"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that move rows do so from either database to the other; those of `every_way` to another of its own kind, too.

    In the lane of a change a test without the mark moves them one way, which the letters of its name choose, and one of
    `one_database`, where it does not matter what the two are, from a file to a file.
    """
    if "pair" in metafunc.fixturenames:
        test, option = metafunc.definition, metafunc.config.getoption
        if test.get_closest_marker("every_way") is not None or option("--every-way"):
            pairs = PAIRS
        elif option("--lane"):
            one = test.get_closest_marker("one_database") is not None
            pairs = PAIRS[:1] if one else [CROSSING[sum(test.originalname.encode()) % 2]]
        else:
            pairs = CROSSING
        metafunc.parametrize("pair", pairs, indirect=True)


@pytest.fixture
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    """The URLs of two databases: the source and the target."""
    source, target = str(request.param).split("-")
    return new_url(request, source, tmp_path, "source.db"), new_url(request, target, tmp_path, "target.db")


@pytest.fixture
def own_postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A migrated database that no other test gets."""
    databases = request.getfixturevalue("databases")
    url = databases.create()
    yield url
    databases.drop(url)


@pytest.fixture
def own_database_url(backend: str, request: pytest.FixtureRequest) -> str:
    """The same on both databases."""
    return str(request.getfixturevalue("sqlite_url" if backend == "sqlite" else "own_postgres_url"))


@pytest.fixture
def new_role() -> Iterator[Callable[[str], str]]:
    """`new_role(url)`: the URL of a role that may read persist's schema and nothing else."""
    with ExitStack() as stack:

        def create(url: str) -> str:
            name, password = f"persist_reader_{secrets.token_hex(6)}", secrets.token_hex(8)
            role = sql.Identifier(name)
            with psycopg.connect(url) as connection:
                connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, sql.Literal(password)))
                connection.execute(sql.SQL("GRANT USAGE ON SCHEMA persist TO {}").format(role))
                for kind in (sql.SQL("TABLES"), sql.SQL("SEQUENCES")):
                    connection.execute(sql.SQL("GRANT SELECT ON ALL {} IN SCHEMA persist TO {}").format(kind, role))
            stack.callback(_drop, url, role)
            return make_url(url).set(username=name, password=password).render_as_string(hide_password=False)

        yield create


def _drop(url: str, role: sql.Identifier) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(sql.SQL("DROP OWNED BY {}").format(role))
        connection.execute(sql.SQL("DROP ROLE {}").format(role))


@pytest.fixture
def keeps_connections() -> bool:
    """No: what is in a file here, or in a copy of one, is not what a store found that an earlier test opened."""
    return False
