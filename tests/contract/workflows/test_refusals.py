"""A verb that is refused has written nothing; what is made once for its key; the first and the last instants there are."""

import io
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest

from persist import Store
from persist.db.dialects.postgres import connections
from persist.errors import Conflict, InvalidValue, LeaseLost, NotFound, PayloadTooLarge, TransitionError
from persist.maintenance import export
from persist.settings import Settings
from persist.testing import FrozenClock
from tests.at_once import together
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.faces import on_one_face
from tests.contract.workflows.scenes import HOUR, NESTED, NOWHERE, TRIGGER, ask, claim, do, held, make, queue, start, stored

Tx = Any
GIVEN = {"trigger_type": "cli", "trigger_id": TRIGGER, "skill": "build:plan"}


def _ended(tx: Tx) -> str:
    return str(tx.workflows.runs.create("build", trigger_id=TRIGGER, current_phase="p", status="failed").id)


def _answered(tx: Tx) -> str:
    run = tx.workflows.runs.create("build", trigger_id=TRIGGER, current_phase="p")
    gate = tx.workflows.approvals.request(run.id, gate="g", summary="s")
    assert tx.workflows.approvals.respond(gate.id, approved=False)
    return str(gate.id)


REFUSED: list[tuple[type[Exception], Callable[[Tx], object]]] = [
    (NotFound, lambda tx: tx.workflows.runs.append_phase(NOWHERE, "p")),
    (NotFound, lambda tx: tx.workflows.runs.merge_scratch(NOWHERE, {"a": 1})),
    (NotFound, lambda tx: tx.workflows.runs.update_node_status(NOWHERE, "n", 1)),
    (NotFound, lambda tx: tx.workflows.runs.finish(NOWHERE, "failed")),
    (NotFound, lambda tx: tx.workflows.runs.increment_restart_count(NOWHERE)),
    (TransitionError, lambda tx: tx.workflows.runs.finish(_ended(tx), "failed")),
    (NotFound, lambda tx: tx.workflows.executions.start(workflow_run_id=NOWHERE, **GIVEN)),
    (NotFound, lambda tx: tx.workflows.approvals.request(NOWHERE, gate="g", summary="s")),
    (Conflict, lambda tx: tx.workflows.approvals.request(_ended(tx), gate="g", summary="s")),
    (NotFound, lambda tx: tx.workflows.approvals.pause_for_approval(NOWHERE, gate="g", summary="s", marker=("p", None))),
    (
        TransitionError,
        lambda tx: tx.workflows.approvals.pause_for_approval(_ended(tx), gate="g", summary="s", marker=("p", None)),
    ),
    (NotFound, lambda tx: tx.workflows.approvals.resolve_and_resume(NOWHERE)),
    (Conflict, lambda tx: tx.workflows.approvals.resolve_and_resume(_answered(tx))),
    (NotFound, lambda tx: tx.workflows.approvals.resolve_and_fail(NOWHERE)),
    (Conflict, lambda tx: tx.workflows.approvals.resolve_and_fail(_answered(tx))),
]


@on_one_face
@each(("error", "verb"), REFUSED)
def test_the_transaction_goes_on(store: Any, error: type[Exception], verb: Callable[[Tx], object]) -> None:
    with store.begin() as tx:
        with pytest.raises(error):
            verb(tx)
        run = tx.workflows.runs.create("after", trigger_id=TRIGGER, current_phase="p")
    assert stored(store, run.id).workflow_name == "after"


def test_a_write_without_the_lease_changes_nothing(store: Any) -> None:
    lease = held(store)
    before = stored(store, lease.run_id)
    with store.begin() as tx:
        with pytest.raises(LeaseLost):
            tx.workflows.runs.append_phase(lease.run_id, "p")
        with pytest.raises(LeaseLost):
            tx.workflows.executions.start(workflow_run_id=lease.run_id, **GIVEN)
        other = tx.workflows.runs.create("after", trigger_id=TRIGGER, current_phase="p")
    assert stored(store, lease.run_id) == before
    assert stored(store, other.id).workflow_name == "after"
    assert store.workflows.executions.for_run(lease.run_id) == []


def test_a_taken_id_of_an_execution_of_a_run(store: Any) -> None:
    run = make(store)
    first = start(store, run, id="mine")
    with store.begin() as tx:
        with pytest.raises(Conflict, match="taken") as caught:
            tx.workflows.executions.start(workflow_run_id=run.id, id="mine", **{**GIVEN, "skill": "build:other"})
        assert caught.value.constraint == "pk_executions"
        second = tx.workflows.executions.start(workflow_run_id=run.id, **GIVEN)
    found = {one.id: one.skill for one in store.workflows.executions.for_run(run.id)}
    assert found == {first: "build:plan", second.id: "build:plan"}


