"""Windows: tables that keep the rows of each instance that were written last, trimmed on every Nth insert.

`window_marks` counts the inserts of each instance, so the cadence survives restarts and is the same for every process. A trim
leaves exactly `keep` rows, so between two of them there are never more than `keep + trim_every - 1`. The newest are those that
were written last, whatever clocks said: what was just recorded is never what goes. On Postgres the counter is also the lock of an
instance's window: whoever counts first comes first.
"""

from typing import Protocol, TypeVar

from sqlalchemy import BigInteger, Table, Text, bindparam, delete, func, select, tuple_

from persist.db.hot import Hot, param
from persist.db.insert import insert_missing, merge
from persist.db.own import own_scope
from persist.db.work import Work
from persist.errors import InvalidValue
from persist.quoting import shown
from persist.settings import Settings
from persist.telemetry.models import status_log, tool_history, usage_samples, window_marks

_SOME = 100
_W = window_marks.c
# Both were checked before, or are our own words: plain text spares every insert the checks that labels from outside get.
_TEXT = Text()
_COUNT = Hot(
    merge(window_marks, "instance_id", "window", inserted="sum")
    .values(instance_id=bindparam("owner", type_=_TEXT), window=bindparam("name", type_=_TEXT), inserted=1)
    .returning(_W.inserted)
)
_NOTE = Hot(insert_missing(window_marks, "instance_id", "window"))
_LOCK = Hot(
    select(_W.inserted)
    .where(_W.instance_id == bindparam("owner", type_=_TEXT), _W.window == bindparam("name", type_=_TEXT))
    .with_for_update()
)


class Window:
    """One of the tables; `place` are the columns that order an instance's rows by when they were written."""

    def __init__(self, table: Table, *place: str) -> None:
        self.name = table.name
        columns, mine = [table.c[name] for name in place], table.c.instance_id == param("owner")
        newest_first = select(*columns).where(mine).order_by(*(column.desc() for column in columns))
        self._place = place
        edge = tuple_(*(bindparam(f"edge_{column.name}", type_=column.type) for column in columns))
        owner = table.c.instance_id
        over = func.count() > bindparam("keep", type_=BigInteger())
        self._full = Hot(select(owner).group_by(owner).having(over).order_by(owner).limit(_SOME))
        self._edge = Hot(newest_first.limit(1).offset(bindparam("keep", type_=BigInteger())))
        self._cut = Hot(delete(table).where(mine, tuple_(*columns) <= edge))

    def count(self, work: Work, owner: str) -> int:
        """Count an insert of the instance; how many there were."""
        row = work.returned(_COUNT, owner=owner, name=self.name)
        assert row is not None
        inserted: int = row[0]
        return inserted

    def lock(self, work: Work, owner: str) -> None:
        """Wait for whoever records for the instance: nobody else counts, or trims while it does, until the transaction ends."""
        if work.row(_LOCK, owner=owner, name=self.name) is None:
            work.run(_NOTE, instance_id=owner, window=self.name, inserted=0)
            work.row(_LOCK, owner=owner, name=self.name)

    def trim_if_due(self, work: Work, owner: str, inserted: int) -> bool:
        """After an insert that was counted: trim if its turn has come."""
        keep, every = sizes(work.runtime.settings, self.name)
        return inserted % every == 0 and self._trim(work, owner, keep) > 0

    def trim(self, work: Work, instance_id: str | None) -> int:
        """Delete all but the newest rows of the instance; how many."""
        return self._trim(work, own_scope(work, "instance_id", instance_id), sizes(work.runtime.settings, self.name)[0])

    def _trim(self, work: Work, owner: str, keep: int) -> int:
        edge = work.row(self._edge, owner=owner, keep=keep)
        if edge is None:
            return 0
        return work.run(self._cut, owner=owner, **{f"edge_{name}": value for name, value in zip(self._place, edge, strict=True)})

    def trim_some(self, work: Work) -> int:
        """Delete all but the newest rows of up to a hundred instances, whosever they are; how many."""
        keep, _ = sizes(work.runtime.settings, self.name)
        return sum([self._trim(work, owner, keep) for (owner,) in work.rows(self._full, keep=keep)])


STATUS_LOG = Window(status_log, "id")
USAGE_SAMPLES = Window(usage_samples, "seq", "occurred_at")
TOOL_HISTORY = Window(tool_history, "id")


def sizes(settings: Settings, table: str) -> tuple[int, int]:
    """How many rows a window keeps, and after how many inserts it is trimmed."""
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
    """Delete all but the newest rows of one instance's `status_log`, `usage_samples` or `tool_history`; how many.

    What is kept is `Settings.<table>_keep`. With an asynchronous transaction the result is awaited.
    """
    telemetry = tx.telemetry
    windows = {STATUS_LOG.name: telemetry.status, USAGE_SAMPLES.name: telemetry.usage, TOOL_HISTORY.name: telemetry.tools}
    if table not in windows:
        raise InvalidValue("table", f"{shown(table)} is none of {', '.join(windows)}.")
    return windows[table].trim(instance_id=instance_id)
