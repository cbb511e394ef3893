"""Fork, rewind, unrewind and compaction: where a conversation begins for a reader, and what of it a copy has."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Text, cast, select

from persist.chat.models import messages, parts
from persist.chat.schemas import ChatMessage, ChatSession, Files, Role, SummaryAs, UIMessage
from persist.chat.storage import turns
from persist.chat.storage.files import NAME_BLOB, Key, names_of, referred
from persist.chat.storage.folding import PARTS_WITH_DELTAS, fold_session, stored_object
from persist.chat.storage.message_insert import Posting, check_parts, post
from persist.chat.storage.statements import INSERT_MESSAGE, INSERT_PART, LOCK_SESSION, SET_METADATA
from persist.chat.storage.transcript import all_messages, fetch_all
from persist.chat.storage.usage import (
    COMPACTION,
    MARKERS,
    NEWEST_MARKER,
    SET_COUNTERS,
    marker_value,
    newest_of,
    since_boundary,
    totals_of,
)
from persist.db.changes.batch import Batch, Pending
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.clock import epoch_ms
from persist.db.values.frozen import construct
from persist.db.values.json import Json
from persist.errors import InvalidValue, NotFound

# Compaction: a marker message with a summary. No message is hidden, but the model's view begins with the summary.


def compact(
    work: UnitOfWork, session_id: str, *, summary: str, tail_start_id: str | None, auto: bool, summary_tokens: int
) -> ChatMessage:
    """Append the marker message. Raises NotFound if `tail_start_id` is not a visible message of the session."""
    work.body("summary", summary)
    if type(auto) is not bool:
        raise InvalidValue("auto", "expected True or False.")
    if type(summary_tokens) is not int or not 0 <= summary_tokens < 2**53:
        raise InvalidValue("summary_tokens", "expected a whole number of tokens, 0 or more.")
    if tail_start_id is not None:
        work.label("tail_start_id", tail_start_id)
    data = {"summary": summary, "tail_start_id": tail_start_id, "auto": auto, "summary_tokens": summary_tokens}
    parts = check_parts(work, session_id, [{"type": COMPACTION, "data": data}])
    usage = {"input": summary_tokens, "output": 0, "reasoning": 0, "cache_read": 0, "cache_write": 0}
    return post(work, Posting(session_id, Role.ASSISTANT, parts, {"usage": usage}), id=None, tail=tail_start_id)


def model_view(work: UnitOfWork, session_id: str, summary_as: SummaryAs, files: Files) -> list[UIMessage]:
    """The summary, and messages from `tail_start_id` to the newest marker and later; without a marker all visible messages."""
    with work.batch() as batch:
        all_of_it = fetch_all(batch, session_id)
        newest = batch.row(NEWEST_MARKER, row_id=session_id)
    visible = all_messages(work, session_id, *all_of_it, files=files)
    marker = marker_value(newest.result)
    if marker is None:
        return visible
    view = since_boundary(visible, *marker)
    return [_as_text(message) for message in view] if summary_as == SummaryAs.TEXT else view


def _as_text(message: UIMessage) -> UIMessage:
    """A marker with its summary as text, as a user message, which many providers require first. Other messages are unchanged.

    A marker with further parts stays the assistant's. Earlier markers in the tail are converted too: nothing else tells the
    model what they summarise.
    """
    texts = [_text_of(part) for part in message["parts"]]
    if not any(texts):
        return message
    parts = [part if text is None else text for part, text in zip(message["parts"], texts, strict=True)]
    return {**message, "role": message["role"] if None in texts else str(Role.USER), "parts": parts}


def _text_of(part: dict[str, Any]) -> dict[str, Any] | None:
    data = part.get("data") if part.get("type") == COMPACTION else None
    summary = data.get("summary") if isinstance(data, dict) else None
    return {"type": "text", "text": summary} if isinstance(summary, str) else None


# Fork, rewind and unrewind: copying a conversation's beginning, and hiding or showing its messages.

_M, _P = messages.c, parts.c
_id = param("row_id")
_COPY = re.compile(r"(?P<title>.*) \(copy(?: (?P<number>[0-9]{1,9}))?\)", re.DOTALL)
_ROWS = Statement(
    select(_M.id, _M.role, cast(_M.metadata_json, Text), _M.created_at).where(_M.session_id == _id).order_by(_M.created_at, _M.id)
)
_PARTS = Statement(
    select(_P.message_id, _P.index, _P.type, _P.tool_call_id, _P.tool_state, _P.created_at, _P.updated_at, _P.data_json)
    .where(_P.session_id == _id)
    .order_by(_P.message_id, _P.index)
)


def copied_title(title: str) -> str:
    """The title of a copy: "Docs" becomes "Docs (copy)", that becomes "Docs (copy 2)", and so on."""
    found = _COPY.fullmatch(title)
    if found is None:
        return f"{title} (copy)"
    return f"{found['title']} (copy {int(found['number'] or 1) + 1})"


def child_of(parent: ChatSession, at_message_id: str, given: dict[str, Any], *, id: str, now: datetime) -> ChatSession:
    """The child's row: the parent's agent, model and workspace, its metadata overridden by `given`, and no permissions."""
    inherited = {key: value for key, value in parent.metadata.items() if key != "ephemeral"}
    metadata = {**inherited, **given}
    title = inherited.get("title")
    if isinstance(title, str) and title and "title" not in given:
        metadata["title"] = copied_title(title)
    counters = dict.fromkeys(
        ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cache_read", "cache_write", "total_tokens"), 0
    )
    fields = {
        **dict(parent),
        **counters,
        "id": id,
        "parent_id": parent.id,
        "parent_message_id": at_message_id,
        "permissions": [],
        "metadata": metadata,
        "cost_usd": 0.0,
        "created_at": now,
        "updated_at": now,
        "archived_at": None,
    }
    return construct(ChatSession, fields)


@dataclass(frozen=True, slots=True)
class Parent:
    """What a fork reads of its parent: the turn, the messages and parts, and the rows that have deltas."""

    turn: Pending[Row | None]
    rows: Pending[list[Row]]
    parts: Pending[list[Row]]
    unfolded: Pending[list[Row]]

    @classmethod
    def ask(cls, batch: Batch, session_id: str) -> "Parent":
        """Add the statements to a batch."""
        return cls(
            batch.row(turns.READ_TURN, of_session=session_id),
            batch.rows(_ROWS, row_id=session_id),
            batch.rows(_PARTS, row_id=session_id),
            batch.rows(PARTS_WITH_DELTAS, row_id=session_id),
        )


def messages_through(work: UnitOfWork, parent: Parent, session_id: str, at_message_id: str) -> list[Row]:
    """(id, role, metadata, created_at) of visible messages through the fork point. Raises Conflict, NotFound or InvalidValue."""
    turns.refuse(turns.turn_of(parent.turn.result), session_id, work.now(), "Forking")
    visible_rows: list[Row] = []
    for row in parent.rows.result:
        metadata = stored_object(work, row[2], f"the metadata of message {row[0]}")
        visible = metadata.get("hidden_at") is None and metadata.get("queued_at") is None
        if row[0] == at_message_id and not visible:
            raise InvalidValue("at_message_id", "a hidden or queued message is no fork point.")
        if visible:
            visible_rows.append((row[0], row[1], metadata, row[3]))
        if row[0] == at_message_id:
            return visible_rows
    raise NotFound("message", at_message_id)


def parts_of(work: UnitOfWork, parent: Parent, session_id: str) -> list[Row]:
    """The parent's parts; deltas are folded first if there are any."""
    if not parent.unfolded.result:
        return parent.parts.result
    fold_session(work, session_id)
    return work.rows(_PARTS, row_id=session_id)


