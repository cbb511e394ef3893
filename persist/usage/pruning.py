"""Pruning of usage: calls, sums of hours and days, and what was used of budgets in periods that are over.

A sum of the range that is left stays right: calls and sums go by the same instant.
"""

from persist.db.operations.pruning import AgedRows, Pruning
from persist.usage.models import calls, rollups, spending

_C, _R, _S = calls.c, rollups.c, spending.c

CALLS = AgedRows(calls, _C.occurred_at, _C.scope, _C.seq, per=_C.scope, order=(_C.seq,))
ROLLUPS = AgedRows(rollups, _R.starts_at, _R.group_key, _R.bucket, _R.starts_at, per=_R.scope)
SPENDING = AgedRows(spending, _S.ends_at, _S.key, _S.period, _S.starts_at, per=_S.key)

PRUNINGS: tuple[Pruning, ...] = (CALLS, ROLLUPS, SPENDING)
