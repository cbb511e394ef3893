"""Writing a complete message: its place, its row, its parts, and the session row's model, time and counters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, NamedTuple

from sqlalchemy import Insert, Text, bindparam, case, cast, exists, func, literal, null, select, type_coerce, update

from persist.blobs.repository import Added, NewBlob, add_named, add_outside
from persist.chat.models import messages, parts, sessions
from persist.chat.reducer.parts import misfit_of_part, tool_columns
from persist.chat.schemas import ChatMessage, Role
from persist.chat.storage import usage
from persist.chat.storage.files import NAME_BLOB, refuse_reference, taken_out, with_own_files
from persist.chat.storage.folding import stored_object
from persist.chat.storage.statements import LOCK_SESSION, SET_MODEL, TOUCH_SESSION, setting_model, touching
from persist.db.changes.batch import Batch, Pending, StatementRunner
from persist.db.expressions.upsert import insert_where, of_former, taken, unless_there
from persist.db.schema.column_types import Int64, among_labels
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.clock import to_ms
from persist.db.values.frozen import construct
from persist.db.values.json import Json, JsonText, decode, encode, plain_object
from persist.errors import Conflict, InvalidValue, NotFound

# The created_at that sorts a new message last in its session: from the newest message, and as SQL inside an INSERT.

_M = messages.c
_MILLISECOND = timedelta(milliseconds=1)
_newest_message = (
    select(_M.created_at.label("at"), func.max(_M.id).label("id"))
    .where(_M.session_id == param("session"))
    .group_by(_M.created_at)
    .order_by(_M.created_at.desc())
    .limit(1)
)
NEWEST_MESSAGE = Statement(_newest_message)
_newest = _newest_message.subquery()
_now = bindparam("at", type_=_M.created_at.type)
_new = bindparam("new", type_=_M.id.type)


def _later(at: Any) -> Any:
    return type_coerce(at, Int64()) + literal(1, Int64())


# What `place_after` returns, as SQL inside the INSERT: that saves a round trip to a server.
LAST_CREATED_AT = select(case((_newest.c.at < _now, _now), (_newest.c.id < _new, _newest.c.at), else_=_later(_newest.c.at)))
_before = messages.alias().c
AFTER_CREATED_AT = select(case((_before.id < _new, _before.created_at), else_=_later(_before.created_at))).where(
    _before.id == bindparam("previous", type_=_M.id.type)
)
"""As LAST_CREATED_AT, after a message that is known to be the last: no other one is looked at, however many share its instant."""


def place_after(row: Row | None, message_id: str, now: datetime) -> datetime:
    """A created_at that sorts a new message last: `now`, or NEWEST_MESSAGE's instant if later, plus 1 ms against a smaller id."""
    if row is None or row[0] < to_ms(now):
        return now
    newest: datetime = row[0]
    return newest if message_id > row[1] else newest + _MILLISECOND


_S = sessions.c
_id = param("row_id")
MESSAGE_COLUMNS = (_M.id, _M.session_id, _M.role, cast(_M.metadata_json, Text), _M.created_at, _M.updated_at)
GET_MESSAGE = Statement(select(*MESSAGE_COLUMNS).where(_M.id == _id))
LOCK_MESSAGE = Statement(select(*MESSAGE_COLUMNS).where(_M.id == _id).with_for_update())
_last_values = {
    "id": bindparam("new", type_=_M.id.type),
    "session_id": _S.id,
    "role": bindparam("speaker", type_=_M.role.type),
    "created_at": func.coalesce(LAST_CREATED_AT.scalar_subquery(), _now),
    "updated_at": _now,
    "claimed_by": null(),
    "claimed_at": null(),
    "metadata_json": bindparam("metadata", type_=_M.metadata_json.type),
}


def insert_with(*, lock: bool = False, **values: Any) -> Insert:
    """An INSERT of a message that sorts last in its session unless `values` says otherwise; no row without the session."""
    return insert_where(messages, _S.id == param("session"), {**_last_values, **values}, of=sessions, lock=lock)


def insert_part() -> Insert:
    """An INSERT of a part; no row without its message."""
    message = _M.id == bindparam("message_id", type_=_M.id.type)
    return insert_where(parts, message, {"message_id": _M.id, "created_at": _now, "updated_at": _now}, of=messages)


INSERT_LAST = Statement(insert_with(lock=True).returning(_M.created_at))
_INSERT_AFTER = Statement(insert_with(created_at=AFTER_CREATED_AT.scalar_subquery(), lock=True).returning(_M.created_at))
INSERT_LAST_OF_TURN = Statement(insert_with())
"""As INSERT_LAST, without its lock: the recorder's turn keeps the session, and others wait for a lock of the turn before it."""
_INSERT_PART = Statement(insert_part())
_TOUCHED_EVERY = timedelta(milliseconds=100)
PLACE_LAST = Statement(
    update(messages)
    .where(_M.id == bindparam("new", type_=_M.id.type))
    .values(metadata_json=param("metadata"), created_at=func.coalesce(LAST_CREATED_AT.scalar_subquery(), _now), updated_at=_now)
)
"""Replace a message's metadata, and let it sort last in its session."""


