"""The pure reducer of a UI message stream: chunks in, message parts and what changed out. No database, no clock."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import orjson

from persist.chat.reducer.chunks import ChunkType, validate
from persist.chat.reducer.message_state import Change, MessageState, ToolIndex, merged, opened_by
from persist.chat.reducer.partial_json import ABSENT, readings_may_differ
from persist.chat.reducer.parts import (
    Part,
    PartState,
    ToolInput,
    advanced,
    derived_input,
    grow,
    is_dynamic,
    is_tool,
    named_tool_part,
    picked,
    with_approval_request,
    with_approval_response,
    with_denial,
    with_explained_approval_request,
    with_output,
    with_output_error,
)
from persist.chat.schemas import ToolState, UIMessage
from persist.db.values.escaping import join_halves
from persist.errors import InvalidValue, StreamProtocolError
from persist.settings import AiSdk

Chunk = Mapping[str, Any]
_Handler = Callable[[MessageState, Chunk, Change], object]


def _appends(*names: str) -> _Handler:
    return lambda state, chunk, change: change.append(state, picked(chunk, *names))


def _text_start(state: MessageState, chunk: Chunk, change: Change) -> None:
    """Append a text part, or continue the one an earlier recorder left open. An open part with the same id stays unfinished."""
    if _reopen(state, state.text, "text", chunk, change):
        return
    part = change.append(state, {"type": "text", "text": "", **picked(chunk, "providerMetadata"), "state": "streaming"})
    change.put(state.text, chunk["id"], part)


def _reasoning_start(state: MessageState, chunk: Chunk, change: Change) -> None:
    """Append a reasoning part. Its id may equal that of an open text part: each kind has its own ids."""
    if _reopen(state, state.reasoning, "reasoning", chunk, change):
        return
    data = {**picked(chunk, "id", "providerMetadata"), "type": "reasoning", "text": "", "state": "streaming"}
    change.put(state.reasoning, chunk["id"], change.append(state, data))


def _data(state: MessageState, chunk: Chunk, change: Change) -> None:
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


def _input_start(state: MessageState, chunk: Chunk, change: Change) -> None:
    dynamic, encoding = bool(chunk.get("dynamic")), chunk.get("inputEncoding")
    tool_input = ToolInput(chunk["toolName"], dynamic=dynamic, encoding=encoding, sticky=picked(chunk, "title", "toolMetadata"))
    payload = picked(chunk, "inputEncoding", "title")
    part = _write_part(state, chunk, change, ToolState.INPUT_STREAMING, payload, chunk["toolName"], dynamic=dynamic)
    tool_input.binding = (part, part.data)
    change.put(state.inputs, chunk["toolCallId"], tool_input)


def _input_delta(state: MessageState, chunk: Chunk, change: Change) -> None:
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


def _input_available(state: MessageState, chunk: Chunk, change: Change) -> None:
    payload = picked(chunk, "input", "title")
    _write_part(state, chunk, change, ToolState.INPUT_AVAILABLE, payload, chunk["toolName"], dynamic=bool(chunk.get("dynamic")))


def _input_error(state: MessageState, chunk: Chunk, change: Change) -> None:
    """The input was refused: it is the part's `input`, for AI SDK 6 a static part's `rawInput`. The part tells its kind."""
    part = state.step.first.get(chunk["toolCallId"])
    dynamic = is_dynamic(part.data) if part else bool(chunk.get("dynamic"))
    payload = picked(chunk, "input", "errorText")
    if state.ai_sdk == AiSdk.V6 and not dynamic and "input" in payload:
        payload["rawInput"] = payload.pop("input")
    _write_part(state, chunk, change, ToolState.OUTPUT_ERROR, payload, chunk["toolName"], dynamic=dynamic)


def _approval_response(state: MessageState, chunk: Chunk, change: Change) -> None:
    part = state.tool_with_approval(chunk["approvalId"])
    if part is None:
        raise UnknownToolCall(change.index, chunk["type"], approval_id=chunk["approvalId"])
    change.rewrite(part, with_approval_response(part.snapshot(), chunk))


def _rewrites(rule: Callable[[Part, Chunk], Part]) -> _Handler:
    return lambda state, chunk, change: _rewrite_call(state, chunk, change, rule)


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


__all__ = ["Accumulator", "Change", "MessageState", "PartState", "UIMessage", "UnknownToolCall", "grow", "reduce"]
_TEXT_DELTA, _REASONING_DELTA = ChunkType.TEXT_DELTA.value, ChunkType.REASONING_DELTA.value


def reduce(chunks: Iterable[Chunk], message: UIMessage | None = None, *, ai_sdk: Literal[6, 7] = 7) -> UIMessage:
    """Reduce a stream to its last message, continuing `message` if given. The recorder stores the same result.

    `ai_sdk` is the major release of the AI SDK whose reducer is followed (`readUIMessageStream`), where the two differ.
    """
    accumulator = Accumulator(message, AiSdk.of(ai_sdk))
    for chunk in chunks:
        accumulator.apply(chunk)
    return accumulator.message()


class Accumulator:
    """Applies chunks one at a time; each application can be undone, the latest first."""

    __slots__ = ("aborted", "ai_sdk", "index", "state")

    def __init__(self, message: UIMessage | None = None, ai_sdk: AiSdk = AiSdk.V7) -> None:
        self.state = MessageState("", ai_sdk) if message is None else MessageState.resume(message, ai_sdk)
        """The current message and its indexes."""
        self.ai_sdk = ai_sdk
        self.aborted = False
        self.index = 0

    @classmethod
    def over(cls, state: MessageState, index: int) -> "Accumulator":
        """An accumulator that continues an earlier message of the stream, `index` chunks into the stream."""
        self = cls(ai_sdk=state.ai_sdk)
        self.state, self.index = state, index
        return self

    @property
    def message_id(self) -> str:
        """The message's id; the empty string until a `start` chunk or the message to continue names one."""
        return self.state.id

    @property
    def parts(self) -> list[PartState]:
        return self.state.parts

    @property
    def metadata(self) -> dict[str, Any] | None:
        return self.state.metadata

    @property
    def earlier_message_parts(self) -> dict[str, PartState]:
        """Tool parts of earlier messages by call id, for results without a call in this message; emptied by a new message."""
        return self.state.earlier_message_parts

    def message(self) -> UIMessage:
        """The current message as JSON: {"id", "role", "parts"[, "metadata"]}."""
        return self.state.message()

    def apply(self, chunk: Chunk) -> Change:
        """Apply one chunk and return what it changed. On InvalidValue and StreamProtocolError nothing is changed."""
        if self.aborted:
            change = Change(_type_of(chunk), self.index)
            change.dropped = True
        elif (known := validate(chunk, self.ai_sdk)) is None:
            change = Change(chunk["type"], self.index)
            change.ignored = True
        else:
            change = Change(known, self.index)
            handler = _HANDLERS.get(known)
            if handler is not None:
                handler(self.state, chunk, change)
            elif known == ChunkType.START:
                self._start(chunk, change)
            elif known == ChunkType.ABORT:
                change.set(self, "aborted", True)
                change.boundary = "abort"
            else:
                _data(self.state, chunk, change)
        self.index += 1
        return change

    def extend(self, chunk: dict[str, Any]) -> PartState | None:
        """Fast path for a chunk that only adds text to an open part: returns that part. None: nothing was done, use `apply`."""
        if len(chunk) != 3 or self.aborted:
            return None
        kind, id, delta = chunk["type"], chunk.get("id"), chunk.get("delta")
        if type(id) is not str or type(delta) is not str:
            return None
        state = self.state
        part = state.text.get(id) if kind == _TEXT_DELTA else state.reasoning.get(id) if kind == _REASONING_DELTA else None
        if part is not None:
            part.pieces.append(delta)
            self.index += 1
        return part

    def undo_extend(self, part: PartState) -> None:
        """Undo the latest `extend`."""
        part.pieces.pop()
        self.index -= 1

    def undo(self, change: Change) -> None:
        """Undo the latest `apply`; call it again for the one before. Raises InvalidValue for a change that is not the latest."""
        if change.index != self.index - 1:
            raise InvalidValue("change", "is not the latest one applied")
        change.undo()
        self.index -= 1

    def _start(self, chunk: Chunk, change: Change) -> None:
        state, id, _ = self.state, chunk.get("messageId"), _metadata_of(chunk)
        if id is not None and id != state.id:
            change.opened = bool(state.id or state.parts or state.finished)
            change.closed = state if change.opened else None
            change.set(self, "state", MessageState(id, self.ai_sdk))
        _merge_metadata(self.state, chunk, change)


