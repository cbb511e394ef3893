"""The log is switched on and trimmed while others write, and by processes that are killed."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from persist import Store
from persist.errors import Conflict
from persist.events import rebuild
from persist.events.repository import log_status
from persist.maintenance.transactions import looking
from tests.contract.chat.scenes import create, say
from tests.contract.events.scenes import assert_gapless, events
from tests.distributed_server import takes_triggers
from tests.events.places import raw_rows
from tests.subprocesses import Worker

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
            assert worker.stdin is not None
            worker.stdin.write("end\n")
            worker.stdin.flush()
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