def test_a_history_grows_up_to_its_limit_and_not_beyond(open_store: Callable[..., Any]) -> None:
    """Also where the stored form of an entry is longer than its JSON text, which counts."""
    store = open_store(settings=Settings(max_history_bytes=1000, max_scratch_bytes=200))
    run = make(store)
    entry = {"zz": 1, "a": "x" * 30, "é": "\x00"}
    grown = 9  # of 110 bytes each, which with commas and brackets is just the limit
    with store.begin() as tx:
        for number in range(grown):
            assert len(tx.workflows.runs.append_phase(run.id, "p", entry).phase_history) == number + 1
        with pytest.raises(PayloadTooLarge, match="phase_history"):
            tx.workflows.runs.append_phase(run.id, "p", entry)
        merged = tx.workflows.runs.merge_scratch(run.id, {"a": 1})
    assert stored(store, run.id) == merged
    assert [list(one) for one in merged.phase_history] == [["phase", "timestamp", "zz", "a", "é"]] * grown


def test_what_is_appended_is_what_is_read(store: Any) -> None:
    run = make(store)
    entries: list[Any] = [NESTED, {"b": 1, "a": [{"z": 1, "y": 2}]}, "text", None, [1, 1e22, -0.5], {"\ufdd0": "\ufdd0"}]
    for entry in entries:
        appended = do(store, "append_phase", run.id, "p", entry)
        assert appended == stored(store, run.id)
    for entry, kept in zip(entries, appended.phase_history, strict=True):
        fields = {} if entry is None else entry if isinstance(entry, dict) else {"value": entry}
        assert {name: value for name, value in kept.items() if name not in ("phase", "timestamp")} == fields
        assert list(kept) == ["phase", "timestamp", *fields]


def test_a_claim_passes_by_a_run_that_only_its_text_shows_to_be_unreadable(store: Any, raw: Raw) -> None:
    """Its claim is undone, whatever the claim has found out by itself."""
    bad, good = queue(store), queue(store)
    deep = "[" * 2000 + "]" * 2000
    raw.rows("UPDATE workflow_runs SET scratch = ? WHERE id = ?", f'{{"a": {deep}}}', bad)
    kept = "SELECT status, lease_owner, lease_expires_at, lease_token, updated_at FROM workflow_runs WHERE id = ?"
    before = raw.rows(kept, bad)
    with store.begin() as tx:
        lease = tx.workflows.runs.claim("w", lease=HOUR)
        assert lease is not None
        assert lease.run_id == good
        assert tx.workflows.runs.claim("w", lease=HOUR) is None
    assert raw.rows(kept, bad) == before
    assert ask(store, "held_by", "w") == [lease]


# Runs, executions and gates that are made once, however often and by however many they are asked for.


def test_a_replayed_key_returns_the_first_run(store: Any, clock: Any) -> None:
    first = make(store, idempotency_key="delivery-1", context={"a": 1})
    clock.advance(seconds=5)
    assert make(store, idempotency_key="delivery-1", context={"a": 2}) == first
    assert make(store, idempotency_key="delivery-1", id="another") == first
    do(store, "finish", first.id, "succeeded")
    assert make(store, idempotency_key="delivery-1").status == "succeeded"
    assert first.idempotency_key == "delivery-1"
    others = {
        make(store).id,
        make(store).id,
        make(store, idempotency_key="delivery-2").id,
        make(store, "label", idempotency_key="delivery-1").id,
    }
    assert len(others | {first.id}) == 5


def test_a_key_is_refused_where_it_cannot_mean_the_same_run(store: Any) -> None:
    first = make(store, idempotency_key="k")
    with pytest.raises(Conflict, match=first.id):
        make(store, idempotency_key="k", if_exists="conflict")
    with pytest.raises(Conflict, match="another trigger"):
        make(store, idempotency_key="k", trigger_id="issue/other")
    with pytest.raises(Conflict):
        make(store, idempotency_key="new", id=first.id)
    assert len(ask(store, "list").items) == 1


def test_a_trigger_has_one_unfinished_run(store: Any, clock: Any) -> None:
    queued = make(store, status="queued", unique_trigger=True)
    assert make(store, unique_trigger=True) == queued
    lease = do(store, "claim", "w", lease=timedelta(hours=1))
    assert make(store, unique_trigger=True).status == "running"
    do(store, "pause", queued.id, lease=lease)
    assert make(store, unique_trigger=True).status == "paused"
    with pytest.raises(Conflict, match=queued.id):
        make(store, unique_trigger=True, if_exists="conflict")
    assert make(store, unique_trigger=True, trigger_id="issue/other").id != queued.id
    assert make(store, "label", unique_trigger=True).id != queued.id
    assert make(store).id != queued.id, "others may share the trigger"
    do(store, "cancel", queued.id)
    successor = make(store, unique_trigger=True)
    assert successor.id != queued.id
    with pytest.raises(Conflict, match="has another unfinished run"):
        do(store, "restart", queued.id)
    assert stored(store, queued.id).status == "cancelled"
    do(store, "finish", successor.id, "failed")
    assert do(store, "restart", queued.id) is True


