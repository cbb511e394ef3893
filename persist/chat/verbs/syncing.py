"""Taking in what a browser posts: the stored messages are read beside it, and what `persist.chat.posted` allows is written."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, delete, select, type_coerce, update

from persist.blobs.repository import Added, add_outside
from persist.chat.models import IS_COMPACTION, deltas, messages, parts
from persist.chat.posted.messages import Posted, edited_metadata, possibly_new, refuse_prototype
from persist.chat.posted.plan import Answer, Edit, Plan, Planner, Running, Stored, Trigger
from persist.chat.reducer.parts import Part
from persist.chat.schemas import Files, Role, SyncedMessages
from persist.chat.storage import message_insert, turns, usage
from persist.chat.storage.files import STORED, StoredFile, is_reference, put_back
from persist.chat.storage.folding import grown_part, joined_deltas, read_object, stored_objects
from persist.chat.storage.statements import LOCK_SESSION, SET_METADATA
from persist.chat.storage.transcript import GROWING, SOME_PARTS, by_message
from persist.db.changes.batch import Batch
from persist.db.expressions.json_text import json_text, stored_text
from persist.db.expressions.keyset import behind
from persist.db.schema.column_types import Label, label_rows
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.clock import epoch_ms
from persist.db.values.frozen import construct
from persist.db.values.json import JsonText
from persist.errors import Conflict, InvalidValue, UnreadableRow

_M, _P, _D = messages.c, parts.c, deltas.c
_session = param("session_id")
_named = messages.alias()
_given = label_rows("ids")  # joined: a list in a condition is searched anew for each row
_first = (
    select(_named.c.created_at, _named.c.id)
    .join(_given, _named.c.id == _given.c.value)
    .where(_named.c.session_id == _session)
    .order_by(_named.c.created_at, _named.c.id)
    .limit(1)
)
_FROM_FIRST = Statement(
    select(_M.id, type_coerce(_M.role, Label()), json_text(_M.metadata_json))
    .where(_M.session_id == _session, behind((_M.created_at, _M.id), _first.scalar_subquery(), inclusive=True))
    .order_by(_M.created_at, _M.id)
)
_ELSEWHERE = Statement(select(_M.id).join(_given, _M.id == _given.c.value).where(_M.session_id != _session).limit(1))
_TAILS = Statement(
    select(_P.message_id, _P.index, _D.part_id, stored_text(_D.seq), stored_text(_D.delta))
    .join(parts, _P.id == _D.part_id)
    .where(_P.session_id == _session)
    .order_by(_D.part_id, _D.seq)
)
_REWRITE = Statement(
    update(parts)
    .where(_P.message_id == param("row_id"), _P.index == bindparam("position", type_=_P.index.type))
    .values(tool_state=param("new_tool_state"), data_json=param("data"), updated_at=param("at"))
)
_COMPACTIONS = Statement(select(_P.message_id).where(_P.session_id == _session, IS_COMPACTION))
_REMOVE_PARTS = Statement(delete(parts).where(_P.message_id == param("row_id")))


def sync(
    work: UnitOfWork,
    session_id: str,
    posted: Sequence[Posted],
    *,
    trigger: Trigger | None,
    message_id: str | None,
    client_tools: AbstractSet[str] | None,
) -> SyncedMessages:
    """Write what the posted list changes. InvalidValue and Conflict: nothing is written."""
    named = [] if message_id is None else [message_id]
    ids = [*[message.id for message in posted], *named]
    with work.batch() as batch:
        turn_row = batch.row(turns.LOCK_TURN, of_session=session_id)  # locked before the session, in the order that recorders use
        session = batch.row(LOCK_SESSION, row_id=session_id)
        elsewhere = batch.row(_ELSEWHERE, session_id=session_id, ids=[*possibly_new(posted), *named])
        heads = batch.rows(_FROM_FIRST, session_id=session_id, ids=ids)
        parts_found = batch.rows(SOME_PARTS, ids=ids)
        compactions = batch.rows(_COMPACTIONS, session_id=session_id)
    session.must_exist("session", session_id)
    _refuse_elsewhere(elsewhere.result)
    now = work.now()
    turn = turns.turn_of(turn_row.result)
    running = Running(turn.message_id) if turn is not None and turn.running(now) else None
    stored = _stored(heads.result)
    stored_parts = _StoredParts(work, session_id, parts_found.result, ids, posted)
    try:
        plan = Planner(stored, stored_parts, client_tools=client_tools).plan(posted, trigger, message_id, running)
    except InvalidValue:
        _refuse_elsewhere(work.row(_ELSEWHERE, session_id=session_id, ids=ids))
        raise
    if plan.changes:
        if running is not None:
            raise Conflict(
                f"A turn is running in session {session_id}: enqueue the message, or call sessions.request_stop first.",
                constraint="chat_turns",
            )
        _Writer(work, session_id, plan, now).write(stored, stored_parts, turn, {id for (id,) in compactions.result})
    return _result(plan, running)


def _refuse_elsewhere(row: Row | None) -> None:
    if row is not None:
        raise Conflict(f"Message {row[0]} belongs to another session.", constraint="chat_messages")


def _stored(heads: list[Row]) -> list[Stored]:
    found = []
    for (id, role, text), metadata in zip(heads, stored_objects([text for *_, text in heads]), strict=True):
        if metadata is None:
            metadata = read_object(text, f"the metadata of message {id}")
        if '_at"' in text:
            found.append(Stored(id, role, metadata, metadata.get("queued_at") is not None, metadata.get("hidden_at") is not None))
        else:
            found.append(Stored(id, role, metadata))
    return found


def _result(plan: Plan, running: Running | None) -> SyncedMessages:
    return construct(
        SyncedMessages,
        {
            "changed": plan.changes,
            "added": [posted.id for posted, _ in plan.added],
            "edited": [] if plan.edit is None else [plan.edit.posted.id],
            "hidden": [message.id for message in plan.hidden],
            "approvals": [answer.approval for answer in plan.answers if answer.approval is not None],
            "tool_outputs": [answer.data["toolCallId"] for answer in plan.answers if answer.approval is None],
            "continues": plan.continues,
            "answered_by": plan.answered_by,
            "running": running is not None,
        },
    )


class _StoredParts:
    """The parts of stored messages: those of the posted ids are read already, others and unfolded text when they are needed."""

    def __init__(self, work: UnitOfWork, session_id: str, rows: list[Row], ids: Sequence[str], posted: Sequence[Posted]) -> None:
        self._work, self._session_id = work, session_id
        self._shown = {
            (message.id, place) for message in posted for place, part in enumerate(message.parts) if is_reference(part)
        }
        self._read, self._rows = set(ids), rows
        self._parts = self._grouped(rows)
        self._indexes: dict[str, list[int]] | None = None
        self._tails: dict[tuple[str, int], tuple[str, list[tuple[Any, Any]]]] | None = None

    def of(self, message_id: str) -> Sequence[Part]:
        found = self._parts.get(message_id)
        if found is not None:
            return found
        if message_id not in self._read:
            self._read.add(message_id)
            rows = self._work.rows(SOME_PARTS, ids=[message_id])
            self._rows += rows
            self._parts |= self._grouped(rows)
            self._indexes = None
        return self._parts.get(message_id, [])

    def _grouped(self, rows: list[Row]) -> dict[str, list[Part]]:
        """The parts by message. A large file is what the browser was shown: its bytes, or the reference that it posts instead."""
        values = stored_objects([text for *_, text in rows])
        found = by_message(rows, values)
        places = {id(part): place for parts in found.values() for place, part in enumerate(parts)}
        filed: dict[Files, list[StoredFile]] = {}
        for row, data in zip(rows, values, strict=True):
            if data is not None and data.get("state") == STORED:
                place = places[id(data)]
                files = Files.REFERENCE if (row[0], place) in self._shown else Files.DATA
                filed.setdefault(files, []).append(StoredFile(row[0], row[1], data))
        for files, stored in filed.items():
            put_back(self._work, self._work.runtime, stored, files)
        return found

    def index(self, message_id: str, place: int) -> int:
        """The index of the part at that place. It is another number where a part is missing or cannot be read."""
        if self._indexes is None:
            readable = stored_objects([text for *_, text in self._rows])
            self._indexes = by_message(
                self._rows, [None if data is None else row[1] for row, data in zip(self._rows, readable, strict=True)]
            )
        return self._indexes[message_id][place]

    def full_part(self, message_id: str, place: int) -> Part:
        """The part with its unfolded text; without it if that cannot be read, as the browser was shown it."""
        data = self._parts[message_id][place]
        if data.get("state") not in GROWING:
            return data
        if self._tails is None:
            self._tails = {}
            for id, index, part_id, *piece in self._work.rows(_TAILS, session_id=self._session_id):
                self._tails.setdefault((id, index), (part_id, []))[1].append((piece[0], piece[1]))
        tail = self._tails.get((message_id, self.index(message_id, place)))
        try:
            return data if tail is None else grown_part(tail[0], data, joined_deltas(*tail)[0])
        except UnreadableRow:
            return data


class _Writer:
    """Writes a plan, in one batch."""

    def __init__(self, work: UnitOfWork, session_id: str, plan: Plan, now: datetime) -> None:
        self._work, self._session_id, self._plan, self._now = work, session_id, plan, now
        # everything is encoded, and thereby checked, before the first write
        self._answers = [(answer, self._checked(answer)) for answer in plan.answers]
        self._added = [(posted.id, *self._posting(posted, metadata)) for posted, metadata in plan.added]
        self._edit = None if plan.edit is None else self._edited(plan.edit)

    def write(
        self, stored: Sequence[Stored], parts: _StoredParts, turn: turns.Turn | None, compactions: AbstractSet[str]
    ) -> None:
        work, plan, session_id, now = self._work, self._plan, self._session_id, self._now
        taken_back = {message.id for message in plan.hidden}
        recounts = not taken_back.isdisjoint(compactions)
        postings = [posting for _, posting, _ in (*self._added, *([] if self._edit is None else [self._edit]))]
        last = not recounts and not any(posting.has_files_outside for posting in postings)
        files: Added = []
        ids = [id for id, *_ in self._added]
        message_insert.refuse_left(work, ids)
        with message_insert.naming_taken(work, ", ".join(ids)), work.batch(last=last) as batch:
            for answer, text in self._answers:
                where = {"row_id": answer.message_id, "position": parts.index(answer.message_id, answer.place)}
                batch.run(_REWRITE, **where, new_tool_state=answer.data["state"], data=text, at=now)
            self._hide(batch, recounts=recounts)
            if turn is not None and self._loses_answer(turn, stored):
                turns.stop_turn(batch, session_id, turn)
            if self._edit is not None:
                id, posting, metadata = self._edit
                batch.run(SET_METADATA, row_id=id, metadata=metadata, at=now)
                batch.run(_REMOVE_PARTS, row_id=id)
                files += message_insert.insert_parts(work, batch, posting, id, now)
            previous = None
            for id, posting, metadata in self._added:
                files += message_insert.insert_last(work, batch, posting, id, metadata, now, previous=previous)[1]
                previous = id
            if self._added or self._edit:
                message_insert.touch_session(work, batch, session_id, {}, now)
        add_outside(files)
        if recounts:
            usage.recompute(work, session_id)

    def _hide(self, batch: Batch, *, recounts: bool) -> None:
        at = epoch_ms(self._now)
        uncounted: dict[str, int] = {}
        for message in self._plan.hidden:
            metadata = {**message.metadata, "hidden_at": at}
            batch.run(SET_METADATA, row_id=message.id, metadata=self._work.json("metadata", metadata), at=self._now)
            for column, tokens in usage.counters_of(message.role, message.metadata, metadata).items():
                uncounted[column] = uncounted.get(column, 0) + tokens
        if uncounted and not recounts:
            batch.run(usage.ADD_COUNTERS, row_id=self._session_id, **uncounted)

    def _loses_answer(self, turn: turns.Turn, stored: Sequence[Stored]) -> bool:
        """Whether the posted messages take back what a turn wrote. The turn does not run; its recorder may hang."""
        taken_back = {message.id for message in self._plan.hidden}
        if any(message.id == turn.message_id for message in stored):
            return turn.message_id in taken_back
        return any(message.role == Role.USER for message in self._plan.hidden)

    def _checked(self, answer: Answer) -> JsonText:
        text = self._work.json(answer.path, answer.data)
        refuse_prototype(text, answer.data, answer.path)
        return text

    def _edited(self, edit: Edit) -> tuple[str, message_insert.Posting, JsonText]:
        return edit.posted.id, *self._posting(edit.posted, edited_metadata(edit.given, edit.stored.metadata))

    def _posting(self, posted: Posted, metadata: dict[str, Any]) -> tuple[message_insert.Posting, JsonText]:
        path = f"{posted.path}.parts"
        checked = message_insert.check_parts(self._work, self._session_id, posted.parts, path)
        for index, (data, text, _) in enumerate(checked):
            refuse_prototype(text, data, f"{path}[{index}]")
        text = self._work.json(f"{posted.path}.metadata", metadata)
        refuse_prototype(text, metadata, f"{posted.path}.metadata")
        return message_insert.Posting(self._session_id, Role.USER, checked, metadata), text
