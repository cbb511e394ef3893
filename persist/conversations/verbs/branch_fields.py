"""Validation of the columns that a branch's update may change, and the UPDATE itself."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from sqlalchemy import update

from persist.conversations.models import branches
from persist.conversations.verbs.session_fields import Check, instant, label, text
from persist.db.changes.batch import Batch
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import InvalidValue

_CHANGEABLE: dict[str, Check] = {"name": text, "user": label, "started_at": instant, "ended_at": instant}


def branch_changes(work: UnitOfWork, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Checked columns of an update; InvalidValue names a column that `update` cannot change."""
    for name in columns:
        if name not in _CHANGEABLE:
            raise InvalidValue(name, f"a branch has no such column to change; there are {', '.join(_CHANGEABLE)}.")
    return {name: _CHANGEABLE[name](work, name, value) for name, value in columns.items()}


def change(batch: Batch, id: str, changes: Mapping[str, Any]) -> None:
    """Update these columns of the branch with a batch."""
    batch.run(_change(tuple(changes)), row_id=id, **{f"set_{name}": value for name, value in changes.items()})


@cache
def _change(names: tuple[str, ...]) -> Statement:
    return Statement(
        update(branches).where(branches.c.id == param("row_id")).values({name: param(f"set_{name}") for name in names})
    )
