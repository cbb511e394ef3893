"""On SQLite a verb's second call compiles no statement again.

SQLite does so at every execution if a parameter is compared with what the condition of a partial index compares with a constant,
or is the pattern of a LIKE: the plan could be another one. That takes longer than most statements.
"""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.testing import FrozenClock
from tests.statemachines.both_databases import Undo
from tests.statemachines.scene import Verb, arguments, make, verbs

_OF_TRANSACTIONS = (22, 32)
"""SQLITE_TRANSACTION and SQLITE_SAVEPOINT, whose statements the driver compiles each time."""


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the statements read and write that any connection compiles from now on."""
    seen: list[str] = []
    connect = sqlite3.connect

    def watched(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)

        def note(action: int, *names: str | None) -> int:
            if action not in _OF_TRANSACTIONS:
                seen.append(".".join(name for name in names[:2] if name))
            return sqlite3.SQLITE_OK

        connection.set_authorizer(note)
        return connection

    monkeypatch.setattr(sqlite3, "connect", watched)
    return seen


@pytest.mark.parametrize("log", [False, True], ids=["", "log of events"])
def test_a_second_call_compiles_nothing(log: bool, tmp_path: Path, compiled: list[str]) -> None:
    with Store.open(f"sqlite:///{tmp_path}/state.db", clock=FrozenClock()) as store:
        ids = make(store)
        store.switch_events(log)
        again: dict[str, list[str]] = {}
        for verb in verbs():
            if log or verb.domain != "events":
                _call(store, verb, ids)
                compiled.clear()
                _call(store, verb, ids)
                if compiled:
                    again[verb.name] = list(compiled)
        assert not again


def _call(store: Store, verb: Verb, ids: dict[str, Any]) -> None:
    try:
        with store.begin() as tx:
            verb.call(tx, arguments(verb, ids))
            raise Undo
    except Undo:
        pass
