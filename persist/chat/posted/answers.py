"""A posted assistant's message beside the stored one, which stays: what differs is an answer of the browser's, or refused.

The browser may have lost the rest of the stored message: fewer parts, the beginning of a text, an earlier state of a tool call.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from persist.chat.posted.json_values import begins, same
from persist.chat.posted.messages import Posted
from persist.chat.reducer.chunks import DATA_PREFIX
from persist.chat.reducer.parts import TEXT_TYPES, Part, is_part, picked
from persist.chat.reducer.tool_parts import (
    approval_id,
    is_tool,
    tool_name,
    with_approval_response,
    with_output,
    with_output_error,
)
from persist.chat.schemas import ToolState
from persist.errors import InvalidValue
from persist.quoting import shown

_ABSENT = object()
_NOT_COMPARED = frozenset(("type", "text", "state", "providerMetadata"))
_RANK: dict[str, int] = {
    ToolState.INPUT_STREAMING: 0,
    ToolState.INPUT_AVAILABLE: 1,
    ToolState.APPROVAL_REQUESTED: 2,
    ToolState.APPROVAL_RESPONDED: 3,
    ToolState.OUTPUT_AVAILABLE: 4,
    ToolState.OUTPUT_ERROR: 4,
    ToolState.OUTPUT_DENIED: 4,
}
_CLIENT_RESULTS = (ToolState.OUTPUT_AVAILABLE, ToolState.OUTPUT_ERROR)


class StoredParts(Protocol):
    """The parts of stored messages."""

    def of(self, message_id: str) -> Sequence[Part]:
        """The parts of a message, without text that waits in rows of its own."""

    def whole(self, message_id: str, place: int) -> Part:
        """The part at that place with all of its text."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An approval answered, or a client tool's result given: the part as it is to be stored, and where it was posted."""

    message_id: str
    place: int
    """The place of the part among those of the message."""
    data: Part
    path: str
    approval: str | None = None
    """The id of the approval that is answered."""


def answers_in(posted: Posted, message_id: str, parts: StoredParts, client_tools: AbstractSet[str] | None) -> list[Answer]:
    """The answers in a posted message, beside the stored message of that id. InvalidValue names what a browser may not change."""
    stored = parts.of(message_id)
    if posted.parts == stored:
        return []
    found = []
    for place, (part, known) in enumerate(zip(posted.parts, stored, strict=False)):
        path = f"{posted.path}.parts[{place}]"
        data = None if part == known else _answer(path, part, parts.whole(message_id, place), client_tools)
        if data is not None:
            found.append(Answer(message_id, place, *data))
    if len(posted.parts) > len(stored):
        raise InvalidValue(f"{posted.path}.parts[{len(stored)}]", "the stored answer has no such part, and a browser adds none.")
    return found


_Answered = tuple[Part, str, str | None]
"""The part as it is to be stored, the path of what was given, and the id of the approval that is answered."""


def _answer(path: str, posted: Mapping[str, Any], data: Part, client_tools: AbstractSet[str] | None) -> _Answered | None:
    if posted.get("type") != data.get("type"):
        raise InvalidValue(f"{path}.type", f"the stored part is of type {shown(data.get('type'))}.")
    kind = data["type"] if is_part(data) else ""  # another program may have stored anything
    if kind and is_tool(data):
        return _ToolCall(path, posted, data).answer(client_tools)
    if kind in TEXT_TYPES and not begins(posted.get("text"), data.get("text")):
        raise InvalidValue(f"{path}.text", "it is not the beginning of the stored text, and a browser changes no answer.")
    replaced = kind.startswith(DATA_PREFIX) and "id" in data and same(posted.get("id"), data["id"])
    for key, value in posted.items():
        if key not in _NOT_COMPARED and not (replaced and key == "data") and not same(value, data.get(key, _ABSENT)):
            raise InvalidValue(f"{path}.{key}", "it differs from the stored answer, which a browser does not change.")
    return None


