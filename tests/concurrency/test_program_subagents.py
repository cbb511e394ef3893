"""Many subagents at once: threads on one store, other stores, and the command line, all writing to one run."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.errors import Conflict
from persist.programs import create_run_file, open_run_file, subagent
from persist.programs.subagents.instructions import bind_sql, command
from tests.command_line import Sqlite3

RUN = "r1"
MANY = 8


@pytest.fixture
def run(store: Store) -> str:
    with store.begin() as tx:
        return tx.programs.runs.create(id=RUN).id


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What so many threads gave that started at the same moment."""
    barrier = threading.Barrier(count)

    def start(number: int) -> Any:
        barrier.wait(30)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(start, range(count)))


def test_one_of_many_binds_a_const(store: Store, open_store: Callable[..., Any], run: str) -> None:
    stores = [store, *[open_store() for _ in range(3)]]

    def bind(number: int) -> bool:
        try:
            with stores[number % len(stores)].begin() as tx:
                tx.programs.bindings.bind(run, "x", str(number), kind="const")
        except Conflict:
            return False
        return True

    won = together(MANY, bind)
    assert won.count(True) == 1
    with store.read() as tx:
        assert tx.programs.bindings.resolve(run, "x").value == str(won.index(True))


def test_everybody_binds_a_let_and_one_row_remains(store: Store, open_store: Callable[..., Any], run: str) -> None:
    stores = [store, *[open_store() for _ in range(3)]]
    together(MANY, lambda number: subagent(stores[number % 4], run).bindings.bind("x", str(number)))
    with store.read() as tx:
        (only,) = tx.programs.bindings.list(run)
    assert str(only.value).isdigit()


def test_anonymous_names_and_segments_are_given_once(store: Store, open_store: Callable[..., Any], run: str) -> None:
    stores = [store, *[open_store() for _ in range(3)]]
    with store.begin() as tx:
        tx.programs.agents.start(run, "captain", resume=False)

    def work(number: int) -> tuple[str, int]:
        with stores[number % 4].begin() as tx:
            name = tx.programs.bindings.next_anonymous(run)
            return name, tx.programs.agents.add_segment(run, "captain", prompt="p", summary="s").segment_number

    given = together(MANY, work)
    assert sorted(name for name, _ in given) == [f"anon_{number:03d}" for number in range(1, MANY + 1)]
    assert sorted(number for _, number in given) == list(range(1, MANY + 1))


def test_a_statement_ends_once(store: Store, open_store: Callable[..., Any], run: str) -> None:
    stores = [store, *[open_store() for _ in range(3)]]
    with store.begin() as tx:
        id = tx.programs.executions.begin(run, statement_index=1, statement_text="x").id

    def end(number: int) -> bool:
        try:
            with stores[number % 4].begin() as tx:
                if number % 2:
                    tx.programs.executions.complete(run, id)
                else:
                    tx.programs.executions.skip(run, id)
        except RuntimeError:
            return False
        return True

    assert together(MANY, end).count(True) == 1


def test_the_library_and_the_command_line_write_at_once(sqlite3_shell: Sqlite3, tmp_path: Path) -> None:
    with create_run_file(tmp_path) as store:
        path, run = store.path, store.run_id
        assert path is not None
        assert run is not None
        with store.begin() as tx:
            frames = [tx.programs.executions.begin(run, statement_index=1, statement_text="x").id for _ in range(MANY)]

        def work(number: int) -> int:
            for step in range(5):
                if number % 2:
                    subagent(store, run, frames[number]).bindings.bind(f"value{step}", f"{number}")
                else:
                    line = command(path, bind_sql(f"value{step}", f"{number}", execution_id=frames[number]))
                    done = sqlite3_shell.shell(line)
                    assert done.returncode == 0, done
            return number

        assert together(MANY, work) == list(range(MANY))
    with open_run_file(path) as store, store.read() as tx:
        for number, frame in enumerate(frames):
            assert [tx.programs.bindings.resolve(run, f"value{step}", execution_id=frame).value for step in range(5)] == [
                str(number)
            ] * 5
        assert {one.code for one in tx.programs.runs.audit(run)} == {"raw_write"}
