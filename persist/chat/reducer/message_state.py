"""One message while it streams, with the indexes that make every chunk O(1)."""

from collections.abc import Mapping
from typing import Any

from persist.chat.reducer.chunks import DATA_PREFIX
from persist.chat.reducer.parts import Part, PartState
from persist.chat.reducer.tool_parts import ToolInput, approval_id, is_dynamic, is_tool, resumed_input
from persist.chat.schemas import UIMessage
from persist.errors import InvalidValue
from persist.settings import AiSdk

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
