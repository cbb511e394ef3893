"""How an item is stored: as JSON text in the metadata of a chat message."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from persist.chat.storage.stored_json import stored_objects
from persist.db.statements.prepared import Row
from persist.db.values.json import Json
from persist.errors import InvalidValue
from persist.integrations.error_kinds import kind_of
from persist.integrations.json_keys import check_keys
from persist.integrations.openai_agents.parts import Item

KEY = "openai_agents"
"""The key of a message's metadata that holds the item as JSON text: a database's own JSON would lose the order of keys, NaN and
large integers. The text is in a list of one if it has numbers that only the slower parser reads exactly."""

_NUMBERS = re.compile(r"[0-9]{19}|NaN|Infinity")


class StoredItem(NamedTuple):
    """A visible message that holds an item.

    text    the item as it is stored
    item    the item; None if it is unreadable
    counts  whether the session's counters count the message
    """

    id: str
    text: Json
    item: Item | None
    counts: bool


def metadata_of(text: str) -> dict[str, Json]:
    """The metadata of the message that holds an item, given as JSON text."""
    return {KEY: [text] if _NUMBERS.search(text) else text}


def stored_items(rows: Sequence[Row], to_plain_json: Callable[[str], str]) -> list[StoredItem]:
    """The items among messages, given as (message id, text of the metadata): those that are visible, also unreadable ones."""
    found = zip(rows, stored_objects([row[1] for row in rows], to_plain_json), strict=True)
    stored = [(row[0], metadata) for row, metadata in found if metadata is not None and _is_item(metadata)]
    texts = [metadata[KEY] for _, metadata in stored]
    parsed = iter(stored_objects([text for text in texts if type(text) is str]))
    items = [next(parsed) if type(text) is str else _parse_exactly(text) for text in texts]
    return [
        StoredItem(id, text, item, "usage" in metadata) for (id, metadata), text, item in zip(stored, texts, items, strict=True)
    ]


def _is_item(metadata: dict[str, Any]) -> bool:
    return KEY in metadata and (len(metadata) == 1 or (metadata.get("hidden_at") is None and metadata.get("queued_at") is None))


def _parse_exactly(stored: Json) -> Item | None:
    """Parse an item with numbers that the fast parser would change; None if it is unreadable."""
    try:
        (text,) = stored
        item = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None
    return item if isinstance(item, dict) else None


def as_text(index: int, item: object) -> str:
    """An item as JSON text, as the framework itself would write it. Raises InvalidValue for values that JSON cannot express."""
    path = f"items[{index}]"
    if not isinstance(item, dict):
        raise InvalidValue(path, f"expected a dict, got {type(item).__name__}.")
    try:
        text = json.dumps(item, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        found = kind_of(error)
    else:
        check_keys(path, item)
        return text
    raise InvalidValue(path, f"it is no JSON: {found}.")
