"""Messages as agent frameworks keep them, as a page shows them: of histories, and events of application sessions.

They are JSON that the frameworks wrote; what is of another shape is shown as a value.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from persist.framework_state.app_sessions.schemas import AppSessionEvent
from persist.framework_state.histories.schemas import Entry
from persist.sessionlog.envelope import instant_of
from persist.ui.said import Call, Piece, Said, pieces_of, value_of

_CHANGES = {"state_delta": "state", "stateDelta": "state", "artifact_delta": "artifacts", "artifactDelta": "artifacts"}
"""What an event of an application's session sets beside what it says, by the field that says so."""


def said_in_entry(entry: Entry, place: int) -> Said:
    """A message of a history: a request to a model, its response, or a message of any other kind."""
    message = entry.message
    parts = message.get("parts") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(parts, list):
        return _plain(entry, place)
    kind = str(message.get("kind", entry.kind))
    speaker = {"request": "user", "response": "assistant"}.get(kind, "other")
    at, model = instant_of(message.get("timestamp")) or entry.created_at, message.get("model_name")
    said = Said(place, kind, speaker, at, model if isinstance(model, str) else None)
    for part in parts:
        said = _with_part(said, part)
    return said


def _plain(entry: Entry, place: int) -> Said:
    """A message with a role and a content, or one of unknown shape."""
    message = entry.message
    role = message.get("role") if isinstance(message, dict) else None
    if isinstance(message, dict) and isinstance(role, str) and "content" in message:
        speaker = role if role in ("user", "assistant", "system", "tool") else "other"
        return Said(place, role, speaker, entry.created_at, None, list(pieces_of(message["content"], "markdown")))
    return Said(place, entry.kind, "other", entry.created_at, None, list(pieces_of(message, "markdown")))


def _with_part(said: Said, part: Any) -> Said:
    kind = part.get("part_kind") if isinstance(part, dict) else None
    content = part.get("content") if isinstance(part, dict) else None
    match kind:
        case "thinking" if isinstance(content, str):
            said.pieces.extend(pieces_of(content, "reasoning"))
        case "text" | "user-prompt" | "system-prompt":
            said.pieces.extend(pieces_of(content, "markdown"))
        case "tool-call":
            given = part.get("args")
            said.calls.append(_call(part.get("tool_name"), part.get("tool_call_id"), given))
        case None if isinstance(content, str):
            said.pieces.extend(pieces_of(content, "markdown"))
        case "tool-return" | "retry-prompt":
            said.facts.append(("answer of", str(part.get("tool_name", "?"))))
            said.pieces.extend(pieces_of(content, "text"))
        case _:
            said.pieces.append(Piece("tree", part))
    return said


def _call(name: object, id: object, given: Any) -> Call:
    found = value_of(given) if isinstance(given, str) else given
    return Call(str(name), id if isinstance(id, str) else None, next(pieces_of(found, "text"), None))


def said_in_event(event: AppSessionEvent) -> Said:
    """An event of an application's session: its texts, the functions it calls, and what these returned."""
    author = event.author or "?"
    said = Said(event.position, author, "user" if author == "user" else "assistant", _at(event.timestamp), event.id)
    data = value_of(event.data)
    content = data.get("content") if isinstance(data, Mapping) else None
    parts = content.get("parts") if isinstance(content, Mapping) else None
    if isinstance(parts, list):
        for part in parts:
            _add_part(said, part)
    elif not isinstance(data, Mapping):
        said.pieces.append(Piece("tree", data))
    actions = data.get("actions") if isinstance(data, Mapping) else None
    for name, word in _CHANGES.items():
        if isinstance(actions, Mapping) and actions.get(name):
            said.calls.append(Call(word, None, Piece("tree", actions[name]), "sets"))
    return said


def _add_part(said: Said, part: Any) -> None:
    text = part.get("text") if isinstance(part, dict) else None
    if isinstance(text, str):
        said.pieces.extend(pieces_of(text, "reasoning" if part.get("thought") is True else "markdown"))
        return
    for name in ("function_call", "functionCall"):
        call = part.get(name) if isinstance(part, dict) else None
        if isinstance(call, dict):
            said.calls.append(_call(call.get("name"), call.get("id"), call.get("args")))
            return
    for name in ("function_response", "functionResponse"):
        answer = part.get(name) if isinstance(part, dict) else None
        if isinstance(answer, dict):
            said.facts.append(("answer of", str(answer.get("name", "?"))))
            said.pieces.append(Piece("tree", answer.get("response")))
            return
    said.pieces.append(Piece("tree", part))


def _at(timestamp: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(timestamp, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def readable(data: bytes) -> Any:
    """What bytes of a protocol hold if they are JSON, or text without characters that steer; else how many there are."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        pass
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    return text if all(one.isprintable() or one in "\n\t" for one in text[:4096]) else f"{len(data):,} bytes"
