"""Windows: tables that keep the newest rows of each instance, those written last, and are trimmed on every Nth insert.

`window_marks` counts the inserts of each instance; on Postgres its row is also the lock of the window.
"""

from datetime import datetime, timedelta
from functools import cache
from typing import Any, Protocol, TypeVar

from sqlalchemy import BigInteger, ColumnElement, Table, Text, and_, bindparam, delete, func, literal, select

from persist.db.changes.batch import Batch, Pending
from persist.db.expressions.keyset import behind
from persist.db.expressions.upsert import insert_missing, merge
from persist.db.statements.prepared import LIMIT, Row, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.own_scope import resolve_scope
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.values.clock import as_utc, instant_after
from persist.errors import InvalidValue, shown
from persist.settings import Settings
from persist.telemetry.models import status_log, tool_history, usage_samples, window_marks
from persist.telemetry.schemas import UsageSample

_SECOND = timedelta(seconds=1)


def second(path: str, value: object) -> datetime:
    """An instant in UTC, rounded down to its second. Raises InvalidValue if it is not a datetime with a zone."""
    return as_utc(path, value).replace(microsecond=0)


def second_or_now(work: UnitOfWork, path: str, value: datetime | None) -> datetime:
    """`value` rounded down to its second, or now if it is None."""
    return second(path, work.now() if value is None else value)


def next_second(path: str, value: object) -> datetime:
    """An instant rounded up to its second: the equivalent bound for instants stored in whole seconds."""
    at = as_utc(path, value)
    return at if not at.microsecond else instant_after(path, at.replace(microsecond=0), _SECOND)


_U, _H = usage_samples.c, tool_history.c
_SAMPLE = Values(UsageSample, usage_samples)
_INSTANCES = [
    Statement(select(column).distinct().order_by(column), unreadable=OnUnreadable.LEAVE_OUT)
    for column in (_U.instance_id, _H.instance_id)
]


@cache
def _page(after: bool) -> Statement:
    query = select(*_SAMPLE.columns).where(_U.instance_id == param("owner"))
    if after:
        query = query.where(_U.occurred_at > param("after"))
    return Statement(query.order_by(_U.occurred_at).limit(LIMIT), unreadable=OnUnreadable.LEAVE_OUT)


def instances(work: UnitOfWork) -> list[str]:
    """The ids of the instances that have usage or tool calls, in order."""
    return sorted({str(row[0]) for statement in _INSTANCES for row in work.rows(statement)})


def samples(work: UnitOfWork, instance_id: str, *, after: datetime | None, limit: int) -> list[UsageSample]:
    """The next samples of an instance after that second, oldest first."""
    values: dict[str, Any] = {} if after is None else {"after": after}
    rows = work.rows(_page(after is not None), owner=instance_id, limit=limit, **values)
    return [_SAMPLE(row) for row in rows]


_INSTANCES_PER_BATCH = 100
_W = window_marks.c
# These values were checked before or are persist's own: as plain Text they skip the checks of the Label type on every insert.
_TEXT = Text()
_COUNT = Statement(
    merge(window_marks, "instance_id", "window", inserted="sum")
    .values(instance_id=bindparam("owner", type_=_TEXT), window=bindparam("name", type_=_TEXT), inserted=1)
    .returning(_W.inserted)
)
_INSERT_MARK = Statement(insert_missing(window_marks, "instance_id", "window"))
_LOCK = Statement(
    select(_W.inserted)
    .where(_W.instance_id == bindparam("owner", type_=_TEXT), _W.window == bindparam("name", type_=_TEXT))
    .with_for_update()
)
_is_nth = select(_W.inserted % bindparam("every", type_=_W.inserted.type) == 0).where(
    _W.instance_id == bindparam("owner", type_=_TEXT), _W.window == bindparam("name", type_=_TEXT)
)


def number_of(counted: Pending[Row | None]) -> int:
    """How many rows were inserted into the window, with the one that `Window.count` has counted."""
    assert counted.result is not None
    return int(counted.result[0])


