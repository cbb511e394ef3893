"""Pure functions that change tool parts, and the state of a tool call's input while it streams."""

from collections.abc import Mapping
from typing import Any

from persist.chat.reducer.chunks import InputEncoding
from persist.chat.reducer.partial_json import readings_may_differ
from persist.chat.reducer.parts import Part, PartState, picked
from persist.chat.schemas import ToolState

STATIC_PREFIX = "tool-"
DYNAMIC_TYPE = "dynamic-tool"


_VOLATILE = frozenset(("input", "output", "errorText", "rawInput", "inputEncoding", "preliminary"))
RESULT_STATES = frozenset((ToolState.OUTPUT_AVAILABLE, ToolState.OUTPUT_ERROR))


class ToolInput:
    """The input of one tool call while it streams. It is kept when the step ends, as in the SDK.

    `binding` is the part this input wrote last and the value written. While the part has that value, a delta only extends it.
    """

    __slots__ = ("binding", "dynamic", "encoding", "pieces", "readings_differ", "sticky", "tool_name")

    def __init__(self, tool_name: str, *, dynamic: bool, encoding: str | None, sticky: Part, text: str = "") -> None:
        self.tool_name, self.dynamic, self.encoding, self.sticky = tool_name, dynamic, encoding, sticky
        self.pieces = [text] if text else []
        self.binding: tuple[PartState, Part] | None = None
        self.readings_differ = readings_may_differ(text)
        """Whether AI SDK 6 may read a different value than 7 from the text so far."""

    def wrote(self, part: PartState) -> bool:
        return self.binding is not None and self.binding[0] is part and self.binding[1] is part.data


def tool_columns(data: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """(tool_call_id, tool_state): the columns of a tool part's row; (None, None) for other parts."""
    kind = data["type"]
    if not (kind.startswith("tool-") or kind == "dynamic-tool"):
        return None, None
    call_id, state = data.get("toolCallId"), data.get("state")
    return call_id if isinstance(call_id, str) else None, state if isinstance(state, str) else None


def is_tool(part: Mapping[str, Any]) -> bool:
    """Whether a part is a tool call of either kind."""
    return is_dynamic(part) or part["type"].startswith(STATIC_PREFIX)


def is_dynamic(part: Mapping[str, Any]) -> bool:
    """Whether the part is a call of a dynamic tool: one that the host did not know beforehand."""
    return bool(part["type"] == DYNAMIC_TYPE)


def approval_id(part: Mapping[str, Any]) -> str | None:
    """The id of a tool part's approval; None without an approval."""
    approval = part.get("approval")
    id = approval.get("id") if isinstance(approval, Mapping) else None
    return id if isinstance(id, str) else None


def tool_name(part: Mapping[str, Any]) -> str:
    """The name of a tool part's tool."""
    name = part.get("toolName", "") if is_dynamic(part) else part["type"].removeprefix(STATIC_PREFIX)
    return str(name)


def named_tool_part(tool_call_id: str, name: str, *, dynamic: bool, part: Part | None = None) -> Part:
    """The part with that tool name, or a new one without `part`: {"type", "toolCallId", ...}."""
    identity = {"type": DYNAMIC_TYPE, "toolName": name} if dynamic else {"type": STATIC_PREFIX + name}
    return {**part, **identity} if part else {**identity, "toolCallId": tool_call_id}


def advanced(part: Part, state: ToolState, payload: Part, chunk: Mapping[str, Any]) -> Part:
    """The part in a new state. Volatile fields come from `payload` alone; other fields stay unless `chunk` has new ones."""
    changed = {key: value for key, value in part.items() if key not in _VOLATILE}
    changed["state"] = state.value
    changed.update(payload)
    for key in ("toolMetadata", "providerExecuted"):
        if key in chunk:
            changed[key] = chunk[key]
    if "providerMetadata" in chunk:
        changed["resultProviderMetadata" if state in RESULT_STATES else "callProviderMetadata"] = chunk["providerMetadata"]
    return changed


def with_output(part: Part, chunk: Mapping[str, Any]) -> Part:
    """The part with a result."""
    return advanced(part, ToolState.OUTPUT_AVAILABLE, picked(part, "input") | picked(chunk, "output", "preliminary"), chunk)


def with_output_error(part: Part, chunk: Mapping[str, Any]) -> Part:
    """The part with an error. A static part keeps the `rawInput` streamed so far."""
    input_keys = ("input",) if is_dynamic(part) else ("input", "rawInput")
    return advanced(part, ToolState.OUTPUT_ERROR, picked(part, *input_keys) | picked(chunk, "errorText"), chunk)


def with_denial(part: Part, chunk: Mapping[str, Any]) -> Part:
    """The part in state output-denied."""
    return {**part, "state": ToolState.OUTPUT_DENIED.value}


def with_approval_request(part: Part, chunk: Mapping[str, Any]) -> Part:
    """The part in state approval-requested, with the approval's id."""
    approval = {"id": chunk["approvalId"], **picked(chunk, "inputSchemaInput", "signature")}
    if chunk.get("approvalDescriptor") is not None:
        approval["descriptor"] = chunk["approvalDescriptor"]
    return {**part, "state": ToolState.APPROVAL_REQUESTED.value, "approval": approval}


def with_explained_approval_request(part: Part, chunk: Mapping[str, Any]) -> Part:
    """The part in state approval-requested, also with the request's reason and whether it was answered automatically."""
    requested = with_approval_request(part, chunk)
    if "reason" in chunk:
        requested["approval"]["requestReason"] = chunk["reason"]
    if chunk.get("isAutomatic") is True:
        requested["approval"]["isAutomatic"] = True
    return requested


def with_approval_response(part: Part, chunk: Mapping[str, Any]) -> Part:
    """The part in state approval-responded, with the answer. What it has beyond that stays, as in the SDK."""
    answer = {**part["approval"], "id": chunk["approvalId"], **picked(chunk, "approved", "reason")}
    changed = {**part, "state": ToolState.APPROVAL_RESPONDED.value, "approval": answer, **picked(chunk, "providerExecuted")}
    if "providerMetadata" in chunk:
        changed["callProviderMetadata"] = chunk["providerMetadata"]
    return changed


def resumed_input(part: PartState) -> ToolInput | None:
    """The input state of a stored part whose input was still streaming; None for other states."""
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
        resumed.binding = (part, data)  # else the next delta rewrites the part without those fields
    return resumed