def blobs_of(work: UnitOfWork, parts: list[Row]) -> Mapping[Key, str]:
    """The blobs that the parent's parts name, by message and index."""
    filed = {row[0] for row in parts if isinstance(row[-1], dict) and referred(row[-1]) is not None}
    return names_of(work, filed) if filed else {}


def copy_messages(
    work: UnitOfWork, batch: Batch, child: ChatSession, visible_rows: list[Row], parts: list[Row], named: Mapping[Key, str]
) -> None:
    """Copy messages and parts under new ids, with equal data and created_at. A compaction's tail_start_id names the copy."""
    ids = dict(zip([row[0] for row in visible_rows], work.runtime.ids.mint_many("msg", len(visible_rows)), strict=True))
    now = work.now()
    batch.run_many(
        INSERT_MESSAGE,
        [
            {
                "id": ids[id],
                "session_id": child.id,
                "role": role,
                "metadata_json": work.json("metadata", metadata),
                "created_at": created_at,
                "updated_at": now,
                "claimed_by": None,
                "claimed_at": None,
            }
            for id, role, metadata, created_at in visible_rows
        ],
    )
    stored = [row for row in parts if row[0] in ids]
    new_ids = work.runtime.ids.mint_many("prt", len(stored))
    names = ("message_id", "index", "type", "tool_call_id", "tool_state", "created_at", "updated_at", "data_json")
    copies, markers = [], []
    for new_id, row in zip(new_ids, stored, strict=True):
        copy = dict(zip(names, row, strict=True))
        data = copy["data_json"]
        if copy["type"] == COMPACTION:
            data = _remapped(data, ids)
            markers.append((ids[row[0]], data))
        copies.append(
            {**copy, "id": new_id, "message_id": ids[row[0]], "session_id": child.id, "data_json": work.json("part", data)}
        )
    batch.run_many(INSERT_PART, copies)
    batch.run_many(NAME_BLOB, _named(copies, stored, named))
    visible: list[UIMessage] = [
        {"id": ids[id], "role": str(role), "parts": [], "metadata": metadata} for id, role, metadata, _ in visible_rows
    ]
    batch.run(SET_COUNTERS, row_id=child.id, **totals_of(visible, newest_of(markers, visible)))


