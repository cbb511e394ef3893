"""Text, reasoning, sources, files and data: what each chunk does to the message."""

from collections.abc import Mapping
from typing import Any

import orjson

from persist.chat.changes import Change
from persist.chat.message_state import MessageState
from persist.chat.open_parts import named
from persist.chat.parts import PartState, picked
from persist.errors import StreamProtocolError

Chunk = Mapping[str, Any]


def text_start(state: MessageState, chunk: Chunk, change: Change) -> None:
    """A new text part; an open one with the same id is left as it is, but one that an earlier recorder left open goes on."""
    if _goes_on(state, state.text, "text", chunk, change):
        return
    part = change.append(state, {"type": "text", "text": "", **picked(chunk, "providerMetadata"), "state": "streaming"})
    change.put(state.text, chunk["id"], part)


def text_delta(state: MessageState, chunk: Chunk, change: Change) -> None:
    """More text for the open part of that id."""
    _delta(_open_part(state.text, "text", chunk, change), chunk, change)


def text_end(state: MessageState, chunk: Chunk, change: Change) -> None:
    """The text part is done."""
    _end(state.text, "text", chunk, change)


def reasoning_start(state: MessageState, chunk: Chunk, change: Change) -> None:
    """A new reasoning part, in a namespace of its own."""
    if _goes_on(state, state.reasoning, "reasoning", chunk, change):
        return
    data = {**picked(chunk, "id", "providerMetadata"), "type": "reasoning", "text": "", "state": "streaming"}
    change.put(state.reasoning, chunk["id"], change.append(state, data))


def reasoning_delta(state: MessageState, chunk: Chunk, change: Change) -> None:
    """More text for the open reasoning part of that id."""
    _delta(_open_part(state.reasoning, "reasoning", chunk, change), chunk, change)


def reasoning_end(state: MessageState, chunk: Chunk, change: Change) -> None:
    """The reasoning part is done."""
    _end(state.reasoning, "reasoning", chunk, change)


def source_url(state: MessageState, chunk: Chunk, change: Change) -> None:
    """A source part, its known keys only."""
    change.append(state, picked(chunk, "type", "sourceId", "url", "title", "providerMetadata"))


def source_document(state: MessageState, chunk: Chunk, change: Change) -> None:
    """A source part, its known keys only."""
    change.append(state, picked(chunk, "type", "sourceId", "mediaType", "title", "filename", "providerMetadata"))


def file(state: MessageState, chunk: Chunk, change: Change) -> None:
    """A file part, its known keys only."""
    change.append(state, picked(chunk, "type", "mediaType", "url", "providerMetadata"))


def data(state: MessageState, chunk: Chunk, change: Change) -> None:
    """A part of the application's own; with an id, the first part of the same type and id gets the new data."""
    if chunk.get("transient"):
        return
    if "id" not in chunk:
        change.append(state, dict(chunk))
        return
    key = (chunk["type"], chunk["id"])
    part = state.data.get(key)
    if part is None:
        change.put(state.data, key, change.append(state, dict(chunk)))
    else:
        kept = {name: value for name, value in part.data.items() if name != "data"}
        change.rewrite(part, kept | picked(chunk, "data"))


def _goes_on(state: MessageState, opened: dict[str, PartState], name: str, chunk: Chunk, change: Change) -> bool:
    """Whether the chunk names a part that was left open: from here on it is open again."""
    if not state.left_open or chunk["id"] in opened:
        return False
    part = named(state.left_open, name, chunk["id"])
    if part is None:
        return False
    change.set(state, "left_open", [other for other in state.left_open if other is not part])
    change.put(opened, chunk["id"], part)
    metadata = picked(chunk, "providerMetadata")
    if metadata and not _same_json(metadata["providerMetadata"], part.data.get("providerMetadata")):
        change.rewrite(part, {**part.data, **metadata}, part.pieces)
    return True


def _open_part(open_parts: dict[str, PartState], name: str, chunk: Chunk, change: Change) -> PartState:
    part = open_parts.get(chunk["id"])
    if part is None:
        reason = f"no {name} part {chunk['id']!r} is open: a {name}-start comes first"
        raise StreamProtocolError(change.index, chunk["type"], reason)
    return part


def _delta(part: PartState, chunk: Chunk, change: Change) -> None:
    metadata = chunk.get("providerMetadata")
    if metadata is None or _same_json(metadata, part.data.get("providerMetadata")):
        change.extend(part, chunk["delta"])
    else:
        change.rewrite(part, {**part.data, "providerMetadata": metadata}, [part.more(), chunk["delta"]])


def _end(open_parts: dict[str, PartState], name: str, chunk: Chunk, change: Change) -> None:
    part = _open_part(open_parts, name, chunk, change)
    change.rewrite(part, {**part.data, **picked(chunk, "providerMetadata"), "state": "done"}, part.pieces)
    change.drop(open_parts, chunk["id"])


def _same_json(one: Any, other: Any) -> bool:
    """Some providers repeat their metadata on every delta. `==` alone would take 1 and true for the same."""
    try:
        return bool(one == other) and orjson.dumps(one) == orjson.dumps(other)
    except (TypeError, RecursionError):
        return False
