"""What one flush of a recorder writes, decided beforehand and run in one transaction. Running it twice is the same as once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Text, bindparam, cast, delete, func, insert, select, update

from persist.chat import turns, usage
from persist.chat.models import deltas, messages, parts, prompts, sessions
from persist.chat.pending import Patch, patched, without_usage
from persist.chat.resume import check_shown
from persist.chat.schemas import Role, StepUsage
from persist.chat.statements import (
    FOLD_PART,
    INSERT_MESSAGE,
    INSERT_PART,
    REWRITE_PART,
    SET_METADATA,
    SET_MODEL,
    TOUCH_SESSION,
)
from persist.chat.stored import stored_object
from persist.chat.tails import fold_long, rewrite_long
from persist.db.clock import to_ms
from persist.db.hot import Hot, Statements, param
from persist.db.insert import insert_missing
from persist.db.jobs import OneRow
from persist.db.json import Frame, JsonText, encode
from persist.db.turns import in_time
from persist.db.types import Whole
from persist.errors import PersistError

_M, _P, _D, _S = messages.c, parts.c, deltas.c, sessions.c
_id = param("row_id")
_MILLISECOND = timedelta(milliseconds=1)

# Ids are our own here: plain text spares each chunk the checks that labels from outside get.
_TEXT = Text()
_ADD_DELTA = Hot(
    insert(deltas).from_select(
        ["part_id", "seq", "created_at", "delta"],
        select(
            bindparam("part_id", type_=_TEXT),
            bindparam("seq", type_=_D.seq.type),
            bindparam("at", type_=Whole()),
            bindparam("delta", type_=_D.delta.type),
        ).where(turns.owned(_TEXT), in_time()),
    )
)
DROP_DELTAS = Hot(delete(deltas).where(_D.part_id == _id))
_TOUCH_MESSAGE = Hot(update(messages).where(_M.id == _id).values(updated_at=param("at")))
_METADATA = Hot(select(cast(_M.metadata_json, Text)).where(_M.id == _id).with_for_update())
_NEWEST = Hot(
    select(_M.created_at, func.max(_M.id))
    .where(_M.session_id == _id)
    .group_by(_M.created_at)
    .order_by(_M.created_at.desc())
    .limit(1)
)
ADD_PROMPT = Hot(insert_missing(prompts, "digest"))


class Piece(OneRow):
    """A piece of growing text, written if the turn is still ours; Conflict when it is somebody else's."""

    __slots__ = ()
    hot = _ADD_DELTA
    name = "part.delta"

    def __init__(self, session_id: str, owner: str, at_ms: int, part_id: str, seq: int, delta: str) -> None:
        self.values = {"part_id": part_id, "seq": seq, "at": at_ms, "delta": delta, "session_id": session_id, "owner_id": owner}
        self.stream = session_id

    def refusal(self, db: Statements, /) -> PersistError:
        """The turn, or the session, is gone."""
        return turns.lost(db, self.stream)


@dataclass(slots=True)
class PartWrite:
    """A new or rewritten part, with its complete data."""

    id: str
    data: JsonText
    kind: str
    tool_call_id: str | None
    tool_state: str | None
    at: datetime
    created: tuple[str, int, datetime] | None = None
    """(message id, index, created_at) of a new part."""
    had_tail: bool = False
    frame: Frame | None = None
    """What is stored around a text that stays where it is: `data` has an empty one."""


