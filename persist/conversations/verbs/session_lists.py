"""Lists of sessions, with one prepared statement per combination of filters; and the UPDATE of a session's columns."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any

from sqlalchemy import select, type_coerce, update

from persist.conversations.models import sessions
from persist.conversations.schemas import ConvSession, InvocationKind, SourceKind, Status
from persist.conversations.storage.session_rows import SESSION
from persist.db.changes.batch import Batch
from persist.db.expressions.keyset import behind
from persist.db.schema.column_types import Float64
from persist.db.statements.prepared import LIMIT, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_choice
from persist.db.values.clock import as_utc, epoch_us
from persist.db.values.pages import Page, check_limit, decode_cursor

_LIST = "conversations.sessions"
_S = sessions.c
_exactly = type_coerce(_S.updated_at, Float64())  # a cursor holds the stored float, which a datetime would round
_WORDS: dict[str, type[StrEnum]] = {"status": Status, "invocation_kind": InvocationKind, "source_kind": SourceKind}


@cache
def _page(names: tuple[str, ...], *, since: bool, after: bool) -> Statement:
    query = select(*SESSION.columns, _exactly).order_by(_S.updated_at.desc(), _S.id.desc()).limit(LIMIT)
    for name in names:
        query = query.where(_S[name] == param(name))
    if since:
        query = query.where(_S.updated_at >= param("since"))
    if after:
        query = query.where(behind((_exactly, _S.id), ("after_at", "after_id"), descending=True))
    return Statement(query)


def page(
    work: UnitOfWork, given: Mapping[str, str | None], *, since: datetime | None, limit: int, after: str | None
) -> Page[ConvSession]:
    """One page of sessions, the latest update first."""
    limit = check_limit(limit)
    filters = {name: _checked(work, name, value) for name, value in given.items() if value is not None}
    names = tuple(filters)
    values: dict[str, Any] = dict(filters)
    remembered: dict[str, Any] = dict(filters)
    if since is not None:
        values["since"] = as_utc("since", since)
        remembered["since"] = epoch_us(values["since"])
    if after is not None:
        at, last = decode_cursor(work.label("after", after), _LIST, remembered, (float, str))
        values |= {"after_at": at, "after_id": last}
    statement = _page(names, since=since is not None, after=after is not None)
    rows = work.rows(statement, limit=limit + 1, **values)
    return Page.of(
        rows, limit, lambda row: SESSION(row[:-1]), name=_LIST, filters=remembered, key=lambda row, item: [row[-1], item.id]
    )


def _checked(work: UnitOfWork, name: str, value: str) -> str:
    return check_choice(name, value, _WORDS[name]) if name in _WORDS else work.label(name, value)


def change(batch: Batch, id: str, changes: Mapping[str, Any]) -> None:
    """Update these columns of the session with a batch."""
    batch.run(_change(tuple(changes)), row_id=id, **{f"set_{name}": value for name, value in changes.items()})


@cache
def _change(names: tuple[str, ...]) -> Statement:
    return Statement(update(sessions).where(_S.id == param("row_id")).values({name: param(f"set_{name}") for name in names}))
