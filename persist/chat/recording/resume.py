"""What a recorder has to know of others: a message to continue, a request to stop, deltas that a dead process left."""

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Text, bindparam, cast, select

from persist.chat.following.turn_watch import Waiter, turn_watch
from persist.chat.models import HIDDEN, IS_UNFINISHED, VISIBLE, deltas, messages, parts
from persist.chat.reducer.parts import Part
from persist.chat.reducer.parts import approval_id as approval_of
from persist.chat.schemas import UNFINISHED, Role, ToolState, UIMessage
from persist.chat.storage import folding
from persist.chat.storage.files import StoredFile, put_back, referred
from persist.chat.storage.statements import LEFT_AFTER
from persist.chat.storage.turns import read_turn
from persist.chat.storage.unfolded_probe import ANY_DELTA
from persist.db.changes.batch import Requirement, StatementRunner
from persist.db.expressions.json_text import stored_text
from persist.db.expressions.upsert import of_former
from persist.db.group_commit.pinned_connection import PinnedConnection
from persist.db.group_commit.tasks import FunctionTask
from persist.db.statements.prepared import Row, Statement, among, param
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.snapshots import in_snapshot
from persist.errors import Conflict, NotPermitted, PersistError, UnreadableRow


class StopRequests:
    """The requests to stop that one recorder's turns get. Nothing is read before the host asks for the first time."""

    def __init__(self, runtime: Runtime, session_id: str, owner: str) -> None:
        self._runtime, self._session_id, self._owner = runtime, session_id, owner
        self._lock = threading.Lock()
        self._waiter: Waiter | None = None
        self._callbacks: list[Callable[[], None]] = []
        self.requested = False
        self.over = False
        """Whether the recorder is closed."""

    def is_requested(self) -> bool:
        """Whether a request is known. The first call reads the database, later ones what the watch saw since."""
        if self.watch() and not self.requested:
            try:
                turn = in_snapshot(self._runtime, lambda work: read_turn(work, self._session_id))
            except PersistError as error:
                if not (self._runtime.errors.is_outage(error) or isinstance(error, NotPermitted)):  # a recorder was permitted
                    raise
                return self.requested  # the watch sees it later
            if turn is not None and turn.owner == self._owner and turn.stop_requested_at is not None:
                self._notice()
        return self.requested

    def call(self, callback: Callable[[], None]) -> None:
        """Call once when a stop is requested or the recorder is closed; at once if that is so already."""
        self.watch()
        with self._lock:
            waits = not (self.requested or self.over)
            if waits:
                self._callbacks.append(callback)
        if not waits:
            callback()

    def close(self) -> None:
        """The recorder is closed: its waiters are told."""
        self.over = True
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            turn_watch(self._runtime).remove(waiter)
        self._tell()

    def watch(self) -> bool:
        """Begin to watch; False if that was done before, or if the recorder is closed."""
        with self._lock:
            if self._waiter is not None or self.over:
                return False
            waiter = self._waiter = Waiter(self._session_id, self._notice, self._owner)
        turn_watch(self._runtime).add(waiter)
        return True

    def _notice(self) -> None:
        if not self._runtime.closed:
            self.requested = True
        self._tell()

    def _tell(self) -> None:
        with self._lock:
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class StopRequested:
    """`recorder.stop_requested` of AsyncStore: whether a stop was requested. Awaiting it waits; False: it was closed."""

    def __init__(self, requests: StopRequests) -> None:
        self._requests = requests

    def __bool__(self) -> bool:
        self._requests.watch()
        return self._requests.requested

    def __await__(self) -> Generator[Any, None, bool]:
        return self._wait().__await__()

    async def _wait(self) -> bool:
        loop, event = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed, so nobody waits
                loop.call_soon_threadsafe(event.set)

        self._requests.call(wake)
        await event.wait()
        return self._requests.requested


# Folding deltas that a dead process left behind: on opening a SQLite file for writing, elsewhere during maintenance.

_BATCH = 100
_old = select(deltas.c.part_id).where(deltas.c.created_at < param("before")).distinct().order_by(deltas.c.part_id)
_found = _old.limit(_BATCH).offset(bindparam("left", type_=BigInteger())).subquery()
_OLD = Statement(select(stored_text(_found.c.part_id)))


def old_before(now: datetime) -> datetime:
    """Deltas older than this instant belong to no recording in progress: a recorder folds its own sooner."""
    return now - LEFT_AFTER


class Sweep:
    """Folds parts with deltas older than `before`, in batches. Unreadable ones are left alone, each logged once."""

    def __init__(self, before: datetime) -> None:
        self._before = before
        self._logged: set[str] = set()

    def fold_batch(self, db: StatementRunner) -> int:
        """Fold one batch of up to a hundred parts; the number folded, 0 when none is left that can be folded."""
        left = folded = 0
        while not folded and (found := db.rows(_OLD, before=self._before, left=left)):
            folded = folding.fold_each(db, folding.part_ids(found, self._log_once), self._log_once)
            left += len(found)
        return folded

    def _log_once(self, error: UnreadableRow) -> None:
        if str(error) not in self._logged:
            self._logged.add(str(error))
            folding.log_left_unfolded(error)


def fold_left_deltas(connection: PinnedConnection) -> int:
    """Fold the deltas of dead recorders, 100 parts per transaction; the number of parts. One query if there are no deltas."""
    sweep = Sweep(old_before(connection.runtime.clock()))
    if not connection.ask(lambda db: db.row(ANY_DELTA)):
        return 0
    total = 0
    while folded := connection.run(FunctionTask(sweep.fold_batch), what="open()"):
        total += folded
    return total


