"""What a posted list changes in a session, what of it is an answer to the stored one, and what is refused."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, NoReturn, Protocol

from persist.chat.posted.messages import Posted, begins, check_user_parts, given_metadata, same, same_metadata, same_parts
from persist.chat.reducer.chunks import DATA_PREFIX
from persist.chat.reducer.parts import (
    TEXT_TYPES,
    Part,
    approval_id,
    is_part,
    is_tool,
    picked,
    tool_name,
    with_approval_response,
    with_output,
    with_output_error,
)
from persist.chat.schemas import Role, ToolState
from persist.errors import Conflict, InvalidValue, shown

# A posted assistant's message beside the stored one, which stays: what differs is an answer of the browser's, or refused.
#
# The browser may have lost the rest of the stored message: fewer parts, the beginning of a text, an earlier state of a tool call.

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
        """The parts of a message, without the text in delta rows."""

    def full_part(self, message_id: str, place: int) -> Part:
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
        data = None if part == known else _answer(path, part, parts.full_part(message_id, place), client_tools)
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


_USER, _ASSISTANT, _SYSTEM = str(Role.USER), str(Role.ASSISTANT), str(Role.SYSTEM)


class Trigger(StrEnum):
    """Why useChat posts."""

    SUBMIT = "submit-message"
    REGENERATE = "regenerate-message"


class Stored(NamedTuple):
    """A stored message, without its parts."""

    id: str
    role: str
    metadata: dict[str, Any]
    queued: bool = False
    """Whether it waits in the queue."""
    hidden: bool = False
    """Whether a rewind, an edit or a regeneration hid it."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A user's message with other parts or metadata."""

    posted: Posted
    stored: Stored
    given: dict[str, Any] | None
    parts_differ: bool


@dataclass(slots=True)
class Plan:
    """The changes that a posted list asks for."""

    added: list[tuple[Posted, dict[str, Any]]] = field(default_factory=list)
    """New messages of the user's, with their metadata."""
    edit: Edit | None = None
    hidden: list[Stored] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    continues: str | None = None
    answered_by: str | None = None

    @property
    def changes(self) -> bool:
        """Whether anything is to be written."""
        return bool(self.added or self.edit or self.hidden or self.answers)


