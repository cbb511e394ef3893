"""Translating an agent's events into lines of a log: values, vocabularies and the envelope. Pure, without files."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, TypedDict

from persist.sessionlog.encoding import OnInvalid, to_json, truncate_tool_result


class Fsync(StrEnum):
    """When a writer calls fsync."""

    NEVER = "never"
    BATCH = "batch"
    CLOSE = "close"


class Scope(StrEnum):
    """The projects to list: of sandboxed agents, of chat turns, or both."""

    ALL = "all"
    SANDBOX = "sandbox"
    CHAT = "chat"


@dataclass(frozen=True, slots=True)
class LogMessage:
    """One message of a log. `index` counts from 0: messages when reading, lines of the file when tailing."""

    index: int
    msg: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SessionLogInfo:
    """A log file: where it is, its size in bytes, its first timestamp and its last write as aware UTC datetimes."""

    session_id: str
    project_slug: str
    path: Path
    started_at: datetime
    modified_at: datetime
    size: int


Line = dict[str, Any]
_USAGE = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_read_input_tokens": "cacheRead",
    "cache_creation_input_tokens": "cacheWrite",
}
_EXTENSION_FIELDS = ("status", "mode", "provider", "toolCount", "reason")


def user_line(content: Any, timestamp: str, session_id: str) -> Line:
    """The line of a prompt or of a tool's result."""
    return {"type": "user", "message": {"role": "user", "content": content}, "timestamp": timestamp, "sessionId": session_id}


def error_line(text: str, timestamp: str, session_id: str) -> Line:
    """The line for an error of the agent or the model's provider."""
    return {"type": "assistant", "isApiErrorMessage": True, "error": text, "timestamp": timestamp, "sessionId": session_id}


def result_line(totals: Mapping[str, Any], timestamp: str) -> Line:
    """The last line of a run: its totals that are not None, in the order given."""
    return {"type": "result", **{name: value for name, value in totals.items() if value is not None}, "timestamp": timestamp}


class RunResult(TypedDict, total=False):
    """How a run ended, and its totals: the fields of a log's `result` line. None is not written."""

    subtype: str | None
    result: str | None
    num_turns: int | None
    total_cost_usd: float | None
    total_input_tokens: int | None
    total_output_tokens: int | None
    total_cache_read_input_tokens: int | None
    total_cache_creation_input_tokens: int | None
    duration_ms: int | None
    stop_reason: str | None


def ended_in(subtype: str | None, stop_reason: str | None, *, failed: bool) -> str:
    """A `result` line's subtype: the one given, else for a failed run its stop reason or "error_fatal", else "success"."""
    if subtype is not None:
        return subtype
    return (stop_reason or "error_fatal") if failed else "success"


class Translator:
    """Translates events. Remembers the tool calls written, because only their results are written."""

    def __init__(self, *, model: str | None, keep_thinking: bool, on_invalid: OnInvalid) -> None:
        self._model = model
        self._keep_thinking = keep_thinking
        self._on_invalid = on_invalid
        self._called_ids: set[str] = set()
        self._new_ids: list[str] = []

    def keep(self) -> None:
        """The lines since the last `keep` were written: remember their tool calls."""
        self._new_ids.clear()

    def forget(self) -> None:
        """The lines since the last `keep` were not written: forget their tool calls."""
        self._called_ids.difference_update(self._new_ids)
        self._new_ids.clear()

    def line(self, event: Mapping[str, Any], timestamp: str, session_id: str) -> Line | None:
        """The line of an event. None for events of other types, and for events without the fields that the line needs."""
        match event.get("type"):
            case "message_end":
                return self._message(event.get("message"), timestamp, session_id)
            case "tool_execution_end":
                return self._tool_result(event, timestamp, session_id)
            case "extension_status":
                return _extension(event, timestamp, session_id)
            case "fatal_error":
                return error_line(self._fatal(event.get("error")), timestamp, session_id)
        return None

    def _message(self, message: Any, timestamp: str, session_id: str) -> Line | None:
        if not isinstance(message, Mapping) or message.get("role") != "assistant":
            return None
        blocks = message.get("content")
        if not isinstance(blocks, list | tuple):
            return None
        content = [line for block in blocks if isinstance(block, Mapping) and (line := self._block(block)) is not None]
        if not content:
            return None
        body: Line = {"role": "assistant"}
        if self._model is not None:
            body["model"] = self._model
        body["content"] = content
        usage = _usage(message.get("usage"))
        if usage is not None:
            body["usage"] = usage
        return {"type": "assistant", "message": body, "timestamp": timestamp, "sessionId": session_id}

    def _block(self, block: Mapping[str, Any]) -> Line | None:
        kind = block.get("type")
        if kind == "text":
            text = block.get("text")
            return {"type": "text", "text": text} if isinstance(text, str) else None
        if kind == "toolCall":
            return self._tool_call(block)
        if kind == "thinking" and self._keep_thinking:
            thinking = block.get("thinking")
            return {"type": "thinking", "thinking": thinking} if isinstance(thinking, str) and thinking else None
        return None

    def _tool_call(self, block: Mapping[str, Any]) -> Line | None:
        id, name, given = block.get("id"), block.get("name"), block.get("arguments")
        if not (isinstance(id, str) and id and isinstance(name, str) and name):
            return None
        if id not in self._called_ids:
            self._called_ids.add(id)
            self._new_ids.append(id)
        return {"type": "tool_use", "id": id, "name": name, "input": {} if given is None else given}

    def _tool_result(self, event: Mapping[str, Any], timestamp: str, session_id: str) -> Line | None:
        id = event.get("toolCallId")
        if not isinstance(id, str):
            id = event.get("id")
        if not isinstance(id, str) or id not in self._called_ids:
            return None
        name = next((name for name in ("result", "output", "error") if event.get(name) is not None), None)
        text = "" if name is None else self._text(event[name], name)
        block: Line = {"type": "tool_result", "tool_use_id": id, "content": truncate_tool_result(text)}
        if event.get("isError") is True:
            block["is_error"] = True
        return user_line([block], timestamp, session_id)

    def _fatal(self, error: Any) -> str:
        if isinstance(error, Mapping):
            for name in ("message", "name"):
                if error.get(name) is not None:
                    return self._text(error[name], f"error.{name}")
        return "fatal error"

    def _text(self, value: Any, at: str) -> str:
        return value if isinstance(value, str) else to_json(value, self._on_invalid, at).decode()


def _extension(event: Mapping[str, Any], timestamp: str, session_id: str) -> Line | None:
    if not isinstance(event.get("extension"), str):
        return None
    line: Line = {"type": "system", "subtype": "extension_status", "extension": event["extension"]}
    line |= {name: event[name] for name in _EXTENSION_FIELDS if name in event}
    return line | {"timestamp": timestamp, "sessionId": session_id}


def _usage(given: Any) -> dict[str, int | float] | None:
    if not isinstance(given, Mapping):
        return None
    usage = {name: _count(given.get(event_name)) for name, event_name in _USAGE.items()}
    return usage if any(usage.values()) else None


def _count(value: Any) -> int | float:
    if isinstance(value, float):
        return value if math.isfinite(value) else 0
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
