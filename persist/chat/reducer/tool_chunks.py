"""Tool chunks: finding the part of the call that a chunk names, and changing it."""

from collections.abc import Callable, Mapping
from typing import Any

from persist.chat.reducer.message_state import MessageState
from persist.chat.reducer.partial_json import ABSENT, readings_may_differ
from persist.chat.reducer.parts import Part, PartState, derived_input, picked
from persist.chat.reducer.tool_parts import (
    ToolInput,
    advanced,
    is_dynamic,
    named_tool_part,
    with_approval_request,
    with_approval_response,
    with_denial,
    with_explained_approval_request,
    with_output,
    with_output_error,
)
from persist.chat.reducer.undo import Change
from persist.chat.schemas import ToolState
from persist.db.values.escaping import join_halves
from persist.errors import StreamProtocolError
from persist.settings import AiSdk

Chunk = Mapping[str, Any]


class UnknownToolCall(StreamProtocolError):  # noqa: N818 - named_tool_part like the errors of persist.errors
    """A result or an answer for a tool call that this message does not have; nothing was changed.

    If an earlier message has the call, add it to `Accumulator.earlier_message_parts` and apply the chunk again. A result names
    the call by its id, an answer by the id of its approval.
    """

    def __init__(self, index: int, chunk_type: str, *, tool_call_id: str | None = None, approval_id: str | None = None) -> None:
        self.tool_call_id, self.approval_id = tool_call_id, approval_id
        missing = f"approval {approval_id!r}" if tool_call_id is None else f"tool call {tool_call_id!r}"
        super().__init__(index, chunk_type, f"there is no {missing} in this message")


def input_start(state: MessageState, chunk: Chunk, change: Change) -> None:
    """The input of a tool call begins to stream."""
    dynamic, encoding = bool(chunk.get("dynamic")), chunk.get("inputEncoding")
    tool_input = ToolInput(chunk["toolName"], dynamic=dynamic, encoding=encoding, sticky=picked(chunk, "title", "toolMetadata"))
    payload = picked(chunk, "inputEncoding", "title")
    part = _write_part(state, chunk, change, ToolState.INPUT_STREAMING, payload, chunk["toolName"], dynamic=dynamic)
    tool_input.binding = (part, part.data)
    change.put(state.inputs, chunk["toolCallId"], tool_input)


def input_delta(state: MessageState, chunk: Chunk, change: Change) -> None:
    """Extend the part this input wrote last; rewrite it if something else changed it since; append it if it is missing."""
    call_id, delta = chunk["toolCallId"], chunk["inputTextDelta"]
    tool_input = state.inputs.get(call_id)
    if tool_input is None:
        reason = f"no input of tool call {call_id!r} is streaming: a tool-input-start comes first"
        raise StreamProtocolError(change.index, chunk["type"], reason)
    part = state.step.of_kind(tool_input.dynamic).get(call_id)
    change.add_piece(tool_input.pieces, delta)
    if state.ai_sdk == AiSdk.V6:
        change.set(tool_input, "readings_differ", readings_may_differ(delta, after_open=tool_input.readings_differ))
    whoever_reads = state.ai_sdk == AiSdk.V7 or not tool_input.readings_differ
    if whoever_reads and part is not None and tool_input.wrote(part) and (delta or part.pieces or "rawInput" in part.data):
        change.extend(part, delta)
        return
    text = join_halves("".join(tool_input.pieces))
    payload: Part = {**tool_input.sticky, "rawInput": text}
    if tool_input.encoding is not None:
        payload["inputEncoding"] = tool_input.encoding
    if (value := derived_input(text, tool_input.encoding, state.ai_sdk)) is not ABSENT:
        payload["input"] = value
    lacks_raw_input = part is None and tool_input.dynamic
    if lacks_raw_input:
        del payload["rawInput"]  # the SDK appends a dynamic part without it; the next delta adds it
    part = _write_part(state, chunk, change, ToolState.INPUT_STREAMING, payload, tool_input.tool_name, dynamic=tool_input.dynamic)
    change.set(tool_input, "binding", None if lacks_raw_input else (part, part.data))


def input_available(state: MessageState, chunk: Chunk, change: Change) -> None:
    """The input of a tool call is complete."""
    payload = picked(chunk, "input", "title")
    _write_part(state, chunk, change, ToolState.INPUT_AVAILABLE, payload, chunk["toolName"], dynamic=bool(chunk.get("dynamic")))


def input_error(state: MessageState, chunk: Chunk, change: Change) -> None:
    """The input of a tool call was refused. It is the part's `input`; AI SDK 6 has a static part's in `rawInput`.

    Whether the tool is dynamic is taken from the call's part if there is one, else from the chunk.
    """
    part = state.step.first.get(chunk["toolCallId"])
    dynamic = is_dynamic(part.data) if part else bool(chunk.get("dynamic"))
    payload = picked(chunk, "input", "errorText")
    if state.ai_sdk == AiSdk.V6 and not dynamic and "input" in payload:
        payload["rawInput"] = payload.pop("input")
    _write_part(state, chunk, change, ToolState.OUTPUT_ERROR, payload, chunk["toolName"], dynamic=dynamic)


def output_available(state: MessageState, chunk: Chunk, change: Change) -> None:
    """A tool call has a result, possibly a preliminary one."""
    _rewrite_call(state, chunk, change, with_output)


def output_error(state: MessageState, chunk: Chunk, change: Change) -> None:
    """The tool call failed."""
    _rewrite_call(state, chunk, change, with_output_error)


def output_denied(state: MessageState, chunk: Chunk, change: Change) -> None:
    """The tool call was not allowed."""
    _rewrite_call(state, chunk, change, with_denial)


def approval_request(state: MessageState, chunk: Chunk, change: Change) -> None:
    """The tool call waits for its approval."""
    explained = state.ai_sdk >= AiSdk.V7
    _rewrite_call(state, chunk, change, with_explained_approval_request if explained else with_approval_request)


def approval_response(state: MessageState, chunk: Chunk, change: Change) -> None:
    """A tool call's approval is answered in the stream."""
    part = state.tool_with_approval(chunk["approvalId"])
    if part is None:
        raise UnknownToolCall(change.index, chunk["type"], approval_id=chunk["approvalId"])
    change.rewrite(part, with_approval_response(part.snapshot(), chunk))


def _rewrite_call(state: MessageState, chunk: Chunk, change: Change, rule: Callable[[Part, Chunk], Part]) -> None:
    call_id = chunk["toolCallId"]
    part = state.step.first.get(call_id) or state.latest.get(call_id) or state.earlier_message_parts.get(call_id)
    if part is None:
        raise UnknownToolCall(change.index, chunk["type"], tool_call_id=call_id)
    change.rewrite(part, rule(part.snapshot(), chunk))


def _write_part(
    state: MessageState, chunk: Chunk, change: Change, tool_state: ToolState, payload: Part, tool_name: str, *, dynamic: bool
) -> PartState:
    """Rewrite the current step's part with that call id and kind (static or dynamic), or append one."""
    call_id = chunk["toolCallId"]
    of_kind = state.step.of_kind(dynamic)
    part = of_kind.get(call_id)
    data = named_tool_part(call_id, tool_name, dynamic=dynamic, part=part.snapshot() if part else None)
    data = advanced(data, tool_state, payload, chunk)
    if part is not None:
        change.rewrite(part, data)
        return part
    part = change.append(state, data)
    change.put(of_kind, call_id, part)
    change.put(state.latest, call_id, part)
    if call_id not in state.step.first:
        change.put(state.step.first, call_id, part)
    return part
