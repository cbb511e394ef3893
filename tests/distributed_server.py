"""Databases on a Citus cluster, where each schema is a tenant that lives whole on one node.

`PERSIST_TEST_POSTGRES_URL` names a database of the cluster's coordinator that has the extension and knows the workers. Tests get
databases that are set up like it: a database that is copied from a template would name the template's shards.
"""

from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql


class Cluster:
    """The nodes of a cluster: the coordinator and its workers."""

    def __init__(self, coordinator_url: str, workers: list[tuple[str, int]]) -> None:
        self._coordinator_url, self._workers = coordinator_url, workers

    @classmethod
    def of(cls, admin: psycopg.Connection[Any], url: str) -> "Cluster | None":
        """The cluster whose coordinator this connection reaches; None on any other server."""
        if not is_cluster(admin):
            return None
        query = "SELECT nodename, nodeport FROM pg_dist_node WHERE groupid > 0 AND isactive ORDER BY nodeid"
        return cls(url, admin.execute(query).fetchall())

    def create(self, name: str) -> None:
        """Create a database on every node, and have the coordinator make each of its schemas a tenant."""
        for url in self._urls():
            self._run(url, "CREATE DATABASE {}", name)
            self._run(_in(url, name), "CREATE EXTENSION citus")
        coordinator = _in(self._coordinator_url, name)
        parts = urlsplit(self._coordinator_url)
        with psycopg.connect(coordinator, autocommit=True) as connection:
            connection.execute("SELECT citus_set_coordinator_host(%s, %s)", (parts.hostname, parts.port or 5432))
            for host, port in self._workers:
                connection.execute("SELECT citus_add_node(%s, %s)", (host, port))
        self._run(self._coordinator_url, "ALTER DATABASE {} SET citus.enable_schema_based_sharding TO on", name)

    def drop(self, name: str) -> None:
        """Drop the database on every node, whoever is still connected."""
        for url in self._urls():
            self._run(url, "DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def _urls(self) -> list[str]:
        parts = urlsplit(self._coordinator_url)
        user = "" if parts.username is None else f"{parts.netloc.rpartition('@')[0]}@"
        return [
            self._coordinator_url,
            *(urlunsplit(parts._replace(netloc=f"{user}{host}:{port}")) for host, port in self._workers),
        ]

    @staticmethod
    def _run(url: str, statement: str, *names: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


def is_cluster(connection: psycopg.Connection[Any]) -> bool:
    """Whether the connection's database is spread over nodes."""
    found = connection.execute("SELECT count(*) FROM pg_extension WHERE extname = 'citus'").fetchone()
    return found is not None and bool(found[0])


def takes_triggers(url: str) -> bool:
    """Whether the tables of the database may have triggers: those of a cluster may not."""
    if url.startswith("sqlite"):
        return True
    with psycopg.connect(url) as connection:
        return not is_cluster(connection)


def _in(url: str, database: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))
