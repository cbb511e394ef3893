"""Servers that speak the protocol of Postgres, and lack what persist's writers agree by."""

from typing import Any

from persist.errors import UnsupportedEngine

_LACKS = (
    "it lacks LISTEN and NOTIFY, LOCK TABLE, and advisory locks that hold, by which the processes of persist agree; "
    "use PostgreSQL, or what is built from it, as Citus is."
)


def refuse_other_servers(driver: Any) -> None:
    """Raise UnsupportedEngine if a psycopg connection reaches CockroachDB or YugabyteDB. It takes no round trip.

    Both tell their name among the parameters that a server reports when a connection begins.
    """
    reported = driver.info.parameter_status
    if reported("crdb_version") is not None:
        raise UnsupportedEngine("CockroachDB", _LACKS)
    if "-YB-" in (reported("server_version") or ""):
        raise UnsupportedEngine("YugabyteDB", _LACKS)
