"""The pure reducer of a UI message stream: chunks in, message parts and what changed out. No database, no clock."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from persist.chat.reducer import part_chunks
from persist.chat.reducer.chunks import ChunkType, validate
from persist.chat.reducer.message_state import Change, MessageState, ToolIndex, merged
from persist.chat.reducer.part_chunks import UnknownToolCall
from persist.chat.reducer.parts import PartState, grow, is_tool
from persist.chat.schemas import UIMessage
from persist.errors import InvalidValue
from persist.settings import AiSdk

__all__ = ["Accumulator", "Change", "MessageState", "PartState", "UIMessage", "UnknownToolCall", "grow", "reduce"]

Chunk = Mapping[str, Any]

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

    __slots__ = ("_state", "aborted", "ai_sdk", "index")

    def __init__(self, message: UIMessage | None = None, ai_sdk: AiSdk = AiSdk.V7) -> None:
        self._state = MessageState("", ai_sdk) if message is None else MessageState.resume(message, ai_sdk)
        self.ai_sdk = ai_sdk
        self.aborted = False
        self.index = 0

    @classmethod
    def over(cls, state: MessageState, index: int) -> "Accumulator":
        """An accumulator that continues an earlier message of the stream, `index` chunks into the stream."""
        self = cls(ai_sdk=state.ai_sdk)
        self._state, self.index = state, index
        return self

    @property
    def state(self) -> MessageState:
        """The current message and its indexes."""
        return self._state

    @property
    def message_id(self) -> str:
        """The message's id; the empty string until a `start` chunk or the message to continue names one."""
        return self._state.id

    @property
    def parts(self) -> list[PartState]:
        return self._state.parts

    @property
    def metadata(self) -> dict[str, Any] | None:
        return self._state.metadata

    @property
    def earlier_message_parts(self) -> dict[str, PartState]:
        """Tool parts of earlier messages by call id, for results without a call in this message; emptied by a new message."""
        return self._state.earlier_message_parts

    def message(self) -> UIMessage:
        """The current message as JSON: {"id", "role", "parts"[, "metadata"]}."""
        return self._state.message()

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
                handler(self._state, chunk, change)
            elif known == ChunkType.START:
                self._start(chunk, change)
            elif known == ChunkType.ABORT:
                change.set(self, "aborted", True)
                change.boundary = "abort"
            else:
                part_chunks.data(self._state, chunk, change)
        self.index += 1
        return change

    def extend(self, chunk: dict[str, Any]) -> PartState | None:
        """Fast path for a chunk that only adds text to an open part: returns that part. None: nothing was done, use `apply`."""
        if len(chunk) != 3 or self.aborted:
            return None
        kind, id, delta = chunk["type"], chunk.get("id"), chunk.get("delta")
        if type(id) is not str or type(delta) is not str:
            return None
        state = self._state
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
        state, id, _ = self._state, chunk.get("messageId"), _metadata_of(chunk)
        if id is not None and id != state.id:
            change.opened = bool(state.id or state.parts or state.finished)
            change.closed = state if change.opened else None
            change.set(self, "_state", MessageState(id, self.ai_sdk))
        _merge_metadata(self._state, chunk, change)


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


def _error(state: MessageState, chunk: Chunk, change: Change) -> None:
    change.error_text = chunk["errorText"]


# `apply` handles start and abort itself; every other type without an entry is data-*.
_HANDLERS: dict[str, Callable[[MessageState, Chunk, Change], None]] = {
    ChunkType.FINISH.value: _finish,
    ChunkType.MESSAGE_METADATA.value: _merge_metadata,
    ChunkType.START_STEP.value: _start_step,
    ChunkType.FINISH_STEP.value: _finish_step,
    ChunkType.RESET_STEP.value: _reset_step,
    ChunkType.ERROR.value: _error,
    ChunkType.TEXT_START.value: part_chunks.text_start,
    ChunkType.TEXT_DELTA.value: part_chunks.text_delta,
    ChunkType.TEXT_END.value: part_chunks.text_end,
    ChunkType.REASONING_START.value: part_chunks.reasoning_start,
    ChunkType.REASONING_DELTA.value: part_chunks.reasoning_delta,
    ChunkType.REASONING_END.value: part_chunks.reasoning_end,
    ChunkType.SOURCE_URL.value: part_chunks.source_url,
    ChunkType.SOURCE_DOCUMENT.value: part_chunks.source_document,
    ChunkType.FILE.value: part_chunks.file,
    ChunkType.REASONING_FILE.value: part_chunks.file,
    ChunkType.CUSTOM.value: part_chunks.custom,
    ChunkType.STEERING_MESSAGE.value: part_chunks.steering_message,
    ChunkType.TOOL_INPUT_START.value: part_chunks.input_start,
    ChunkType.TOOL_INPUT_DELTA.value: part_chunks.input_delta,
    ChunkType.TOOL_INPUT_AVAILABLE.value: part_chunks.input_available,
    ChunkType.TOOL_INPUT_ERROR.value: part_chunks.input_error,
    ChunkType.TOOL_APPROVAL_REQUEST.value: part_chunks.approval_request,
    ChunkType.TOOL_APPROVAL_RESPONSE.value: part_chunks.approval_response,
    ChunkType.TOOL_OUTPUT_AVAILABLE.value: part_chunks.output_available,
    ChunkType.TOOL_OUTPUT_ERROR.value: part_chunks.output_error,
    ChunkType.TOOL_OUTPUT_DENIED.value: part_chunks.output_denied,
}
