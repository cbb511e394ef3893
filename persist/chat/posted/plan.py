"""What a posted list changes in a session, and what of it is refused."""

from bisect import bisect_right
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from persist.chat.posted.answers import Answer, StoredParts, answers_in
from persist.chat.posted.messages import Posted, check_user_parts, given_metadata, same_metadata, same_parts
from persist.chat.schemas import Role
from persist.errors import Conflict, InvalidValue

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

    def __init__(
        self,
        stored: Sequence[Stored],
        parts: StoredParts,
        *,
        client_tools: AbstractSet[str] | None = None,
    ) -> None:
        self._stored, self._parts, self._client_tools = stored, parts, client_tools
        self._places = {message.id: place for place, message in enumerate(stored)}
        self._visible = [place for place, message in enumerate(stored) if not (message.queued or message.hidden)]
        self._plan = Plan()
        self._last = -1
        """The place of the last stored message that was posted."""
        self._ends_in: Stored | None = None
        """The stored message that the list ends in; None if it ends in a new or queued one."""
        self._other_ids: dict[str | None, str] = {}
        """Ids of stored messages of the assistant's by other ids, under which they were posted."""

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
        """The visible message after the last one that was posted."""
        at = bisect_right(self._visible, self._last)
        return self._stored[self._visible[at]] if at < len(self._visible) else None


@dataclass(frozen=True, slots=True)
class Running:
    """The turn that runs in the session, and the message it writes, if that is known."""

    message_id: str | None
