"""The log is switched on and trimmed while others write, and by processes that are killed."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from persist import Store
from persist.errors import Conflict
from persist.events import rebuild
from persist.events.repository import log_status
from persist.maintenance.transactions import looking
from tests.contract.chat.scenes import create, say, shown, words
from tests.contract.events.scenes import assert_gapless, events
from tests.distributed_server import takes_triggers
from tests.events.places import raw_rows
from tests.subprocesses import Spawn, Worker

SESSIONS = 12


def filled(store: Store) -> list[str]:
    """Sessions that have messages."""
    sessions = [create(store) for _ in range(SESSIONS)]
    for session in sessions:
        for number in range(3):
            say(store, session, str(number))
    return sessions


@contextmanager
def writing(url: str, sessions: list[str], count: int) -> Iterator[None]:
    """Processes that write as long as the block lasts."""
    with ExitStack() as stack:
        workers = [Worker("tests.concurrency.log_worker", "chat", url, *sessions, stdin=True) for _ in range(count)]
        for worker in workers:
            stack.callback(worker.close)
            assert worker.stdout.readline() == "ready\n"
        yield
        for worker in workers:
            worker.tell("end")
        for worker in workers:
            assert int(worker.stdout.readline()) > 0
            assert worker.wait(60) == 0


def assert_rebuilt(store: Store, url: str, target_url: str) -> None:
    with Store.open(target_url, migrate=True) as target:
        rebuild(store, target)
    found, expected = _rows(target_url), _rows(url)
    assert {table: len(rows) for table, rows in found.items()} == {table: len(rows) for table, rows in expected.items()}
    assert found == expected


def _rows(url: str) -> dict[str, list[tuple[str, ...]]]:
    """Without what a progression publishes of its members, and how many it has published: that is folded without an event."""
    rows = raw_rows(url)
    rows["progressions"] = [(id, created_at, *said) for id, created_at, _, *said, _ in rows["progressions"]]
    return rows


@pytest.fixture
def target_url(backend: str, tmp_path: object, request: pytest.FixtureRequest) -> str:
    """Another new database of the same kind."""
    if backend == "sqlite":
        return f"sqlite:///{tmp_path}/target.db"
    return str(request.getfixturevalue("empty_postgres_url"))


@pytest.mark.one_server
def test_a_log_that_is_switched_on_while_others_write_rebuilds_the_same_rows(
    store: Store, database_url: str, target_url: str
) -> None:
    sessions = filled(store)
    with writing(database_url, sessions, 2):
        assert store.switch_events(True)
    assert_gapless(events(store))
    with looking(store, "test") as work:
        status = log_status(work)
    assert (status.on, status.guarded, status.snapshots) == (True, True, None)
    assert_rebuilt(store, database_url, target_url)


@pytest.mark.parametrize("killed_after", [0, 1, 5])
def test_switching_on_goes_on_where_it_was_killed(store: Store, database_url: str, target_url: str, killed_after: int) -> None:
    sessions = filled(store)
    with Worker("tests.concurrency.log_worker", "on", database_url, killed_after) as worker:
        assert worker.wait(60) == -9
    say(store, sessions[0], "between") if store.logs_events else store.transact(lambda tx: tx.chat.sessions.archive(sessions[0]))
    with looking(store, "test") as work:
        status = log_status(work)
    assert (status.on, status.guarded, status.snapshots) == (True, takes_triggers(database_url), killed_after)
    with Store.open(target_url, migrate=True) as target, pytest.raises(Conflict, match="persist events on"):
        rebuild(store, target)
    with Store.open(database_url, events=True) as other:
        assert not other.switch_events(True)
    found = events(store)
    assert_gapless(found)
    snapshots = Counter(event.stream_id for event in found if event.type == "snapshot")
    assert {snapshots[session] for session in sessions} == {1}
    assert_rebuilt(store, database_url, target_url)


def test_trimming_goes_on_where_it_was_killed(store: Store, database_url: str) -> None:
    store.switch_events(True)
    sessions = sorted(filled(store))
    with Worker("tests.concurrency.log_worker", "trim", database_url, 5) as worker:
        assert worker.wait(60) == -9
    counts = [len(events(store, session)) for session in sessions]
    assert counts == [1] * 5 + [4] * (SESSIONS - 5)
    with Worker("tests.concurrency.log_worker", "trim", database_url, 1000) as worker:
        assert worker.wait(60) == 0
    assert [[event.type for event in events(store, session)] for session in sessions] == [["snapshot"]] * SESSIONS


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
