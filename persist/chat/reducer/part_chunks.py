"""How chunks of text, reasoning, sources, files and data change the message."""

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from persist.chat.reducer.message_state import Change, MessageState, opened_by
from persist.chat.reducer.partial_json import ABSENT, readings_may_differ
from persist.chat.reducer.parts import (
    Part,
    PartState,
    ToolInput,
    advanced,
    derived_input,
    is_dynamic,
    named_tool_part,
    picked,
    with_approval_request,
    with_approval_response,
    with_denial,
    with_explained_approval_request,
    with_output,
    with_output_error,
)
from persist.chat.schemas import ToolState
from persist.db.values.json import join_halves
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


# Tool chunks: finding the part of the call that a chunk names, and changing it.


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
    """Extend the part this input wrote last; rewrite a part that has been changed since; append a missing part."""
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
