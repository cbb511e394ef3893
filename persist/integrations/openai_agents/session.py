"""PersistSession: the OpenAI Agents SDK's Session protocol over a Store or an AsyncStore."""

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar, cast

from agents.exceptions import UserError
from agents.items import TResponseInputItem
from agents.memory.session_settings import SessionSettings, coerce_session_settings
from pydantic import ValidationError
from sqlalchemy import Text, bindparam, delete, select
from sqlalchemy import cast as sql_cast

from persist.chat.models import IS_UNFINISHED, VISIBLE, messages, parts, sessions
from persist.chat.reducer.parts import tool_columns
from persist.chat.schemas import UNFINISHED, ToolState
from persist.chat.storage.message_insert import NEWEST_MESSAGE, place_after, touch_session
from persist.chat.storage.statements import INSERT_MESSAGE, INSERT_PART, REWRITE_PART
from persist.chat.storage.usage import recompute
from persist.db.expressions.upsert import insert_missing
from persist.db.schema.base import json_key_set
from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import LIMIT, Row, Statement, param
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.values.arguments import check_list
from persist.db.values.escaping import escape_text
from persist.db.values.json import Json, JsonText
from persist.errors import InvalidValue
from persist.integrations.openai_agents import stored_items
from persist.integrations.store_bridge import InvalidForFramework, StoreBridge, kind_of
from persist.store.async_store import AsyncStore
from persist.store.store import Store

_S, _M, _P = sessions.c, messages.c, parts.c
_UNSET = [column.name for column in sessions.columns if column.nullable]
_COUNTERS = ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cache_read", "cache_write", "total_tokens", "cost_usd")
_session, _call = param("session_id"), param("call_id")
_LOCK = Statement(select(_S.id).where(_S.id == _session).with_for_update())
_CREATE = Statement(insert_missing(sessions, "id"))
_HEAD = select(_M.id, sql_cast(_M.metadata_json, Text)).where(_M.session_id == _session)
_ALL = Statement(_HEAD.order_by(_M.created_at, _M.id))
_LATEST = Statement(_HEAD.order_by(_M.created_at.desc(), _M.id.desc()).limit(LIMIT))
_OLDEST = Statement(_HEAD.order_by(_M.created_at, _M.id).limit(LIMIT).offset(bindparam("skip", type_=Int64())))
_DELETE = Statement(delete(messages).where(_M.id == param("row_id")))
_CLEAR = Statement(delete(messages).where(_M.session_id == _session, json_key_set(_M.metadata_json, stored_items.KEY)))
_CALLS = (
    select(_P.id, _P.type, _P.data_json)
    .join(messages, _M.id == _P.message_id)
    .where(_P.session_id == _session, _P.tool_call_id == _call)
    .order_by(_M.created_at.desc(), _M.id.desc(), _P.index.desc())
)
_OPEN_CALLS = Statement(_CALLS.where(IS_UNFINISHED, VISIBLE))
_ANSWERED_CALL = Statement(_CALLS.where(_P.tool_state == ToolState.OUTPUT_AVAILABLE, VISIBLE).limit(1))
_PAGE = 500
"""How many messages a search for expired items reads at a time."""


@dataclass(frozen=True, slots=True)
class _EncodedItem:
    item: stored_items.Item
    form: stored_items.MessageForm
    metadata: JsonText
    parts: list[JsonText]


@dataclass(slots=True)
class _OwnPart:
    part: stored_items.Part
    row: dict[str, Any]

    @property
    def is_open(self) -> bool:
        return self.row["tool_state"] in UNFINISHED


