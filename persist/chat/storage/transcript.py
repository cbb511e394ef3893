"""Reading messages as the AI SDK hydrates them: a session's rows assembled into UIMessage dicts, or directly into JSON text."""

import logging
from typing import Any, TypeVar

import orjson
from sqlalchemy import case, exists, select, type_coerce
from sqlalchemy.sql.elements import ColumnElement

from persist.chat.models import deltas, messages, part_blobs, parts, sessions
from persist.chat.reducer.parts import Part
from persist.chat.schemas import ChatMessage, Files, Role, UIMessage
from persist.chat.storage.files import STORED, StoredFile, put_back, referred
from persist.chat.storage.folding import ANY_SIZE, grown_part, joined_deltas, read_object, stored_objects, stored_part
from persist.db.changes.batch import Batch, Pending
from persist.db.expressions.json_text import NO_OBJECT, json_array_text, json_text, stored_text
from persist.db.expressions.keyset import behind
from persist.db.schema.column_types import Int64, Label, among_labels
from persist.db.statements.prepared import LIMIT, Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.values.arguments import UNBOUNDED, optional_count
from persist.db.values.frozen import construct
from persist.db.values.json import encode
from persist.errors import NotFound, StoreCorrupt, UnreadableRow

log = logging.getLogger("persist")
B = TypeVar("B")
_M, _P = messages.c, parts.c
_HEAD = (_M.id, type_coerce(_M.role, Label()), json_text(_M.metadata_json))
_BODY = (_P.message_id, _P.index, json_text(_P.data_json))
_session = param("session_id")
_SESSION = Statement(select(sessions.c.id).where(sessions.c.id == _session))
_ALL = Statement(select(*_HEAD).where(_M.session_id == _session).order_by(_M.created_at, _M.id))
_OWN_PARTS = select(_P.data_json).where(_P.message_id == _M.id).order_by(_P.index).correlate(messages)
_ALL_JOINED = Statement(
    select(*_HEAD, json_array_text(_OWN_PARTS)).where(_M.session_id == _session).order_by(_M.created_at, _M.id)
)
_ALL_PARTS = Statement(select(*_BODY).where(_P.session_id == _session))
_ONE = Statement(select(*_HEAD).where(_M.id == param("id")))
_ONE_PARTS = Statement(select(*_BODY).where(_P.message_id == param("id")))
SOME_PARTS = Statement(select(*_BODY).where(among_labels(_P.message_id, "ids")))
_ORDER = (_M.created_at, _M.id)
_named = messages.alias()
_position = select(_named.c.created_at, _named.c.id).where(_named.c.session_id == _session, _named.c.id == param("id"))
_POSITION = Statement(_position)


class _NewestFirst:
    """Statements that select the head and the instant of each message, and further columns, the newest first, up to a limit."""

    def __init__(self, *columns: ColumnElement[Any], unreadable: OnUnreadable | None = None) -> None:
        query = select(*_HEAD, _M.created_at, *columns).where(_M.session_id == _session)
        query = query.order_by(_M.created_at.desc(), _M.id.desc()).limit(LIMIT)
        self.latest = Statement(query, unreadable=unreadable)
        earlier, before = (behind(_ORDER, place, descending=True) for place in (("at", "last"), _position.scalar_subquery()))
        self.earlier = Statement(query.where(earlier), unreadable=unreadable)
        self.before = Statement(query.where(before), unreadable=unreadable)


_HEADS = _NewestFirst()
_JOINED = _NewestFirst(json_array_text(_OWN_PARTS))
_ROWS = _NewestFirst(_M.updated_at, unreadable=OnUnreadable.LEAVE_OUT)
_any = [exists(select(table.c.part_id).select_from(table)) for table in (deltas, part_blobs)]
_PROBE = Statement(select(*(type_coerce(case((one, 1), else_=0), Int64()) for one in _any)))
"""Whether any text is unfolded, and whether any file is a blob."""
_TAIL = Statement(
    select(stored_text(deltas.c.seq), stored_text(deltas.c.delta), deltas.c.part_id)
    .join(parts, _P.id == deltas.c.part_id)
    .where(_P.message_id == param("message_id"), _P.index == param("position"))
    .order_by(deltas.c.seq),
    unreadable=OnUnreadable.RAISE,
)
GROWING = ("streaming", "input-streaming")
"""The states of a part that may have unfolded text."""
_SPECIAL = (*GROWING, STORED)
"""The states of parts that are read in another way: growing ones, and those whose file is a blob."""
_GROWS = 'streaming"'
"""How the first two end in JSON text. Searching with the quote, which is rare, is three times as fast as without."""
_FILED = f'{STORED}"'
"""How the third one does."""


def read_messages(
    work: UnitOfWork,
    session_id: str,
    *,
    include_hidden: bool = False,
    limit: int | None = None,
    before: str | None = None,
    files: Files = Files.DATA,
) -> list[UIMessage]:
    """Messages, oldest first, without queued ones. `limit`: only the newest N. `before`: only those before this message id."""
    if limit is None and before is None:
        with work.batch() as batch:
            found = fetch_all(batch, session_id)
        return all_messages(work, session_id, *found, include_hidden=include_hidden, files=files)
    optional_count("limit", limit)
    heads = [row[:3] for row in _newest(work, _HEADS, session_id, include_hidden, limit, before)]
    return _messages(work, heads, work.rows(SOME_PARTS, ids=[head[0] for head in heads]), files) if heads else []


