"""How an item is shown in a chat: its role and AI SDK parts. The item itself is stored unchanged beside them."""

import json
import re
from dataclasses import dataclass
from typing import Any

from persist.chat.schemas import Role, ToolState
from persist.db.values.json import DEFAULT_LIMITS, Json, JsonLimits, check
from persist.errors import InvalidValue

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
        return MessageForm(Role.ASSISTANT, [_call(item, kind)])
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


def _call(item: Item, kind: str) -> Part:
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
