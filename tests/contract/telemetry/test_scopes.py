"""Whose rows a call means: '' and the file's own id are one on SQLite, and a server wants to be told."""

from typing import Any

import pytest

from persist.errors import InvalidValue
from persist.telemetry import open_instance, open_workspace
from tests.cases import each
from tests.contract.telemetry.scenes import read, t, task, write

CALLS: list[tuple[str, str, tuple[Any, ...], dict[str, Any]]] = [
    ("status", "record", ("busy",), {}),
    ("status", "current", (), {}),
    ("status", "durations", (t(0), t(1)), {}),
    ("tags", "record", ("repo", "x"), {}),
    ("links", "due", (), {}),
    ("usage", "sample", (), {"at": t(1)}),
    ("usage", "totals", (), {}),
    ("tools", "record", ("bash",), {}),
    ("tools", "trim", (), {}),
    ("tasks", "poll", ([],), {}),
    ("tasks", "claim", ("x",), {}),
]


@pytest.mark.parametrize("backend", ["postgres"])
@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call[0]}.{call[1]}")
def test_a_server_wants_to_know_whose(store: Any, call: tuple[str, str, tuple[Any, ...], dict[str, Any]]) -> None:
    aggregate, verb, values, named = call
    with store.begin() as tx, pytest.raises(InvalidValue, match="_id"):
        getattr(getattr(tx.telemetry, aggregate), verb)(*values, **named)


@pytest.mark.parametrize("backend", ["postgres"])
def test_a_server_refuses_a_raw_row_without_an_owner(store: Any, raw: Any) -> None:
    """The row of a program that set nothing; one that says whose it is in its session is let in."""
    with pytest.raises(Exception, match="instance_id"):
        raw.rows("INSERT INTO status_log (occurred_at, new_status) VALUES (1, 'busy')")
    raw.rows("SET persist.instance_id = 'box'")
    raw.rows("INSERT INTO status_log (occurred_at, new_status) VALUES (1, 'busy')")
    assert read(store, "status", "current", instance_id="box").new_status == "busy"


@each("wrong", ["", 5, "\x00"])
def test_an_owner_has_a_name(store: Any, wrong: Any) -> None:
    with store.begin() as tx, pytest.raises(InvalidValue):
        tx.telemetry.status.record("busy", instance_id=wrong)


def test_values_show_the_owner_that_was_named(store: Any) -> None:
    assert write(store, "status", "record", "busy", instance_id="a").instance_id == "a"
    assert write(store, "tags", "record", "repo", "x", instance_id="a").instance_id == "a"
    assert write(store, "links", "record_error", "https://github.com/o/r/pull/1", "x", instance_id="a").instance_id == "a"
    assert write(store, "usage", "sample", at=t(1), instance_id="a").instance_id == "a"
    assert write(store, "tools", "record", "bash", instance_id="a").instance_id == "a"
    assert read(store, "status", "current", instance_id="b") is None


def test_a_files_own_rows_are_found_by_its_id_and_without_one(tmp_path: Any, open_raw: Any) -> None:
    with open_instance(tmp_path, "box") as store:
        raw = open_raw(f"sqlite:///{store.path}")
        raw.rows("INSERT INTO status_log (occurred_at, new_status) VALUES (1, 'busy')")
        for named in ({}, {"instance_id": "box"}):
            assert write(store, "status", "record", "busy", **named) is None
            assert read(store, "status", "current", **named).instance_id == "box"
            write(store, "usage", "sample", at=t(1), token_input=1, **named)
        write(store, "status", "record", "busy", instance_id="guest")
        assert read(store, "usage", "totals").token_input == 2
        assert raw.rows("SELECT DISTINCT instance_id FROM usage_samples") == [("",)]
        assert raw.rows("SELECT instance_id FROM status_log ORDER BY id") == [("",), ("guest",)]


def test_a_workspaces_tasks_likewise(tmp_path: Any, open_raw: Any) -> None:
    with open_workspace(tmp_path / "queue.db", "ws") as store:
        write(store, "tasks", "poll", [task("a")])
        assert write(store, "tasks", "poll", [task("a")], workspace_id="ws") == 0
        assert write(store, "tasks", "claim", "x", workspace_id="ws").workspace_id == "ws"
        assert open_raw(f"sqlite:///{store.path}").rows("SELECT workspace_id FROM tasks") == [("",)]