def read_rows(
    work: UnitOfWork, session_id: str, *, include_hidden: bool, limit: int | None, before: str | None
) -> list[ChatMessage]:
    """The rows of the messages of `read_messages`."""
    optional_count("limit", limit)
    found = []
    for id, role, stored, created_at, updated_at in _newest(work, _ROWS, session_id, include_hidden, limit, before):
        speaker = Role._value2member_map_.get(role)
        if speaker is None:
            log.warning("message %s is left out: it has no role that is known", id)
            continue
        fields = {"id": id, "session_id": session_id, "role": speaker, "created_at": created_at, "updated_at": updated_at}
        found.append(construct(ChatMessage, {**fields, "metadata": read_object(stored, f"the metadata of message {id}")}))
    return found


def fetch_all(batch: Batch, session_id: str) -> tuple[Pending[list[Row]], Pending[list[Row]]]:
    """Ask for all messages of a session and all parts, for `all_messages`."""
    return batch.rows(_ALL, session_id=session_id), batch.rows(_ALL_PARTS, session_id=session_id)


def all_messages(
    work: UnitOfWork,
    session_id: str,
    heads: Pending[list[Row]],
    parts: Pending[list[Row]],
    *,
    include_hidden: bool = False,
    files: Files = Files.DATA,
) -> list[UIMessage]:
    """The messages of a whole session, oldest first, without queued ones. Raises NotFound without the session."""
    if not heads.result:
        _check_session(work, session_id)
    return _messages(work, _visible(heads.result, include_hidden), parts.result, files)


def read_message(work: UnitOfWork, id: str, files: Files = Files.DATA) -> UIMessage:
    """One message, even if hidden or queued. Raises NotFound."""
    with work.batch() as batch:
        found = fetch_one(batch, id)
    return one_message(work, id, *found, files=files)


def fetch_one(batch: Batch, id: str) -> tuple[Pending[list[Row]], Pending[list[Row]]]:
    """Ask for a message and its parts, for `one_message`."""
    return batch.rows(_ONE, id=id), batch.rows(_ONE_PARTS, id=id)


def one_message(
    work: UnitOfWork, id: str, heads: Pending[list[Row]], parts: Pending[list[Row]], *, files: Files = Files.DATA
) -> UIMessage:
    """The message that was asked for. Raises NotFound."""
    if not heads.result:
        raise NotFound("message", id)
    return _messages(work, heads.result, parts.result, files)[0]


def read_json(
    work: UnitOfWork,
    session_id: str,
    *,
    include_hidden: bool = False,
    limit: int | None = None,
    before: str | None = None,
    files: Files = Files.DATA,
) -> bytes:
    """A session's messages as one JSON array, joined from stored text. Parts that still grow or have large files are parsed."""
    growing = filed = True  # of a page, a part that may be so is parsed: that is less than to ask whether there are any
    if limit is None and before is None:
        with work.batch() as batch:
            joined_rows = batch.rows(_ALL_JOINED, session_id=session_id)
            probed = batch.row(_PROBE)
        rows, (growing, filed) = _visible(joined_rows.result, include_hidden), probed.result or (False, False)
        if not rows:
            _check_session(work, session_id)
    else:
        optional_count("limit", limit)
        rows = [(*row[:3], row[4]) for row in _newest(work, _JOINED, session_id, include_hidden, limit, before)]
    needs_parsing = [
        id
        for id, _, _, body in rows
        if body and (NO_OBJECT in body or (growing and _GROWS in body) or (filed and _FILED in body))
    ]
    parsed = _parsed_parts(work, needs_parsing, files) if needs_parsing else {}
    pieces: list[str] = []
    separator = "["
    for id, role, metadata, body in rows:
        joined = parsed.get(id, body)
        metadata_field = "" if metadata == "{}" or not _looks_like_object(metadata) else f',"metadata":{metadata}'
        start = f'{separator}{{"id":{orjson.dumps(id).decode()},"role":"{role}","parts":['
        pieces += (start, joined or "", f"]{metadata_field}}}")
        separator = ","
    return "".join((*pieces, "]")).encode() if pieces else b"[]"


def _parsed_parts(work: UnitOfWork, ids: list[str], files: Files) -> dict[str, str]:
    """Each message's parts as joined JSON text, with unfolded text and files added and without values that are not objects."""
    rows = work.rows(SOME_PARTS, ids=ids)
    texts = [_grown_text(work, *row) for row in rows]
    filed: dict[int, StoredFile] = {}
    for place, ((message_id, index, _), text) in enumerate(zip(rows, texts, strict=True)):
        (data,) = stored_objects([text]) if text is not None and _FILED in text else [None]
        if data is not None and referred(data) is not None:
            filed[place] = StoredFile(message_id, index, data)
    if filed:
        put_back(work, work.runtime, list(filed.values()), files)
    for place, file in filed.items():
        texts[place] = encode(file.data, limits=ANY_SIZE)
    found = by_message(rows, texts)
    return {id: ",".join(found.get(id, [])) for id in ids}