def _type_of(chunk: object) -> str:
    kind = chunk.get("type") if isinstance(chunk, Mapping) else None
    return kind if isinstance(kind, str) else ""


def _metadata_of(chunk: Chunk) -> Mapping[str, Any] | None:
    payload = chunk.get("messageMetadata")
    if payload is None or isinstance(payload, Mapping):
        return payload
    raise InvalidValue(f"{chunk['type']}.messageMetadata", "must be an object")  # the column holds an object


def _merge_metadata(state: MessageState, chunk: Chunk, change: Change) -> None:
    payload = _metadata_of(chunk)
    if payload is not None:
        change.metadata = True
        change.set(state, "metadata", dict(payload) if state.metadata is None else merged(state.metadata, payload))


def _finish(state: MessageState, chunk: Chunk, change: Change) -> None:
    _merge_metadata(state, chunk, change)
    change.set(state, "finished", True)
    change.boundary = "finish"


def _start_step(state: MessageState, chunk: Chunk, change: Change) -> None:
    change.append(state, {"type": "step-start"})
    change.set(state, "step", ToolIndex())
    change.set(state, "left_open", [])


def _finish_step(state: MessageState, chunk: Chunk, change: Change) -> None:
    if state.ai_sdk == AiSdk.V6:  # since 7 only its own end chunk ends a part
        change.set(state, "text", {})
        change.set(state, "reasoning", {})
    change.set(state, "left_open", [])
    change.boundary = "step"


