"""What doctor says of runs that wait for their children, and of gates that expire."""

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy

from persist import Store
from persist.maintenance import doctor
from persist.testing import FrozenClock
from persist.workflows.models import runs as runs_table

DAY = timedelta(days=1)


def joining(store: Store, until: Any = "all") -> tuple[str, list[str]]:
    """A run that waits for its two children, and they."""
    with store.begin() as tx:
        runs = tx.workflows.runs
        runs.create("release", trigger_id="tag/1", current_phase="wait", status="queued")
        lease = runs.claim("worker-1", lease=timedelta(hours=1))
        assert lease is not None
        about: dict[str, Any] = {
            "trigger_id": "tag/1",
            "current_phase": "wait",
            "parent_run_id": lease.run_id,
            "status": "queued",
        }
        children = [runs.create("build", **about).id for _ in range(2)]
        assert runs.join(lease, until) is None
    return lease.run_id, children


def test_a_run_waits_for_its_children_as_long_as_it_takes(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        joining(store)
        clock.advance(delta=30 * DAY)
        assert doctor(store) == []


@pytest.mark.parametrize("until", ["all", "first_failure"])
def test_a_run_that_waits_for_children_that_have_ended(database_url: str, clock: FrozenClock, until: str) -> None:
    with Store.open(database_url, clock=clock) as store:
        id, children = joining(store, until)
        with store.begin() as tx:  # as another program leaves it
            of_children = runs_table.c.id.in_(children[: 1 if until == "first_failure" else 2])
            tx._work._core(sqlalchemy.update(runs_table).where(of_children).values(status="failed", finished_at=clock()), None)
        (found,) = doctor(store)
        assert (found.code, found.severity, found.subject) == ("run_joined", "warning", f"run {id}")
        assert store.workflows.runs.resume(id)
        assert doctor(store) == []


def test_a_gate_that_nobody_closes(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        with store.begin() as tx:
            run = tx.workflows.runs.create("triage", trigger_id="issue/1", current_phase="plan")
            gate = tx.workflows.approvals.pause_for_approval(
                run.id, gate="merge", summary="?", marker=("merge", {}), expires_at=clock() + timedelta(hours=1)
            )
        clock.advance(delta=DAY)
        assert doctor(store) == []
        clock.advance(delta=DAY)
        (found,) = doctor(store)
        assert (found.code, found.severity, found.subject) == ("approval_overdue", "warning", f"approval {gate.id}")
        store.workflows.approvals.expire_due()
        assert doctor(store) == []