class Planner:
    """Walks through a posted list beside the stored messages from the first posted one on, in their order."""

    def __init__(self, stored: Sequence[Stored], parts: StoredParts, *, client_tools: AbstractSet[str] | None = None) -> None:
        self._stored, self._parts, self._client_tools = stored, parts, client_tools
        self._places = {message.id: place for place, message in enumerate(stored)}
        self._visible = [place for place, message in enumerate(stored) if not (message.queued or message.hidden)]
        self._plan = Plan()
        self._last = -1
        """The place of the last stored message that was posted."""
        self._ends_in: Stored | None = None
        """The stored message that the list ends in; None if it ends in a new or queued one."""
        self._other_ids: dict[str | None, str] = {}
        """The ids of the assistant's stored messages, by the ids under which clients posted them."""

    def plan(self, posted: Sequence[Posted], trigger: Trigger | None, message_id: str | None, running: "Running | None") -> Plan:
        """The changes. Raises InvalidValue and Conflict for what a browser may not change."""
        places, ids = self._places, None
        for message in posted:
            place = places.get(message.id)
            if place is not None:
                if not self._is_next_and_as_stored(message, place):
                    self._known(message, place)
            elif message.role == _ASSISTANT:
                ids = ids or {message.id for message in posted}
                self._unknown_answer(message, ids)
            elif message.role == _USER:
                self._new(message)
            else:
                raise InvalidValue(f"{message.path}.role", "a browser adds no system messages.")
        plan = self._plan
        plan.hidden = self._hidden(trigger, message_id, running)
        if trigger != Trigger.REGENERATE:
            end = self._ends_in
            named = places.get(message_id or "")
            if message_id in self._other_ids:
                plan.continues = self._other_ids[message_id]
            elif named is not None and self._stored[named].role == _ASSISTANT and any(one.id == message_id for one in posted):
                plan.continues = message_id
            elif end is not None and end.role == _ASSISTANT:
                plan.continues = end.id
            following = self._next_visible()
            if end is not None and end.role == _USER and not plan.changes and following and following.role == _ASSISTANT:
                plan.answered_by = following.id
        return plan

    def _is_next_and_as_stored(self, posted: Posted, place: int) -> bool:
        """Take nearly every message of nearly every list, which needs no closer look; False for any other."""
        stored = self._stored[place]
        _, role, _, queued, hidden = stored
        if queued or hidden or place <= self._last or posted.role != role or self._plan.added or self._plan.edit is not None:
            return False
        parts = self._parts.of(posted.id)
        if not (posted.parts == parts if role == _ASSISTANT else posted.metadata is None and same_parts(posted, parts)):
            return False
        self._last, self._ends_in = place, stored
        return True

    def _known(self, posted: Posted, place: int) -> None:
        stored = self._stored[place]
        if stored.queued:
            self._ends_in = None
            return
        if stored.hidden:
            raise Conflict(
                f"{posted.path}: message {stored.id} was hidden by a rewind, an edit or a regeneration; load the messages again.",
                constraint="chat_messages",
            )
        if self._plan.added:
            raise InvalidValue(f"{posted.path}.id", "a message that is stored stands after a new one.")
        if place <= self._last:
            raise InvalidValue(f"{posted.path}.id", "the messages stand in another order than they are stored in.")
        if posted.role != stored.role:
            raise InvalidValue(f"{posted.path}.role", f"the stored message is of role {stored.role}.")
        if self._plan.edit is not None:
            self._refuse_edit()
        self._last, self._ends_in = place, stored
        if stored.role == _ASSISTANT:
            self._answer(posted, stored)
            return
        parts_differ = not same_parts(posted, self._parts.of(stored.id))
        if stored.role == _SYSTEM:
            if parts_differ:
                raise InvalidValue(f"{posted.path}.parts", "a browser changes no system messages.")
            return
        if posted.metadata is None and not parts_differ:
            return
        given = given_metadata(posted, stored.metadata)
        if parts_differ or not same_metadata(given, stored.metadata):
            if parts_differ:
                check_user_parts(posted)
            self._plan.edit = Edit(posted, stored, given, parts_differ)

    def _refuse_edit(self) -> None:
        """Refuse an edit that the list goes on after. Of metadata alone, the stored one stays."""
        edit = self._plan.edit
        if edit is not None and edit.parts_differ:
            raise InvalidValue(f"{edit.posted.path}.parts", "only the last message of the list can be edited.")
        self._plan.edit = None

    def _answer(self, posted: Posted, stored: Stored) -> None:
        self._plan.answers += answers_in(posted, stored.id, self._parts, self._client_tools)

    def _unknown_answer(self, posted: Posted, ids: AbstractSet[str]) -> None:
        """An answer that the browser knows under another id, or that has no part which is stored."""
        expected = None if self._plan.added or self._last < 0 else self._next_visible()
        if expected is not None and expected.role == _ASSISTANT and expected.id not in ids:
            self._refuse_edit()
            self._last, self._ends_in = self._places[expected.id], expected
            self._other_ids[posted.id] = expected.id
            self._answer(posted, expected)
        elif not posted.is_silent:
            raise InvalidValue(posted.path, "no such answer is stored, and a browser adds none.")

    def _new(self, posted: Posted) -> None:
        check_user_parts(posted)
        self._refuse_edit()
        self._ends_in = None
        self._plan.added.append((posted, given_metadata(posted, {}) or {}))

    def _hidden(self, trigger: Trigger | None, message_id: str | None, running: "Running | None") -> list[Stored]:
        """The visible messages that the list takes back."""
        if self._plan.edit is not None:
            return self._visible_after(self._last)
        if trigger == Trigger.SUBMIT:
            return []
        named = None if message_id is None else self._places.get(message_id)
        if trigger == Trigger.REGENERATE and named is not None and self._stored[named].role == _ASSISTANT:
            if self._stored[named].queued or self._stored[named].hidden:
                return []  # it is regenerated already
            if named <= self._last:
                raise InvalidValue("message_id", "the list still has the answer that is to be regenerated.")
            return self._visible_after(named - 1)
        end = self._ends_in
        if end is None or (trigger is None and end.role != _USER):
            return []
        following = self._visible_after(self._last)
        if trigger is None and running is not None and [message.id for message in following] == [running.message_id]:
            return []  # the answer to this question is on its way
        return following

    def _visible_after(self, place: int) -> list[Stored]:
        return [self._stored[at] for at in self._visible[bisect_right(self._visible, place) :]]

    def _next_visible(self) -> Stored | None:
        at = bisect_right(self._visible, self._last)
        return self._stored[self._visible[at]] if at < len(self._visible) else None


@dataclass(frozen=True, slots=True)
class Running:
    """The turn that runs in the session, and the message it writes, if that is known."""

    message_id: str | None
