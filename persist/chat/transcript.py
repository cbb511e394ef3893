"""Reading messages as the AI SDK hydrates them: rows of a session spliced into UIMessage dicts, or straight to JSON."""

import logging
from collections.abc import Iterable
from typing import Any

import orjson
from sqlalchemy import Text, cast, select, tuple_, type_coerce

from persist.chat.models import QUEUED, VISIBLE, deltas, messages, parts, sessions
from persist.chat.parts import grow
from persist.chat.schemas import UIMessage
from persist.chat.stored import stored_object
from persist.db.hot import Hot, Row, param
from persist.db.json import decode, encode
from persist.db.types import Label
from persist.db.work import Work
from persist.errors import InvalidValue, NotFound

log = logging.getLogger("persist")

_M, _P = messages.c, parts.c
_HEAD = (_M.id, type_coerce(_M.role, Label()), cast(_M.metadata_json, Text))
_BODY = (_P.message_id, _P.index, _P.id, cast(_P.data_json, Text))
_session = param("session_id")

_SESSION = Hot(select(sessions.c.id).where(sessions.c.id == _session))
_ALL = Hot(select(*_HEAD).where(_M.session_id == _session, ~QUEUED).order_by(_M.created_at, _M.id))
_SHOWN = Hot(select(*_HEAD).where(_M.session_id == _session, VISIBLE).order_by(_M.created_at, _M.id))
_ALL_PARTS = Hot(select(*_BODY).where(_P.session_id == _session))
_ONE = Hot(select(*_HEAD).where(_M.id == param("id")))
_ONE_PARTS = Hot(select(*_BODY).where(_P.message_id == param("id")))
_PLACE = Hot(select(_M.created_at, _M.id).where(_M.session_id == _session, _M.id == param("id")))
_TAIL = Hot(select(deltas.c.delta).where(deltas.c.part_id == param("part_id")).order_by(deltas.c.seq))


def read_messages(
    work: Work, session_id: str, *, include_hidden: bool = False, limit: int | None = None, before: str | None = None
) -> list[UIMessage]:
    """Oldest first; queued messages never; `limit` is the newest N, `before` a message id."""
    _require(work, session_id)
    heads, bodies = _fetch(work, session_id, include_hidden, limit, before)
    by_message = _parts_by_message(work, bodies)
    return [_message(work, head, by_message.get(head[0], [])) for head in heads]


def read_json(work: Work, session_id: str, *, include_hidden: bool = False) -> bytes:
    """The same as one JSON array, spliced from the stored text: only a growing part is parsed."""
    _require(work, session_id)
    heads, bodies = _fetch(work, session_id, include_hidden, None, None)
    wire = work.runtime.dialect.wire
    by_message: dict[str, list[tuple[int, str]]] = {}
    for message_id, index, part_id, stored in bodies:
        text = wire(stored)
        if not _looks_whole(text):
            log.warning("part %s holds text that is not a JSON object; it is left out", part_id)
            continue
        if "streaming" in text:
            tail = tail_of(work, part_id)
            if tail:
                text = encode(grow(decode(text), tail))
        by_message.setdefault(message_id, []).append((index, text))
    pieces = []
    for id, role, stored in heads:
        metadata = wire(stored)
        shown = "" if metadata == "{}" or not _looks_whole(metadata) else f',"metadata":{metadata}'
        body = ",".join([text for _, text in sorted(by_message.get(id, ()))])
        pieces.append(f'{{"id":{encode(id)},"role":"{role}","parts":[{body}]{shown}}}')
    return f"[{','.join(pieces)}]".encode()


def _looks_whole(text: str) -> bool:
    """Cut off or foreign text shows at its ends; looking closer would be the parse that splicing avoids."""
    return text[:1] == "{" and text[-1:] == "}"


def read_message(work: Work, id: str) -> UIMessage:
    """One message, hidden or queued as it may be."""
    head = work.row(_ONE, id=id)
    if head is None:
        raise NotFound("message", id)
    return _message(work, head, _parts_by_message(work, work.rows(_ONE_PARTS, id=id)).get(id, []))


def tail_of(work: Work, part_id: str) -> str:
    """The text fed to a part and not yet folded into it."""
    return "".join([delta for (delta,) in work.rows(_TAIL, part_id=part_id)])


def _require(work: Work, session_id: str) -> None:
    if work.row(_SESSION, session_id=session_id) is None:
        raise NotFound("session", session_id)


def _fetch(
    work: Work, session_id: str, include_hidden: bool, limit: int | None, before: str | None
) -> tuple[list[Row], Iterable[Row]]:
    if limit is None and before is None:
        heads = work.rows(_ALL if include_hidden else _SHOWN, session_id=session_id)
        return heads, work.rows(_ALL_PARTS, session_id=session_id)
    if limit is not None and (type(limit) is not int or limit < 0):
        raise InvalidValue("limit", "expected a whole number, 0 or more.")
    query = select(*_HEAD, _M.created_at).where(_M.session_id == session_id, ~QUEUED if include_hidden else VISIBLE)
    if before is not None:
        place = work.row(_PLACE, session_id=session_id, id=before)
        if place is None:
            raise NotFound("message", before)
        query = query.where(tuple_(_M.created_at, _M.id) < place)
    query = query.order_by(_M.created_at.desc(), _M.id.desc()).limit(limit)
    heads = [tuple(row)[:3] for row in work.select(query)][::-1]
    wanted = [head[0] for head in heads]
    if not wanted:
        return heads, []
    return heads, [tuple(row) for row in work.select(select(*_BODY).where(_P.message_id.in_(wanted)))]


def _parts_by_message(work: Work, rows: Iterable[Row]) -> dict[str, list[tuple[int, dict[str, Any]]]]:
    rows = list(rows)
    found: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for (message_id, index, part_id, _), data in zip(rows, _decode_all(work, rows), strict=True):
        if data is None:
            log.warning("part %s holds text that is not a JSON object; it is left out", part_id)
            continue
        if data.get("state") in ("streaming", "input-streaming"):
            tail = tail_of(work, part_id)
            if tail:
                data = grow(data, tail)
        found.setdefault(message_id, []).append((index, data))
    return found


def _decode_all(work: Work, rows: list[Row]) -> list[dict[str, Any] | None]:
    """One parse for all of them: a call per part would cost as much as the parsing."""
    wire = work.runtime.dialect.wire
    try:
        values = orjson.loads(wire("[" + ",".join([row[3] for row in rows]) + "]"))
        if len(values) == len(rows):
            return [value if type(value) is dict else None for value in values]
    except orjson.JSONDecodeError:
        pass
    return [_decode_one(wire(row[3])) for row in rows]


def _decode_one(text: str) -> dict[str, Any] | None:
    try:
        value = decode(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _message(work: Work, head: Row, numbered: list[tuple[int, dict[str, Any]]]) -> UIMessage:
    id, role, stored = head
    if len(numbered) > 1:
        numbered.sort(key=_by_index)
    message: UIMessage = {"id": id, "role": role, "parts": [data for _, data in numbered]}
    if stored != "{}":
        metadata = stored_object(work, stored, f"the metadata of message {id}")
        if metadata:
            message["metadata"] = metadata
    return message


def _by_index(numbered: tuple[int, Any]) -> int:
    return numbered[0]
