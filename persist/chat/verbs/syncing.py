"""Taking in what a browser posts: the stored messages are read beside it, and what `persist.chat.posted` allows is written."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any

from sqlalchemy import delete, select, tuple_, type_coerce

from persist.blobs.bodies import Added, add_outside
from persist.chat.models import deltas, messages, parts
from persist.chat.posted.answers import Answer
from persist.chat.posted.json_values import refuse_prototype
from persist.chat.posted.messages import Posted, edited_metadata
from persist.chat.posted.plan import Edit, Plan, Planner, Running, Stored, Trigger
from persist.chat.reducer.parts import Part
from persist.chat.schemas import Files, Role, SyncedMessages
from persist.chat.storage import turns, usage
from persist.chat.storage.files import STORED, StoredFile, is_reference, put_back
from persist.chat.storage.message_insert import Posting, check_parts, insert_last, insert_parts, naming_taken, touch_session
from persist.chat.storage.statements import LOCK_SESSION, REWRITE_PART, SET_METADATA
from persist.chat.storage.stored_json import grown_part, joined_deltas, read_object, stored_objects
from persist.chat.storage.transcript import GROWING, by_message
from persist.db.changes.batch import Batch
from persist.db.expressions.json_text import json_text, stored_text
from persist.db.schema.arrays import among_labels
from persist.db.schema.column_types import Label
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.clock import epoch_ms
from persist.db.values.frozen import construct
from persist.db.values.json import JsonText
from persist.errors import Conflict, NotFound, UnreadableRow

_M, _P, _D = messages.c, parts.c, deltas.c
_session = param("session_id")
_named = messages.alias()
_first = (
    select(_named.c.created_at, _named.c.id)
    .where(_named.c.session_id == _session, among_labels(_named.c.id, "ids"))
    .order_by(_named.c.created_at, _named.c.id)
    .limit(1)
)
_FROM_FIRST = Statement(
    select(_M.id, type_coerce(_M.role, Label()), json_text(_M.metadata_json))
    .where(_M.session_id == _session, tuple_(_M.created_at, _M.id) >= _first.scalar_subquery())
    .order_by(_M.created_at, _M.id)
)
_ELSEWHERE = Statement(select(_M.id).where(among_labels(_M.id, "ids"), _M.session_id != _session).limit(1))
_PARTS = Statement(select(_P.message_id, _P.index, json_text(_P.data_json), _P.id).where(among_labels(_P.message_id, "ids")))
_TAILS = Statement(
    select(_D.part_id, stored_text(_D.seq), stored_text(_D.delta))
    .join(parts, _P.id == _D.part_id)
    .where(_P.session_id == _session)
    .order_by(_D.part_id, _D.seq)
)
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
    ids = [message.id for message in posted]
    ids += [] if message_id is None or message_id in ids else [message_id]
    with work.batch() as batch:
        turn_row = batch.row(turns.LOCK_TURN, of_session=session_id)  # locked before the session, in the order that recorders use
        session = batch.row(LOCK_SESSION, row_id=session_id)
        elsewhere = batch.row(_ELSEWHERE, session_id=session_id, ids=ids)
        heads = batch.rows(_FROM_FIRST, session_id=session_id, ids=ids)
        parts_found = batch.rows(_PARTS, ids=ids)
        markers = batch.rows(usage.MARKERS, row_id=session_id)
    if session.result is None:
        raise NotFound("session", session_id)
    if elsewhere.result is not None:
        raise Conflict(f"Message {elsewhere.result[0]} belongs to another session.", constraint="chat_messages")
    now = work.now()
    turn = turns.turn_of(turn_row.result)
    running = Running(turn.message_id) if turn is not None and turn.running(now) else None
    stored = _stored(heads.result)
    shown = {(message.id, place) for message in posted for place, part in enumerate(message.parts) if is_reference(part)}
    reader = _Reader(work, session_id, parts_found.result, ids, shown)
    plan = Planner(stored, reader.parts, client_tools=client_tools).plan(posted, trigger, message_id, running)
    if plan.changes:
        if running is not None:
            raise Conflict(
                f"A turn is running in session {session_id}: enqueue the message, or call sessions.request_stop first.",
                constraint="chat_turns",
            )
        _Writer(work, session_id, plan, now).write(stored, turn, {row[0] for row in markers.result})
    return _result(plan, running)


def _stored(heads: list[Row]) -> list[Stored]:
    found = []
    for (id, role, text), metadata in zip(heads, stored_objects([text for *_, text in heads]), strict=True):
        found.append(Stored(id, role, read_object(text, f"the metadata of message {id}") if metadata is None else metadata))
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


class _StoredPart:
    """A part as it is stored, for the rules."""

    __slots__ = ("_reader", "data", "id", "index")

    def __init__(self, reader: "_Reader", index: int, id: str, data: Part) -> None:
        self._reader, self.index, self.id, self.data = reader, index, id, data

    def whole(self) -> Part:
        """The part with the text that waits in rows of its own."""
        return self._reader.grown(self.id, self.data) if self.data.get("state") in GROWING else self.data


class _Reader:
    """The parts of stored messages: those of the posted ids are read already, others and unfolded text when they are needed."""

    def __init__(
        self, work: UnitOfWork, session_id: str, rows: list[Row], ids: Sequence[str], shown: AbstractSet[tuple[str, int]]
    ) -> None:
        """`shown`: the parts, by message and place, whose large file the browser posts by reference, as it was shown it."""
        self._work, self._session_id, self._shown = work, session_id, shown
        self._read = set(ids)
        self._parts = self._grouped(rows)
        self._tails: dict[str, list[tuple[Any, Any]]] | None = None

    def parts(self, message_id: str) -> Sequence[_StoredPart]:
        """The parts of a message, in their order, without those that cannot be read."""
        if message_id not in self._read:
            self._read.add(message_id)
            self._parts |= self._grouped(self._work.rows(_PARTS, ids=[message_id]))
        return self._parts.get(message_id, [])

    def _grouped(self, rows: list[Row]) -> dict[str, list[_StoredPart]]:
        values = stored_objects([row[2] for row in rows])
        bodies = [
            None if data is None else _StoredPart(self, row[1], row[3], data) for row, data in zip(rows, values, strict=True)
        ]
        found = by_message([row[:3] for row in rows], bodies)
        filed: dict[Files, list[StoredFile]] = {}
        for message_id, numbered in found.items():
            for place, part in enumerate(numbered):
                if part.data.get("state") == STORED:
                    files = Files.REFERENCE if (message_id, place) in self._shown else Files.DATA
                    filed.setdefault(files, []).append(StoredFile(message_id, part.index, part.data))
        for files, stored in filed.items():
            put_back(self._work, self._work.runtime, stored, files)
        return found

    def grown(self, part_id: str, data: Part) -> Part:
        """The part with its unfolded text; without it if that cannot be read, as the browser was shown it."""
        if self._tails is None:
            self._tails = {}
            for id, *piece in self._work.rows(_TAILS, session_id=self._session_id):
                self._tails.setdefault(id, []).append(tuple(piece))
        try:
            return grown_part(part_id, data, joined_deltas(part_id, self._tails.get(part_id, []))[0])
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

    def write(self, stored: Sequence[Stored], turn: turns.Turn | None, compactions: AbstractSet[str]) -> None:
        """Write all changes. `compactions`: ids of the session's messages that are compactions."""
        work, plan, session_id, now = self._work, self._plan, self._session_id, self._now
        taken_back = {message.id for message in plan.hidden}
        recounts = not taken_back.isdisjoint(compactions)
        postings = [posting for _, posting, _ in (*self._added, *([] if self._edit is None else [self._edit]))]
        last = not recounts and not any(posting.has_files_outside for posting in postings)
        files: Added = []
        with naming_taken(work, ", ".join(id for id, *_ in self._added)), work.batch(last=last) as batch:
            for answer, text in self._answers:
                data = answer.data
                batch.run(
                    REWRITE_PART, row_id=answer.part_id, new_type=data["type"], new_tool_state=data["state"], data=text, at=now
                )
            self._hide(batch, recounts=recounts)
            if turn is not None and self._loses_answer(turn, stored):
                turns.stop_turn(batch, session_id, turn)
            if self._edit is not None:
                id, posting, metadata = self._edit
                batch.run(SET_METADATA, row_id=id, metadata=metadata, at=now)
                batch.run(_REMOVE_PARTS, row_id=id)
                files += insert_parts(work, batch, posting, id, now)
            for id, posting, metadata in self._added:
                files += insert_last(work, batch, posting, id, metadata, now)[1]
            if self._added or self._edit:
                touch_session(work, batch, session_id, {}, now)
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
        """Whether what a turn wrote is taken back. It does not run; its row may be that of a recorder that hangs."""
        taken_back = {message.id for message in self._plan.hidden}
        if any(message.id == turn.message_id for message in stored):
            return turn.message_id in taken_back
        return any(message.role == Role.USER for message in self._plan.hidden)

    def _checked(self, answer: Answer) -> JsonText:
        text = self._work.json(answer.path, answer.data)
        refuse_prototype(text, answer.data, answer.path)
        return text

    def _edited(self, edit: Edit) -> tuple[str, Posting, JsonText]:
        return edit.posted.id, *self._posting(edit.posted, edited_metadata(edit.given, edit.stored.metadata))

    def _posting(self, posted: Posted, metadata: dict[str, Any]) -> tuple[Posting, JsonText]:
        path = f"{posted.path}.parts"
        checked = check_parts(self._work, self._session_id, posted.parts, path)
        for index, (data, text, _) in enumerate(checked):
            refuse_prototype(text, data, f"{path}[{index}]")
        text = self._work.json(f"{posted.path}.metadata", metadata)
        refuse_prototype(text, metadata, f"{posted.path}.metadata")
        return Posting(self._session_id, Role.USER, checked, metadata), text
