"""The items of a session: one chat message each, the item itself as JSON text in the message's metadata."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import Text, cast, delete, select

from persist.chat.flush import place_after_all
from persist.chat.models import IS_UNFINISHED, VISIBLE, messages, parts, sessions
from persist.chat.schemas import ToolState
from persist.chat.statements import INSERT_MESSAGE, INSERT_PART, REWRITE_PART, TOUCH_SESSION
from persist.chat.stored import stored_objects
from persist.chat.tool_parts import tool_columns
from persist.chat.usage import recompute
from persist.db.base import json_key_set
from persist.db.escape import escape_text
from persist.db.hot import LIMIT, Hot, Row, param
from persist.db.insert import insert_missing
from persist.db.json import Json, JsonText
from persist.db.repository import Repository, reads, writes
from persist.errors import InvalidValue
from persist.integrations.openai_agents.parts import Item, Part, Shown, answered, shown, unanswered

KEY = "openai_agents"
"""The key of a message's metadata that holds the item, as JSON text: the order of its keys, NaN and integers of any size
are what a database's own JSON would not give back. In a list of its own where only the slow parser reads its numbers."""

_NUMBERS = re.compile(r"[0-9]{19}|NaN|Infinity")

_S, _M, _P = sessions.c, messages.c, parts.c
_UNSET = [column.name for column in sessions.columns if column.nullable]
_COUNTERS = ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cache_read", "cache_write", "total_tokens", "cost_usd")
_session, _call = param("session_id"), param("call_id")
_LOCK = Hot(select(_S.id).where(_S.id == _session).with_for_update())
_CREATE = Hot(insert_missing(sessions, "id"))
_HEAD = select(_M.id, cast(_M.metadata_json, Text)).where(_M.session_id == _session)
_ALL = Hot(_HEAD.order_by(_M.created_at, _M.id))
_LATEST = Hot(_HEAD.order_by(_M.created_at.desc(), _M.id.desc()).limit(LIMIT))
_DELETE = Hot(delete(messages).where(_M.id == param("row_id")))
_CLEAR = Hot(delete(messages).where(_M.session_id == _session, json_key_set(_M.metadata_json, KEY)))
_CALLS = (
    select(_P.id, _P.type, _P.data_json)
    .join(messages, _M.id == _P.message_id)
    .where(_P.session_id == _session, _P.tool_call_id == _call)
    .order_by(_M.created_at.desc(), _M.id.desc(), _P.index.desc())
    .limit(1)
)
_OPEN_CALL = Hot(_CALLS.where(IS_UNFINISHED, VISIBLE))
_ANSWERED_CALL = Hot(_CALLS.where(_P.tool_state == ToolState.OUTPUT_AVAILABLE, VISIBLE))


@dataclass(frozen=True, slots=True)
class _Draft:
    """An item to write, encoded."""

    item: Item
    look: Shown
    metadata: JsonText
    parts: list[JsonText]


