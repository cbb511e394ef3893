"""Reading messages as the AI SDK hydrates them: rows of a session spliced into UIMessage dicts, or straight to JSON."""

import logging
from typing import TypeVar

import orjson
from sqlalchemy import bindparam, select, tuple_, type_coerce

from persist.chat.leftovers import ANY_PIECES
from persist.chat.models import deltas, messages, parts, sessions
from persist.chat.parts import Part
from persist.chat.schemas import UIMessage
from persist.chat.stored import grown_part, read_object, stored_objects, stored_part, stored_tail
from persist.db.arrays import among_labels
from persist.db.checks import optional_count
from persist.db.hot import LIMIT, Hot, Row, param
from persist.db.json import encode
from persist.db.spoilt import Spoilt
from persist.db.types import Label
from persist.db.wire import NO_OBJECT, joined_objects, stored_text, wire_text
from persist.db.work import Work
from persist.errors import NotFound, StoreCorrupt, UnreadableRow

log = logging.getLogger("persist")

B = TypeVar("B")
_M, _P = messages.c, parts.c
_HEAD = (_M.id, type_coerce(_M.role, Label()), wire_text(_M.metadata_json))
_BODY = (_P.message_id, _P.index, wire_text(_P.data_json))
_session = param("session_id")

_SESSION = Hot(select(sessions.c.id).where(sessions.c.id == _session))
_ALL = Hot(select(*_HEAD).where(_M.session_id == _session).order_by(_M.created_at, _M.id))
_OWN_PARTS = select(_P.data_json).where(_P.message_id == _M.id).order_by(_P.index).correlate(messages)
_ALL_JOINED = Hot(select(*_HEAD, joined_objects(_OWN_PARTS)).where(_M.session_id == _session).order_by(_M.created_at, _M.id))
_ALL_PARTS = Hot(select(*_BODY).where(_P.session_id == _session))
_ONE = Hot(select(*_HEAD).where(_M.id == param("id")))
_ONE_PARTS = Hot(select(*_BODY).where(_P.message_id == param("id")))
_SOME_PARTS = Hot(select(*_BODY).where(among_labels(_P.message_id, "ids")))
_newest_first = select(*_HEAD, _M.created_at).where(_M.session_id == _session).order_by(_M.created_at.desc(), _M.id.desc())
_last = tuple_(bindparam("at", type_=_M.created_at.type), bindparam("last", type_=_M.id.type))
_LATEST = Hot(_newest_first.limit(LIMIT))
_EARLIER = Hot(_newest_first.where(tuple_(_M.created_at, _M.id) < _last).limit(LIMIT))
_MOST = 2**62
_PLACE = Hot(select(_M.created_at, _M.id).where(_M.session_id == _session, _M.id == param("id")))
_TAIL = Hot(
    select(stored_text(deltas.c.seq), stored_text(deltas.c.delta), deltas.c.part_id)
    .join(parts, _P.id == deltas.c.part_id)
    .where(_P.message_id == param("message_id"), _P.index == param("place"))
    .order_by(deltas.c.seq),
    spoilt=Spoilt.RAISE,
)

_GROWING = ("streaming", "input-streaming")
"""The states of a part that may have a tail."""
_GROWS = 'streaming"'
"""How they end in JSON text. With the quote, which is rare, the search is three times as fast as without."""


def read_messages(
    work: Work, session_id: str, *, include_hidden: bool = False, limit: int | None = None, before: str | None = None
) -> list[UIMessage]:
    """Oldest first; queued messages never; `limit` is the newest N, `before` a message id."""
    return _messages(work, *_fetch(work, session_id, include_hidden, limit, before))


def read_message(work: Work, id: str) -> UIMessage:
    """One message, hidden or queued as it may be."""
    heads = work.rows(_ONE, id=id)
    if not heads:
        raise NotFound("message", id)
    return _messages(work, heads, work.rows(_ONE_PARTS, id=id))[0]


def read_json(work: Work, session_id: str, *, include_hidden: bool = False) -> bytes:
    """The same as one JSON array, spliced from the stored text: only a growing part is parsed."""
    rows = _shown(work.rows(_ALL_JOINED, session_id=session_id), include_hidden)
    if not rows:
        _check_session(work, session_id)
    growing = work.row(ANY_PIECES) is not None
    closer = [id for id, _, _, body in rows if body and (NO_OBJECT in body or (growing and _GROWS in body))]
    looked_at = _looked_at(work, session_id) if closer else None
    pieces: list[str] = []
    between = "["
    for id, role, metadata, body in rows:
        joined = body if looked_at is None else looked_at.get(id)
        shown = "" if metadata == "{}" or not _looks_whole(metadata) else f',"metadata":{metadata}'
        start = f'{between}{{"id":{orjson.dumps(id).decode()},"role":"{role}","parts":['
        pieces += (start, joined or "", f"]{shown}}}")
        between = ","
    return "".join((*pieces, "]")).encode() if pieces else b"[]"


def _looked_at(work: Work, session_id: str) -> dict[str, str]:
    """The parts of each message, joined: grown by their tails, and without those that are no objects."""
    rows = work.rows(_ALL_PARTS, session_id=session_id)
    by_message = _by_message(rows, [_grown_text(work, *row) for row in rows])
    return {id: ",".join(texts) for id, texts in by_message.items()}