class NewPart(NamedTuple):
    """A part to insert: as it is stored, its JSON text, and the blob of its file, if that is not in the text."""

    data: Mapping[str, Any]
    text: JsonText
    blob: NewBlob | None


@dataclass(frozen=True, slots=True)
class Posting:
    """A message to insert, already checked, with its parts encoded."""

    session_id: str
    role: Role
    parts: list[NewPart]
    metadata: dict[str, Any]

    @property
    def files(self) -> list[NewBlob]:
        """The files of its parts that are to be blobs."""
        return [part.blob for part in self.parts if part.blob is not None]

    @property
    def has_files_outside(self) -> bool:
        """Whether bodies of files are to be written after the rows, and before the commit."""
        return any(blob.store is not None for blob in self.files)


def check_parts(work: UnitOfWork, session_id: str, parts: Sequence[Json], path: str = "parts") -> list[NewPart]:
    """Check that each part is an object with a `type`, and encode it, without a large file. InvalidValue names the bad part.

    `path` names the parts in errors. A file may be one of the session's that is stored already, given by its reference.
    """
    if type(parts) is not list and (isinstance(parts, (str, bytes, Mapping)) or not isinstance(parts, Sequence)):
        raise InvalidValue(path, "expected a list of parts.")
    checked: list[NewPart] = []
    limits = work.runtime.limits
    for index, part in enumerate(with_own_files(work, session_id, parts)):
        place = f"{path}[{index}]"
        data, blob = taken_out(plain_object(part, place), work.runtime)
        if blob is None:
            refuse_reference(data, place)
        text = encode(data, place, limits)
        work.label(f"{place}.type", data.get("type"))
        if (misfit := misfit_of_part(data)) is not None:
            raise InvalidValue(place, f"{misfit}.")
        checked.append(NewPart(data, text, blob))
    return checked


def post(work: UnitOfWork, posting: Posting, *, id: str | None, touch: bool = True, tail: str | None = None) -> ChatMessage:
    """Insert a message that sorts last in its session. Raises NotFound without the session. `touch=False`: it is locked already.

    `tail`: the id where the tail of a compaction starts. Raises NotFound if the session shows no such message.
    """
    metadata = encode(posting.metadata, "metadata", work.runtime.limits)
    session_id, now = posting.session_id, work.now()
    id = work.runtime.ids.mint("msg", now) if id is None else id
    added = usage.counters_of(posting.role, {}, posting.metadata) if posting.role is Role.ASSISTANT else {}
    marker = next((data for data, *_ in reversed(posting.parts) if data["type"] == usage.COMPACTION), None)
    if posting.files and touch and work.row(LOCK_SESSION, row_id=session_id) is None:
        raise NotFound("session", session_id)
    shown = posting.metadata.get("queued_at") is None and posting.metadata.get("hidden_at") is None
    totals = None if marker is None or not shown else _totals_with(work, posting, id, marker, tail)
    outside = posting.has_files_outside
    with naming_taken(work, id), work.batch(last=(marker is None or shown) and not outside) as batch:
        if touch:
            batch.lock(LOCK_SESSION, row_id=session_id)
            touch_session(work, batch, session_id, posting.metadata if posting.role is Role.USER else {}, now)
        inserted, files = insert_last(work, batch, posting, id, metadata, now)
        if totals is not None:
            batch.run(usage.SET_COUNTERS, row_id=session_id, **totals)
        elif added and marker is None:
            batch.run(usage.ADD_COUNTERS, row_id=session_id, **added)
    row = inserted.must_exist("session", session_id)
    add_outside(files)
    if marker is not None and not shown:
        usage.recompute(work, session_id)
    created: datetime = row[0]
    return new_message(id, posting, decode(metadata) if posting.metadata else {}, created, now)


def new_message(id: str, posting: Posting, metadata: dict[str, Any], created: datetime, now: datetime) -> ChatMessage:
    """The ChatMessage of a posting that was inserted."""
    return _message(id, posting.session_id, posting.role, metadata, created, now)


def insert_last(
    work: UnitOfWork, batch: Batch, posting: Posting, id: str, metadata: JsonText, now: datetime, *, previous: str | None = None
) -> tuple[Pending[Row | None], Added]:
    """Add the statements that insert a message, which sorts last in its session: (created_at,), or None without the session.

    What `insert_parts` returns is the second of the pair. `previous`: the session's last message, which the batch inserted.
    """
    values = {"new": id, "session": posting.session_id, "speaker": posting.role, "at": now, "metadata": metadata}
    if previous is None:
        inserted = batch.returned(INSERT_LAST, **values)
    else:
        inserted = batch.returned(_INSERT_AFTER, **values, previous=previous)
    return inserted, insert_parts(work, batch, posting, id, now)


