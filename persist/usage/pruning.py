"""Pruning of usage: calls, sums of hours and days, and what was used of budgets in periods that are over.

A sum of the range that is left stays right: a sum goes when its last instant is older than the age, and calls go by theirs.
"""

from sqlalchemy import case, type_coerce

from persist.db.operations.pruning import AgedRows, Pruning
from persist.db.schema.column_types import EpochMs, Int64
from persist.usage.models import calls, rollups, spending
from persist.usage.schemas import Bucket

_C, _R, _S = calls.c, rollups.c, spending.c

CALLS = AgedRows(calls, _C.occurred_at, _C.scope, _C.seq, per=_C.scope, order=(_C.seq,))
# a sum is as old as its last millisecond: until then it may be of calls that stay
_to_last = case((_R.bucket == Bucket.DAY, 86_399_999), else_=3_599_999)
_last_at = type_coerce(type_coerce(_R.starts_at, Int64()) + _to_last, EpochMs())
ROLLUPS = AgedRows(rollups, _last_at, _R.group_key, _R.bucket, _R.starts_at, per=_R.scope)
SPENDING = AgedRows(spending, _S.ends_at, _S.key, _S.period, _S.starts_at, per=_S.key)

PRUNINGS: tuple[Pruning, ...] = (CALLS, ROLLUPS, SPENDING)
