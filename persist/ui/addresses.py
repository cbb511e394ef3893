"""Addresses: ids of any text as a part of a path, and back; queries with a filter changed."""

import re
from collections.abc import Mapping
from urllib.parse import quote, urlencode

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
"""What stands in an address as it is."""


def segment(id: object) -> str:
    """An id as one part of a path. Servers decode a path before they split it, so what they would split at is quoted twice."""
    text = str(id)
    if _PLAIN.fullmatch(text):
        return text
    text = text.replace("%", "%25").replace("/", "%2F")
    if text in ("", ".", ".."):
        text = text.replace(".", "%2E") or "%00"
    return quote(text, safe="", errors="replace")


def from_segment(part: str) -> str:
    """The id that `segment` made this part of: the server has decoded it once."""
    return part.replace("%00", "").replace("%2E", ".").replace("%2F", "/").replace("%25", "%")


def with_query(path: str, query: Mapping[str, object]) -> str:
    """The address with a query; what is None or empty is left out."""
    given = {name: str(value) for name, value in query.items() if value is not None and value != ""}
    return f"{path}?{urlencode(given, errors='replace')}" if given else path


def is_local(address: str) -> bool:
    """Whether an address leads to a page of the same application, and nowhere else."""
    plain = address.isascii() and address.isprintable() and "\\" not in address
    return plain and address.startswith("/") and not address.startswith("//")
