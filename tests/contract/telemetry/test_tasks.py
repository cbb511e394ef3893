"""The queue of a workspace: found once, claimed one at a time, ended once."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from persist import Store
from persist.db.dialects.postgres import connections
from persist.errors import InvalidValue, LeaseLost
from persist.maintenance import doctor
from persist.testing import FrozenClock
from tests.cases import each
from tests.contract.conftest import Raw
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


# Claims of tasks that expire: who is late is refused, and who has no lease keeps what was published.


FIVE = timedelta(minutes=5)


@pytest.fixture
def queue(store: Any, here: dict[str, str]) -> Callable[..., Any]:
    """`queue(verb, …)` is a verb on the tasks a, b and c, found in this order."""
    do(store, "tasks", "poll", [task(id, discovered_at=t(at)) for at, id in enumerate("abc")], **here)
    return lambda verb, *values, **named: do(store, "tasks", verb, *values, **named, **here)


def state(store: Any, here: dict[str, str], id: str = "a") -> Any:
    return next(task for task in do(store, "tasks", "list", **here) if task.id == id)


def test_a_claim_with_a_lease_ends_with_it(
    store: Any, queue: Callable[..., Any], here: dict[str, str], clock: FrozenClock
) -> None:
    first = queue("claim", "box-1", lease=FIVE)
    assert (first.id, first.claim_expires_at, first.claim_token) == ("a", clock() + FIVE, 1)
    clock.advance(delta=FIVE - timedelta(milliseconds=1))
    assert queue("claim", "box-2") is None
    clock.advance(seconds=0.001)
    second = queue("claim", "box-2", lease=FIVE)
    shown = (second.id, second.instance_name, second.claim_token, second.claimed_at)
    assert shown == ("a", "box-2", 2, t(clock().timestamp() // 1))
    assert state(store, here) == second


@pytest.mark.parametrize("verb", ["complete", "fail", "renew"])
@pytest.mark.parametrize("taken", [True, False])
def test_the_late_instance_is_refused(
    store: Any, queue: Callable[..., Any], here: dict[str, str], clock: FrozenClock, verb: str, taken: bool
) -> None:
    late = queue("claim", "box-1", lease=FIVE)
    clock.advance(delta=FIVE)
    if taken:
        queue("claim", "box-2", lease=FIVE)
    before = state(store, here)
    with pytest.raises(LeaseLost) as caught:
        queue(verb, "a", *([FIVE] if verb == "renew" else []), token=late.claim_token)
    assert (caught.value.kind, caught.value.run_id, caught.value.token) == ("task", "a", 1)
    assert state(store, here) == before
    if taken:
        assert queue("complete", "a", token=before.claim_token, outcome="fixed")
        done = state(store, here)
        assert (done.state, done.instance_name, done.claim_token, done.claim_expires_at) == ("completed", "box-2", 2, None)
        with pytest.raises(LeaseLost):
            queue(verb, "a", *([FIVE] if verb == "renew" else []), token=late.claim_token)


def test_a_renewed_claim_goes_on(queue: Callable[..., Any], clock: FrozenClock) -> None:
    claimed = queue("claim", "box-1", lease=FIVE)
    for _ in range(3):
        clock.advance(delta=FIVE - timedelta(seconds=1))
        renewed = queue("renew", "a", FIVE, token=claimed.claim_token)
        assert (renewed.claim_token, renewed.claim_expires_at) == (claimed.claim_token, clock() + FIVE)
        assert queue("claim", "box-2") is None
    assert queue("complete", "a", token=claimed.claim_token)
    assert not queue("complete", "a", token=claimed.claim_token)
    with pytest.raises(LeaseLost, match="ended"):
        queue("renew", "a", FIVE, token=claimed.claim_token)


def test_a_claim_without_a_lease_lasts_as_before(queue: Callable[..., Any], clock: FrozenClock) -> None:
    claimed = queue("claim", "box-1")
    assert claimed.claim_expires_at is None
    clock.advance(delta=timedelta(days=3650))
    assert queue("claim", "box-2") is None
    assert queue("complete", "a")
    for verb, options in (("fail", {}), ("complete", {"token": 1})):
        claimed = queue("claim", "box-1")
        with pytest.raises(LeaseLost, match="followed"):
            queue(verb, claimed.id, token=claimed.claim_token + 1)
        assert queue(verb, claimed.id, **options)


def test_one_without_a_lease_gets_one_by_a_renewal(queue: Callable[..., Any], clock: FrozenClock) -> None:
    claimed = queue("claim", "box-1")
    assert queue("renew", "a", FIVE, token=claimed.claim_token).claim_expires_at == clock() + FIVE
    clock.advance(delta=FIVE)
    assert queue("claim", "box-2").claim_token == 2


@pytest.mark.parametrize("verb", ["complete", "fail"])
def test_who_has_a_lease_says_so(store: Any, queue: Callable[..., Any], here: dict[str, str], verb: str) -> None:
    queue("claim", "box-1", lease=FIVE)
    before = state(store, here)
    with pytest.raises(LeaseLost) as caught:
        queue(verb, "a")
    assert caught.value.token is None
    assert state(store, here) == before
    assert not queue(verb, "b", token=0)
    assert not queue(verb, "nothing", token=1)


def test_expired_claims_come_first_and_count_as_nobodys(queue: Callable[..., Any], clock: FrozenClock) -> None:
    for box, span in (("box-1", FIVE), ("box-2", FIVE * 2)):
        assert queue("claim", box, max_parallel=2, lease=span)
    assert queue("claim", "box-3", max_parallel=2) is None
    clock.advance(delta=FIVE)
    assert queue("claim", "box-3", max_parallel=1) is None
    again = queue("claim", "box-3", max_parallel=2)
    assert (again.id, again.claim_expires_at) == ("a", None)
    clock.advance(delta=FIVE)
    assert [queue("claim", "box-4", max_parallel=3).id for _ in range(2)] == ["b", "c"]


def test_a_task_that_is_queued_again_has_no_lease_left(
    store: Any, queue: Callable[..., Any], here: dict[str, str], clock: FrozenClock
) -> None:
    claimed = queue("claim", "box-1", lease=FIVE)
    assert queue("fail", "a", token=claimed.claim_token)
    assert queue("retry", "a")
    again = state(store, here)
    assert (again.state, again.claim_token, again.claim_expires_at) == ("queued", 1, None)
    assert queue("claim", "box-2").claim_token == 2
    clock.advance(delta=FIVE * 2)
    assert queue("claim", "box-3") is None


def test_what_an_older_release_writes_works_unchanged(store: Any, here: dict[str, str], raw: Raw, clock: FrozenClock) -> None:
    """Its statements name none of the new columns."""
    owner = here.get("workspace_id", "")
    raw.rows(
        "INSERT INTO tasks (workspace_id, id, source_id, kind, title, state, discovered_at, labels, links) "
        f"VALUES ('{owner}', 'a', 's', 'issue', 't', 'queued', 0, '[]', '[]')"
    )
    raw.rows("UPDATE tasks SET state = 'in_progress', instance_name = 'old', claimed_at = 5 WHERE id = 'a' AND state = 'queued'")
    clock.advance(delta=timedelta(days=1))
    assert do(store, "tasks", "claim", "box-1", lease=FIVE, **here) is None
    claimed = state(store, here)
    assert (claimed.instance_name, claimed.claim_token, claimed.claim_expires_at) == ("old", 0, None)
    assert do(store, "tasks", "fail", "a", **here)
    assert do(store, "tasks", "retry", "a", **here)
    assert do(store, "tasks", "claim", "box-1", lease=FIVE, **here).claim_token == 1
    raw.rows("UPDATE tasks SET state = 'completed', completed_at = 9 WHERE id = 'a' AND state = 'in_progress'")
    assert not do(store, "tasks", "complete", "a", token=1, **here)


@pytest.mark.parametrize("backend", ["postgres"])
def test_on_a_server_its_clock_decides(
    open_store: Callable[..., Any], here: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine whose clock is ten minutes ahead takes nobody's task."""
    store = open_store(clock=None)
    do(store, "tasks", "poll", [task("a")], **here)
    claimed = do(store, "tasks", "claim", "box-1", lease=FIVE, **here)
    monkeypatch.setattr(connections, "wall_ns", lambda: time.time_ns() + 600_000_000_000)
    ahead = open_store(clock=None)
    assert do(ahead, "tasks", "claim", "box-2", lease=FIVE, **here) is None
    assert (
        do(ahead, "tasks", "renew", "a", FIVE, token=claimed.claim_token, **here).claim_expires_at
        < claimed.claim_expires_at + FIVE
    )
    assert do(store, "tasks", "complete", "a", token=claimed.claim_token, **here)
