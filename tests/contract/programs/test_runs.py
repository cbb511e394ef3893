"""Runs of programs: what a new one is, lists, how they end and go on."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from persist.db.concurrency.ownership import this_process_as_owner
from persist.db.dialects.postgres import connections
from persist.errors import Conflict, InvalidValue, LeaseLost, NotFound, RunHeld, TransitionError
from persist.testing import FrozenClock
from tests.contract.conftest import Raw, ids_of_pages
from tests.contract.programs.scenes import OTHER, RUN, ask, begin, bind, do, make

SECOND = "2026-01-02T03:04:05+00:00"


def test_a_new_run_is_running_and_has_an_id_of_its_time(store: Any) -> None:
    run = do(store, "runs", "create", program_path="a.prose", program_source="it's \x00 \ud800 'all'")
    assert re.fullmatch(r"20260102-030405-[0-9a-z]{6}", run.id)
    assert (run.status, run.program_path, run.program_source) == ("running", "a.prose", "it's \x00 \ud800 'all'")
    assert run.started_at.isoformat() == run.updated_at.isoformat() == SECOND
    assert ask(store, "runs", "get", run.id) == run


def test_ids_are_taken_once(store: Any) -> None:
    make(store)
    with pytest.raises(Conflict):
        make(store)


@pytest.mark.parametrize("status", ["completed", "failed", "interrupted"])
def test_a_running_run_finishes_once(store: Any, clock: FrozenClock, status: str) -> None:
    make(store)
    clock.advance(seconds=5)
    run = do(store, "runs", "finish", RUN, status)
    assert (run.status, (run.updated_at - run.started_at).total_seconds()) == (status, 5.0)
    with pytest.raises(TransitionError) as caught:
        do(store, "runs", "finish", RUN, "failed")
    assert (caught.value.current, caught.value.requested) == (status, "failed")


@pytest.mark.parametrize(("status", "may"), [("interrupted", True), ("failed", True), ("completed", False), (None, False)])
def test_interrupted_and_failed_runs_go_on(store: Any, status: str | None, may: bool) -> None:
    make(store)
    if status:
        do(store, "runs", "finish", RUN, status)
    if may:
        assert do(store, "runs", "resume", RUN).status == "running"
    else:
        with pytest.raises(TransitionError):
            do(store, "runs", "resume", RUN)


def test_lists_are_newest_first_and_paged(store: Any, clock: FrozenClock) -> None:
    ids = []
    for number in range(5):
        ids.append(make(store, f"run-{number}"))
        clock.advance(seconds=0.6)  # some share a second, and the id decides
    do(store, "runs", "finish", "run-1", "failed")
    assert [*ids_of_pages(ask, store, "runs", "list", limit=2)] == [ids[4:2:-1], ids[2:0:-1], ids[:1]]
    assert [run.id for run in ask(store, "runs", "list", status="failed").items] == ["run-1"]
    assert [run.id for run in ask(store, "runs", "list", status="running").items] == ["run-4", "run-3", "run-2", "run-0"]
    first = ask(store, "runs", "list", limit=1)
    with pytest.raises(InvalidValue):
        ask(store, "runs", "list", limit=1, status="failed", after=first.cursor)


def test_imports_are_registered_under_aliases(store: Any) -> None:
    make(store)
    make(store, OTHER)
    added = do(store, "imports", "add", RUN, "research", "https://example.org/a", inputs_schema={"topic": "string"})
    found = (added.alias, added.source_url, added.inputs_schema, added.outputs_schema)
    assert found == ("research", "https://example.org/a", {"topic": "string"}, None)
    again = do(store, "imports", "add", RUN, "research", "https://example.org/b", outputs_schema=["findings"])
    do(store, "imports", "add", RUN, "a", "https://example.org/c")
    assert ask(store, "imports", "get", RUN, "research") == again
    assert [one.alias for one in ask(store, "imports", "list", RUN)] == ["a", "research"]
    assert ask(store, "imports", "list", OTHER) == []
    with pytest.raises(NotFound):
        ask(store, "imports", "get", OTHER, "research")
    for alias in ("", "a.b"):
        with pytest.raises(InvalidValue):
            do(store, "imports", "add", RUN, alias, "https://example.org/d")


# Which process runs a program: it is noted, it is taken over only when it is gone, and published programs need not know.


ELSEWHERE = "elsewhere.example/5ce2e602/7/8/4711/100/nonce"
MINUTE = timedelta(minutes=1)


@pytest.fixture
def gone() -> str:
    """A process of this machine that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(60)
    return as_pid(process.pid)


def as_pid(pid: int, start: str | None = None) -> str:
    """This process's owner with another pid, and another start."""
    scope, _, started, nonce = this_process_as_owner().rsplit("/", 3)
    return f"{scope}/{pid}/{start or started}/{nonce}"