def rewind(work: UnitOfWork, session_id: str, to_message_id: str | None, before: str | None, now: datetime) -> int:
    """Hide the messages after the anchor, and show those through it. Queued and canceled ones are unchanged.

    The anchor is the user message `to_message_id`, or what stands before the message `before`.
    A turn whose message gets hidden is ended: what its recorder adds would not be shown. A turn whose message is not stored
    yet is ended if a user message gets hidden: its answer would follow the anchor without its question.
    """
    with work.batch() as batch:
        turn_row = batch.row(turns.LOCK_TURN, of_session=session_id)  # locked before the session, in the order that recorders use
        found = _RewindRows.ask(batch, session_id)
    turn = turns.turn_of(turn_row.result)
    transcript, anchor = found.messages(work, session_id, before or to_message_id or "")
    if before is not None:
        anchor -= 1
    elif transcript[anchor].role != Role.USER:
        raise InvalidValue("to_message_id", "the anchor of a rewind is a user message.")
    changed: dict[int, dict[str, Any]] = {}
    hidden: list[str] = []
    for position, (_, role, metadata) in enumerate(transcript):
        if metadata.get("queued_at") is not None or metadata.get("queue_canceled_at") is not None:
            continue
        if position > anchor and metadata.get("hidden_at") is None:
            changed[position] = {**metadata, "hidden_at": epoch_ms(now)}
            hidden.append(role)
        elif position <= anchor and metadata.get("hidden_at") is not None:
            changed[position] = _without_hidden(metadata)
    places = {message.id: position for position, message in enumerate(transcript)}
    with work.batch(last=True) as batch:
        _set(work, batch, transcript, changed, now)
        if turn is not None:
            hides = places[turn.message_id] > anchor if turn.message_id in places else Role.USER in hidden
            if hides:
                turns.stop_turn(batch, session_id, turn)
        batch.run(SET_COUNTERS, row_id=session_id, **found.totals(transcript, changed))
    return len(hidden)


