"""An id under which rows of a former row are left, as a shell without foreign keys leaves them, is refused."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from persist.errors import Conflict
from persist.maintenance import doctor


def _run(tx: Any, id: str) -> object:
    return tx.workflows.runs.create("build", trigger_id="t", current_phase="p", id=id)


def _session(tx: Any, id: str) -> object:
    return tx.chat.sessions.create(agent="agent", model={"providerID": "p", "modelID": "m"}, id=id)


def _conversation(tx: Any, id: str) -> object:
    return tx.conversations.sessions.create(id=id)


def _say(tx: Any, id: str) -> object:
    return tx.chat.messages.append(id, role="user", parts=[{"type": "text", "text": "a secret"}])


LEFT: dict[str, tuple[Callable[[Any, str], object], Callable[[Any, str], object], Callable[[Any, str], object]]] = {
    "chat_sessions": (_session, _say, lambda tx, id: tx.chat.messages.list(id)),
    "sessions": (
        _conversation,
        lambda tx, id: tx.conversations.branches.create(id, id="b"),
        lambda tx, id: tx.conversations.branches.list(id),
    ),
    "workflow_runs": (
        _run,
        lambda tx, id: tx.workflows.effects.begin(id, "send"),
        lambda tx, id: tx.workflows.effects.list(id),
    ),
}
"""By table: what makes a row of a chosen id, what makes a row below it, and what shows those below."""


@pytest.mark.parametrize("table", LEFT)
def test_an_id_under_which_rows_of_a_former_row_are_left_is_refused(sqlite_store: Any, table: str) -> None:
    make, add, shown = LEFT[table]
    with sqlite_store.begin() as tx:
        make(tx, "mine")
        add(tx, "mine")
    with closing(sqlite3.connect(sqlite_store.runtime.dialect.path)) as raw, raw:
        raw.execute(f"DELETE FROM {table} WHERE id = 'mine'")
    with pytest.raises(Conflict, match="persist doctor --fix"), sqlite_store.begin() as tx:
        make(tx, "mine")
    doctor(sqlite_store, fix=True)
    with sqlite_store.begin() as tx:
        make(tx, "mine")
        assert not shown(tx, "mine")
