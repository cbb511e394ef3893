"""A server with two tenants, `acme` and `beta`, behind both faces."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from persist import AsyncTenants, Tenants
from persist.testing import FrozenClock
from tests.async_portal import SyncFace
from tests.contract.conftest import Raw
from tests.seeded_databases import with_file


def two_tenants(url: str) -> None:
    """Make a migrated Postgres database one with two tenants: what was migrated gets the name of the first one."""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("ALTER SCHEMA persist RENAME TO acme")
    with Tenants(url) as tenants:
        tenants.create("beta")


@pytest.fixture
def server_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of the server."""
    if backend == "postgres":
        databases = request.getfixturevalue("databases").filled(two_tenants)
        url = databases.create()
        yield url
        databases.drop(url)
        return
    folder = tmp_path / "tenants"
    folder.mkdir()
    for name in ("acme", "beta"):
        with_file(f"sqlite:///{(folder / name).as_posix()}.db")
    yield f"sqlite:///{folder.as_posix()}"


@pytest.fixture
def empty_server(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of another server, without tenants."""
    if backend == "postgres":
        return str(request.getfixturevalue("new_postgres_database")(migrated=False))
    folder = tmp_path / "other"
    folder.mkdir()
    return f"sqlite:///{folder.as_posix()}"


@pytest.fixture
def open_tenants(server_url: str, face: str, clock: FrozenClock, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """`open_tenants(**options)` makes Tenants, or AsyncTenants behind the same face; all are closed at the end."""
    with ExitStack() as stack:

        def open_(urls: Any = server_url, **options: Any) -> Any:
            options = {"clock": clock} | options
            tenants: Any = Tenants(urls, **options)
            if face == "async":
                tenants = SyncFace(request.getfixturevalue("portal"), AsyncTenants(urls, **options))
            stack.callback(tenants.close)
            return tenants

        yield open_


@pytest.fixture
def tenants(open_tenants: Callable[..., Any]) -> Any:
    return open_tenants()


@pytest.fixture
def store(tenants: Any) -> Iterator[Any]:
    """The store of a tenant."""
    with tenants.open("acme") as store:
        yield store


@pytest.fixture
def open_kept(tenants: Any) -> Iterator[Callable[[], Any]]:
    """Another use of the same tenant."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(tenants.open("acme"))


@pytest.fixture
def raw(store: Any, server_url: str) -> Iterator[Raw]:
    """A raw connection to the tenant's tables."""
    raw = Raw(f"{server_url}/acme.db" if server_url.startswith("sqlite") else server_url)
    if not raw.is_sqlite:
        raw._connection.execute("SET search_path = acme")
    yield raw
    raw.close()
