"""A verb that is refused has written nothing, even where it checks and writes at once: the transaction goes on and commits."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue, LeaseLost, NotFound, PayloadTooLarge, TransitionError
from persist.settings import Settings
from persist.testing import FrozenClock
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.faces import on_one_face
from tests.contract.workflows.scenes import HOUR, NESTED, NOWHERE, TRIGGER, ask, do, held, make, queue, start, stored

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
    with store.read() as tx:
        assert tx.workflows.executions.for_run(lease.run_id) == []


def test_a_lease_of_another_run_or_that_is_over_changes_nothing(store: Any, clock: FrozenClock) -> None:
    mine, theirs = held(store, "me"), held(store, "you")
    with store.begin() as tx:
        with pytest.raises(InvalidValue, match="lease"):
            tx.workflows.runs.append_phase(theirs.run_id, "p", lease=mine)
        with pytest.raises(InvalidValue, match="lease"):
            tx.workflows.executions.start(workflow_run_id=theirs.run_id, lease=mine, **GIVEN)
        tx.workflows.runs.append_phase(mine.run_id, "p", lease=mine)
    clock.advance(delta=2 * HOUR)
    with store.begin() as tx:
        with pytest.raises(LeaseLost):
            tx.workflows.runs.append_phase(mine.run_id, "q", lease=mine)
        with pytest.raises(LeaseLost):
            tx.workflows.runs.renew(mine, lease_for=HOUR)
        with pytest.raises(LeaseLost):
            tx.workflows.executions.start(workflow_run_id=mine.run_id, lease=mine, **GIVEN)
        tx.workflows.runs.append_phase(mine.run_id, "r")  # without one, as nobody holds the run any more
    assert [entry["phase"] for entry in stored(store, mine.run_id).phase_history] == ["p", "r"]


def test_a_taken_id_of_an_execution_of_a_run(store: Any) -> None:
    run = make(store)
    first = start(store, run, id="mine")
    with store.begin() as tx:
        with pytest.raises(Conflict, match="taken") as caught:
            tx.workflows.executions.start(workflow_run_id=run.id, id="mine", **{**GIVEN, "skill": "build:other"})
        assert caught.value.constraint == "pk_executions"
        second = tx.workflows.executions.start(workflow_run_id=run.id, **GIVEN)
    with store.read() as tx:
        found = {one.id: one.skill for one in tx.workflows.executions.for_run(run.id)}
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


def test_a_lease_ends_with_the_calendar(store: Any) -> None:
    lease = held(store)
    with store.begin() as tx:
        with pytest.raises(InvalidValue, match="lease_for"):
            tx.workflows.runs.renew(lease, lease_for=timedelta.max)
        renewed = tx.workflows.runs.renew(lease, lease_for=2 * HOUR)
    assert renewed.expires_at == lease.expires_at + HOUR
