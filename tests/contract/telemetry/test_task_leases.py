"""Claims of tasks that expire: who is late is refused, and who has no lease keeps what was published."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from persist.db.dialects.postgres import connections
from persist.errors import LeaseLost
from persist.testing import FrozenClock
from tests.contract.conftest import Raw
from tests.contract.telemetry.scenes import do, t, task

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
    assert (second.id, second.instance_name, second.claim_token, second.claimed_at) == (
        "a",
        "box-2",
        2,
        t(clock().timestamp() // 1),
    )
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