def _newest(
    work: UnitOfWork, read: _NewestFirst, session_id: str, include_hidden: bool, limit: int | None, before: str | None
) -> list[Row]:
    """The newest visible messages, oldest first, read in growing windows: databases estimate filters on metadata badly."""
    visible: list[Row] = []
    window = UNBOUNDED if limit is None else min(limit, UNBOUNDED)
    if before is None:
        rows = work.rows(read.latest, session_id=session_id, limit=window)
        if not rows:
            _check_session(work, session_id)
    else:
        rows = work.rows(read.before, session_id=session_id, limit=window, id=before)
        if not rows and work.row(_POSITION, session_id=session_id, id=before) is None:
            _check_session(work, session_id)
            raise NotFound("message", before)
    while True:
        visible += _visible(rows, include_hidden)
        if len(rows) < window or limit is None or len(visible) >= limit:
            return visible[:limit][::-1]
        at, last, window = rows[-1][3], rows[-1][0], min(2 * window, UNBOUNDED)
        rows = work.rows(read.earlier, session_id=session_id, limit=window, at=at, last=last)


def _messages(work: UnitOfWork, heads: list[Row], rows: list[Row], files: Files) -> list[UIMessage]:
    filed: list[StoredFile] = []
    parts = [
        data if data is not None and data.get("state") not in _SPECIAL else _special(work, data, filed, *row)
        for data, row in zip(stored_objects([text for *_, text in rows]), rows, strict=True)
    ]
    if filed:
        put_back(work, work.runtime, filed, files)
    parts_of = by_message(rows, parts)
    found = []
    for (id, role, stored), metadata in zip(heads, stored_objects([text for *_, text in heads]), strict=True):
        message: UIMessage = {"id": id, "role": role, "parts": parts_of.get(id, [])}
        if metadata is None:
            metadata = read_object(stored, f"the metadata of message {id}")
        if metadata:
            message["metadata"] = metadata
        found.append(message)
    return found


def _check_session(work: UnitOfWork, session_id: str) -> None:
    if work.row(_SESSION, session_id=session_id) is None:
        raise NotFound("session", session_id)


def _visible(heads: list[Row], include_hidden: bool) -> list[Row]:
    return [head for head in heads if '_at"' not in head[2] or _is_visible(head, include_hidden)]


def _is_visible(head: Row, include_hidden: bool) -> bool:
    """The conditions QUEUED and VISIBLE in Python: in SQL, on every message, they would cost as much as fetching the rows."""
    metadata = read_object(head[2], f"the metadata of message {head[0]}")
    return metadata.get("queued_at") is None and (include_hidden or metadata.get("hidden_at") is None)


def by_message(rows: list[Row], bodies: list[B | None]) -> dict[str, list[B]]:
    """The bodies of rows of (message id, index, …) by message id, in the order of their indexes; a body of None is left out."""
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
    found = {}  # a part is missing, or the rows came in another order
    try:
        ordered = sorted(zip(rows, bodies, strict=True), key=lambda pair: pair[0][1])
    except TypeError:
        raise StoreCorrupt("chat", "an index of a part is stored that is no number.") from None
    for (message_id, _, _), body in ordered:
        if body is not None:
            found.setdefault(message_id, []).append(body)
    return found


def _looks_like_object(text: str) -> bool:
    """Whether text begins and ends like a JSON object. A closer check would be the parsing that joining avoids."""
    return text[:1] == "{" and text[-1:] == "}"


def _grown_text(work: UnitOfWork, message_id: str, index: int, text: str) -> str | None:
    if not _looks_like_object(text):
        _log_left_out(message_id, index)
        return None
    grown = _with_deltas(work, None, message_id, index, text) if _GROWS in text else None
    return text if grown is None else encode(grown)


def _special(work: UnitOfWork, data: Part | None, filed: list[StoredFile], message_id: str, index: int, text: str) -> Part | None:
    if data is None:
        _log_left_out(message_id, index)
        return None
    if data.get("state") == STORED:
        filed.append(StoredFile(message_id, index, data))
        return data
    grown = _with_deltas(work, data, message_id, index, text)
    return data if grown is None else grown


def _log_left_out(message_id: str, index: int) -> None:
    log.warning("part %s of message %s holds text that is not a JSON object; it is left out", index, message_id)


def _with_deltas(work: UnitOfWork, data: Part | None, message_id: str, index: int, text: str) -> Part | None:
    """The part with its unfolded text added; None if there is none, or if it cannot be read."""
    rows = work.rows(_TAIL, message_id=message_id, position=index)
    if not rows:
        return None
    part_id = rows[0][2]
    try:
        tail, _ = joined_deltas(part_id, [(seq, piece) for seq, piece, _ in rows])
        return grown_part(part_id, stored_part(part_id, text) if data is None else data, tail)
    except UnreadableRow as error:
        log.warning("part %s of message %s is shown without its latest text: %s", index, message_id, error)
        return None
