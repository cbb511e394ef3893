"""The messages that a search covers, read in chunks: memory does not grow with their number."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Integer, bindparam, func, select
from sqlalchemy.sql.elements import ColumnElement

from persist.conversations.models import members, messages
from persist.conversations.storage.branch_rows import get_branch
from persist.conversations.storage.lineage import ITEMS
from persist.conversations.storage.message_rows import CHUNK
from persist.conversations.storage.session_rows import get_session
from persist.conversations.vector_search.similarity import Item
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.row_chunks import chunks
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import need
from persist.db.values.counts import UNBOUNDED

_M = messages.c
_CHUNK_BYTES = 2**20
_OF_SIZE = func.length(_M.embedding) == bindparam("size", type_=Integer())
_IN_POOL = _M.id.in_(select(members.c.message_id).where(members.c.progression_id == param("pool")))
_IN_HISTORY = _M.id.in_(select(members.c.message_id).select_from(ITEMS))


@cache
def scoped(column: ColumnElement[Any], in_pool: bool, in_history: bool) -> Statement:
    """The ids, and this column, of the messages whose embedding has `size` bytes."""
    query = select(_M.id, column).where(_OF_SIZE)
    query = query.where(_IN_POOL) if in_pool else query
    return Statement(query.where(_IN_HISTORY) if in_history else query)


class Scope:
    """Every message, or those in a session's pool, in a branch's effective history, or in both. Raises NotFound."""

    def __init__(self, work: UnitOfWork, *, session_id: str | None, branch_id: str | None) -> None:
        self._work = work
        self._filters = session_id is not None, branch_id is not None
        self._values: dict[str, Any] = {}
        if session_id is not None:
            self._values["pool"] = get_session(work, work.label("session_id", session_id)).progression_id
        if branch_id is not None:
            branch = get_branch(work, work.label("branch_id", branch_id))
            need(branch.progression_id, branch.parent_branch_id, branch.forked_at_ord)
            self._values |= {"row_id": branch.id, "first": 0, "end": UNBOUNDED}

    def embeddings(self, size: int) -> Iterator[Sequence[Row]]:
        """Yield chunks of (message id, embedding) for embeddings of `size` bytes."""
        prepared = scoped(_M.embedding, *self._filters)
        return chunks(self._work, prepared, max(1, _CHUNK_BYTES // size), size=size, **self._values)

    def measured(self, size: int, measure: ColumnElement[Any], **values: Any) -> Iterator[Sequence[Row]]:
        """Yield chunks of (message id, value of the expression `measure`) for embeddings of `size` bytes."""
        return chunks(self._work, scoped(measure, *self._filters), CHUNK, size=size, **self._values, **values)

    def embeddings_of(self, ids: Sequence[str]) -> Iterator[Item]:
        """The embeddings of these messages; deleted messages are left out."""
        for start in range(0, len(ids), CHUNK):
            query = select(_M.id, _M.embedding).where(_M.id.in_(ids[start : start + CHUNK]), _M.embedding.is_not(None))
            rows: list[Any] = self._work.found(query)
            yield from rows