def held(raw: Raw, owner: str | None, *, status: str = "running", since: str | None = "2026-01-02 03:04:05") -> None:
    """A run that another process holds."""
    zone = "" if raw.is_sqlite or since is None else "+00"
    at = None if since is None else since + zone
    raw.rows("UPDATE run SET held_by = ?, held_since = ?, seen_at = ?, status = ?", owner, at, at, status)


def holder(store: Any) -> tuple[Any, ...]:
    run = ask(store, "runs", "get", RUN)
    return run.status, run.held_by, run.held_since, run.seen_at


def test_a_run_is_this_processs_until_it_ends(store: Any, clock: FrozenClock) -> None:
    make(store)
    begun, mine = clock().replace(microsecond=0), this_process_as_owner()
    assert holder(store) == ("running", mine, begun, begun)
    clock.advance(seconds=60)
    assert do(store, "runs", "seen", RUN).seen_at == clock().replace(microsecond=0)
    assert holder(store)[1:3] == (mine, begun)
    do(store, "runs", "finish", RUN, "interrupted")
    assert holder(store) == ("interrupted", None, None, None)
    clock.advance(seconds=60)
    later = clock().replace(microsecond=0)
    do(store, "runs", "resume", RUN)
    assert holder(store) == ("running", mine, later, later)


@pytest.mark.parametrize("status", ["running", "interrupted", "failed"])
def test_a_process_that_ended_is_followed_at_once(store: Any, raw: Raw, gone: str, status: str) -> None:
    make(store)
    held(raw, gone, status=status)
    assert do(store, "runs", "resume", RUN, stale_after=timedelta.max).status == "running"
    assert holder(store)[1] == this_process_as_owner()


def test_a_process_that_got_the_same_number_is_another_one(store: Any, raw: Raw) -> None:
    make(store)
    held(raw, as_pid(os.getppid(), start="1"))
    do(store, "runs", "resume", RUN, stale_after=timedelta(0))
    assert holder(store)[1] == this_process_as_owner()


@pytest.mark.parametrize("status", ["running", "interrupted", "failed"])
def test_a_process_elsewhere_is_followed_when_it_is_silent(store: Any, raw: Raw, clock: FrozenClock, status: str) -> None:
    make(store)
    held(raw, ELSEWHERE, status=status)
    clock.advance(delta=MINUTE - timedelta(seconds=1))
    before = holder(store)
    with pytest.raises(RunHeld) as caught:
        do(store, "runs", "resume", RUN, stale_after=MINUTE)
    error = caught.value
    assert (error.run_id, error.host, error.pid, error.current) == (RUN, "elsewhere.example", 4711, status)
    assert (error.since, error.seen_at) == before[2:]
    assert "4711 on 'elsewhere.example'" in str(error)
    assert holder(store) == before
    clock.advance(seconds=2)
    with pytest.raises(RunHeld):
        do(store, "runs", "resume", RUN)
    assert do(store, "runs", "resume", RUN, stale_after=MINUTE).held_by == this_process_as_owner()


def test_this_process_is_not_gone(store: Any, clock: FrozenClock) -> None:
    make(store)
    clock.advance(delta=timedelta(days=365))
    with pytest.raises(RunHeld) as caught:
        do(store, "runs", "resume", RUN, stale_after=timedelta(0))
    assert caught.value.pid == os.getpid()


def test_this_process_goes_on_with_its_run_that_another_program_stopped(store: Any, raw: Raw) -> None:
    make(store)
    held(raw, this_process_as_owner(), status="interrupted")
    assert do(store, "runs", "resume", RUN).status == "running"


def test_a_completed_run_is_nobodys_to_resume(store: Any, raw: Raw, gone: str) -> None:
    make(store)
    held(raw, gone, status="completed")
    with pytest.raises(TransitionError) as caught:
        do(store, "runs", "resume", RUN)
    assert not isinstance(caught.value, RunHeld)


def test_seen_is_said_by_who_runs_it(store: Any, raw: Raw, clock: FrozenClock) -> None:
    make(store)
    held(raw, ELSEWHERE)
    before = holder(store)
    clock.advance(delta=timedelta(days=1))
    with pytest.raises(LeaseLost, match="4711") as caught:
        do(store, "runs", "seen", RUN)
    assert (caught.value.kind, caught.value.run_id) == ("program run", RUN)
    assert holder(store) == before
    do(store, "runs", "finish", RUN, "failed")
    with pytest.raises(LeaseLost, match="failed"):
        do(store, "runs", "seen", RUN)
    with pytest.raises(NotFound):
        do(store, "runs", "seen", "gone")