class SessionItems(Repository[F]):
    """The verbs that PersistSession runs in a transaction."""

    @writes
    def add(self, session_id: str, texts: Sequence[str], *, agent: str, model: Json) -> None:
        """Append items, given as JSON text. Creates the session if needed; concurrent creators get the same one."""
        work = self._work
        encoded_items = [self._encoded(index, text) for index, text in enumerate(texts)]
        if not self._append(session_id, encoded_items):
            self._create(session_id, work.label("agent", agent), work.json("model", model), work.now())
            self._append(session_id, encoded_items)

    def _append(self, session_id: str, encoded_items: Sequence[_EncodedItem]) -> bool:
        """Append items. False: there is no such session."""
        work, now = self._work, self._work.now()
        found = self._found(session_id, {one.form.answers: None for one in encoded_items if one.form.answers is not None})
        if found is None:
            return False
        newest, open_calls = found
        ids = work.runtime.ids.mint_many("msg", len(encoded_items))
        stamps = {"created_at": place_after(newest, ids[0], now), "updated_at": now, "claimed_by": None, "claimed_at": None}
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
            touch_session(work, batch, session_id, {}, now)
        return True

    @reads
    def read(self, session_id: str, limit: int | None) -> list[stored_items.Item]:
        """The latest items, oldest first; all without a limit. Unreadable items are left out and not counted."""
        if limit is None:
            found = self._stored(self._work.rows(_ALL, session_id=session_id))
        else:
            found = self._latest(session_id, limit, readable=True)[::-1]
        return [one.item for one in found if one.item is not None]

    @reads
    def tail(self, session_id: str, limit: int) -> tuple[list[stored_items.StoredItem], bool]:
        """(the latest items, oldest first, unreadable ones too; whether these are all)."""
        found = self._latest(session_id, limit + 1)
        return found[:limit][::-1], len(found) <= limit

    @writes
    def pop(self, session_id: str) -> stored_items.Item | None:
        """Delete the latest readable item and return it; None if there is none."""
        with self._work.batch() as batch:
            locked = batch.row(_LOCK, session_id=session_id)
            latest = batch.rows(_LATEST, session_id=session_id, limit=1)
        if locked.result is None or not latest.result:
            return None
        found = self._stored(latest.result)
        if not found or found[0].item is None:
            found = self._latest(session_id, 1, readable=True)
        if not found:
            return None
        self._remove(session_id, found, last=True)
        return found[0].item

    @writes
    def replace_tail(
        self,
        session_id: str,
        expected: Sequence[stored_items.StoredItem],
        texts: Sequence[str],
        is_expired: Callable[[stored_items.Item], bool] | None,
    ) -> bool:
        """Put other items, given as JSON text, in the place of the latest ones. False: the latest ones are not as expected.

        `is_expired`: the oldest items are deleted too, up to the first one for which this is false.
        """
        encoded_items = [self._encoded(index, text) for index, text in enumerate(texts)]
        if self._work.row(_LOCK, session_id=session_id) is None:
            return False
        latest = self._latest(session_id, len(expected))[::-1]
        if [(one.id, one.text) for one in latest] != [(one.id, one.text) for one in expected]:
            return False
        if is_expired is not None:
            self._remove_expired(session_id, expected[0].id, is_expired)
        self._remove(session_id, expected, last=not encoded_items)
        return not encoded_items or self._append(session_id, encoded_items)

    @writes
    def replace_all(self, session_id: str, texts: Sequence[str], *, agent: str, model: Json) -> None:
        """Put other items, given as JSON text, in the place of all items."""
        self.clear(session_id)
        if texts:
            self.add(session_id, texts, agent=agent, model=model)

    def _remove(self, session_id: str, removed: Sequence[stored_items.StoredItem], *, last: bool = False) -> None:
        """Delete items. A call that stays waits again for an output that goes. `last`: the verb then writes nothing more."""
        work, now = self._work, self._work.now()
        forms = [stored_items.message_form(one.item) for one in removed if one.item is not None]
        calls = {part.get("toolCallId") for form in forms for part in form.parts}
        counts = any(one.counts for one in removed)
        with work.batch() as batch:
            found = [
                batch.row(_ANSWERED_CALL, session_id=session_id, call_id=_call_label(form.answers))
                for form in forms
                if form.answers is not None and form.answers not in calls
            ]
        answered_calls = [call.result for call in found if call.result is not None and isinstance(call.result[2], dict)]
        with work.batch(last=last and not counts) as batch:
            batch.run_many(_DELETE, [{"row_id": one.id} for one in removed])
            for call in answered_calls:
                batch.run(REWRITE_PART, **self._rewritten(call, stored_items.unanswered, now))
            touch_session(work, batch, session_id, {}, now)
        if counts:
            recompute(work, session_id)

    def _remove_expired(self, session_id: str, end: str, is_expired: Callable[[stored_items.Item], bool]) -> None:
        """Delete the oldest items, up to the first that is not expired, or unreadable, or has the id `end`."""
        kept = 0
        while rows := self._work.rows(_OLDEST, session_id=session_id, limit=_PAGE, skip=kept):
            found = self._stored(rows)
            expired = list(takewhile(lambda one: one.id != end and one.item is not None and is_expired(one.item), found))
            if expired:
                self._remove(session_id, expired)
            if len(expired) < len(found):
                break
            kept += len(rows) - len(expired)

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
                touch_session(work, batch, session_id, {}, work.now())

    def _encoded(self, index: int, text: str) -> _EncodedItem:
        work, item = self._work, json.loads(text)
        form = stored_items.message_form(item)
        path = f"items[{index}]"
        metadata = work.json(path, stored_items.metadata_of(text))
        return _EncodedItem(item, form, metadata, [work.json(path, part) for part in form.parts])

    def _create(self, session_id: str, agent: str, model: Json, now: datetime) -> None:
        self._work.refuse_former(sessions, "chat session", session_id)
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
        """Show each output in the part of its latest open call; the parameters of REWRITE_PART for stored ones."""
        rewritten = []
        for encoded in encoded_items:
            call_id = encoded.form.answers
            if call_id is None:
                continue
            latest = next((one for one in reversed(own) if one.is_open and one.row["tool_call_id"] == _call_label(call_id)), None)
            if latest is not None:
                latest.part = stored_items.answered(encoded.item, latest.part)
                changed = {"tool_state": latest.part["state"], "data_json": self._work.json("output", latest.part)}
                latest.row |= changed
            elif (rows := stored[call_id]) and isinstance(rows[0][2], dict):
                rewritten.append(self._rewritten(rows.pop(0), partial(stored_items.answered, encoded.item), now))
        return rewritten

    def _rewritten(self, row: Row, change: Callable[[stored_items.Part], stored_items.Part], now: datetime) -> dict[str, Any]:
        id, kind, part = row
        changed = change(part)
        return {
            "row_id": id,
            "new_type": kind,
            "new_tool_state": changed["state"],
            "data": self._work.json("output", changed),
            "at": now,
        }

    def _latest(self, session_id: str, count: int, *, readable: bool = False) -> list[stored_items.StoredItem]:
        window = count
        while True:
            rows = self._work.rows(_LATEST, session_id=session_id, limit=window)
            found = [one for one in self._stored(rows) if one.item is not None or not readable]
            if len(found) >= count or len(rows) < window:
                return found[:count]
            window *= 2

    def _stored(self, rows: Sequence[Row]) -> list[stored_items.StoredItem]:
        return stored_items.stored_items(rows, self._work.to_plain_json)


