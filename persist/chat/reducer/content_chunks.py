"""How chunks of text, reasoning, sources, files and data change the message."""

from collections.abc import Mapping
from typing import Any

import orjson

from persist.chat.reducer.message_state import MessageState
from persist.chat.reducer.open_parts import opened_by
from persist.chat.reducer.parts import Part, PartState, picked
from persist.chat.reducer.undo import Change
from persist.errors import StreamProtocolError
from persist.settings import AiSdk

Chunk = Mapping[str, Any]


def text_start(state: MessageState, chunk: Chunk, change: Change) -> None:
    """Append a text part, or continue the one an earlier recorder left open. An open part with the same id stays unfinished."""
    if _reopen(state, state.text, "text", chunk, change):
        return
    part = change.append(state, {"type": "text", "text": "", **picked(chunk, "providerMetadata"), "state": "streaming"})
    change.put(state.text, chunk["id"], part)


def text_delta(state: MessageState, chunk: Chunk, change: Change) -> None:
    """Add text to the open text part with the chunk's id."""
    _delta(_open_part(state.text, "text", chunk, change), chunk, change)


def text_end(state: MessageState, chunk: Chunk, change: Change) -> None:
    """Set the text part's state to done, with its citations in AI SDK 7."""
    _end(state.text, "text", chunk, change, picked(chunk, "citations") if state.ai_sdk >= AiSdk.V7 else {})


def reasoning_start(state: MessageState, chunk: Chunk, change: Change) -> None:
    """Append a reasoning part. Its id may equal that of an open text part: each kind has its own ids."""
    if _reopen(state, state.reasoning, "reasoning", chunk, change):
        return
    data = {**picked(chunk, "id", "providerMetadata"), "type": "reasoning", "text": "", "state": "streaming"}
    change.put(state.reasoning, chunk["id"], change.append(state, data))


def reasoning_delta(state: MessageState, chunk: Chunk, change: Change) -> None:
    """Add text to the open reasoning part with the chunk's id."""
    _delta(_open_part(state.reasoning, "reasoning", chunk, change), chunk, change)


def reasoning_end(state: MessageState, chunk: Chunk, change: Change) -> None:
    """Set the reasoning part's state to done."""
    _end(state.reasoning, "reasoning", chunk, change, {})


def source_url(state: MessageState, chunk: Chunk, change: Change) -> None:
    """Append a source-url part with the chunk's known keys."""
    change.append(state, picked(chunk, "type", "sourceId", "url", "title", "providerMetadata"))


def source_document(state: MessageState, chunk: Chunk, change: Change) -> None:
    """Append a source-document part with the chunk's known keys."""
    change.append(state, picked(chunk, "type", "sourceId", "mediaType", "title", "filename", "providerMetadata"))


def file(state: MessageState, chunk: Chunk, change: Change) -> None:
    """Append a file or reasoning-file part with the chunk's known keys."""
    change.append(state, picked(chunk, "type", "mediaType", "url", "providerMetadata"))


def custom(state: MessageState, chunk: Chunk, change: Change) -> None:
    """Append a provider's own part with the chunk's known keys."""
    change.append(state, picked(chunk, "type", "kind", "providerMetadata"))


def steering_message(state: MessageState, chunk: Chunk, change: Change) -> None:
    """Append a user message that was given to the model between two steps."""
    change.append(state, picked(chunk, "type", "id", "parts"))


def data(state: MessageState, chunk: Chunk, change: Change) -> None:
    """Append the application's own data part; with an id, the first part of that type and id gets the new data instead."""
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
        unchanged = {name: value for name, value in part.data.items() if name != "data"}
        change.rewrite(part, unchanged | picked(chunk, "data"))


def _reopen(state: MessageState, opened: dict[str, PartState], name: str, chunk: Chunk, change: Change) -> bool:
    """Reopen the part an earlier recorder left open under the chunk's id; False if there is none."""
    if not state.left_open or chunk["id"] in opened:
        return False
    part = opened_by(state.left_open, name, chunk["id"])
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
        change.rewrite(part, {**part.data, "providerMetadata": metadata}, [part.pending_text(), chunk["delta"]])


def _end(open_parts: dict[str, PartState], name: str, chunk: Chunk, change: Change, more: Part) -> None:
    part = _open_part(open_parts, name, chunk, change)
    change.rewrite(part, {**part.data, **picked(chunk, "providerMetadata"), **more, "state": "done"}, part.pieces)
    change.drop(open_parts, chunk["id"])


def _same_json(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON, for providers that repeat metadata on every delta. `==` takes 1 for true."""
    try:
        return bool(one == other) and orjson.dumps(one) == orjson.dumps(other)
    except (TypeError, RecursionError):
        return False