class SessionItems(Repository):
    """What a PersistSession asks of a transaction."""

    @writes
    def add(self, session_id: str, texts: Sequence[str], *, agent: str, model: Json) -> None:
        """Append the items, given as JSON text; the first ones make the session, whoever else tries the same."""
        work = self._work
        drafts = [self._draft(place, text) for place, text in enumerate(texts)]
        now = work.now()
        if not self._lock(session_id):
            self._create(session_id, work.label("agent", agent), work.json("model", model), now)
            self._lock(session_id)
        ids = work.runtime.ids.mint_many("msg", len(drafts))
        stamps = {"created_at": place_after_all(work, session_id, ids[0], now), "updated_at": now}
        rows = [
            {"id": id, "session_id": session_id, "role": draft.look.role, "metadata_json": draft.metadata, **stamps}
            for id, draft in zip(ids, drafts, strict=True)
        ]
        work.run_many(INSERT_MESSAGE, rows)
        work.run_many(INSERT_PART, list(self._part_rows(session_id, ids, drafts, now)))
        for draft in drafts:
            if draft.look.answers is not None:
                self._rewrite_call(_OPEN_CALL, session_id, draft.look.answers, partial(answered, draft.item), now)
        work.run(TOUCH_SESSION, row_id=session_id, at=now)

    @reads
    def read(self, session_id: str, limit: int | None) -> list[Item]:
        """The latest items, oldest first; all of them without a limit. What cannot be read is left out and not counted."""
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
        """Delete the latest item that can be read, and return it."""
        work = self._work
        if not self._lock(session_id):
            return None
        window = 1
        while True:
            rows = work.rows(_LATEST, session_id=session_id, limit=window)
            for id, item, metadata in self._items(rows):
                now = work.now()
                work.run(_DELETE, row_id=id)
                answers = shown(item).answers
                if answers is not None:
                    self._rewrite_call(_ANSWERED_CALL, session_id, answers, unanswered, now)
                if "usage" in metadata:
                    recompute(work, session_id)
                work.run(TOUCH_SESSION, row_id=session_id, at=now)
                return item
            if len(rows) < window:
                return None
            window *= 4

    @writes
    def clear(self, session_id: str) -> None:
        """Delete every item, hidden and unreadable ones too; the session stays, and so do messages that are no items."""
        work = self._work
        if self._lock(session_id) and work.run(_CLEAR, session_id=session_id):
            recompute(work, session_id)
            work.run(TOUCH_SESSION, row_id=session_id, at=work.now())

    def _draft(self, place: int, text: str) -> _Draft:
        """What is refused is refused here, before the first write."""
        work, item = self._work, json.loads(text)
        look = shown(item)
        path = f"items[{place}]"
        kept = [text] if _NUMBERS.search(text) else text
        return _Draft(item, look, work.json(path, {KEY: kept}), [work.json(path, part) for part in look.parts])

    def _lock(self, session_id: str) -> bool:
        return self._work.row(_LOCK, session_id=session_id) is not None

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

    def _part_rows(
        self, session_id: str, ids: Sequence[str], drafts: Sequence[_Draft], now: datetime
    ) -> Iterator[dict[str, Any]]:
        mint = self._work.runtime.ids.mint
        for message_id, draft in zip(ids, drafts, strict=True):
            for index, (part, text) in enumerate(zip(draft.look.parts, draft.parts, strict=True)):
                call_id, state = tool_columns(part)
                yield {
                    "id": mint("prt"),
                    "message_id": message_id,
                    "session_id": session_id,
                    "index": index,
                    "type": part["type"],
                    "tool_call_id": None if call_id is None else escape_text(call_id, nul=True),
                    "tool_state": state,
                    "created_at": now,
                    "updated_at": now,
                    "data_json": text,
                }

    def _rewrite_call(self, wanted: Hot, session_id: str, call_id: str, change: Callable[[Part], Part], now: datetime) -> None:
        """Show the output of a call where the call is: the latest one of that id, which providers use again."""
        row = self._work.row(wanted, session_id=session_id, call_id=escape_text(call_id, nul=True))
        if row is None or not isinstance(row[2], dict):
            return
        id, kind, part = row
        changed = change(part)
        text = self._work.json("output", changed)
        self._work.run(REWRITE_PART, row_id=id, kind=kind, tool=changed["state"], data=text, at=now)

    def _items(self, rows: Sequence[Row]) -> list[tuple[str, Item, dict[str, Any]]]:
        """(message id, item, metadata) of the visible messages that are items and can be read."""
        found = zip(rows, stored_objects([row[1] for row in rows], self._work.wire), strict=True)
        kept = [(row[0], metadata[KEY], metadata) for row, metadata in found if metadata is not None and _is_item(metadata)]
        quick = iter(stored_objects([text for _, text, _ in kept if type(text) is str]))
        items = [(id, next(quick) if type(text) is str else _exactly(text), metadata) for id, text, metadata in kept]
        return [(id, item, metadata) for id, item, metadata in items if item is not None]


def _is_item(metadata: dict[str, Any]) -> bool:
    return KEY in metadata and (len(metadata) == 1 or (metadata.get("hidden_at") is None and metadata.get("queued_at") is None))


def _exactly(kept: Json) -> Item | None:
    """An item of which the quick parser would change a number."""
    try:
        (text,) = kept
        item = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None
    return item if isinstance(item, dict) else None


def as_text(place: int, item: object) -> str:
    """An item as JSON text, as the framework itself would write it; InvalidValue for what JSON cannot hold."""
    path = f"items[{place}]"
    if not isinstance(item, dict):
        raise InvalidValue(path, f"expected a dict, got {type(item).__name__}.")
    try:
        return json.dumps(item, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(path, f"it is no JSON: {error}.") from error
