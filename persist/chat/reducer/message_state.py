"""One message while it streams, with the indexes that make every chunk O(1)."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Literal

from persist.chat.reducer.chunks import DATA_PREFIX
from persist.chat.reducer.parts import TEXT_TYPES, Part, PartState, ToolInput, approval_id, is_dynamic, is_tool, resumed_input
from persist.chat.schemas import UIMessage
from persist.errors import InvalidValue
from persist.settings import AiSdk

# Which open part of a resumed message a `text-start` or `reasoning-start` names.
#
# A stored part is exactly the AI SDK's part, without the id that the stream's chunks used for it. So the last four characters of
# a text part's own id are a hash of the chunk id that opened it. A recorder that never saw that chunk can still tell whether a
# chunk names the same part.

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""One in fifteen million other chunk ids has the same four letters. The part id keeps eight random ones and its time stamp."""


def part_id_for(part_id: str, chunk_id: str) -> str:
    """The part id with its last four characters replaced by the hash of the chunk id that opens the part."""
    head = part_id[:-4]
    number = int.from_bytes(hashlib.sha256(f"{head} {chunk_id}".encode("utf-8", "surrogatepass")).digest()[:8])
    letter = _BASE62.__getitem__
    return head + letter(number % 62) + letter(number // 62 % 62) + letter(number // 3844 % 62) + letter(number // 238_328 % 62)


def open_parts(parts: list[PartState]) -> list[PartState]:
    """Text and reasoning parts of the latest step that are still streaming, newest first."""
    open_texts: list[PartState] = []
    for part in reversed(parts):
        if part.data["type"] == "step-start":
            break
        if part.data["type"] in TEXT_TYPES and part.data.get("state") == "streaming":
            open_texts.append(part)
    return open_texts


def opened_by(candidates: list[PartState], kind: str, chunk_id: str) -> PartState | None:
    """The part of that kind that the chunk id opened; None if there is none."""
    for part in candidates:
        if part.data["type"] == kind and part.id is not None and part.id == part_id_for(part.id, chunk_id):
            return part
    return None


_UNMERGED = frozenset(("__proto__", "constructor", "prototype"))


class ToolIndex:
    """The tool parts of the current step by call id. Ids repeat across steps, and across the two kinds."""

    __slots__ = ("dynamic", "first", "static")

    def __init__(self) -> None:
        self.first: dict[str, PartState] = {}
        self.static: dict[str, PartState] = {}
        self.dynamic: dict[str, PartState] = {}

    def of_kind(self, dynamic: bool) -> dict[str, PartState]:
        return self.dynamic if dynamic else self.static


class MessageState:
    """An assistant message while chunks are applied to it; `message()` is its JSON {"id", "role", "parts"[, "metadata"]}."""

    __slots__ = (
        "ai_sdk",
        "data",
        "earlier_message_parts",
        "extra",
        "finished",
        "id",
        "inputs",
        "latest",
        "left_open",
        "metadata",
        "parts",
        "reasoning",
        "step",
        "text",
    )

    def __init__(self, id: str, ai_sdk: AiSdk = AiSdk.V7) -> None:
        self.id = id
        self.ai_sdk = ai_sdk
        self.metadata: dict[str, Any] | None = None
        self.parts: list[PartState] = []
        self.finished = False
        self.text: dict[str, PartState] = {}  # open text parts by chunk id
        self.reasoning: dict[str, PartState] = {}  # open reasoning parts by chunk id
        self.inputs: dict[str, ToolInput] = {}  # inputs by call id, kept until the message ends
        self.step = ToolIndex()
        self.latest: dict[str, PartState] = {}  # newest tool part by call id
        self.data: dict[tuple[str, str], PartState] = {}  # first data part by (type, id)
        self.earlier_message_parts: dict[str, PartState] = {}  # tool parts of earlier messages by call id
        self.left_open: list[PartState] = []  # set by the recorder: the last step's parts an earlier recorder left open
        self.extra: dict[str, Any] = {}  # other keys of a resumed message

    @classmethod
    def resume(cls, message: Mapping[str, Any], ai_sdk: AiSdk = AiSdk.V7) -> "MessageState":
        """Continue a stored message. If its role is not assistant, only its id is used, as in the SDK."""
        state = cls(_message_id(message), ai_sdk)
        if message.get("role") != "assistant":
            return state
        metadata, parts = message.get("metadata"), message.get("parts")
        state.metadata = metadata if isinstance(metadata, dict) else None
        state.extra = {key: value for key, value in message.items() if key not in ("id", "role", "metadata", "parts")}
        if not isinstance(parts, list):
            raise InvalidValue("message.parts", "must be a list")
        for index, data in enumerate(parts):
            if not isinstance(data, dict) or not isinstance(data.get("type"), str):
                raise InvalidValue(f"message.parts[{index}]", "must be an object with a string type")
            state.take(PartState(dict(data), index))
        for part in state.parts[state.step_start() :]:
            call_id = part.data.get("toolCallId")
            tool_input = resumed_input(part) if is_tool(part.data) else None
            if tool_input is not None and isinstance(call_id, str):
                state.inputs[call_id] = tool_input
        return state

    def step_start(self) -> int:
        """The position after the last step-start part; 0 without one."""
        start = len(self.parts)
        while start and self.parts[start - 1].data["type"] != "step-start":
            start -= 1
        return start

    def tool_with_approval(self, id: str) -> PartState | None:
        """The message's first tool part with that approval id, else one of an earlier message; None without one."""
        tools = (part for part in self.parts if is_tool(part.data))
        return next((part for part in (*tools, *self.earlier_message_parts.values()) if approval_id(part.data) == id), None)

    def take(self, part: PartState) -> None:
        """Append a stored part and add it to the indexes."""
        self.parts.append(part)
        data = part.data
        if data["type"] == "step-start":
            self.step = ToolIndex()
        elif is_tool(data) and isinstance(call_id := data.get("toolCallId"), str):
            self.step.first.setdefault(call_id, part)
            self.step.of_kind(is_dynamic(data)).setdefault(call_id, part)
            self.latest[call_id] = part
        elif data["type"].startswith(DATA_PREFIX) and isinstance(data_id := data.get("id"), str):
            self.data.setdefault((data["type"], data_id), part)

    def message(self) -> UIMessage:
        """The whole message as JSON: {"id", "role", "parts"[, "metadata"]}."""
        parts: list[Part] = [part.snapshot() for part in self.parts]
        metadata = {} if self.metadata is None else {"metadata": self.metadata}
        return {**self.extra, "id": self.id, **metadata, "role": "assistant", "parts": parts}


def _message_id(message: Mapping[str, Any]) -> str:
    id = message.get("id")
    if id is not None and not isinstance(id, str):
        raise InvalidValue("message.id", "must be a string")
    return id or ""


def merged(base: Mapping[str, Any], overrides: Mapping[str, Any], *, skipped: frozenset[str] = _UNMERGED) -> dict[str, Any]:
    """A deep merge: objects are merged key by key, other values replaced. Neither argument is changed."""
    result = dict(base)
    pending = [(result, overrides)]
    while pending:
        target, source = pending.pop()
        for key, value in source.items():
            if key in skipped:
                continue
            former = target.get(key)
            if isinstance(value, Mapping) and isinstance(former, Mapping):
                target[key] = copy = dict(former)
                pending.append((copy, value))
            else:
                target[key] = value
    return result


# What one chunk did to a message, and how to undo it.

_Undo = tuple[Callable[..., object], tuple[Any, ...]]


class Change:
    """What one chunk did. Every mutation is logged here, so that `undo` can revert it.

    delta + part        text that only extended a growing part (nothing else is set then)
    appended, changed   a part that is new, or was rewritten in place (`changed` may be one of an earlier message)
    removed             parts that left the end of the message
    metadata            the message metadata changed
    opened, closed      a start named another id: a new message began, `closed` is the one before
    boundary            "step" | "finish" | "abort"
    ignored, dropped    a chunk of unknown type; a chunk after an abort
    """

    __slots__ = (
        "_log",
        "appended",
        "boundary",
        "changed",
        "closed",
        "delta",
        "dropped",
        "error_text",
        "ignored",
        "index",
        "metadata",
        "opened",
        "part",
        "removed",
        "type",
    )

    def __init__(self, type: str, index: int) -> None:
        self.type, self.index = type, index
        self.delta: str | None = None
        self.part: PartState | None = None
        self.appended: PartState | None = None
        self.changed: PartState | None = None
        self.removed: list[PartState] = []
        self.metadata = self.opened = self.ignored = self.dropped = False
        self.closed: MessageState | None = None
        self.boundary: Literal["step", "finish", "abort"] | None = None
        self.error_text: str | None = None
        self._log: list[_Undo] = []

    def __repr__(self) -> str:
        shown = {name: getattr(self, name) for name in self.__slots__ if name != "_log"}
        return f"Change({', '.join(f'{name}={value!r}' for name, value in shown.items() if value not in (None, False, []))})"

    @property
    def structural(self) -> bool:
        """Whether the change needs a part or message row written anew. A boundary alone is not structural."""
        return self.appended is not None or self.changed is not None or self.metadata or self.opened or bool(self.removed)

    def undo(self) -> None:
        """Revert every logged mutation, newest first."""
        while self._log:
            function, arguments = self._log.pop()
            function(*arguments)

    def set(self, owner: object, name: str, value: object) -> None:
        self._log.append((setattr, (owner, name, getattr(owner, name))))
        setattr(owner, name, value)

    def put(self, mapping: dict[Any, Any], key: object, value: object) -> None:
        if key in mapping:
            self._log.append((mapping.__setitem__, (key, mapping[key])))
        else:
            self._log.append((mapping.__delitem__, (key,)))
        mapping[key] = value

    def drop(self, mapping: dict[Any, Any], key: object) -> None:
        self._log.append((mapping.__setitem__, (key, mapping.pop(key))))

    def append(self, state: MessageState, data: Part) -> PartState:
        self.appended = part = PartState(data, len(state.parts))
        state.parts.append(part)
        self._log.append((state.parts.pop, ()))
        return part

    def truncate(self, state: MessageState, length: int) -> None:
        """Keep that many of the message's parts, and remove the others."""
        self.removed = state.parts[length:]
        self.set(state, "parts", state.parts[:length])

    def rewrite(self, part: PartState, data: Part, pieces: list[str] | None = None) -> None:
        self.changed = part
        self._log.append((part.restore, (part.data, part.pieces)))
        part.restore(data, pieces or [])

    def extend(self, part: PartState, delta: str) -> None:
        self.delta, self.part = delta, part
        part.pieces.append(delta)
        self._log.append((part.remove_piece, (part.pieces,)))

    def add_piece(self, pieces: list[str], piece: str) -> None:
        pieces.append(piece)
        self._log.append((pieces.pop, ()))
