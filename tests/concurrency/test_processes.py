"""Several processes on one database."""

import json
from typing import Any

from persist import Store
from tests.contract.chat.scenes import create, shown, words
from tests.subprocesses import Spawn, Worker


def said(process: Worker) -> str:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    return output


def test_two_processes_append_to_one_session(store: Store, spawn: Spawn) -> None:
    session = create(store)
    for process in [spawn("append", session, name, 100) for name in ("left", "right")]:
        assert said(process) == "done\n"
    found = shown(store, session)
    for name in ("left", "right"):
        assert [text for text in words(found) if text.startswith(name)] == [f"{name} {number}" for number in range(100)]
    assert len(found) == 200
    pages: list[Any] = []
    while page := shown(store, session, limit=7, before=pages[0]["id"] if pages else None):
        pages = page + pages
    assert pages == found


def test_four_processes_write_without_being_turned_away(store: Store, spawn: Spawn) -> None:
    reports = [json.loads(said(process)) for process in [spawn("write", f"p{number}", 60) for number in range(4)]]
    assert [report["busy"] for report in reports] == [0, 0, 0, 0]
    for report in reports:
        assert len(shown(store, report["session"])) == 120


def test_eight_processes_that_claim_in_a_loop_are_all_let_in(store: Store, spawn: Spawn) -> None:
    reports = [json.loads(said(process)) for process in [spawn("claim", f"p{number}", 40) for number in range(8)]]
    assert [report["busy"] for report in reports] == [0] * 8
    with store.read() as tx:
        assert tx.workflows.runs.count(workflow_name="w") == 320


def test_many_processes_open_a_new_file_at_once(spawn: Spawn) -> None:
    """No store was opened before: on SQLite they all want to make the tables."""
    reports = [json.loads(said(process)) for process in [spawn("write", f"p{number}", 1) for number in range(6)]]
    assert [report["busy"] for report in reports] == [0] * 6


def test_a_forked_child_is_told_so_and_does_no_harm(store: Store, spawn: Spawn) -> None:
    session = create(store)
    report = json.loads(said(spawn("fork", session)))
    raised = report["raised"]
    assert raised.pop("close") == ""
    assert raised == dict.fromkeys(("begin", "read", "record", "feed", "flush"), "StoreForked")
    assert report["texts"] == ["before, after", "parent"]
    assert words(shown(store, session)) == ["before, after", "parent"]


def test_a_forked_child_with_a_store_of_its_own_does_not_lean_on_its_parents(
    store: Store, spawn: Spawn, database_url: str
) -> None:
    session = create(store)
    store.close()  # whoever closes a file last takes its log away
    said(spawn("fork_beside", session, database_url))
    with Store.open(database_url) as again:
        assert words(shown(again, session)) == ["before", "after"]


def test_a_child_forked_inside_a_transaction_leaves_it_to_its_parent(store: Store, spawn: Spawn, database_url: str) -> None:
    session = create(store)
    verb, left_by_an_error, left, opened = json.loads(said(spawn("fork_inside", session, database_url)))
    assert (verb, left_by_an_error, left) == ("StoreForked", "", "StoreForked")
    assert opened == ("StoreForked" if database_url.startswith("sqlite") else "")
    assert words(shown(store, session)) == ["before", "after"]


def test_a_child_never_touches_a_connection_that_another_thread_was_inside_of(
    store: Store, spawn: Spawn, database_url: str
) -> None:
    """SQLite holds the connection's mutex for a thread that does not exist in the child: closing it would hang."""
    session = create(store)
    opened = json.loads(said(spawn("fork_in_use", session, database_url)))
    assert opened == ("StoreForked" if database_url.startswith("sqlite") else "")
    assert words(shown(store, session)) == ["after"]


def test_a_child_opens_what_its_parent_had_open_at_rest(store: Store, spawn: Spawn, database_url: str) -> None:
    assert json.loads(said(spawn("fork_at_rest", create(store), database_url))) == ""


def test_a_child_in_which_sqlite_itself_hangs_is_told_so(store: Store, spawn: Spawn, database_url: str) -> None:
    opened = json.loads(said(spawn("fork_inside_sqlite", create(store), database_url)))
    assert opened == ("StoreForked" if database_url.startswith("sqlite") else "")


def test_a_child_of_an_asynchronous_store_waits_for_no_thread_of_its_parent(store: Store, spawn: Spawn) -> None:
    session = create(store)
    begin, feed, flush, close, close_store = json.loads(said(spawn("fork_async", session)))
    assert (begin, feed, flush, close) == ("StoreForked",) * 4
    assert close_store == ""
    assert words(shown(store, session)) == ["before, after"]


def test_a_child_records_with_an_asynchronous_store_of_its_own_where_its_parent_records(
    store: Store, spawn: Spawn, database_url: str
) -> None:
    session = create(store)
    *refused, closed, text = json.loads(said(spawn("fork_async_recording", session, database_url)))
    assert (refused, closed, text) == (["StoreForked"] * 4, "", "child")
    assert words(shown(store, session)) == ["before, after"]
