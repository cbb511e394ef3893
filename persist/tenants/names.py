"""Which names tenants may have: those that mean one tenant everywhere, as a schema, a file and a word in a command."""

import re

from persist.errors import InvalidValue
from persist.quoting import named

MAX_BYTES = 63
"""The longest name in bytes: Postgres cuts longer identifiers off, so that two tenants would share a schema."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_OF_SERVERS = {"public", "information_schema", "citus", "citus_internal", "columnar", "columnar_internal"}
_OF_WINDOWS = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}
_BEGINNINGS = ("pg_", "persist")


def is_tenant(name: str) -> bool:
    """Whether a tenant may have the name."""
    return (
        _NAME.fullmatch(name) is not None
        and name not in _OF_SERVERS
        and name not in _OF_WINDOWS
        and not name.startswith(_BEGINNINGS)
    )


def check_tenant(name: object) -> str:
    """Return the name of a tenant, or raise InvalidValue.

    A name has lower-case letters of ASCII, digits and underscores, begins with a letter, and has at most 63 bytes. Capital
    letters are refused, because some file systems and unquoted SQL do not tell them apart, and letters outside of ASCII, because
    one of them can be written in several ways. Names that the databases, Windows or persist keep for themselves are refused.
    """
    if not isinstance(name, str):
        raise InvalidValue("tenant", f"{named(name)} is not text.")
    if len(name.encode("utf-8", "replace")) > MAX_BYTES:
        raise InvalidValue("tenant", f"{named(name)} is longer than {MAX_BYTES} bytes.")
    if _NAME.fullmatch(name) is None:
        raise InvalidValue(
            "tenant", f"{named(name)} is no name of lower-case letters a to z, digits and underscores that begins with a letter."
        )
    if not is_tenant(name):
        raise InvalidValue("tenant", f"{named(name)} is a name that the database, Windows or persist keeps for itself.")
    return name
