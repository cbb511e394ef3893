"""Consumers: every event at least once and in order, whoever else asks, and whatever becomes of who has them."""

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from persist.errors import Conflict, LeaseLost, NotFound
from persist.events.schemas import EventBatch
from tests.contract.events.scenes import events, trim

MINUTE = timedelta(minutes=1)


class Undo(Exception):  # noqa: N818  # an end, and no error
    """Leaves a transaction so that nothing of it stays."""


def note(store: Any, count: int = 1, *, stream: str = "audit", kind: str = "noted") -> None:
    with store.begin() as tx:
        for number in range(count):
            tx.events.append(stream, kind, number)


def take(store: Any, name: str = "outbox", **options: Any) -> EventBatch:
    batch: EventBatch = store.events.consumers.next(name, **options)
    return batch


def ack(store: Any, batch: EventBatch, position: int | None = None) -> bool:
    with store.begin() as tx:
        at = batch.position if position is None else position
        done: bool = tx.events.consumers.ack(batch.consumer, at, token=batch.token)
    return done


def create(store: Any, name: str = "outbox", **options: Any) -> Any:
    return store.events.consumers.create(name, **options)


def consumer(store: Any, name: str = "outbox") -> Any:
    return store.events.consumers.get(name)


def positions(batch: EventBatch) -> list[int]:
    return [event.position for event in batch.events]


def test_events_come_in_order_and_once_they_are_acknowledged_not_again(logging_store: Any) -> None:
    note(logging_store, 5)
    first = take(logging_store, limit=3)
    assert positions(first) == [1, 2, 3]
    assert first.events == events(logging_store)[:3]
    assert ack(logging_store, first)
    second = take(logging_store, limit=3)
    assert positions(second) == [4, 5]
    assert ack(logging_store, second)
    assert not take(logging_store)


def test_others_get_nothing_while_the_lease_lives_and_then_the_same_events(logging_store: Any, clock: Any) -> None:
    note(logging_store, 3)
    first = take(logging_store, limit=2, lease=MINUTE)
    assert first.expires_at == clock() + MINUTE
    clock.advance(delta=MINUTE - timedelta(milliseconds=1))
    waiting = take(logging_store)
    assert (bool(waiting), waiting.position, waiting.expires_at) == (False, 2, None)
    clock.advance(delta=timedelta(milliseconds=1))
    again = take(logging_store, limit=2)
    assert again.events == first.events
    assert again.token > first.token


def test_a_consumer_that_lost_its_lease_is_told(logging_store: Any, clock: Any) -> None:
    note(logging_store, 2)
    late = take(logging_store, lease=MINUTE)
    clock.advance(delta=MINUTE)
    mine = take(logging_store)
    with pytest.raises(LeaseLost, match="another caller") as caught:
        ack(logging_store, late)
    assert (caught.value.run_id, caught.value.token, caught.value.kind) == ("outbox", late.token, "consumer")
    assert consumer(logging_store).position == 0
    assert ack(logging_store, mine)
    with pytest.raises(LeaseLost):
        ack(logging_store, late)


def test_who_is_late_may_acknowledge_what_nobody_else_took(logging_store: Any, clock: Any) -> None:
    note(logging_store, 2)
    batch = take(logging_store, lease=MINUTE)
    clock.advance(delta=2 * MINUTE)
    assert ack(logging_store, batch)
    assert not take(logging_store)


def test_a_part_of_a_batch_is_acknowledged(logging_store: Any, clock: Any) -> None:
    note(logging_store, 4)
    batch = take(logging_store, lease=MINUTE)
    assert ack(logging_store, batch, 2)
    found = consumer(logging_store)
    assert (found.position, found.lease_position, found.behind) == (2, 4, 2)
    assert not take(logging_store)
    clock.advance(delta=MINUTE)
    rest = take(logging_store)
    assert positions(rest) == [3, 4]
    assert ack(logging_store, rest)
    assert (consumer(logging_store).position, consumer(logging_store).lease_position) == (4, None)


def test_acknowledging_again_changes_nothing(logging_store: Any, clock: Any) -> None:
    note(logging_store, 2)
    batch = take(logging_store)
    assert ack(logging_store, batch)
    at = consumer(logging_store).acknowledged_at
    assert at == clock()
    clock.advance(delta=MINUTE)
    assert not ack(logging_store, batch)
    assert not ack(logging_store, batch, 1)
    assert consumer(logging_store).acknowledged_at == at


def test_only_what_is_handed_out_is_acknowledged(logging_store: Any) -> None:
    note(logging_store, 3)
    batch = take(logging_store, limit=2)
    with pytest.raises(LeaseLost, match="not handed out"):
        ack(logging_store, batch, 3)
    with logging_store.begin() as tx:
        assert tx.events.consumers.ack("outbox", 2)
        with pytest.raises(LeaseLost):
            tx.events.consumers.ack("outbox", 3)
    with logging_store.begin() as tx, pytest.raises(NotFound):
        tx.events.consumers.ack("nobody", 1)


def test_consumers_do_not_know_of_each_other(logging_store: Any) -> None:
    note(logging_store, 2)
    assert positions(take(logging_store, "a")) == positions(take(logging_store, "b")) == [1, 2]


