"""What a worker makes of runs that wait for their children, and of gates that expire."""

from datetime import timedelta
from typing import Any

import pytest

from persist.workflows.schemas import WorkflowRun
from tests.async_portal import Portal
from tests.contract.faces import every_way
from tests.contract.workers.working import Working, statuses
from tests.contract.workflows.scenes import ask, do, queue, stored

pytestmark = every_way


@pytest.fixture
def store(open_store: Any) -> Any:
    return open_store()


def test_a_handler_that_joins_is_called_again_when_the_children_have_ended(store: Any, portal: Portal) -> None:
    calls: list[str] = []

    def release(run: WorkflowRun) -> None:
        calls.append(run.workflow_name)
        for target in ("linux", "mac"):
            options = {"status": "queued", "parent_run_id": run.id, "idempotency_key": f"{run.id}/{target}"}
            do(store, "create", "build", trigger_id=target, current_phase="start", **options)
        ended = do(store, "join", work.worker.lease(run))
        if ended is not None:
            do(store, "merge_scratch", run.id, {"built": ended.total}, lease=work.worker.lease(run))

    work = Working(store, portal, {"release": release, "build": lambda run: calls.append(run.workflow_name)})
    id = queue(store, workflow_name="release")
    work.run_until_idle()
    assert sorted(calls) == ["build", "build", "release", "release"]
    run = stored(store, id)
    assert (run.status, run.scratch, run.restart_count, run.attempt) == ("succeeded", {"built": 2}, 0, 1)
    assert statuses(store, *[child.id for child in ask(store, "children", id).items]) == ["succeeded"] * 2


def test_a_worker_closes_gates_that_expire(store: Any, portal: Portal, clock: Any) -> None:
    answers: list[Any] = []

    def build(run: WorkflowRun) -> None:
        with store.begin() as tx:
            lease, until = work.worker.lease(run), clock() + timedelta(hours=1)
            options = {"summary": "?", "lease": lease, "expires_at": until, "on_expiry": "resumed"}
            answer = tx.workflows.approvals.wait(run.id, "review", **options)
        if answer is not None:
            answers.append(answer.status)

    work = Working(store, portal, {"build": build})
    id = queue(store)
    work.run_until_idle()
    assert (statuses(store, id), answers) == (["paused"], [])
    clock.advance(delta=timedelta(hours=1))
    work.run_until_idle()
    assert (statuses(store, id), answers) == (["succeeded"], ["rejected"])
