"""What plain verbs execute on a SQLite file, where a statement costs no round trip but time."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from persist import Store
from persist.db.dialects.sqlite.connections import FileConnection
from persist.errors import PersistError
from tests.statemachines.scene import arguments, make, verbs
from tests.statement_log import seen_statements

_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_TEXT = [{"type": "text", "text": "hi"}]

PLAIN: dict[str, tuple[Callable[[Any, str], object], list[str]]] = {
    "nothing": (lambda tx, _: None, []),
    "chat.sessions.get": (lambda tx, session: tx.chat.sessions.get(session), ["SELECT"]),
    "chat.messages.append": (
        lambda tx, session: tx.chat.messages.append(session, role="user", parts=_TEXT),
        ["UPDATE", "INSERT", "INSERT"],
    ),
    "telemetry.usage.sample": (
        lambda tx, _: tx.telemetry.usage.sample(at=_AT, token_input=5, instance_id="box"),
        ["INSERT", "INSERT"],
    ),
    "workflows.runs.list": (lambda tx, _: tx.workflows.runs.list(limit=20), ["SELECT"]),
}
"""Verbs, and the statements that one of them executes between BEGIN and COMMIT."""


def test_plain_verbs_execute_few_statements(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = seen_statements(monkeypatch)
    with Store.open(sqlite_url) as store:
        with store.begin() as tx:
            session = tx.chat.sessions.create(agent="a", model={}).id
        for name, (verb, expected) in PLAIN.items():
            with store.begin() as tx:
                seen.clear()
                verb(tx, session)
            assert [statement.split()[0] for statement in seen] == [*expected, "COMMIT"], name


class _UndoneError(Exception):
    """Rolls a transaction back."""


def test_the_driver_gets_no_value_that_it_has_to_convert(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """sqlite3 looks for an adapter of each other type, at each execution: a subclass of `str` costs more than its row."""
    converted: set[tuple[str, type]] = set()
    plain = (str, int, float, bytes, type(None))
    now, executed = [""], set[str]()

    def execute(connection: sqlite3.Connection, sql: str, args: Sequence[Any] = ()) -> sqlite3.Cursor:
        executed.add(now[0])
        converted.update((now[0], type(value)) for value in args if type(value) not in plain)
        return sqlite3.Connection.execute(connection, sql, args)

    monkeypatch.setattr(FileConnection, "execute", execute, raising=False)
    with Store.open(sqlite_url) as store:
        ids = make(store)
        for verb in verbs():
            now[0] = verb.name
            with suppress(PersistError, _UndoneError), store.begin() as tx:
                verb.call(tx, arguments(verb, ids))
                raise _UndoneError
    assert len(executed) > 100
    assert not converted
