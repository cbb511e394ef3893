"""Reading the JSON objects of stored rows, which other programs may have written too."""

import logging
from typing import Any

from persist.db.hot import Statements
from persist.db.json import decode

log = logging.getLogger("persist")


def stored_object(db: Statements, stored: str, what: str) -> dict[str, Any]:
    """The object in the stored text of a Json column; anything unreadable counts as empty and is reported."""
    try:
        value = decode(db.wire(stored))
    except ValueError:
        log.warning("%s holds text that is not JSON; it is read as {}", what)
        return {}
    return value if isinstance(value, dict) else {}