def insert_parts(
    work: UnitOfWork, batch: Batch, posting: Posting, id: str, now: datetime, statement: Statement = _INSERT_PART
) -> Added:
    """Add the statements that insert the parts of a message that has none; the files, for `add_outside`."""
    rows = part_rows(work, posting, id, now)
    batch.run_many(statement, rows)
    if not posting.files:
        return []
    files = add_named(batch, posting.files, now)
    named = zip(rows, posting.parts, strict=True)
    batch.run_many(
        NAME_BLOB, [{"named_by": row["id"], "sha256": part.blob.sha256} for row, part in named if part.blob is not None]
    )
    return files


def refuse_left(work: UnitOfWork, ids: Sequence[str]) -> None:
    """Raise Conflict for ids of new messages under which parts of a former one are left, as only a file may hold them."""
    if ids and work.runtime.dialect.one_writer and (row := work.row(_LEFT, ids=ids)) is not None:
        raise of_former(messages, "message", row[0])


class naming_taken:  # noqa: N801  # reads as the verb of a with statement
    """Inside the block the database's refusal of an id that is taken becomes a sentence. The transaction is doomed by it."""

    __slots__ = ("_id", "_work")

    def __init__(self, work: UnitOfWork, id: str) -> None:
        self._work, self._id = work, id

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not isinstance(error, Exception):
            return
        ours = self._work.runtime.translate(error)
        if isinstance(ours, Conflict) and ours.constraint in (f"pk_{messages.name}", f"{messages.name}.id"):
            self._work.doomed = not self._work.joined
            raise taken(INSERT_LAST, "message", self._id) from error


def _totals_with(work: UnitOfWork, posting: Posting, id: str, marker: Mapping[str, Any], tail: str | None) -> dict[str, int]:
    """Lock the session; the parameters of SET_COUNTERS once this compaction is its last message."""
    with work.batch() as batch:
        session = batch.row(LOCK_SESSION, row_id=posting.session_id)
        rows = batch.rows(usage.VISIBLE_MESSAGES, row_id=posting.session_id)
    session.must_exist("session", posting.session_id)
    visible = usage.visible_values(work, rows.result)
    if tail is not None and all(message["id"] != tail for message in visible):
        raise NotFound("message", tail)
    visible.append({"id": id, "role": str(posting.role), "parts": [], "metadata": posting.metadata})
    return usage.totals_of(visible, usage.marker_value((id, marker)))


def part_rows(work: UnitOfWork, posting: Posting, message_id: str, now: datetime) -> list[dict[str, Any]]:
    """The parameters of an INSERT of each part."""
    rows = []
    for index, (data, text, _) in enumerate(posting.parts):
        call_id, state = tool_columns(data)
        rows.append(
            {
                "id": work.runtime.ids.mint("prt", now),
                "message_id": message_id,
                "session_id": posting.session_id,
                "index": index,
                "type": data["type"],
                "tool_call_id": call_id,
                "tool_state": state,
                "at": now,
                "data_json": text,
            }
        )
    return rows


def touch_session(work: UnitOfWork, batch: Batch, session_id: str, metadata: Mapping[str, Any], now: datetime) -> None:
    """Set the `updated_at` of a session that is locked, and its model if the metadata has one that is an object."""
    model = metadata.get("model")
    touched = {"row_id": session_id, "at": now, "before": touch_before(work, session_id, now)}
    if type(model) is not dict:
        batch.run(TOUCH_SESSION, **touched)
    else:
        batch.run(SET_MODEL, **touched, model=work.json("metadata.model", model))


def touch_before(work: UnitOfWork, session_id: str, now: datetime) -> datetime:
    """The instant before which a session was touched that is touched now.

    A transaction touches a session ten times a second at most, however many messages it appends: until it ends, Postgres keeps
    every version of a row and its index entries, and looks at all of them to find the row again.
    """
    if work.joined:  # its caller may take back to a savepoint what was touched
        return now
    again = session_id in work.touched
    work.touched |= {session_id}
    return now - _TOUCHED_EVERY if again else now


def found_message(db: StatementRunner, id: str, row: Row | None) -> ChatMessage:
    """The ChatMessage of a row of MESSAGE_COLUMNS. Raises NotFound without one."""
    if row is None:
        raise NotFound("message", id)
    return message_value(db, row)


