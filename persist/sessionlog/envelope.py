"""An agent's events as lines of a log: values, vocabularies, the envelope, and compact JSON whatever the text. Without files."""

import json as stdlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, TypedDict

import orjson

from persist.db.values.clock import from_epoch_ms
from persist.db.values.escaping import join_halves
from persist.errors import InvalidValue


def iso(value: datetime) -> str:
    """An aware datetime as a line's timestamp, rounded down to milliseconds."""
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def instant_of(raw: Any) -> datetime | None:
    """The instant of a timestamp: epoch milliseconds, ISO text (without a zone: UTC) or a datetime; None for anything else."""
    try:
        if isinstance(raw, str):
            value = datetime.fromisoformat(raw)
        elif isinstance(raw, datetime):
            value = raw
        elif isinstance(raw, int | float) and not isinstance(raw, bool):
            return from_epoch_ms(int(raw))
        else:
            return None
        return value.replace(tzinfo=UTC) if value.utcoffset() is None else value.astimezone(UTC)
    except (ValueError, OverflowError):  # no such date, or outside of years 1 to 9999
        return None


# The limit on a tool's result in a log. Logs are for display; the tool's own output has the whole text.

TOOL_RESULT_LIMIT = 65_536
"""The limit in UTF-16 units, as JavaScript counts: a letter is one, an emoji two."""


def truncate_tool_result(text: str, limit: int = TOOL_RESULT_LIMIT) -> str:
    """The text, or its first `limit` UTF-16 units and a last line `…[truncated N chars]`, where N is the units left out.

    A character of two units is left out where the limit falls inside it. Raises InvalidValue for a limit below 1.
    """
    if limit < 1:
        raise InvalidValue("limit", "at least 1.")
    if 2 * len(text) <= limit or (len(text) <= limit and text.isascii()):
        return text
    units = text.encode("utf-16-le", "surrogatepass")
    total = len(units) // 2
    if total <= limit:
        return text
    kept_units = limit
    if _is_half(units, kept_units - 1, 0xD8) and _is_half(units, kept_units, 0xDC):
        kept_units -= 1
    head = units[: 2 * kept_units].decode("utf-16-le", "surrogatepass")
    return f"{head}\n…[truncated {total - kept_units} chars]"


def _is_half(units: bytes, at: int, first: int) -> bool:
    """Whether the unit at that index is a surrogate: a leading one (`first` 0xD8) or a trailing one (0xDC)."""
    return units[2 * at + 1] & 0xFC == first


OnInvalid = Callable[[str, str, str], str]
"""`on_invalid(path, reason, text)`, called for a value that JSON cannot express: raises, or returns the text to write instead."""
_MAX_DEPTH = 256  # the limit of orjson; deeper values could overflow the stack, also of readers
_MAX_BITS = 10_000  # Python writes and reads no integers of more than 4300 digits
_HALF = re.compile("[\ud800-\udfff]")


def to_json(value: Any, on_invalid: OnInvalid, at: str) -> bytes:
    """JSON text without a line break. `at`: the value's path, for `on_invalid`."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return _encode_slowly(value, on_invalid, at)


def to_line(value: Any, on_invalid: OnInvalid) -> bytes:
    """JSON text with its line break."""
    try:
        return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        return _encode_slowly(value, on_invalid, "") + b"\n"


def _encode_slowly(value: Any, on_invalid: OnInvalid, at: str) -> bytes:
    text = stdlib.dumps(_PlainCopy(on_invalid, at).of(value), ensure_ascii=False, separators=(",", ":"))
    return _HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", text).encode()


class _PlainCopy:
    def __init__(self, on_invalid: OnInvalid, at: str) -> None:
        self._on_invalid = on_invalid
        self._trail = [at]
        self._open: set[int] = set()

    def of(self, value: Any) -> Any:
        if isinstance(value, Enum):
            value = value.value
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return join_halves(str(value))
        if isinstance(value, int):
            number = int(value)
            return number if number.bit_length() <= _MAX_BITS else self._refuse("an integer of so many digits", hex(number))
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else None
        if isinstance(value, Mapping | list | tuple):
            if id(value) in self._open:
                return self._refuse("a value inside of itself", "[a value inside of itself]")
            if len(self._open) >= _MAX_DEPTH:
                return self._refuse(f"nesting deeper than {_MAX_DEPTH} levels", "[nested too deep]")
            self._open.add(id(value))
            copy = self._items(value) if isinstance(value, Mapping) else self._list(value)
            self._open.discard(id(value))
            return copy
        try:
            return orjson.loads(orjson.dumps(value))  # datetimes, UUIDs, dataclasses
        except (TypeError, ValueError):
            return self._refuse(f"a value of type {type(value).__name__}", _text(value))

    def _items(self, value: Mapping[Any, Any]) -> dict[str, Any]:
        copy = {}
        for key, item in value.items():
            self._trail.append(f".{key}" if isinstance(key, str) else "[…]")
            copy[self._key(key)] = self.of(item)
            self._trail.pop()
        return copy

    def _list(self, value: list[Any] | tuple[Any, ...]) -> list[Any]:
        copy = []
        for index, item in enumerate(value):
            self._trail.append(f"[{index}]")
            copy.append(self.of(item))
            self._trail.pop()
        return copy

    def _key(self, key: Any) -> str:
        if isinstance(key, str):
            return join_halves(str(key))
        if key is None or isinstance(key, bool | int | float):
            return stdlib.dumps(key)
        return self._refuse(f"a key of type {type(key).__name__}", _text(key))

    def _refuse(self, what: str, text: str) -> str:
        path = "".join(self._trail[:12]).lstrip(".")
        return join_halves(self._on_invalid(path, f"{what} is not a JSON value.", text))


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # the line is written even if the value's __str__ raises
        return f"<{type(value).__name__}>"


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
