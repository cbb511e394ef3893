"""Servers and sessions: those that lack what persist's writers agree by, and settings that it does not take from a role."""

from typing import Any

from persist.errors import UnsupportedEngine

_LACKS = (
    "it lacks LISTEN and NOTIFY, LOCK TABLE, and advisory locks that hold, by which the processes of persist agree; "
    "use PostgreSQL, or what is built from it, as Citus is."
)


RELIED_ON = {"default_transaction_isolation": "read committed", "extra_float_digits": "1"}
"""Settings that a role or a database may have, and the values that persist works with: writers wait for each other's rows instead
of failing, and numbers are read as they were written."""

_BY_HOSTS = "persist sets its own, and other programs and the engines of hosts do not"
SETTINGS_THAT_MATTER = {
    **{name: (value, _BY_HOSTS) for name, value in RELIED_ON.items()},
    "default_transaction_read_only": ("off", "whatever writes is Unavailable"),
    "session_replication_role": ("origin", "foreign keys and triggers do not work, so deletes leave rows behind"),
}
"""The value that each should have, and what becomes of another one, for `persist doctor`."""


def own_settings(session: int) -> bytes:
    """SQL for the names of settings that are others than persist's. Those of the server's process `session` are set instead.

    That process is the client's own unless a pooler is between them, whose next client must not find them.
    """
    return b" || ".join(
        f"CASE WHEN current_setting('{name}') = '{value}' THEN '' WHEN pg_backend_pid() = {session}"
        f" THEN left(set_config('{name}', '{value}', false), 0) ELSE '{name} ' END".encode()
        for name, value in RELIED_ON.items()
    )


def of_one_transaction(names: str) -> bytes | None:
    """The SELECT that sets these settings until the transaction ends; None if there are none."""
    set_each = [f"set_config('{name}', '{RELIED_ON[name]}', true)" for name in names.split()]
    return f"SELECT {', '.join(set_each)}".encode() if set_each else None


def refuse_other_servers(driver: Any) -> None:
    """Raise UnsupportedEngine if a psycopg connection reaches CockroachDB or YugabyteDB. It takes no round trip.

    Both tell their name among the parameters that a server reports when a connection begins.
    """
    reported = driver.info.parameter_status
    if reported("crdb_version") is not None:
        raise UnsupportedEngine("CockroachDB", _LACKS)
    if "-YB-" in (reported("server_version") or ""):
        raise UnsupportedEngine("YugabyteDB", _LACKS)