def _fetch(
    work: Work, session_id: str, include_hidden: bool, limit: int | None, before: str | None
) -> tuple[list[Row], list[Row]]:
    """Rows of _HEAD in order, and rows of _BODY in any."""
    if limit is None and before is None:
        heads = work.rows(_ALL, session_id=session_id)
        if heads:
            return _shown(heads, include_hidden), work.rows(_ALL_PARTS, session_id=session_id)
    optional_count("limit", limit)
    heads = [] if limit is None and before is None else _newest(work, session_id, include_hidden, limit, before)
    if not heads:
        _check_session(work, session_id)
        return [], []
    return heads, work.rows(_SOME_PARTS, ids=[head[0] for head in heads])


def _newest(work: Work, session_id: str, include_hidden: bool, limit: int | None, before: str | None) -> list[Row]:
    """Read along the index until there are enough: what a message's metadata holds no database estimates well."""
    place: Row | None = None
    if before is not None and (place := work.row(_PLACE, session_id=session_id, id=before)) is None:
        _check_session(work, session_id)
        raise NotFound("message", before)
    shown: list[Row] = []
    window = _MOST if limit is None else min(limit, _MOST)
    while True:
        if place is None:
            rows = work.rows(_LATEST, session_id=session_id, limit=window)
        else:
            rows = work.rows(_EARLIER, session_id=session_id, limit=window, at=place[0], last=place[1])
        shown += _shown([row[:3] for row in rows], include_hidden)
        if len(rows) < window or limit is None or len(shown) >= limit:
            return shown[:limit][::-1]
        place, window = (rows[-1][3], rows[-1][0]), min(2 * window, _MOST)


def _messages(work: Work, heads: list[Row], rows: list[Row]) -> list[UIMessage]:
    parts = [
        data if data is not None and data.get("state") not in _GROWING else _grown(work, data, *row)
        for data, row in zip(stored_objects([text for *_, text in rows]), rows, strict=True)
    ]
    by_message = _by_message(rows, parts)
    found = []
    for (id, role, stored), metadata in zip(heads, stored_objects([text for *_, text in heads]), strict=True):
        message: UIMessage = {"id": id, "role": role, "parts": by_message.get(id, [])}
        if metadata is None:
            metadata = read_object(stored, f"the metadata of message {id}")
        if metadata:
            message["metadata"] = metadata
        found.append(message)
    return found


def _check_session(work: Work, session_id: str) -> None:
    if work.row(_SESSION, session_id=session_id) is None:
        raise NotFound("session", session_id)


def _shown(heads: list[Row], include_hidden: bool) -> list[Row]:
    return [head for head in heads if '_at"' not in head[2] or _is_shown(head, include_hidden)]


def _is_shown(head: Row, include_hidden: bool) -> bool:
    """As QUEUED and VISIBLE say, which for every message of a session cost as much as fetching it."""
    metadata = read_object(head[2], f"the metadata of message {head[0]}")
    return metadata.get("queued_at") is None and (include_hidden or metadata.get("hidden_at") is None)


def _by_message(rows: list[Row], bodies: list[B | None]) -> dict[str, list[B]]:
    """What became of the rows, by message and in the order of their indexes; None is left out."""
    found: dict[str, list[B]] = {}
    for (message_id, index, _), body in zip(rows, bodies, strict=True):
        numbered = found.get(message_id)
        if numbered is None:
            numbered = found[message_id] = []
        if body is None or index != len(numbered):
            break
        numbered.append(body)
    else:
        return found
    found = {}  # one is missing, or the database gave them in another order
    try:
        ordered = sorted(zip(rows, bodies, strict=True), key=lambda pair: pair[0][1])
    except TypeError:
        raise StoreCorrupt("chat", "an index of a part is stored that is no number.") from None
    for (message_id, _, _), body in ordered:
        if body is not None:
            found.setdefault(message_id, []).append(body)
    return found


def _looks_whole(text: str) -> bool:
    """Cut off or foreign text shows at its ends; looking closer would be the parse that splicing avoids."""
    return text[:1] == "{" and text[-1:] == "}"


def _grown_text(work: Work, message_id: str, index: int, text: str) -> str | None:
    if not _looks_whole(text):
        _leave_out(message_id, index)
        return None
    grown = _with_tail(work, None, message_id, index, text) if _GROWS in text else None
    return text if grown is None else encode(grown)


def _grown(work: Work, data: Part | None, message_id: str, index: int, text: str) -> Part | None:
    if data is None:
        _leave_out(message_id, index)
        return None
    grown = _with_tail(work, data, message_id, index, text)
    return data if grown is None else grown


def _leave_out(message_id: str, index: int) -> None:
    log.warning("part %s of message %s holds text that is not a JSON object; it is left out", index, message_id)


def _with_tail(work: Work, data: Part | None, message_id: str, index: int, text: str) -> Part | None:
    """The part with what was fed to it and is not yet folded into it; None where there is nothing, or nothing to read."""
    rows = work.rows(_TAIL, message_id=message_id, place=index)
    if not rows:
        return None
    part_id = rows[0][2]
    try:
        tail, _ = stored_tail(part_id, [(seq, piece) for seq, piece, _ in rows])
        return grown_part(part_id, stored_part(part_id, text) if data is None else data, tail)
    except UnreadableRow as error:
        log.warning("part %s of message %s is shown without its latest text: %s", index, message_id, error)
        return None
