"""What a run and its descendants cost together."""

from typing import Any

from sqlalchemy import cast, func, select

from persist.db.expressions.saturating_sum import whole_total
from persist.db.schema.column_types import Float64
from persist.db.statements.prepared import Statement
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.values.frozen import construct
from persist.errors import NotFound
from persist.workflows.family_values import FamilyTotals
from persist.workflows.models import USED_TOKENS, executions, runs
from persist.workflows.storage.family_tree import family

_R, _E = runs.c, executions.c
_TOKENS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


def _statuses(*, orphans: bool) -> Statement:
    tree = family(_R.status, orphans=orphans)
    return Statement(select(tree.c.status, func.count()).group_by(tree.c.status), unreadable=OnUnreadable.RAISE)


def _usage(*, orphans: bool) -> Statement:
    tree = family(orphans=orphans)
    sums: list[Any] = [whole_total(_E[name]) for name in _TOKENS]
    cost = func.coalesce(func.sum(_E.cost_usd), cast(0, Float64()))
    query = select(func.count(), *sums, USED_TOKENS, cost)
    return Statement(query.select_from(tree.join(executions, _E.workflow_run_id == tree.c.id)))


_BY_STATUS, _USAGE = ({orphans: made(orphans=orphans) for orphans in (False, True)} for made in (_statuses, _usage))


def family_totals(work: UnitOfWork, id: str) -> FamilyTotals:
    """See Runs.family."""
    root = work.label("id", id)
    orphans = False
    counted = work.rows(_BY_STATUS[orphans], root=root)
    if not counted:
        orphans = True
        counted = work.rows(_BY_STATUS[orphans], root=root)
    if not counted:
        raise NotFound("workflow run", id)
    used = work.row(_USAGE[orphans], root=root)
    assert used is not None
    number, *tokens, total, cost = used
    by_status = {str(status): int(count) for status, count in counted}
    return construct(
        FamilyTotals,
        {
            "run_id": root,
            "runs": sum(by_status.values()),
            "by_status": by_status,
            "executions": int(number),
            **{name: int(value) for name, value in zip(_TOKENS, tokens, strict=True)},
            "total_tokens": int(total),
            "cost_usd": float(cost),
        },
    )