def message_value(db: StatementRunner, row: Row) -> ChatMessage:
    """The ChatMessage of a row of MESSAGE_COLUMNS."""
    id, session_id, role, stored, created_at, updated_at = row
    metadata = stored_object(db, stored, f"the metadata of message {id}")
    return _message(id, session_id, role, metadata, created_at, updated_at)


def _message(id: str, session_id: str, role: Role, metadata: dict[str, Any], created: datetime, updated: datetime) -> ChatMessage:
    return construct(
        ChatMessage,
        {"id": id, "session_id": session_id, "role": role, "metadata": metadata, "created_at": created, "updated_at": updated},
    )


# Appending a message under an id that the caller gives, so that doing it again changes nothing, or at an instant of the past.
#
# One batch asks for the message and inserts it unless it is there: its statements then write nothing. A message with fewer parts
# is given the further ones, which the error that follows undoes.

_P = parts.c
_unknown = ~exists().where(_M.id == bindparam("new", type_=_M.id.type))
_TOUCH = Statement(touching(_unknown))
_SET_MODEL = Statement(setting_model(_unknown))
_COUNT = Statement(usage.adding_counters().where(_unknown))
_INSERT_LAST = Statement(unless_there(insert_with(), "id").returning(_M.created_at))
_INSERT_THEN = Statement(
    unless_there(insert_with(created_at=bindparam("then", type_=_M.created_at.type)), "id").returning(_M.created_at)
)
_INSERT_PART_ONCE = Statement(unless_there(insert_part(), "message_id", "index"))
STORED_PARTS = Statement(select(_P.data_json).where(_P.message_id == _id).order_by(_P.index))
_LEFT = Statement(
    select(_P.message_id).where(among_labels(_P.message_id, "ids"), ~exists().where(_M.id == _P.message_id)).limit(1)
)
STORE_KEYS = frozenset({"queued_at", "queue_enqueued_at", "queue_canceled_at", "hidden_at"})
"""The keys of a message's metadata that belong to the verbs of queue and rewind."""


def append(work: UnitOfWork, posting: Posting, *, id: str | None, created_at: datetime | None) -> ChatMessage:
    """Insert a message last or at `created_at`, or return an equal one of that id. Raises NotFound, and Conflict."""
    session_id, now = posting.session_id, work.now()
    id = work.runtime.ids.mint("msg", now) if id is None else id
    metadata = encode(posting.metadata, "metadata", work.runtime.limits)
    added = usage.counters_of(posting.role, {}, posting.metadata) if posting.role is Role.ASSISTANT else {}
    compacts = any(part.data["type"] == usage.COMPACTION for part in posting.parts)
    recounts = compacts or (created_at is not None and bool(added))
    values: dict[str, Any] = {"new": id, "session": session_id, "speaker": posting.role, "at": now, "metadata": metadata}
    if posting.files and work.row(LOCK_SESSION, row_id=session_id) is None:
        raise NotFound("session", session_id)
    with naming_taken(work, id), work.batch() as batch:
        session = batch.row(LOCK_SESSION, row_id=session_id)
        known, known_parts = batch.row(GET_MESSAGE, row_id=id), batch.rows(STORED_PARTS, row_id=id)
        model = posting.metadata.get("model") if posting.role is Role.USER else None
        touched = {"row_id": session_id, "new": id, "at": now, "before": touch_before(work, session_id, now)}
        if model is None:
            batch.run(_TOUCH, **touched)
        else:
            batch.run(_SET_MODEL, **touched, model=work.json("metadata.model", model))
        if added and not recounts:
            batch.run(_COUNT, row_id=session_id, new=id, **added)
        if created_at is None:
            inserted = batch.returned(_INSERT_LAST, **values)
        else:
            inserted = batch.returned(_INSERT_THEN, **values, then=created_at)
        files = insert_parts(work, batch, posting, id, now, _INSERT_PART_ONCE)
    session.must_exist("session", session_id)
    if known.result is not None:
        message = message_value(work, known.result)
        if same_content(posting, message, [data for (data,) in known_parts.result]):
            return message
    if known.result is None and known_parts.result:
        raise of_former(messages, "message", id)
    if known.result is not None or inserted.result is None:
        raise taken(INSERT_LAST, "message", id)
    add_outside(files)
    if recounts:
        usage.recompute(work, session_id)
    return new_message(id, posting, decode(metadata), inserted.result[0], now)


def same_content(posting: Posting, message: ChatMessage, stored: Sequence[Json]) -> bool:
    """Whether a stored message, given its parts, is the one to be posted. Metadata counts if it was given."""
    given = decode(encode(posting.metadata))
    ours = STORE_KEYS if "usage" in given else STORE_KEYS | {"usage"}
    known = {key: value for key, value in message.metadata.items() if key not in ours}
    return (
        (message.session_id, message.role) == (posting.session_id, posting.role)
        and list(stored) == [decode(part.text) for part in posting.parts]
        and (not given or known == given)
    )