@dataclass(slots=True)
class MessageWrite:
    """One message's share of a flush."""

    id: str
    new: bool
    base: Mapping[str, Any] = field(default_factory=dict)
    """Metadata of a new message below what the stream says."""
    owned: Mapping[str, Any] = field(default_factory=dict)
    """Metadata that beats what the stream says."""
    patches: list[Patch] = field(default_factory=list)
    parts: list[PartWrite] = field(default_factory=list)
    folds: list[tuple[str, JsonText | Frame]] = field(default_factory=list)
    """(part id, complete data), or what is stored around a text that stays where it is."""
    told: list[tuple[str, int, str]] = field(default_factory=list)
    """(part id, seq, text) that a fold takes in before it was ever a piece: only the log of events has to know."""
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
    """The message that the turn is about from now on; None: as before, or not known yet."""
    resumed: str | None = None
    """The same one, if it is stored."""
    messages: list[MessageWrite] = field(default_factory=list)
    foreign: list[tuple[str, PartWrite]] = field(default_factory=list)
    """(message id, part) of tool parts in earlier messages."""
    model: JsonText | None = None
    prompt: tuple[str, str] | None = None
    """(digest, body)."""
    touch_session: bool = False
    failed: bool = False
    end: bool = False

    def delta_only(self) -> bool:
        """Whether it is one piece of one growing part: a single statement, guarded by itself."""
        if (
            self.begin
            or self.message_id
            or self.end
            or self.failed
            or self.touch_session
            or len(self.messages) != 1
            or self.foreign
        ):
            return False
        only = self.messages[0]
        return len(only.deltas) == 1 and not (only.parts or only.folds or only.patches or only.usage or only.touch or only.new)

    def what(self) -> str:
        """What happened, in one word for the log of events."""
        if self.failed:
            return "turn.failed"
        if self.end:
            return "message.finished" if self.messages else "turn.ended"
        if any(message.new for message in self.messages):
            return "message.started"
        if self.begin:
            return "turn.started"
        if self.foreign or any(message.parts for message in self.messages):
            return "part.written"
        if any(message.patches or message.usage for message in self.messages):
            return "message.updated"
        return "part.delta" if any(message.deltas or message.told for message in self.messages) else "message.updated"

    def run(self, db: Statements) -> None:
        """Write it. Conflict when the session's turn is not ours (any more)."""
        db.deed(self.what(), self.session_id)
        if self.begin:
            turns.begin_turn(db, self.session_id, self.owner, self.message_id, self.at, takeover=self.takeover)
        elif self.message_id is not None:
            turns.turn_to(db, self.session_id, self.owner, self.message_id)
        elif not self.delta_only():
            turns.guard(db, self.session_id, self.owner)
        if self.begin or self.message_id is not None:
            self._check_shown(db)
        if self.model is not None:
            db.run(SET_MODEL, row_id=self.session_id, model=self.model, at=self.at)
        if self.prompt is not None:
            db.run(ADD_PROMPT, digest=self.prompt[0], body=self.prompt[1], created_at=self.at)
        for message in self.messages:
            self._message(db, message)
        check_shown(db, {message_id for message_id, _ in self.foreign})
        for message_id, part in self.foreign:
            self._part(db, part)
            db.run(_TOUCH_MESSAGE, row_id=message_id, at=self.at)
        if self.touch_session and self.model is None:
            db.run(TOUCH_SESSION, row_id=self.session_id, at=self.at)
        if self.failed:
            turns.mark_error(db, self.session_id, self.owner)
        if self.end:
            turns.end_turn(db, self.session_id, self.owner)

    def _check_shown(self, db: Statements) -> None:
        """From here on a rewind that hides the message ends the turn."""
        stored = {message.id for message in self.messages if message.id and not message.new}
        check_shown(db, sorted(stored if self.resumed is None else stored | {self.resumed}))

    def _message(self, db: Statements, message: MessageWrite) -> None:
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
            Piece(self.session_id, self.owner, self.at_ms, *piece).add(db)
        for part in message.parts:
            self._part(db, part)
        if any(part.kind == usage.COMPACTION for part in message.parts):
            usage.recompute(db, self.session_id)
        if db.journal is not None:
            for piece in message.told:
                Piece(self.session_id, self.owner, self.at_ms, *piece).add(db)
        for part_id, data in message.folds:
            if isinstance(data, Frame):
                fold_long(db, part_id, data)
                continue
            db.run(FOLD_PART, row_id=part_id, data=data)
            db.run(DROP_DELTAS, row_id=part_id)
        for step, counts in message.usage:
            usage.add_step(db, message.id, step, counts, self.at)

    def _part(self, db: Statements, part: PartWrite) -> None:
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

    def _merge_metadata(self, db: Statements, message: MessageWrite) -> None:
        """Into what is stored now: others may have written keys of theirs meanwhile."""
        row = db.row(_METADATA, row_id=message.id)
        if row is None:
            raise turns.lost(db, self.session_id)
        patches = message.patches
        if any("usage" in patch.payload for patch in patches) and usage.has_steps(db, message.id):
            patches = without_usage(patches)
        stored = stored_object(db, row[0], f"the metadata of message {message.id}")
        metadata = patched(stored, patches, message.owned)
        db.run(SET_METADATA, row_id=message.id, metadata=encode(metadata), at=self.at)
        usage.tally(db, self.session_id, message.id, Role.ASSISTANT, stored, metadata)


def place_after_all(db: Statements, session_id: str, message_id: str, now: datetime) -> datetime:
    """The created_at of a new message: not before any message of the session, and after it where its id would lose the tie."""
    row = db.row(_NEWEST, row_id=session_id)
    if row is None or row[0] < to_ms(now):
        return now
    newest: datetime = row[0]
    return newest if message_id > row[1] else newest + _MILLISECOND