def _call_label(call_id: str) -> str:
    return escape_text(call_id, nul=True)


T = TypeVar("T")
_MAX = 2**31 - 1


class InvalidItem(InvalidForFramework, UserError):  # noqa: N818  # named like the errors it stands among
    """An item or argument that cannot be stored: an InvalidValue, and also a UserError of the framework."""


class InvalidSettings(InvalidItem, TypeError):  # noqa: N818  # named like the errors it stands among
    """Session settings that name no setting of the framework's, or are none: also a TypeError, as the framework raises."""


@dataclass(frozen=True)
class CompactionSnapshot:
    """The latest items that a compaction may replace. `complete`: all are here. `replace_suffix`: False if they had changed."""

    items: list[TResponseInputItem]
    complete: bool
    replace_suffix: Callable[[int, list[TResponseInputItem]], Awaitable[bool]]


class PersistSession:
    """A conversation of the OpenAI Agents SDK in a store: give it to `Runner.run(..., session=...)`.

    `session_id` is any text and names the chat session (`chat_id`). The first items create it, with `agent` and `model`. Every
    call is one transaction; a cancelled one is done either completely or not at all. The caller opens and closes the store:
    one per process, with any number of sessions. Errors are PersistErrors; an item that cannot be stored raises InvalidItem,
    which is also a UserError of the framework.
    """

    session_id: str
    session_settings: SessionSettings | None

    def __init__(
        self,
        session_id: str,
        store: Store | AsyncStore,
        *,
        agent: str = "openai-agents",
        model: Json = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        _check(session_id, store, agent)
        self.session_id = session_id
        self.session_settings = _settings(session_settings)
        self._store, self._bridge = store, StoreBridge(store)
        self._runtime = (store if isinstance(store, Store) else store._store).runtime
        self._agent = agent
        self._model = {"provider_id": "openai", "model_id": model} if isinstance(model, str) else {} if model is None else model

    @property
    def chat_id(self) -> str:
        """The chat session's id: `session_id`, with characters that ids cannot contain escaped (NUL, lone surrogates)."""
        return escape_text(self.session_id, nul=True)

    def __repr__(self) -> str:
        return f"PersistSession({self.session_id!r}, {self._store!r})"

    async def get_items(self, limit: int | None = None, *, wrapper: object = None) -> list[TResponseInputItem]:
        """The latest `limit` readable items, oldest first; by default as many as the session settings say, or all."""
        if limit is None and self.session_settings is not None:
            limit = _settings(self.session_settings).limit
        if limit is not None and type(limit) is not int:
            raise InvalidItem("limit", f"expected a whole number, got {type(limit).__name__}.")
        if limit == 0:
            return []
        maximum = None if limit is None or limit < 0 else min(limit, _MAX)  # a negative limit means all, as in the framework
        return cast(list[TResponseInputItem], await self._run(lambda items: items.read(self.chat_id, maximum), write=False))

    async def add_items(self, items: list[TResponseInputItem], *, wrapper: object = None) -> None:
        """Append items in one transaction, which also creates the session if there is none."""
        if given := _items(items):
            await self._write(given, lambda stored, texts: stored.add(self.chat_id, texts, agent=self._agent, model=self._model))

    async def pop_item(self, *, wrapper: object = None) -> TResponseInputItem | None:
        """Delete the latest item and return it; None if there is none."""
        return cast(TResponseInputItem | None, await self._run(lambda items: items.pop(self.chat_id)))

    async def clear_session(self, *, wrapper: object = None) -> None:
        """Delete all items. The chat session stays, with its other messages, and further items can be added."""
        await self._run(lambda items: items.clear(self.chat_id))

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[TResponseInputItem], bool] | None = None
    ) -> CompactionSnapshot | None:
        """The latest items for the framework's compaction. None: an item is unreadable, or a subclass may change items."""
        if type(self) is not PersistSession:
            return None
        stored, complete = await self._run(lambda items: items.tail(self.chat_id, limit), write=False)
        if any(one.item is None for one in stored):
            return None
        is_expired = cast("Callable[[stored_items.Item], bool] | None", prune_prefix)

        async def replace_suffix(start: int, output: list[TResponseInputItem]) -> bool:
            expected = stored[start:]
            if not expected:
                return False
            return await self._write(output, lambda items, texts: items.replace_tail(self.chat_id, expected, texts, is_expired))

        return CompactionSnapshot([cast(TResponseInputItem, one.item) for one in stored], complete, replace_suffix)

    async def _atomic_replace_items(self, items: list[TResponseInputItem]) -> bool:
        """Put these items in the place of all items, for the framework's compaction. False: a subclass may change items."""
        if type(self) is not PersistSession:
            return False
        await self._write(
            items, lambda stored, texts: stored.replace_all(self.chat_id, texts, agent=self._agent, model=self._model)
        )
        return True

    async def _write(self, items: Sequence[TResponseInputItem], verb: Callable[[SessionItems, list[str]], T]) -> T:
        """Run one verb that is given the texts of items. InvalidItem for an item that cannot be stored."""
        with InvalidItem.raised():
            texts = [stored_items.as_text(index, item) for index, item in enumerate(items)]
            return await self._run(lambda stored: verb(stored, texts))

    async def _run(self, verb: Callable[[SessionItems], T], *, write: bool = True) -> T:
        if write or self._runtime.one_connection:
            self._runtime.refuse_inside_transaction("a call of PersistSession")
        return await self._bridge.call_async(lambda work: verb(SessionItems(work)), writes=write)


def _check(session_id: object, store: object, agent: object) -> None:
    if not isinstance(session_id, str) or not session_id:
        raise InvalidItem("session_id", "expected text that is not empty.")
    if not isinstance(store, Store | AsyncStore):
        raise InvalidItem("store", f"expected a Store or an AsyncStore, got {type(store).__name__}.")
    if not isinstance(agent, str):
        raise InvalidItem("agent", f"expected text, got {type(agent).__name__}.")


def _items(given: object) -> list[TResponseInputItem]:
    try:
        return check_list("items", given)
    except InvalidValue as error:
        raise InvalidItem(error.path, error.reason) from error


def _settings(given: object) -> SessionSettings:
    try:
        return coerce_session_settings({} if given is None else cast("SessionSettings | dict[str, Any]", given))
    except TypeError as error:
        raise InvalidSettings("session_settings", f"{error}.") from error
    except ValidationError as error:
        found = kind_of(error)
    raise InvalidItem("session_settings", f"they are no session settings: {found}.")