def _reset_step(state: MessageState, chunk: Chunk, change: Change) -> None:
    for name in ("text", "reasoning", "inputs"):
        change.set(state, name, {})
    change.set(state, "left_open", [])
    start = state.step_start()
    if start == len(state.parts):
        return
    change.truncate(state, start)
    change.set(state, "step", ToolIndex())
    removed = set(change.removed)
    change.set(state, "data", {key: part for key, part in state.data.items() if part not in removed})
    if any(is_tool(part.data) for part in removed):
        calls = ((part.data.get("toolCallId"), part) for part in state.parts if is_tool(part.data))
        change.set(state, "latest", {call_id: part for call_id, part in calls if isinstance(call_id, str)})


# `apply` handles start and abort itself; every other type without an entry is data-*.
_HANDLERS: dict[str, _Handler] = {
    ChunkType.FINISH.value: _finish,
    ChunkType.MESSAGE_METADATA.value: _merge_metadata,
    ChunkType.START_STEP.value: _start_step,
    ChunkType.FINISH_STEP.value: _finish_step,
    ChunkType.RESET_STEP.value: _reset_step,
    ChunkType.ERROR.value: lambda state, chunk, change: setattr(change, "error_text", chunk["errorText"]),
    ChunkType.TEXT_START.value: _text_start,
    ChunkType.TEXT_DELTA.value: lambda state, chunk, change: _delta(_open_part(state.text, "text", chunk, change), chunk, change),
    ChunkType.TEXT_END.value: lambda state, chunk, change: _end(
        state.text, "text", chunk, change, picked(chunk, "citations") if state.ai_sdk >= AiSdk.V7 else {}
    ),
    ChunkType.REASONING_START.value: _reasoning_start,
    ChunkType.REASONING_DELTA.value: lambda state, chunk, change: _delta(
        _open_part(state.reasoning, "reasoning", chunk, change), chunk, change
    ),
    ChunkType.REASONING_END.value: lambda state, chunk, change: _end(state.reasoning, "reasoning", chunk, change, {}),
    ChunkType.SOURCE_URL.value: _appends("type", "sourceId", "url", "title", "providerMetadata"),
    ChunkType.SOURCE_DOCUMENT.value: _appends("type", "sourceId", "mediaType", "title", "filename", "providerMetadata"),
    ChunkType.FILE.value: _appends("type", "mediaType", "url", "providerMetadata"),
    ChunkType.REASONING_FILE.value: _appends("type", "mediaType", "url", "providerMetadata"),
    ChunkType.CUSTOM.value: _appends("type", "kind", "providerMetadata"),
    ChunkType.STEERING_MESSAGE.value: _appends("type", "id", "parts"),
    ChunkType.TOOL_INPUT_START.value: _input_start,
    ChunkType.TOOL_INPUT_DELTA.value: _input_delta,
    ChunkType.TOOL_INPUT_AVAILABLE.value: _input_available,
    ChunkType.TOOL_INPUT_ERROR.value: _input_error,
    ChunkType.TOOL_APPROVAL_REQUEST.value: lambda state, chunk, change: _rewrite_call(
        state, chunk, change, with_explained_approval_request if state.ai_sdk >= AiSdk.V7 else with_approval_request
    ),
    ChunkType.TOOL_APPROVAL_RESPONSE.value: _approval_response,
    ChunkType.TOOL_OUTPUT_AVAILABLE.value: _rewrites(with_output),
    ChunkType.TOOL_OUTPUT_ERROR.value: _rewrites(with_output_error),
    ChunkType.TOOL_OUTPUT_DENIED.value: _rewrites(with_denial),
}
