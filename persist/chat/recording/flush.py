"""One flush of a recorder: writes decided beforehand, run in one transaction. Running a flush again changes nothing more."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Text, bindparam, cast, delete, insert, select, update

from persist.blobs.repository import NewBlob, add_named, add_outside
from persist.chat.models import deltas, messages, parts, prompts
from persist.chat.recording.pending import Patch, patched, without_usage
from persist.chat.recording.resume import NOT_HIDDEN, refuse_hidden
from persist.chat.reducer.message_state import Change
from persist.chat.reducer.parts import PartState
from persist.chat.schemas import Role, StepUsage
from persist.chat.storage import turns, usage
from persist.chat.storage.files import NAME_BLOB
from persist.chat.storage.folding import fold_in_database, rewrite_long, stored_object
from persist.chat.storage.message_insert import INSERT_LAST_OF_TURN
from persist.chat.storage.statements import FOLD_PART, INSERT_PART, REWRITE_PART, SET_METADATA, SET_MODEL, TOUCH_SESSION
from persist.db.changes.batch import Batch, DriverStatements, Pending, RequirementMissed, StatementRunner
from persist.db.expressions.locking import with_lock_timeout
from persist.db.expressions.upsert import insert_missing
from persist.db.group_commit.tasks import SingleRowInsert
from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import Row, Statement, param
from persist.db.values.clock import epoch_ms
from persist.db.values.json import JsonFrame, JsonText, encode
from persist.errors import Conflict, PersistError

# Merging a stream's metadata into a stored message: it is read anew, since other writers may have added keys.

_M = messages.c
_METADATA = Statement(select(cast(_M.metadata_json, Text)).where(_M.id == param("row_id")).with_for_update())
_COUNTED = ("usage", "hidden_at", "queued_at")
"""Keys of a message's metadata on which the session's counters depend."""


@dataclass(slots=True)
class Merge:
    """A message's stored metadata, read with a batch, and the change to write."""

    id: str
    stored: Pending[Row | None]
    steps: Pending[Row | None] | None
    boundary: Pending[Row | None] | None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    added: Mapping[str, int] = field(default_factory=dict)
    """What to add to the session's counters."""
    compacted: bool = False
    """Whether the message is before the latest compaction, so that the counters are computed anew."""

    @classmethod
    def ask(cls, batch: Batch, id: str, patches: Sequence[Patch]) -> "Merge":
        """Add the statements to a batch. They lock the message, and the session if its counters may change."""
        stored = batch.row(_METADATA, row_id=id)
        counts = any(key in patch.payload for patch in patches for key in _COUNTED)
        if not counts:
            return cls(id, stored, None, None)
        batch.lock(usage.LOCK_OWN_SESSION, row_id=id)
        return cls(id, stored, batch.row(usage.HAS_STEPS, row_id=id), usage.boundary_of(batch, id))

    def apply(self, db: StatementRunner, patches: Sequence[Patch], owned: Mapping[str, Any]) -> None:
        """Merge into the stored metadata that was read. Raises RequirementMissed if the message is gone."""
        if self.stored.result is None:
            raise RequirementMissed
        if self.steps is not None and self.steps.result is not None:
            patches = without_usage(patches)
        stored = stored_object(db, self.stored.result[0], f"the metadata of message {self.id}")
        self.metadata = patched(stored, patches, owned)
        self.added = usage.counters_of(Role.ASSISTANT, stored, self.metadata)
        if self.added and self.boundary is not None:
            self.compacted = usage.is_before(self.id, self.boundary.result)


_LAG = timedelta(seconds=1)  # of a session's `updated_at`, while an answer is recorded
_P = parts.c
_D = deltas.c
_id = param("row_id")