def test_an_execution_begins_once_for_its_key(store: Any) -> None:
    run = make(store)
    with store.begin() as tx:
        executions = tx.workflows.executions
        given = {"trigger_type": "github", "trigger_id": run.trigger_id, "skill": "build:plan", "workflow_run_id": run.id}
        first = executions.start(**given, idempotency_key="k")
        assert executions.start(**given, idempotency_key="k") == first
        assert first.idempotency_key == "k"
        executions.finish(first.id, success=True)
        assert executions.start(**given, idempotency_key="k").success is True
        with pytest.raises(Conflict):
            executions.start(**{**given, "skill": "build:apply"}, idempotency_key="k")
        assert executions.start(**given).id != first.id
    assert start(store, run) != first.id


def test_a_gate_opens_once_for_its_key(store: Any) -> None:
    run, other = make(store), make(store)
    with store.begin() as tx:
        approvals = tx.workflows.approvals
        first = approvals.request(run.id, gate="review", summary="?", idempotency_key="k")
        assert approvals.request(run.id, gate="review", summary="?", idempotency_key="k") == first
        approvals.respond(first.id, approved=True)
        assert approvals.request(run.id, gate="review", summary="?", idempotency_key="k").status == "approved"
        assert approvals.request(other.id, gate="review", summary="?", idempotency_key="k").id != first.id
        assert approvals.request(run.id, gate="review", summary="?").id != first.id


@pytest.mark.parametrize("options", [{"idempotency_key": "k"}, {"unique_trigger": True}])
def test_of_many_at_once_one_makes_the_run(open_store: Any, options: dict[str, Any]) -> None:
    stores = [open_store() for _ in range(4)]
    made: list[str] = []

    def ask_for_it(store: Any) -> None:
        for _ in range(5):
            made.append(make(store, **options).id)

    together([partial(ask_for_it, store) for store in stores])
    assert len(made) == 20
    assert len(set(made)) == 1


# The first and the last instants that Python knows, on servers in any time zone.


LAST = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
FIRST = datetime(1, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("at", [LAST, datetime(9999, 12, 31, 18, 30, tzinfo=UTC), FIRST, datetime(1, 1, 1, 1, tzinfo=UTC)])
def test_an_instant_at_the_end_of_time_comes_back(open_store: Callable[..., Any], at: datetime) -> None:
    store = open_store(clock=FrozenClock(at))
    with store.begin() as tx:
        run = tx.workflows.runs.create("triage", trigger_id="issue/1", current_phase="plan")
        session = tx.messaging.sessions.get_or_create(platform="slack", channel_id="C", user_id="U")
        tx.programs.runs.create(id="r")
    with store.read() as tx:
        assert tx.workflows.runs.get(run.id) == run
        assert run.started_at == at.replace(microsecond=at.microsecond // 1000 * 1000)
        assert [one.id for one in tx.workflows.runs.list(since=at).items] == [run.id]
        assert tx.messaging.sessions.get(session.id) == session
        assert tx.programs.runs.get("r").started_at == at.replace(microsecond=0)


@pytest.mark.parametrize(
    "at", [LAST.replace(tzinfo=timezone(timedelta(hours=-1))), FIRST.replace(tzinfo=timezone(timedelta(hours=1)))]
)
def test_an_instant_beyond_it_is_refused(store: Any, at: datetime) -> None:
    with store.read() as tx, pytest.raises(InvalidValue):
        tx.workflows.runs.list(since=at)


def test_the_zone_of_the_machine_does_not_matter(database_url: str, clock: FrozenClock, time_zone: Callable[[str], None]) -> None:
    time_zone("America/New_York")
    with Store.open(database_url, clock=clock) as store:
        with store.begin() as tx:
            tx.workflows.runs.create("triage", trigger_id="issue/1", current_phase="plan", id="r")
            tx.programs.runs.create(id="r")
        assert store.workflows.runs.get("r").started_at == clock()
        written = io.BytesIO()
        export(store, written)
    lines = map(json.loads, written.getvalue().splitlines())
    started = [line["row"]["started_at"] for line in lines if line.get("table") in ("workflow_runs", "run")]
    assert sorted(started) == ["2026-01-02 03:04:05", "2026-01-02T03:04:05.678Z"]


# On a server all leases go by its clock, whatever the clocks of the workers say.


FIVE_MINUTES = timedelta(minutes=5)
TEN_MINUTES_NS = 600_000_000_000


@pytest.mark.parametrize("backend", ["postgres"])
@pytest.mark.parametrize("off", [TEN_MINUTES_NS, -TEN_MINUTES_NS])
def test_workers_whose_clocks_disagree(open_store: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, off: int) -> None:
    store = open_store(clock=None)
    monkeypatch.setattr(connections, "wall_ns", lambda: time.time_ns() + off)
    other = open_store(clock=None)
    lease = held(store, "w1", lease=FIVE_MINUTES)
    assert claim(other, "w2") is None  # nobody takes what is held
    theirs = held(other, "w2", lease=FIVE_MINUTES)
    assert claim(store, "w1") is None
    assert abs(theirs.expires_at - lease.expires_at) < FIVE_MINUTES
    do(store, "complete", lease)
    do(other, "complete", theirs)
