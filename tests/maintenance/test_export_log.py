"""An export of a whole store, imported into an empty database and exported again, is the same, with the log on or off."""

import io
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from persist import Store
from persist.db.transactions.table_operations import TableOperations
from persist.errors import NotPermitted
from persist.maintenance import doctor, export, import_
from persist.testing import FrozenClock
from tests.maintenance.filled import filled
from tests.maintenance.test_import_lines import written


@pytest.fixture
def other_kind(backend: str, request: pytest.FixtureRequest) -> str:
    """A new database of the other kind."""
    return str(request.getfixturevalue("sqlite_url" if backend == "postgres" else "postgres_url"))


def exported(store: Store) -> bytes:
    stream = io.BytesIO()
    export(store, stream)
    return stream.getvalue()


def meant(value: Any) -> Any:
    """The value of a JSON text, which the two kinds of databases spell with other escapes."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def rows(content: bytes) -> list[Any]:
    """The rows of an export, but for how a database counts positions: a server by a sequence, a file in a row."""
    found = []
    for line in map(json.loads, content.splitlines()[1:-1]):
        if line["table"] == "event_heads" and line["row"]["stream_id"] == "*":
            line["row"] |= {"seq": None, "settled": None}
        line["row"] = {name: meant(value) for name, value in line["row"].items()}
        found.append(json.dumps(line, sort_keys=True))
    return sorted(found)


@pytest.mark.parametrize("logs", [False, True], ids=["log-off", "log-on"])
@pytest.mark.parametrize("across", [False, True], ids=["same-kind", "other-kind"])
def test_an_export_that_was_imported_is_exported_alike(
    database_url: str,
    new_database: Callable[[], str],
    request: pytest.FixtureRequest,
    clock: FrozenClock,
    logs: bool,
    across: bool,
) -> None:
    target_url = str(request.getfixturevalue("other_kind")) if across else new_database()
    filled(database_url, clock)
    with Store.open(database_url, clock=clock, events=logs) as source, Store.open(target_url, clock=clock) as target:
        if logs:
            source.events.consumers.create("mirror", at="now")
            with source.begin() as tx:
                session = tx.messaging.sessions.list().items[0].id
                tx.messaging.messages.add(session, role="user", content="after the consumer's place")
        first = exported(source)
        report = import_(target, io.BytesIO(first))
        assert report.log_off is None
        assert target.logs_events is logs
        assert rows(exported(target)) == rows(first)
        assert [one for one in doctor(target) if one.severity == "error"] == [
            one for one in doctor(source) if one.severity == "error"
        ]
        before, after = source.events.consumers.list(), target.events.consumers.list()
        assert [(one.name, one.position, one.behind) for one in after] == [(one.name, one.position, one.behind) for one in before]
        if not logs:
            return
        given = source.events.consumers.next("mirror")
        assert target.events.consumers.next("mirror").events == given.events
        with target.begin() as tx:
            tx.messaging.messages.add(session, role="user", content="new")
        (new,) = target.events.consumers.next("mirror").events or target.events.read("*", after=given.position)
        assert new.position == given.position + 1
    with Store.open(target_url) as again:
        assert again.logs_events


def test_an_import_says_that_the_log_is_off(
    database_url: str, new_database: Callable[[], str], clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise NotPermitted("the role may not make triggers")

    filled(database_url, clock)
    with Store.open(database_url, clock=clock, events=True) as source:
        content = exported(source)
    with Store.open(new_database(), clock=clock) as target:
        monkeypatch.setattr(TableOperations, "check_guard", refused)
        assert "may not make triggers" in str(import_(target, io.BytesIO(content)).log_off)
        monkeypatch.undo()
        assert not target.logs_events
        target.switch_events(True)
        assert [one for one in doctor(target) if one.severity == "error"] == []
    with Store.open(new_database(), clock=clock) as other:
        other.chat.sessions.create(agent="a", model={})
        assert "rows of its own" in str(import_(other, io.BytesIO(without_rows(content))).log_off)


def without_rows(content: bytes) -> bytes:
    """The export with the rows of `_meta` alone, which fit into any database."""
    head, *lines, _ = map(json.loads, content.splitlines())
    return written([head, *(line for line in lines if line["table"] == "_meta"), {}])


def test_the_doctor_mends_positions_that_an_older_import_left(sqlite_url: str) -> None:
    with Store.open(sqlite_url, events=True) as store:
        store.events.consumers.create("mirror")
        with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as raw:
            raw.execute("UPDATE event_heads SET settled = 7 WHERE stream_id = '*'")
            raw.commit()
        assert [one.code for one in doctor(store) if one.severity == "error"] == ["positions_foreign"]
        assert [one.fixed for one in doctor(store, fix=True) if one.code == "positions_foreign"] == [True]
        assert [one.code for one in doctor(store) if one.severity == "error"] == []
        assert [one.name for one in store.events.consumers.list()] == ["mirror"]
