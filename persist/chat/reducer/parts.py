"""One part of a message while it streams: its JSON as of the last structural change, and the text received since."""

from collections.abc import Iterable, Mapping
from typing import Any

from persist.chat.reducer.chunks import InputEncoding
from persist.chat.reducer.partial_json import ABSENT, parse_partial, readings_may_differ
from persist.chat.schemas import ToolState
from persist.db.values.escaping import join_halves
from persist.db.values.json import JsonFrame
from persist.settings import AiSdk

Part = dict[str, Any]
TEXT_TYPES = frozenset(("text", "reasoning"))
LONG = 262_144  # bytes; longer text is folded by the database, which costs more than folding text kept in memory
MAX_INPUT_DEPTH = 150  # below the JSON encoder's limit of 200: a derived input was not sent, so no sender can fix it


class PartState:
    """One part of a message: {"type", ...} plus the pieces of text that extend it.

    `data` is replaced, never mutated, so an undo can restore the former value.

    The recorder uses these fields; the reducer only sets `index`, to the part's position in the message:
    id         the id of the part's row
    index      the `index` column of the row
    seq        the number of the latest delta row
    tail       bytes of text in delta rows that are not folded yet
    base       bytes of the whole text
    """

    __slots__ = ("base", "data", "frame", "id", "index", "pieces", "seq", "tail")

    def __init__(self, data: Part, index: int = 0) -> None:
        self.data = data
        self.pieces: list[str] = []
        self.id: str | None = None
        self.index = index
        self.seq = 0
        self.tail = 0
        self.base = 0
        self.frame: JsonFrame | None = None
        """Set when only the database has the text (done, or over 256 KB): the stored JSON before and after the text.

        `data["text"]` is empty then, and `pieces` holds only text that is not stored yet.
        """

    def snapshot(self) -> Part:
        """The complete part as JSON, equal to the SDK's at this point of the stream."""
        assert self.frame is None, "the database has its text"
        return grow(self.data, self.pending_text()) if self.pieces else dict(self.data)

    def pending_text(self) -> str:
        """The text in `pieces`, joined."""
        if len(self.pieces) != 1:
            self.pieces = ["".join(self.pieces)]  # a new list: an undo may still refer to the old one
        return self.pieces[0]

    def restore(self, data: Part, pieces: list[str]) -> None:
        self.data, self.pieces = data, pieces

    def part_stored(self) -> None:
        """The part's row is durable with all of its text. Text that is done or long is from now on kept only in the database."""
        if self.frame is None:
            if self.data["type"] not in TEXT_TYPES or (self.base < LONG and self.data.get("state") != "done"):
                return
            self.data = {**self.data, "text": ""}
        self.pieces = []
        self.frame = JsonFrame(self.data, "text")

    def remove_piece(self, pieces: list[str]) -> None:
        """Remove the piece that was last added to `pieces`, and make that list the current one."""
        pieces.pop()
        self.pieces = pieces


def picked(source: Mapping[str, Any], *keys: str) -> Part:
    """The named keys that `source` has: an absent key stays absent, null stays null."""
    return {key: source[key] for key in keys if key in source}


def is_part(data: object) -> bool:
    """Whether stored data is an object with a type. Other programs may have written it."""
    return isinstance(data, dict) and isinstance(data.get("type"), str)


def can_grow(data: Part) -> bool:
    """Whether `grow` can add text to a stored part. Other programs may have written it."""
    return isinstance(data.get("text" if data["type"] in TEXT_TYPES else "rawInput") or "", str)


def misfit_of_part(data: object) -> str | None:
    """Why data is not a part that readers and folds can use; None if it is one. Text that can grow has to be text."""
    if not isinstance(data, dict):
        return "no object"
    if not is_part(data):
        return "an object without a type"
    if data["type"] in TEXT_TYPES:
        return None if isinstance(data.get("text", ""), str) else "a part whose text is no text"
    grows = data.get("state") == ToolState.INPUT_STREAMING  # later it may be any input, such as one that was refused
    return "a part whose rawInput is no text" if grows and not can_grow(data) else None


def grow(data: Part, text: str) -> Part:
    """A stored part with more text added: to `text`, or to a tool's `rawInput`, from which its `input` is derived anew."""
    if data["type"] in TEXT_TYPES:
        return {**data, "text": join_halves((data.get("text") or "") + text)}
    raw_input = join_halves((data.get("rawInput") or "") + text)
    grown = {**data, "rawInput": raw_input}
    value = derived_input(raw_input, data.get("inputEncoding"))
    if value is ABSENT:
        grown.pop("input", None)
    else:
        grown["input"] = value
    return grown


def derived_input(raw_input: str, encoding: str | None, ai_sdk: AiSdk = AiSdk.V7) -> Any:
    """The tool input parsed from what came of `rawInput` so far; ABSENT if there is nothing to show yet."""
    if encoding == InputEncoding.TEXT:
        return raw_input
    value = parse_partial(raw_input, ai_sdk)[1]
    return ABSENT if _deeper_than(value, MAX_INPUT_DEPTH) else value


def _deeper_than(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit + 1):
        level = [item for node in level for item in _children(node)]
        if not level:
            return False
    return True


def _children(node: Any) -> Iterable[Any]:
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()


# Pure functions that change tool parts, and the state of a tool call's input while it streams.

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
