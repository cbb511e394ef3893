"""The rules of tool parts: what each tool chunk makes of the part, and the input of a call while it streams."""

from collections.abc import Mapping
from typing import Any

from persist.chat.chunks import InputEncoding
from persist.chat.parts import Part, PartState, picked
from persist.chat.schemas import ToolState

STATIC_PREFIX = "tool-"
DYNAMIC_TYPE = "dynamic-tool"


_VOLATILE = frozenset(("input", "output", "errorText", "rawInput", "inputEncoding", "preliminary"))
_RESULT_STATES = frozenset((ToolState.OUTPUT_AVAILABLE, ToolState.OUTPUT_ERROR))


class ToolInput:
    """The input of one tool call while it streams; it outlives the step, as in the SDK.

    `binding` says which value of which part this input wrote last: while that value stands, a delta only extends it.
    """

    __slots__ = ("binding", "dynamic", "encoding", "pieces", "sticky", "tool_name")

    def __init__(self, tool_name: str, *, dynamic: bool, encoding: str | None, sticky: Part, text: str = "") -> None:
        self.tool_name, self.dynamic, self.encoding, self.sticky = tool_name, dynamic, encoding, sticky
        self.pieces = [text] if text else []
        self.binding: tuple[PartState, Part] | None = None

    def wrote(self, part: PartState) -> bool:
        return self.binding is not None and self.binding[0] is part and self.binding[1] is part.data


def tool_columns(data: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """(tool_call_id, tool_state): hoisted from a tool part, None for every other."""
    kind = data["type"]
    if not (kind.startswith("tool-") or kind == "dynamic-tool"):
        return None, None
    call_id, state = data.get("toolCallId"), data.get("state")
    return call_id if isinstance(call_id, str) else None, state if isinstance(state, str) else None


def is_tool(part: Mapping[str, Any]) -> bool:
    """Whether a part is a tool call of either kind."""
    return is_dynamic(part) or part["type"].startswith(STATIC_PREFIX)


def is_dynamic(part: Mapping[str, Any]) -> bool:
    """Whether its tool was unknown to the host beforehand."""
    return bool(part["type"] == DYNAMIC_TYPE)


def tool_name(part: Mapping[str, Any]) -> str:
    """The name of the tool of a call."""
    name = part.get("toolName", "") if is_dynamic(part) else part["type"].removeprefix(STATIC_PREFIX)
    return str(name)


def named(tool_call_id: str, name: str, *, dynamic: bool, part: Part | None = None) -> Part:
    """The part (a new one without `part`) under the newest name of its tool: {"type", "toolCallId", ...}."""
    identity = {"type": DYNAMIC_TYPE, "toolName": name} if dynamic else {"type": STATIC_PREFIX + name}
    return {**part, **identity} if part else {**identity, "toolCallId": tool_call_id}


def advanced(part: Part, state: ToolState, payload: Part, chunk: Mapping[str, Any]) -> Part:
    """The part in its new state: volatile fields are those of `payload` alone, sticky ones stay unless `chunk` has them."""
    moved = {key: value for key, value in part.items() if key not in _VOLATILE}
    moved["state"] = state.value
    moved.update(payload)
    for key in ("toolMetadata", "providerExecuted"):
        if key in chunk:
            moved[key] = chunk[key]
    if "providerMetadata" in chunk:
        moved["resultProviderMetadata" if state in _RESULT_STATES else "callProviderMetadata"] = chunk["providerMetadata"]
    return moved


def with_output(part: Part, chunk: Mapping[str, Any]) -> Part:
    """The part with a result."""
    return advanced(part, ToolState.OUTPUT_AVAILABLE, picked(part, "input") | picked(chunk, "output", "preliminary"), chunk)


def with_output_error(part: Part, chunk: Mapping[str, Any]) -> Part:
    """The part with an error; what was streamed of the input stays with a static one."""
    kept = ("input",) if is_dynamic(part) else ("input", "rawInput")
    return advanced(part, ToolState.OUTPUT_ERROR, picked(part, *kept) | picked(chunk, "errorText"), chunk)


def with_denial(part: Part, chunk: Mapping[str, Any]) -> Part:
    """The part, denied."""
    return {**part, "state": ToolState.OUTPUT_DENIED.value}


def with_approval_request(part: Part, chunk: Mapping[str, Any]) -> Part:
    """The part, waiting for an answer."""
    approval = {"id": chunk["approvalId"], **picked(chunk, "inputSchemaInput", "signature")}
    if chunk.get("approvalDescriptor") is not None:
        approval["descriptor"] = chunk["approvalDescriptor"]
    return {**part, "state": ToolState.APPROVAL_REQUESTED.value, "approval": approval}


def resumed_input(part: PartState) -> ToolInput | None:
    """The input that a stored part was still receiving; None unless its state is input-streaming."""
    data = part.data
    if data.get("state") != ToolState.INPUT_STREAMING:
        return None
    raw_input, encoding = data.get("rawInput"), data.get("inputEncoding")
    resumed = ToolInput(
        tool_name(data),
        dynamic=is_dynamic(data),
        encoding=encoding,
        sticky=picked(data, "title", "toolMetadata"),
        text=raw_input if isinstance(raw_input, str) else "",
    )
    unfit = _VOLATILE - {"input", "rawInput", "inputEncoding"}
    if not unfit & data.keys() and isinstance(raw_input, str | None) and encoding in (None, *InputEncoding):
        resumed.binding = (part, data)  # otherwise the next delta rewrites the part, which clears what does not belong
    return resumed
