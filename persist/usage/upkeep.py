"""Upkeep of usage. A sum goes when its last instant is older than the age, so that sums of the remaining range stay right."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import case, select, type_coerce, update

from persist.db.dialects.interface import Problem, Severity
from persist.db.expressions.numbers import has_next, next_number
from persist.db.operations.bounded_deletion import Condition
from persist.db.operations.erasing import OWNER, SESSION, Equal, ErasableRows, Values, equal
from persist.db.operations.pruning import AgedRows
from persist.db.operations.upkeep import Upkeep
from persist.db.schema.column_types import EpochMs, Int64
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.usage.models import budgets, calls, rollups, spending
from persist.usage.schemas import Bucket, Of, Source


@dataclass(frozen=True, slots=True)
class _Prefixed(Equal):
    """Selects rows by values of a column, each behind one of the prefixes."""

    prefixes: tuple[str, ...]

    def __call__(self, values: Values) -> Condition:
        (column,) = self.columns
        return column.in_(self._with_prefixes(values))

    def matches(self, row: Mapping[str, Any], values: Collection[str]) -> bool:
        (column,) = self.columns
        return row.get(str(column.key)) in self._with_prefixes(values)

    def _with_prefixes(self, values: Collection[str]) -> list[str]:
        return [f"{prefix}:{value}" for prefix in self.prefixes for value in values]


_C, _R, _S = calls.c, rollups.c, spending.c

CALLS = AgedRows(calls, _C.occurred_at, _C.scope, _C.seq, per=_C.scope, order=(_C.seq,))
# a sum is as old as its last millisecond: until then it may be of calls that stay
_to_last = case((_R.bucket == Bucket.DAY, 86_399_999), else_=3_599_999)
_last_at = type_coerce(type_coerce(_R.starts_at, Int64()) + _to_last, EpochMs())
ROLLUPS = AgedRows(rollups, _last_at, _R.group_key, _R.bucket, _R.starts_at, per=_R.scope)
SPENDING = AgedRows(spending, _S.ends_at, _S.key, _S.period, _S.starts_at, per=_S.key)

_other = calls.alias("other")
_OUT_OF_REACH = select(_C.scope, _C.seq).where(~has_next(_C.seq)).order_by(_C.scope, _C.seq)


def checkup(work: UnitOfWork) -> Iterator[Problem]:
    """A finding for each call that is never trimmed, which another program wrote. The repair numbers it after the others."""
    for scope, seq in work.found(_OUT_OF_REACH, unreadable=OnUnreadable.LEAVE_OUT):
        message = f"its number is {seq:,}: it is listed as the newest for ever, and no trim deletes it."
        yield Problem("call_number", Severity.WARNING, f"a call of {scope}", message, partial(_renumber, scope=scope, seq=seq))


def _renumber(work: UnitOfWork, *, scope: str, seq: int) -> None:
    following = select(next_number(_other.c.seq)).where(_other.c.scope == scope, has_next(_other.c.seq)).scalar_subquery()
    work.change(update(calls).where(_C.scope == scope, _C.seq == seq).values(seq=following))


UPKEEP = Upkeep(
    prunings=(CALLS, ROLLUPS, SPENDING),
    erasables=(
        *(
            ErasableRows(
                table,
                ("scope", "owner"),
                {OWNER: equal(table.c.owner), SESSION: _Prefixed((table.c.scope,), tuple(Source))},
                own_streams=False,
                rooted=False,
            )
            for table in (calls, rollups)
        ),
        # what is used of budgets before these, and by itself: the log has rows of both
        *(
            ErasableRows(
                table,
                ("key",),
                {OWNER: _Prefixed((table.c.key,), (Of.OWNER,)), SESSION: _Prefixed((table.c.key,), (Of.INSTANCE,))},
                own_streams=False,
                rooted=False,
            )
            for table in (spending, budgets)
        ),
    ),
    checkup=checkup,
)