def unrewind(work: UnitOfWork, session_id: str, after_message_id: str, now: datetime) -> int:
    """Show hidden messages after the anchor, except canceled ones; the number shown."""
    with work.batch() as batch:
        found = _RewindRows.ask(batch, session_id)
    transcript, anchor = found.messages(work, session_id, after_message_id)
    changed = {
        position: _without_hidden(metadata)
        for position, (_, _, metadata) in enumerate(transcript)
        if position > anchor and metadata.get("hidden_at") is not None and metadata.get("queue_canceled_at") is None
    }
    with work.batch(last=True) as batch:
        _set(work, batch, transcript, changed, now)
        batch.run(SET_COUNTERS, row_id=session_id, **found.totals(transcript, changed))
    return len(changed)


def _named(copies: list[dict[str, Any]], stored: list[Row], named: Mapping[Key, str]) -> list[dict[str, Any]]:
    """The copies that name the blob which their original names."""
    pairs = [(copy["id"], named.get((row[0], row[1]))) for copy, row in zip(copies, stored, strict=True)] if named else []
    return [{"named_by": part_id, "sha256": digest} for part_id, digest in pairs if digest is not None]


class _Message(NamedTuple):
    id: str
    role: str
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _RewindRows:
    """What a rewind reads: the session, which is locked, its messages, and its compactions."""

    session: Pending[Row | None]
    rows: Pending[list[Row]]
    markers: Pending[list[Row]]

    @classmethod
    def ask(cls, batch: Batch, session_id: str) -> "_RewindRows":
        return cls(
            batch.row(LOCK_SESSION, row_id=session_id),
            batch.rows(_ROWS, row_id=session_id),
            batch.rows(MARKERS, row_id=session_id),
        )

    def messages(self, work: UnitOfWork, session_id: str, anchor_id: str) -> tuple[list[_Message], int]:
        """All messages, and the anchor's place. Raises NotFound without session or anchor, InvalidValue for a queued anchor."""
        if self.session.result is None:
            raise NotFound("session", session_id)
        found = [
            _Message(id, role, stored_object(work, stored, f"the metadata of message {id}"))
            for id, role, stored, _ in self.rows.result
        ]
        for position, message in enumerate(found):
            if message.id == anchor_id:
                if message.metadata.get("queued_at") is not None:
                    raise InvalidValue("message_id", "a queued message is not in the transcript yet.")
                return found, position
        raise NotFound("message", anchor_id)

    def totals(self, transcript: list[_Message], changed: Mapping[int, dict[str, Any]]) -> dict[str, int]:
        visible: list[UIMessage] = []
        for position, (id, role, metadata) in enumerate(transcript):
            after = changed.get(position, metadata)
            if after.get("queued_at") is None and after.get("hidden_at") is None:
                visible.append({"id": id, "role": str(role), "parts": [], "metadata": after})
        return totals_of(visible, newest_of(self.markers.result, visible))


def _without_hidden(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key != "hidden_at"}


def _set(
    work: UnitOfWork, batch: Batch, transcript: list[_Message], changed: Mapping[int, dict[str, Any]], now: datetime
) -> None:
    for position, metadata in changed.items():
        batch.run(SET_METADATA, row_id=transcript[position].id, metadata=work.json("metadata", metadata), at=now)


def _remapped(data: Json, ids: Mapping[str, str]) -> Json:
    inner = data.get("data") if isinstance(data, dict) else None
    if not isinstance(inner, dict) or inner.get("tail_start_id") is None:
        return data
    return {**data, "data": {**inner, "tail_start_id": ids.get(inner["tail_start_id"])}}
