"""The writes of a fan-out's tasks, from many threads at once: on a file those that wait are one statement."""

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.db.group_commit import writer
from persist.db.group_commit.writer import SharedRows
from persist.errors import Closed, PersistError, TransactionOpen
from persist.framework_state.checkpoints.storing import WRITE
from persist.integrations.langgraph import PersistSaver
from tests.contract.chat.scenes import eventually
from tests.integrations.langgraph.scenes import checkpoint, config, metadata
from tests.statement_log import seen_statements

TASKS = 20


@contextmanager
def held_up(store: Store, saver: PersistSaver, tasks: Callable[[int], str] = str) -> Iterator[list[Future[None]]]:
    """The writes of many tasks, all of which wait inside of the block for another transaction; they go on at its end."""
    with ThreadPoolExecutor(TASKS) as threads, store.begin():

        def write(number: int) -> None:
            saver.put_writes(config(id="001"), [("c", number), ("d", number)], tasks(number))

        found = [threads.submit(write, number) for number in range(TASKS)]
        assert eventually(lambda: len(saver._shared_writes._waiting) == TASKS)
        yield found


def written(saver: PersistSaver) -> dict[str, list[Any]]:
    """The values by task."""
    found: Any = saver.get_tuple(config(id="001"))
    by_task: dict[str, list[Any]] = {}
    for task, _, value in found.pending_writes:
        by_task.setdefault(task, []).append(value)
    return by_task


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def put(saver: PersistSaver) -> None:
    saver.put(config(), checkpoint("001"), metadata(), {})


def test_what_waits_is_one_statement(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statements = seen_statements(monkeypatch)
    with Store.open(f"sqlite:///{path}") as store:
        saver = PersistSaver(store)
        put(saver)
        with held_up(store, saver) as calls:
            statements.clear()
        assert [call.result(30) for call in calls] == [None] * TASKS
        assert len([statement for statement in statements if "INSERT" in statement]) == 1
        assert written(saver) == {str(number): [number, number] for number in range(TASKS)}


def test_the_thread_is_created_by_whoever_misses_it(path: Path) -> None:
    with Store.open(f"sqlite:///{path}") as store:
        saver = PersistSaver(store)
        with held_up(store, saver) as calls:
            pass
        assert [call.result(30) for call in calls] == [None] * TASKS
        put(saver)
        assert len(written(saver)) == TASKS


def test_a_call_that_fails_fails_alone(path: Path) -> None:
    with Store.open(f"sqlite:///{path}") as store:
        saver = PersistSaver(store)
        put(saver)
        with closing(sqlite3.connect(path)) as other:
            other.execute(
                "CREATE TRIGGER refuse BEFORE INSERT ON checkpoint_writes WHEN NEW.task_id = '7' "
                "BEGIN SELECT RAISE(ABORT, 'not this one'); END"
            )
        with held_up(store, saver) as calls:
            pass
        errors = {number: error for number, call in enumerate(calls) if (error := call.exception(30)) is not None}
        assert list(errors) == [7]
        assert isinstance(errors[7], PersistError)
        assert sorted(written(saver), key=int) == [str(number) for number in range(TASKS) if number != 7]


def test_the_same_write_of_two_calls_is_kept_once(path: Path) -> None:
    with Store.open(f"sqlite:///{path}") as store:
        saver = PersistSaver(store)
        put(saver)
        with held_up(store, saver, lambda number: "same") as calls:
            pass
        assert [call.result(30) for call in calls] == [None] * TASKS
        (values,) = written(saver).values()
        assert len(values) == 2
        assert values[0] == values[1]


def test_a_call_inside_of_a_transaction_is_refused(path: Path) -> None:
    with Store.open(f"sqlite:///{path}") as store:
        saver = PersistSaver(store)
        put(saver)
        with store.begin(), pytest.raises(TransactionOpen):
            saver.put_writes(config(id="001"), [("c", 1)], "task")
        saver.put_writes(config(id="001"), [("c", 1)], "task")
        assert written(saver) == {"task": [1]}


def test_where_the_log_is_on_the_writes_are_events(path: Path) -> None:
    with Store.open(f"sqlite:///{path}") as store:
        saver = PersistSaver(store)
        put(saver)
        store.switch_events(True)
        saver.put_writes(config(id="001"), [("c", 1)], "task")
        with store.read() as tx:
            assert [event.type for event in tx.events.read("thread:t")][-1] == "checkpoint.written"


def test_another_process_may_have_switched_the_log_on(path: Path) -> None:
    with Store.open(f"sqlite:///{path}") as store, Store.open(f"sqlite:///{path}") as other:
        saver = PersistSaver(store)
        put(saver)
        saver.put_writes(config(id="001"), [("c", 1)], "before")
        other.switch_events(True)
        saver.put_writes(config(id="001"), [("c", 1)], "after")
        assert sorted(written(saver)) == ["after", "before"]
        with other.read() as tx:
            assert [event.type for event in tx.events.read("thread:t")] == ["snapshot", "checkpoint.written"]


def test_a_closed_store_says_so(path: Path) -> None:
    with Store.open(f"sqlite:///{path}") as store:
        saver = PersistSaver(store)
        put(saver)
    with pytest.raises(Closed):
        saver.put_writes(config(id="001"), [("c", 1)], "task")


def test_a_thread_that_is_interrupted_while_it_waits_holds_nobody_up(path: Path) -> None:
    with Store.open(f"sqlite:///{path}") as store:
        saver = PersistSaver(store)
        put(saver)
        shared = saver._shared_writes
        given = writer._CallRows([])

        class Woken:
            """A lock that was released to lead just before the interruption."""

            def acquire(self) -> None:
                raise KeyboardInterrupt

            def locked(self) -> bool:
                return False

        given.woken = Woken()  # type: ignore[assignment]  # a lock, as far as it is used
        shared._waiting.append(given)
        shared._led = True
        with pytest.raises(KeyboardInterrupt):
            shared._wait(given)
        saver.put_writes(config(id="001"), [("c", 1)], "task")
        assert written(saver) == {"task": [1]}


def test_more_rows_than_a_statement_takes_are_a_transaction(path: Path) -> None:
    with Store.open(f"sqlite:///{path}") as store:
        saver = PersistSaver(store)
        put(saver)
        saver.put_writes(config(id="001"), [(f"c{number}", number) for number in range(150)], "task")
        assert written(saver) == {"task": list(range(150))}


def test_in_memory_a_transaction_writes() -> None:
    with Store.open("sqlite:///:memory:") as store:
        saver = PersistSaver(store)
        put(saver)
        assert not SharedRows(store.pinned, WRITE).write([{}], what="put_writes()")
        saver.put_writes(config(id="001"), [("c", 1)], "task")
        assert written(saver) == {"task": [1]}
