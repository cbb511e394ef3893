"""The queue of a workspace: found once, claimed one at a time, ended once."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from persist import Store
from persist.errors import InvalidValue
from persist.maintenance import doctor
from persist.testing import FrozenClock
from tests.cases import each
from tests.contract.telemetry.scenes import do, t, task

WHOLE = task(
    "github/a/b#1",
    body="Long \x00 text \ud83d",
    links=["https://github.com/a/b/issues/1"],
    labels=["bug", {"name": "p1"}],
    discovered_at=t(100),
)


def poll(store: Any, here: dict[str, str], *found: dict[str, Any]) -> int:
    return int(do(store, "tasks", "poll", list(found), **here))


def states(store: Any, here: dict[str, str]) -> dict[str, str]:
    return {task.id: str(task.state) for task in do(store, "tasks", "list", **here)}


def test_polling_twice_finds_once(store: Any, here: dict[str, str]) -> None:
    """12"""
    assert poll(store, here, WHOLE, task("b")) == 2
    assert poll(store, here, WHOLE | {"title": "renamed"}, task("b"), task("c"), task("c")) == 1
    found = do(store, "tasks", "list", **here)
    assert {task.id: task.title for task in found} == {WHOLE["id"]: "Do github/a/b#1", "b": "Do b", "c": "Do c"}
    assert poll(store, here) == 0


def test_a_task_comes_back_as_it_was_found(store: Any, here: dict[str, str], clock: FrozenClock) -> None:
    poll(store, here, WHOLE, task("b"))
    whole, plain = do(store, "tasks", "list", **here)
    assert whole.model_dump(include=set(WHOLE)) == WHOLE
    assert (whole.state, whole.instance_name, whole.claimed_at, whole.completed_at, whole.outcome) == ("queued", *[None] * 4)
    assert (plain.body, plain.links, plain.labels) == (None, [], [])
    assert plain.discovered_at == clock().replace(microsecond=0)


def test_claims_are_first_in_first_out(store: Any, here: dict[str, str], clock: FrozenClock) -> None:
    poll(store, here, *(task(id, discovered_at=t(at)) for id, at in (("late", 300), ("b", 100), ("a", 100), ("c", 200))))
    claimed = [do(store, "tasks", "claim", f"box-{number}", max_parallel=9, **here) for number in range(5)]
    assert [task and task.id for task in claimed] == ["a", "b", "c", "late", None]
    assert (claimed[0].state, claimed[0].instance_name) == ("in_progress", "box-0")
    assert claimed[0].claimed_at == clock().replace(microsecond=0)
    assert do(store, "tasks", "list", state="in_progress", **here)[0] == claimed[0]


def test_no_more_are_in_progress_than_may(store: Any, here: dict[str, str]) -> None:
    poll(store, here, task("a"), task("b"), task("c"))
    assert do(store, "tasks", "claim", "x", **here).id == "a"
    assert do(store, "tasks", "claim", "y", **here) is None
    assert do(store, "tasks", "claim", "y", max_parallel=2, **here).id == "b"
    assert do(store, "tasks", "claim", "z", max_parallel=2, **here) is None
    assert do(store, "tasks", "complete", "a", **here)
    assert do(store, "tasks", "claim", "z", max_parallel=2, **here).id == "c"


def test_a_failed_task_stays_failed_until_somebody_retries(store: Any, here: dict[str, str], clock: FrozenClock) -> None:
    """12"""
    poll(store, here, WHOLE)
    do(store, "tasks", "claim", "x", **here)
    assert do(store, "tasks", "fail", WHOLE["id"], outcome="no \x00 luck", **here)
    failed = do(store, "tasks", "list", state="failed", **here)[0]
    assert (failed.outcome, failed.instance_name) == ("no \x00 luck", "x")
    assert failed.completed_at == clock().replace(microsecond=0)
    assert poll(store, here, WHOLE) == 0
    assert do(store, "tasks", "claim", "x", **here) is None
    assert states(store, here) == {WHOLE["id"]: "failed"}
    assert do(store, "tasks", "retry", WHOLE["id"], **here)
    again = do(store, "tasks", "list", **here)[0]
    assert (again.state, again.outcome, again.instance_name, again.claimed_at, again.completed_at) == ("queued", *[None] * 4)
    assert do(store, "tasks", "claim", "y", **here).instance_name == "y"


def undo(store: Any, verb: str, here: dict[str, str]) -> None:
    """It follows, in a transaction that is rolled back."""
    with store.begin() as tx:
        assert getattr(tx.telemetry.tasks, verb)("a", **here)
        raise ZeroDivisionError


@pytest.mark.parametrize("state", ["queued", "in_progress", "completed", "failed", "cancelled"])
def test_only_what_may_follow_follows(store: Any, here: dict[str, str], state: str) -> None:
    """12"""
    poll(store, here, task("a"))
    if state == "cancelled":
        do(store, "tasks", "cancel", "a", **here)
    elif state != "queued":
        do(store, "tasks", "claim", "x", **here)
    if state in ("completed", "failed"):
        do(store, "tasks", "complete" if state == "completed" else "fail", "a", outcome="first", **here)
    before = do(store, "tasks", "list", **here)
    may = {"queued": {"cancel"}, "in_progress": {"complete", "fail"}, "failed": {"retry"}}.get(state, set())
    with store.begin() as tx:
        for verb in {"complete", "fail", "retry", "cancel"} - may:
            assert not getattr(tx.telemetry.tasks, verb)("a", **here)
    assert do(store, "tasks", "list", **here) == before
    for verb in sorted(may):
        with pytest.raises(ZeroDivisionError):
            undo(store, verb, here)


def test_a_task_that_is_not_there(store: Any, here: dict[str, str]) -> None:
    for verb in ("complete", "fail", "retry", "cancel"):
        assert not do(store, "tasks", verb, "nothing", **here)


def test_completed_tasks_are_purged_when_they_are_old(store: Any, here: dict[str, str], clock: FrozenClock) -> None:
    poll(store, here, *map(task, "abcd"))
    for verb in ("complete", "fail"):
        do(store, "tasks", verb, do(store, "tasks", "claim", "x", **here).id, **here)
    do(store, "tasks", "cancel", "c", **here)
    clock.advance(delta=timedelta(days=7))
    assert do(store, "tasks", "purge", timedelta(days=7), **here) == 0
    clock.advance(seconds=1)
    assert do(store, "tasks", "purge", timedelta.max, **here) == 0
    assert do(store, "tasks", "purge", timedelta(days=7), **here) == 1
    assert states(store, here) == {"b": "failed", "c": "cancelled", "d": "queued"}


def test_workspaces_have_queues_of_their_own(store: Any) -> None:
    for name in ("one", "two"):
        assert do(store, "tasks", "poll", [task("a")], workspace_id=name) == 1
        claimed = do(store, "tasks", "claim", "x", workspace_id=name)
        assert (claimed.id, claimed.workspace_id) == ("a", name)
    assert do(store, "tasks", "complete", "a", workspace_id="one")
    assert [task.state for task in do(store, "tasks", "list", workspace_id="two")] == ["in_progress"]


@each(
    "wrong",
    [
        {"id": ""},
        {"id": None},
        {"title": 5},
        {"surprise": 1},
        {"labels": "bug"},
        {"links": [float("nan")]},
        {"discovered_at": datetime(2026, 1, 1)},
    ],
)
def test_a_wrong_task_is_refused_with_all_of_its_poll(store: Any, here: dict[str, str], wrong: dict[str, Any]) -> None:
    with store.begin() as tx:
        with pytest.raises(InvalidValue, match=r"discovered\[1\]"):
            tx.telemetry.tasks.poll([task("a"), task("b") | wrong], **here)
        assert tx.telemetry.tasks.list(**here) == []


@each("column", ["links", "labels"])
@each("value", ['{"a": 1}', "7", '"x"', "null"])
def test_a_task_that_lists_leave_out_is_found_by_the_doctor(
    store: Any, raw: Any, database_url: str, here: dict[str, str], column: str, value: str
) -> None:
    poll(store, here, task("a"), task("b"))
    raw.rows(f"UPDATE tasks SET {column} = '{value}' WHERE id = 'a'")
    assert list(states(store, here)) == ["b"]
    with Store.open(database_url) as keeper:
        (finding,) = doctor(keeper, fix=True)
        assert (finding.code, finding.fixed, f"{column} holds" in finding.message) == ("unreadable", True, True)
        assert doctor(keeper) == []
    assert poll(store, here, task("a")) == 1
    assert sorted(states(store, here)) == ["a", "b"]