# What a recorder reads from the database: a message to continue, and the unfinished tool call that a late result belongs to.

_M, _P = messages.c, parts.c
_id = param("row_id")
_HEAD = Statement(select(_M.session_id, _M.role, cast(_M.metadata_json, Text)).where(_M.id == _id))
_PARTS = Statement(select(_P.id, _P.index, stored_text(_P.data_json)).where(_P.message_id == _id).order_by(_P.index))
_calls = (
    select(_P.id, _P.message_id)
    .join(messages, _M.id == _P.message_id)
    .where(_P.session_id == _id, IS_UNFINISHED, VISIBLE)
    .order_by(_M.created_at.desc(), _M.id.desc(), _P.index.desc())
)
_CALL = Statement(_calls.where(_P.tool_call_id == param("call_id")))
_ASKED_STATES = (ToolState.APPROVAL_REQUESTED, ToolState.APPROVAL_RESPONDED)
_ASKED = Statement(_calls.where(among(_P.tool_state, _ASKED_STATES)))
_hidden = select(_M.id).where(_M.id == _id, HIDDEN)
NOT_HIDDEN = Requirement(_hidden, absent=True)
"""A message that no rewind hides. What is added to a hidden one would never be shown."""
_DATA = Statement(select(_P.id, _P.index, stored_text(_P.data_json)).where(_P.id == _id))


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A stored message and the (id, index) of its part rows."""

    message: UIMessage
    rows: list[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class StoredCall:
    """An unfinished tool part of an earlier message."""

    part_id: str
    message_id: str
    call_id: str
    data: dict[str, Any]


def load_message(db: StatementRunner, runtime: Runtime, session_id: str, id: str) -> StoredMessage | None:
    """The message to resume, its deltas folded first; None if there is no such message.

    Conflict: the message is hidden, of another session, or not the assistant's, or parts of a former one are left in the file.
    UnreadableRow: a part cannot be read.
    """
    head = db.row(_HEAD, row_id=id)
    if head is None:
        if runtime.dialect.one_writer and db.rows(_PARTS, row_id=id):
            raise of_former(messages, "message", id)
        return None
    owner, role, stored = head
    if owner != session_id:
        raise Conflict(f"Message {id} belongs to another session.", constraint="chat_messages")
    if role != Role.ASSISTANT:
        raise Conflict(f"Message {id} is a {role} message; only an assistant message can be resumed.", constraint="chat_messages")
    metadata = folding.stored_object(db, stored, f"the metadata of message {id}")
    if metadata.get("hidden_at") is not None:
        raise hidden_error(id)
    folding.fold_message(db, id)
    rows = db.rows(_PARTS, row_id=id)
    message: UIMessage = {"id": id, "role": "assistant", "parts": [_data(db, row) for row in rows]}
    filed = [StoredFile(id, row[1], data) for row, data in zip(rows, message["parts"], strict=True) if referred(data) is not None]
    if filed:
        put_back(db, runtime, filed)
    if metadata:
        message["metadata"] = metadata
    return StoredMessage(message, [(part_id, index) for part_id, index, _ in rows])


def _data(db: StatementRunner, row: Row) -> Part:
    part_id, index, stored = row
    if type(index) is not int:
        raise UnreadableRow("chat_parts", (part_id,), "index", "it is no number")
    return folding.stored_part(part_id, stored, db.to_plain_json)


def refuse_hidden(db: StatementRunner, ids: Iterable[str]) -> None:
    """Raise Conflict if a rewind hid one of the messages: what is added to it would never be shown."""
    for id in ids:
        if db.row(NOT_HIDDEN.plain, row_id=id) is not None:
            raise hidden_error(id)


def hidden_error(id: str) -> Conflict:
    """The error for continuing a hidden message."""
    return Conflict(f"Message {id} was hidden by a rewind; unrewind it, or record another message.", constraint="chat_messages")


def waits_for(part: Part, call_id: str | None, approval_id: str | None) -> bool:
    """Whether this is an unfinished tool call with that call id, or else with that approval, which was asked for."""
    if call_id is not None:
        return part.get("toolCallId") == call_id and part.get("state") in UNFINISHED
    return approval_of(part) == approval_id and part.get("state") in _ASKED_STATES


def find_unfinished_call(
    db: StatementRunner, session_id: str, call_id: str | None, approval_id: str | None, newer: Mapping[str, Part | None]
) -> StoredCall | None:
    """The session's latest visible unfinished tool part with that call id, or else with that approval; None if there is none.

    Providers reuse call ids: hence the latest. `newer`: parts by id as they are to be written, None for those to be removed.
    """
    rows = db.rows(_ASKED, row_id=session_id) if call_id is None else db.rows(_CALL, row_id=session_id, call_id=call_id)
    for part_id, message_id in rows:
        known = newer.get(part_id)
        if known is not None and waits_for(known, call_id, approval_id):
            return StoredCall(part_id, message_id, str(known.get("toolCallId")), known)
        if part_id not in newer and waits_for((call := _call(db, part_id, message_id)).data, call_id, approval_id):
            return call
    return None


def _call(db: StatementRunner, part_id: str, message_id: str) -> StoredCall:
    folding.fold(db, part_id)
    found = db.row(_DATA, row_id=part_id)
    assert found is not None  # same transaction
    data = _data(db, found)
    return StoredCall(part_id, message_id, str(data.get("toolCallId")), data)