# These ids were made by persist: as plain Text they skip the checks of the Label type on every chunk.
_TEXT = Text()
_ADD_DELTA = Statement(
    insert(deltas).from_select(
        ["part_id", "seq", "created_at", "delta"],
        select(
            bindparam("part_id", type_=_TEXT),
            bindparam("seq", type_=_D.seq.type),
            bindparam("at", type_=Int64()),
            bindparam("delta", type_=_D.delta.type),
        ).where(turns.owned(_TEXT), with_lock_timeout()),
    )
)
_REMOVE_PART = Statement(delete(parts).where(_P.id == _id))  # its deltas go with it, by their foreign key
DROP_DELTAS = Statement(delete(deltas).where(_D.part_id == _id))
_TOUCH_MESSAGE = Statement(update(messages).where(_M.id == _id).values(updated_at=param("at")))
ADD_PROMPT = Statement(insert_missing(prompts, "digest"))


class DeltaRow(SingleRowInsert):
    """A delta row, inserted only while this recorder owns the turn. Raises Conflict if another recorder owns it."""

    __slots__ = ()
    prepared = _ADD_DELTA
    name = "part.delta"

    def __init__(self, session_id: str, owner: str, at_ms: int, part_id: str, seq: int, delta: str) -> None:
        self.values = {"part_id": part_id, "seq": seq, "at": at_ms, "delta": delta, "session_id": session_id, "owner_id": owner}
        self.stream = session_id

    def refusal(self, db: StatementRunner, /) -> PersistError:
        """The error of an insert that matched no turn: a Conflict, or NotFound if the session was deleted."""
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
    had_deltas: bool = False
    frame: JsonFrame | None = None
    """The stored JSON around a long text that is not rewritten: the text in `data` is empty then."""
    blob: NewBlob | None = None
    """The file of a new part, if it is not in `data`."""


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
    """(part id, seq, text). Written as delta rows only while the event log is on; otherwise the fold alone stores the text."""
    deltas: list[tuple[str, int, str]] = field(default_factory=list)
    usage: list[tuple[int, StepUsage]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    """Ids of parts that left the message."""
    recounted: bool = False
    """Whether a compaction is written or removed, so that the session's counters are computed anew."""
    touch: bool = False

    def reads_own_writes(self) -> bool:
        """Whether writing the message means reading what was just written: long text, a compaction, steps of usage."""
        long = any(part.frame is not None for part in self.parts) or any(isinstance(data, JsonFrame) for _, data in self.folds)
        return long or self.recounted or bool(self.usage)


@dataclass(slots=True)
class Flush:
    """Everything one transaction of a recorder writes."""

    session_id: str
    owner: str
    at: datetime
    window: tuple[int, int]
    begin: bool = False
    takeover: bool = False
    message_id: str | None = None
    """The id the turn's row gets as its message; None: unchanged, or not known yet."""
    resumed: str | None = None
    """`message_id` if that message is stored already, else None."""
    messages: list[MessageWrite] = field(default_factory=list)
    earlier_message_parts: list[tuple[str, PartWrite]] = field(default_factory=list)
    """(message id, part) of tool parts in earlier messages."""
    blobs: list[NewBlob] = field(default_factory=list)
    """The files of new parts."""
    model: JsonText | None = None
    prompt: tuple[str, str] | None = None
    """(digest, body)."""
    touch_session: bool = False
    failed: bool = False
    end: bool = False
    held_back: bool = False
    """Whether this flush also writes chunks that an earlier call accepted.

    COMMIT is then sent separately: if the connection is lost before it, the flush is known to be rolled back, and can be retried.
    """

    def delta_only(self) -> bool:
        """Whether the flush is one delta row alone: a single statement, which checks the turn's owner itself."""
        more = self.begin or self.message_id or self.end or self.failed or self.touch_session or self.earlier_message_parts
        if more or len(self.messages) != 1:
            return False
        message = self.messages[0]
        return len(message.deltas) == 1 and not (
            message.parts or message.removed or message.folds or message.patches or message.usage or message.touch or message.new
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
        if any(message.removed for message in self.messages):
            return "part.removed"
        if self.earlier_message_parts or any(message.parts for message in self.messages):
            return "part.written"
        if any(message.patches or message.usage for message in self.messages):
            return "message.updated"
        return "part.delta" if any(message.deltas or message.events_only for message in self.messages) else "message.updated"

    def run(self, db: DriverStatements) -> None:
        """Write the flush. Raises NotFound if the session was deleted, RequirementMissed if the flush is to be refused.

        On Postgres a single delta is one round trip, and so is any other flush, its BEGIN and COMMIT included. A flush needs
        further round trips to begin a turn (one, for the former turn), to merge metadata (one, for the stored message), to be
        held back (one, for COMMIT), or to read its writes (one per statement).
        """
        if db.journal is not None:
            db.begin_event(self.kind_of_change(), self.session_id)
        if self.delta_only():
            self._delta(self.messages[0].deltas[0]).add(db)
            return
        former = None
        if self.begin:
            former = turns.former_turn(db, self.session_id, self.owner, self.at, takeover=self.takeover)
        merges: dict[str, Merge] = {}
        to_merge = [message for message in self.messages if not message.new and (message.patches or message.owned)]
        if to_merge:
            with db.batch() as batch:
                self._claim(batch, former)
                merges = {message.id: Merge.ask(batch, message.id, message.patches) for message in to_merge}
            for message in to_merge:
                merges[message.id].apply(db, message.patches, message.owned)
        with self._batch(db, merges) as batch:
            alone = self.end and batch.one_writer and db.journal is None and self.message_id is None and not self.begin
            if ended := alone and not (to_merge or any(message.deltas for message in self.messages)):
                turns.end_own_turn(batch, self.session_id, self.owner)
            elif not to_merge:
                self._claim(batch, former)
            added = add_named(batch, self.blobs, self.at) if self.blobs else []
            self._write(db, batch, merges, ended=ended)
        add_outside(added)

    def _batch(self, db: DriverStatements, merges: Mapping[str, Merge]) -> Batch:
        if not db.pipelines or (
            any(message.reads_own_writes() for message in self.messages)
            or any(merge.compacted for merge in merges.values())
            or any(part.frame for _, part in self.earlier_message_parts)
        ):
            return db.one_by_one()
        return db.batch(last=not self.held_back and all(blob.store is None for blob in self.blobs))

    def refusal(self, db: StatementRunner) -> PersistError:
        """The error of a refused flush: Conflict if a rewind hid a message or the turn is lost, NotFound without the session."""
        hidden = {message_id for message_id, _ in self.earlier_message_parts}
        if self.begin or turns.owns(db, self.session_id, self.owner):
            try:
                refuse_hidden(db, [*(self._continued() if self.begin or self.message_id is not None else ()), *sorted(hidden)])
            except Conflict as error:
                return error
        return turns.lost_turn_error(db, self.session_id)

    def _claim(self, batch: Batch, former: turns.Turn | None) -> None:
        """Begin or hold the turn; continued messages must be visible. A rewind that hides one from here on ends the turn."""
        if self.begin:
            turns.begin_turn(batch, self.session_id, self.owner, self.message_id, self.at, former=former)
        elif self.message_id is not None:
            turns.turn_to(batch, self.session_id, self.owner, self.message_id)
        else:
            turns.guard(batch, self.session_id, self.owner)
            return
        for id in self._continued():
            batch.require(NOT_HIDDEN, row_id=id)

    def _continued(self) -> list[str]:
        stored = {message.id for message in self.messages if message.id and not message.new}
        return sorted(stored if self.resumed is None else stored | {self.resumed})

    def _write(self, db: DriverStatements, batch: Batch, merges: "Mapping[str, Merge]", *, ended: bool) -> None:
        if self.model is not None:
            batch.run(SET_MODEL, row_id=self.session_id, model=self.model, at=self.at, before=self.at)
        if self.prompt is not None:
            batch.run(ADD_PROMPT, digest=self.prompt[0], body=self.prompt[1], created_at=self.at)
        for message in self.messages:
            self._message(db, batch, message, merges.get(message.id))
        for id in dict(self.earlier_message_parts):
            batch.require(NOT_HIDDEN, row_id=id)
        for message_id, part in self.earlier_message_parts:
            self._part(db, batch, part)
            batch.run(_TOUCH_MESSAGE, row_id=message_id, at=self.at)
        if self.touch_session and self.model is None:
            before = self.at if self.begin or self.end or self.failed else self.at - _LAG
            batch.run(TOUCH_SESSION, row_id=self.session_id, at=self.at, before=before)
        if self.failed:
            turns.mark_error(batch, self.session_id, self.owner)
        if self.end and not ended:
            turns.end_turn(batch, self.session_id, self.owner)

    def _message(self, db: DriverStatements, batch: Batch, message: MessageWrite, merge: "Merge | None") -> None:
        if message.new:
            patches = without_usage(message.patches) if message.usage else message.patches
            metadata = patched(message.base, patches, message.owned)
            batch.run(
                INSERT_LAST_OF_TURN,
                new=message.id,
                session=self.session_id,
                speaker=Role.ASSISTANT,
                at=self.at,
                metadata=encode(metadata),
            )
            if added := usage.counters_of(Role.ASSISTANT, {}, metadata):
                batch.run(usage.ADD_COUNTERS, row_id=self.session_id, **added)
        elif merge is not None:
            batch.run(SET_METADATA, row_id=message.id, metadata=encode(merge.metadata), at=self.at)
            if merge.added:
                batch.run(usage.ADD_COUNTERS, row_id=self.session_id, **merge.added)
            if merge.compacted:
                usage.recompute(db, self.session_id)
        elif message.touch:
            batch.run(_TOUCH_MESSAGE, row_id=message.id, at=self.at)
        for part_id in message.removed:  # first, since new parts take their indexes
            batch.run(_REMOVE_PART, row_id=part_id)
        for delta in message.deltas:
            batch.run(DeltaRow.prepared, **self._delta(delta).values)
        for part in message.parts:
            self._part(db, batch, part)
        if message.recounted:
            usage.recompute(db, self.session_id)
        if db.journal is not None:
            for delta in message.events_only:
                batch.run(DeltaRow.prepared, **self._delta(delta).values)
        for part_id, data in message.folds:
            if isinstance(data, JsonFrame):
                fold_in_database(db, part_id, data)
                continue
            batch.run(FOLD_PART, row_id=part_id, data=data)
            batch.run(DROP_DELTAS, row_id=part_id)
        for step, counts in message.usage:
            usage.add_step(db, message.id, step, counts, self.at, self.window)

    def _delta(self, delta: tuple[str, int, str]) -> DeltaRow:
        return DeltaRow(self.session_id, self.owner, epoch_ms(self.at), *delta)

    def _part(self, db: DriverStatements, batch: Batch, part: PartWrite) -> None:
        if part.frame is not None:
            rewrite_long(db, part.id, part.frame, part.data, part.at)
            return
        if part.created is None:
            batch.run(
                REWRITE_PART, row_id=part.id, new_type=part.kind, new_tool_state=part.tool_state, data=part.data, at=part.at
            )
            if part.had_deltas:
                batch.run(DROP_DELTAS, row_id=part.id)
            return
        message_id, index, created_at = part.created
        batch.run(
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
        if part.blob is not None:
            batch.run(NAME_BLOB, named_by=part.id, sha256=part.blob.sha256)


class DeltaInsert(DeltaRow):
    """A delta row to insert, with the change it made to the message. Followed by `Recording.keep` or `undo`."""

    __slots__ = ("change", "part", "size")
    change: Change | None
    """None if the chunk only extended the part, by `Accumulator.extend`."""
    part: PartState
    size: int
