"""URLs of Postgres servers as its own library reads them: several hosts, folders of sockets as hosts, and their options."""

import re
from functools import cache
from typing import Any
from urllib.parse import unquote

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from persist.errors import InvalidValue, UnsupportedEngine, shown

DRIVERS = frozenset({"postgres", "postgresql", "postgresql+psycopg"})
_SEVERAL = re.compile(
    r"(?P<head>[\w+]+://(?:[^:/@?]*(?::[^@]*)?@)?)(?P<hosts>[^/?@]*,[^/?@]*|[^/?@,]*:)(?P<tail>[/?].*)?", re.DOTALL
)
_HOST = re.compile(r"(?P<name>\[[^]]*]|[^:]*)(?::(?P<port>[0-9]*))?")
_PORTS = re.compile(r"[0-9]{0,5}(,[0-9]{0,5})*")
_ADVICE = {
    "pgbouncer": "say pooler='transaction' or set PERSIST_POOLER=transaction, if the pooler must be told at all",
    "schema": "give schema= (--schema on the command line) or set PERSIST_SCHEMA_NAME",
    "search_path": "give schema= (--schema on the command line) or set PERSIST_SCHEMA_NAME",
    "prepare_threshold": "persist prepares its own statements, and none where it finds a pooler",
    "replication": "a connection for replication runs none of persist's statements",
    **dict.fromkeys(
        ("autocommit", "conninfo", "context", "cursor_factory", "row_factory"),
        "it belongs to calls of psycopg.connect, and persist makes these itself",
    ),
    **dict.fromkeys(("connection_limit", "pool_size", "pool_timeout"), "persist's pools are as wide as they need to be"),
}
"""Advice for options of other programs in copied URLs."""


def is_server(url: str | URL) -> bool:
    """Whether the URL is that of a Postgres server, by how it begins."""
    return (url.drivername if isinstance(url, URL) else url.partition("://")[0]) in DRIVERS


def server_url(text: str | URL) -> URL:
    """The URL, with what the server's library reads as hosts written as its options `host` and `port`. Raises ArgumentError."""
    several = None if isinstance(text, URL) else _SEVERAL.fullmatch(text)
    url = make_url(text if several is None else f"{several['head']}{several['tail'] or ''}")
    hosts, ports = [], []
    if several is not None:
        for one in several["hosts"].split(","):
            found = _HOST.fullmatch(one)
            if found is None:
                raise ArgumentError("a host that is none")
            hosts.append(unquote(found["name"].strip("[]")))
            ports.append(found["port"] or "")
    elif "%" in (url.host or ""):
        hosts, ports = [unquote(str(url.host))], [str(url.port or "")]
        url = url._replace(host=None, port=None)
    if hosts and "host" not in url.query:
        url = url.update_query_dict({"host": ",".join(hosts), **({"port": ",".join(ports)} if any(ports) else {})})
    return url


def check_options(path: str, url: URL) -> None:
    """Raise InvalidValue for an option that the server's library does not have, or that persist could not work with."""
    for name, value in url.query.items():
        if name == "port" and not _PORTS.fullmatch(",".join([value] if isinstance(value, str) else value)):
            raise InvalidValue(path, "its option port is not made of numbers.")
        known = name in _known() and name not in _ADVICE
        if known and (isinstance(value, str) or name in ("host", "port")):
            continue
        if known:
            raise InvalidValue(path, f"its option {name} is given twice.")
        advice = _ADVICE.get(name, "the server's library, libpq, has none of that name")
        raise InvalidValue(path, f"its option {shown(name)} does nothing here: leave it out; {advice}.")


@cache
def _known() -> frozenset[str]:
    return frozenset(option.keyword.decode() for option in driver().pq.Conninfo.get_defaults())


def driver() -> Any:
    """The module psycopg. Raises UnsupportedEngine without it."""
    try:
        import psycopg
    except ImportError as error:
        raise UnsupportedEngine("postgresql", "install agent-persist[postgres] for the psycopg driver.") from error
    return psycopg
