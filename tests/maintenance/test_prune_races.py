"""A prune beside writers, beside another prune, and killed in the middle."""

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from datetime import timedelta

import pytest

from persist import Store
from persist.errors import Conflict, NotFound
from persist.maintenance import prune
from persist.testing import FrozenClock
from tests.concurrency.test_conversation_pruning import until_it_waits
from tests.concurrency.test_threads import together
from tests.contract.chat.scenes import create, record, step, text
from tests.contract.conftest import Raw
from tests.contract.workflows.making import done, make_run, start
from tests.maintenance.pruning_scenes import DAY
from tests.subprocesses import Worker

postgres = pytest.mark.parametrize("backend", ["postgres"])
Prune = Callable[..., Worker]


@pytest.fixture
def store(database_url: str, clock: FrozenClock) -> Iterator[Store]:
    with Store.open(database_url, clock=clock) as store:
        yield store


@pytest.fixture
def pruning(database_url: str) -> Iterator[Prune]:
    """Starts the worker; none outlives the test."""
    with ExitStack() as stack:

        def begin(what: str, batch: int) -> Worker:
            worker = Worker("tests.maintenance.pruning_worker", database_url, what, batch)
            stack.callback(worker.close)
            return worker

        yield begin


def chats(store: Store, count: int) -> list[str]:
    """Chats with two messages of one part each."""
    ids = []
    for _ in range(count):
        ids.append(create(store))
        with store.begin() as tx:
            for role in ("user", "assistant"):
                tx.chat.messages.append(ids[-1], role=role, parts=[{"type": "text", "text": "hi"}])
    return ids


def test_a_killed_prune_has_removed_whole_batches(store: Store, database_url: str, pruning: Prune, clock: FrozenClock) -> None:
    chats(store, 60)
    process = pruning("chat", 5)
    assert [int(process.stdout.readline()) for _ in range(3)] == [25, 50, 75]
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    with closing(Raw(database_url)) as raw:
        left = raw.count("chat_sessions")
        assert left <= 45
        assert left % 5 == 0
        assert (raw.count("chat_messages"), raw.count("chat_parts")) == (2 * left, 2 * left)
        clock.advance(seconds=1)
        report = prune(store, "chat", older_than=timedelta(0))
        assert report.tables.get("chat_sessions", 0) == left
        assert [raw.count(table) for table in ("chat_sessions", "chat_messages", "chat_parts")] == [0, 0, 0]


def test_two_prunes_take_each_row_once(store: Store, database_url: str, pruning: Prune, clock: FrozenClock) -> None:
    with store.begin() as tx:
        for number in range(300):
            tx.telemetry.tools.record("bash", instance_id=f"box{number % 3}")
    processes = [pruning("tool_history", 10) for _ in range(2)]
    said = [process.communicate(timeout=60)[0].split() for process in processes]
    assert [lines[-1] for lines in said] == ["done", "done"]
    assert sum(max([0, *map(int, lines[:-1])]) for lines in said) == 300


def test_chats_that_are_used_again_in_between_stay(store: Store, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes first has it: a recorder is refused as a whole, or nothing of what it uses is missing afterwards."""
    monkeypatch.setattr("persist.db.operations.pruning.Pruning.batch", 3)
    old = chats(store, 40)
    clock.advance(delta=40 * DAY)
    finished = threading.Event()

    def use() -> list[str]:
        used = []
        try:
            for id in reversed(old):
                with suppress(NotFound, Conflict):  # the prune was faster
                    record(store, id, [{"type": "start"}, *step(*text("again")), {"type": "finish"}])
                    used.append(id)
        finally:
            finished.set()
        return used

    def sweep() -> int:
        gone = 0
        while not finished.is_set():
            gone += prune(store, "chat", older_than=30 * DAY).tables.get("chat_sessions", 0)
        return gone

    used, gone = together([use, sweep])
    assert len(used) + gone == 40
    with store.read() as tx:
        assert {session.id for session in tx.chat.sessions.list(limit=100).items} == set(used)
        assert [len(tx.chat.messages.list(id)) for id in used] == [3] * len(used)


@postgres
def test_what_somebody_holds_is_left_for_the_next_time(store: Store, clock: FrozenClock) -> None:
    held, idle = create(store), create(store)
    clock.advance(delta=40 * DAY)
    with ThreadPoolExecutor(1) as pool, store.begin() as tx:
        tx.chat.sessions.update_metadata(held, {"title": "again"})
        report = pool.submit(prune, store, "chat", older_than=30 * DAY).result(30)
        assert report.tables == {"chat_sessions": 1}
    with store.read() as tx:
        assert tx.chat.sessions.get(held).id == held
        with pytest.raises(NotFound):
            tx.chat.sessions.get(idle)


@postgres
def test_a_prompt_that_is_just_being_named_stays(store: Store, database_url: str, clock: FrozenClock) -> None:
    """Its row is old, and the message that names it is not there for others to see yet."""
    session = create(store)
    with store.begin() as tx:
        digest = tx.chat.prompts.put("be brief")
    clock.advance(delta=40 * DAY)
    with ThreadPoolExecutor(1) as pool:
        with store.begin() as tx:
            assert tx.chat.prompts.put("be brief") == digest
            pruned = pool.submit(prune, store, "system_prompts", older_than=30 * DAY)
            until_it_waits(database_url, pruned)
            tx.chat.messages.append(session, role="user", parts=[], metadata={"system_prompt_digest": digest})
        assert pruned.result(30).tables == {}
    with store.read() as tx:
        assert tx.chat.prompts.get(digest) == "be brief"


def test_a_run_that_is_restarted_in_between_stays(store: Store, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the removal: what was seen is looked at again."""
    runs = [make_run(store).id for _ in range(4)]
    for run in runs:
        done(store, workflow_run_id=run)
        with store.begin() as tx:
            tx.workflows.runs.finish(run, "failed")
    clock.advance(delta=40 * DAY)
    monkeypatch.setattr("persist.db.operations.pruning.Pruning.batch", 1)
    restarted: list[str] = []

    def meanwhile(rows: int) -> None:
        if not restarted:
            with store.begin() as tx:
                tx.workflows.runs.restart(runs[2])
            start(store, workflow_run_id=runs[3])
            restarted.append(runs[2])

    report = prune(store, "workflows", older_than=30 * DAY, progress=meanwhile)
    assert report.tables == {"workflow_runs": 2, "executions": 2}
    with store.read() as tx:
        assert {run.id for run in tx.workflows.runs.list().items} == set(runs[2:])


def test_writers_come_in_between_the_batches(store: Store, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread's transaction is done while the prune still runs."""
    monkeypatch.setattr("persist.db.operations.pruning.Pruning.batch", 1)
    chats(store, 10)
    clock.advance(delta=40 * DAY)
    written: list[str] = []
    with ThreadPoolExecutor(1) as pool:

        def meanwhile(rows: int) -> None:
            written.append(pool.submit(create, store).result(30))

        prune(store, "chat_sessions", older_than=30 * DAY, progress=meanwhile)
    assert len(written) == 10
    with store.read() as tx:
        assert {session.id for session in tx.chat.sessions.list().items} == set(written)