def test_what_was_rolled_back_was_neither_handed_out_nor_acknowledged(logging_store: Any) -> None:
    note(logging_store, 2)
    with suppress(Undo), logging_store.begin() as tx:
        tx.events.consumers.next("outbox")
        raise Undo
    batch = take(logging_store)
    assert positions(batch) == [1, 2]
    with suppress(Undo), logging_store.begin() as tx:
        tx.events.consumers.ack("outbox", batch.position, token=batch.token)
        raise Undo
    assert consumer(logging_store).position == 0


def test_a_consumer_makes_no_events(logging_store: Any) -> None:
    note(logging_store)
    before = events(logging_store)
    ack(logging_store, take(logging_store))
    create(logging_store, "other")
    assert logging_store.events.consumers.remove("other")
    assert events(logging_store) == before


def test_what_the_verbs_of_all_domains_did_is_handed_out(logging_store: Any) -> None:
    create(logging_store, types=["run.completed"])
    with logging_store.begin() as tx:
        tx.workflows.runs.create("build", trigger_id="t", current_phase="plan", status="queued", id="run")
        lease = tx.workflows.runs.claim("w", lease=MINUTE)
        tx.workflows.runs.complete(lease)
    batch = take(logging_store)
    assert [(event.stream_id, event.type) for event in batch.events] == [("workflow:run", "run.completed")]


def test_where_a_consumer_begins(logging_store: Any) -> None:
    note(logging_store, 3)
    assert [create(logging_store, name, at=at).position for name, at in (("a", "beginning"), ("b", "now"), ("c", 2))] == [0, 3, 2]
    note(logging_store)
    assert [positions(take(logging_store, name)) for name in "abc"] == [[1, 2, 3, 4], [4], [3, 4]]


def test_a_consumer_is_made_once(logging_store: Any, clock: Any) -> None:
    note(logging_store)
    made = create(logging_store, types=["b", "a", "b"])
    assert (made.name, made.position, made.types, made.behind, made.created_at) == ("outbox", 0, ["a", "b"], 1, clock())
    clock.advance(delta=MINUTE)
    assert create(logging_store, at="now", types=["a", "b"]) == made
    with pytest.raises(Conflict):
        create(logging_store)


def test_types_that_nobody_waits_for_are_passed_over(logging_store: Any) -> None:
    create(logging_store, types=["wanted", "other"])
    note(logging_store, 3)
    assert (bool(empty := take(logging_store)), empty.position) == (False, 3)
    assert consumer(logging_store).position == 3
    note(logging_store, kind="wanted")
    note(logging_store, 2)
    note(logging_store, kind="other")
    note(logging_store)
    batch = take(logging_store, limit=1)
    assert (positions(batch), batch.position) == ([4], 4)
    ack(logging_store, batch)
    batch = take(logging_store)
    assert positions(batch) == [7]
    ack(logging_store, batch)
    assert not take(logging_store)
    assert consumer(logging_store).behind == 0


def test_an_empty_log(store: Any) -> None:
    assert (bool(empty := take(store)), empty.position, empty.token) == (False, 0, 0)
    assert create(store, "late", at="now").position == 0
    store.switch_events(True)
    note(store)
    assert [event.type for event in take(store).events] == ["noted"]


def test_listing_and_removing(logging_store: Any) -> None:
    note(logging_store, 2)
    take(logging_store, "b", limit=1)
    create(logging_store, "a", at="now")
    with logging_store.read() as tx:
        listed = tx.events.consumers.list()
        assert [(one.name, one.position, one.behind, one.lease_position) for one in listed] == [("a", 2, 0, None), ("b", 0, 2, 1)]
        assert tx.events.consumers.list(limit=1) == listed[:1]
        assert tx.events.consumers.get("b") == listed[1]
        with pytest.raises(NotFound):
            tx.events.consumers.get("c")
    with logging_store.begin() as tx:
        assert tx.events.consumers.remove("b")
        assert not tx.events.consumers.remove("b")
    assert positions(take(logging_store, "b")) == [1, 2]


def test_trimming_keeps_what_a_consumer_has_not_acknowledged(logging_store: Any) -> None:
    note(logging_store, 4)
    note(logging_store, stream="other")
    batch = take(logging_store, limit=2)
    assert trim(logging_store, "audit", keep=0) == 0
    assert trim(logging_store, keep=0) == 0
    ack(logging_store, batch)
    assert trim(logging_store, keep=0) == 2
    rest = take(logging_store)
    assert [(event.stream_id, event.seq) for event in rest.events][:3] == [("audit", 3), ("audit", 4), ("other", 1)]
    ack(logging_store, rest)
    assert trim(logging_store, keep=0) == 3
    assert [(event.stream_id, event.type) for event in take(logging_store).events] == [("other", "snapshot")]


def test_the_slowest_consumer_decides_until_it_is_removed(logging_store: Any) -> None:
    note(logging_store, 3)
    create(logging_store, "slow")
    ack(logging_store, take(logging_store, "quick"))
    assert trim(logging_store, "audit", keep=0) == 0
    logging_store.events.consumers.remove("slow")
    assert trim(logging_store, "audit", keep=0) == 3


def test_a_consumer_passes_over_what_was_trimmed_before_it_began(logging_store: Any) -> None:
    note(logging_store, 3)
    trim(logging_store, keep=1)
    assert positions(take(logging_store)) == [3, 4]
    logging_store.switch_events(False)
    with logging_store.begin() as tx:
        tx.events.consumers.remove("outbox")
        tx.events.trim(keep=0)
        empty = tx.events.consumers.next("outbox")
    assert (bool(empty), empty.position) == (False, 4)
