"""How an item is stored: as JSON text in the metadata of a chat message."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from persist.chat.schemas import Role, ToolState
from persist.chat.storage.folding import stored_objects
from persist.db.statements.prepared import Row
from persist.db.values.json import DEFAULT_LIMITS, Json, JsonLimits, check
from persist.errors import InvalidValue
from persist.integrations.json_keys import check_keys
from persist.integrations.store_bridge import kind_of

# How an item is shown in a chat: its role and AI SDK parts. The item itself is stored unchanged beside them.

Item = dict[str, Any]
Part = dict[str, Any]
OTHER = "data-openai-agents"
"""The type of a part for an item that is not shown, with the item's type."""
_ROLES = {"user": Role.USER, "system": Role.SYSTEM, "developer": Role.SYSTEM}
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_DEEPEST = JsonLimits(max_bytes=DEFAULT_LIMITS.max_bytes, max_depth=DEFAULT_LIMITS.max_depth // 2)  # depth for the part around it
_DATA_URL = re.compile(r"data:([a-z0-9.+-]+/[a-z0-9.+-]+)[;,]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MessageForm:
    """An item as a chat message. `answers`: the id of the tool call whose output the item is, None for others."""

    role: Role
    parts: list[Part]
    answers: str | None = None


def message_form(item: Item) -> MessageForm:
    """The chat form of any item. Messages, reasoning and calls become such parts; other items a part with their type."""
    kind = item.get("type")
    role = item.get("role")
    if isinstance(role, str) and kind in (None, "message"):
        return MessageForm(_ROLES.get(role, Role.ASSISTANT), _content(item.get("content")))
    if kind == "reasoning":
        return MessageForm(Role.ASSISTANT, _reasoning(item))
    call_id = item.get("call_id")
    if isinstance(kind, str) and isinstance(call_id, str) and kind.endswith("_call_output"):
        return MessageForm(Role.ASSISTANT, [{"type": OTHER, "data": {"type": kind, "toolCallId": call_id}}], answers=call_id)
    if isinstance(kind, str) and kind.endswith("_call"):
        return MessageForm(Role.ASSISTANT, [_call_part(item, kind)])
    return MessageForm(Role.ASSISTANT, [_other(item)])


def answered(item: Item, part: Part) -> Part:
    """The part of a call with the item's output, in state output-available."""
    return {**part, "state": str(ToolState.OUTPUT_AVAILABLE), "output": _plain(item.get("output"))}


def unanswered(part: Part) -> Part:
    """The part of a call without its output, in state input-available."""
    return {**{key: value for key, value in part.items() if key != "output"}, "state": str(ToolState.INPUT_AVAILABLE)}


def _content(content: Json) -> list[Part]:
    pieces = content if isinstance(content, list) else [content]
    return [_piece(piece) for piece in pieces]


def _piece(piece: Json) -> Part:
    if isinstance(piece, str):
        return {"type": "text", "text": piece}
    if isinstance(piece, dict):
        for key in ("text", "refusal"):
            if isinstance(piece.get(key), str):
                return {"type": "text", "text": piece[key]}
        for key, media in (("image_url", "image/*"), ("file_url", "application/octet-stream")):
            url = piece.get(key)
            if isinstance(url, str):
                named = _DATA_URL.match(url)
                return {"type": "file", "mediaType": named[1] if named else media, "url": url}
    return _other(piece)


def _reasoning(item: Item) -> list[Part]:
    texts = [
        piece["text"]
        for key in ("summary", "content")
        for piece in (item.get(key) if isinstance(item.get(key), list) else None) or ()
        if isinstance(piece, dict) and isinstance(piece.get("text"), str)
    ]
    return [{"type": "reasoning", "text": text, "state": "done"} for text in texts or [""]]


def _call_part(item: Item, kind: str) -> Part:
    """The part of a call. One that the application answers waits for its output; one that the provider executed has it."""
    call_id, name = item.get("call_id"), item.get("name")
    part: Part = {"type": "dynamic-tool", "toolName": name if isinstance(name, str) else kind.removesuffix("_call")}
    if _TOOL_NAME.fullmatch(part["toolName"]):
        part = {"type": f"tool-{part['toolName']}"}
    if isinstance(call_id, str):
        return {**part, "toolCallId": call_id, "state": str(ToolState.INPUT_AVAILABLE), "input": _input(item)}
    id = item.get("id")
    about = {key: value for key, value in item.items() if key not in ("type", "id", "name", "status")}
    done = {"toolCallId": id if isinstance(id, str) else "", "state": str(ToolState.OUTPUT_AVAILABLE)}
    return {**part, **done, "input": _plain(about), "output": _plain(item.get("output")), "providerExecuted": True}


def _input(item: Item) -> Json:
    for key in ("arguments", "input", "action", "operation"):
        if key in item:
            given = item[key]
            break
    else:
        return {}
    if isinstance(given, str):
        try:
            return _plain(json.loads(given))
        except (ValueError, RecursionError):
            return given
    return _plain(given)


def _other(value: Json) -> Part:
    kind = value.get("type") if isinstance(value, dict) else None
    return {"type": OTHER, "data": {"type": kind if isinstance(kind, str) else None}}


def _plain(value: Json) -> Json:
    """The value, or its JSON text if a chat cannot store it (NaN, huge integers, too deep)."""
    try:
        check(value, "value", _DEEPEST)
    except InvalidValue:
        return json.dumps(value, ensure_ascii=False)
    return value


KEY = "openai_agents"
"""The key of a message's metadata that holds the item as JSON text: a database's own JSON would lose the order of keys, NaN and
large integers. The text is in a list of one if it has numbers that only the slower parser reads exactly."""
_NUMBERS = re.compile(r"[0-9]{19}|NaN|Infinity")


class StoredItem(NamedTuple):
    """A visible message that holds an item, None if its `text` is unreadable; `counts`: in the session's counters."""

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
