"""One flush of a recorder: writes decided beforehand, run in one transaction. Running a flush again changes nothing more."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Text, bindparam, cast, delete, func, insert, select, update

from persist.chat.models import deltas, messages, parts, prompts, sessions
from persist.chat.recording.pending import Patch, patched, without_usage
from persist.chat.recording.resume import refuse_hidden
from persist.chat.schemas import Role, StepUsage
from persist.chat.storage import turns, usage
from persist.chat.storage.folding import fold_in_database, rewrite_long
from persist.chat.storage.statements import (
    FOLD_PART,
    INSERT_MESSAGE,
    INSERT_PART,
    REWRITE_PART,
    SET_METADATA,
    SET_MODEL,
    TOUCH_SESSION,
)
from persist.chat.storage.stored_json import stored_object
from persist.db.changes.driver_statements import StatementRunner
from persist.db.expressions.locking import with_lock_timeout
from persist.db.expressions.upsert import insert_missing
from persist.db.group_commit.tasks import SingleRowInsert
from persist.db.schema.column_types import Whole
from persist.db.statements.prepared import Row, Statement, param
from persist.db.values.clock import to_ms
from persist.db.values.json import JsonFrame, JsonText, encode
from persist.errors import PersistError

_M, _P, _D, _S = messages.c, parts.c, deltas.c, sessions.c
_id = param("row_id")
_MILLISECOND = timedelta(milliseconds=1)

# These ids were made by persist: as plain Text they skip the checks of the Label type on every chunk.
_TEXT = Text()
_ADD_DELTA = Statement(
    insert(deltas).from_select(
        ["part_id", "seq", "created_at", "delta"],
        select(
            bindparam("part_id", type_=_TEXT),
            bindparam("seq", type_=_D.seq.type),
            bindparam("at", type_=Whole()),
            bindparam("delta", type_=_D.delta.type),
        ).where(turns.owned(_TEXT), with_lock_timeout()),
    )
)
DROP_DELTAS = Statement(delete(deltas).where(_D.part_id == _id))
_TOUCH_MESSAGE = Statement(update(messages).where(_M.id == _id).values(updated_at=param("at")))
_METADATA = Statement(select(cast(_M.metadata_json, Text)).where(_M.id == _id).with_for_update())
NEWEST_MESSAGE = Statement(
    select(_M.created_at, func.max(_M.id))
    .where(_M.session_id == _id)
    .group_by(_M.created_at)
    .order_by(_M.created_at.desc())
    .limit(1)
)
ADD_PROMPT = Statement(insert_missing(prompts, "digest"))


class DeltaRow(SingleRowInsert):
    """A delta row, inserted only while this recorder owns the turn. Conflict if another recorder owns it."""

    __slots__ = ()
    prepared = _ADD_DELTA
    name = "part.delta"

    def __init__(self, session_id: str, owner: str, at_ms: int, part_id: str, seq: int, delta: str) -> None:
        self.values = {"part_id": part_id, "seq": seq, "at": at_ms, "delta": delta, "session_id": session_id, "owner_id": owner}
        self.stream = session_id

    def refusal(self, db: StatementRunner, /) -> PersistError:
        """The error of an insert that matched no turn: Conflict, or NotFound if the session was deleted."""
        return turns.lost_turn_error(db, self.stream)


@dataclass(slots=True)
class PartWrite:
    """A new or rewritten part's row, with its complete data."""

    id: str
    data: JsonText
    kind: str
    tool_call_id: str | None
    tool_state: str | None
    at: datetime
    created: tuple[str, int, datetime] | None = None
    """(message id, index, created_at) of a new part; None for a rewritten one."""
    had_tail: bool = False
    frame: JsonFrame | None = None
    """The stored JSON around a long text that is not rewritten: the text in `data` is empty then."""


