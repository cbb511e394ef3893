"""A migrated Postgres database for every test.

Migrating takes long and copying a database does not, so one template is migrated once, tests get copies of it, and what a test
gives back is cleaned for the next one.
"""

import itertools
import time
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from tests.database_cleaning import Clean, cleaner
from tests.distributed_server import Cluster

_MAX_IDLE = 6
"""Given back and kept: each has a connection, and a server allows a hundred."""


class Databases:
    """Databases on one server: empty ones, and copies of a template that `migrate` fills when the first copy is asked for."""

    def __init__(
        self,
        server_url: str,
        migrate: Callable[[str], object],
        forget: Callable[[str], object] = str,
        base: Callable[[], str] = lambda: "template0",
    ) -> None:
        """`forget(url)` is called before one of them is dropped; `base()` names what `migrate` begins with a copy of."""
        self._server_url, self._forget, self._base = server_url, forget, base
        self._migrate = migrate
        self._admin = psycopg.connect(server_url, autocommit=True)
        self._cluster = Cluster.of(self._admin, server_url)
        # Unique across sessions that share a server, and recognisable to whoever finds one that a killed session left.
        self._names = (f"persist_test_{uuid.uuid4().hex[:8]}_{number}" for number in itertools.count())
        self._template: str | None = None
        self._clean: Clean | None = None
        self._cleaners: dict[str, psycopg.Connection[Any]] = {}
        self._idle: list[str] = []
        self._filled: dict[Callable[[str], object], Databases] = {}

    def filled(self, fill: Callable[[str], object]) -> "Databases":
        """Those that `fill(url)` was done to, once for all of them."""
        if fill not in self._filled:

            def migrate(url: str) -> None:
                if self._cluster is not None:  # whose databases are no copies
                    self._migrate(url)
                fill(url)

            self._filled[fill] = Databases(self._server_url, migrate, self._forget, self._migrated)
        return self._filled[fill]

    def lend(self) -> str:
        """The URL of a migrated database: a new one, or one that was given back and is as good as new."""
        if self._idle:
            return self._idle.pop()
        url = self.create()
        self._cleaners[url] = cleaner(url)
        if self._clean is None:
            self._clean = Clean(self._cleaners[url])
        return url

    def give_back(self, url: str) -> None:
        """Take it back after a test; one that cannot be cleaned is dropped."""
        assert self._clean is not None
        if len(self._idle) < _MAX_IDLE and self._clean.restore(self._cleaners[url]):
            self._idle.append(url)
        else:
            self.drop(url)

    def create(self, *, migrated: bool = True) -> str:
        """The URL of a new database."""
        name = next(self._names)
        if self._cluster is not None:
            self._cluster.create(name)
            if migrated:
                self._migrate(self._url(name))
        elif migrated:
            self._run("CREATE DATABASE {} TEMPLATE {}", name, self._migrated())
        else:
            self._run("CREATE DATABASE {} TEMPLATE {}", name, "template0")
        return self._url(name)

    def drop(self, url: str) -> None:
        """Drop the database, whoever is still connected."""
        self._forget(url)
        if (connection := self._cleaners.pop(url, None)) is not None:
            connection.close()
        name = urlsplit(url).path.removeprefix("/")
        if self._cluster is not None:
            self._cluster.drop(name)
        else:
            self._run("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def close(self) -> None:
        """Drop the template and what was given back; the databases of `create` are their takers' to drop."""
        for filled in self._filled.values():
            filled.close()
        with self._admin:
            for url in self._idle:
                self.drop(url)
            if self._template is not None:
                self.drop(self._url(self._template))

    def _migrated(self) -> str:
        """The name of the template."""
        return self._template or self._make_template()

    def _make_template(self) -> str:
        name = next(self._names)
        url = self._url(name)
        self._run("CREATE DATABASE {} TEMPLATE {}", name, self._base())
        try:
            self._migrate(url)
        except BaseException:
            self.drop(url)
            raise
        # A database with connections cannot be copied: who forgot to close one hears of it here, once, not in a random test.
        # The server notices a close a moment after it was sent.
        deadline = time.monotonic() + 5
        while self._connections(name):
            if time.monotonic() > deadline:
                self.drop(url)
                raise RuntimeError("the migration left a connection open")
            time.sleep(0.01)
        self._run("ALTER DATABASE {} WITH ALLOW_CONNECTIONS false", name)
        self._template = name
        return name

    def _connections(self, name: str) -> bool:
        row = self._admin.execute("SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = %s", (name,)).fetchone()
        return row is not None and bool(row[0])

    def _url(self, name: str) -> str:
        return urlunsplit(urlsplit(self._server_url)._replace(path=f"/{name}"))

    def _run(self, statement: str, *names: str) -> None:
        self._admin.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))
