"""The messages that a search is about, read in chunks: memory does not grow with their number."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Integer, bindparam, func, select
from sqlalchemy.sql.elements import ColumnElement

from persist.conversations.branch_rows import get_branch
from persist.conversations.lineage import ITEMS, NO_END
from persist.conversations.message_rows import CHUNK
from persist.conversations.models import members, messages
from persist.conversations.session_rows import get_session
from persist.conversations.similarity import Item
from persist.db.hot import Hot, Row, param
from persist.db.streaming import chunks
from persist.db.work import Work

_M = messages.c
_CHUNK_BYTES = 2**20
_OF_SIZE = func.length(_M.embedding) == bindparam("size", type_=Integer())
_IN_POOL = _M.id.in_(select(members.c.message_id).where(members.c.progression_id == param("pool")))
_IN_HISTORY = _M.id.in_(select(members.c.message_id).select_from(ITEMS))


@cache
def scoped(column: ColumnElement[Any], in_pool: bool, in_history: bool) -> Hot:
    """The ids, and this column, of the messages whose embedding has `size` bytes."""
    query = select(_M.id, column).where(_OF_SIZE)
    query = query.where(_IN_POOL) if in_pool else query
    return Hot(query.where(_IN_HISTORY) if in_history else query)


class Scope:
    """Every message, or those of a session's pool, of a branch's effective history, or of both. NotFound."""

    def __init__(self, work: Work, *, session_id: str | None, branch_id: str | None) -> None:
        self._work = work
        self._filters = session_id is not None, branch_id is not None
        self._values: dict[str, Any] = {}
        if session_id is not None:
            self._values["pool"] = get_session(work, work.label("session_id", session_id)).progression_id
        if branch_id is not None:
            self._values |= {"row_id": get_branch(work, work.label("branch_id", branch_id)).id, "first": 0, "end": NO_END}

    def embeddings(self, size: int) -> Iterator[Sequence[Row]]:
        """The ids of the messages whose embedding has `size` bytes, and these bytes; a chunk at a time."""
        hot = scoped(_M.embedding, *self._filters)
        return chunks(self._work, hot, max(1, _CHUNK_BYTES // size), size=size, **self._values)

    def measured(self, size: int, measure: ColumnElement[Any], **values: Any) -> Iterator[Sequence[Row]]:
        """Of the same messages the ids, and what the database says of each."""
        return chunks(self._work, scoped(measure, *self._filters), CHUNK, size=size, **self._values, **values)

    def embeddings_of(self, ids: Sequence[str]) -> Iterator[Item]:
        """The embeddings of these messages; one that is gone is left out."""
        for start in range(0, len(ids), CHUNK):
            query = select(_M.id, _M.embedding).where(_M.id.in_(ids[start : start + CHUNK]), _M.embedding.is_not(None))
            rows: list[Any] = self._work.found(query)
            yield from rows
