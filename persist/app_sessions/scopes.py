"""The three scopes of a state: of the application, of the user, and of the session. Each entry is a row, merged by its key."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Table, select

from persist.app_sessions.models import app_state, session_state, user_state
from persist.app_sessions.schemas import Entries, StateChange
from persist.db.changes.batch import Batch, Pending
from persist.db.expressions.upsert import merge
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork

_A, _U, _S = app_state.c, user_state.c, session_state.c


def _setting(table: Table) -> Statement:
    return Statement(merge(table, *(column.name for column in table.primary_key.columns), value="new"))


_SET_APP, _SET_USER, _SET_SESSION = map(_setting, (app_state, user_state, session_state))
OF_APP = Statement(select(_A.key, _A.value).where(_A.app_name == param("app_name")).order_by(_A.position, _A.key))
OF_USER = Statement(
    select(_U.key, _U.value).where(_U.app_name == param("app_name"), _U.user_id == param("user_id")).order_by(_U.position, _U.key)
)


def set_entries(work: UnitOfWork, batch: Batch, change: StateChange, *, app_name: str, user_id: str, session: str) -> None:
    """Set the entries of a change. Entries with other keys stay, and so does what others have written under them.

    Rows are written in the order of their keys, so that two writers of one application never wait for each other.
    """
    user = {"app_name": app_name, "user_id": user_id}
    batch.run_many(_SET_APP, _rows(work, change.app, {"app_name": app_name}))
    batch.run_many(_SET_USER, _rows(work, change.user, user))
    batch.run_many(_SET_SESSION, _rows(work, change.session, {"app_session_id": session}))


def _rows(work: UnitOfWork, entries: Entries, owner: dict[str, str]) -> list[dict[str, Any]]:
    rows = [{**owner, "key": key, "value": text, "position": next_position(work)} for key, text in entries.items()]
    return sorted(rows, key=lambda row: row["key"])


def next_position(work: UnitOfWork) -> int:
    """A number greater than every one that this process has made before: what was added later comes later."""
    return int(work.runtime.ids.mint("pos")[4:18], 16)


def entries_of(found: Pending[list[Row]]) -> Entries:
    """The entries that a batch has read, in their order."""
    return as_entries(found.result)


def as_entries(rows: Iterable[Row]) -> Entries:
    """The entries of rows of a key and a value."""
    return dict(iter(rows))