class Window:
    """The window of one table. `place`: the columns that order an instance's rows as they were written."""

    def __init__(self, table: Table, *order_columns: str) -> None:
        self.name = str(table.name)  # plain: the driver converts subclasses of text, such as SQLAlchemy's, at each execution
        columns, owner = [table.c[name] for name in order_columns], table.c.instance_id
        kept = table.alias("kept")
        newest_first = [kept.c[name].desc() for name in order_columns]
        edge = select(*(kept.c[name] for name in order_columns)).where(kept.c.instance_id == param("owner"))
        edge = edge.order_by(*newest_first).limit(1).offset(bindparam("keep", type_=BigInteger()))
        cut = delete(table).where(
            owner == param("owner"), behind(columns, edge.scalar_subquery(), descending=True, inclusive=True)
        )
        too_many = func.count() > bindparam("keep", type_=BigInteger())
        self._full = Statement(select(owner).group_by(owner).having(too_many).order_by(owner).limit(_INSTANCES_PER_BATCH))
        self._cut = Statement(cut)
        self._cut_if_due = Statement(cut.where(_is_nth.scalar_subquery()))

    def is_mark_of(self, owner: str) -> ColumnElement[bool]:
        """The condition of the row of `window_marks` that counts the inserts of the instance in the parameter `owner`."""
        return and_(_W.instance_id == bindparam(owner, type_=_TEXT), _W.window == literal(self.name, _TEXT))

    def count(self, batch: Batch, owner: str) -> Pending[Row | None]:
        """Count an insert of the instance; the number of inserts so far, which `number_of` reads."""
        return batch.returned(_COUNT, owner=owner, name=self.name)

    def count_if(self, batch: Batch, owner: str, statement: Statement, **values: Any) -> Pending[Row | None]:
        """Count an insert of the instance by a statement with a condition; no row where the condition does not hold."""
        return batch.returned(statement, owner=owner, name=self.name, **values)

    def lock(self, work: UnitOfWork, owner: str) -> None:
        """Lock the instance's window against others who count or trim; on SQLite only for an event of the counter's row."""
        if work.runtime.dialect.one_writer and work.journal is None:
            return
        if work.row(_LOCK, owner=owner, name=self.name) is None:
            work.run(_INSERT_MARK, instance_id=owner, window=self.name, inserted=0)
            work.row(_LOCK, owner=owner, name=self.name)

    def lock_with(self, batch: Batch, owner: str) -> None:
        """Lock the instance's window as `lock` does, in a batch."""
        batch.run(_INSERT_MARK, instance_id=owner, window=self.name, inserted=0)
        batch.lock(_LOCK, owner=owner, name=self.name)

    def trim_with(self, work: UnitOfWork, batch: Batch, owner: str, counted: Pending[Row | None]) -> Pending[int] | None:
        """Trim the window in the batch if the insert that it counted is an Nth one; the number deleted, None if it is none."""
        keep, every = sizes(work.runtime.settings, self.name)
        if not work.runtime.dialect.one_writer:
            return batch.run(self._cut_if_due, owner=owner, keep=keep, name=self.name, every=every)
        return batch.run(self._cut, owner=owner, keep=keep) if number_of(counted) % every == 0 else None

    def trim_if_due(self, work: UnitOfWork, owner: str, inserted: int) -> bool:
        """Trim the window if this counted insert is an Nth one; whether rows were deleted."""
        keep, every = sizes(work.runtime.settings, self.name)
        return inserted % every == 0 and work.run(self._cut, owner=owner, keep=keep) > 0

    def trim(self, work: UnitOfWork, instance_id: str | None) -> int:
        """Delete all but the newest rows of an instance; the number deleted."""
        owner, (keep, _) = resolve_scope(work, "instance_id", instance_id), sizes(work.runtime.settings, self.name)
        with work.batch(last=True) as batch:
            deleted = batch.run(self._cut, owner=owner, keep=keep)
        return deleted.result

    def trim_some(self, work: UnitOfWork) -> int:
        """Delete all but the newest rows of up to a hundred instances with too many; the number deleted."""
        keep, _ = sizes(work.runtime.settings, self.name)
        full = work.rows(self._full, keep=keep)
        with work.batch() as batch:
            deleted = [batch.run(self._cut, owner=owner, keep=keep) for (owner,) in full]
        return sum(one.result for one in deleted)


STATUS_LOG = Window(status_log, "id")
USAGE_SAMPLES = Window(usage_samples, "seq", "occurred_at")
TOOL_HISTORY = Window(tool_history, "id")


def sizes(settings: Settings, table: str) -> tuple[int, int]:
    """(the number of rows a window keeps, the number of inserts between trims)."""
    keep: int = getattr(settings, f"{table}_keep")
    every: int | None = getattr(settings, f"{table}_trim_every")
    return keep, every or max(1, keep // 10)


R_co = TypeVar("R_co", covariant=True)


class _Trimmed(Protocol[R_co]):
    def trim(self, *, instance_id: str | None = None) -> R_co: ...


class _Telemetry(Protocol[R_co]):
    @property
    def status(self) -> _Trimmed[R_co]: ...
    @property
    def usage(self) -> _Trimmed[R_co]: ...
    @property
    def tools(self) -> _Trimmed[R_co]: ...


class _Transaction(Protocol[R_co]):
    @property
    def telemetry(self) -> _Telemetry[R_co]: ...


def trim(tx: _Transaction[R_co], table: str, instance_id: str | None = None) -> R_co:
    """Delete all but the newest rows of one instance's `status_log`, `usage_samples` or `tool_history`; the number deleted.

    `Settings.<table>_keep` rows are kept. With an async transaction the result must be awaited.
    """
    telemetry = tx.telemetry
    windows = {STATUS_LOG.name: telemetry.status, USAGE_SAMPLES.name: telemetry.usage, TOOL_HISTORY.name: telemetry.tools}
    if table not in windows:
        raise InvalidValue("table", f"{shown(table)} is none of {', '.join(windows)}.")
    return windows[table].trim(instance_id=instance_id)
