"""Validates a message as its runtime dumps it and makes the columns of its row; writes nothing.

The fields are those of lionagi's `Message.model_dump()`, with or without mode="db" (docs/designs.md: ADR-0009).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from persist.conversations.storage.embeddings import pack
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import optional_label
from persist.db.values.clock import EPOCH, as_utc, epoch_real
from persist.db.values.json import Json
from persist.errors import InvalidValue
from persist.quoting import shown

_KEYS = frozenset(
    ["id", "created_at", "metadata", "node_metadata", "content", "embedding", "sender", "recipient", "channel", "role"],
)
_DEEPEST = 256  # levels; deeper than any valid value, so the check refuses what is left below them
_LATEST = 253_402_300_799.0  # the last second of the year 9999


def message_fields(work: UnitOfWork, message: object, *, path: str = "message") -> dict[str, Any]:
    """The columns of a message, `lion_class` still as the class path it names ("" for none)."""
    if not isinstance(message, Mapping):
        raise InvalidValue(path, f"expected a dict as model_dump() gives, got {type(message).__name__}.")
    unknown = sorted(key if isinstance(key, str) else shown(key) for key in message if key not in _KEYS)
    if unknown:
        raise InvalidValue(f"{path}.{unknown[0]}", "a message has no such field.")
    if "metadata" in message and "node_metadata" in message:
        raise InvalidValue(f"{path}.node_metadata", "a message says metadata or node_metadata, not both.")
    for required in ("id", "created_at"):
        if message.get(required) is None:
            raise InvalidValue(f"{path}.{required}", "it is required.")
    if message.get("content") is None:
        raise InvalidValue(f"{path}.content", "it is required; empty text, 0, False and empty lists are content, None is not.")
    role = message.get("role")
    if not isinstance(role, str) or not role.strip():
        raise InvalidValue(f"{path}.role", "expected text that is not blank.")
    metadata = node_metadata(work, f"{path}.node_metadata", message.get("node_metadata", message.get("metadata")))
    return {
        "id": work.label(f"{path}.id", _text(message["id"])),
        "created_at": epoch_of(f"{path}.created_at", message["created_at"]),
        "node_metadata": None if metadata is None else work.json(f"{path}.node_metadata", metadata),
        "lion_class": _class_of(f"{path}.node_metadata.lion_class", metadata),
        "content": work.json(f"{path}.content", plain(message["content"])),
        "embedding": pack(f"{path}.embedding", message.get("embedding")),
        "sender": optional_label(f"{path}.sender", _text(message.get("sender"))),
        "recipient": optional_label(f"{path}.recipient", _text(message.get("recipient"))),
        "channel": optional_label(f"{path}.channel", message.get("channel")),
        "role": work.label(f"{path}.role", str(role)),
        "stored_at": work.now(),
    }


def node_metadata(work: UnitOfWork, path: str, value: Json) -> dict[str, Any] | None:
    """Checked metadata: a JSON object or None."""
    if value is None:
        return None
    return work.json_object(path, plain(value))


def epoch_of(path: str, value: object) -> float:
    """Seconds since 1970: a number exactly as given, or the instant of an aware datetime."""
    if isinstance(value, datetime):
        return epoch_real(as_utc(path, value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(path, f"expected seconds since 1970 or an aware datetime, got {type(value).__name__}.")
    if not -_FIRST <= value <= _LATEST:  # also true for NaN
        raise InvalidValue(path, "it is no instant between the years 1 and 9999.")
    return float(value) + 0.0  # -0.0 becomes 0.0


_FIRST = (EPOCH - datetime.min.replace(tzinfo=EPOCH.tzinfo)).total_seconds()


def plain(value: Json, levels: int = _DEEPEST) -> Json:
    """The value with UUIDs as text and tuples as lists, as runtimes dump them; other types are left to the check."""
    if isinstance(value, UUID):
        return str(value)
    if levels == 0:
        return value
    if isinstance(value, Mapping):
        return {key: plain(one, levels - 1) for key, one in value.items()}
    if isinstance(value, tuple) or type(value) is list:
        return [plain(one, levels - 1) for one in value]
    return value


def _text(value: object) -> object:
    return str(value) if isinstance(value, UUID) else value


def _class_of(path: str, metadata: Mapping[str, Any] | None) -> str:
    named = None if metadata is None else metadata.get("lion_class")
    if named is None:
        return ""
    if not isinstance(named, str):
        raise InvalidValue(path, "expected the path of a class.")
    return optional_label(path, named, empty=True) or ""


def message_list(messages: object) -> Sequence[Any]:
    """A list of messages. Raises InvalidValue for a single message."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise InvalidValue("messages", "expected a list of messages.")
    return messages