def test_a_run_of_a_published_program_is_resumed_as_before(store: Any, raw: Raw, clock: FrozenClock) -> None:
    """It knows none of the columns, so no process is known."""
    raw.rows("INSERT INTO run (id, program_path) VALUES (?, 'a.prose')", RUN)
    assert holder(store) == ("running", None, None, None)
    with pytest.raises(TransitionError) as caught:
        do(store, "runs", "resume", RUN)
    assert not isinstance(caught.value, RunHeld)
    raw.rows("UPDATE run SET status = 'interrupted'")
    assert do(store, "runs", "resume", RUN).held_by == this_process_as_owner()
    raw.rows("UPDATE run SET held_by = NULL, held_since = NULL, seen_at = NULL, status = 'running'")
    now = clock().replace(microsecond=0)
    do(store, "runs", "seen", RUN)
    assert holder(store) == ("running", this_process_as_owner(), now, now)


@pytest.mark.parametrize("owner", ["", "nobody", "a/b/c/d/e/f/g", f"h/{'/' * 5}", "ü/-/-/-/12/-/x"])
def test_whatever_is_stored_as_a_process_is_waited_for(store: Any, raw: Raw, clock: FrozenClock, owner: str) -> None:
    make(store)
    held(raw, owner)
    with pytest.raises(RunHeld):
        do(store, "runs", "resume", RUN)
    clock.advance(delta=timedelta(hours=1))
    assert do(store, "runs", "resume", RUN).held_by == this_process_as_owner()
    held(raw, owner, since=None)
    assert do(store, "runs", "resume", RUN).held_by == this_process_as_owner()


@pytest.mark.parametrize("backend", ["postgres"])
def test_on_a_server_its_clock_decides(open_store: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose clock is ten minutes ahead follows no process that was seen a moment ago."""
    store = open_store(clock=None)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("persist.programs.storage.run_rows.this_process_as_owner", lambda: ELSEWHERE)
        make(store)
    monkeypatch.setattr(connections, "wall_ns", lambda: time.time_ns() + 600_000_000_000)
    ahead = open_store(clock=None)
    with pytest.raises(RunHeld):
        do(ahead, "runs", "resume", RUN, stale_after=MINUTE * 9)


def test_it_has_what_was_under_way(store: Any) -> None:
    make(store)
    make(store, OTHER)
    begin(store, OTHER)
    done = begin(store)
    do(store, "executions", "complete", RUN, done)
    facts = {"parallel_id": "p1", "strategy": "any", "count": 2, "on_fail": "continue", "branches": ["a", "b", "c"]}
    block = begin(store, metadata=facts)
    first = begin(store, parent=block, metadata={"parallel_id": "p1", "branch": "a"})
    do(store, "executions", "fail", RUN, first, "no")
    again = begin(store, parent=block, metadata={"parallel_id": "p1", "branch": "a"})
    second = begin(store, parent=block, metadata={"parallel_id": "p1", "branch": "b"})
    do(store, "executions", "complete", RUN, second)
    loop = begin(store, metadata={"loop_id": "l1", "max_iterations": 5, "current_iteration": 2, "condition": "**done**"})
    over = begin(store, metadata={"loop_id": "l2"})
    do(store, "executions", "skip", RUN, over)
    bound = bind(store, "x", "1")
    agent = do(store, "agents", "remember", RUN, "captain", "m")
    point = ask(store, "runs", "resume_point", RUN)
    assert point.run == ask(store, "runs", "get", RUN)
    assert [one.id for one in point.executing] == [loop, again, block]
    assert (point.bindings, point.agents) == ([bound], [agent])
    assert [one.model_dump() for one in point.parallel] == [
        {
            "parallel_id": "p1",
            "execution_id": block,
            "strategy": "any",
            "count": 2,
            "on_fail": "continue",
            "branches": {"a": "executing", "b": "completed", "c": "pending"},
        }
    ]
    assert [one.model_dump() for one in point.loops] == [
        {"loop_id": "l1", "execution_id": loop, "current_iteration": 2, "max_iterations": 5, "condition": "**done**"}
    ]


def test_frames_may_use_the_same_parallel_id(store: Any) -> None:
    make(store)
    blocks = [begin(store, metadata={"parallel_id": "p1", "branches": ["a"]}) for _ in range(2)]
    begin(store, parent=blocks[0], metadata={"parallel_id": "p1", "branch": "a"})
    point = ask(store, "runs", "resume_point", RUN)
    found = [(one.execution_id, one.branches) for one in point.parallel]
    assert found == [(blocks[0], {"a": "executing"}), (blocks[1], {"a": "pending"})]


def test_a_run_that_did_nothing_yet(store: Any) -> None:
    make(store)
    point = ask(store, "runs", "resume_point", RUN)
    assert (point.executing, point.bindings, point.agents, point.parallel, point.loops) == ([], [], [], [], [])
