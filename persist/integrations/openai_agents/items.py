"""The items of a session: each is one chat message, with the item as JSON text in the message's metadata."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import Text, cast, delete, select

from persist.chat.models import IS_UNFINISHED, VISIBLE, messages, parts, sessions
from persist.chat.reducer.tool_parts import tool_columns
from persist.chat.schemas import UNFINISHED, ToolState
from persist.chat.storage.last_place import NEWEST_MESSAGE, place_after
from persist.chat.storage.statements import INSERT_MESSAGE, INSERT_PART, REWRITE_PART, TOUCH_SESSION
from persist.chat.storage.stored_json import stored_objects
from persist.chat.storage.usage import recompute
from persist.db.expressions.upsert import insert_missing
from persist.db.schema.base import json_key_set
from persist.db.statements.prepared import LIMIT, Row, Statement, param
from persist.db.transactions.repository import Repository, reads, writes
from persist.db.values.escaping import escape_text
from persist.db.values.json import Json, JsonText
from persist.errors import InvalidValue
from persist.integrations.openai_agents.parts import Item, MessageForm, Part, answered, message_form, unanswered

KEY = "openai_agents"
"""The key of a message's metadata that holds the item as JSON text: a database's own JSON would lose the order of keys, NaN and
large integers. The text is in a list of one if it has numbers that only the slower parser reads exactly."""

_NUMBERS = re.compile(r"[0-9]{19}|NaN|Infinity")

_S, _M, _P = sessions.c, messages.c, parts.c
_UNSET = [column.name for column in sessions.columns if column.nullable]
_COUNTERS = ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cache_read", "cache_write", "total_tokens", "cost_usd")
_session, _call = param("session_id"), param("call_id")
_LOCK = Statement(select(_S.id).where(_S.id == _session).with_for_update())
_CREATE = Statement(insert_missing(sessions, "id"))
_HEAD = select(_M.id, cast(_M.metadata_json, Text)).where(_M.session_id == _session)
_ALL = Statement(_HEAD.order_by(_M.created_at, _M.id))
_LATEST = Statement(_HEAD.order_by(_M.created_at.desc(), _M.id.desc()).limit(LIMIT))
_DELETE = Statement(delete(messages).where(_M.id == param("row_id")))
_CLEAR = Statement(delete(messages).where(_M.session_id == _session, json_key_set(_M.metadata_json, KEY)))
_CALLS = (
    select(_P.id, _P.type, _P.data_json)
    .join(messages, _M.id == _P.message_id)
    .where(_P.session_id == _session, _P.tool_call_id == _call)
    .order_by(_M.created_at.desc(), _M.id.desc(), _P.index.desc())
)
_OPEN_CALLS = Statement(_CALLS.where(IS_UNFINISHED, VISIBLE))
_ANSWERED_CALL = Statement(_CALLS.where(_P.tool_state == ToolState.OUTPUT_AVAILABLE, VISIBLE).limit(1))


@dataclass(frozen=True, slots=True)
class _EncodedItem:
    """An item to insert, encoded."""

    item: Item
    form: MessageForm
    metadata: JsonText
    parts: list[JsonText]


@dataclass(slots=True)
class _OwnPart:
    """A part to insert, and its row."""

    part: Part
    row: dict[str, Any]

    @property
    def is_open(self) -> bool:
        """Whether it is a call that waits for its output."""
        return self.row["tool_state"] in UNFINISHED


class SessionItems(Repository):
    """The verbs that PersistSession runs in a transaction."""

    @writes
    def add(self, session_id: str, texts: Sequence[str], *, agent: str, model: Json) -> None:
        """Append items, given as JSON text. Creates the session if needed; concurrent creators get the same one."""
        work = self._work
        encoded_items = [self._encoded(index, text) for index, text in enumerate(texts)]
        now = work.now()
        calls = dict.fromkeys(one.form.answers for one in encoded_items if one.form.answers is not None)
        found = self._found(session_id, calls)
        if found is None:
            self._create(session_id, work.label("agent", agent), work.json("model", model), now)
            found = self._found(session_id, calls)
        newest, open_calls = found or (None, {})
        ids = work.runtime.ids.mint_many("msg", len(encoded_items))
        stamps = {"created_at": place_after(newest, ids[0], now), "updated_at": now}
        rows = [
            {"id": id, "session_id": session_id, "role": encoded.form.role, "metadata_json": encoded.metadata, **stamps}
            for id, encoded in zip(ids, encoded_items, strict=True)
        ]
        own = list(self._own_parts(session_id, ids, encoded_items, now))
        rewritten = self._answered(encoded_items, own, open_calls, now)
        with work.batch(last=True) as batch:
            batch.run_many(INSERT_MESSAGE, rows)
            batch.run_many(INSERT_PART, [one.row for one in own])
            for values in rewritten:
                batch.run(REWRITE_PART, **values)
            batch.run(TOUCH_SESSION, row_id=session_id, at=now)

    @reads
    def read(self, session_id: str, limit: int | None) -> list[Item]:
        """The latest items, oldest first; all without a limit. Unreadable items are left out and not counted."""
        if limit is None:
            return [item for _, item, _ in self._items(self._work.rows(_ALL, session_id=session_id))]
        window = limit
        while True:
            rows = self._work.rows(_LATEST, session_id=session_id, limit=window)
            items = [item for _, item, _ in self._items(rows)]
            if len(items) >= limit or len(rows) < window:
                return items[:limit][::-1]
            window *= 2

    @writes
    def pop(self, session_id: str) -> Item | None:
        """Delete the latest readable item and return it; None if there is none."""
        work = self._work
        window = 1
        with work.batch() as batch:
            locked = batch.row(_LOCK, session_id=session_id)
            latest = batch.rows(_LATEST, session_id=session_id, limit=window)
        if locked.result is None:
            return None
        rows = latest.result
        while True:
            for id, item, metadata in self._items(rows):
                self._remove(session_id, id, item, "usage" in metadata)
                return item
            if len(rows) < window:
                return None
            window *= 4
            rows = work.rows(_LATEST, session_id=session_id, limit=window)

    def _remove(self, session_id: str, id: str, item: Item, counts: bool) -> None:
        """Delete an item's message. `counts`: it is one that the session's counters count."""
        work, now = self._work, self._work.now()
        answers = message_form(item).answers
        call = None if answers is None else work.row(_ANSWERED_CALL, session_id=session_id, call_id=_call_label(answers))
        with work.batch(last=not counts) as batch:
            batch.run(_DELETE, row_id=id)
            if call is not None and isinstance(call[2], dict):
                batch.run(REWRITE_PART, **self._rewritten(call, unanswered, now))
            batch.run(TOUCH_SESSION, row_id=session_id, at=now)
        if counts:
            recompute(work, session_id)

    @writes
    def clear(self, session_id: str) -> None:
        """Delete all items, also hidden and unreadable ones. The session stays, and so do messages that are no items."""
        work = self._work
        with work.batch() as batch:
            batch.lock(_LOCK, session_id=session_id)
            cleared = batch.run(_CLEAR, session_id=session_id)
        if cleared.result:
            recompute(work, session_id)
            with work.batch(last=True) as batch:
                batch.run(TOUCH_SESSION, row_id=session_id, at=work.now())

    def _encoded(self, index: int, text: str) -> _EncodedItem:
        """Encode an item. Refuses invalid ones (InvalidValue) before anything is written."""
        work, item = self._work, json.loads(text)
        form = message_form(item)
        path = f"items[{index}]"
        stored = [text] if _NUMBERS.search(text) else text
        return _EncodedItem(item, form, work.json(path, {KEY: stored}), [work.json(path, part) for part in form.parts])

    def _create(self, session_id: str, agent: str, model: Json, now: datetime) -> None:
        self._work.run(
            _CREATE,
            **dict.fromkeys(_UNSET),
            **dict.fromkeys(_COUNTERS, 0),
            id=session_id,
            agent=agent,
            created_at=now,
            updated_at=now,
            model_json=model,
            permissions_json=[],
            metadata_json={},
        )

    def _found(self, session_id: str, calls: Iterable[str]) -> tuple[Row | None, dict[str, list[Row]]] | None:
        """Lock the session; its newest message, and the open calls with these ids, newest first. None if it is not there."""
        with self._work.batch() as batch:
            locked = batch.row(_LOCK, session_id=session_id)
            newest = batch.row(NEWEST_MESSAGE, session=session_id)
            found = {call: batch.rows(_OPEN_CALLS, session_id=session_id, call_id=_call_label(call)) for call in calls}
        return None if locked.result is None else (newest.result, {call: rows.result for call, rows in found.items()})

    def _own_parts(
        self, session_id: str, ids: Sequence[str], encoded_items: Sequence[_EncodedItem], now: datetime
    ) -> Iterator[_OwnPart]:
        mint = self._work.runtime.ids.mint
        for message_id, encoded in zip(ids, encoded_items, strict=True):
            for index, (part, text) in enumerate(zip(encoded.form.parts, encoded.parts, strict=True)):
                call_id, state = tool_columns(part)
                row = {
                    "id": mint("prt"),
                    "message_id": message_id,
                    "session_id": session_id,
                    "index": index,
                    "type": part["type"],
                    "tool_call_id": None if call_id is None else _call_label(call_id),
                    "tool_state": state,
                    "created_at": now,
                    "updated_at": now,
                    "data_json": text,
                }
                yield _OwnPart(part, row)

    def _answered(
        self, encoded_items: Sequence[_EncodedItem], own: Sequence[_OwnPart], stored: Mapping[str, list[Row]], now: datetime
    ) -> list[dict[str, Any]]:
        """Let the part of the latest open call of each output show it; the parameters of REWRITE_PART for stored ones."""
        rewritten = []
        for encoded in encoded_items:
            call_id = encoded.form.answers
            if call_id is None:
                continue
            latest = next((one for one in reversed(own) if one.is_open and one.row["tool_call_id"] == _call_label(call_id)), None)
            if latest is not None:
                latest.part = answered(encoded.item, latest.part)
                changed = {"tool_state": latest.part["state"], "data_json": self._work.json("output", latest.part)}
                latest.row |= changed
            elif (rows := stored[call_id]) and isinstance(rows[0][2], dict):
                rewritten.append(self._rewritten(rows.pop(0), partial(answered, encoded.item), now))
        return rewritten

    def _rewritten(self, row: Row, change: Callable[[Part], Part], now: datetime) -> dict[str, Any]:
        """The parameters of REWRITE_PART to change the part of a call, which shows or removes its output."""
        id, kind, part = row
        changed = change(part)
        return {
            "row_id": id,
            "new_type": kind,
            "new_tool_state": changed["state"],
            "data": self._work.json("output", changed),
            "at": now,
        }

    def _items(self, rows: Sequence[Row]) -> list[tuple[str, Item, dict[str, Any]]]:
        """(message id, item, metadata) of visible messages that are readable items."""
        found = zip(rows, stored_objects([row[1] for row in rows], self._work.to_plain_json), strict=True)
        stored = [(row[0], metadata[KEY], metadata) for row, metadata in found if metadata is not None and _is_item(metadata)]
        parsed = iter(stored_objects([text for _, text, _ in stored if type(text) is str]))
        items = [(id, next(parsed) if type(text) is str else _parse_exactly(text), metadata) for id, text, metadata in stored]
        return [(id, item, metadata) for id, item, metadata in items if item is not None]


def _call_label(call_id: str) -> str:
    return escape_text(call_id, nul=True)


def _is_item(metadata: dict[str, Any]) -> bool:
    return KEY in metadata and (len(metadata) == 1 or (metadata.get("hidden_at") is None and metadata.get("queued_at") is None))


def _parse_exactly(stored: Json) -> Item | None:
    """Parse an item with numbers that the fast parser would change; None if it is unreadable."""
    try:
        (text,) = stored
        item = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None
    return item if isinstance(item, dict) else None


def as_text(index: int, item: object) -> str:
    """An item as JSON text, as the framework itself would write it. Raises InvalidValue for values that JSON cannot express."""
    path = f"items[{index}]"
    if not isinstance(item, dict):
        raise InvalidValue(path, f"expected a dict, got {type(item).__name__}.")
    try:
        return json.dumps(item, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(path, f"it is no JSON: {error}.") from error