@dataclass(slots=True)
class MessageWrite:
    """One message's share of a flush."""

    id: str
    new: bool
    base: Mapping[str, Any] = field(default_factory=dict)
    """Metadata of a new message, overridden by what the stream sends."""
    owned: Mapping[str, Any] = field(default_factory=dict)
    """Metadata that overrides what the stream sends."""
    patches: list[Patch] = field(default_factory=list)
    parts: list[PartWrite] = field(default_factory=list)
    folds: list[tuple[str, JsonText | JsonFrame]] = field(default_factory=list)
    """(part id, complete data); for long text, which is folded in the database, the JSON around it instead of the data."""
    events_only: list[tuple[str, int, str]] = field(default_factory=list)
    """(part id, seq, text) that a fold stores without ever writing a delta row; only the event log needs them."""
    deltas: list[tuple[str, int, str]] = field(default_factory=list)
    usage: list[tuple[int, StepUsage]] = field(default_factory=list)
    touch: bool = False


@dataclass(slots=True)
class Flush:
    """Everything one transaction of a recorder writes."""

    session_id: str
    owner: str
    at: datetime
    at_ms: int
    begin: bool = False
    takeover: bool = False
    message_id: str | None = None
    """The id the turn's row gets as its message; None: unchanged, or not known yet."""
    resumed: str | None = None
    """`message_id` if that message is stored already, else None."""
    messages: list[MessageWrite] = field(default_factory=list)
    earlier_message_parts: list[tuple[str, PartWrite]] = field(default_factory=list)
    """(message id, part) of tool parts in earlier messages."""
    model: JsonText | None = None
    prompt: tuple[str, str] | None = None
    """(digest, body)."""
    touch_session: bool = False
    failed: bool = False
    end: bool = False

    def delta_only(self) -> bool:
        """Whether the flush is one delta row alone: a single statement, which checks the turn's owner itself."""
        if (
            self.begin
            or self.message_id
            or self.end
            or self.failed
            or self.touch_session
            or len(self.messages) != 1
            or self.earlier_message_parts
        ):
            return False
        message = self.messages[0]
        return len(message.deltas) == 1 and not (
            message.parts or message.folds or message.patches or message.usage or message.touch or message.new
        )

    def kind_of_change(self) -> str:
        """The kind of change, as the event log names it."""
        if self.failed:
            return "turn.failed"
        if self.end:
            return "message.finished" if self.messages else "turn.ended"
        if any(message.new for message in self.messages):
            return "message.started"
        if self.begin:
            return "turn.started"
        if self.earlier_message_parts or any(message.parts for message in self.messages):
            return "part.written"
        if any(message.patches or message.usage for message in self.messages):
            return "message.updated"
        return "part.delta" if any(message.deltas or message.events_only for message in self.messages) else "message.updated"

    def run(self, db: StatementRunner) -> None:
        """Write the flush. Conflict if another recorder owns the session's turn; NotFound if the session was deleted."""
        db.begin_event(self.kind_of_change(), self.session_id)
        if self.begin:
            turns.begin_turn(db, self.session_id, self.owner, self.message_id, self.at, takeover=self.takeover)
        elif self.message_id is not None:
            turns.turn_to(db, self.session_id, self.owner, self.message_id)
        elif not self.delta_only():
            turns.guard(db, self.session_id, self.owner)
        if self.begin or self.message_id is not None:
            self._refuse_hidden(db)
        if self.model is not None:
            db.run(SET_MODEL, row_id=self.session_id, model=self.model, at=self.at)
        if self.prompt is not None:
            db.run(ADD_PROMPT, digest=self.prompt[0], body=self.prompt[1], created_at=self.at)
        for message in self.messages:
            self._message(db, message)
        refuse_hidden(db, {message_id for message_id, _ in self.earlier_message_parts})
        for message_id, part in self.earlier_message_parts:
            self._part(db, part)
            db.run(_TOUCH_MESSAGE, row_id=message_id, at=self.at)
        if self.touch_session and self.model is None:
            db.run(TOUCH_SESSION, row_id=self.session_id, at=self.at)
        if self.failed:
            turns.mark_error(db, self.session_id, self.owner)
        if self.end:
            turns.end_turn(db, self.session_id, self.owner)

    def _refuse_hidden(self, db: StatementRunner) -> None:
        """Refuse hidden messages. From here on a rewind that hides one of them ends this turn."""
        stored = {message.id for message in self.messages if message.id and not message.new}
        refuse_hidden(db, sorted(stored if self.resumed is None else stored | {self.resumed}))

    def _message(self, db: StatementRunner, message: MessageWrite) -> None:
        if message.new:
            patches = without_usage(message.patches) if message.usage else message.patches
            metadata = patched(message.base, patches, message.owned)
            at = place_after_all(db, self.session_id, message.id, self.at)
            row = {
                "id": message.id,
                "session_id": self.session_id,
                "role": Role.ASSISTANT,
                "created_at": at,
                "updated_at": self.at,
            }
            db.run(INSERT_MESSAGE, **row, metadata_json=encode(metadata))
            usage.tally(db, self.session_id, message.id, Role.ASSISTANT, {}, metadata)
        elif message.patches or message.owned:
            self._merge_metadata(db, message)
        elif message.touch:
            db.run(_TOUCH_MESSAGE, row_id=message.id, at=self.at)
        for piece in message.deltas:
            DeltaRow(self.session_id, self.owner, self.at_ms, *piece).add(db)
        for part in message.parts:
            self._part(db, part)
        if any(part.kind == usage.COMPACTION for part in message.parts):
            usage.recompute(db, self.session_id)
        if db.journal is not None:
            for piece in message.events_only:
                DeltaRow(self.session_id, self.owner, self.at_ms, *piece).add(db)
        for part_id, data in message.folds:
            if isinstance(data, JsonFrame):
                fold_in_database(db, part_id, data)
                continue
            db.run(FOLD_PART, row_id=part_id, data=data)
            db.run(DROP_DELTAS, row_id=part_id)
        for step, counts in message.usage:
            usage.add_step(db, message.id, step, counts, self.at)

    def _part(self, db: StatementRunner, part: PartWrite) -> None:
        if part.frame is not None:
            rewrite_long(db, part.id, part.frame, part.data, part.at)
            return
        if part.created is None:
            db.run(REWRITE_PART, row_id=part.id, kind=part.kind, tool=part.tool_state, data=part.data, at=part.at)
            if part.had_tail:
                db.run(DROP_DELTAS, row_id=part.id)
            return
        message_id, index, created_at = part.created
        db.run(
            INSERT_PART,
            id=part.id,
            message_id=message_id,
            session_id=self.session_id,
            index=index,
            type=part.kind,
            tool_call_id=part.tool_call_id,
            tool_state=part.tool_state,
            created_at=created_at,
            updated_at=part.at,
            data_json=part.data,
        )

    def _merge_metadata(self, db: StatementRunner, message: MessageWrite) -> None:
        """Merge the stream's metadata into the stored metadata, read anew: other writers may have added keys."""
        row = db.row(_METADATA, row_id=message.id)
        if row is None:
            raise turns.lost_turn_error(db, self.session_id)
        patches = message.patches
        if any("usage" in patch.payload for patch in patches) and usage.has_steps(db, message.id):
            patches = without_usage(patches)
        stored = stored_object(db, row[0], f"the metadata of message {message.id}")
        metadata = patched(stored, patches, message.owned)
        db.run(SET_METADATA, row_id=message.id, metadata=encode(metadata), at=self.at)
        usage.tally(db, self.session_id, message.id, Role.ASSISTANT, stored, metadata)


def place_after_all(db: StatementRunner, session_id: str, message_id: str, now: datetime) -> datetime:
    """The created_at that sorts a new message last in its session.

    `now`, or the newest message's instant if that is later; 1 ms more if the tie would be lost by the smaller id.
    """
    return place_after(db.row(NEWEST_MESSAGE, row_id=session_id), message_id, now)


def place_after(row: Row | None, message_id: str, now: datetime) -> datetime:
    """What `place_after_all` returns, from the row of NEWEST_MESSAGE."""
    if row is None or row[0] < to_ms(now):
        return now
    newest: datetime = row[0]
    return newest if message_id > row[1] else newest + _MILLISECOND
