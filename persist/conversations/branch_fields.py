"""What a branch may be changed to: checked columns, and the update of any of them."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from sqlalchemy import update

from persist.conversations.models import branches
from persist.conversations.session_fields import Check, instant, label, text
from persist.db.hot import Hot, param
from persist.db.work import Work
from persist.errors import InvalidValue

_CHANGEABLE: dict[str, Check] = {"name": text, "user": label, "started_at": instant, "ended_at": instant}


def branch_changes(work: Work, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Checked columns of an update; InvalidValue names one that cannot be changed so."""
    for name in columns:
        if name not in _CHANGEABLE:
            raise InvalidValue(name, f"a branch has no such column to change; there are {', '.join(_CHANGEABLE)}.")
    return {name: _CHANGEABLE[name](work, name, value) for name, value in columns.items()}


def change(work: Work, id: str, changes: Mapping[str, Any]) -> None:
    """Set these columns."""
    work.run(_change(tuple(changes)), row_id=id, **{f"set_{name}": value for name, value in changes.items()})


@cache
def _change(names: tuple[str, ...]) -> Hot:
    return Hot(update(branches).where(branches.c.id == param("row_id")).values({name: param(f"set_{name}") for name in names}))