class _ToolCall:
    """A tool call as it was posted and as it is stored."""

    def __init__(self, path: str, posted: Mapping[str, Any], stored: Part) -> None:
        self.path, self.posted, self.stored = path, posted, stored
        self.before = stored.get("state")

    def answer(self, client_tools: AbstractSet[str] | None) -> _Answered | None:
        """What the browser answers: an open approval, or with a client tool's result; None if the posted state is not later."""
        for key in ("toolCallId", "toolName", "providerExecuted"):
            if key in self.posted:
                self._require_same(key)
        state, before = self.posted.get("state"), self.before
        if not isinstance(state, str) or not isinstance(before, str) or state not in _RANK or before not in _RANK:
            self._refuse("state", f"{shown(state)} is no state of a tool call that is stored as {shown(before)}.")
        if state != ToolState.INPUT_STREAMING and "input" in self.posted:
            self._require_same("input")
        self._check_approval()
        if state == before:
            if not self.posted.get("preliminary"):
                for key in ("output", "errorText"):
                    if key in self.posted:
                        self._require_same(key)
            return None
        if _RANK[state] < _RANK[before]:
            return None
        if state == ToolState.APPROVAL_RESPONDED and before == ToolState.APPROVAL_REQUESTED:
            return self._approval_answer()
        if state in _CLIENT_RESULTS and _RANK[before] < _RANK[state]:
            return self._result(state, client_tools)
        self._refuse("state", f"a browser does not move a tool call from {before} to {state}.")

    def _check_approval(self) -> None:
        """Refuse an approval that nobody asked for, and another answer than the one that is stored."""
        posted, stored = self.posted.get("approval"), self.stored.get("approval")
        if posted is None:
            return
        id = approval_id(self.posted)
        if not isinstance(posted, dict) or not isinstance(stored, dict) or id is None or id != approval_id(self.stored):
            self._refuse("approval", "nobody asked for this approval.")
        if "approved" in posted and "approved" in stored and not same(posted["approved"], stored["approved"]):
            self._refuse("approval.approved", "it was answered otherwise already.")

    def _approval_answer(self) -> _Answered:
        approval = self.posted.get("approval")
        if approval is None:
            self._refuse("approval", "it is missing.")
        if type(approval.get("approved")) is not bool:
            self._refuse("approval.approved", "expected true or false.")
        if not isinstance(approval.get("reason", ""), str):
            self._refuse("approval.reason", "expected text.")
        id = approval["id"]
        answered = with_approval_response(self.stored, {"approvalId": id, **picked(approval, "approved", "reason")})
        return answered, f"{self.path}.approval", id

    def _result(self, state: str, client_tools: AbstractSet[str] | None) -> _Answered:
        stored, posted = self.stored, self.posted
        if self.before == ToolState.INPUT_STREAMING:
            self._refuse("state", "the call has no result before its input is complete.")
        approval = stored.get("approval")
        if approval is not None and not (isinstance(approval, dict) and approval.get("approved") is True):
            self._refuse("state", "the call has no result before its approval is granted.")
        if stored.get("providerExecuted") or posted.get("preliminary"):
            self._refuse("state", "the result of this call is not the browser's.")
        name = tool_name(stored)
        if client_tools is not None and name not in client_tools:
            self._refuse("state", f"{shown(name)} is no tool that the browser runs.")
        if state == ToolState.OUTPUT_AVAILABLE:
            return with_output(stored, {"output": posted.get("output")}), f"{self.path}.output", None
        if not isinstance(posted.get("errorText"), str):
            self._refuse("errorText", "expected text.")
        return with_output_error(stored, {"errorText": posted["errorText"]}), f"{self.path}.errorText", None

    def _require_same(self, key: str) -> None:
        if not same(self.posted[key], self.stored.get(key, _ABSENT)):
            self._refuse(key, "it differs from the stored call, which a browser does not change.")

    def _refuse(self, key: str, reason: str) -> NoReturn:
        raise InvalidValue(f"{self.path}.{key}", reason)
